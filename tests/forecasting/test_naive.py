"""The yardsticks of forecasting repeat the present, or the last season, by the clock."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from weatherframes import SEEDS, weather

from sklearn_restrans import SequenceView
from sklearn_restrans.forecasting import (
    CalendarFeatures,
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
)


@parametrize_with_checks(
    [
        PersistenceRegressor(),
        PersistenceRegressor(target=[0]),
        SeasonalNaiveRegressor(),
        SeasonalNaiveRegressor(period=3, horizon=6),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_persistence_repeats_the_current_value_of_every_target_for_every_horizon():
    X, y = make_supervised(weather(40), ["p", "T"], [1, 3])
    expected = X[["p", "p", "T", "T"]].to_numpy()
    for target, rows in [(["p", "T"], X), ([1, 0], X), ([1, 0], X.to_numpy()), ([-1, -2], X)]:
        assert np.array_equal(PersistenceRegressor(target).fit(rows, y).predict(rows), expected)
    X, y = make_supervised(weather(40), "p", 5)
    assert np.array_equal(PersistenceRegressor("p").fit(X, y).predict(X), X["p"])


@pytest.mark.parametrize("period", [1, 2, 7, 24])
def test_seasonal_naive_takes_the_latest_known_value_in_the_phase_of_the_target(period):
    frame = pd.DataFrame({"p": 0.0, "row": np.arange(120.0)})
    horizons = range(1, 51)
    X, y = make_supervised(frame, "row", horizons)
    model = SeasonalNaiveRegressor("row", period=period, horizon=horizons).fit(X, y)
    source = model.predict(X)[period:]  # rows with a full history
    now = X["row"].to_numpy()[period:, None]
    assert np.all((y.to_numpy()[period:] - source) % period == 0)  # same phase
    assert np.all(source <= now)  # known
    assert np.all(source > now - period)  # the latest one
    assert model.window == max(-h % period for h in horizons) + 1


def test_seasonal_naive_without_history_is_persistence():
    X, y = make_supervised(weather(30), "T", 1)
    predicted = SeasonalNaiveRegressor("T", period=4).fit(X, y).predict(X)
    assert np.array_equal(predicted[:3], X["T"].iloc[:3])
    assert np.array_equal(predicted[3:], X["T"].iloc[:-3])


def test_a_missing_current_value_is_replaced_by_the_last_known_one():
    X = pd.DataFrame({"T": [np.nan, 2.0, np.nan, np.nan, 5.0]})
    y = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    assert PersistenceRegressor("T").fit(X, y).predict(X).tolist() == [4, 2, 2, 2, 5]
    model = SeasonalNaiveRegressor("T", period=2, horizon=1).fit(X, y)
    assert model.predict(X).tolist() == [4, 4, 2, 2, 2]
    both = np.column_stack([y, -y])
    assert PersistenceRegressor("T").fit(X, both).predict(X)[0].tolist() == [4, -4]


def test_baselines_go_through_pipelines_clones_and_cross_validation():
    X, y = make_supervised(weather(200), "T", 2)
    model = SeasonalNaiveRegressor("T", period=24, horizon=2)
    assert model.get_params() == {"target": "T", "period": 24, "horizon": 2}
    copy = clone(model.fit(X, y))
    assert not hasattr(copy, "columns_")
    assert list(model.feature_names_in_) == ["T", "p"]
    assert (model.columns_, model.lags_) == ([0], [22])
    pipe = make_pipeline(CalendarFeatures(), PersistenceRegressor("T"))
    errors = cross_val_score(
        pipe, X, y, cv=TimeSeriesSplit(3), scoring="neg_mean_absolute_error", error_score="raise"
    )
    tests = [test for _, test in TimeSeriesSplit(3).split(X)]
    assert errors == pytest.approx([-abs(X["T"] - y).iloc[test].mean() for test in tests])


@pytest.mark.parametrize("clock", ["h", "B", "MS", "rows"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_season_of_a_table_is_counted_in_steps_of_its_index_and_not_in_rows(clock, seed):
    frame = pd.DataFrame({"T": np.arange(200.0)})
    if clock != "rows":
        frame.index = pd.date_range("2024-01-01", periods=200, freq=clock)
    there = np.random.default_rng(seed).random(200) < 0.7
    X, y = make_supervised(frame.assign(T=frame["T"].where(there)), "T", 2)
    assert len(X) < 160  # 30 % have no target, and are dropped
    now = frame["T"].loc[X.index].to_numpy().astype(int)
    full = frame.loc[X.index]  # with the reading, known or not
    naive = SeasonalNaiveRegressor("T", period=7, horizon=2).fit(full, y)
    in_table = np.isin(now - 5, now)  # 2 ahead less 7
    assert in_table.any() and not in_table.all()
    np.testing.assert_array_equal(naive.predict(full), np.where(in_table, now - 5, now))


def test_without_an_index_rows_are_steps():
    X, y = make_supervised(weather(30).drop(weather(30).index[[5, 11]]), "T", 1)
    by_clock = SeasonalNaiveRegressor("T", period=4).fit(X, y)
    by_rows = SeasonalNaiveRegressor(0, period=4).fit(X.to_numpy(), y.to_numpy())
    now = X["T"].to_numpy()
    np.testing.assert_array_equal(by_rows.predict(X.to_numpy())[3:], now[:-3])
    assert (by_clock.predict(X) != by_rows.predict(X.to_numpy())).any()
    np.testing.assert_array_equal(by_clock.predict(X.reset_index(drop=True))[3:], now[:-3])
    shuffled = X.set_axis(np.random.default_rng(0).permutation(len(X)))
    np.testing.assert_array_equal(by_clock.fit(shuffled, y).predict(shuffled)[3:], now[:-3])


def test_series_below_each_other_keep_to_their_own_past():
    parts = {name: weather(20, seed) for seed, name in enumerate("abc")}
    parts["b"].iloc[0, 0] = np.nan  # no reading of a station stands in for one of another
    frame = pd.concat([part.assign(station=name) for name, part in parts.items()])
    X, y = make_supervised(frame, "T", 1, group="station")
    view, _ = make_supervised(frame, "T", 1, group="station", window=1)
    for naive in (PersistenceRegressor("T"), SeasonalNaiveRegressor("T", period=4)):
        expected = naive.fit(view, y).predict(view)
        np.testing.assert_array_equal(naive.fit(X, y).predict(X), expected)
    by_time = np.argsort(X.index, kind="stable")
    table = X.iloc[by_time]
    expected = PersistenceRegressor("T").fit(view, y).predict(view)[by_time]
    np.testing.assert_array_equal(PersistenceRegressor("T").fit(X, y).predict(table), expected)
    with pytest.raises(ValueError, match=r"several rows of one time stamp.*or a SequenceView"):
        naive.predict(table)
    with pytest.raises(ValueError, match=r"several rows of one time stamp.*or a SequenceView"):
        naive.fit(table, y.iloc[by_time]).predict(table)


def daily(n, freq, period):
    """A course that repeats itself every ``period`` rows."""
    index = pd.date_range("2024-01-03", periods=n, freq=freq)
    return pd.DataFrame({"T": np.arange(float(n)) % period}, index=index)


def test_the_step_is_that_of_the_targets_however_few_of_them_there_are():
    """Two targets in three are missing, so rows of X lie three steps apart, and one is dropped."""
    frame = daily(480, "h", 24)
    frame.loc[np.arange(480) % 3 > 0, "T"] = np.nan
    for table in (frame, frame.drop(frame.index[100]), frame.reset_index(drop=True)):
        X, y = make_supervised(table, "T", 3)
        error = SeasonalNaiveRegressor("T", period=24, horizon=3).fit(X, y).predict(X) - y
        assert not error.iloc[24:].any()


def test_backtests_reach_back_by_the_clock():
    """A season of 24 steps of an hour is 144 rows of ten minutes."""
    X, y = make_supervised(daily(600, "10min", 144), "T", 1, freq="1h")
    scores = backtest(
        SeasonalNaiveRegressor("T", period=24), X, y, TimeSeriesSplit(3, gap=6, test_size=60)
    )
    assert not scores["MAE"].any()


def test_the_order_of_rows_in_fit_does_not_matter(seed):
    frame = daily(400, "h", 24)
    y = (frame["T"] + 1) % 24
    mixed = np.random.default_rng(seed).permutation(400)[:300]
    naive = SeasonalNaiveRegressor("T", period=24).fit(frame.iloc[mixed], y.iloc[mixed])
    np.testing.assert_array_equal(naive.predict(frame)[23:], y[23:])


# pandas applies such offsets row by row, and says so
@pytest.mark.filterwarnings("ignore::pandas.errors.PerformanceWarning")
@pytest.mark.parametrize(
    "freq",
    [
        pd.DateOffset(months=1),
        pd.offsets.CustomBusinessDay(holidays=["2024-01-05"]),
        pd.offsets.BusinessHour(start="08:00"),
        np.timedelta64(1, "h"),
    ],
)
def test_steps_without_a_name_of_their_own(freq):
    index = "h" if isinstance(freq, np.timedelta64) else freq
    X, y = make_supervised(daily(60, index, 12), "T", 1, freq=freq)
    error = SeasonalNaiveRegressor("T", period=12).fit(X, y).predict(X) - y
    assert not error.iloc[11:].any()
    backtest(SeasonalNaiveRegressor("T", period=12), X, y, TimeSeriesSplit(2))


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("1500", periods=50, freq="YS"),  # no nanoseconds reach so far
        np.arange(50) + 10**16,
        pd.Index(range(50), dtype="Int64"),
        pd.RangeIndex(7, 107, 2),
    ],
)
def test_indices_far_from_the_usual(index):
    frame = daily(50, "h", 5).set_axis(index)
    kept = frame.drop(frame.index[[10, 31]])
    y = (kept["T"] + 1) % 5
    naive = SeasonalNaiveRegressor("T", period=5).fit(kept, y)
    error = naive.predict(kept) - y
    assert error.iloc[4:].ne(0).sum() == 2, "only the rows whose own season was dropped"


def test_a_season_beyond_all_time_is_persistence():
    X, y = make_supervised(weather(10), "T", 1)
    naive = SeasonalNaiveRegressor("T", period=10**9).fit(X, y)
    np.testing.assert_array_equal(naive.predict(X), X["T"])


@pytest.mark.parametrize(
    ("model", "horizon", "sentence"),
    [
        (PersistenceRegressor([]), 1, "target=[] is empty: name the target column(s)"),
        (PersistenceRegressor(True), 1, "target=True must be the name or the position"),
        (PersistenceRegressor([0, 0]), 1, "target=[0, 0] names 2 with 1 horizon(s) each"),
        (PersistenceRegressor("Tdew"), 1, "target='Tdew' is not a column of X: choose from ['T'"),
        (PersistenceRegressor(2), 1, "target=2 is not a column of X"),
        (PersistenceRegressor(["T", "p"]), 1, "y has 1 column(s)"),
        (SeasonalNaiveRegressor("T", period=0), 1, "period must be an integer >= 1, got 0"),
        (
            SeasonalNaiveRegressor("T", horizon=0),
            1,
            "horizon must be an integer >= 1, or a list or range of different ones, got 0",
        ),
        (SeasonalNaiveRegressor("T", horizon=2), 1, "y was made with horizon [1]: pass the same"),
        (SeasonalNaiveRegressor("T"), [1, 2], "horizon=1, but y was made with horizon [1, 2]"),
    ],
)
def test_bad_input_to_a_baseline_gets_a_sentence(model, horizon, sentence):
    X, y = make_supervised(weather(20), "T", horizon)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model.fit(X, y)


def test_a_name_needs_named_columns_and_the_columns_of_y_must_fit():
    X, y = np.ones((5, 2)), np.ones((5, 3))
    with pytest.raises(ValueError, match=r"pass its position \(X has 2 columns\)"):
        PersistenceRegressor("T").fit(X, y)
    with pytest.raises(ValueError, match=r"y has 3 column\(s\).* names 1 with 2 horizon"):
        SeasonalNaiveRegressor(0, horizon=[1, 2]).fit(X, y)


def test_what_is_no_target_or_no_time_gets_a_sentence():
    frame = weather(6)
    for X in (frame, SequenceView(frame, np.arange(6), 2)):
        with pytest.raises(ValueError, match="requires y to be passed"):
            PersistenceRegressor().fit(X, None)
        with pytest.raises(ValueError, match="Convert your data to numeric values"):
            PersistenceRegressor().fit(X, ["a"] * 6)
    with pytest.raises(ValueError, match="index of X has missing time stamps"):
        PersistenceRegressor().fit(frame.set_index([[*frame.index[:5], pd.NaT]]), np.ones(6))


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (weather(6)[["T", "T"]], "X has columns of one name: rename ['T']"),
        (weather(6).assign(wd="N"), "X has columns that are not numeric: drop or encode ['wd']"),
        (weather(6).assign(t=weather(6).index), "drop or encode ['t']"),
        (weather(6).assign(t=weather(6).index.to_period("h")), "drop or encode ['t']"),
        (
            weather(6).astype(pd.SparseDtype(float)),
            "X has sparse columns ['T', 'p']: pass X",
        ),
    ],
)
def test_columns_that_hold_no_numbers_are_named(X, sentence):
    for naive in (PersistenceRegressor(), SeasonalNaiveRegressor(period=3)):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            naive.fit(X, np.ones(6))
        with pytest.raises(ValueError, match=re.escape(sentence)):
            naive.fit(np.ones((6, X.shape[1])), np.ones(6)).predict(X)


@pytest.mark.parametrize("target", [None, pd.NA, {"T"}, {"T": 1}, [None], [["T"]], np.nan, ...])
def test_a_target_that_is_no_label_gets_a_sentence(target):
    X, y = make_supervised(weather(20), "T", 1)
    with pytest.raises(ValueError, match="target"):
        PersistenceRegressor(target).fit(X, y)


@pytest.mark.parametrize("numbered", [False, True])
def test_series_of_a_multiindex_keep_to_their_own_past(numbered):
    parts = {name: weather(20, seed) for seed, name in enumerate("abc")}
    if numbered:
        parts = {name: part.reset_index(drop=True) for name, part in parts.items()}
    frame = pd.concat(parts)
    naive = SeasonalNaiveRegressor("T", period=4).fit(frame, frame["T"])
    expected = frame.groupby(level=0)["T"].shift(3).fillna(frame["T"])
    np.testing.assert_array_equal(naive.predict(frame), expected)
    if not numbered:
        # Stations whose clocks differ by half an hour have steps of an hour all the same.
        shifted = {
            name: part.shift(freq="30min") if name == "b" else part for name, part in parts.items()
        }
        naive.fit(pd.concat(shifted), frame["T"])
        np.testing.assert_array_equal(naive.predict(pd.concat(shifted)), expected)
        mixed = frame.sort_index(level=1)
        persistence = PersistenceRegressor("T").fit(mixed, mixed["T"])
        np.testing.assert_array_equal(persistence.predict(mixed), mixed["T"])
        with pytest.raises(ValueError, match=r"several rows of one time stamp.*or a SequenceView"):
            naive.predict(mixed)


@pytest.mark.parametrize("target", [0, "p"])
def test_a_yardstick_of_another_column_than_y_is_made_of_says_so(target):
    frame = weather(60)[["p", "T"]]
    X, y = make_supervised(frame, "T", 1)
    with pytest.warns(UserWarning, match=r"repeats the columns \['p'\], but y was made of \['T'\]"):
        PersistenceRegressor(target).fit(X, y)
    PersistenceRegressor("T").fit(X, y)  # warnings are errors
