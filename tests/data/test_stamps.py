"""Time and series of rows are the same in whatever form the index holds them."""

import datetime

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans._data.stamps import read_index, together

HOURS = pd.date_range("2024-03-30", periods=48, freq="h")
DAYS = pd.date_range("2024-01-01", periods=40, freq="D")


def written(times, form):
    """The same times in another form."""
    return {
        "stamps": times,
        "zone": times.tz_localize("UTC").tz_convert("Europe/Berlin"),
        "periods": times.to_period("h"),
        "texts": times.astype(str),
        "texts with T": times.strftime("%Y-%m-%dT%H:%M:%S"),
        "texts with an offset": times.strftime("%Y-%m-%dT%H:%M+00:00"),
        "objects": pd.Index(times.to_pydatetime(), dtype=object),
        "objects of periods": pd.Index(list(times.to_period("h")), dtype=object),
        "categories": pd.CategoricalIndex(times),
        "intervals": pd.interval_range(times[0], periods=len(times), freq="h"),
        "since the start": times - times[0],
    }[form]


FORMS = [
    *["stamps", "zone", "periods", "texts", "texts with T", "texts with an offset", "objects"],
    *["objects of periods", "categories", "intervals", "since the start"],
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_index_tells_the_same_time(form):
    index = written(HOURS, form)
    stamps = read_index(index)
    steps = np.diff(stamps.times.as_unit("ns").asi8)
    assert (steps == 3600 * 10**9).all() and len(stamps.times) == 48
    assert stamps.series is None


def test_dates_months_and_quarters_are_read_at_their_start():
    dates = pd.Index([day.date() for day in DAYS])
    assert read_index(dates).times.as_unit("ns").equals(DAYS.as_unit("ns"))
    for freq in ["M", "Q", "Y", "W-SUN", "D", "2h"]:
        periods = pd.period_range("2020-01-01", periods=9, freq=freq)
        stamps = read_index(periods.delete([3, 4]))
        starts = pd.DatetimeIndex([period.start_time for period in periods])
        assert list(stamps.times) == list(starts.delete([3, 4]))
        # The step is that of the periods, whatever rows are missing.
        assert list(starts[:-1] + stamps.step) == list(starts[1:])
    assert read_index(pd.Index(["2020-01", "2020-02"])).times[1] == pd.Timestamp("2020-02-01")


def test_years_beyond_nanoseconds_are_read():
    index = pd.DatetimeIndex(np.array(["1066-10-14", "2500-01-01"], dtype="M8[s]"))
    assert read_index(index).times.equals(index)
    assert read_index(index.strftime("%Y-%m-%d")).times.year.tolist() == [1066, 2500]


@pytest.mark.parametrize(
    "index",
    [
        None,
        [3, 4],
        pd.RangeIndex(5),
        pd.Index([5, 1, 9]),
        pd.Index([0.5, 1.5]),
        pd.Index(["anna", "bert"]),
        pd.Index(["20240101", "20249902"]),  # numbers of customers, not days
        pd.Index([20240101, 20249902]),
        pd.Index(["a1-2", "b3-4"]),
        pd.Index([None, "x"], dtype=object),
        pd.Index([]),
        pd.Index([(1, 2), 3], dtype=object),
    ],
    ids=str,
)
def test_names_and_numbers_tell_no_time(index):
    assert read_index(index) == (None, None, None)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["01.02.2024", "02.02.2024"]),
        pd.Index(["1/2/2024 10:00", "1/2/2024 11:00"]),
        pd.Index(["2024Q1", "2024Q2"]),
        pd.Index(["3 Mar 2024", "4 Mar 2024"]),
        pd.Index(["2024-01-01 00:00", "2024-01-01 25:00"]),
        pd.Index(["2024-01-01", "soon"]),
        pd.Index(["20240101", "20240102"]),
        pd.Index([20240101, 20240102]),
        pd.Index([datetime.date(2024, 1, 1), 7], dtype=object),
    ],
    ids=str,
)
def test_what_looks_like_a_date_and_cannot_be_read_gets_a_warning(index):
    with pytest.warns(UserWarning, match=r"index of rows looks like dates, but .*pd.to_datetime"):
        assert read_index(index, "rows") == (None, None, None)
    assert read_index(index, warn=False) == (None, None, None)


@pytest.mark.parametrize("form", ["stamps", "periods", "texts", "zone"])
@pytest.mark.parametrize("time_first", [False, True])
def test_the_other_levels_of_a_multiindex_name_the_series(form, time_first):
    times = written(HOURS[:4], form)
    index = pd.MultiIndex.from_product([["a", "b"], times], names=["station", "time"])
    stamps = read_index(index.swaplevel() if time_first else index)
    assert stamps.series.tolist() == [0] * 4 + [1] * 4
    assert stamps.times.equals(read_index(times).times.append([read_index(times).times]))


def test_series_of_several_levels_and_of_row_numbers():
    index = pd.MultiIndex.from_product([["x", "y"], [1, 2], HOURS[:3]])
    assert read_index(index).series.tolist() == np.repeat([0, 1, 2, 3], 3).tolist()
    numbered = pd.MultiIndex.from_product([["x", "y"], range(3)])
    assert read_index(numbered).series.tolist() == [0, 0, 0, 1, 1, 1]
    assert read_index(numbered).times is None
    with pytest.warns(UserWarning, match="no level of the index of X holds time stamps"):
        assert read_index(pd.MultiIndex.from_product([["x"], ["p", "q"]])) == (None, None, None)


def test_rows_of_a_series_that_do_not_stand_together_are_named():
    index = pd.MultiIndex.from_product([HOURS[:3], ["a", "b"]])
    stamps = read_index(index)
    assert stamps.series.tolist() == [0, 1] * 3
    with pytest.raises(ValueError, match=r"comes back to an earlier series in row 2, .*sort_index"):
        together(stamps, index)
    ordered = index.swaplevel().sort_values()
    assert together(read_index(ordered), ordered).series.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "index",
    [
        pd.DatetimeIndex(["2024-01-01", pd.NaT]),
        pd.PeriodIndex(["2024-01", pd.NaT], freq="M"),
        pd.Index(["2024-01-01", None]),
        pd.Index([datetime.date(2024, 1, 1), pd.NaT], dtype=object),
        pd.to_timedelta([1, None], unit="h"),
    ],
    ids=str,
)
def test_missing_time_stamps_are_named(index):
    with pytest.raises(ValueError, match=r"index of X has missing time stamps \(NaT\)"):
        read_index(pd.Index(index))


def test_missing_names_of_series_are_named():
    index = pd.MultiIndex.from_arrays([["a", None], HOURS[:2]])
    with pytest.raises(ValueError, match="missing time stamps or names of series"):
        read_index(index)
