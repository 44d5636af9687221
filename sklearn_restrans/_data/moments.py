"""Moments and extremes of the readings of windows, from sums that overlapping windows share.

A window of w rows is cut into parts of 2^i rows, one for every bit of w, the smallest first. The
statistics of a part are merged from those of its halves, and the parts one after the other. Along
a series every level of halves is made once for all windows, log2(w) passes instead of w readings
per window. Windows that are few are made one by one, by the same merges: the statistics of a window
depend on its own readings alone, to the last bit.
"""

from __future__ import annotations

import numpy as np

from .windows import SequenceView, rows_in

# Readings that are held at once, of a series or of windows: 2 MB, a few times over.
_BLOCK_READINGS = 250_000


def moments(X, columns, form):
    """Count, mean and sum of squares about it, of the readings that are not missing, (n, k) each.

    Parameters
    ----------
    X : SequenceView or ndarray of shape (n, T, patch * f)
    columns : ndarray of int of shape (k,)
        Columns of the series.
    form : WindowForm
        How windows became the tokens of an array.

    Returns
    -------
    count, mean, square : ndarray of shape (n, k)
        In float64; all 0 of a window without readings of a column. Rounding changes ``square`` by
        about eps times level over deviation of the window, relatively.

    References
    ----------
    Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979).
    """
    return _of_windows(X, columns, form, _as_moments, _merged_moments, 3)


def extremes(X, columns, form):
    """Smallest and largest reading, (n, k) each; inf and -inf where there is none.

    Parameters are those of `moments`.
    """
    return _of_windows(X, columns, form, _as_extremes, _merged_extremes, 2)


def _as_moments(readings):
    missing = np.isnan(readings)
    if not missing.any():
        return 1.0, readings, 0.0
    return (~missing).astype(np.float64), np.where(missing, 0.0, readings), 0.0


def _merged_moments(a, b):
    """With c = c_a + c_b and d = m_b - m_a: m = m_a + d c_b/c, s = s_a + s_b + d^2 c_a c_b/c."""
    (count_a, mean_a, square_a), (count_b, mean_b, square_b) = a, b
    count = count_a + count_b
    share = count_b / np.maximum(count, 1.0)
    difference = mean_b - mean_a
    mean = mean_a + difference * share
    difference *= difference
    return count, mean, square_a + square_b + difference * (count_a * share)


def _as_extremes(readings):
    missing = np.isnan(readings)
    if not missing.any():
        return readings, readings
    return np.where(missing, np.inf, readings), np.where(missing, -np.inf, readings)


def _merged_extremes(a, b):
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _of_windows(X, columns, form, leaves, merged, n_statistics):
    """Statistics (n_statistics, n, k) of all windows of X."""
    found = np.empty((n_statistics, len(X), len(columns)))
    if isinstance(X, SequenceView):
        one_by_one = _along_the_series(X, columns, leaves, merged, found)
    else:
        one_by_one = np.arange(len(X))
    for block in blocks(X, len(columns), form, len(one_by_one)):
        rows = one_by_one[block]
        of_rows = _each(leaves(readings(X, rows, columns, form)), merged)
        for statistic, values in zip(found, of_rows, strict=True):
            statistic[rows] = values
    return found


def _along_the_series(view, columns, leaves, merged, found):
    """Fill in the statistics of windows that overlap enough; returns the others.

    Partial windows are among the others: the rows before their beginning are none of theirs.
    """
    span = (view.window - 1) * view.dilation
    starts, partial = view.ends - span, view.partial
    order, others = np.argsort(starts, kind="stable"), [np.flatnonzero(partial)]
    order = order[~partial[order]]
    in_order = starts[order]
    # As many starts as rows that a window spans, at least: half of each block is of use.
    size = max(span + 1, _BLOCK_READINGS // max(1, len(columns)) - span)
    merges = 2 * view.window.bit_length()  # per row at most
    done = 0
    while done < len(order):
        first = in_order[done]
        begun, done = done, np.searchsorted(in_order, first + size)
        rows, last = order[begun:done], in_order[done - 1] + span
        if len(rows) * view.window <= merges * (last - first + 1):
            others.append(rows)
            continue
        series = np.asarray(view.series[first : last + 1], dtype=np.float64)[:, columns]
        of_starts = _sliding(leaves(series), merged, view.window, view.dilation)
        for statistic, values in zip(found, of_starts, strict=True):
            statistic[rows] = values if np.ndim(values) == 0 else values[starts[rows] - first]
    return np.concatenate(others)


def _sliding(level, merged, window, dilation):
    """Statistics of the windows that begin at every row of a series, as far as they fit."""
    whole, before, size = None, 0, 1
    while True:
        if window & size:
            if whole is None:
                whole = level
            else:
                later = _cut(level, slice(before * dilation, None))
                n = min(len(part) for part in later if np.ndim(part))
                whole = merged(_cut(whole, slice(n)), later)
            before += size
        if 2 * size > window:
            return whole
        shift = size * dilation
        level = merged(_cut(level, slice(-shift)), _cut(level, slice(shift, None)))
        size *= 2


def _each(leaves, merged):
    """Statistics of the windows (m, w, k) themselves, by the merges of `_sliding`."""
    window = max(part.shape[1] for part in leaves if np.ndim(part))
    whole, before, size = None, 0, 1
    while before < window:
        if window & size:
            part = _cut(leaves, np.s_[:, before : before + size])
            for _ in range(size.bit_length() - 1):
                part = merged(_cut(part, np.s_[:, ::2]), _cut(part, np.s_[:, 1::2]))
            whole = part if whole is None else merged(whole, part)
            before += size
        size *= 2
    return _cut(whole, np.s_[:, 0])


def _cut(statistics, key):
    """Some rows of every statistic; a number stands for all of them."""
    return tuple(part if np.ndim(part) == 0 else part[key] for part in statistics)


def blocks(X, n_columns, form, n_windows):
    """Slices of so many windows of X whose readings are made at once."""
    if isinstance(X, SequenceView):
        n_readings = X.window
    else:
        n_readings = X.shape[1] * form.patch
    size = max(1, _BLOCK_READINGS // max(1, n_readings * n_columns))
    for start in range(0, n_windows, size):
        yield slice(start, min(start + size, n_windows))


def readings(X, rows, columns, form):
    """The rows of windows (m, w, k) in order as float64, each once; NaN where there is none."""
    if isinstance(X, SequenceView):
        return np.asarray(rows_in(X, rows), dtype=np.float64)[..., columns]
    X = np.asarray(X[rows], dtype=np.float64)
    X = X.reshape(*X.shape[:2], form.patch, -1)[..., columns]
    n_tokens = X.shape[1]
    found = np.empty((len(X), (n_tokens - 1) * form.stride + form.patch, len(columns)))
    for token in range(n_tokens):
        start = token * form.stride
        found[:, start : start + form.patch] = X[:, token]
    return found
