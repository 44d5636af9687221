"""GridSearchCV that trains the candidates of one shape together."""

from __future__ import annotations

import time

import numpy as np
from joblib import Parallel, delayed
from joblib import hash as hash_of
from joblib.logger import short_format_time
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import indexable

from .._compat import (
    _check_method_params,
    _fit_context,
    _safe_indexing,
    _score,
    conclude_search,
    named_scorers,
    routed_parameters,
    search_scorers,
)
from .._estimators.candidates import STACKABLE, fit_estimators, plan_stacks
from .._estimators.classifier import ResidualTransformerClassifier
from .._estimators.parameters import check_parameters
from .._estimators.preparation import check_data
from .._estimators.regressor import ResidualTransformerRegressor
from .._validation import check_splits

__all__ = ["StackedGridSearchCV"]


class StackedGridSearchCV(GridSearchCV):
    """GridSearchCV over a residual Transformer that trains candidates of one shape together.

    Parameters, results and the numbers in them are those of GridSearchCV, up to rounding.
    Candidates that differ in ``residual_beta``, ``learning_rate_init``, ``weight_decay`` and
    ``random_state`` only are trained as one model with a leading candidate dimension where that is
    faster, and the earlier steps of a Pipeline are fitted once for all of them.

    Parameters
    ----------
    estimator : ResidualTransformerRegressor, -Classifier, or a Pipeline that ends with one
        What to fit.
    param_grid : dict or list of dicts
        Values to try, by parameter name.
    scoring : str, callable, list, tuple or dict, default=None
        As in GridSearchCV, and so are all that follow.
    n_jobs : int, default=None
        Processes over groups of candidates and folds, one thread each.
    refit : bool, str or callable, default=True
        Whether, and by which score, the best candidate is fitted again on all data.
    cv : int, splitter or iterable of splits, default=None
        Folds; None is 5.
    verbose : int, default=0
        1 prints the numbers of candidates and folds; 2 also a line for every group and fold, once
        it is fitted, and every fit in it, with its share of the time; 3 the scores too.
    pre_dispatch : int or str, default="2*n_jobs"
        As in GridSearchCV.
    error_score : "raise" or number, default=nan
        Score of a fit that failed. A candidate that diverges ends alone.
    return_train_score : bool, default=False
        Whether to score the training parts too.

    Attributes
    ----------
    plans_ : list of dict
        For each group of candidates of one shape: mode ("stacked" or "separate"), size, reason,
        and ``candidates``, the rows of ``cv_results_`` in it.
    cv_results_ : dict of ndarrays
        As in GridSearchCV; a fit's time is its share of its group's.
    best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, \
multimetric_
        As in GridSearchCV.

    See Also
    --------
    ResidualTransformerRegressorCV : Searches beta alone.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor, StackedGridSearchCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressor(d_model=8, max_iter=2, random_state=0)
    >>> grid = {"residual_beta": [0, 1], "learning_rate_init": [1e-3, 1e-2]}
    >>> search = StackedGridSearchCV(model, grid, cv=2).fit(X, y)
    >>> search.plans_[0]["mode"], len(search.cv_results_["params"])
    ('stacked', 4)
    """

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, **params):
        """Fit and score every candidate on every fold, and the best one on all data.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        y : array-like, default=None
            Targets.
        **params : dict
            ``sample_weight``, ``groups`` and the like, handed on as GridSearchCV does.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            If the estimator does not end with one of this package.
        ValueError
            If every fit failed, or any with ``error_score="raise"``.
        """
        _last_step(self.estimator)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        scorers, refit_metric = search_scorers(self)
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = routed_parameters(self, params)
        candidates = list(ParameterGrid(self.param_grid))
        groups = _groups_of_one_shape(self.estimator, candidates)
        splits = check_splits(
            self.cv, X, y, classifier=is_classifier(self.estimator), **routed.splitter.split
        )
        if not candidates:
            raise ValueError("no fit to make: param_grid has 0 candidates.")
        self.n_splits_ = len(splits)
        if self.verbose > 0:
            _print_size(len(candidates), len(splits))
        settings = {
            "fit_params": routed.estimator.fit,
            "scorer": scorers,
            "score_params": routed.scorer.score,
            "with_train": self.return_train_score,
            "error_score": self.error_score,
            "verbose": self.verbose,
        }
        parallel = Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch)
        done = parallel(
            delayed(_fit_and_score_group)(
                self.estimator,
                [candidates[k] for k in group],
                X,
                y,
                *split,
                fold=f"{number}/{len(splits)}",
                **settings,
            )
            for group in groups
            for number, split in enumerate(splits, 1)
        )
        outputs = {}
        self.plans_ = []
        for number, (plan, group_outputs) in enumerate(done):
            group, fold = groups[number // len(splits)], number % len(splits)
            if fold == 0:
                self.plans_.append(plan | {"candidates": group})
            outputs |= {(k, fold): out for k, out in zip(group, group_outputs, strict=True)}
        outputs = [outputs[key] for key in sorted(outputs)]
        conclude_search(self, candidates, outputs, refit_metric)
        if self.refit:
            best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            started = time.perf_counter()
            self.best_estimator_ = best.fit(X, y, **routed.estimator.fit)
            self.refit_time_ = time.perf_counter() - started
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        self.scorer_ = named_scorers(scorers)
        return self


def _last_step(estimator):
    """The Transformer itself, and the prefix of its parameters in the estimator's."""
    prefix = ""
    model = estimator
    while isinstance(model, Pipeline):
        name, model = model.steps[-1]
        prefix += f"{name}__"
    if not isinstance(model, ResidualTransformerRegressor | ResidualTransformerClassifier):
        raise TypeError(
            "estimator must be a ResidualTransformerRegressor or -Classifier or a Pipeline that "
            f"ends with one, got {type(model).__name__}; use GridSearchCV for anything else."
        )
    return model, prefix


def _groups_of_one_shape(estimator, candidates):
    """Lists of the numbers of candidates that may be trained together."""
    _, prefix = _last_step(estimator)
    groups: dict[str, list[int]] = {}
    for number, params in enumerate(candidates):
        free = set(STACKABLE)
        if _stops_early(estimator, params):
            free.remove("random_state")  # it decides which rows are held out
        names = {prefix + name for name in free}
        fixed = sorted((name, value) for name, value in params.items() if name not in names)
        groups.setdefault(hash_of(fixed), []).append(number)
    return list(groups.values())


def _stops_early(estimator, params):
    """Whether a candidate stops early; one whose parameters do not exist fails in its own fit."""
    try:
        candidate = clone(estimator).set_params(**clone(params, safe=False))
        return _last_step(candidate)[0].early_stopping
    except (ValueError, TypeError):
        return True


def _fit_and_score_group(
    estimator,
    group,
    X,
    y,
    train,
    test,
    *,
    fit_params,
    scorer,
    score_params,
    with_train,
    error_score,
    verbose,
    fold,
):
    """Fit candidates of one shape on one fold; the plan, and a result per candidate."""
    X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
    models = [clone(estimator).set_params(**clone(params, safe=False)) for params in group]
    plan, errors, seconds = _fit_group(
        models, X_train, y_train, _check_method_params(X, params=fit_params, indices=train)
    )
    parts = {"test": (test, _safe_indexing(X, test), _safe_indexing(y, test))}
    if with_train:
        parts["train"] = (train, X_train, y_train)
    outputs = []
    for model, error in zip(models, errors, strict=True):
        if error is not None and error_score == "raise":
            raise error
        text = None if error is None else f"{type(error).__name__}: {error}"
        out = {"fit_error": text, "fit_time": seconds / len(models)}
        out |= {"n_test_samples": len(test), "score_time": 0.0}
        for name, (rows, X_part, y_part) in parts.items():
            if error is not None:
                out[f"{name}_scores"] = error_score
                continue
            weights = _check_method_params(X, params=score_params, indices=rows)
            started = time.perf_counter()
            scores = _score(model, X_part, y_part, scorer, weights, error_score)
            out[f"{name}_scores"] = scores
            if name == "test":
                out["score_time"] = time.perf_counter() - started
        outputs.append(out)
    if verbose > 1:
        _print_group(fold, plan, group, outputs, seconds, verbose)
    return plan, outputs


def _print_size(n_candidates, n_folds):
    print(
        f"Fitting {n_folds} folds for each of {n_candidates} candidates, totalling "
        f"{n_candidates * n_folds} fits"
    )


def _print_group(fold, plan, group, outputs, seconds, verbose):
    """A line for a group on a fold, and the line GridSearchCV has for each fit in it."""
    how = f"{plan['size']} at a time" if plan["mode"] == "stacked" else "one by one"
    _print_end(f"[CV {fold}] GROUP ", f"{len(group)} candidates, {how};", seconds)
    for params, out in zip(group, outputs, strict=True):
        result = ", ".join(f"{name}={params[name]}" for name in sorted(params))
        result += ";" if result else ""
        if verbose > 2:
            result += _scores_in_words(out)
        start = f"[CV {fold}] END " if verbose > 2 else "[CV] END "
        _print_end(start, result, out["fit_time"] + out["score_time"])


def _print_end(start, result, seconds):
    result += f" total time={short_format_time(seconds)}"
    print(f"{start}{'.' * (80 - len(start) - len(result))}{result}")


def _scores_in_words(out):
    """Scores as GridSearchCV prints them."""
    test, train = out["test_scores"], out.get("train_scores")
    if not isinstance(test, dict):
        scores = f"{test:.3f}" if train is None else f"(train={train:.3f}, test={test:.3f})"
        return f", score={scores}"
    train = {} if train is None else {name: f"train={train[name]:.3f}, " for name in test}
    return "".join(f" {n}: ({train.get(n, '')}test={test[n]:.3f})" for n in sorted(test))


def _fit_group(models, X, y, fit_params):
    """Fit models of one shape in place; the plan, an error or None for each, and the seconds."""
    started = time.perf_counter()
    tails = [_last_step(model)[0] for model in models]
    _, prefix = _last_step(models[0])
    weight = fit_params.get(f"{prefix}sample_weight")
    beyond = [name for name in fit_params if name != f"{prefix}sample_weight"]
    reason = f"fit takes {', '.join(beyond)}" if beyond else "nothing could be fitted"
    plan = {"mode": "separate", "size": 1, "reason": reason}
    errors = [None] * len(models)
    try:
        if not beyond:
            errors = [_error_of(check_parameters, tail) for tail in tails]
            good = [k for k, error in enumerate(errors) if error is None]
            if not good:
                return plan, errors, time.perf_counter() - started
            X = _through_earlier_steps([models[k] for k in good], X, y)
            first = tails[good[0]]
            plan = plan_stacks(first, check_data(first, X, y, weight), len(good))
            for part in np.array_split(good, -(-len(good) // plan["size"])):
                part_errors, _ = fit_estimators([tails[k] for k in part], X, y, weight)
                for k, error in zip(part, part_errors, strict=True):
                    errors[k] = error
        else:
            for k, model in enumerate(models):
                errors[k] = _error_of(model.fit, X, y, **fit_params)
    except Exception as error:
        # As in GridSearchCV, data that cannot be fitted are the fit's error.
        errors = [error if own is None else own for own in errors]
    return plan, errors, time.perf_counter() - started


def _through_earlier_steps(models, X, y):
    """X after the earlier steps of Pipelines, fitted once and shared by all of them."""
    while isinstance(models[0], Pipeline):
        if len(models[0].steps) > 1:
            head = models[0][:-1]
            X = head.fit_transform(X, y)
            for model in models:
                model.steps = [*head.steps, model.steps[-1]]
        models = [model.steps[-1][1] for model in models]
    return X


def _error_of(function, *args, **kwargs):
    """The error a call raised, or None: one candidate's error must not end the others."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None
