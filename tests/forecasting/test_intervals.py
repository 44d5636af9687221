"""Intervals hold the coverage asked for, whatever the regressor, and adapt to what comes."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor, SequenceView
from sklearn_restrans.forecasting import ConformalIntervals, make_supervised


class Known(RegressorMixin, BaseEstimator):
    """Predicts column 0 of X, whatever it was fitted on."""

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return np.asarray(X)[:, 0]


class KnownQuantiles(Known):
    """Predicts the columns of X as quantiles."""

    quantiles_ = (0.1, 0.5, 0.9)

    def predict(self, X):
        return np.asarray(X)[:, 1]

    def predict_quantiles(self, X):
        return np.asarray(X)


def column(*values):
    return np.array(values, dtype=float)[:, None]


def inside(intervals, y):
    return (intervals[..., 0] <= y) & (y <= intervals[..., 1])


# ---- split-conformal -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "coverage", "rank"),
    [(9, 0.9, 9), (19, 0.95, 19), (19, 0.9, 18), (10, 0.7, 8), (99, 0.01, 1), (100, 0.8, 81)],
)
def test_the_width_is_the_residual_at_the_finite_sample_rank(m, coverage, rank):
    """The residuals are 1, ..., m in a random order and of random sign."""
    rng = np.random.default_rng(0)
    y = (1.0 + rng.permutation(m)) * rng.choice([-1, 1], m)
    found = ConformalIntervals(Known()).calibrate(np.zeros((m, 1)), y)
    np.testing.assert_array_equal(
        found.predict_interval(column(0, 5), coverage), [[-rank, rank], [5 - rank, 5 + rank]]
    )
    np.testing.assert_array_equal(found.predict(column(3)), [3])


def coverage_of(model, draw, m, coverage, n_sets):
    """How many of so many new targets lie inside, each with a calibration set of its own."""
    hits = 0
    for _ in range(n_sets):
        X, y = draw(m + 1)
        found = ConformalIntervals(model).calibrate(X[:m], y[:m])
        hits += bool(inside(found.predict_interval(X[m:], coverage), y[m:])[0])
    return hits


@pytest.mark.parametrize(("m", "coverage"), [(9, 0.9), (30, 0.8), (50, 0.95)])
@pytest.mark.parametrize("kind", ["numbers", "quantiles"])
def test_the_coverage_is_the_rank_over_all_rows(kind, m, coverage, seed):
    """For exchangeable rows exactly k / (m + 1), of predictions as wrong as these too."""
    rng = np.random.default_rng(seed)

    def draw(n):
        y = rng.standard_normal(n) ** 3
        if kind == "numbers":
            return rng.standard_normal((n, 1)), y
        return np.sort(0.5 * rng.standard_normal((n, 3))), y

    model = Known() if kind == "numbers" else KnownQuantiles()
    hits = coverage_of(model, draw, m, coverage, 1_500)
    exact = np.ceil((m + 1) * coverage - 1e-9) / (m + 1)
    # One seed in 10,000 has more or fewer.
    low, high = binom.ppf([5e-5, 1 - 5e-5], 1_500, exact)
    assert low <= hits <= high


def test_every_horizon_has_its_own_width():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 2))
    Y = np.c_[X[:, 0], X[:, 1]] + rng.standard_normal((900, 2)) * [1.0, 10.0]
    found = ConformalIntervals(Ridge().fit(X[:300], Y[:300])).calibrate(X[300:600], Y[300:600])
    intervals = found.predict_interval(X[600:], 0.9)
    assert intervals.shape == (300, 2, 2)
    for k in range(2):
        # The columns of a ridge are fitted one by one.
        one = Ridge().fit(X[:300], Y[:300, k])
        alone = ConformalIntervals(one).calibrate(X[300:600], Y[300:600, k])
        np.testing.assert_allclose(intervals[:, k], alone.predict_interval(X[600:], 0.9))
    widths = intervals[0, :, 1] - intervals[0, :, 0]
    assert 7 < widths[1] / widths[0] < 13


# ---- conformalised quantiles ---------------------------------------------------------------------


def test_quantiles_are_moved_by_the_score_at_the_rank(seed):
    """Romano et al. written out: the levels (1 -+ coverage) / 2, scores, their rank."""
    rng, m = np.random.default_rng(seed), 60
    q, y = np.sort(rng.standard_normal((m, 3))), rng.standard_normal(m)
    found = ConformalIntervals(KnownQuantiles()).calibrate(q, y)
    new = np.array([[-1.0, 0.5, 2.0]])
    scores = np.sort(np.maximum(q[:, 0] - y, y - q[:, 2]))
    s = scores[int(np.ceil(61 * 0.8)) - 1]
    np.testing.assert_allclose(found.predict_interval(new, 0.8), [[-1 - s, 2 + s]], rtol=1e-14)
    # 0.6 lies halfway between the levels 0.1 and 0.9 and the median; 0.95 beyond the levels
    low, high = (q[:, 0] + q[:, 1]) / 2, (q[:, 1] + q[:, 2]) / 2
    s = np.sort(np.maximum(low - y, y - high))[int(np.ceil(61 * 0.4)) - 1]
    expected = [[-0.25 - s, 1.25 + s]]
    np.testing.assert_allclose(found.predict_interval(new, 0.4), expected, rtol=1e-13)
    s = scores[int(np.ceil(61 * 0.95)) - 1]
    np.testing.assert_allclose(found.predict_interval(new, 0.95), [[-1 - s, 2 + s]], rtol=1e-14)


def test_ends_that_would_pass_each_other_meet():
    q = np.tile([-10.0, 0.0, 10.0], (20, 1))
    found = ConformalIntervals(KnownQuantiles()).calibrate(q, np.zeros(20))
    # Every score is -10: intervals narrower than 20 would turn over.
    ends = found.predict_interval(np.array([[-10.0, 0.0, 10.0], [1.0, 2.0, 4.0]]), 0.8)
    np.testing.assert_array_equal(ends, [[0.0, 0.0], [2.5, 2.5]])


def test_quantile_models_of_this_package_widen_where_noise_is_large(seed):
    """Both kinds cover 80 % of all rows; only quantiles cover 80 % of the noisy ones too."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (4_000, 2))
    noisy = X[:, 1] > 0
    y = X[:, 0] + np.where(noisy, 2.0, 0.2) * rng.standard_normal(4_000)
    fit, cal, new = slice(1_500), slice(1_500, 2_500), slice(2_500, None)
    shares = {}
    for loss in ("squared_error", "quantile"):
        model = ResidualTransformerRegressor(loss=loss, d_model=8, random_state=0)
        pipe = make_pipeline(StandardScaler(), model).fit(X[fit], y[fit])
        found = ConformalIntervals(pipe).calibrate(X[cal], y[cal])
        hit = inside(found.predict_interval(X[new], 0.8), y[new])
        # of 1,000 calibration rows sqrt(.16 / 1,000) = .013, of 1,500 new ones .010; four of both
        assert hit.mean() == pytest.approx(0.8, abs=0.065)
        shares[loss] = hit[noisy[new]].mean()
    assert abs(shares["quantile"] - 0.8) < 0.08 < 0.12 < abs(shares["squared_error"] - 0.8)


# ---- adaptation ----------------------------------------------------------------------------------


def adapted(scores, m, coverage, rate, gap=0):
    """Gibbs and Candes written out for one target; the share of misses, and the last margin.

    The interval of row t is issued when the targets of the ``gap`` rows before it are unknown.
    """
    alphas, misses = [1 - coverage], []

    def margin(t, alpha):
        rank = int(np.ceil((m + 1) * (1 - alpha) - 1e-9))
        known = np.sort(scores[t : t + m])
        return np.inf if rank > m else -np.inf if rank < 1 else known[rank - 1]

    for t in range(len(scores) - m):
        known = max(0, t - gap)
        misses.append(scores[m + t] > margin(known, alphas[known]))
        alphas.append(alphas[-1] + rate * (1 - coverage - misses[-1]))
    return np.mean(misses), margin(len(scores) - m, alphas[-1])


@pytest.mark.parametrize("coverage", [0.8, 0.95])
@pytest.mark.parametrize("rate", [0.0, 0.005, 0.2])
@pytest.mark.parametrize("gap", [0, 5])
def test_the_margin_after_updates_is_that_of_the_recursion(coverage, rate, gap, seed):
    rng, m = np.random.default_rng(seed), 40
    y = rng.standard_normal(200) * np.linspace(1, 5, 200)
    found = ConformalIntervals(Known(), gap=gap, adaptation_rate=rate)
    found.calibrate(np.zeros((m, 1)), y[:m])
    for start in range(m, 200, 16):  # in blocks, whose size does not matter
        part = y[start : start + 16]
        found.update(np.zeros((len(part), 1)), part)
        found.predict_interval(column(0), 0.9)  # in between or not, of whatever coverage
    _, margin = adapted(np.abs(y), m, coverage, rate, gap)
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(found.predict_interval(column(0), coverage), [[-margin, margin]])
    _, margin = adapted(np.abs(y), m, 0.9, rate, gap)
    for one in (found, copy):
        np.testing.assert_array_equal(one.predict_interval(column(0), 0.9), [[-margin, margin]])
    assert (found.n_calibration_, found.n_updates_) == (m, 160)


@pytest.mark.parametrize(("coverage", "gap", "rate"), [(0.9, 0, 0.005), (0.95, 23, 0.05 / 96)])
def test_the_rate_follows_from_coverage_and_gap(coverage, gap, rate, seed):
    """No faster than a run of misses that nobody has noticed yet allows."""
    y = np.random.default_rng(seed).standard_normal(120)
    found = ConformalIntervals(Known(), gap=gap).calibrate(np.zeros((40, 1)), y[:40])
    found.update(np.zeros((80, 1)), y[40:])
    _, margin = adapted(np.abs(y), 40, coverage, rate, gap)
    np.testing.assert_array_equal(found.predict_interval(column(0), coverage), [[-margin, margin]])


def online(y, m, coverage, rate, gap):
    """Share of misses where every row is predicted, and told once its target is known."""
    found = ConformalIntervals(Known(), gap=gap, adaptation_rate=rate)
    found.calibrate(np.zeros((m, 1)), y[:m])
    misses = []
    for t in range(m, len(y)):
        if t - gap > m:
            found.update(column(0), y[t - gap - 1 : t - gap])
        misses.append(not inside(found.predict_interval(column(0), coverage), y[t])[0])
    return np.mean(misses)


@pytest.mark.parametrize("series", ["grows", "jumps", "trembles", "has seasons"])
@pytest.mark.parametrize("gap", [0, 4])
def test_misses_stay_within_the_bound_whatever_the_series_does(series, gap, seed):
    """Also where targets are known late, and errors have a period of that length."""
    rng, T, rate = np.random.default_rng(seed), 400, 0.05
    y = rng.standard_normal(50 + T)
    y[50:] *= {
        "grows": np.geomspace(1, 1e6, T),
        "jumps": 20.0,
        "trembles": 1e-3,
        "has seasons": np.tile([0.1, 0.1, 0.1, 0.1, 20.0], T // 5),
    }[series]
    bound = (0.9 + (gap + 1) * rate) / (rate * T)
    assert abs(online(y, 50, 0.9, rate, gap) - 0.1) <= bound < 0.06
    by_hand = adapted(np.abs(y), 50, 0.9, rate, gap)[0]
    assert online(y, 50, 0.9, rate, gap) == pytest.approx(by_hand, abs=1e-12)
    found = ConformalIntervals(Known()).calibrate(np.zeros((50, 1)), y[:50])
    if series in ("grows", "jumps"):  # without updates most rows are missed
        assert inside(found.predict_interval(np.zeros((T, 1)), 0.9), y[50:]).mean() < 0.3


def test_a_run_of_misses_makes_infinite_intervals():
    y = np.r_[np.ones(20), 2.0 ** np.arange(1, 30)]
    found = ConformalIntervals(Known(), adaptation_rate=0.1).calibrate(np.zeros((20, 1)), y[:20])
    found.update(np.zeros((29, 1)), y[20:])
    np.testing.assert_array_equal(found.predict_interval(column(3), 0.9), [[-np.inf, np.inf]])


# ---- as an estimator -----------------------------------------------------------------------------


def test_fit_calibrates_on_the_last_rows_and_leaves_out_the_gap():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    found = ConformalIntervals(Ridge(), calibration_fraction=0.25, gap=5).fit(X, y)
    by_hand = ConformalIntervals(Ridge().fit(X[:70], y[:70])).calibrate(X[75:], y[75:])
    np.testing.assert_array_equal(found.predict_interval(X), by_hand.predict_interval(X))
    assert found.n_calibration_ == 25 and not hasattr(found.estimator, "coef_")
    again = found.calibrate(X[80:], y[80:])
    assert again.n_calibration_ == 20 and again.estimator_.coef_ is not None
    np.testing.assert_array_equal(again.predict(X), by_hand.predict(X))


def test_calibrate_takes_the_estimator_as_it_is():
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = Ridge().fit(X, X[:, 0])
    before = model.coef_.copy()
    found = ConformalIntervals(model).calibrate(X, X[:, 1])
    assert found.estimator_ is model
    np.testing.assert_array_equal(model.coef_, before)
    with pytest.raises(NotFittedError):
        ConformalIntervals(Ridge()).calibrate(X, X[:, 0])
    with pytest.raises(NotFittedError):
        ConformalIntervals(model).predict_interval(X)


def test_clones_forget_and_pickles_keep():
    X = np.random.default_rng(0).standard_normal((80, 2))
    found = ConformalIntervals(Ridge(), adaptation_rate=0.1).fit(X, X[:, 1]).update(X, X[:, 0])
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_interval(X, 0.7), found.predict_interval(X, 0.7))
    fresh = clone(found)
    assert fresh.adaptation_rate == 0.1 and not hasattr(fresh, "n_calibration_")
    before = found.predict_interval(X, 0.7)
    np.testing.assert_array_equal(found.predict_interval(X, 0.7), before)


@pytest.mark.parametrize("columns", [0, 2])
def test_searches_pipelines_and_ensembles_of_quantiles_are_conformalised(columns):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((160, 2)), columns=["a", "b"])
    y = X["a"] if not columns else X[["a", "b"]]
    small = ResidualTransformerRegressor(loss="quantile", d_model=4, max_iter=2, random_state=0)
    pipe = make_pipeline(StandardScaler(), small)
    search = GridSearchCV(pipe, {"residualtransformerregressor__d_model": [4]}, cv=2)
    ensemble = SeedEnsembleRegressor(small, n_estimators=2, random_state=0)
    for model in (pipe, search, make_pipeline("passthrough", ensemble)):
        found = ConformalIntervals(model).fit(X, y)
        q = found._predicted
        assert q.shape == (32, max(columns, 1), 3) and (np.diff(q) >= 0).all()
        ends = found.predict_interval(X, 0.8)
        assert ends.shape == (160, 2, 2)[: 2 + bool(columns)]
        in_pipe = make_pipeline(StandardScaler(), ConformalIntervals(Ridge())).fit(X, y)
        assert in_pipe.predict(X).shape == y.shape


def test_series_and_views_are_calibrated_on_their_tail():
    t = np.arange(400)
    frame = pd.DataFrame({"T": np.sin(t / 5) + np.random.default_rng(0).normal(0, 0.1, 400)})
    X, y = make_supervised(frame, "T", horizon=[1, 2], window=8)
    assert isinstance(X, SequenceView)
    model = ResidualTransformerRegressor(loss="quantile", d_model=8, max_iter=5, random_state=0)
    found = ConformalIntervals(model, gap=1).fit(X, y)
    ends = found.predict_interval(X[-50:], 0.8)
    assert ends.shape == (50, 2, 2) and (ends[..., 0] <= ends[..., 1]).all()
    assert found.update(X[-50:], y[-50:]).n_updates_ == 50


def test_transformed_targets_keep_their_units_inside(seed):
    """Around a TransformedTargetRegressor: the residuals of its predictions, as they are."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 2))
    y = np.exp(X[:, 0] + 0.1 * rng.standard_normal(200))
    inside_out = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp)
    found = ConformalIntervals(inside_out.fit(X[:100], y[:100])).calibrate(X[100:], y[100:])
    margin = np.sort(np.abs(y[100:] - inside_out.predict(X[100:])))[81 - 1]  # ceil(101 * 0.8)
    expected = inside_out.predict(X)[:, None] + [-margin, margin]
    np.testing.assert_allclose(found.predict_interval(X, 0.8), expected, rtol=1e-12)
    outside = TransformedTargetRegressor(
        ConformalIntervals(Ridge()), func=np.log, inverse_func=np.exp
    )
    assert not hasattr(outside.fit(X, y), "predict_interval")
    in_logarithms = outside.regressor_.predict_interval(X, 0.8)
    assert np.abs(in_logarithms.mean(axis=1) - np.log(y)).mean() < 0.1


@parametrize_with_checks([ConformalIntervals(Ridge())])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coverage", "message"),
    [
        (0.95, "coverage=0.95 needs at least 19 calibration rows, got 10: .* at most 0.909"),
        (0.999, "needs at least 999 calibration rows, got 10"),
        (0.0, "coverage must be a number between 0 and 1, got 0.0"),
        (1.0, "coverage must be a number between 0 and 1, got 1.0"),
        (90, "got 90: pass 0.9 for 90 %"),
        ("high", "coverage must be a number between 0 and 1, got 'high'"),
        (True, "got True"),
        (np.nan, "got nan"),
    ],
)
def test_a_coverage_that_cannot_be_had_is_named(coverage, message):
    found = ConformalIntervals(Known()).calibrate(np.zeros((10, 1)), np.arange(10.0))
    assert np.isfinite(found.predict_interval(column(0), 0.9)).all()
    with pytest.raises(ValueError, match=message):
        found.predict_interval(column(0), coverage)


@pytest.mark.parametrize("m", [1, 4, 9, 19, 98, 99, 199, 399])
def test_the_number_needed_is_the_least_that_does(m):
    for coverage in (0.5, 0.8, 0.9, 0.95, 0.99, 0.995, 0.9975):
        found = ConformalIntervals(Known()).calibrate(np.zeros((m, 1)), np.arange(float(m)))
        if m >= np.round(coverage / (1 - coverage), 6):
            assert np.isfinite(found.predict_interval(column(0), coverage)).all()
        else:
            needed = int(np.ceil(np.round(coverage / (1 - coverage), 6)))
            with pytest.raises(ValueError, match=f"at least {needed} calibration rows, got {m}:"):
                found.predict_interval(column(0), coverage)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"calibration_fraction": 0}, "calibration_fraction must be .* got 0"),
        ({"calibration_fraction": 1.5}, "calibration_fraction must be .* got 1.5"),
        ({"gap": -1}, "gap must be an integer >= 0, got -1"),
        (
            {"gap": 50},
            "no row is left to fit on: of n_samples=20, calibration_fraction=0.2 takes 4",
        ),
        (
            {"adaptation_rate": -0.1},
            "adaptation_rate must be a finite number >= 0, or 'auto', got -0.1",
        ),
        ({"adaptation_rate": "fast"}, "or 'auto', got 'fast'"),
        ({"adaptation_rate": np.inf}, "adaptation_rate must be a finite number"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        ConformalIntervals(Ridge(), **settings).fit(np.ones((20, 1)), np.ones(20))


def test_targets_that_are_not_those_of_the_regressor_are_named():
    X = np.random.default_rng(0).standard_normal((20, 2))
    found = ConformalIntervals(Ridge().fit(X, X[:, 0]))
    message = "y has 20 rows and 2 target columns, but the regressor predicts 20 and 1"
    with pytest.raises(ValueError, match=message):
        found.calibrate(X, X)
    with pytest.raises(ValueError, match="y has 19 rows"):
        found.calibrate(X, X[:19, 0])
    with pytest.raises(ValueError, match="y has missing or infinite values: leave"):
        found.calibrate(X, np.full(20, np.nan))
    with pytest.raises(ValueError, match="y must hold numbers"):
        found.calibrate(X, ["warm"] * 20)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (Ridge, "estimator must be a regressor, an object with predict, got Ridge"),
        (None, "got None"),
        (LogisticRegression(), "got LogisticRegression, a classifier"),
    ],
)
def test_what_is_no_regressor_is_named(estimator, message):
    for method in ("fit", "calibrate"):
        with pytest.raises(TypeError, match=message):
            getattr(ConformalIntervals(estimator), method)(np.ones((20, 1)), np.arange(20))
