"""Targets meet their time and never leak, and so do those of the published protocol."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from weatherframes import SEEDS, irregular_weather, weather

from sklearn_restrans.forecasting import (
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("horizon", [1, 24])
@pytest.mark.parametrize("index", ["DatetimeIndex", "RangeIndex"])
def test_without_gaps_the_target_is_the_shifted_column(seed, horizon, index):
    frame = weather(60, seed)
    if index == "RangeIndex":
        frame = frame.reset_index(drop=True)
    X, y = make_supervised(frame, "T", horizon)
    pd.testing.assert_frame_equal(X, frame.iloc[:-horizon], check_freq=False)
    expected = frame["T"].shift(-horizon).iloc[:-horizon]
    pd.testing.assert_series_equal(y, expected, check_names=False, check_freq=False)
    assert y.name == f"T t+{horizon}"
    assert y.attrs == {
        "target": ["T"],
        "horizon": [horizon],
        "freq": "h" if index == "DatetimeIndex" else 1,
        "dropped": {"no_row": horizon, "missing": 0},
    }


@pytest.mark.parametrize("seed", range(6))
def test_with_gaps_the_target_is_the_nearest_row_within_half_a_step(seed):
    frame = irregular_weather(300, seed)
    X, y = make_supervised(frame, "T", 24)
    minutes = ((frame.index - frame.index[0]) / pd.Timedelta("1min")).to_numpy()
    expected = {}
    for time, minute in zip(frame.index, minutes, strict=True):
        away = abs(minutes - (minute + 24 * 60))
        nearest = np.flatnonzero(away == away.min())[-1]  # the later of two
        if away[nearest] <= 30:
            expected[time] = frame["T"].iloc[nearest]
    assert y.to_dict() == expected
    assert X.index.equals(y.index)
    assert y.attrs["dropped"] == {"no_row": 300 - len(expected), "missing": 0}
    by_rows = frame["T"].shift(-24).reindex(y.index)
    assert (by_rows != y).any(), "the gaps make no difference to a plain shift"


def test_a_clock_that_moves_after_a_gap_keeps_its_targets_and_a_long_gap_has_none():
    minutes = [10, 70, 130, 210, 270, 330, 1000, 1060, 1120]  # 80 minutes, then 670
    frame = pd.DataFrame({"T": np.arange(9.0)})
    frame.index = pd.Timestamp("2013-05-16") + pd.to_timedelta(minutes, unit="min")
    X, y = make_supervised(frame, "T", 2)
    assert X["T"].tolist() == [0, 1, 2, 3, 6]
    assert y.tolist() == [2, 3, 4, 5, 8]
    assert y.attrs["dropped"] == {"no_row": 4, "missing": 0}


def test_of_two_rows_half_a_step_off_the_later_is_the_target():
    minutes = [0, 60, 150, 210, 270]
    frame = pd.DataFrame({"T": np.arange(5.0)})
    frame.index = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, unit="min")
    _, y = make_supervised(frame, "T", 2)  # 60 + 120 minutes lies between 150 and 210
    assert y.iloc[1] == 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [weather, irregular_weather])
def test_nothing_later_than_the_target_time_is_seen(seed, make):
    frame = make(200, seed)
    now = frame.index[120]
    changed = frame.copy()
    changed.loc[changed.index > now] += 1000.0
    X, y = make_supervised(frame, "T", [1, 5])
    X_changed, y_changed = make_supervised(changed, "T", [1, 5])
    past = X.index <= now
    pd.testing.assert_frame_equal(X[past], X_changed[past])
    for h in (1, 5):
        known = X.index + pd.Timedelta(h, "h") <= now - pd.Timedelta("30min")
        future = X.index + pd.Timedelta(h, "h") > now + pd.Timedelta("30min")
        assert known.sum() > 50
        assert future.sum() > 50
        assert (y.loc[known, f"T t+{h}"] == y_changed.loc[known, f"T t+{h}"]).all()
        assert (y.loc[future, f"T t+{h}"] != y_changed.loc[future, f"T t+{h}"]).all()


def test_several_targets_and_a_path_of_horizons():
    frame = weather(50)
    X, y = make_supervised(frame, ["p", "T"], range(1, 4))
    assert list(y.columns) == ["p t+1", "p t+2", "p t+3", "T t+1", "T t+2", "T t+3"]
    assert (y.attrs["target"], y.attrs["horizon"]) == (["p", "T"], [1, 2, 3])
    assert len(X) == 47
    for name in y:
        target, step = name.split(" t+")
        assert np.array_equal(y[name], frame[target].to_numpy()[int(step) : int(step) + 47])


@pytest.mark.parametrize(("target", "horizon"), [(["T"], 2), ("T", [2]), ("T", range(2, 3))])
def test_a_list_gives_a_frame_even_with_one_entry(target, horizon):
    _, y = make_supervised(weather(9), target, horizon)
    assert isinstance(y, pd.DataFrame)
    assert list(y.columns) == ["T t+2"]


def test_a_missing_target_drops_its_row_and_a_missing_feature_stays():
    frame = weather(30).astype("Float64")
    frame.attrs["station"] = "Jena"
    frame.iloc[10, 0] = frame.iloc[4, 1] = pd.NA
    before = frame.copy()
    X, y = make_supervised(frame, "T", 3)
    assert frame.index[7] not in X.index
    assert X["p"].isna().sum() == 1
    assert X.loc[frame.index[10], :].isna().tolist() == [True, False]
    assert y.attrs["dropped"] == {"no_row": 3, "missing": 1}
    assert y.dtype == float
    assert X.attrs == {"station": "Jena"}
    pd.testing.assert_frame_equal(frame, before)


def test_relative_windows_know_their_columns_and_targets():
    """By number, as labels may be of any type; known columns are left out unless they are named."""
    frame = weather(40, 0)
    columns = list(frame.columns)
    place = columns.index("T")
    options = {"window": 4, "relative": "last", "known": columns[1]}
    X, y = make_supervised(frame, ["T", columns[1]], [1, 3], **options)
    assert X.form.columns == tuple(range(len(columns))) and X.shape[2] == len(columns) + 2
    assert X.form.targets == (place, place, 1, 1) and list(y.columns)[1] == "T t+3"
    named = f"{columns[1]} t+3"
    X, _ = make_supervised(
        frame, ["T", columns[1]], [1, 3], relative_columns=["T", named], **options
    )
    assert X.form.columns == (place, len(columns) + 1)
    assert X.form.targets == (place, place, None, None)
    frame.columns = range(len(columns))
    X, _ = make_supervised(frame, place, 2, window=4, relative="standard", relative_columns=place)
    assert X.form.columns == X.form.targets == (place,) and X.form.relative == "standard"


def test_patches_of_a_window_are_those_of_a_view():
    frame = weather(40, 0)
    X, y = make_supervised(frame, "T", 3, window=8, patch=4, patch_stride=2)
    plain, y_plain = make_supervised(frame, "T", 3, window=8)
    assert X.shape == (37, 3, 4 * frame.shape[1])
    np.testing.assert_array_equal(X.ends, plain.ends)
    pd.testing.assert_series_equal(y, y_plain)
    rows = np.asarray(plain)
    np.testing.assert_array_equal(np.asarray(X)[:, 1], rows[:, 2:6].reshape(37, -1))


def test_a_window_keeps_the_rows_that_have_no_target():
    frame = weather(30)
    frame.iloc[10, 0] = np.nan  # the row three before it has no target
    rows, y = make_supervised(frame, "T", 3)
    view, y_view = make_supervised(frame, "T", 3, window=4, dilation=2)
    assert view.shape == (26, 4, 2)
    pd.testing.assert_series_equal(y, y_view)
    ends = frame.index.get_indexer(rows.index)
    assert 7 not in ends
    for sample, end in list(zip(np.asarray(view), ends, strict=True))[6:]:
        assert np.array_equal(sample, frame.iloc[[end - 6, end - 4, end - 2, end]], equal_nan=True)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("freq", ["1s", "10min", "D", "B", "W", "MS", "ME", "QS"])
def test_regular_calendars_are_inferred(freq, unit):
    index = pd.date_range("2020-01-01", periods=60, freq=freq).as_unit(unit)
    frame = pd.DataFrame({"v": np.arange(60.0)}, index=pd.DatetimeIndex(index.to_numpy()))
    for horizon in (1, 7, 40):  # 40 months of 30.5 days miss by more than half a month
        _, y = make_supervised(frame, "v", horizon)
        assert y.tolist() == list(range(horizon, 60))


def test_business_days_are_seen_in_spite_of_a_holiday():
    days = pd.bdate_range("2024-01-01", periods=15).delete(8)
    frame = pd.DataFrame({"v": np.arange(14.0)}, index=days)
    _, y = make_supervised(frame, "v", 1)
    _, business = make_supervised(frame, "v", 1, freq="B")
    pd.testing.assert_series_equal(y, business)
    assert y.attrs["freq"] == "B"
    assert y.attrs["dropped"]["no_row"] == 2  # the day before the holiday, and the end


def test_the_step_of_a_finer_frequency_counts():
    frame = weather(20)
    _, y = make_supervised(frame, "T", 18, freq="10min")
    assert np.array_equal(y, frame["T"].iloc[3:])


def test_half_of_the_finer_step_is_the_tolerance():
    # 40 minutes ahead of an hourly row the nearest is 20 minutes off: half an hour, not half a step
    with pytest.raises(ValueError, match=r"20 of 20 have no row there \(check freq='10min'"):
        make_supervised(weather(20), "T", 4, freq="10min")


def test_no_row_is_its_own_target():
    # 31 January + 1 month start is 1 February, and the row nearest to that is 31 January itself
    index = pd.to_datetime(["2024-01-01", "2024-01-31", "2024-03-01", "2024-04-01", "2024-05-01"])
    X, y = make_supervised(pd.DataFrame({"v": np.arange(5.0)}, index=index), "v", 1, freq="MS")
    assert X["v"].tolist() == [0, 2, 3]
    assert y.tolist() == [1, 3, 4]


def test_columns_of_several_levels_are_named_by_tuples():
    plain = weather(30)
    frame = plain.set_axis(pd.MultiIndex.from_tuples([("air", "T"), ("air", "p")]), axis=1)
    X, y = make_supervised(frame, ("air", "T"), 2, known=("air", "p"))
    expected, target = make_supervised(plain, "T", 2, known="p")
    np.testing.assert_array_equal(X, expected)
    assert list(X.columns) == [("air", "T"), ("air", "p"), ("air", "p t+2")]
    np.testing.assert_array_equal(y, target)
    assert (y.name, y.attrs["target"]) == ("('air', 'T') t+2", [("air", "T")])
    _, both = make_supervised(frame, [("air", "p"), ("air", "T")], 1)
    assert both.shape == (29, 2)
    for label in (("air", "T"), [("air", "T")], 0):
        naive = PersistenceRegressor(label).fit(X, y)
        np.testing.assert_array_equal(naive.predict(X), plain["T"][:28])
    assert not backtest(naive, X, y, [(range(9), range(12, 20))])["skill"].any()
    with pytest.raises(ValueError, match=r"target=\['air'\] not in frame: choose from \[\('air'"):
        make_supervised(frame, "air", 1)


def test_known_columns_may_be_many_and_keep_their_names():
    frame = weather(60)
    for k in range(12):
        frame[f"k{k}"] = np.arange(60.0) + k
    X, _ = make_supervised(frame, "T", range(1, 25), known=[f"k{k}" for k in range(12)])
    assert X.shape == (36, 14 + 12 * 24)  # pandas warns of columns that are added one by one
    assert (X["k3 t+24"] == X["k3"] + 24).all()
    with pytest.raises(ValueError, match=r"makes columns that exist: rename \['p t\+1'\]"):
        make_supervised(weather(9).assign(**{"p t+1": 0.0}), "T", 1, known="p")


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_of_business_days_and_sessions_are_whole(seed):
    """The issue's case: of windows of 20 days three rows were left."""
    rng = np.random.default_rng(seed)
    days = pd.bdate_range("2023-01-02", periods=300).delete(rng.integers(5, 295, size=6))
    frame = pd.DataFrame({"v": rng.normal(size=len(days))}, index=days)
    X, _ = make_supervised(frame, "v", 1, window=20)
    assert X.partial.sum() <= 19
    hours = pd.date_range("2024-01-01", periods=24 * 60, freq="h")
    hours = hours[(hours.hour >= 9) & (hours.hour < 17) & (hours.day_of_week < 5)]
    frame = pd.DataFrame({"v": rng.normal(size=len(hours))}, index=hours)
    X, _ = make_supervised(frame, "v", 1, window=20)
    assert X.partial.sum() <= 19


@pytest.mark.parametrize("seed", SEEDS)
def test_a_noticeable_loss_of_history_is_said(seed):
    steps = np.random.default_rng(seed).exponential(60, size=300).cumsum()
    frame = weather(300).set_axis(pd.Timestamp("2024-01-01") + pd.to_timedelta(steps, unit="min"))
    with pytest.warns(UserWarning, match=r"cut away \d\d% of the history of windows of 20 "):
        make_supervised(frame, "T", 1, window=20)
    make_supervised(frame, "T", 1, window=20, max_gap=None)
    make_supervised(frame, "T", 1, window=20, max_gap="1D")


@pytest.mark.parametrize("off", [29, 30, 31])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_target_may_be_half_a_step_off_and_no_more(off, sign):
    """The row an hour after 05:00 is the one ``off`` minutes from 06:00, if there is one."""
    minutes = np.delete(np.arange(0, 20 * 60, 60), 6)
    minutes = np.sort(np.r_[minutes, 6 * 60 + sign * off])
    index = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, unit="min")
    frame = pd.DataFrame({"v": minutes.astype(float)}, index=index)
    X, y = make_supervised(frame, "v", 1)
    at = dict(zip(X["v"], y, strict=True))
    assert at.get(300) == (None if off > 30 else 360 + sign * off)
    naive = SeasonalNaiveRegressor("v", period=2, horizon=1).fit(X, y)
    # A season of two steps is one step back; without a row there the forecast is persistence.
    back = dict(zip(X["v"], naive.predict(X), strict=True))
    assert back[420] == (420 if off > 30 else 360 + sign * off)


BAD = weather(6)
REVERSED, REPEATED = BAD.iloc[::-1], BAD.iloc[[0, 1, 1, 2]]


@pytest.mark.parametrize(
    ("frame", "arguments", "error", "sentence"),
    [
        (BAD.to_numpy(), {}, TypeError, "pandas DataFrame, got ndarray: convert it"),
        (pl.DataFrame({"T": [1.0, 2.0]}), {}, TypeError, ".to_pandas()"),
        (REVERSED, {}, ValueError, "unsorted time stamps: call frame.sort_index()"),
        (REPEATED, {}, ValueError, "duplicate time stamps: keep one row each of 1, ['2024-01-01 0"),
        (BAD.set_index([[*BAD.index[:5], pd.NaT]]), {}, ValueError, "(NaT): drop these rows"),
        (
            BAD.set_index(BAD.index.strftime("%d.%m.%Y %H:%M")),
            {},
            ValueError,
            "set a DatetimeIndex, or",
        ),
        (BAD.reset_index(drop=True).drop(2), {}, ValueError, "reset_index(drop=True)"),
        (BAD.iloc[:1], {}, ValueError, "1 row(s): pass at least horizon + 1"),
        (BAD.iloc[:0], {}, ValueError, "0 row(s)"),
        (BAD.assign(wd="N"), {}, ValueError, "not numeric: drop or encode ['wd']"),
        (BAD.assign(t=BAD.index), {}, ValueError, "not numeric: drop or encode ['t']"),
        (BAD[["T", "p", "p"]], {}, ValueError, "columns of one name: rename ['p']"),
        (BAD, {"target": "Tdew"}, ValueError, "target=['Tdew'] not in frame: choose from ['T', 'p"),
        (BAD, {"target": ["T", 3]}, ValueError, "target=[3] not in frame"),
        (BAD, {"horizon": 6}, ValueError, "horizon=6 reaches past the end"),
        (BAD, {"horizon": [1, 9]}, ValueError, "horizon=9 reaches past the end"),
        (
            BAD,
            {"horizon": 0},
            ValueError,
            "horizon must be an integer >= 1, or a list or range of different ones, got 0",
        ),
        (
            BAD,
            {"horizon": 1.5},
            ValueError,
            "horizon must be an integer >= 1, or a list or range of different ones, got 1.5",
        ),
        (BAD, {"horizon": True}, ValueError, "different ones, got True"),
        (BAD, {"horizon": "24h"}, ValueError, "different ones, got '24h'"),
        (BAD, {"horizon": []}, ValueError, "different ones, got []"),
        (BAD, {"horizon": [2, 2]}, ValueError, "list or range of different ones"),
        (BAD, {"freq": "often"}, ValueError, "freq='often' is not a pandas frequency"),
        (BAD, {"freq": 1}, ValueError, "freq=1 is not a pandas frequency: pass one such as '1h'"),
        (BAD, {"freq": []}, ValueError, "freq=[] is not a pandas frequency"),
        (BAD, {"freq": "-1h"}, ValueError, "freq='-1h' does not lead forward"),
        (BAD.reset_index(drop=True), {"freq": "h"}, ValueError, "freq='h' needs a DatetimeIndex"),
        (BAD, {"group": ["a"]}, ValueError, "group=['a'] not in frame: choose one of ['T', 'p']"),
        (BAD.iloc[:0], {"group": "p"}, ValueError, "0 row(s)"),
        (BAD, {"target": ["T", ["p"]]}, ValueError, "target=[['p']] not in frame"),
        (BAD, {"known": [["p"]]}, ValueError, "known=[['p']] not in frame"),
        (BAD.assign(z=1j), {}, ValueError, "not numeric: drop or encode ['z']"),
        (BAD, {"window": 7}, ValueError, "window=7 is longer than the 6 rows of frame: pass a"),
        (
            pd.concat([BAD.assign(s="a"), BAD.assign(s="b")]),
            {"window": 7, "group": "s"},
            ValueError,
            "window=7 is longer than the 6 rows of the longest series of frame",
        ),
        (BAD, {"dilation": 2}, ValueError, "dilation=2 needs a window to act on"),
        (BAD, {"patch": 2}, ValueError, "patch=2 needs a window to act on: set window"),
        (BAD, {"patch_stride": 2}, ValueError, "patch_stride=2 needs a window to act on"),
        (BAD, {"relative": "last"}, ValueError, "relative='last' needs a window to act on"),
        (BAD, {"relative_columns": ["T"]}, ValueError, "relative_columns=['T'] needs a window"),
        (
            BAD,
            {"window": 2, "relative_columns": ["T"]},
            ValueError,
            "relative_columns=[0] needs relative='last' or 'standard'",
        ),
        (
            BAD,
            {"window": 2, "relative": "last", "relative_columns": ["T t+1"]},
            ValueError,
            "relative_columns=['T t+1'] not in frame: choose from ['T', 'p']",
        ),
        (BAD, {"window": 2, "relative": "mean"}, ValueError, "relative must be 'last', 'standard'"),
        (BAD, {"window": 5, "patch": 2}, ValueError, "patch=2 does not divide window=5"),
        (BAD, {"window": 2, "patch": 3}, ValueError, "patch=3 is longer than window=2"),
        (BAD, {"max_gap": 3}, ValueError, "max_gap must be a length of time such as '3h'"),
        (
            BAD,
            {"target": {"T"}},
            ValueError,
            "target must be a label or a list of labels, got",
        ),
        (BAD, {"known": {"p": 1}}, ValueError, "known must be a label or a list of labels, got"),
        (BAD, {"target": None}, ValueError, "target=[None] not in frame"),
        (BAD, {"target": pd.NA}, ValueError, "target=[<NA>] not in frame"),
        (BAD, {"target": np.array("T")}, ValueError, "target=[array('T', dtype='<U1')] not in"),
        (BAD, {"group": {}}, ValueError, "group={} not in frame"),
        (BAD, {"freq": "10000YS"}, ValueError, "freq='10000YS' leads beyond all time stamps"),
        (BAD, {"freq": pd.Timedelta.max}, ValueError, "leads beyond all time stamps: pass a short"),
        (BAD, {"freq": "0h"}, ValueError, "freq='0h' does not lead forward"),
        (BAD, {"freq": pd.NaT}, ValueError, "freq=NaT is not a pandas frequency"),
        (BAD, {"window": 2, "dilation": 10**30}, ValueError, "is longer than the 6 rows of frame"),
        (BAD, {"window": "a"}, ValueError, "window must be an integer >= 1, got 'a'"),
        (BAD, {"dilation": None}, ValueError, "dilation must be an integer >= 1, got None"),
        (BAD.set_index(BAD.index.hour * 0.5), {}, ValueError, "no time index: set a DatetimeIndex"),
        (BAD.assign(T=np.nan), {}, ValueError, "5 a missing value of ['T'] (fill it"),
    ],
)
def test_bad_input_to_make_supervised_gets_a_sentence(frame, arguments, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        make_supervised(frame, **{"target": "T", "horizon": 1, **arguments})


# ---- the published protocol ----------------------------------------------------------------------


def jena_hourly(data_dir):
    frame = pd.read_csv(data_dir / "jena" / "jena_2009_2016_hourly.csv.gz")
    times = pd.to_datetime(frame.pop("Date Time"), format="%d.%m.%Y %H:%M:%S")
    return frame.set_index(pd.DatetimeIndex(times))


def test_persistence_on_jena_has_the_errors_of_the_book(data_dir):
    # Chollet, Deep Learning with Python, chapter "Timeseries": rows of the whole file split 50 /
    # 25 / 25 %, samples are windows of 120 hourly rows that lie in one part, target 24 hours after
    # the last row (it may lie in the next part); published 2.44 and 2.62 degC.
    frame = jena_hourly(data_dir)
    X, y = make_supervised(frame, "T (degC)", 24)
    row = frame.index.get_indexer(X.index)
    half, three_quarters, end = len(frame) // 2, len(frame) // 2 + len(frame) // 4, len(frame)
    folds = []
    for start, stop in [(half, three_quarters), (three_quarters, end)]:
        test = np.flatnonzero((row >= start + 119) & (row < stop))
        folds.append((np.arange(np.searchsorted(row, start) - 24), test))
    scores = backtest(PersistenceRegressor("T (degC)"), X, y, folds)
    assert scores["MAE"].round(2).tolist() == [2.44, 2.62]
    assert scores["skill"].tolist() == [0, 0]


def test_jena_targets_lie_24_hours_ahead_wherever_the_clock_moves(data_dir):
    frame = jena_hourly(data_dir)
    stamped = frame.assign(hours=(frame.index - frame.index[0]) / pd.Timedelta("1h"))
    X, y = make_supervised(stamped, "hours", 24)
    ahead = y - X["hours"]
    assert ahead.between(23.5, 24.5).all()
    # 24 rows lost at the end, 24 before the gap of three days, 16 before the one of 17 hours
    assert y.attrs["dropped"] == {"no_row": 64, "missing": 0}


def test_channels_are_samples_of_windows_only_and_a_truth_of_numpy_is_one():
    frame = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) ** 2})
    for option in ({"channel_independent": True}, {"relative": False}):
        with pytest.raises(ValueError, match="needs a window to act on"):
            make_supervised(frame, ["a", "b"], 1, **option)
    with pytest.raises(ValueError, match="channel_independent must be True or False, got 'yes'"):
        make_supervised(frame, ["a", "b"], 1, window=3, channel_independent="yes")
    X, _ = make_supervised(frame, ["b"], 1, window=3, channel_independent=np.True_)
    assert X.form.channels == X.form.targets == (1,)
