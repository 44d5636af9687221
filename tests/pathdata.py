"""Inputs of the beta path, its separate fits and their comparison, shared by its tests."""

import numpy as np
from sklearn.base import clone

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans.model_selection import beta_path

N, STEPS_PER_EPOCH, EPOCHS = 80, 5, 10  # 50 steps
BETAS = [0.0, 0.5, 2.0]

# Sums of other order part by a few eps (2e-16) a step; 50 such steps leave at most 1e-13.
EQUAL = {"rtol": 0, "atol": 1e-12}


def series(n=N, seed=0):
    """Rows in time order, and a smooth function of each and the one before it."""
    rows = np.random.default_rng(seed).standard_normal((n, 3))
    return rows, rows[:, 0] + np.roll(rows[:, 1], 1) ** 2


def sequences(padded=False):
    """Sequences of 6 tokens, if asked with 0 to 4 tokens of padding, and their target."""
    X = np.random.default_rng(1).standard_normal((N, 6, 3))
    y = X[:, 0, 0] + X[:, 1, 1] ** 2
    if padded:
        X[np.arange(6) >= 6 - np.arange(N)[:, None] % 5] = np.nan
    return X, y


def view():
    """Windows of two stations, the first of each with a short history."""
    rows, y = series()
    return SequenceView(rows, np.arange(N), 4, segments=np.arange(N) // (N // 2)), y


def tokens():
    """Token ids of texts of 2 to 11 words."""
    rng = np.random.default_rng(4)
    ids = rng.integers(1, 9, (N, 11))
    ids[np.arange(11) >= rng.integers(2, 12, (N, 1))] = 0
    return ids, (ids == 3).sum(axis=1) - 0.5 * (ids == 5).sum(axis=1)


def with_holes():
    """Windows of rows some of whose readings are missing."""
    rows, y = series()
    rows[np.random.default_rng(5).random(rows.shape) < 0.1] = np.nan
    return SequenceView(rows, np.arange(N), 4), y


def regressor(**settings):
    defaults = {"d_model": 8, "batch_size": 16, "max_iter": EPOCHS, "random_state": 3}
    return ResidualTransformerRegressor(**(defaults | settings))


def classifier(**settings):
    known = ResidualTransformerClassifier().get_params()
    shared = {k: v for k, v in regressor(**settings).get_params().items() if k in known}
    return ResidualTransformerClassifier(**shared | {"loss": "log_loss"})


def separate(estimator, beta, seed, X, y, sample_weight=None):
    """The fit that the path stands for."""
    model = clone(estimator).set_params(residual_beta=beta, random_state=seed)
    return model.fit(X, y, sample_weight)


def weights(model):
    return {name: value.numpy() for name, value in model.net_.module_.state_dict().items()}


def assert_same_fit(model, expected, **tolerance):
    tolerance = tolerance or EQUAL
    assert model is not None, "diverged"
    assert model.best_iteration_ == expected.best_iteration_
    assert model.n_iter_ == expected.n_iter_
    for name, value in weights(expected).items():
        assert value.dtype == np.float64
        np.testing.assert_allclose(weights(model)[name], value, **tolerance, err_msg=name)
    numbers = [column for column in expected.history_ if column != "dur"]
    assert numbers == [column for column in model.history_ if column != "dur"]
    tables = [fit.history_[numbers].astype(float) for fit in (model, expected)]
    np.testing.assert_allclose(*tables, **tolerance)
    spectra = [fit.conditioning_.Z.singular_values for fit in (model, expected)]
    np.testing.assert_allclose(*spectra, rtol=1e-10, atol=1e-10)  # a sum over some 400 rows
    curves = [fit.convergence_.gradient_norm for fit in (model, expected)]
    np.testing.assert_allclose(*curves, rtol=1e-10, atol=1e-10)


def assert_path_is_separate_fits(path, estimator, X, y, sample_weight=None, **tolerance):
    for (beta, seed, _), model in path.estimators.items():
        expected = separate(estimator, beta, seed, X, y, sample_weight)
        assert_same_fit(model, expected, **tolerance)


def watch_groups(monkeypatch):
    """Sizes of the groups that are fitted from now on."""
    seen, fit_estimators = [], beta_path.fit_estimators

    def spy(estimators, *data, **segments):
        seen.append(len(estimators))
        return fit_estimators(estimators, *data, **segments)

    monkeypatch.setattr(beta_path, "fit_estimators", spy)
    return seen
