"""loss="quantile": levels that hold, never cross, and go wherever a fit goes."""

import pickle

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from smallmodels import SMALL, table

from sklearn_restrans import (
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleRegressor,
    residual_beta_path,
)

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def model(**settings):
    return ResidualTransformerRegressor(**SMALL | {"loss": "quantile"} | settings)


def rows(columns=0):
    X, y = table(ResidualTransformerRegressor)
    return (X, np.c_[y, 100 - 5 * y][:, :columns]) if columns else (X, y)


def unequal(n, seed):
    """y = x_0 + s(x_1) noise: the quantiles of y given x are known."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    scale = np.where(X[:, 1] > 0, 2.0, 0.5)
    return X, X[:, 0] + scale * rng.standard_normal(n), scale


def test_quantiles_of_a_known_distribution_are_found(seed):
    """Noise of two sizes: so many rows lie below each quantile, in both parts of the table."""
    X, y, _ = unequal(4_000, seed)
    fitted = model(quantiles=LEVELS, d_model=16, max_iter=30).fit(X, y)
    X, y, scale = unequal(8_000, seed + 1)
    found = fitted.predict_quantiles(X)
    assert found.shape == (8_000, 5) and fitted.quantiles_ == LEVELS
    for part in (scale == 2.0, scale == 0.5):
        below = (y[part, None] <= found[part]).mean(axis=0)
        # sqrt(.25 / 4,000) = .008 of the test rows, and as much again of the 2,000 training rows
        np.testing.assert_allclose(below, LEVELS, atol=0.05)
        widths = found[part, -1] - found[part, 0]
        expected = 2 * norm.ppf(0.9) * scale[part].mean()
        assert np.median(widths) == pytest.approx(expected, rel=0.15)
    truth = X[:, :1] + scale[:, None] * norm.ppf(LEVELS)
    best = np.mean([mean_pinball_loss(y, q, alpha=t) for t, q in zip(LEVELS, truth.T, strict=True)])
    ours = np.mean([mean_pinball_loss(y, q, alpha=t) for t, q in zip(LEVELS, found.T, strict=True)])
    assert ours < 1.03 * best


@pytest.mark.parametrize("columns", [0, 2])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_quantiles_never_cross_and_predict_is_the_median(columns, beta, seed):
    X, y = rows(columns)
    fitted = model(quantiles=LEVELS, residual_beta=beta).fit(X, y)
    far = np.concatenate([X, 50 * np.random.default_rng(seed).standard_normal((40, X.shape[1]))])
    found = fitted.predict_quantiles(far)
    assert found.shape == (len(far), *y.shape[1:], 5)
    assert (np.diff(found) >= 0).all()
    np.testing.assert_array_equal(fitted.predict(far), found[..., 2])
    np.testing.assert_array_equal(fitted.predict_quantiles(far[7:8])[0], found[7])
    assert fitted.convergence_.scale is None


def test_without_the_median_predict_lies_between_the_two_levels_next_to_it():
    X, y = rows()
    fitted = model(quantiles=(0.2, 0.4, 0.9)).fit(X, y)
    q = fitted.predict_quantiles(X)
    # a fifth of the way from 0.4 to 0.9
    np.testing.assert_allclose(fitted.predict(X), 0.8 * q[:, 1] + 0.2 * q[:, 2], rtol=1e-12)
    high = model(quantiles=(0.7, 0.9)).fit(X, y)
    np.testing.assert_array_equal(high.predict(X), high.predict_quantiles(X)[:, 0])


def test_the_loss_is_the_pinball_loss_of_the_standardised_targets():
    X, y = rows(2)
    settings = {"solver": "gd", "learning_rate_init": 1e-30, "quantiles": LEVELS}
    fitted = model(**settings).fit(X, y)
    found = (fitted.predict_quantiles(X) - y.mean(0)[:, None]) / y.std(0)[:, None]
    z = (y - y.mean(0)) / y.std(0)
    expected = np.mean(
        [mean_pinball_loss(z, found[..., k], alpha=tau) for k, tau in enumerate(LEVELS)]
    )
    np.testing.assert_allclose(fitted.loss_curve_, expected, rtol=1e-9)


def test_weights_count_as_repeated_rows():
    X, y = rows()
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    settings = {"solver": "lbfgs", "max_iter": 20}
    weighted = model(**settings).fit(X, y, sample_weight=weight)
    repeated = model(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    # Twenty steps of L-BFGS, on a loss with kinks, amplify the rounding of sums of other order.
    np.testing.assert_allclose(
        weighted.predict_quantiles(X), repeated.predict_quantiles(X), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("solver", ["adamw", "sgd", "gd", "lbfgs"])
def test_every_other_solver_lowers_the_quantile_loss(solver):
    X, y = rows()
    settings = {"learning_rate_init": 0.05} if solver in ("sgd", "gd") else {}
    curve = model(solver=solver, max_iter=20, **settings).fit(X, y).loss_curve_
    assert min(curve[1:]) < curve[0]


def test_gauss_newton_refuses_the_quantile_loss():
    with pytest.raises(ValueError, match="'squared_error' or 'log_loss', got loss='quantile': use"):
        model(solver="gauss_newton").fit(*rows())


def test_pickles_clones_and_early_stopping_keep_the_levels():
    X, y = rows()
    fitted = model(quantiles=np.array(LEVELS), early_stopping=True).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.quantiles_ == LEVELS and len(fitted.validation_scores_) == fitted.n_iter_
    np.testing.assert_array_equal(again.predict_quantiles(X), fitted.predict_quantiles(X))
    np.testing.assert_array_equal(
        clone(fitted).fit(X, y).predict_quantiles(X), fitted.predict_quantiles(X)
    )
    held = model(quantiles=LEVELS).fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    assert held.best_iteration_ == 1 + int(np.argmax(held.validation_scores_))


def test_warm_start_continues_the_levels_and_no_others():
    X, y = rows()
    fitted = model(warm_start=True).fit(X, y)
    assert fitted.fit(X, y).n_iter_ == 6
    assert pickle.loads(pickle.dumps(fitted)).fit(X, y).n_iter_ == 9
    for change in ({"quantiles": (0.2, 0.5, 0.8)}, {"quantiles": None, "loss": "huber"}):
        with pytest.raises(ValueError, match=r"cannot change quantiles from \(0.1, 0.5, 0.9\) to"):
            clone_with_fit(fitted, change).fit(X, y)


def clone_with_fit(fitted, change):
    return pickle.loads(pickle.dumps(fitted)).set_params(**change)


@pytest.mark.filterwarnings("ignore::sklearn_restrans.RankCollapseWarning")
def test_paths_and_searches_fit_quantiles():
    """A path stacks its candidates: the same quantiles as those of separate fits."""
    X, y = rows()
    search = ResidualTransformerRegressorCV([0.0, 1.0], cv=2, **SMALL, loss="quantile").fit(X, y)
    assert search.predict_quantiles(X).shape == (60, 3)
    alone = model(residual_beta=search.residual_beta_).fit(X, y)
    np.testing.assert_allclose(
        search.predict_quantiles(X), alone.predict_quantiles(X), rtol=1e-9, atol=1e-9
    )
    path = residual_beta_path(X, y, [0.0, 1.0], estimator=model(), cv=2, scoring="r2")
    assert np.isfinite(path.to_frame()["score"]).all()
    pipe = make_pipeline(StandardScaler(), model())
    grid = GridSearchCV(pipe, {"residualtransformerregressor__d_model": [4, 8]}, cv=2).fit(X, y)
    assert grid.predict(X).shape == (60,)


@pytest.mark.parametrize("columns", [0, 2])
def test_an_ensemble_averages_quantiles(columns):
    X, y = rows(columns)
    ensemble = SeedEnsembleRegressor(model(), n_estimators=3, random_state=0).fit(X, y)
    found = ensemble.predict_quantiles(X)
    assert ensemble.quantiles_ == (0.1, 0.5, 0.9) and (np.diff(found) >= 0).all()
    each = [member.predict_quantiles(X) for member in ensemble.estimators_]
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-14)
    np.testing.assert_allclose(ensemble.predict(X), found[..., 1], rtol=1e-14)
    assert ensemble.plan_["mode"] == "stacked"


def test_constant_targets_have_quantiles_of_that_constant():
    X, y = rows()
    found = model().fit(X, np.full_like(y, 7.0)).predict_quantiles(X)
    np.testing.assert_array_equal(found, 7.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "huber", "quantiles": (0.1, 0.9)}, "levels of loss='quantile', got loss='huber'"),
        ({"quantiles": (0.9, 0.1)}, "sort them"),
        ({"quantiles": (0.1, 1.0)}, r"between 0 and 1.* got 1.0"),
        ({"quantiles": (0.1, 0.1)}, "twice"),
        ({"quantiles": 0.5}, "'quantiles' parameter .* array-like or None. Got 0.5 instead"),
    ],
)
def test_levels_that_make_no_sense_are_named(settings, message):
    X, y = rows()
    with pytest.raises(ValueError, match=message):
        model(**settings).fit(X, y)
    with pytest.raises(ValueError, match=message):
        SeedEnsembleRegressor(model(**settings)).fit(X, y)


def test_only_models_of_quantiles_predict_them():
    X, y = rows()
    assert hasattr(model(), "predict_quantiles") and not hasattr(model(), "quantiles_")
    plain = model(loss="huber").fit(X, y)
    for one in (plain, SeedEnsembleRegressor(plain, n_estimators=2).fit(X, y)):
        assert not hasattr(one, "predict_quantiles") and not hasattr(one, "quantiles_")
        with pytest.raises(AttributeError, match="no attribute 'predict_quantiles'") as error:
            one.predict_quantiles(X)
        assert "set loss='quantile' and fit again" in str(error.value.__cause__)
