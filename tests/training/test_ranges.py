"""Weights and residual coefficients at the ends of their range: right numbers, or a sentence."""

import numpy as np
import pytest
import torch

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    certify_linear_convergence,
)
from sklearn_restrans._training.descent import gradient_norm

SMALL = {"d_model": 8, "max_iter": 3, "random_state": 0}


def make_weights(name, n=200):
    rng = np.random.default_rng(1)
    return {
        "all sizes": np.geomspace(1e-300, 1.0, n),
        "in any order": rng.permutation(np.geomspace(1e-300, 1.0, n)),
        "two sizes": np.where(rng.random(n) < 0.5, 1e-300, 1.0),
        "huge": np.where(rng.random(n) < 0.5, 1.0, 1e300),
        "denormal": np.where(rng.random(n) < 0.5, 5e-324, 1.0),
        "one row": np.r_[[1e-300] * (n - 5), [1.0] * 5],
    }[name]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name", ["all sizes", "in any order", "two sizes", "huge", "denormal", "one row"]
)
@pytest.mark.parametrize("kind", ["table", "tokens", "window"])
def test_a_weight_of_about_zero_is_a_weight_of_zero(kind, name, dtype):
    """In a fit of all rows, of a few, and of a probe set that has none of the large ones."""
    rng = np.random.default_rng(0)
    weight = make_weights(name)
    clear = np.where(weight < 1e-30 * weight.max(), 0.0, weight)
    X, settings = rng.standard_normal((200, 3)), dict(SMALL, dtype=dtype, conditioning_samples=3)
    y = X[:, 0] + X[:, 1]
    if kind == "tokens":
        X, settings["embedding"] = rng.integers(2, 20, (200, 6)), "token"
        X[::3, 3:] = 0
    if kind == "window":
        settings["window"] = 3
    for make, target in (
        (ResidualTransformerRegressor, y),
        (ResidualTransformerClassifier, y > 0),
    ):
        model = make(**settings).fit(X, target, sample_weight=weight)
        found = model.predict(X)
        assert np.isfinite(model.loss_curve_).all()
        expected = make(**settings).fit(X, target, sample_weight=clear).predict(X)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("solver", ["gd", "sgd"])
def test_a_curvature_beyond_all_numbers_names_residual_beta(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    for beta in (1e50, 1e77, 1e100, 1e155, 1e200, 1e308):
        for step in ("auto", 0.01):
            for make, y in (
                (ResidualTransformerRegressor, X[:, 0]),
                (ResidualTransformerClassifier, X[:, 0] > 0),
            ):
                model = make(residual_beta=beta, solver=solver, learning_rate_init=step, **SMALL)
                try:
                    assert np.isfinite(model.fit(X, y).loss_curve_).all()
                except DivergenceError as error:
                    assert "residual_beta" in str(error) and len(str(error)) < 500


def test_a_certificate_of_an_endless_curvature_names_residual_beta():
    X = np.random.default_rng(0).standard_normal((30, 3))
    model = ResidualTransformerRegressor(
        residual_beta=1e155, solver="gd", learning_rate_init="auto", **SMALL
    )
    with pytest.raises(DivergenceError, match=r"residual_beta \(its largest value is now 1e\+155"):
        certify_linear_convergence(model, X, X[:, 0])


def test_the_norm_of_a_large_gradient_is_finite():
    gradient = [torch.full((n,), 1e200, dtype=torch.float64) for n in (3, 1)]
    assert gradient_norm(gradient) == pytest.approx(2e200, rel=1e-15)
    assert gradient_norm([torch.tensor([np.inf, 1.0])]) == np.inf
    assert gradient_norm([torch.zeros(3)]) == 0.0
