"""The beta path: every beta, seed and fold, trained together where that pays."""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from functools import partial, update_wrapper
from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import indexable

from .._compat import (
    FitTask,
    _check_sample_weight,
    _safe_indexing,
    takes_sample_weight,
)
from .._estimators.candidates import Failed, fit_estimators, plan_stacks
from .._estimators.classifier import ResidualTransformerClassifier
from .._estimators.parameters import check_parameters
from .._estimators.preparation import check_data
from .._estimators.regressor import ResidualTransformerRegressor
from .._validation import (
    check_groups,
    check_integer,
    check_n_jobs,
    check_scorer,
    check_splits,
)

__all__ = ["BetaPath", "residual_beta_path"]
from .path_results import BetaPath

_LARGEST_SEED = 2**32 - 1


def residual_beta_path(
    X,
    y,
    betas,
    *,
    estimator=None,
    cv=None,
    groups=None,
    sample_weight=None,
    segments=None,
    scoring=None,
    n_seeds=1,
    stacked="auto",
    n_jobs=None,
):
    """Fit a residual Transformer for every beta, seed and fold, as `lasso_path` does for alpha.

    Candidates that differ in beta and seed only have weights of equal shape: they are trained as
    one model with a leading candidate dimension where that is faster, and separately where not.
    Either way each fit equals the one that ``estimator.fit`` gives, up to rounding.

    Parameters
    ----------
    X : array-like or SequenceView
        Training data, as for ``estimator.fit``.
    y : array-like
        Targets.
    betas : array-like of float of shape (n_betas,)
        Residual coefficients, >= 0 and different from each other.
    estimator : ResidualTransformerRegressor or -Classifier, default=None
        What to fit; its ``residual_beta`` is replaced. None is the regressor with its defaults.
    cv : int, splitter or iterable of splits, default=None
        Folds; scores are those of the test parts. None fits on all data, without a score.
    groups : array-like of shape (n_samples,), default=None
        Handed to the splitter.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights for fit, and for the scores if the scorer takes any, as in ``GridSearchCV``.
    segments : array-like of shape (n_rows,), default=None
        With ``window``, the series, station or stretch that each row of X belongs to, for fit and
        for the scores.
    scoring : str or callable, default=None
        Score of the test parts; None is ``estimator.score``.
    n_seeds : int, default=1
        Fits per beta and fold, with random_state, random_state + 1, ...
    stacked : {"auto"} or bool, default="auto"
        "auto" asks a measured cost model; its choice and reason are in ``path.plan``.
    n_jobs : int, default=None
        Processes over folds (and over fits that are not stacked), one thread each.

    Returns
    -------
    path : BetaPath

    Raises
    ------
    ValueError
        For betas that are empty, negative, not finite, repeated or not numbers, seeds beyond the
        largest, or folds that cannot be fitted. A beta that diverges, or has no score, does not
        raise; its row of `BetaPath.to_frame` says so.

    References
    ----------
    arXiv:2506.05249, the experiments on beta (claim C4).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> model = ResidualTransformerRegressor(d_model=8, max_iter=2, random_state=0)
    >>> path = residual_beta_path(X, X[:, 0], [0, 1], estimator=model, cv=3)
    >>> len(path.to_frame())
    6
    """
    options = {"groups": groups, "sample_weight": sample_weight, "segments": segments}
    options |= {"scoring": scoring, "n_seeds": n_seeds, "stacked": stacked, "n_jobs": n_jobs}
    return path_of(X, y, betas, estimator, cv, FitTask(), **options)


def path_of(
    X,
    y,
    betas,
    estimator,
    cv,
    task,
    *,
    groups=None,
    sample_weight=None,
    segments=None,
    scoring=None,
    n_seeds=1,
    stacked="auto",
    n_jobs=None,
):
    """:func:`residual_beta_path` as a part of a fit: its fits are subtasks of ``task``."""
    betas = _check_betas(betas)
    n_seeds = check_integer("n_seeds", n_seeds)
    if not isinstance(stacked, bool) and not (isinstance(stacked, str) and stacked == "auto"):
        raise ValueError(f"stacked must be 'auto', True or False, got {stacked!r:.80}.")
    estimator = _checked_estimator(estimator)
    n_processes = check_n_jobs(n_jobs)
    seeds = _seeds(estimator.random_state, n_seeds)
    scorer = check_scorer(estimator, scoring)
    # Bad input is refused here, once, with the sentences of fit, and not by some fold.
    checked_for = clone(estimator).set_params(residual_beta=betas[0])
    check_parameters(checked_for)
    checked = check_data(checked_for, X, y, sample_weight, segments=segments)
    n_alike = len(betas) * (1 if estimator.early_stopping else n_seeds)
    plan = plan_stacks(checked_for, checked, n_alike, stacked)
    if groups is not None:
        check_groups(groups, len(checked.y))
    X, y, groups, segments = indexable(X, y, groups, segments)
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, np.empty((len(y), 0)))
    splits = _checked_splits(estimator, cv, X, y, groups)
    if cv is None:
        scorer = None
    weigh = scorer is not None and sample_weight is not None and _takes_weights(scorer)
    parts = _parts(splits, betas, seeds, estimator.early_stopping, plan["size"], n_processes)
    search, tasks = _subtasks(task, parts)
    done = Parallel(n_jobs=n_jobs)(
        delayed(_fit_part)(estimator, X, y, sample_weight, segments, scorer, weigh, *part, own)
        for part, own in zip(parts, tasks, strict=True)
    )
    search.end()
    order = {beta: k for k, beta in enumerate(betas)}
    fits = sorted(
        (fit for part in done for fit in part),
        key=lambda fit: (order[fit["beta"]], fit["seed"], fit["fold"]),
    )
    return BetaPath(fits, plan)


def _checked_estimator(estimator):
    estimator = ResidualTransformerRegressor() if estimator is None else estimator
    if isinstance(estimator, ResidualTransformerRegressor | ResidualTransformerClassifier):
        return estimator
    got, remedy = type(estimator).__name__, "put preprocessing before the call"
    if isinstance(estimator, type):
        got, remedy = f"the class {estimator.__name__}", "add brackets to make an estimator"
    raise TypeError(
        f"estimator must be a ResidualTransformerRegressor or -Classifier, got {got}; {remedy}."
    )


def _checked_splits(estimator, cv, X, y, groups):
    """Pairs (train, test) of row numbers; (None, None) stands for all rows."""
    if cv is None:
        return [(None, None)]
    splits = check_splits(cv, X, y, groups, classifier=is_classifier(estimator))
    for number, (train, _) in enumerate(splits):
        if is_classifier(estimator) and len(np.unique(_safe_indexing(y, train))) < 2:
            raise ValueError(
                f"the training part of fold {number} holds one class only; use a stratified "
                "splitter or fewer folds."
            )
    return splits


def _subtasks(task, parts):
    """For each part a list of the tasks of its fits."""
    search = task.without_data().subtask("search", sum(len(p[-1]) for p in parts), ordered=False)
    search.begin()
    numbers = itertools.count()
    return search, [
        [search.subtask("candidate-split-evaluation", number=next(numbers)) for _ in part[-1]]
        for part in parts
    ]


def _parts(splits, betas, seeds, early_stopping, group_size, n_processes):
    """Groups of candidates on a fold, (fold, train, test, pairs of beta and seed)."""
    blocks = [[(beta, seed) for beta in betas] for seed in seeds]
    if not early_stopping:
        # Only the split of early stopping makes the data of two seeds differ.
        blocks = [[pair for block in blocks for pair in block]]
    parts = [
        (fold, train, test, group)
        for fold, (train, test) in enumerate(splits)
        for pairs in blocks
        for group in _split(pairs, -(-len(pairs) // group_size))
    ]
    # The groups left over when each process has had equally many are divided among all processes,
    # so that none of them waits for another.
    even = len(parts) - len(parts) % n_processes
    parts[even:] = [
        (*data, group) for *data, pairs in parts[even:] for group in _split(pairs, n_processes)
    ]
    return parts


def _check_betas(betas):
    """Validated coefficients as a list of floats."""
    wanted = "betas must be a list of different finite numbers >= 0"
    try:
        values = [] if isinstance(betas, str | bytes | dict) else list(betas)
    except TypeError:
        values = []
    if not values:
        raise ValueError(f"{wanted}, got {betas!r:.80}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(
                f"{wanted}, got {value!r:.80} among them; a path takes single numbers, not pairs "
                "or matrices."
            )
        # Compared as they are: an integer may be too large for a float.
        if not 0 <= value <= np.finfo(float).max:
            raise ValueError(f"{wanted}, got {value!r:.80} among them.")
    values = [float(value) for value in values]
    if len(set(values)) < len(values):
        raise ValueError(f"{wanted}, got one of them twice: {values}.")
    return values


def _split(items, n_parts):
    """The items in at most ``n_parts`` parts of equal size, none of them empty."""
    parts = np.array_split(range(len(items)), min(n_parts, len(items)))
    return [[items[k] for k in part] for part in parts]


def _seeds(random_state, n_seeds):
    if isinstance(random_state, Integral):
        if random_state + n_seeds - 1 > _LARGEST_SEED:
            raise ValueError(
                f"random_state={random_state} and the {n_seeds - 1} seeds after it (n_seeds="
                f"{n_seeds}) go beyond the largest seed, 2**32 - 1: pass a smaller random_state."
            )
        return [int(random_state) + k for k in range(n_seeds)]
    if random_state is None:
        rng = np.random.default_rng()
        return [int(seed) for seed in rng.integers(2**31 - n_seeds, size=n_seeds)]
    return check_random_state(random_state).randint(2**31 - 1, size=n_seeds).tolist()


def _takes_weights(scorer):
    """Whether a scorer takes sample_weight; one that does not gets a warning, as GridSearchCV's."""
    takes = takes_sample_weight(scorer)
    if not takes:
        warnings.warn(
            f"scoring={scorer} takes no sample_weight: fits are weighted, scores are not.",
            UserWarning,
            stacklevel=3,
        )
    return takes


def _fit_part(
    estimator, X, y, sample_weight, segments, scorer, weigh, fold, train, test, pairs, tasks
):
    """Fit one group of candidates on one fold; a dict per candidate."""

    def part(rows):
        arrays = [X, y, sample_weight, segments]
        if rows is None:
            return arrays
        return [None if array is None else _safe_indexing(array, rows) for array in arrays]

    candidates = [
        clone(estimator).set_params(residual_beta=beta, random_state=seed) for beta, seed in pairs
    ]
    *data, labels = part(train)
    outcomes, seconds = fit_estimators(candidates, *data, segments=labels, tasks=tasks)
    for task in tasks:
        task.end()
    fits = []
    for (beta, seed), outcome in zip(pairs, outcomes, strict=True):
        failed = isinstance(outcome, Failed)
        fit = {
            "beta": beta,
            "seed": seed,
            "fold": fold,
            "estimator": None if failed else outcome,
            "error": str(outcome.error) if failed else "",
            "score": np.nan,
            "fit_time": seconds / len(pairs),
            "score_time": np.nan,
        }
        if scorer is not None and not failed:
            X_test, y_test, weight, labels = part(test)
            weights = {"sample_weight": weight} if weigh else {}
            fit |= _score(scorer, _with_segments(outcome, labels), X_test, y_test, **weights)
        fits.append(fit)
    return fits


def _with_segments(model, segments):
    """A copy of a fitted model that takes the rows it predicts to be of these segments.

    A scorer passes X alone. The copy is an estimator of the same class with the same parameters,
    so that scorers find all they ask for; only its methods know the segments by themselves.
    """
    if segments is None:
        return model
    told = copy.copy(model)
    for name in ("predict", "predict_proba", "predict_log_proba", "score"):
        if hasattr(model, name):
            method = getattr(model, name)
            # With the name of the method, by which scorers tell what they have called.
            setattr(told, name, update_wrapper(partial(method, segments=segments), method))
    return told


def _score(scorer, model, X, y, **weights):
    """Score of a test part, or why it has none: one candidate without must not end the path."""
    started = time.perf_counter()
    try:
        score, error = float(scorer(model, X, y, **weights)), ""
    except (AttributeError, TypeError, ValueError) as caught:
        score, error = np.nan, f"no score: {caught}"
    if not error and not np.isfinite(score):
        error = f"no score: it is {score} on the {len(y)} row(s) of the test part"
        if len(y) < 2:
            error += "; R^2 and similar scores need two or more"
    return {"score": score, "error": error, "score_time": time.perf_counter() - started}
