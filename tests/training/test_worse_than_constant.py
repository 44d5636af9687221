"""No rule cuts a schedule short, and no fit ends worse than a constant without a word."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    residual_beta_path,
)


def noisy_series(n=140, T=84, seed=0):
    """Series whose last value says a little about the target, which is mostly noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, T, 1)).cumsum(axis=1)
    return X, X[:, -1, 0] - X[:, -20, 0] + 8.0 * rng.standard_normal(n)


def r_squared(y, prediction, weight=None):
    """1 - weighted squared error / that of the weighted mean."""
    mean = np.average(y, weights=weight)
    return 1.0 - np.average((y - prediction) ** 2, weights=weight) / np.average(
        (y - mean) ** 2, weights=weight
    )


def log_loss(y, probability):
    return -np.log(np.where(y, probability[:, 1], probability[:, 0])).mean()


def fit(model, *data, **named):
    """The fitted model and the ConvergenceWarnings it gave; every other warning is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(*data, **named)
    return model, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("patience", [1, 3])
def test_a_one_cycle_schedule_runs_to_its_end(patience, early_stopping, seed):
    X, y = noisy_series(seed=seed)
    model = ResidualTransformerRegressor(
        n_iter_no_change=patience, tol=0.5, early_stopping=early_stopping, random_state=seed
    )
    model, said = fit(model, X, y)
    assert model.n_iter_ == 20
    assert model.history_["learning_rate"].iloc[-1] < 1e-2 * model.history_["learning_rate"].max()
    assert not said and r_squared(y, model.predict(X)) > 0.0


def test_a_constant_step_still_stops(seed):
    X, y = noisy_series(seed=seed)
    settings = {"learning_rate": "constant", "n_iter_no_change": 2, "tol": 10.0, "max_iter": 9}
    assert fit(ResidualTransformerRegressor(**settings), X, y)[0].n_iter_ < 9


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate_init": 0.5},
        {"learning_rate_init": 5.0},
        {"residual_beta": 5.0},
        {"residual_beta": 3.0, "n_layers": 2},
        {"learning_rate_init": 0.5, "early_stopping": True},
        {"learning_rate_init": 1.0, "loss": "huber"},
        {"solver": "sgd", "learning_rate_init": 1e-5, "max_iter": 30},
        {"learning_rate_init": 0.5, "learning_rate": "constant"},
    ],
    ids=str,
)
def test_a_regressor_worse_than_the_mean_says_so(settings, seed):
    X, y = noisy_series(seed=seed)
    model, said = fit(ResidualTransformerRegressor(random_state=seed, **settings), X, y)
    score = r_squared(y, model.predict(X))
    if "loss" not in settings:  # the squared error decides
        assert bool(said) == (score < -0.005) or settings.get("early_stopping"), (score, said)
    if score < -0.1:
        (message,) = said
        assert "learning_rate_init" in message and "residual_beta" in message
        assert "worse than" in message


@pytest.mark.parametrize("settings", [{"learning_rate_init": 5.0}, {"residual_beta": 20.0}])
def test_a_classifier_worse_than_the_class_shares_says_so(settings, seed):
    X, y = noisy_series(seed=seed)
    model = ResidualTransformerClassifier(random_state=seed, **settings)
    model, said = fit(model, X, y > 1.0)
    share = np.mean(y > 1.0)
    of_shares = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    loss = log_loss(y > 1.0, np.clip(model.predict_proba(X), 1e-300, 1.0))
    assert bool(said) == (loss > 1.005 * of_shares)


def test_the_constant_is_that_of_weighted_rows():
    """All weight on ten rows: the mean of these is what a model must beat."""
    X, y = noisy_series()
    weight = np.where(np.arange(len(y)) < 10, 1.0, 1e-3)
    model = ResidualTransformerRegressor(learning_rate_init=5.0, random_state=0)
    model, said = fit(model, X, y, sample_weight=weight)
    assert bool(said) == (r_squared(y, model.predict(X), weight) < -0.005)


def test_the_best_epoch_is_kept_where_the_last_is_worse_than_a_constant():
    """A step size that grows late: the middle of the training is good, its end is not."""
    from skorch.callbacks import Callback

    class Spoil(Callback):
        def on_epoch_begin(self, net, **_):
            for group in net.optimizer_.param_groups:
                group["lr"] = 0.02 if len(net.history) < 16 else 0.3

    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0]
    settings = {"learning_rate": "constant", "n_iter_no_change": 99, "random_state": 0}
    model = ResidualTransformerRegressor(callbacks=[Spoil()], **settings)
    model, said = fit(model, X, y)
    assert model.loss_curve_[-1] > 1.0, "the last epochs were not spoilt"
    assert model.best_iteration_ == 1 + int(np.argmin(model.loss_curve_)) < model.n_iter_
    assert r_squared(y, model.predict(X)) > 0.9 and not said
    assert model.conditioning_.epochs[-1] == model.best_iteration_


def test_candidates_trained_together_are_judged_alike():
    X, y = noisy_series()
    estimator = ResidualTransformerRegressor(random_state=0, n_iter_no_change=1, tol=9.0)
    paths = {}
    for stacked in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            path = residual_beta_path(
                X, y, [0.0, 1.0, 20.0], estimator=estimator, cv=2, stacked=stacked
            )
        said = [str(w.message) for w in caught if w.category is ConvergenceWarning]
        paths[stacked] = path.to_frame(), len(said)
    assert paths[True][1] == paths[False][1] >= 2
    columns = ["test_score", "final_loss"]
    columns = [name for name in columns if name in paths[True][0]]
    np.testing.assert_allclose(paths[True][0][columns], paths[False][0][columns], rtol=1e-6)


def test_going_on_to_something_worse_says_so():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 4))
    y = X @ [1.0, -2.0, 0.5, 0.0]
    model = ResidualTransformerRegressor(warm_start=True, random_state=0, learning_rate_init=0.02)
    good, said = fit(model, X, y)
    assert not said and good.loss_curve_[-1] < 0.1
    good.set_params(learning_rate_init=1.0, max_iter=2)
    worse, said = fit(good, X, y)
    assert r_squared(y, worse.predict(X)) < 0.9
    assert len(said) == 1 and "worse than it began" in said[0]


def test_a_good_or_hardly_begun_fit_says_nothing(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 4))
    noise = rng.standard_normal(100)
    for y in (X[:, 0], noise):
        assert not fit(ResidualTransformerRegressor(random_state=seed), X, y)[1]
    assert not fit(ResidualTransformerRegressor(random_state=seed, max_iter=1), X, noise)[1]


def test_a_fit_of_few_steps_that_rose_is_told(seed):
    rng = np.random.default_rng(seed)
    X, noise = rng.standard_normal((60, 4)), rng.standard_normal(60)
    model = ResidualTransformerRegressor(random_state=seed, learning_rate_init=0.3, max_iter=3)
    fitted, said = fit(model, X, noise)
    assert r_squared(noise, fitted.predict(X)) < -0.05
    assert len(said) == 1 and "worse than" in said[0]
