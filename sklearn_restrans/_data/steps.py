"""The step between time stamps, by the clock or by the calendar, and the rows some steps away."""

from __future__ import annotations

from math import comb

import numpy as np
import pandas as pd

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
# Stamps of one time of day in a zone with summer time are spread over an hour in any other zone.
_SPREAD = 2 * 3_600 * 10**9
# Weekdays are only taken as closed if they would be empty by chance less often than this. Of 6,000
# daily series of 8 to 400 rows, 5 to 70 % of them missing at random, 11 are then taken for others.
_CHANCE = 0.001
# Share of readings that may stand on closed weekdays, such as the working Saturdays of China.
_STRAY = 0.02
_OUT_OF_RANGE = (
    OverflowError,
    pd.errors.OutOfBoundsDatetime,
    pd.errors.OutOfBoundsTimedelta,
)
_UNITS = {"years", "months", "weeks", "days", "hours", "minutes", "seconds", "microseconds"}
_ROW_BY_ROW = (
    pd.offsets.BusinessHour,
    pd.offsets.CustomBusinessDay,
    pd.offsets.CustomBusinessHour,
    pd.offsets.CustomBusinessMonthBegin,
    pd.offsets.CustomBusinessMonthEnd,
    pd.offsets.Easter,
    pd.offsets.FY5253,
    pd.offsets.FY5253Quarter,
    pd.offsets.LastWeekOfMonth,
    pd.offsets.WeekOfMonth,
)
# The names that pandas reads in a week mask, from Monday on as in `datetime.weekday`.
_WEEKDAYS = np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])


def finest(index):
    """Stamps in nanoseconds where possible, because half a step may be finer than their unit."""
    if not isinstance(index, pd.DatetimeIndex):
        return pd.Index(index.to_numpy(np.int64))
    try:
        return index.as_unit("ns")
    except pd.errors.OutOfBoundsDatetime:  # before 1678 or after 2262
        return index


def wall_clock(times):
    """Stamps as the clock on the wall shows them, without their time zone."""
    return times if times.tz is None else times.tz_localize(None)


def days_and_rest(times):
    """Day number since 1970 of each stamp on the wall clock, and its nanoseconds since midnight."""
    scale = NANOSECONDS[times.unit]
    day, rest = np.divmod(wall_clock(times).asi8, _DAY // scale)
    return day, rest * scale


def step_of(index, freq=None):
    """Step of sorted stamps or row numbers, and half of it, which is how far off a row may be.

    ``freq=None`` takes the regular frequency of the index, or else the calendar that its stamps lie
    on, or else the most frequent distance between rows if all are multiples of it, or else their
    median distance.
    """
    regular = getattr(index, "freq", None)
    index = finest(index)
    if not isinstance(index, pd.DatetimeIndex):
        spacing = _median(np.diff(index))
        step = (_grid(index) or spacing) if freq is None else freq
        return step, min(step, spacing) // 2
    spacing = pd.Timedelta(_median(np.diff(index.asi8)), unit=index.unit)
    if freq is None:
        freq = regular or usual_step(index) or _fixed_step(index) or spacing
    step = as_offset(freq)
    try:
        # The last stamp may be the last one that can be written at all.
        before = index[:-1]
        later = moved(before, step, 1).asi8 - before.asi8
    except _OUT_OF_RANGE:
        raise ValueError(
            f"freq={freq!r} leads beyond all time stamps: pass a shorter step."
        ) from None
    if later.min() <= 0:
        raise ValueError(f"freq={freq!r} does not lead forward: pass a step longer than 0.")
    # Where days are a weekend apart, half of that would reach the next open day.
    by_day = isinstance(step, pd.offsets.BDay | pd.offsets.CustomBusinessDay)
    usual = int(later.min()) if by_day else _median(later)
    return step, min(spacing, pd.Timedelta(usual, unit=index.unit)) / 2


def usual_step(times):
    """The step of regular stamps, or the calendar they lie on, as an offset; else None."""
    regular = pd.DatetimeIndex(times, freq="infer").freq
    # Pandas reads stamps of one weekday as monthly, however far apart they are.
    return calendar_of(times) if isinstance(regular, pd.offsets.WeekOfMonth | None) else regular


def as_offset(freq):
    """A frequency as an offset of pandas; a ValueError gives examples of what it may be."""
    try:
        freq = pd.Timedelta(freq) if isinstance(freq, np.timedelta64) else freq
        step = pd.tseries.frequencies.to_offset(freq)
        # pandas accepts an empty list and a missing time without making an offset of them.
        if not isinstance(step, pd.offsets.BaseOffset):
            raise TypeError("not an offset")
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"freq={freq!r} is not a pandas frequency: pass one such as '1h', '10min', 'B' or 'MS'."
        ) from error
    return step


def _median(distances):
    """The median, as one of the distances themselves."""
    return int(np.quantile(distances, 0.5, method="lower"))


def _fixed_step(times):
    """Step of stamps on a regular grid by the clock, or by the wall clock, else None."""
    step = _grid(times.asi8) or _grid(wall_clock(times).asi8)
    return None if step is None else pd.Timedelta(step, unit=times.unit)


def _grid(numbers):
    """The most frequent distance between sorted numbers, if all are multiples of it, else None.

    Half of the rows may be missing, which makes the median distance two steps.
    """
    distances, times = np.unique(np.diff(numbers), return_counts=True)
    usual = distances[np.argmax(times)]
    return int(usual) if usual > 0 and not np.any(distances % usual) else None


def note_of(step):
    """A step as a text or number if `step_of` can make it again from that, otherwise as it is."""
    name = getattr(step, "freqstr", step)
    try:
        plain = name is step or pd.tseries.frequencies.to_offset(name) == step
    except ValueError:
        plain = False
    return name if plain else step


def rows_at(index, step, count, tolerance):
    """For every row the position of the one nearest to it ``count`` steps on, -1 without one."""
    index = finest(index)
    if not isinstance(index, pd.DatetimeIndex):
        step, count = step * count, 1
        if abs(step) > np.iinfo(np.int64).max // 4:
            return np.full(len(index), -1)
        return index.get_indexer(index + step, method="nearest", tolerance=tolerance)
    # Rows near the end of all time may lead beyond it, unless they are counted in seconds.
    for unit in (index.unit, "s"):
        stamps = index.as_unit(unit)
        try:
            there = moved(stamps, step, count)
            return stamps.get_indexer(there, method="nearest", tolerance=tolerance)
        except _OUT_OF_RANGE:
            continue
    return np.full(len(index), -1)


def moved(times, step, count):
    """Stamps ``count`` steps on: fixed steps by the clock, those of a calendar on the wall."""
    if isinstance(step, pd.offsets.Tick):
        return times + count * step
    wall = wall_clock(times)
    if type(step) is pd.offsets.CustomBusinessDay and not step.offset:
        # The same as pandas' sum, which goes row by row and warns of it.
        day, rest = days_and_rest(times)
        roll = "backward" if count > 0 else "forward"
        day = day.astype("M8[D]")
        day = np.busday_offset(day, count * step.n, roll=roll, busdaycal=step.calendar)
        wall = pd.DatetimeIndex(day.astype("M8[s]")).as_unit(times.unit)
        wall = wall + pd.to_timedelta(rest, unit="ns").as_unit(times.unit)
    elif _goes_row_by_row(step):
        wall = pd.DatetimeIndex([time + count * step for time in wall]).as_unit(times.unit)
    else:
        wall = wall + count * step
    if times.tz is None:
        return wall
    # An hour that the change of the clock leaves out, or repeats, is met to within that hour.
    summer = np.ones(len(wall), dtype=bool)
    return wall.tz_localize(times.tz, nonexistent="shift_forward", ambiguous=summer)


def _goes_row_by_row(step):
    """Offsets that pandas would add row by row as well, with a warning at every call."""
    if type(step) is pd.DateOffset:
        return any(unit not in _UNITS for unit in step.kwds)
    return isinstance(step, _ROW_BY_ROW)


def calendar_of(times):
    """The calendar on which sorted, unique stamps lie although rows are missing; None without one.

    Recognised are months, quarters, years and any other number of months, by the day that all
    stamps share (first, last, first or last business day, the same day or weekday of the month) or
    by having each a month, a quarter or a year of its own; half months; and days of which some
    weekdays never occur.
    """
    day, rest = days_and_rest(times)
    spread, shift = _spread_of_day(rest)
    if len(times) < 2 or spread > _SPREAD:
        return None
    wall = wall_clock(times)
    if spread == 0:
        return _months(wall, exact=True) or _half_months(wall) or _business_days(day)
    shift = pd.Timedelta(int(shift) // NANOSECONDS[times.unit], unit=times.unit)
    return _months(wall + shift, exact=False) or _business_days(day)


def _spread_of_day(rest):
    """Width of the shortest arc of the day that holds all times of day, and the way to midnight."""
    rest = np.unique(rest)
    gaps = np.diff(np.r_[rest, rest[0] + _DAY])
    start = rest[(int(np.argmax(gaps)) + 1) % len(rest)]
    return _DAY - gaps.max(), _DAY - start if start > _DAY // 2 else -start


def _months(wall, exact):
    """Step of stamps that have each a month of their own; ``exact``: all at one time of day."""
    # Months are counted from the year 0, so that steps across a new year are numbers too.
    month = np.asarray(wall.year, dtype=np.int64) * 12 + np.asarray(wall.month) - 1
    steps = np.diff(month)
    if steps.min() < 1:
        return None
    # The largest step of which all others are multiples: 3 for quarters of which one is missing.
    count = int(np.gcd.reduce(steps))
    first, last = _business_ends(month)
    day = wall.normalize().to_numpy().astype("M8[D]")
    on_day, length = np.asarray(wall.day), np.asarray(wall.days_in_month)
    rules = [
        (wall.is_month_start, pd.offsets.MonthBegin),
        (wall.is_month_end, pd.offsets.MonthEnd),
        (day == first, pd.offsets.BMonthBegin),
        (day == last, pd.offsets.BMonthEnd),
    ]
    for fits, offset in rules:
        if fits.all():
            return _named(offset(count), wall[0]) if exact else pd.DateOffset(months=count)
    same_week = [(on_day - 1) // 7, (length - on_day) // 7]
    same_weekday = np.ptp(wall.day_of_week) == 0 and any(np.ptp(week) == 0 for week in same_week)
    # Two stamps four weeks apart often are, say, the first Friday of their months.
    if (same_weekday and len(wall) > 2) or np.all(on_day == np.minimum(on_day.max(), length)):
        return pd.DateOffset(months=count)
    return _irregular_months(wall, month)


def _business_ends(month):
    """First and last business day (Monday to Friday) of months counted from the year 0."""
    start = (month - 1970 * 12).astype("M8[M]")
    following = (start + 1).astype("M8[D]")
    first = np.busday_offset(start.astype("M8[D]"), 0, roll="forward")
    return first, np.busday_offset(following, -1, roll="forward")


def _named(offset, start):
    """The offset under the name pandas gives it where no row is missing, as 'QS-OCT' for '3MS'."""
    if offset.n == 1:
        return offset
    there = pd.date_range(pd.Timestamp(2000, start.month, 1), periods=9, freq=offset)
    return pd.DatetimeIndex(there.to_numpy(), freq="infer").freq or offset


def _irregular_months(wall, month):
    """Step of stamps that have each a month, quarter or year of their own, most of them there."""
    steps = np.diff(wall.asi8)
    if np.gcd.reduce(steps) > np.median(steps) / 2:
        return None  # a fixed number of days, such as 28
    for unit in (1, 3, 12):
        number = month // unit
        if np.diff(number).min() >= 1 and 2 * len(number) > np.ptp(number):
            return pd.DateOffset(months=unit)
    return None


def _half_months(wall):
    for ends, offset in [
        (wall.is_month_start, pd.offsets.SemiMonthBegin()),
        (wall.is_month_end, pd.offsets.SemiMonthEnd()),
    ]:
        if (ends | (wall.day == 15)).all():
            return offset
    return None


def _business_days(day):
    """Step of days of which the same weekdays are always missing, else None."""
    weekday = (day + 3) % 7  # 1 January 1970 was a Thursday
    often = np.bincount(weekday, minlength=7)
    for kept in (often >= often.max() / 2, often > 0, np.arange(7) < 5):
        if not 2 <= kept.sum() <= 6 or not often[kept].all():
            continue
        # Every second business day is a step of two.
        place = np.busday_count(day[0].astype("M8[D]"), day.astype("M8[D]"), weekmask=kept)
        count = int(np.gcd.reduce(np.diff(place)))
        usual = np.array_equal(kept, np.arange(7) < 5)
        # Monday to Friday is expected; any other week was one of many that might have been found.
        tried = 1 if usual else comb(7, int(kept.sum()))
        if count and tried * _chance(day, often, kept) < _CHANCE:
            if usual:
                return pd.offsets.BDay(count)
            return pd.offsets.CustomBusinessDay(count, weekmask=" ".join(_WEEKDAYS[kept]))
    return None


def _chance(day, often, kept):
    """Probability that rows missing at random leave all weekdays empty that are not kept."""
    start, stop = day[0].astype("M8[D]"), (day[-1] + 1).astype("M8[D]")
    is_open = int(np.busday_count(start, stop, weekmask=kept))
    closed = int((stop - start).astype(int)) - is_open
    stray = often[~kept].sum()
    # One more row counts as missing, because a short and complete series is weak evidence.
    missing = 1 - often[kept].sum() / (is_open + 1)
    return missing**closed if stray <= _STRAY * len(day) else 1.0
