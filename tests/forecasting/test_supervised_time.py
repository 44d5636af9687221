"""Targets follow the calendar, and are the same for every kind of time index."""

import numpy as np
import pandas as pd
import pytest
from weatherframes import SEEDS, weather

from sklearn_restrans.forecasting import (
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    make_supervised,
)

CALENDARS = [
    *["MS", "ME", "BMS", "BME", "SMS", "SME", "QS", "QE-NOV", "BQE", "YS-JUL", "YE", "BYE", "2MS"],
    *["6ME", "2YS", "W-WED", "2W", "B", "2B", "WOM-3FRI", "LWOM-TUE"],
    pd.offsets.CustomBusinessDay(weekmask="Sun Mon Tue Wed Thu"),
    pd.DateOffset(months=1),
    pd.DateOffset(months=3),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("freq", CALENDARS, ids=str)
def test_a_calendar_is_found_although_rows_are_missing(freq, zone, seed):
    """The reference is a shift of the complete series: rows that are there, and their numbers."""
    n, rng = 72, np.random.default_rng(seed)
    start = "2001-01-15" if type(freq) is pd.DateOffset else "2001-01-01"
    index = pd.date_range(start, periods=n, freq=freq, tz=zone)
    row = np.sort(rng.permutation(n)[: n - 1 - 5 * seed])  # 1, 6 and 11 missing
    frame = pd.DataFrame({"row": row.astype(float), "bought": -1.0 * row}, index=index[row])
    for horizon in (1, 7, 36):
        X, y = make_supervised(frame, "row", horizon, known="bought")
        now = X["row"].to_numpy()
        expected = row[np.isin(row + horizon, row)]
        np.testing.assert_array_equal(now, expected)
        np.testing.assert_array_equal(y, expected + horizon)
        np.testing.assert_array_equal(X[f"bought t+{horizon}"], -(expected + horizon))
        naive = SeasonalNaiveRegressor("row", period=12, horizon=horizon).fit(X, y)
        back = now - (-horizon % 12)
        np.testing.assert_array_equal(naive.predict(X), np.where(np.isin(back, now), back, now))


@pytest.mark.parametrize("seed", SEEDS)
def test_one_reading_a_month_on_any_day_is_monthly(seed):
    rng = np.random.default_rng(seed)
    starts = pd.date_range("2010-01-01", periods=120, freq="MS")
    index = starts + pd.to_timedelta(rng.integers(0, 9, size=120), unit="D")
    row = np.delete(np.arange(120), rng.integers(1, 119, size=4))
    X, y = make_supervised(pd.DataFrame({"v": row.astype(float)}, index=index[row]), "v", 36)
    expected = row[np.isin(row + 36, row)]
    np.testing.assert_array_equal(X["v"], expected)
    np.testing.assert_array_equal(y, expected + 36)


@pytest.mark.parametrize("days", [7, 14, 28, 30])
def test_a_fixed_number_of_days_is_no_month(days):
    index = pd.date_range("2001-01-01", periods=60, freq=f"{days}D")
    row = np.delete(np.arange(60), [7, 31])
    _, y = make_supervised(pd.DataFrame({"v": row.astype(float)}, index=index[row]), "v", 36)
    assert y.tolist() == row[np.isin(row - 36, row)].tolist()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("freq", ["MS", "QE", "B", "W", "D", "h", "15min"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_step_is_known_although_half_of_the_rows_are_missing(freq, zone, seed):
    """The median distance between rows is then one step or two, as chance will have it."""
    index = pd.date_range("2001-01-01", periods=150, freq=freq, tz=zone)
    row = np.flatnonzero(np.random.default_rng(seed).random(150) < 0.45)
    frame = pd.DataFrame({"v": row.astype(float)}, index=index[row])
    X, y = make_supervised(frame, "v", 12)
    expected = row[np.isin(row + 12, row)]
    np.testing.assert_array_equal(X["v"], expected)
    np.testing.assert_array_equal(y, expected + 12)
    naive = SeasonalNaiveRegressor("v", period=13).fit(frame, frame["v"].to_numpy())
    back = np.where(np.isin(row - 12, row), row - 12, row)
    np.testing.assert_array_equal(naive.predict(frame), back)


def test_a_month_of_a_zone_is_one_in_universal_time():
    index = pd.date_range("2010-01-01", periods=60, freq="MS", tz="Europe/Berlin").tz_convert("UTC")
    row = np.delete(np.arange(60), 17)
    for times in (index[row], index[row].tz_localize(None)):
        _, y = make_supervised(pd.DataFrame({"v": row.astype(float)}, index=times), "v", 36)
        assert y.tolist() == row[np.isin(row - 36, row)].tolist()


def test_a_day_of_which_the_clock_leaves_out_an_hour_has_a_target():
    """02:30 on 31 March 2024 does not exist in Berlin."""
    index = pd.date_range("2024-03-25 02:30", periods=6, freq="D", tz="Europe/Berlin")
    _, y = make_supervised(pd.DataFrame({"v": np.arange(6.0)}, index=index), "v", 2)
    assert y.tolist() == [2, 3, 4, 5]


def in_form(index, form):
    """The same stamps as another kind of index."""
    return {
        "periods": lambda: index.to_period("h"),
        "texts": lambda: index.astype(str),
        "objects": lambda: pd.Index(index.to_pydatetime(), dtype=object),
        "since the start": lambda: index - index[0],
        "zone": lambda: index.tz_localize("America/New_York"),
        "far away": lambda: pd.DatetimeIndex(index.as_unit("s").asi8 - 10**11, dtype="M8[s]"),
    }[form]()


@pytest.mark.parametrize("form", ["periods", "texts", "objects", "since the start", "far away"])
@pytest.mark.parametrize("window", [None, 5])
def test_every_kind_of_time_index_gives_the_same_pairs(form, window):
    frame = weather(60, start="2024-01-01").drop(weather(60, start="2024-01-01").index[20:30])
    other = frame.set_axis(in_form(frame.index, form))
    X, y = make_supervised(frame, "T", [1, 3], window=window)
    X_other, y_other = make_supervised(other, "T", [1, 3], window=window)
    np.testing.assert_array_equal(np.asarray(X_other), np.asarray(X))
    np.testing.assert_array_equal(y_other, y)
    assert y_other.index.equals(other.index[frame.index.get_indexer(y.index)])
    for naive in (PersistenceRegressor(), SeasonalNaiveRegressor(period=5, horizon=[1, 3])):
        expected = naive.fit(X, y).predict(X)
        np.testing.assert_array_equal(naive.fit(X_other, y_other).predict(X_other), expected)


def test_periods_keep_their_own_step_and_dates_theirs():
    months = pd.period_range("2001-01", periods=60, freq="M").delete([17, 18, 40])
    row = np.delete(np.arange(60.0), [17, 18, 40])
    _, y = make_supervised(pd.DataFrame({"v": row}, index=months), "v", 36)
    assert y.tolist() == row[np.isin(row - 36, row)].tolist()
    every_third = pd.period_range("2001-01", periods=27, freq="M")[::3]
    quarterly = pd.DataFrame({"v": np.arange(9.0)}, index=every_third)
    _, y = make_supervised(quarterly, "v", 6)
    assert y.tolist() == np.arange(2.0, 9).tolist()
    days = pd.Index([stamp.date() for stamp in pd.bdate_range("2024-01-01", periods=30).delete(8)])
    _, y = make_supervised(pd.DataFrame({"v": np.arange(29.0)}, index=days), "v", 1)
    assert y.attrs["freq"] == "B"
    assert y.attrs["dropped"]["no_row"] == 2


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("time_first", [False, True])
def test_stations_in_a_multiindex_are_those_of_a_column(window, time_first):
    parts = {name: weather(20 + seed, seed) for seed, name in enumerate("bac")}
    grouped = pd.concat([part.assign(station=name) for name, part in parts.items()])
    frame = pd.concat(parts, names=["station", "time"])
    frame = frame.swaplevel() if time_first else frame
    X, y = make_supervised(grouped, "T", 2, group="station", window=window)
    for told in ({}, {"group": "station"}):
        X_index, y_index = make_supervised(frame, "T", 2, window=window, **told)
        np.testing.assert_array_equal(np.asarray(X_index), np.asarray(X))
        np.testing.assert_array_equal(y_index, y)
        assert y_index.attrs == y.attrs
        assert isinstance(y_index.index, pd.MultiIndex)
        naive = SeasonalNaiveRegressor(0, period=4, horizon=2)
        expected = naive.fit(X, y).predict(X)
        np.testing.assert_array_equal(naive.fit(X_index, y_index).predict(X_index), expected)
    with pytest.raises(ValueError, match="frame comes back to an earlier series in row 3"):
        make_supervised(frame.sort_index(level="time"), "T", 2)
    broken = frame.iloc[[*range(20), 21, 20, *range(22, len(frame))]]
    with pytest.raises(ValueError, match="series of frame that begins in row 20 has unsorted"):
        make_supervised(broken, "T", 2)
    with pytest.raises(ValueError, match="group='p' and the MultiIndex of frame both name series"):
        make_supervised(frame, "T", 2, group="p")
