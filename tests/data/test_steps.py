"""Calendars are found where stamps lie on one, and nowhere else."""

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans._data.steps import calendar_of, rows_at, step_of

SEEDS = [0, 1, 2, 3, 4]


def thinned(index, seed, n_missing):
    """The index without some rows between the first and the last."""
    missing = np.random.default_rng(seed).permutation(np.arange(1, len(index) - 1))[:n_missing]
    return pd.DatetimeIndex(np.delete(index, missing))


@pytest.mark.parametrize(
    ("freq", "name"),
    [
        *[(name, name) for name in ["MS", "ME", "BMS", "BME", "YS-JUL", "YE-DEC", "B", "2MS"]],
        *[("QS-JAN", "QS-JAN"), ("QE-NOV", "QE-NOV"), ("2YS-JAN", "2YS-JAN"), ("SMS-15", "SMS-15")],
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_calendar_has_the_name_it_has_without_missing_rows(freq, name, seed):
    index = thinned(pd.date_range("2001-01-01", periods=60, freq=freq), seed, 6)
    offset = calendar_of(index)
    # Of one quarter several names are right: the offset must lead from row to row.
    complete = pd.date_range("2001-01-01", periods=60, freq=freq)
    assert list(complete[:-1] + offset) == list(complete[1:])
    assert offset.freqstr == name or name.startswith("Q")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("freq", ["D", "2D", "7D", "10D", "28D", "30D", "h", "6h"])
def test_fixed_steps_with_rows_missing_at_random_are_no_calendar(freq, share, seed):
    index = thinned(
        pd.date_range("2001-01-03 05:00", periods=200, freq=freq), seed, int(200 * share)
    )
    assert calendar_of(index) is None


def test_short_daily_series_with_missing_rows_are_hardly_ever_taken_for_a_calendar():
    taken = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n_rows, share = rng.choice([8, 15, 30, 100]), rng.choice([0.05, 0.2, 0.5])
        start = pd.Timestamp("2001-01-01") + pd.Timedelta(int(rng.integers(0, 1000)), unit="D")
        index = pd.date_range(start, periods=n_rows, freq="D")
        taken += calendar_of(pd.DatetimeIndex(index[rng.random(n_rows) >= share])) is not None
    assert taken <= 3  # one in a hundred; 0 when this was written


def test_the_last_stamps_of_all_time_have_steps_too():
    index = pd.date_range("1900-01-01", periods=182, freq="2YS")  # 2262 is the last such year
    row = np.delete(np.arange(182), [17, 40])
    step, tolerance = step_of(index[row].as_unit("ns"))
    assert step == pd.offsets.YearBegin(2, month=1)
    got = rows_at(index[row].as_unit("ns"), step, 1, tolerance)
    expected = [np.searchsorted(row, k + 1) if k + 1 in row else -1 for k in row]
    assert got.tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_irregular_stamps_are_no_calendar(seed):
    rng = np.random.default_rng(seed)
    for scale in (3600, 86400, 10 * 86400):
        steps = rng.exponential(scale, size=100).cumsum()
        assert calendar_of(pd.Timestamp("2001-01-01") + pd.to_timedelta(steps, unit="s")) is None


@pytest.mark.parametrize("n_rows", [2, 5])
def test_a_few_days_are_days(n_rows):
    index = pd.bdate_range("2024-01-01", periods=n_rows)  # Monday to Friday
    assert calendar_of(pd.DatetimeIndex(index.to_numpy())) is None
    step, tolerance = step_of(pd.DatetimeIndex(index.to_numpy()))
    assert (index[0] + step, tolerance) == (index[1], pd.Timedelta("12h"))


def test_weekdays_that_hardly_occur_are_strays():
    days = pd.bdate_range("2020-01-01", periods=400).delete([50, 90])
    saturdays = pd.DatetimeIndex(["2020-02-01", "2020-09-26", "2020-10-10"])
    assert calendar_of(days.union(saturdays)) == pd.offsets.BDay()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("weekmask", ["Sun Mon Tue Wed Thu", "Mon Wed Fri", "Tue Sat"])
def test_days_of_a_week_of_its_own_are_counted_as_pandas_does(weekmask, seed):
    offset = pd.offsets.CustomBusinessDay(weekmask=weekmask)
    complete = pd.date_range("2020-01-01", periods=120, freq=offset)
    index = thinned(complete, seed, 5)
    step, tolerance = step_of(index)
    for count in (1, 7, -3):
        there = [time + count * offset for time in index]
        expected = [list(index).index(time) if time in index else -1 for time in there]
        assert rows_at(index, step, count, tolerance).tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_row_so_many_steps_away_is_the_nearest_within_half_a_step(unit, seed):
    rng = np.random.default_rng(seed)
    seconds = np.unique(rng.integers(0, 400, size=60) * 600)
    index = pd.DatetimeIndex(seconds.astype("M8[s]")).as_unit(unit)
    tolerance = pd.Timedelta("25min")
    got = rows_at(index, pd.tseries.frequencies.to_offset("50min"), 3, tolerance)
    for row, second in enumerate(seconds):
        away = np.abs(seconds - (second + 3 * 3000))
        nearest = np.flatnonzero(away == away.min())[-1]  # the later of two
        assert got[row] == (nearest if away.min() <= 1500 else -1)


def test_steps_beyond_all_time_lead_nowhere():
    index = pd.date_range("2024-01-01", periods=5, freq="MS")
    for step in (pd.offsets.MonthBegin(), pd.offsets.Hour()):
        assert rows_at(index, step, 10**9, pd.Timedelta("1D")).tolist() == [-1] * 5
    assert rows_at(pd.RangeIndex(5), 1, 10**30, 0).tolist() == [-1] * 5


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_days_of_a_zone_are_those_of_its_clock(zone):
    """Half past two is left out once and comes twice once in a year."""
    wall = pd.date_range("2024-01-01 02:30", periods=366, freq="D")
    index = wall.tz_localize(zone, nonexistent="shift_forward", ambiguous=np.ones(366, dtype=bool))
    step, tolerance = step_of(index)
    for count in (1, 30, 200):
        expected = [*range(count, 366), *[-1] * count]
        assert rows_at(index, step, count, tolerance).tolist() == expected
