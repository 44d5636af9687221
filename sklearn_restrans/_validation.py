"""Arguments that several functions take: whole numbers, folds and scores."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from sklearn.metrics import check_scoring, get_scorer_names
from sklearn.model_selection import check_cv


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
        raise ValueError("n_jobs=0 is no process to fit in: pass 1 or more, -1 for all, or None.")
    return effective_n_jobs(n_jobs)


def check_splits(cv, X, y, groups=None, *, classifier=False, **split):
    """Folds as a list of pairs (train, test) of row numbers, or a sentence about what ``cv`` is."""
    if isinstance(cv, type):
        raise TypeError(f"cv must be a splitter, got the class {cv.__name__}: add brackets.")
    if groups is not None:
        split["groups"] = groups
    folds = cv
    if not np.iterable(cv) or hasattr(cv, "split"):
        folds = check_cv(cv, y, classifier=classifier).split(X, y, **split)
    splits = [_check_fold(number, fold, len(y)) for number, fold in enumerate(folds)]
    if not splits:
        raise ValueError("cv gives no fold: pass a number of folds, a splitter, or splits.")
    return splits


def _check_fold(number, fold, n_rows):
    try:
        train, test = fold
    except (TypeError, ValueError):
        raise ValueError(
            f"cv: fold {number} must be a pair (train, test) of row numbers, got {fold!r}."
        ) from None
    return _check_rows(number, "train", train, n_rows), _check_rows(number, "test", test, n_rows)


def _check_rows(number, part, rows, n_rows):
    found = np.asarray(rows)
    if found.dtype == bool and found.shape == (n_rows,):
        return np.flatnonzero(found)
    if found.size == 0 and found.ndim == 1:
        return found.astype(int)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(
            f"cv: {part} of fold {number} must be a list of row numbers or a mask of the {n_rows} "
            f"rows, got {rows!r}."
        )
    if found.min() < 0 or found.max() >= n_rows:
        raise ValueError(
            f"cv: {part} of fold {number} names the rows {found.min()} to {found.max()}, but there "
            f"are 0 to {n_rows - 1}."
        )
    return found


def check_scorer(estimator, scoring):
    """The one scorer that ``scoring`` names, or a sentence about what it is instead."""
    if not (scoring is None or isinstance(scoring, str) or callable(scoring)):
        raise ValueError(
            f"scoring must be one score, by name or as a callable, or None, got {scoring!r}."
        )
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        raise ValueError(
            f"scoring={scoring!r} is not a score of scikit-learn; "
            "sklearn.metrics.get_scorer_names() lists them."
        )
    return check_scoring(estimator, scoring)
