"""The rows that come after a frame: their labels, and the sample that forecasts them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .._data.stamps import read_index
from .._data.steps import as_offset, moved, rows_at, step_of
from .supervised import make_supervised

# A later frame may have a few more gaps than the frame of fit, but not a step of its own.
_LEAST_SHARE = 0.5
# A Monday on which a month, a quarter and a year begin, from which seasons are counted.
_START = pd.Timestamp("2001-01-01")
# Of shorter steps (a second) no season is looked for.
_MOST_STEPS = 86_400


class Calendar:
    """The step of the rows of one series, and which rows it leads to beyond the last one.

    Parameters
    ----------
    index : Index
        Of the rows of a frame that `make_supervised` accepts: time stamps, or a RangeIndex.
    freq : object
        The step that it noted in ``y.attrs["freq"]``.

    Raises
    ------
    ValueError
        If the index names several series.
    """

    def __init__(self, index, freq):
        self.freq = freq
        times = times_of(index)
        self.timed = isinstance(times, pd.DatetimeIndex)
        step, self.tolerance = step_of(times, freq)
        # The step itself is made from its note again, because not every offset can be stored.
        self.share = self._share(times, step)

    def times(self, index):
        """Time stamps, or row numbers, of a later index with the same step.

        Raises
        ------
        ValueError
            If the index has time stamps where that of fit had row numbers, is not sorted, or has
            another step.
        """
        times = times_of(index)
        kinds = {True: "time stamps", False: "row numbers"}
        timed = isinstance(times, pd.DatetimeIndex)
        if timed != self.timed:
            raise ValueError(
                f"frame is indexed by {kinds[timed]}, but in fit it was by {kinds[self.timed]}: "
                "pass the same kind of index."
            )
        if not timed and not isinstance(times, pd.RangeIndex):
            raise ValueError(
                "frame has row numbers with gaps, or other labels, as its index: set a "
                "DatetimeIndex, or reset_index(drop=True) if its rows are equally spaced."
            )
        if not times.is_monotonic_increasing or times.has_duplicates:
            raise ValueError(
                "frame has unsorted or repeated time stamps: call frame.sort_index() and keep one "
                "row of each."
            )
        if len(times) > 1 and self._share(times, self._step()) < _LEAST_SHARE * self.share:
            usual = pd.Series(times).diff().median()
            raise ValueError(
                f"frame has another frequency than in fit: its rows are {usual} apart as a rule, "
                f"and in fit the step was {self.freq!r}; resample it, or fit on such a frame."
            )
        return times

    def ahead(self, index, horizons):
        """Labels of the rows that come ``horizons`` steps after the last one of an index."""
        times = times_of(index)[-1:]
        if not self.timed:
            return pd.Index([int(times[0]) + h * self.freq for h in horizons], name=index.name)
        found = times[:0].append([self._moved(times, h) for h in horizons])
        if isinstance(index, pd.PeriodIndex):
            found = found.to_period(index.freq)
        elif isinstance(index, pd.TimedeltaIndex):
            found = found - pd.Timestamp(0)
        return found.rename(index.name)

    def _step(self):
        return as_offset(self.freq) if self.timed else self.freq

    def _moved(self, times, count):
        return moved(times, self._step(), count)

    def _share(self, times, step):
        """Share of the rows that are followed by the row one step on."""
        following = rows_at(times, step, 1, self.tolerance)[:-1]
        return float(np.mean(following == np.arange(1, len(times)))) if len(following) else 1.0


def times_of(index):
    """Time stamps of an index, or its row numbers; a ValueError if it names several series."""
    stamps = read_index(index, "frame", warn=False)
    if stamps.series is not None:
        raise ValueError(
            "frame has a MultiIndex, which names several series: pass one series at a time, e.g. "
            "{name: clone(forecaster).fit(part.droplevel(0)) for name, part in "
            "frame.groupby(level=0)}."
        )
    return index if stamps.times is None else stamps.times


def newest_window(frame, target, horizons, calendar, options):
    """The view of one sample that ends in the last row of a frame, made as those of fit.

    `make_supervised` pairs rows with targets, which the newest row does not have yet: rows that
    stand for its targets follow it here, and no window reads them.

    Parameters
    ----------
    frame : DataFrame of shape (n_rows, n_features)
        Numeric columns.
    target : label or list of labels
        As for `make_supervised`.
    horizons : list of int
        Steps ahead.
    calendar : Calendar
        Of the rows.
    options : dict
        Further arguments of `make_supervised`, ``window`` among them.

    Returns
    -------
    X : SequenceView of shape (1, n_tokens, n_channels)
    """
    times, steps = calendar.times(frame.index), range(1, max(horizons) + 1)
    own = {k: frame.iloc[:, k].to_numpy(float, na_value=np.nan) for k in range(frame.shape[1])}
    known = pd.DataFrame(own, index=times)
    later = calendar.ahead(times, steps)
    longer = pd.concat([known, pd.DataFrame(0.0, index=later, columns=known.columns)])
    if calendar.timed:
        options = {"freq": calendar.freq} | options
    else:
        longer.index = pd.RangeIndex(times[0], later[-1] + 1, calendar.freq)
    longer.columns = frame.columns
    X, _ = make_supervised(longer, target, horizons, **options)
    return X[-1:]


def seasons_of(freq):
    """Number of steps in a day, a week and a year, as far as a frequency tells: {name: steps}.

    A day and a week are whole numbers of steps, as 24 and 168 hours are; a year is counted, to the
    nearest step, for steps of a day or more: 365 days, 261 business days, 52 weeks, 12 months. A
    season of one step is none.
    """
    if freq is None or isinstance(freq, int | np.integer):
        return {}
    step = as_offset(freq)
    once = _START + step
    per_day = pd.Timedelta(days=1) / ((once + step) - once)
    if per_day > _MOST_STEPS:
        return {}
    counts = {}
    for name, days in (("day", 1), ("week", 7)):
        end = _START + pd.Timedelta(days=days)
        grid = pd.date_range(_START, end, freq=step)
        if len(grid) > 2 and grid[0] == _START and grid[-1] == end:
            counts[name] = len(grid) - 1
    if "day" not in counts and per_day <= 1:
        # Four years, because 53 of some weekday may lie in one.
        four = pd.date_range(_START, "2005-01-01", freq=step, inclusive="left")
        counts["year"] = round(len(four) / 4)
    return {name: count for name, count in counts.items() if count > 1}
