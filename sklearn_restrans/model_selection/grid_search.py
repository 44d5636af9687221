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
    fit_task,
    metadata_of,
    named_scorers,
    routed_parameters,
    search_scorers,
)
from .._data.targets import checked_labels
from .._estimators.base import forget
from .._estimators.candidates import STACKABLE, Failed, fit_estimators, plan_stacks
from .._estimators.classifier import ResidualTransformerClassifier
from .._estimators.parameters import check_parameters
from .._estimators.preparation import check_data
from .._estimators.regressor import ResidualTransformerRegressor
from .._validation import check_groups, check_n_jobs, check_splits

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
        check_n_jobs(self.n_jobs)
        scorers, refit_metric = search_scorers(self)
        X, y = indexable(X, y)
        if params.get("groups") is not None:
            check_groups(params["groups"], len(y))
        params = _check_method_params(X, params=params)
        routed = routed_parameters(self, params)
        is_labelled = is_classifier(self.estimator)
        if is_labelled:
            _check_labels(y)
        candidates = _checked_candidates(self.param_grid)
        splits = check_splits(self.cv, X, y, classifier=is_labelled, **routed.splitter.split)
        shown = {"X": X, "y": y, "metadata": metadata_of(params.get("sample_weight"))}
        n_tasks = 1 + (self.refit is not False)
        with fit_task(self, n_tasks, inner=self.estimator, **shown) as task:
            outputs, plans = self._evaluate(X, y, candidates, splits, scorers, routed, task)
            found = conclude_search(self, candidates, outputs, refit_metric, len(splits))
            found |= {"n_splits_": len(splits), "plans_": plans}
            found["scorer_"] = named_scorers(scorers)
            if self.refit:
                fit_params = routed.estimator.fit
                found |= self._refit(X, y, found["best_params_"], fit_params, task)
            # All attributes are set at once, here: a fit that ends before leaves an earlier one.
            forget(self)
            vars(self).update(found)
        return self

    def _evaluate(self, X, y, candidates, splits, scorers, routed, task):
        """The outputs of every candidate on every fold, and the plan of every group."""
        groups = _groups_of_one_shape(self.estimator, candidates)
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
        # As in GridSearchCV, a task for each candidate on each fold, numbered by candidate first.
        n_fits = len(candidates) * len(splits)
        search = task.without_data().subtask("search", n_fits, ordered=False).begin()
        tasks = [
            search.subtask("candidate-split-evaluation", number=number) for number in range(n_fits)
        ]
        parallel = Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch)
        done = parallel(
            delayed(_fit_and_score_group)(
                self.estimator,
                [candidates[k] for k in group],
                X,
                y,
                *split,
                fold=f"{number + 1}/{len(splits)}",
                tasks=[tasks[k * len(splits) + number] for k in group],
                **settings,
            )
            for group in groups
            for number, split in enumerate(splits)
        )
        search.end()
        outputs, plans = {}, []
        for number, (plan, group_outputs) in enumerate(done):
            group, fold = groups[number // len(splits)], number % len(splits)
            if fold == 0:
                plans.append(plan | {"candidates": group})
            outputs |= {(k, fold): out for k, out in zip(group, group_outputs, strict=True)}
        return [outputs[key] for key in sorted(outputs)], plans

    def _refit(self, X, y, best_params, fit_params, task):
        """The best candidate fitted on all data, as fitted attributes."""
        best = clone(self.estimator).set_params(**clone(best_params, safe=False))
        refit = task.subtask("refit-with-best-params")
        with refit.handed_to(best):
            refit.begin()
            started = time.perf_counter()
            best.fit(X, y, **fit_params)
            found = {"best_estimator_": best, "refit_time_": time.perf_counter() - started}
        refit.end()
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        return found


def _check_labels(y):
    """Refuse labels that cannot be sorted, before a splitter tries to keep their shares."""
    labels = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # fit warns of a column
    if labels.dtype == object:
        checked_labels(labels)


def _checked_candidates(param_grid):
    candidates = list(ParameterGrid(param_grid))
    if not candidates:
        raise ValueError("no fit to make: param_grid has 0 candidates.")
    return candidates


def _last_step(estimator):
    """The Transformer itself, and the prefix of its parameters in the estimator's."""
    prefix = ""
    model = estimator
    while isinstance(model, Pipeline):
        name, model = model.steps[-1]
        prefix += f"{name}__"
    if not isinstance(model, ResidualTransformerRegressor | ResidualTransformerClassifier):
        got, remedy = type(model).__name__, "use GridSearchCV for anything else"
        if isinstance(model, type):
            got, remedy = f"the class {model.__name__}", "add brackets to make an estimator"
        raise TypeError(
            "estimator must be a ResidualTransformerRegressor or -Classifier or a Pipeline that "
            f"ends with one, got {got}; {remedy}."
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
    tasks,
):
    """Fit candidates of one shape on one fold; the plan, and a result per candidate."""
    X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
    models = [clone(estimator).set_params(**clone(params, safe=False)) for params in group]
    fit_params = _check_method_params(X, params=fit_params, indices=train)
    plan, fitted, seconds = _fit_group(models, X_train, y_train, fit_params, tasks)
    parts = {"test": (test, _safe_indexing(X, test), _safe_indexing(y, test))}
    if with_train:
        parts["train"] = (train, X_train, y_train)
    outputs = []
    for model, outcome in zip(models, fitted, strict=True):
        error = outcome.error if isinstance(outcome, Failed) else None
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


def _fit_group(models, X, y, fit_params, tasks):
    """Fit models of one shape in place; the plan, each model or `Failed`, and the seconds."""
    started = time.perf_counter()
    weight_name = f"{_last_step(models[0])[1]}sample_weight"
    beyond = [name for name in fit_params if name != weight_name]
    if beyond:
        plan = {"mode": "separate", "size": 1, "reason": f"fit takes {', '.join(beyond)}"}
        outcomes = [
            _attempt(_fit_alone, model, task, X, y, fit_params)
            for model, task in zip(models, tasks, strict=True)
        ]
    else:
        plan, outcomes = _fit_together(models, tasks, X, y, fit_params.get(weight_name))
    for task in tasks:
        task.end()
    return plan, outcomes, time.perf_counter() - started


def _fit_alone(model, task, X, y, fit_params):
    with task.handed_to(model):
        task.begin(X=X, y=y)
        return model.fit(X, y, **fit_params)


def _fit_together(models, tasks, X, y, weight):
    """The plan of a group, and each model or `Failed`."""
    plan = {"mode": "separate", "size": 1, "reason": "nothing could be fitted"}
    tails = [_last_step(model)[0] for model in models]
    outcomes = [_attempt(check_parameters, tail) for tail in tails]
    good = [k for k, outcome in enumerate(outcomes) if not isinstance(outcome, Failed)]
    if not good:
        return plan, outcomes
    shared = _attempt(_share, [models[k] for k in good], X, y, weight)
    if isinstance(shared, Failed):  # data that cannot be fitted are an error of every fit
        return plan, [shared if k in good else outcome for k, outcome in enumerate(outcomes)]
    X, plan = shared
    for part in np.array_split(good, -(-len(good) // plan["size"])):
        own = [tasks[k] for k in part]
        fitted = _attempt(fit_estimators, [tails[k] for k in part], X, y, weight, tasks=own)
        ends = [fitted] * len(part) if isinstance(fitted, Failed) else fitted[0]
        for k, end in zip(part, ends, strict=True):
            outcomes[k] = end
    return plan, outcomes


def _share(models, X, y, weight):
    """What models of one shape have in common: X after the earlier steps, and the plan."""
    X = _through_earlier_steps(models, X, y)
    first = _last_step(models[0])[0]
    return X, plan_stacks(first, check_data(first, X, y, weight), len(models))


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


def _attempt(function, *args, **kwargs):
    """What the function returns, or `Failed`: one candidate's error must not end the others.

    Any error of a fit counts, as in GridSearchCV: earlier steps of a Pipeline are other people's
    code.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return Failed(error)
