"""The time stamps and the series of rows, read from any kind of index."""

from __future__ import annotations

import datetime
import re
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_integer_dtype

# Texts need their hyphens: '20240101' may as well be the number of a customer.
_ISO = r"\d{4}-\d\d(-\d\d|$)"
_DAY = re.compile(r"(19|20)\d{6}")
_LIKE_DATE = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{1,2}:\d\d|\d{4}-?[QWqw]\d"
    r"|(?i:\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*\d)"
)


class Stamps(NamedTuple):
    """What an index says about its rows: time stamps, number of the series of each, and step."""

    times: pd.DatetimeIndex | None = None
    series: np.ndarray | None = None
    step: object = None


def read_index(index, name="X", *, warn=True):
    """Read the time stamps and the series of rows from their index, whatever kind it is.

    Time is read from a DatetimeIndex, PeriodIndex or TimedeltaIndex, from dates and ISO 8601
    texts, and from the level of a MultiIndex that holds one of these; the other levels name the
    series. Row numbers and names hold no time. Messages call the rows ``name``; ``warn=False``
    suppresses the warning about an index that looks like dates and cannot be read.

    Warns
    -----
    UserWarning
        If the index looks like dates that cannot be read safely, such as '01.02.2024' or 20240131.

    Raises
    ------
    ValueError
        If a time stamp or the name of a series is missing.
    """
    if isinstance(index, pd.MultiIndex):
        return _read_levels(index, name, warn)
    if not isinstance(index, pd.Index):
        return Stamps()
    stamps = _read_times(index)
    if stamps is None:
        if warn:
            _warn_unread(index, name)
        return Stamps()
    if stamps.times is not None and stamps.times.hasnans:
        raise ValueError(f"the index of {name} has missing time stamps (NaT): drop these rows.")
    return stamps


def _read_times(index):
    """Stamps of an index of one level; None if it looks like dates and cannot be read safely."""
    if isinstance(index, pd.CategoricalIndex):
        index = index.astype(index.categories.dtype)
    if isinstance(index, pd.IntervalIndex):
        index = index.left
    kind = infer_dtype(index, skipna=True)
    if isinstance(index, pd.DatetimeIndex):
        return Stamps(index, step=index.freq)
    if kind == "period":
        return _read_periods(pd.PeriodIndex(index))
    if kind in ("timedelta", "timedelta64"):
        # Only differences matter; any day will do as the start.
        return Stamps(pd.Timestamp(0) + pd.TimedeltaIndex(index))
    if kind not in ("date", "datetime", "datetime64", "string"):
        several = kind.startswith("mixed") and any(isinstance(v, datetime.date) for v in index)
        written = kind == "integer" and _are_days(index)
        return None if several or written else Stamps()
    if kind == "string":
        texts = index.dropna().astype(str)
        if _are_days(texts):
            return None
        if not texts[:1].str.match(_ISO).all() or not texts.str.match(_ISO).all():
            return None if any(_LIKE_DATE.search(text) for text in texts[:1]) else Stamps()
    return _parse(index, kind)


def _are_days(labels):
    """Are these whole numbers, or texts, days written as 20240131?"""
    labels = labels.dropna()
    # Most indexes of whole numbers are row numbers: their ends say so without a look at each.
    ends = [labels.min(), labels.max()] if is_integer_dtype(labels.dtype) else labels[:1]
    if not len(labels) or not all(_DAY.fullmatch(str(label)) for label in ends):
        return False
    labels = labels.astype(str)
    if not labels.str.fullmatch(_DAY).all():
        return False
    return not pd.isna(pd.to_datetime(labels, format="%Y%m%d", errors="coerce")).any()


def _parse(index, kind):
    # In universal time, because texts of one zone have two offsets where its clock changes.
    options = {"format": "ISO8601"} if kind == "string" else {}
    try:
        times = pd.to_datetime(pd.Index(index, dtype=object), utc=True, **options)
    except (ValueError, TypeError, OverflowError):
        return None
    return Stamps(times.tz_localize(None))


def _read_periods(index):
    if index.hasnans:
        return Stamps(pd.DatetimeIndex([pd.NaT]))
    # The first period and those after it have the step that pandas knows for their starts.
    first = index[:1].append([index[:1] + 1, index[:1] + 2])
    return Stamps(index.to_timestamp(), step=first.to_timestamp().freq if len(index) else None)


def _warn_unread(index, name):
    warnings.warn(
        f"the index of {name} looks like dates, but cannot be read safely ({index[0]!r} comes "
        f"first), so windows run across its gaps: make it a DatetimeIndex with pd.to_datetime.",
        UserWarning,
        stacklevel=2,
    )


def _read_levels(index, name, warn):
    levels = [_read_times(level) for level in index.levels]
    timed = [k for k, found in enumerate(levels) if found is not None and found.times is not None]
    numbered = is_integer_dtype(index.levels[-1].dtype)
    if not timed and not numbered:
        if warn:
            warnings.warn(
                f"no level of the index of {name} holds time stamps or row numbers, so windows run "
                "across the series it may name: pass an index of series and time.",
                UserWarning,
                stacklevel=2,
            )
        return Stamps()
    # Of two levels of time, as of forecasts issued one after the other, the first names the series.
    level = timed[-1] if timed else index.nlevels - 1
    if (np.asarray(index.codes) < 0).any():
        raise ValueError(
            f"the index of {name} has missing time stamps or names of series: drop these rows."
        )
    series = index.droplevel(level).factorize()[0]
    times = levels[level].times.take(index.codes[level]) if timed else None
    # The stamps of all series together may be regular where those of each are not.
    regular = isinstance(index.levels[level], pd.DatetimeIndex)
    return Stamps(times, series, levels[level].step if timed and not regular else None)


def together(stamps, index, name="X"):
    """The stamps, or a ValueError if the rows of a series in the index do not stand together."""
    series = stamps.series
    if series is None or np.count_nonzero(np.diff(series)) <= series.max(initial=0):
        return stamps
    starts = np.flatnonzero(np.r_[True, np.diff(series) != 0])
    first = np.unique(series[starts], return_index=True)[1]
    row = np.delete(starts, first)[0]
    raise ValueError(
        f"the index of {name} comes back to an earlier series in row {row}, {index[row]}: sort the "
        f"rows by series and then by time, as {name}.sort_index() does where the series is the "
        "first level."
    )
