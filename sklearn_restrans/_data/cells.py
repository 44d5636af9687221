"""What users pass as numbers, made arrays of numbers; or a sentence that names the cell."""

from __future__ import annotations

import datetime
import numbers
import re

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse

_REMEDIES = {
    "dates": (
        "CalendarFeatures makes numbers of the calendar (column=...), and (dates - "
        "start).dt.total_seconds() the time that has passed"
    ),
    "durations": "divide by a unit, for instance by pd.Timedelta('1h')",
    "text": (
        "texts go through SequenceVectorizer to an estimator with embedding='token', categories "
        "through OneHotEncoder"
    ),
    "complex numbers": "pass their real and imaginary parts as two columns",
    "numbers beyond float64": "the largest is 1.8e308: take logarithms, or another unit",
    "lists": "give every value a column of its own",
    "several fields": "pass every field as a column of its own",
}
_ANY = "pass numbers"


def plain(X):
    """X as numpy, pandas or lists have it.

    Torch tensors may be of any device and precision, dask collections are computed, and objects
    that are only known to make an array make it.
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = X.to_dense() if X.layout != torch.strided else X
        # numpy has no bfloat16
        return X.float().numpy() if X.dtype == torch.bfloat16 else X.numpy()
    if hasattr(X, "__dask_graph__") and hasattr(X, "compute"):
        return X.compute()
    if not hasattr(X, "shape") and hasattr(X, "__array__"):
        return np.asarray(X)
    return X


def as_numbers(X, name="X", *, remedies=None, columns=None):
    """X with numbers in place of objects; None and NA become NaN.

    Frames stay frames, arrays arrays; only what holds objects is copied.

    Parameters
    ----------
    X : array-like
        As it comes from `plain`.
    name : str, default="X"
        The argument, for messages.
    remedies : dict, default=None
        What to do about dates, text, ...; replaces some of the sentences for X.
    columns : sequence of str, default=None
        Names of the columns of an array, for messages.

    Raises
    ------
    ValueError
        If a cell holds a date, text, a complex number, a list, or another object.
    """
    remedies = {**_REMEDIES, **(remedies or {})}
    if isinstance(X, pd.DataFrame):
        return _numeric_frame(X, name, remedies)
    if hasattr(X, "columns") and hasattr(X, "dtypes"):  # as of polars
        _check_columns(X, name, remedies)
        return X
    if isinstance(X, pd.Series | pd.Index):
        _refuse_kind(X.dtype, name, None, remedies)
        return _numeric_cells(X.to_numpy(), name, remedies) if _holds_objects(X.dtype) else X
    if issparse(X) or X is None:
        return X  # scikit-learn's own checks have sentences for these
    if isinstance(X, dict | set | frozenset) or not (
        np.isscalar(X) or isinstance(X, list | tuple) or hasattr(X, "__array__")
    ):
        raise TypeError(
            f"{name} must be an array, a list or a DataFrame, got an object of the type "
            f"{type(X).__name__}; make an array of it."
        )
    found = X if isinstance(X, np.ndarray) else as_array(X, name)
    _refuse_kind(found.dtype, name, None, remedies)
    if found.dtype.kind in "OUST":
        return _numeric_cells(found, name, remedies, names=columns)
    return found if isinstance(X, list | tuple) else X


def naming(name, function, *args, **kwargs):
    """The result of a check of scikit-learn or numpy, whose errors then name the argument.

    Overflow inside a check is no matter of the user's: sums are made to look for NaN.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if re.search(rf"\b{name}\b", str(error)):
            raise
        text = str(error)
        # scikit-learn prints the array itself, before its advice.
        if re.search(r"\n(array=|\[)", text):
            first, *others = text.splitlines()
            text = " ".join([first, *(line for line in others if line.startswith("Reshape"))])
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {text}") from None


def _check_columns(X, name, remedies):
    """Refuse columns of a frame that is not of pandas; it keeps what converts by itself."""
    for label, dtype in zip(X.columns, X.dtypes, strict=False):
        if getattr(dtype, "is_temporal", lambda: False)():
            kind = "durations" if "duration" in str(dtype).lower() else "dates"
            raise _refusal(kind, name, f"column {label!r}", str(dtype), remedies, of_type=True)
        values = np.asarray(X[label])
        if values.dtype.kind in "OUST":
            _numeric_cells(values, name, remedies, label=label)


def as_array(X, name):
    """An array of what users pass as one; of objects where numpy would make text of numbers."""
    try:
        found = np.asarray(X)
        # numpy makes text of every number beside one; the cells are wanted as they are.
        return np.asarray(X, dtype=object) if found.dtype.kind in "US" else found
    except (ValueError, TypeError, OverflowError):
        raise ValueError(
            f"{name} cannot be read as an array: rows must have one length, and cells must be "
            "single numbers or labels."
        ) from None


def _numeric_frame(X, name, remedies):
    changed = X
    for place, (label, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
        _refuse_kind(dtype, name, f"column {label!r}", remedies)
        if not _holds_objects(dtype):
            continue
        values = X.iloc[:, place].to_numpy(dtype=object)
        column = _numeric_cells(values, name, remedies, label=label)
        changed = X.copy(deep=False) if changed is X else changed
        changed.isetitem(place, column)
    return changed


def _holds_objects(dtype):
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return getattr(dtype, "kind", "O") in "OUS" and not isinstance(dtype, pd.SparseDtype)


def _refuse_kind(dtype, name, place, remedies):
    kind = _kind(dtype)
    if kind:
        raise _refusal(kind, name, place, dtype, remedies, of_type=True)


def _kind(dtype):
    """Word for what cells of a number type hold that is no real number; None if they may be."""
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return "dates"
    if isinstance(dtype, pd.IntervalDtype):
        return "intervals"
    found = {"M": "dates", "m": "durations", "c": "complex numbers", "V": "several fields"}
    return found.get(getattr(dtype, "kind", None))


def _numeric_cells(values, name, remedies, *, label=None, names=None):
    """An array of objects as float64."""
    flat = values.reshape(-1)
    out = np.empty(len(flat))
    for place, cell in enumerate(flat):
        found = _number(cell)
        if isinstance(found, str):
            where = (*np.unravel_index(place, values.shape), 0)[: max(1, values.ndim)]
            column = where[-1] if label is None and values.ndim > 1 else label
            column = column if names is None or label is not None else names[column]
            spot = "" if column is None else f"column {_named(column)}, "
            raise _refusal(found, name, f"{spot}row {where[0]}", cell, remedies)
        out[place] = found
    return out.reshape(values.shape)


def _named(column):
    return int(column) if isinstance(column, np.integer) else repr(column)


def _number(cell):
    """A cell as a float, NaN where it is missing; or the word for what it holds instead."""
    if isinstance(cell, np.ndarray) and cell.ndim == 0:
        cell = cell.item()
    if cell is None or cell is pd.NA:
        return np.nan
    if cell is pd.NaT or isinstance(cell, datetime.date | np.datetime64 | pd.Period):
        return "dates"
    if isinstance(cell, datetime.timedelta | np.timedelta64):
        return "durations"
    if isinstance(cell, list | tuple | set | np.ndarray | pd.Series):
        return "lists"
    if isinstance(cell, numbers.Complex) and not isinstance(cell, numbers.Real):
        return "complex numbers"
    try:
        return float(cell)
    except OverflowError:
        return "numbers beyond float64"
    except (TypeError, ValueError):
        text = isinstance(cell, str | bytes)
        return "text" if text else f"objects of the type {type(cell).__name__}"


def _refusal(kind, name, place, found, remedies, *, of_type=False):
    """The error for cells that are no numbers; ``found`` is a cell, or the type of a column."""
    if of_type:
        shown = f"{place or 'it'} is of the type {found}"
    elif kind == "text":
        # The beginning of the sentence is that of Python.
        shown = f"could not convert string to float: {_short(found)} in {place}"
    else:
        shown = f"{place} holds {_short(found)}"
    remedy = remedies.get(kind, _ANY)
    if kind.startswith("objects"):
        shown += (
            f"; float() argument must be a string or a real number, not {type(found).__name__!r}"
        )
    if kind == "complex numbers":
        shown = f"Complex data not supported, {shown}"
    error = TypeError if kind.startswith("objects") else ValueError
    return error(f"{name} holds {kind} where numbers are expected: {shown}; {remedy}.")


def _short(cell):
    try:
        text = repr(str(cell)) if isinstance(cell, str) else repr(cell)
    except ValueError:  # integers of more than 4,300 digits have no text
        return "an integer of thousands of digits"
    return text if len(text) <= 80 else text[:60] + "..."
