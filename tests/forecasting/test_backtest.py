"""Backtests match plain numpy, and no test fold sees its future."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import mean_absolute_error, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from weatherframes import weather

from sklearn_restrans import SequenceView
from sklearn_restrans.forecasting import (
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
    mean_absolute_scaled_error,
)


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


def searched(model):
    """A search that starts from a window of 1 and finds that of the model."""
    start = clone(model).set_params(window=1)
    return GridSearchCV(start, {"window": [model.window]}, cv=2, scoring=lambda *_: 0.0)


class Wrapper(RegressorMixin, BaseEstimator):
    """Somebody's wrapper, which keeps what it fitted under a name of its own."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        self.model_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: make_pipeline(FunctionTransformer(), searched(model)),
        lambda model: searched(model).set_params(cv=3),
        lambda model: TransformedTargetRegressor(searched(model)),
        lambda model: TransformedTargetRegressor(
            make_pipeline(FunctionTransformer(), searched(model))
        ),
        lambda model: VotingRegressor([("a", searched(model)), ("b", model)]),
        lambda model: Wrapper(searched(model)),
        lambda model: Wrapper(Wrapper(make_pipeline(searched(model)))),
        lambda model: GridSearchCV(
            make_pipeline(FunctionTransformer(), WindowMean(1)),
            {"windowmean": [clone(model)]},
            cv=2,
            scoring=lambda *_: 0.0,
        ),
        lambda model: FrozenEstimator(clone(model).fit(np.ones((9, 2)), np.ones(9))),
    ],
)
@pytest.mark.parametrize("dilation", [1, 2])
def test_the_history_is_that_of_what_was_fitted(wrap, dilation):
    X, y = make_supervised(weather(90), "T", 1)
    cv = TimeSeriesSplit(4, test_size=7)
    means = np.mean([X["T"].shift(k * dilation) for k in range(6)], axis=0)
    scores = backtest(wrap(WindowMean(6, dilation)), X, y, cv)
    expected = [np.mean(np.abs(y.to_numpy() - means)[test]) for _, test in cv.split(X)]
    # 1e-12: the same means, summed in another order
    assert scores["MAE"].tolist() == pytest.approx(expected, rel=1e-12)


class Keeping(RegressorMixin, BaseEstimator):
    """An estimator of one's own that keeps what it fitted under a name of its own choice."""

    def __init__(self, width=1, place="model_"):
        self.width = width
        self.place = place

    def fit(self, X, y):
        model = WindowMean(self.width).fit(X, y)
        setattr(self, self.place, {"a": [model]} if self.place == "models" else model)
        return self

    def predict(self, X):
        kept = getattr(self, self.place)
        return (kept["a"][0] if isinstance(kept, dict) else kept).predict(X)


@pytest.mark.parametrize("place", ["model_", "_model", "models"])
def test_the_history_of_a_model_kept_under_any_name(place):
    X = np.arange(90.0)[:, None]
    told = backtest(Keeping(7, place), X, X[:, 0], TimeSeriesSplit(3))
    pd.testing.assert_frame_equal(told, backtest(WindowMean(7), X, X[:, 0], TimeSeriesSplit(3)))


@pytest.mark.parametrize(
    "wrap",
    [
        MultiOutputRegressor,
        lambda model: make_pipeline(MultiOutputRegressor(model)),
        lambda model: MultiOutputRegressor(make_pipeline(model)),
    ],
)
def test_the_history_of_one_estimator_an_output(wrap):
    X, y = make_supervised(weather(90), "T", [1, 2])
    cv = TimeSeriesSplit(4, test_size=7, gap=1)
    means = np.mean([X["T"].shift(k) for k in range(6)], axis=0)
    scores = backtest(wrap(searched(WindowMean(6))), X, y, cv)
    errors = np.abs(y.to_numpy() - means[:, None])
    expected = [errors[test].mean(axis=0) for _, test in cv.split(X)]
    assert scores["MAE"].tolist() == pytest.approx(np.ravel(expected).tolist(), rel=1e-12)


def test_the_final_estimator_of_a_stack_reads_the_forecasts_before_it():
    """Two windows of 4, one over the other, reach 6 rows back; a window that is cut gives 1e9."""
    X, y = make_supervised(weather(90), "T", 1)
    fitted = FrozenEstimator(searched(WindowMean(4)).fit(X, y))
    stack = StackingRegressor([("m", fitted)], WindowMean(4), cv="prefit")
    means = X["T"].rolling(4).mean().rolling(4).mean()
    cv = TimeSeriesSplit(4, test_size=7)
    expected = [np.abs(y - means).iloc[test].mean() for _, test in cv.split(X)]
    # 1e-9: rolling means of pandas are differences of sums
    assert backtest(stack, X, y, cv)["MAE"].tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("longest", [7, 20])
def test_a_limited_training_set_is_counted_as_it_is(longest):
    X, y = make_supervised(weather(100), "T", 1)
    cv = TimeSeriesSplit(4, max_train_size=longest, test_size=10)
    scores = backtest(Ridge(), X, y, cv)
    assert scores["n_train"].tolist() == [longest] * 4
    for row, (train, test) in zip(scores.itertuples(), cv.split(X), strict=True):
        assert (row.train_start, row.train_end) == tuple(X.index[train[[0, -1]]])
        error = Ridge().fit(X.iloc[train], y.iloc[train]).predict(X.iloc[test]) - y.iloc[test]
        # 1e-9: the same ridge solution
        assert row.MAE == pytest.approx(np.abs(error).mean(), rel=1e-9)


def test_rows_of_stations_in_a_multiindex_go_by_their_clock():
    frame = pd.concat({name: weather(30, seed) for seed, name in enumerate("ab")})
    X, y = make_supervised(frame, "T", 3)
    with pytest.raises(ValueError, match=r"time stamps of X and y go back"):
        backtest(Ridge(), X, y, TimeSeriesSplit(2))
    order = np.argsort(y.index.get_level_values(1), kind="stable")
    X, later = X.iloc[order], y.iloc[order]
    later.attrs = y.attrs
    with pytest.raises(ValueError, match="before the training targets, 3 steps ahead, are known"):
        backtest(Ridge(), X, later, TimeSeriesSplit(2, gap=2))
    scores = backtest(Ridge(), X, later, TimeSeriesSplit(2, gap=6))
    assert scores["test_start"].iloc[0] == X.index[scores["n_train"].iloc[0] + 6]


def test_periods_and_texts_go_by_their_clock():
    X, y = make_supervised(weather(60, start="2024-01-01"), "T", 1)
    expected = backtest(Ridge(), X, y, TimeSeriesSplit(3))
    for index in (X.index.to_period("h"), X.index.astype(str)):
        other = y.set_axis(index)
        scores = backtest(Ridge(), X.set_axis(index), other, TimeSeriesSplit(3))
        assert scores["MAE"].tolist() == expected["MAE"].tolist()
        with pytest.raises(ValueError, match=r"time stamps of X and y go back"):
            backtest(Ridge(), X.set_axis(index)[::-1], other[::-1], TimeSeriesSplit(3))


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
            "fold 0 is shuffled or has holes, or its training",
        ),
        ({"cv": [FOLD, ([0, 1, 3], [7, 8])]}, "fold 1 is shuffled or has holes"),
        ({"cv": [(range(10), [14, 13])]}, "shuffled or has holes"),
        ({"cv": [(range(10), range(5, 12))]}, "does not lie after its training rows"),
        ({"cv": [(range(0), range(5))]}, "test fold 0 is empty, or it has no training rows"),
        (
            {"cv": TimeSeriesSplit(3, gap=1)},
            "before the training targets, 3 steps ahead, are known",
        ),
        ({"cv": TimeSeriesSplit(3, gap=1)}, "gap=2)"),
        ({"cv": TimeSeriesSplit(3, gap=2), "horizon": 4}, "y was made with horizon [3]"),
        (
            {"cv": [FOLD], "horizon": 0},
            "horizon must be an integer >= 1, or a list or range of different ones, got 0",
        ),
        ({"cv": [FOLD], "period": 10}, "period=10 needs more than 10 training rows"),
        ({"cv": TimeSeriesSplit(40)}, "Cannot have number of folds=41"),
        ({"cv": []}, "cv yields no folds: pass a number of folds, a splitter, or splits"),
        ({"cv": [3]}, "cv: fold 0 must be a pair (train, test) of row numbers, got 3"),
        ({"cv": [FOLD, (range(5),)]}, "cv: fold 1 must be a pair (train, test)"),
        ({"cv": [([0.0, 1.0], [5, 6])]}, "cv: train of fold 0 must be a list of row numbers"),
        ({"cv": [(range(10), "a")]}, "cv: test of fold 0 must be a list of row numbers"),
        ({"cv": [(range(10), range(30, 50))]}, "names the rows 30 to 49, but there are 0 to 36"),
        ({"cv": [(range(-3, 5), range(20, 30))]}, "names the rows -3 to 4"),
        ({"cv": "x"}, "cv must be a number of folds, a splitter"),
    ],
)
def test_bad_folds_get_a_sentence(arguments, sentence):
    X, y = make_supervised(weather(40), "T", 3)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        backtest(PersistenceRegressor("T"), X, y, **arguments)


def test_a_class_of_splitters_and_targets_of_words_get_a_sentence():
    X, y = make_supervised(weather(40), "T", 1)
    with pytest.raises(TypeError, match="got the class TimeSeriesSplit: add brackets"):
        backtest(PersistenceRegressor("T"), X, y, TimeSeriesSplit)
    with pytest.raises(ValueError, match="y must hold numbers: could not convert"):
        backtest(Ridge(), X, ["a"] * len(X), TimeSeriesSplit(3))
    with pytest.raises(ValueError, match=r"y must have shape .*, got \(39, 1, 1\)"):
        backtest(Ridge(), X, np.ones((39, 1, 1)), TimeSeriesSplit(3))


@pytest.mark.parametrize("wrong", [None, "ridge", 3, {}, np.ones(3), ...], ids=repr)
def test_what_is_not_a_regressor_gets_a_sentence(wrong):
    X, y = make_supervised(weather(40), "T", 1)
    with pytest.raises(TypeError, match="estimator must be a regressor with fit, predict"):
        backtest(wrong, X, y, TimeSeriesSplit(3))
    if wrong is not None:
        with pytest.raises(TypeError, match="baseline must be a regressor with fit, predict"):
            backtest(Ridge(), X, y, TimeSeriesSplit(3), baseline=wrong)
    with pytest.raises(TypeError, match=r"got the class Ridge: add \(\)"):
        backtest(Ridge, X, y, TimeSeriesSplit(3))


def test_missing_targets_and_forecasts_of_another_shape_get_a_sentence():
    X, y = make_supervised(weather(40), "T", 1)
    with pytest.raises(ValueError, match="y has missing or infinite values"):
        backtest(Ridge(), X, y.where(y.index != y.index[30]), TimeSeriesSplit(3))

    class Twice(LinearRegression):
        def predict(self, X):
            return np.column_stack([super().predict(X)] * 2)

    with pytest.raises(ValueError, match=r"Twice has shape \(9, 2\), but y has \(9, 1\)"):
        backtest(Twice(), X, y, TimeSeriesSplit(3))


def test_masks_and_lists_are_rows_too():
    X, y = make_supervised(weather(40), "T", 1)
    rows = np.arange(len(X))
    expected = backtest(Ridge(), X, y, [(rows[:20], rows[25:])])
    masked = backtest(Ridge(), X, y, [(rows < 20, rows >= 25)])
    pd.testing.assert_frame_equal(masked, expected)
    listed = backtest(Ridge(), X.to_numpy().tolist(), y.tolist(), [(rows[:20], rows[25:])])
    assert listed["MAE"].tolist() == pytest.approx(expected["MAE"].tolist(), rel=1e-9)


def test_the_smallest_gap_that_hides_the_future_is_accepted():
    X, y = make_supervised(weather(40), "T", 3)
    assert len(backtest(PersistenceRegressor("T"), X, y, TimeSeriesSplit(3, gap=2))) == 3
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        backtest(PersistenceRegressor("T"), X, y[:-1], TimeSeriesSplit(3, gap=2))


def test_scores_of_a_baseline_stand_for_the_baseline():
    X, y = make_supervised(weather(150), ["T", "p"], [1, 4])
    cv = TimeSeriesSplit(3, gap=3)
    known = backtest(PersistenceRegressor(["T", "p"]), X, y, cv)
    pd.testing.assert_frame_equal(
        backtest(Ridge(), X, y, cv, baseline=known), backtest(Ridge(), X, y, cv)
    )
    for other in (known[:4], known.assign(n_test=1), known[["MAE"]]):
        with pytest.raises(ValueError, match="baseline must be a regressor, or the scores"):
            backtest(Ridge(), X, y, cv, baseline=other)


@pytest.mark.parametrize(("n_rows", "told"), [(3, True), (4, False)])
def test_a_test_fold_shorter_than_the_horizon_is_named(n_rows, told):
    frame = pd.DataFrame({"T": np.random.default_rng(0).standard_normal(40)})
    X, y = make_supervised(frame, "T", horizon=4)
    folds = TimeSeriesSplit(2, gap=3, test_size=n_rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backtest(LinearRegression(), X, y, folds)
    found = [str(one.message) for one in caught]
    assert len(found) == told
    if told:
        assert "test fold 0 spans 3 time step(s), fewer than the horizon of 4" in found[0]
        assert "TimeSeriesSplit(n_splits, test_size=4, gap=3)" in found[0]
        assert caught[0].filename == __file__
