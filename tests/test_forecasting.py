"""Targets meet their time and never leak; baselines, scores and backtests match plain numpy."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import mean_absolute_error, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_restrans import SequenceView
from sklearn_restrans.forecasting import (
    CalendarFeatures,
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
    mean_absolute_scaled_error,
)

SEEDS = [0, 1, 2]


def weather(n_rows, seed=0, start="2024-01-01 00:10"):
    """Hourly random walks T and p without a gap."""
    walks = np.random.default_rng(seed).normal(size=(n_rows, 2)).cumsum(axis=0)
    return pd.DataFrame(walks, columns=["T", "p"], index=pd.date_range(start, None, n_rows, "h"))


def irregular_weather(n_rows, seed):
    """Hourly rows with gaps of minutes to days, after which the clock's minute differs."""
    rng = np.random.default_rng(seed)
    minutes = np.full(n_rows, 60)
    gaps = rng.choice(np.arange(1, n_rows), size=8, replace=False)
    minutes[gaps] += 10 * rng.integers(1, 30, size=8)
    minutes[gaps[0]] += 4000
    frame = weather(n_rows, seed)
    frame.index = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes.cumsum(), unit="min")
    return frame


# ---- make_supervised ------------------------------------------------------------------------


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
    dropped = {"no_row": horizon, "missing": 0}
    assert y.attrs == {"target": ["T"], "horizon": [horizon], "dropped": dropped}


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


def test_business_days_with_a_holiday_need_their_frequency():
    days = pd.bdate_range("2024-01-01", periods=15).delete(8)
    frame = pd.DataFrame({"v": np.arange(14.0)}, index=days)
    _, plain = make_supervised(frame, "v", 1)
    _, business = make_supervised(frame, "v", 1, freq="B")
    assert plain.attrs["dropped"]["no_row"] == 4  # two Fridays, before the holiday, the end
    assert business.attrs["dropped"]["no_row"] == 2


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
        (BAD.set_index(BAD.index.astype(str)), {}, ValueError, "set a DatetimeIndex, or reset_"),
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
        (BAD, {"horizon": 0}, ValueError, "horizon=0 must be an integer >= 1"),
        (BAD, {"horizon": 1.5}, ValueError, "horizon=1.5 must be an integer >= 1"),
        (BAD, {"horizon": True}, ValueError, "horizon=True must be"),
        (BAD, {"horizon": "24h"}, ValueError, "horizon='24h' must be"),
        (BAD, {"horizon": []}, ValueError, "horizon=[] must be"),
        (BAD, {"horizon": [2, 2]}, ValueError, "list or range of different ones"),
        (BAD, {"freq": "often"}, ValueError, "freq='often' is no pandas frequency"),
        (BAD.reset_index(drop=True), {"freq": "h"}, ValueError, "freq='h' needs a DatetimeIndex"),
        (BAD.assign(T=np.nan), {}, ValueError, "5 a missing value of ['T'] (fill it"),
    ],
)
def test_bad_input_to_make_supervised_gets_a_sentence(frame, arguments, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        make_supervised(frame, **{"target": "T", "horizon": 1, **arguments})


# ---- baselines ------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("model", "horizon", "sentence"),
    [
        (PersistenceRegressor("Tdew"), 1, "target='Tdew' is not a column of X: choose from ['T'"),
        (PersistenceRegressor(2), 1, "target=2 is not a column of X"),
        (PersistenceRegressor(["T", "p"]), 1, "y has 1 column(s)"),
        (SeasonalNaiveRegressor("T", period=0), 1, "period=0 must be an integer >= 1"),
        (SeasonalNaiveRegressor("T", horizon=0), 1, "horizon=0 must be an integer >= 1"),
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


# ---- scores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [1, 5])
def test_mase_is_the_mean_error_over_the_naive_one(period):
    rng = np.random.default_rng(3)
    train, truth, guess = rng.normal(size=(40, 2)), rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    ratios = []
    for k in range(2):
        naive = [abs(train[t, k] - train[t - period, k]) for t in range(period, 40)]
        ratios.append(np.mean(abs(truth[:, k] - guess[:, k])) / np.mean(naive))
    # 1e-12: sums of 40 doubles of order one
    assert mean_absolute_scaled_error(truth, guess, train, period) == pytest.approx(
        np.mean(ratios), rel=1e-12
    )
    assert mean_absolute_scaled_error(
        1000 * truth[:, 0] + 5, 1000 * guess[:, 0] + 5, 1000 * train[:, 0] + 5, period=period
    ) == pytest.approx(ratios[0], rel=1e-12)


def test_mase_of_the_naive_forecast_on_its_own_training_series_is_one():
    walk = np.random.default_rng(0).normal(size=50).cumsum()
    assert mean_absolute_scaled_error(walk[6:], walk[:-6], walk, period=6) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([1, 2], [1, 2, 3], [1, 2, 3]), "do not fit: pass as many rows"),
        (([1, 2], [1, 2], np.ones((5, 2))), "the same outputs in all three"),
        (([1, 2], [1, 2], [1, 2], 2), "period=2 needs more than 2 training rows, got 2"),
        (([1, 2], [1, 2], [4, 4, 4]), "y_train repeats itself after period=1 rows"),
        (([1, 2], [1, 2], [1, 2, 1, 2], 2), "y_train repeats itself after period=2 rows"),
        (([1, 2], [1, 2], [1, 2, 3], 0.5), "period=0.5 must be an integer >= 1"),
    ],
)
def test_bad_input_to_mase_gets_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        mean_absolute_scaled_error(*arguments)


# ---- backtest -------------------------------------------------------------------------------


class WindowMean(RegressorMixin, BaseEstimator):
    """Mean of column 0 over the window; far off where the rows passed do not fill it."""

    def __init__(self, window=1, dilation=1):
        self.window = window
        self.dilation = dilation

    def fit(self, X, y):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        column = pd.Series(np.asarray(X)[:, 0])
        lags = [column.shift(k * self.dilation) for k in range(self.window)]
        return np.nan_to_num(np.mean(lags, axis=0), nan=1e9)


def test_backtest_reports_every_fold_and_output():
    X, y = make_supervised(weather(150), ["T", "p"], [1, 4])
    cv = TimeSeriesSplit(3, gap=3, test_size=20)
    scores = backtest(Ridge(), X, y, cv, period=4)
    assert len(scores) == 3 * 4
    for (fold, (train, test)), k in [(f, k) for f in enumerate(cv.split(X)) for k in range(4)]:
        row = scores.iloc[4 * fold + k]
        guess = Ridge().fit(X.iloc[train], y.iloc[train]).predict(X.iloc[test])[:, k]
        truth, now = y.iloc[test, k], X.iloc[test, k // 2]
        mae = mean_absolute_error(truth, guess)
        assert (row["fold"], row["output"], row["horizon"]) == (fold, y.columns[k], [1, 4][k % 2])
        assert [row["train_start"], row["train_end"]] == list(X.index[train[[0, -1]]])
        assert [row["test_start"], row["test_end"]] == list(X.index[test[[0, -1]]])
        assert (row["n_train"], row["n_test"]) == (len(train), 20)
        # 1e-9: ridge solutions of the same data in another memory order
        assert row["MAE"] == pytest.approx(mae, rel=1e-9)
        assert row["RMSE"] == pytest.approx(root_mean_squared_error(truth, guess), rel=1e-9)
        mase = mean_absolute_scaled_error(truth, guess, y.iloc[train, k], 4)
        assert row["MASE"] == pytest.approx(mase, rel=1e-9)
        assert row["skill"] == pytest.approx(1 - mae / mean_absolute_error(truth, now), rel=1e-9)
    assert scores.dtypes[["n_train", "horizon"]].tolist() == [np.dtype(int)] * 2
    assert list(scores) == [
        *["fold", "output", "horizon", "train_start", "train_end", "test_start", "test_end"],
        *["n_train", "n_test", "MAE", "RMSE", "MASE", "skill"],
    ]


@pytest.mark.parametrize(("window", "dilation"), [(1, 1), (5, 1), (4, 3)])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        lambda model: make_pipeline(FunctionTransformer(), model),
        lambda model: TransformedTargetRegressor(make_pipeline(FunctionTransformer(), model)),
        # the window found by the search counts, not the one it starts from
        lambda model: GridSearchCV(
            WindowMean(dilation=model.dilation),
            {"window": [model.window]},
            cv=2,
            scoring=lambda *_: 0.0,
        ),
    ],
    ids=["alone", "pipeline", "transformed target", "search"],
)
def test_test_rows_see_their_true_history(window, dilation, wrap):
    X, y = make_supervised(weather(90), "T", 1)
    cv = TimeSeriesSplit(4, test_size=7)  # folds shorter than the histories
    means = np.mean([X["T"].shift(k * dilation) for k in range(window)], axis=0)
    scores = backtest(wrap(WindowMean(window, dilation)), X, y, cv)
    expected = [np.mean(np.abs(y.to_numpy() - means)[test]) for _, test in cv.split(X)]
    # 1e-12: the same means, summed in another order
    assert scores["MAE"].tolist() == pytest.approx(expected, rel=1e-12)


def test_a_short_series_is_passed_from_its_start():
    X, y = make_supervised(weather(20), "T", 1)
    scores = backtest(SeasonalNaiveRegressor("T", period=15), X, y, [(range(5), range(5, 9))])
    assert scores["skill"].tolist() == [0]  # no history of 14 rows yet: persistence


def test_seasonal_naive_is_exact_on_a_periodic_series():
    frame = pd.DataFrame({"T": np.tile(np.random.default_rng(0).normal(size=24), 10)})
    X, y = make_supervised(frame, "T", 3)
    model = SeasonalNaiveRegressor("T", period=24, horizon=3)
    scores = backtest(model, X, y, TimeSeriesSplit(5, gap=2, test_size=10))
    assert scores["MAE"].tolist() == [0] * 5
    assert scores["skill"].tolist() == [1] * 5


def test_the_given_baseline_is_the_reference():
    X, y = make_supervised(weather(100), "T", 1)
    model = WindowMean(6)
    folds = TimeSeriesSplit(2)
    assert backtest(model, X, y, folds, baseline=WindowMean(6))["skill"].tolist() == [0, 0]
    assert (backtest(PersistenceRegressor("T"), X, y, folds)["skill"] == 0).all()
    unknown = backtest(model, X[["p"]], y, folds)
    assert unknown["skill"].isna().all()
    assert unknown["MAE"].notna().all()


@pytest.mark.parametrize("convert", [np.asarray, lambda frame: pl.DataFrame(frame.to_numpy())])
def test_arrays_and_polars_frames_give_the_scores_of_pandas(convert):
    X, y = make_supervised(weather(100), "T", 2)
    cv = TimeSeriesSplit(3, gap=1)
    named, plain = backtest(Ridge(), X, y, cv), backtest(Ridge(), convert(X), y.to_numpy(), cv)
    same = ["fold", "n_train", "n_test", "MAE", "RMSE", "MASE"]
    # 1e-9: ridge solutions of the same data in another memory order
    pd.testing.assert_frame_equal(named[same], plain[same], rtol=1e-9)
    assert plain["horizon"].isna().all()
    assert plain.loc[0, ["train_start", "test_start"]].tolist() == [0, 26]


def test_a_sequence_view_is_cut_into_folds_as_it_is():
    class LastRow(LinearRegression):
        def fit(self, X, y):
            return super().fit(np.asarray(X)[:, -1], y)

        def predict(self, X):
            return super().predict(np.asarray(X)[:, -1])

    X, y = make_supervised(weather(100), "T", 2)
    cv = TimeSeriesSplit(3, gap=1)
    view = SequenceView(X, np.arange(len(X)), 5)
    scores = backtest(LastRow(), view, y, cv, baseline=LastRow())
    # 1e-9: least squares on the same data in another memory order
    assert scores["MAE"].tolist() == pytest.approx(
        backtest(LinearRegression(), X, y, cv)["MAE"], 1e-9
    )


def test_a_target_constant_in_training_has_no_mase():
    frame = pd.DataFrame({"T": np.r_[np.zeros(20), np.arange(20.0)]})
    X, y = make_supervised(frame, "T", 1)
    scores = backtest(PersistenceRegressor("T"), X, y, [(range(10), range(25, 30))])
    assert scores["MASE"].isna().all()
    assert scores["MAE"].tolist() == [1]


FOLD = (range(10), range(12, 20))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"cv": KFold(3)}, "test fold 0 does not lie after its training rows"),
        ({"cv": 3}, "e.g. TimeSeriesSplit(n_splits, gap=2)"),
        (
            {"cv": KFold(3, shuffle=True, random_state=0)},
            "fold 0 or its training rows are shuffled",
        ),
        ({"cv": [FOLD, ([0, 1, 3], [7, 8])]}, "fold 1 or its training rows are shuffled or have"),
        ({"cv": [(range(10), [14, 13])]}, "shuffled or have holes"),
        ({"cv": [(range(10), range(5, 12))]}, "does not lie after its training rows"),
        ({"cv": [(range(0), range(5))]}, "test fold 0 is empty, or its training rows are"),
        (
            {"cv": TimeSeriesSplit(3, gap=1)},
            "before the training targets, 3 steps ahead, are known",
        ),
        ({"cv": TimeSeriesSplit(3, gap=1)}, "gap=2)"),
        ({"cv": TimeSeriesSplit(3, gap=2), "horizon": 4}, "y was made with horizon [3]"),
        ({"cv": [FOLD], "horizon": 0}, "horizon=0 must be an integer >= 1"),
        ({"cv": [FOLD], "period": 10}, "period=10 needs more than 10 training rows"),
        ({"cv": TimeSeriesSplit(40)}, "Cannot have number of folds=41"),
    ],
)
def test_bad_folds_get_a_sentence(arguments, sentence):
    X, y = make_supervised(weather(40), "T", 3)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        backtest(PersistenceRegressor("T"), X, y, **arguments)


def test_the_smallest_gap_that_hides_the_future_is_accepted():
    X, y = make_supervised(weather(40), "T", 3)
    assert len(backtest(PersistenceRegressor("T"), X, y, TimeSeriesSplit(3, gap=2))) == 3
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        backtest(PersistenceRegressor("T"), X, y[:-1], TimeSeriesSplit(3, gap=2))


# ---- the published protocol -----------------------------------------------------------------


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


# ---- CalendarFeatures -----------------------------------------------------------------------


def phase(frame, name):
    """Angle of a sine and cosine pair as a part of the circle, in [0, 1)."""
    return np.arctan2(frame[f"{name}_sin"], frame[f"{name}_cos"]) / (2 * np.pi) % 1


def test_calendar_phases_are_those_of_the_clock():
    times = ["2024-01-01 00:00:00", "2024-01-03 06:00:00", "2023-07-02 12:00:00"]
    X = pd.DataFrame({"T": 1.0}, index=pd.to_datetime([*times, "2024-12-31 18:30:36"]))
    out = CalendarFeatures().fit_transform(X)
    # 1e-12: rounding of sine, cosine and arctan
    assert phase(out, "hour").tolist() == pytest.approx([0, 1 / 4, 1 / 2, 18.51 / 24], abs=1e-12)
    weekday = [0, 2.25 / 7, 6.5 / 7, (1 + 18.51 / 24) / 7]
    assert phase(out, "weekday").tolist() == pytest.approx(weekday, abs=1e-12)
    year = [0, 2.25 / 366, 182.5 / 365, (365 + 18.51 / 24) / 366]
    assert phase(out, "day_of_year").tolist() == pytest.approx(year, abs=1e-12)
    squares = out.drop(columns="T") ** 2
    assert squares.T.groupby(lambda name: name[:-4]).sum().to_numpy() == pytest.approx(1)


def test_the_calendar_does_not_jump_over_eight_years():
    index = pd.date_range("2012-01-01", "2020-01-01", freq="20min")  # two leap years
    out = CalendarFeatures(keep=False).fit_transform(pd.DataFrame({"T": 1.0}, index=index))
    longest = {"hour": 1 / 72, "weekday": 1 / 504, "day_of_year": 1 / (72 * 365)}
    for name, part in longest.items():
        steps = np.diff(phase(out, name)) % 1
        # 1e-9: the smallest step is 4e-5, rounding of the phase 1e-15
        assert np.all(steps > part * 365 / 366 - 1e-9)
        assert np.all(steps < part + 1e-9)


def test_the_calendar_keeps_what_it_is_told_to():
    X = weather(5).assign(when=lambda frame: frame.index + pd.Timedelta("6h"))
    hours = ["hour_sin", "hour_cos"]
    only = CalendarFeatures(weekday=False, day_of_year=False)
    kept = clone(only).fit_transform(X[["T", "p"]])
    assert list(kept) == ["T", "p", *hours]
    pd.testing.assert_frame_equal(kept[["T", "p"]], X[["T", "p"]], check_freq=False)
    assert list(clone(only).set_params(keep=False).fit_transform(X)) == hours
    by_column = clone(only).set_params(column="when").fit_transform(X.reset_index(drop=True))
    assert list(by_column) == ["T", "p", *hours]
    assert phase(by_column, "hour").to_numpy() == pytest.approx(phase(kept, "hour") + 6 / 24)
    year = CalendarFeatures(False, weekday=False, keep=False).fit_transform(X)
    assert list(year) == ["day_of_year_sin", "day_of_year_cos"]
    numbered = CalendarFeatures(False, weekday=False).fit_transform(X[["T"]].set_axis([7], axis=1))
    assert list(numbered) == ["7", "day_of_year_sin", "day_of_year_cos"]
    week = CalendarFeatures(False, day_of_year=False, keep=False).fit_transform(X)
    assert list(week) == ["weekday_sin", "weekday_cos"]


def test_the_calendar_reads_local_time():
    utc = weather(30, start="2024-06-01").tz_localize("UTC")
    berlin = CalendarFeatures().fit_transform(utc.tz_convert("Europe/Berlin"))
    expected = CalendarFeatures().fit_transform(utc.tz_localize(None).shift(freq="2h"))
    assert np.array_equal(berlin, expected)


@pytest.mark.parametrize("container", ["default", "pandas", "polars"])
def test_the_calendar_works_in_pipelines_and_with_set_output(container):
    X, y = make_supervised(weather(60), "T", 1)
    calendar = CalendarFeatures(weekday=False).set_output(transform=container)
    out = calendar.fit_transform(X)
    assert isinstance(out, pl.DataFrame if container == "polars" else pd.DataFrame)
    assert list(out.columns) == list(calendar.get_feature_names_out())
    pipe = make_pipeline(calendar, StandardScaler(), Ridge()).fit(X, y)
    assert list(pipe[:-1].get_feature_names_out()) == list(out.columns)
    plain = make_pipeline(StandardScaler(), Ridge()).fit(
        CalendarFeatures(weekday=False).fit_transform(X), y
    )
    # 1e-9: ridge solutions of the same data in another container
    assert pipe[-1].coef_ == pytest.approx(plain[-1].coef_, rel=1e-9)


@pytest.mark.parametrize(
    ("X", "parameters", "error", "sentence"),
    [
        (np.ones((3, 2)), {}, TypeError, "finds no time stamps in X (ndarray): pass a DataFrame"),
        (BAD.reset_index(drop=True), {}, TypeError, "with a DatetimeIndex or a datetime column"),
        (BAD.set_index(BAD.index.astype(str)), {}, TypeError, "(pd.to_datetime)"),
        (BAD, {"column": "T"}, TypeError, "CalendarFeatures(column='T') finds no time stamps"),
        (BAD, {"column": "when"}, TypeError, "CalendarFeatures(column='when') finds no"),
        (np.ones((3, 2)), {"column": "T"}, TypeError, "finds no time stamps in X (ndarray)"),
        (BAD.set_index([[*BAD.index[:5], pd.NaT]]), {}, ValueError, "X has missing time stamps"),
        (BAD.rename(columns={"p": "hour_sin"}), {}, ValueError, "columns of X clash in ['T', 'hou"),
        (BAD, {"hour": "yes"}, ValueError, "The 'hour' parameter of CalendarFeatures must be"),
    ],
)
def test_bad_input_to_the_calendar_gets_a_sentence(X, parameters, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        CalendarFeatures(**parameters).fit(X)


def test_the_calendar_refuses_other_columns_than_in_fit():
    calendar = CalendarFeatures().fit(BAD)
    with pytest.raises(ValueError, match="feature names should match"):
        calendar.transform(BAD[["p", "T"]])
