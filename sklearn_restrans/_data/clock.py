"""Gaps between time stamps, which windows do not cross, and the history that they cost."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom

from .stamps import read_index, together
from .steps import NANOSECONDS, as_offset, days_and_rest, usual_step

_DAY = 86_400 * 10**9
# Nobody expects readings on holidays. With the weekends around them, those of stock exchanges last
# up to 5 days in Europe and America, and rarely more than a week in Asia.
_LONGEST_PAUSE = 7 * _DAY
# A fit warns from this share of lost history on. It was chosen on synthetic hourly series with
# windows of 24: one reading lost in a thousand costs 1.5 % of the history, one in a hundred 11 %,
# one in fifty 20 %.
NOTICEABLE = 0.1


@dataclass(frozen=True)
class Clock:
    """What fit learns about the time of its rows, for itself and for every later call.

    A step between two rows is a gap if it is longer than ``longest``, unless it ends where a
    session usually begins and is no longer than ``longest_pause``.

    Parameters
    ----------
    longest : int, default=None
        Nanoseconds of the longest step that is not a gap; None where there are no gaps.
    ordered : bool, default=False
        Whether time has to go forward within a series.
    slot : int, default=0
        Nanoseconds of one slot of the day, in which openings are counted.
    openings : tuple of int, default=()
        Slots of the day at which a session begins.
    weekly_openings : tuple of int, default=()
        Slots of the week, from Monday on, at which one begins.
    longest_pause : int, default=0
        Nanoseconds of the longest pause between two sessions.
    named_series : bool, default=False
        Whether the index, or the labels, named the series of the rows of fit.
    """

    longest: int | None = None
    ordered: bool = False
    slot: int = 0
    openings: tuple = ()
    weekly_openings: tuple = ()
    longest_pause: int = 0
    named_series: bool = False

    def segments(self, index, labels=None, name="X"):
        """Number (n,) of the segment of each row, which no window leaves; None if there is one.

        Parameters
        ----------
        index : Index or None
            Of the rows as they were passed.
        labels : array-like of shape (n,), default=None
            Names of the series of the rows; a new name starts a segment.
        name : str, default="X"
            Name of the rows in messages.

        Raises
        ------
        ValueError
            If the index cannot be used, or time goes back or stands still within a series.
        """
        stamps = together(read_index(index, name, warn=False), index, name)
        new = _series_starts(stamps, labels)
        if self.ordered and stamps.times is not None and len(stamps.times):
            new = new | self._gaps(stamps.times, new, name)
        return np.cumsum(new) if new.any() else None

    def _gaps(self, times, new, name):
        steps = np.diff(times.asi8)
        back = np.r_[False, steps <= 0] & ~new
        if back.any():
            row = int(np.flatnonzero(back)[0])
            raise ValueError(
                f"the time stamps of {name} go back, or repeat, at row {row} ({times[row]}): sort "
                f"the rows by time and keep one of each ({name}.sort_index()), or name the series "
                "of every row (segments=..., or a MultiIndex of series and time). The hour that is "
                "repeated when summer time ends needs stamps with a time zone. Rows without an "
                "index are taken as consecutive."
            )
        if self.longest is None:
            return np.zeros(len(times), dtype=bool)
        scale = NANOSECONDS[times.unit]
        long = np.r_[False, steps > self.longest // scale]
        # Only long steps are looked up in the calendar, which costs much more than the difference.
        rows = np.flatnonzero(long & ~new)
        if len(rows) and (self.openings or self.weekly_openings):
            of_day, of_week = _slots(times[rows], self.slot)
            opens = np.isin(of_day, list(self.openings))
            opens |= np.isin(of_week, list(self.weekly_openings))
            long[rows[opens & (steps[rows - 1] <= self.longest_pause // scale)]] = False
        return long


def _series_starts(stamps, labels):
    """Rows (n,) before which another series begins, by the index or by the labels."""
    known = [part for part in (stamps.times, stamps.series, labels) if part is not None]
    n = len(known[0]) if known else 0
    new = np.zeros(n, dtype=bool)
    for part in (stamps.series, labels):
        if part is not None and n:
            part = np.asarray(part)
            new[1:] |= part[1:] != part[:-1]
    return new


def station_numbers(index, labels=None, name="X"):
    """Number (n,) of the station of each row, whatever gaps there are; None if there is one.

    Parameters
    ----------
    index : Index or None
        Of the rows as they were passed.
    labels : array-like of shape (n,), default=None
        Names of the series of the rows; one that comes back later is the same station.
    name : str, default="X"
        Name of the rows in messages.
    """
    series = read_index(index, name, warn=False).series
    number = None if labels is None else pd.factorize(np.asarray(labels))[0]
    if series is None or number is None:
        return number if series is None else series
    return series * (number.max(initial=0) + 1) + number


def learn_clock(index, max_gap="auto", labels=None, *, freq=None, name="X"):
    """Learn from the index of the rows of fit which steps in time are gaps.

    Parameters
    ----------
    index : Index or None
        Of the rows as they were passed, see `read_index`.
    max_gap : str, Timedelta or None, default="auto"
        The longest step that is not a gap. "auto" is one and a half times the median step, and
        does not count pauses that come back every night or weekend as gaps, nor holidays of up to a
        week in a series of business days. With None only a new series starts a segment.
    labels : array-like of shape (n,), default=None
        Names of the series of the rows.
    freq : str, Timedelta or DateOffset, default=None
        The step, where it is known.
    name : str, default="X"
        Name of the rows in messages.

    Returns
    -------
    clock : Clock
    """
    longest = as_gap(max_gap)
    stamps = together(read_index(index, name), index, name)
    named = labels is not None or stamps.series is not None
    if max_gap is None or longest is not None or stamps.times is None:
        return Clock(longest, ordered=max_gap is not None, named_series=named)
    times, new = stamps.times, _series_starts(stamps, labels)
    # Steps from one series to the next, and back in time, tell nothing about the clock.
    steps = np.diff(times.asi8)
    forward = (steps > 0) & ~new[1:]
    if not forward.any():
        return Clock(ordered=True, named_series=named)
    scale = NANOSECONDS[times.unit]
    spacing = float(np.median(steps[forward])) * scale
    longest = int(1.5 * spacing)
    if _is_business(times, spacing, stamps.step if freq is None else as_offset(freq)):
        longest = max(longest, _LONGEST_PAUSE)
        return Clock(longest, ordered=True, named_series=named)
    long = np.r_[False, forward & (steps > longest // scale)]
    slot = max(1, min(int(spacing), _DAY))
    openings, rows = _openings(times, long, slot)
    pause = float(np.median(steps[rows - 1])) * scale if len(rows) else 0.0
    return Clock(
        longest,
        ordered=True,
        slot=slot,
        openings=openings[0],
        weekly_openings=openings[1],
        longest_pause=max(_LONGEST_PAUSE, int(1.5 * pause)),
        named_series=named,
    )


def _is_business(times, spacing, step):
    """Whether rows are days, and some weekdays, or those of a calendar, are always left out."""
    if spacing < _DAY / 2:
        return False
    if step is None:
        step = usual_step(times.unique().sort_values())
    return isinstance(step, pd.offsets.BDay | pd.offsets.CustomBusinessDay)


def _slots(times, slot):
    """Slot of the day, and of the week from Monday on, in which each stamp lies."""
    day, rest = days_and_rest(times)
    of_day = rest // slot
    return of_day, (day + 3) % 7 * (_DAY // slot + 1) + of_day


def _openings(times, long, slot):
    """Slots of the day, and of the week, at which sessions begin, and the rows that begin one.

    A session begins at a slot if long steps end there at least three times, in a quarter of the
    days or half of the weeks that have a row there, and more often than by chance: that many of
    them in any slot have a binomial probability below one in a thousand. Readings that are lost at
    random are spread over all slots.
    """
    found, begins = [], np.zeros(len(times), dtype=bool)
    # A day may have few slots, and the one where sessions begin then counts too much: what is usual
    # is taken from the three quarters of the slots where long steps end most rarely.
    for slots, least, part in zip(_slots(times, slot), (0.25, 0.5), (0.75, 1), strict=True):
        _, number, rows = np.unique(slots, return_inverse=True, return_counts=True)
        ends = np.bincount(number, weights=long)
        calm = np.argsort(ends / rows, kind="stable")[: max(1, int(part * len(rows)))]
        usual = ends[calm].sum() / rows[calm].sum()
        chance = len(rows) * binom.sf(ends - 1, rows, usual)
        often = (ends >= 3) & (ends >= least * rows) & (chance < 1e-3)
        # If most slots begin a session, the steps are irregular and there are none.
        if 2 * often.sum() > len(often):
            often[:] = False
        begins |= often[number] & long
        found.append(tuple(np.unique(slots[often[number]]).tolist()))
    return found, np.flatnonzero(begins)


def lost_history(clock, index, window, *, dilation=1, labels=None, name="X"):
    """Share of the history of windows that the gaps of a clock cut away, between 0 and 1."""
    series = Clock().segments(index, labels, name)
    segments = clock.segments(index, labels, name)
    n = 0 if segments is None else len(segments)
    return lost_share(segments, series, n, window, dilation)


def lost_share(segments, series, n, window, dilation=1):
    """Share of the history of windows over n rows that segments cut away, between 0 and 1.

    Of the ``window - 1`` rows before each row, those that belong to its own series count. Lost are
    those of them that belong to another segment. None stands for a single series or segment.
    """
    had, left = (
        np.minimum(_position(part, n) // dilation, window - 1).sum() for part in (series, segments)
    )
    return float(1 - left / had) if had else 0.0


def _position(segments, n):
    """Number of rows before each row in its segment."""
    rows = np.arange(n)
    if segments is None:
        return rows
    starts = np.r_[True, segments[1:] != segments[:-1]]
    return rows - np.maximum.accumulate(np.where(starts, rows, 0))


def warn_of_lost_history(share, window, remedy, *, stacklevel=2):
    """Say that gaps cut a noticeable ``share`` of the history away, and what can be done.

    Warns
    -----
    UserWarning
        If ``share`` is at least `NOTICEABLE`.
    """
    if share < NOTICEABLE:
        return
    warnings.warn(
        f"gaps between the time stamps cut away {share:.0%} of the history of windows of "
        f"{window} rows: {remedy}.",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def as_gap(max_gap):
    """Nanoseconds of a given ``max_gap``; None for "auto", and for None."""
    if max_gap is None or (isinstance(max_gap, str) and max_gap == "auto"):
        return None
    try:
        if isinstance(max_gap, numbers.Number):
            raise TypeError("a number has no unit")
        length = pd.Timedelta(max_gap)
        if not length > pd.Timedelta(0):
            raise ValueError("it does not lead forward")
    except (TypeError, ValueError):
        raise ValueError(
            "max_gap must be a length of time such as '3h' or a Timedelta, 'auto' or None, got "
            f"{max_gap!r}."
        ) from None
    return int(length.asm8.astype(np.int64)) * NANOSECONDS[length.unit]
