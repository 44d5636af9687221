"""Arguments that several functions take: whole numbers, folds and scores."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv

from ._compat import response_methods


def check_integer(name, value, least=1):
    """``value`` as an int, or a ValueError that names the argument, what came and what is allowed.

    A bool is refused although Python counts it as an integer: ``n_steps=True`` is a slip.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r:.80}.")
    return int(value)


def check_n_jobs(n_jobs):
    """How many processes ``n_jobs`` stands for, or a sentence about what it is instead."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral)):
        raise ValueError(f"n_jobs must be an integer or None, got {n_jobs!r:.80}.")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: pass 1 or more processes, -1 for all, or None.")
    return effective_n_jobs(n_jobs)


def check_groups(groups, n_rows):
    """Refuse ``groups`` that do not hold one label for each of the rows."""
    found = None if isinstance(groups, str | bytes | dict) else np.ndim(groups) and len(groups)
    if found != n_rows:
        got = f"{found} labels" if found else f"{groups!r:.80}"
        raise ValueError(f"groups must hold one label per row, {n_rows} in all, got {got}.")


def check_splits(cv, X, y, groups=None, *, classifier=False, **split):
    """Folds as a list of pairs (train, test) of row numbers; errors say what ``cv`` may be."""
    if isinstance(cv, type):
        raise TypeError(f"cv must be a splitter, got the class {cv.__name__}: add brackets.")
    if groups is not None:
        check_groups(groups, len(y))
        split["groups"] = groups
    folds = cv
    if cv is None or _is_integer(cv):
        _check_number_of_folds(cv, len(y))
        folds = check_cv(cv, y, classifier=classifier).split(X, y, **split)
    elif callable(getattr(cv, "split", None)) and not isinstance(cv, str | bytes):
        folds = cv.split(X, y, **split)
    if isinstance(folds, str | bytes | dict) or not np.iterable(folds):
        raise ValueError(
            "cv must be a number of folds, a splitter such as TimeSeriesSplit(5), or a list of "
            f"pairs (train, test) of row numbers, got {cv!r:.80}."
        )
    splits = [_check_fold(number, fold, len(y)) for number, fold in enumerate(folds)]
    if not splits:
        raise ValueError("cv yields no folds: pass a number of folds, a splitter, or splits.")
    return splits


def _is_integer(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_number_of_folds(cv, n_rows):
    n_folds = 5 if cv is None else cv
    if not 2 <= n_folds <= n_rows:
        raise ValueError(
            "cv must be at least 2 folds and at most as many as there are rows "
            f"(n_samples={n_rows}), got {n_folds!s:.80}."
        )


def _check_fold(number, fold, n_rows):
    pair = list(fold) if np.iterable(fold) and not isinstance(fold, str | bytes | dict) else []
    if len(pair) != 2:
        raise ValueError(
            f"cv: fold {number} must be a pair (train, test) of row numbers, got {fold!r:.80}."
        )
    train, test = pair
    return _check_rows(number, "train", train, n_rows), _check_rows(number, "test", test, n_rows)


def _check_rows(number, part, rows, n_rows):
    try:
        found = np.asarray(rows)
    except ValueError:  # lists of unequal lengths are no array
        found = np.asarray(None)
    if found.dtype == bool and found.shape == (n_rows,):
        return np.flatnonzero(found)
    if found.size == 0 and found.ndim == 1:
        return found.astype(int)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(
            f"cv: {part} of fold {number} must be a list of row numbers or a mask of the {n_rows} "
            f"rows, got {rows!r:.80}."
        )
    if found.min() < 0 or found.max() >= n_rows:
        raise ValueError(
            f"cv: {part} of fold {number} names the rows {found.min()} to {found.max()}, but there "
            f"are 0 to {n_rows - 1}."
        )
    return found


def check_scorer(estimator, scoring):
    """The one scorer that ``scoring`` names; errors say what it may be."""
    is_score = scoring is None or isinstance(scoring, str) or callable(scoring)
    if not is_score or isinstance(scoring, type):
        raise ValueError(
            "scoring must be one score, by name or as a function of (estimator, X, y), or None, "
            f"got {scoring!r:.80}."
        )
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        raise ValueError(
            f"scoring={scoring!r:.80} is not a score of scikit-learn; "
            "sklearn.metrics.get_scorer_names() lists them."
        )
    scorer = check_scoring(estimator, scoring)
    methods = response_methods(scorer)
    if methods and not any(hasattr(estimator, method) for method in methods):
        raise ValueError(
            f"scoring={scoring!r} is computed from {' or '.join(methods)}, which "
            f"{type(estimator).__name__} does not have; choose a score that is computed from "
            "predict."
        )
    return scorer
