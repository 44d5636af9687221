"""The time stamps of rows: their step, their gaps, and which row lies so many steps away."""

from __future__ import annotations

import numbers

import numpy as np
import pandas as pd


def longest_step(index, max_gap):
    """The longest step of a DatetimeIndex that is no gap, as a Timedelta; None: there are no gaps.

    ``max_gap`` is a Timedelta or a text that makes one, or "auto", one and a half times the median
    step, or None.

    Raises
    ------
    ValueError
        If ``max_gap`` is no length of time.
    """
    if max_gap is None:
        return None
    if isinstance(max_gap, str) and max_gap == "auto":
        if not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
            return None
        steps = np.diff(index.as_unit("ns").asi8)
        steps = steps[steps > 0]
        return pd.Timedelta(1.5 * np.median(steps), unit="ns") if len(steps) else None
    try:
        if isinstance(max_gap, numbers.Number):
            raise TypeError("a number has no unit")
        longest = pd.Timedelta(max_gap)
        bad = not longest > pd.Timedelta(0)
    except (TypeError, ValueError):
        bad = True
    if bad:
        raise ValueError(
            "max_gap must be a length of time such as '3h' or a Timedelta, 'auto' or None, got "
            f"{max_gap!r}."
        )
    return longest


def gaps(index, longest):
    """Rows (n,) before which a DatetimeIndex steps further than ``longest``, back, or not at all.

    False for any other index, and for ``longest`` None.
    """
    if longest is None or not isinstance(index, pd.DatetimeIndex) or len(index) < 2:
        return False
    if index.hasnans:
        raise ValueError("the index of X holds missing time stamps (NaT); drop these rows.")
    steps = np.diff(index.as_unit("ns").asi8)
    return np.r_[False, (steps <= 0) | (steps > longest.value)]


def finest(index):
    """Stamps in nanoseconds, where they can be: half a step may be finer than their own unit."""
    if not isinstance(index, pd.DatetimeIndex):
        return pd.Index(index.to_numpy(np.int64))
    try:
        return index.as_unit("ns")
    except pd.errors.OutOfBoundsDatetime:  # before 1678 or after 2262
        return index


def step_of(index, freq=None):
    """Step of sorted stamps or row numbers, and half of it: how far off a row may be.

    None takes the regular frequency of the index, or else the median distance between its rows.
    """
    regular = getattr(index, "freq", None)
    index = finest(index)
    if not isinstance(index, pd.DatetimeIndex):
        spacing = _median(np.diff(index))
        step = spacing if freq is None else freq
        return step, min(step, spacing) // 2
    spacing = pd.Timedelta(_median(np.diff(index.asi8)), unit=index.unit)
    if freq is None:
        freq = regular or pd.DatetimeIndex(index, freq="infer").freq or spacing
    try:
        freq = pd.Timedelta(freq) if isinstance(freq, np.timedelta64) else freq
        step = pd.tseries.frequencies.to_offset(freq)
        later = (index + step - index).asi8
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"freq={freq!r} is no pandas frequency: pass one such as '1h', '10min', 'B' or 'MS'."
        ) from error
    if later.min() <= 0:
        raise ValueError(f"freq={freq!r} does not lead forward: pass a step longer than 0.")
    return step, min(spacing, pd.Timedelta(_median(later), unit=index.unit)) / 2


def _median(distances):
    """The median, as one of the distances themselves."""
    return int(np.quantile(distances, 0.5, method="lower"))


def note_of(step):
    """A step as plain text or number, from which `step_of` makes it again; else as it is."""
    name = getattr(step, "freqstr", step)
    try:
        plain = name is step or pd.tseries.frequencies.to_offset(name) == step
    except ValueError:
        plain = False
    return name if plain else step


def rows_at(index, move, tolerance):
    """For every row the position of the one nearest to index + move, -1 without one."""
    index = finest(index)
    try:
        return index.get_indexer(index + move, method="nearest", tolerance=tolerance)
    except (OverflowError, pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
        return np.full(len(index), -1)  # further than any stamp can be
