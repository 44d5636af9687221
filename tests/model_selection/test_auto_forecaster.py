"""The chosen forecast is the best on the validation part, and none is chosen that loses there."""

import pickle
import warnings
from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import TimeSeriesSplit
from weatherframes import weather

from sklearn_restrans import AutoForecaster, ResidualTransformerRegressor
from sklearn_restrans.forecasting import (
    PersistenceRegressor,
    RidgeForecaster,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
)

SEEDS = [0, 1, 2]
TINY = ResidualTransformerRegressor(d_model=8, max_iter=2)
RELATIVE = {"relative": "last"}
LINEAR = {"ridge": (RidgeForecaster(), RELATIVE)}


def hourly(values, name="x"):
    index = pd.date_range("2024-01-01", periods=len(values), freq="h", name="when")
    return pd.DataFrame({name: values}, index=index)


def naive(period, horizon, places=0):
    return SeasonalNaiveRegressor(places, period=period, horizon=horizon)


class Failing(RegressorMixin, BaseEstimator):
    """Raises in fit, from ``n_rows`` training rows on."""

    def __init__(self, n_rows=0):
        self.n_rows = n_rows

    def fit(self, X, y):
        if len(y) >= self.n_rows:
            raise ArithmeticError("it diverged")
        self.mean_ = np.mean(np.asarray(y))
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


class Recorder(RegressorMixin, BaseEstimator):
    """Keeps what its model, once fitted, says of the windows it was trained on."""

    said: ClassVar = []  # fit is called on clones

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.model_ = clone(self.model).fit(X, y)
        self.said.append((len(y), self.model_.predict(X)))
        return self

    def predict(self, X):
        return self.model_.predict(X)


# ---- what is chosen ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_random_walk_persistence_is_chosen_and_said(seed):
    frame = hourly(np.random.default_rng(seed).normal(size=530).cumsum())
    # 24 weights from 100 rows cost a quarter of the variance; 400 rows to compare on show it.
    cv = [(np.arange(100), np.arange(100, 500))]
    candidates = LINEAR | {"Transformer": (TINY, {}), "last day": (naive(24, 1), {})}
    forecaster = AutoForecaster("x", candidates=candidates, cv=cv, random_state=seed)
    with pytest.warns(UserWarning, match="no candidate is better than persistence .* comes next"):
        forecaster.fit(frame)
    assert forecaster.best_candidate_ == "persistence"
    assert isinstance(forecaster.estimator_, PersistenceRegressor)
    assert forecaster.skill_ == 0
    assert forecaster.predict(frame)["x"].tolist() == [frame["x"].iloc[-1]]
    assert "No candidate of 4 is better than persistence" in str(forecaster)


def test_of_a_season_the_last_one_is_chosen():
    frame = hourly(np.random.default_rng(0).normal(size=24)[np.arange(600) % 24])
    forecaster = AutoForecaster("x", horizon=[1, 30], estimator=TINY, random_state=0).fit(frame)
    assert forecaster.best_candidate_ == "seasonal naive (day)"
    assert forecaster.skill_ == 1
    forecast = forecaster.predict(frame)
    assert forecast.index.tolist() == [frame.index[-1] + pd.Timedelta(h, "h") for h in (1, 30)]
    assert forecast["x"].tolist() == frame["x"].iloc[[0, 5]].tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_of_an_autoregression_the_ridge_is_chosen_and_near_the_best_there_is(seed):
    noise, x = np.random.default_rng(seed).normal(size=3000), np.zeros(3000)
    for t in range(2, 3000):
        x[t] = 1.5 * x[t - 1] - 0.7 * x[t - 2] + noise[t]
    forecaster = AutoForecaster("x", window=12, estimator=TINY, random_state=seed).fit(hourly(x))
    assert forecaster.best_candidate_ == "ridge"
    assert "The winner is a linear model" in forecaster.report_
    # The best possible forecast leaves the noise. Twelve weights from 2,400 rows cost 0.25 % of
    # the mean absolute error on average; windows relative to their last value do not know the
    # level, to which this series returns.
    validation = noise[-(len(x) // 5) :]
    assert forecaster.scores_["MAE"].iloc[0] == pytest.approx(np.abs(validation).mean(), rel=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_level_shifts_windows_relative_to_it_are_chosen(seed):
    rng = np.random.default_rng(seed)
    x = np.sin(np.arange(800) * np.pi / 4) + 0.1 * rng.normal(size=800)
    x[640:] += 20
    candidates = {"plain": (TINY, {}), "relative": (TINY, RELATIVE)}
    forecaster = AutoForecaster("x", window=16, candidates=candidates, random_state=seed)
    scores = forecaster.fit(hourly(x)).scores_
    assert forecaster.best_candidate_ == "relative"
    # A plain model has never seen the new level and misses most of the shift.
    assert scores.loc["plain", "MAE"] > 5 > 1 > scores.loc["relative", "MAE"]


def test_units_do_not_matter_and_outputs_count_alike():
    season = np.arange(400)[:, None] % [12, 24, 8]
    noise = np.random.default_rng(0).normal(size=(400, 3))
    frame = pd.DataFrame(season + noise, index=hourly(season[:, 0]).index, columns=["a", "b", "c"])
    naives = {"last day": (naive(24, [1, 5], [0, 1, 2]), {"window": None})}
    first, second = (
        AutoForecaster(horizon=[1, 5], candidates=naives, scoring="RMSE", cv=3).fit(scaled)
        for scaled in (frame, frame * [1000.0, 1.0, 0.01])
    )
    assert first.skill_ == pytest.approx(second.skill_, rel=1e-12)
    tables = [first.backtests_[name] for name in ("last day", "persistence")]
    assert len(tables[0]) == 3 * 6
    by_hand = 1 - (tables[0]["RMSE"] / tables[1]["RMSE"]).mean()
    assert first.scores_.loc["last day", "skill"] == pytest.approx(by_hand, rel=1e-12)


def test_outputs_that_persistence_forecasts_exactly_do_not_count():
    frame = hourly(np.arange(200) % 24.0).assign(dead=1.0)
    candidates = {"ridge": (RidgeForecaster(), {})}
    forecaster = AutoForecaster(candidates=candidates, window=30).fit(frame)
    alone = (
        1
        - forecaster.backtests_["ridge"]["MAE"][0]
        / (forecaster.backtests_["persistence"]["MAE"][0])
    )
    assert forecaster.skill_ == pytest.approx(alone, rel=1e-12)
    with pytest.warns(UserWarning, match="no candidate is better"):
        dead = AutoForecaster("dead", candidates={"day": (naive(24, 1, 1), {})}).fit(frame)
    assert dead.scores_["skill"].tolist() == [0, 0]


def test_the_report_says_what_was_chosen_and_what_it_gains():
    frame = hourly(np.arange(200) % 24.0 + np.random.default_rng(0).normal(size=200))
    day, two = (naive(period, [1, 2]) for period in (24, 48))
    candidates = {"last day": (day, {}), "two days ago": (two, {})} | LINEAR
    forecaster = AutoForecaster("x", horizon=[1, 2], window=30, candidates=candidates)
    text, scores = str(forecaster.fit(frame)), forecaster.scores_
    assert all(name in text for name in scores.index)
    best, second = scores.index[:2]
    first, last = frame.index[[159, 197]]
    assert f"Best of 4 candidates is {best!r}: on the validation part (39 rows, {first} to " in text
    assert f"to {last}) its MAE is {forecaster.skill_:.1%} below" in text
    assert "(mean over outputs and folds of 1 - MAE / MAE of persistence)" in text
    assert f"Next comes {second!r} with {scores['skill'].iloc[1]:.1%}." in text
    assert f"was beaten by 3: {'; '.join(scores.index[:3])}." in text
    table = text.partition("Best of")[0]
    assert f"{scores['MAE'].iloc[0]:.4g}" in table


# ---- how it is scored -------------------------------------------------------------------------


def test_the_scores_are_those_of_a_backtest():
    frame = weather(300)
    forecaster = AutoForecaster("T", horizon=3, window=12, estimator=TINY, random_state=0)
    with pytest.warns(UserWarning, match="no candidate is better"):
        forecaster.fit(frame)
    X, y = make_supervised(frame, "T", 3, window=12, relative="last", patch=3)
    assert len(y) == 297  # of which the last fifth are 59; two rows before them are left out
    folds = [(np.arange(297 - 59 - 2), np.arange(297 - 59, 297))]
    model = clone(TINY).set_params(random_state=0)
    by_hand = backtest(model, X, y, folds)
    name = "Transformer (patches, relative)"
    pd.testing.assert_frame_equal(forecaster.backtests_[name], by_hand)
    scores = forecaster.scores_.loc[name]
    assert scores[["MAE", "RMSE", "skill"]].tolist() == pytest.approx(
        by_hand[["MAE", "RMSE", "skill"]].iloc[0].tolist(), rel=1e-12
    )
    assert forecaster.scores_["skill"].is_monotonic_decreasing
    assert forecaster.scores_["error"].tolist() == [""] * 7


def test_several_folds_are_those_of_a_time_series_split():
    frame = weather(300)
    forecaster = AutoForecaster("T", horizon=[1, 4], candidates=LINEAR, cv=3, window=12)
    with pytest.warns(UserWarning, match="no candidate is better"):
        forecaster.fit(frame)
    X, y = make_supervised(frame, "T", [1, 4], window=12, relative="last")
    by_hand = backtest(RidgeForecaster(), X, y, TimeSeriesSplit(3, gap=3))
    pd.testing.assert_frame_equal(forecaster.backtests_["ridge"], by_hand)
    row = forecaster.scores_.loc["ridge"]
    per_fold = by_hand.groupby("fold")["skill"].mean()
    assert row[[f"split{k}_skill" for k in range(3)]].tolist() == pytest.approx(per_fold.tolist())
    assert row["skill"] == pytest.approx(per_fold.mean())
    given = clone(forecaster).set_params(cv=TimeSeriesSplit(3, gap=3))
    with pytest.warns(UserWarning, match="no candidate is better"):
        given.fit(frame)
    assert given.scores_["skill"].equals(forecaster.scores_["skill"])


@pytest.mark.parametrize("form", [{}, {"relative": "standard", "patch": 3}])
@pytest.mark.parametrize("model", [TINY, RidgeForecaster()])
def test_what_lies_in_the_validation_part_does_not_reach_the_model_that_is_scored(model, form):
    frame = weather(200)
    other = frame.copy()
    # 198 rows have targets, of which 39 are the validation part: the first is row 159, and what
    # is known in that row is its past.
    other.iloc[160:] = 1e3 * np.random.default_rng(1).normal(size=(40, 2))
    said: ClassVar = []  # fit is called on clones
    for data in (frame, other):
        Recorder.said.clear()
        candidates = {"recorded": (Recorder(model), form)}
        forecaster = AutoForecaster("T", horizon=2, window=12, candidates=candidates)
        with warnings.catch_warnings(action="ignore"):  # of persistence, which may win
            forecaster.set_params(random_state=0).fit(data)
        n_rows, values = Recorder.said[0]
        assert n_rows == 159 - 1
        said.append(values)
    np.testing.assert_array_equal(*said)


def test_the_best_is_fitted_again_on_all_rows():
    frame = hourly(np.arange(200) % 24.0)
    forecaster = AutoForecaster("x", candidates=LINEAR, window=30).fit(frame)
    X, y = make_supervised(frame, "x", 1, window=30, relative="last")
    expected = RidgeForecaster().fit(X, y).predict(X)
    np.testing.assert_array_equal(forecaster.estimator_.predict(X), expected)


# ---- frames in, frames out --------------------------------------------------------------------

# Kind of index, and the labels of the rows one and three steps after the last.
FRAMES = {
    "month ends": (
        pd.date_range("2020-01-31", "2024-12-31", freq="ME"),
        pd.to_datetime(["2025-01-31", "2025-03-31"]),
    ),
    "clock change": (
        pd.date_range("2024-03-28", "2024-03-31 01:00", freq="h", tz="Europe/Berlin"),
        pd.to_datetime(["2024-03-31 01:00", "2024-03-31 03:00"], utc=True),
    ),
    "days with a clock change": (
        pd.date_range("2024-02-01", "2024-03-30", freq="D", tz="Europe/Berlin"),
        # Midnights of 31 March, before the change, and of 2 April, after it.
        pd.to_datetime(["2024-03-30 23:00", "2024-04-01 22:00"], utc=True),
    ),
    "business days": (
        pd.date_range("2024-03-01", "2024-05-31", freq="B"),
        pd.to_datetime(["2024-06-03", "2024-06-05"]),
    ),
    "row numbers": (pd.RangeIndex(10, 150, 2), pd.Index([150, 154])),
    "periods": (
        pd.period_range("2020-01", "2024-12", freq="M"),
        pd.PeriodIndex(["2025-01", "2025-03"], freq="M"),
    ),
    "texts": (
        pd.date_range("2024-01-01", "2024-03-31").strftime("%Y-%m-%d"),
        pd.to_datetime(["2024-04-01", "2024-04-03"]),
    ),
}


@pytest.mark.parametrize("window", [None, 14])
@pytest.mark.parametrize("kind", FRAMES)
def test_forecasts_stand_at_the_right_time(kind, window):
    index, expected = FRAMES[kind]
    rows = np.arange(len(index))
    frame = pd.DataFrame({"a": rows % 7.0, "b": 10.0 * (rows % 7)}, index=index)
    last_week = {"last seven": (naive(7, [1, 3], [1, 0]), {"window": window})}
    forecaster = AutoForecaster(["b", "a"], horizon=[1, 3], window=14, candidates=last_week)
    forecast = forecaster.fit(frame).predict(frame)
    assert forecaster.skill_ == 1
    assert forecast.columns.tolist() == ["b", "a"]
    assert (forecast.index == expected).all()
    later = (len(index) - 1 + np.array([1, 3])) % 7
    np.testing.assert_array_equal(forecast.to_numpy(), np.c_[10.0 * later, later])


def test_newer_and_longer_and_wider_frames_are_forecast_from_their_last_row():
    frame = hourly(np.arange(400) % 24.0).assign(other=1.0)
    forecaster = AutoForecaster("x", horizon=2, window=30, candidates=LINEAR).fit(frame[:300])
    whole = forecaster.predict(frame.assign(further="text")[["further", "other", "x"]])
    assert whole.index.tolist() == [frame.index[-1] + pd.Timedelta("2h")]
    assert whole["x"].iloc[0] == pytest.approx((399 + 2) % 24, abs=0.5)
    pd.testing.assert_frame_equal(forecaster.predict(frame[-30:]), whole)
    missing = frame.copy()
    missing.iloc[-3, 0] = np.nan
    assert np.isfinite(forecaster.predict(missing)["x"].iloc[0])


def test_default_candidates_of_several_targets_forecast_every_column():
    rows = np.arange(240)
    noise = 0.3 * np.random.default_rng(0).normal(size=(240, 2))
    frame = pd.DataFrame(np.c_[np.sin(rows / 4), np.cos(rows / 3)] + noise, columns=["a", "b"])
    forecaster = AutoForecaster(window=12, estimator=TINY, random_state=0).fit(frame)
    assert forecaster.scores_["error"].tolist() == [""] * 9
    assert "Transformer (patches, relative, channels apart)" in forecaster.scores_.index
    assert forecaster.skill_ > 0
    forecast = forecaster.predict(frame)
    assert forecast.columns.tolist() == ["a", "b"]
    assert forecast.index.tolist() == [240]


# ---- failures and odd arguments ---------------------------------------------------------------


def test_a_candidate_that_fails_is_noted_and_the_others_go_on():
    frame = hourly(np.arange(200) % 24.0)
    candidates = {"failing": (Failing(), {})} | LINEAR
    forecaster = AutoForecaster("x", candidates=candidates, window=30).fit(frame)
    assert forecaster.best_candidate_ == "ridge"
    assert forecaster.scores_["error"].to_dict() == {
        "ridge": "",
        "persistence": "",
        "failing": "ArithmeticError: it diverged",
    }
    assert np.isnan(forecaster.scores_.loc["failing", "skill"])
    assert "'failing' failed: ArithmeticError: it diverged" in forecaster.report_
    with pytest.raises(ValueError, match="every candidate but persistence failed, 'failing' first"):
        AutoForecaster("x", candidates={"failing": (Failing(), {})}).fit(frame)


def test_a_fit_that_fails_leaves_the_earlier_one():
    frame = hourly(np.r_[np.zeros(180), np.ones(40)])
    forecaster = AutoForecaster("x", candidates=LINEAR, window=3)
    with pytest.warns(UserWarning, match="no candidate is better"):
        forecaster.fit(frame[100:])
    before = dict(vars(forecaster))
    drift = hourly(np.random.default_rng(0).normal(size=200))
    # It scores on 158 rows and fails on all 199.
    forecaster.set_params(candidates={"mean": (Failing(180), {})})
    with pytest.raises(ArithmeticError, match="diverged"):
        forecaster.fit(drift)
    assert {k: v for k, v in vars(forecaster).items() if k.endswith("_")} == {
        k: v for k, v in before.items() if k.endswith("_")
    }


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"target": "y"}, "target=.'y'. not in frame"),
        ({"horizon": 0}, "horizon must be an integer >= 1"),
        ({"horizon": 40}, "horizon=40 is longer than the validation part of 32 rows"),
        ({"horizon": 30, "cv": 9}, "horizon=30 is longer than the validation part of 17 rows"),
        ({"cv": 1}, "cv must be an integer >= 2"),
        ({"cv": "last"}, "cv must be a number of folds, a splitter"),
        ({"window": 201}, "window=201 is longer than the 200 rows of frame"),
        ({"window": None}, "window must be an integer >= 1"),
        ({"scoring": "r2"}, "scoring must be 'MAE' or 'RMSE', got 'r2'"),
        ({"estimator": TINY}, "estimator is a part of the default candidates"),
        ({"candidates": {"a": (Ridge(), {"patch": 7})}}, r"candidates\['a'\] with .*divide window"),
        ({"candidates": {"a": (Ridge(), {"known": "x"})}}, "one series from its own past"),
    ],
)
def test_odd_parameters_end_in_a_sentence(parameters, message):
    forecaster = AutoForecaster("x", candidates=LINEAR).set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        forecaster.fit(hourly(np.arange(200) % 24.0))


def test_odd_frames_end_in_a_sentence():
    frame = hourly(np.arange(200) % 24.0).assign(other=0.0)
    forecaster = AutoForecaster("x", candidates=LINEAR, window=30)
    with pytest.raises(TypeError, match="must be a pandas DataFrame in time order, got ndarray"):
        forecaster.fit(frame.to_numpy())
    with pytest.raises(ValueError, match="several series"):
        forecaster.fit(pd.concat({"a": frame, "b": frame}))
    forecaster.fit(frame)
    with pytest.raises(TypeError, match="must be a pandas DataFrame in time order, got ndarray"):
        forecaster.predict(frame.to_numpy())
    for odd, message in [
        (frame[["x"]], r"lacks the columns \['other'\]"),
        (frame[::2], "another frequency than in fit"),
        (frame.reset_index(drop=True), "indexed by row numbers"),
        (frame[-29:], "frame has 29 rows, but 'ridge' reads the last 30"),
        (frame[::-1], "unsorted or repeated time stamps"),
    ]:
        with pytest.raises(ValueError, match=message):
            forecaster.predict(odd)


# ---- as an estimator --------------------------------------------------------------------------


def test_it_is_cloned_pickled_and_given_nested_parameters(tmp_path):
    forecaster = AutoForecaster("x", window=30, estimator=clone(TINY), random_state=0)
    forecaster.set_params(estimator__residual_beta=0.5)
    assert clone(forecaster).estimator.residual_beta == 0.5
    assert str(forecaster) == repr(forecaster)
    frame = hourly(np.arange(300) % 24 + 0.1 * np.random.default_rng(0).normal(size=300))
    forecaster.fit(frame)
    assert str(forecaster) == forecaster.report_
    expected = forecaster.predict(frame)
    joblib.dump(forecaster, tmp_path / "forecaster")
    for again in (
        pickle.loads(pickle.dumps(forecaster)),
        joblib.load(tmp_path / "forecaster"),
        clone(forecaster).fit(frame),
    ):
        pd.testing.assert_frame_equal(again.predict(frame), expected)


def test_infinite_readings_are_named_with_their_columns():
    frame = pd.DataFrame({"x": np.arange(60.0), "z": np.r_[np.inf, np.zeros(59)]})
    with pytest.raises(ValueError, match=r"infinite values in the columns \['z'\]"):
        AutoForecaster("x").fit(frame)
    with pytest.raises(ValueError, match="estimator must be a regressor or None, got 'x'"):
        AutoForecaster("x", estimator="x").fit(frame[["x"]])


def test_the_report_says_of_several_outputs_what_its_number_is():
    wave = np.sin(np.arange(120) / 4) + 0.1 * np.random.default_rng(0).standard_normal(120)
    forecaster = AutoForecaster("x", horizon=[1, 6], candidates=LINEAR, window=12)
    forecaster.fit(pd.DataFrame({"x": wave}))
    said = f"its MAE is {forecaster.skill_:.1%} below that of persistence (mean over outputs"
    assert said in forecaster.report_
