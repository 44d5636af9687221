"""The time stamps of rows: how far apart they are, and where there is a gap."""

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
