"""Gaps are where readings are missing, and no pause that a calendar or a session makes."""

import datetime
import pickle

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans._data.clock import (
    Clock,
    learn_clock,
    lost_history,
    lost_share,
    warn_of_lost_history,
)

SEEDS = [0, 1, 2]


def cuts(index, max_gap="auto", **told):
    """Rows before which a segment begins, by the clock learnt from the same rows."""
    segments = learn_clock(index, max_gap, **told).segments(index)
    return [] if segments is None else (np.flatnonzero(np.diff(segments)) + 1).tolist()


def sessions(freq, start, end, *, days="2024-01-02", n_days=60, zone="America/New_York"):
    """Rows from ``start`` to before ``end`` of every business day."""
    first = pd.Timestamp(days, tz=zone)
    times = pd.date_range(first, periods=n_days * 86400, freq=freq)
    times = times[times < first + pd.Timedelta(n_days, "D")]
    clock = times.strftime("%H:%M")
    return times[(times.day_of_week < 5) & (clock >= start) & (clock < end)]


def without(index, seed, share):
    """The index with a share of its rows left out, and where the remaining ones stood."""
    kept = np.random.default_rng(seed).random(len(index)) >= share
    kept[[0, -1]] = True
    return index[kept], np.flatnonzero(kept)


# ---- pauses --------------------------------------------------------------------------------------


def test_a_missing_row_is_a_gap_and_so_is_a_longer_hole():
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    assert cuts(hours) == []
    assert cuts(hours.delete([50, 100, 101, 102])) == [50, 99]
    assert cuts(hours.delete([50, 100, 101, 102]), "3h") == [99]
    assert cuts(hours.delete([50, 100, 101, 102]), pd.Timedelta("1D")) == []
    assert cuts(hours.delete([50, 100, 101, 102]), None) == []


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Asia/Tokyo"])
@pytest.mark.parametrize("mask", ["Mon Tue Wed Thu Fri", "Sun Mon Tue Wed Thu", "Mon Wed Fri"])
@pytest.mark.parametrize("seed", SEEDS)
def test_weekends_and_holidays_are_no_gaps_of_business_days(mask, zone, seed):
    freq = pd.offsets.CustomBusinessDay(weekmask=mask)
    days = pd.date_range("2024-01-01", periods=300, freq=freq, tz=zone)
    assert cuts(pd.DatetimeIndex(days, freq=None)) == []
    assert cuts(without(days, seed, 0.03)[0]) == []
    hole = (days < days[100]) | (days > days[100] + pd.Timedelta("60D"))
    assert cuts(days[hole]) == [100]


@pytest.mark.parametrize("freq", ["B", pd.offsets.BDay(), "C"])
def test_a_given_frequency_of_business_days_is_believed(freq):
    days = pd.bdate_range("2024-01-04", periods=4).delete(1)  # Thursday, Monday, Tuesday
    assert cuts(days) == [1]
    assert cuts(days, freq=freq) == []


@pytest.mark.parametrize("freq", ["5min", "30min", "1h"])
@pytest.mark.parametrize("form", ["zone", "UTC", "naive"])
def test_nights_and_weekends_are_no_gaps_of_trading_sessions(freq, form):
    """Over the end of winter time, so the session begins at two different hours of UTC."""
    times = sessions(freq, "09:30", "16:00", n_days=120)
    if form != "zone":
        times = times.tz_convert("UTC")
    if form == "naive":
        times = times.tz_localize(None)
    assert cuts(times) == []
    # A row lost in the middle of a session is a gap, and so is a hole of three weeks.
    middle = int(np.flatnonzero(np.diff(times.asi8) > np.diff(times.asi8).min())[30]) - 2
    assert cuts(times.delete(middle)) == [middle]
    hole = (times < times[0] + pd.Timedelta("40D")) | (times > times[0] + pd.Timedelta("61D"))
    assert cuts(times[hole]) == [np.flatnonzero(~hole)[0]]


def test_lunch_breaks_and_markets_that_close_once_a_week_are_sessions():
    morning, afternoon = (
        sessions("30min", *span, zone="Asia/Tokyo")
        for span in [("09:00", "11:30"), ("12:30", "15:00")]
    )
    assert cuts(morning.union(afternoon)) == []
    hours = pd.date_range("2024-01-01", periods=24 * 7 * 8, freq="h")
    of_week = hours.day_of_week * 24 + hours.hour
    assert cuts(hours[(of_week < 113) | (of_week >= 161)]) == []  # Friday to Sunday, 17:00
    daylight = hours[(hours.hour >= 6) & (hours.hour <= 20)]
    assert cuts(daylight) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("freq", ["h", "6h", "D", "15min"])
def test_readings_lost_at_random_make_gaps_and_no_sessions(freq, share, seed):
    index, place = without(pd.date_range("2024-01-01", periods=2000, freq=freq), seed, share)
    assert cuts(index) == (np.flatnonzero(np.diff(place) > 1) + 1).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_rows_of_a_session_are_gaps_beside_its_pauses(seed):
    times = sessions("30min", "09:30", "16:00")
    index, place = without(times, seed, 0.02)
    expected = [
        k + 1
        for k in np.flatnonzero(np.diff(place) > 1)
        # A step that ends where a session begins is a pause, whatever was lost before it.
        if index[k + 1].strftime("%H:%M") != "09:30"
    ]
    assert cuts(index) == expected


@pytest.mark.parametrize("freq", ["MS", "ME", "BME", "QS", "YE", "W-WED", "SMS"])
def test_a_step_of_a_calendar_is_no_gap_and_two_are(freq):
    index = pd.date_range("2001-01-01", periods=80, freq=freq)
    assert cuts(pd.DatetimeIndex(index, freq=None)) == []
    assert cuts(index.delete([30, 50])) == [30, 49]


# ---- every index ---------------------------------------------------------------------------------

HOURS = pd.date_range("2024-01-01", periods=60, freq="h").delete(slice(20, 30))


@pytest.mark.parametrize(
    "index",
    [
        HOURS,
        HOURS.tz_localize("Asia/Kolkata"),
        HOURS.to_period("h"),
        HOURS.astype(str),
        pd.Index(HOURS.to_pydatetime(), dtype=object),
        HOURS - HOURS[0],
        HOURS.as_unit("s"),
        pd.DatetimeIndex(HOURS.as_unit("s").asi8 - 10**11, dtype="M8[s]"),  # in the year -1200
        pd.MultiIndex.from_product([["a"], HOURS]),
    ],
    ids=lambda index: f"{type(index).__name__} of {index.dtype}",
)
def test_a_hole_is_seen_in_every_index(index):
    assert cuts(index) == [20]
    assert cuts(index, "2h") == [20]
    assert cuts(index, "12h") == []


def test_dates_are_an_index_of_days():
    days = pd.Index([datetime.date(2024, 1, 1) + datetime.timedelta(days=k) for k in range(90)])
    assert cuts(days) == []
    assert cuts(days.delete(slice(10, 70))) == [10]


@pytest.mark.parametrize("index", [None, pd.RangeIndex(9), pd.Index(list("abcdefghi"))])
def test_an_index_without_time_has_no_gaps(index):
    assert cuts(index) == []
    clock = learn_clock(HOURS)
    assert clock.segments(index) is None


def test_stations_of_a_multiindex_are_segments():
    index = pd.MultiIndex.from_product([["a", "b"], HOURS])
    assert cuts(index) == [20, 50, 70]
    assert cuts(index, None) == [50]
    assert learn_clock(index).named_series and not learn_clock(HOURS).named_series
    with pytest.raises(ValueError, match="comes back to an earlier series in row 2"):
        cuts(index.swaplevel().sort_values())
    numbered = pd.MultiIndex.from_product([["a", "b"], range(5)])
    assert cuts(numbered) == [5]


def test_labels_name_series_too():
    twice = HOURS.append(HOURS)
    labels = np.repeat(["a", "b"], 50)
    with pytest.raises(ValueError, match=r"time stamps of X go back, or repeat, at row 50 \("):
        cuts(twice)
    clock = learn_clock(twice, labels=labels)
    assert np.flatnonzero(np.diff(clock.segments(twice, labels))).tolist() == [19, 49, 69]
    assert clock.named_series
    assert np.diff(learn_clock(None, labels=labels).segments(None, labels)).sum() == 1


@pytest.mark.parametrize(
    "index",
    [
        HOURS[::-1],
        HOURS[np.repeat(np.arange(50), 2)],
        pd.date_range("2024-10-27", periods=9, freq="h", tz="Europe/Berlin").tz_localize(None),
        HOURS[::-1].astype(str),
        HOURS[::-1].to_period("h"),
    ],
)
def test_time_that_goes_back_or_repeats_is_named(index):
    with pytest.raises(ValueError, match=r"go back, or repeat, at row .*sort the rows by time"):
        cuts(index)
    assert cuts(index, None) == []


@pytest.mark.parametrize("n_rows", [0, 1, 2])
def test_the_shortest_series_have_no_gaps(n_rows):
    assert cuts(HOURS[:n_rows]) == []
    assert lost_history(learn_clock(HOURS[:n_rows]), HOURS[:n_rows], 5) == 0


def test_a_clock_is_kept_and_used_again():
    times = sessions("30min", "09:30", "16:00")
    clock = pickle.loads(pickle.dumps(learn_clock(times)))
    assert clock == learn_clock(times)
    assert hash(clock) == hash(learn_clock(times))
    with pytest.raises(AttributeError):
        clock.longest = 3
    night = times[[12, 13]]  # 15:30 and 09:30
    assert clock.segments(night) is None
    assert clock.segments(times[[3, 5]]).tolist() == [0, 1]
    assert clock.segments(night.tz_localize(None).astype(str)) is None
    assert Clock().segments(HOURS[::-1]) is None


@pytest.mark.parametrize("wrong", ["soon", "-3h", 0, 3.5, [1], pd.NaT, np.nan, {}, ""])
def test_a_gap_that_is_no_time_is_named(wrong):
    with pytest.raises(ValueError, match="max_gap must be a length of time such as '3h'"):
        learn_clock(HOURS, wrong)


# ---- what is lost --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dilation", [1, 3])
def test_the_lost_share_is_that_of_the_rows_of_all_windows(dilation, seed):
    rng = np.random.default_rng(seed)
    series = np.repeat([0, 1, 2], [50, 1, 30])
    segments = np.cumsum(np.r_[0, np.diff(series) + (rng.random(80) < 0.1)])
    had = left = 0
    for t in range(81):
        for back in range(1, 7):
            row = t - back * dilation
            if row >= 0 and series[row] == series[t]:
                had += 1
                left += segments[row] == segments[t]
    share = lost_share(segments, series, 81, 7, dilation)
    assert share == pytest.approx(1 - left / had, rel=1e-12)  # the same quotient
    assert lost_share(None, None, 81, 7, dilation) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_noticeable_share_is_said_with_a_remedy(seed):
    steps = np.random.default_rng(seed).exponential(3600, size=500).cumsum()
    index = pd.Timestamp("2024-01-01") + pd.to_timedelta(steps, unit="s")
    share = lost_history(learn_clock(index), index, 20)
    assert share > 0.5
    with pytest.warns(UserWarning, match=f"cut away {share:.0%} of the history .* 20 rows: rest."):
        warn_of_lost_history(share, 20, "rest")
    warn_of_lost_history(0.05, 20, "rest")  # a warning would be an error
