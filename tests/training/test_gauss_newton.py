"""Gauss-Newton steps are those of the dense formula, and do what their name promises."""

import numpy as np
import pytest
import torch
from objectives import dense_jacobian, make_objective

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
)
from sklearn_restrans._training import gauss_newton
from sklearn_restrans._training.gauss_newton import (
    GaussNewton,
    ImplicitSystem,
    KernelSystem,
    conjugate_gradients,
)
from sklearn_restrans._training.losses import output_curvature

LOSSES = ["squared_error", "log_loss"]


def curvature_of(objective):
    data = objective.data
    return output_curvature(objective.criterion, objective.outputs(), data.target, data.weight)


def dense_step(objective, damping, decays):
    """-(J^T H J + diag(lambda + w))^-1 (J^T q + w theta), by torch's own derivatives of the loss.

    Returns the step, and the decrease that the quadratic model foretells.
    """
    J, data = dense_jacobian(objective).numpy(), objective.data
    weight = torch.ones(len(data), dtype=torch.float64) if data.weight is None else data.weight
    F = objective.outputs().clone().requires_grad_()

    def phi(outputs):
        return (weight * objective.criterion(outputs, data.target)).mean()

    slope = torch.autograd.grad(phi(F), F)[0].flatten().numpy()
    H = torch.autograd.functional.hessian(phi, F.detach()).reshape(len(slope), -1).numpy()
    theta = torch.cat([p.detach().flatten() for p in objective.parameters]).numpy()
    w = np.concatenate(
        [np.full(p.numel(), d) for p, d in zip(objective.parameters, decays, strict=True)]
    )
    gradient, G = J.T @ slope + w * theta, J.T @ H @ J + np.diag(w)
    step = -np.linalg.solve(G + damping * np.eye(len(theta)), gradient)
    return step, -(gradient @ step + step @ G @ step / 2)


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "n_outputs": 3}, {"learn_beta": True}])
def test_a_step_is_that_of_the_dense_formula(settings, loss, decay, seed):
    objective = make_objective(seed, loss=loss, **settings)
    decays = GaussNewton(objective, decay).decays
    assert set(decays) == {0.0, decay}
    for damping in (1e-3, 1.0):
        expected, decrease = dense_step(objective, damping, decays)
        move = KernelSystem(objective, curvature_of(objective), decays).move(damping)
        step = torch.cat([c.flatten() for c in move.change])
        # lambda = 1e-3 under eigenvalues of up to 100: 1e5 eps.
        np.testing.assert_allclose(step, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        assert move.decrease == pytest.approx(decrease, rel=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
def test_conjugate_gradients_lead_to_the_same_step(loss, decay, monkeypatch, seed):
    monkeypatch.setattr(gauss_newton, "_CG_TOLERANCE", 1e-12)
    objective = make_objective(seed, loss=loss, chunk=7)
    decays = GaussNewton(objective, decay).decays
    arguments = objective, curvature_of(objective), decays
    dense, implicit = (kind(*arguments).move(0.1) for kind in (KernelSystem, ImplicitSystem))
    for a, b in zip(dense.change, implicit.change, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8)
    np.testing.assert_allclose(dense.linear, implicit.linear, rtol=0, atol=1e-8)
    assert implicit.decrease == pytest.approx(dense.decrease, rel=1e-7)


def test_conjugate_gradients_solve_to_their_tolerance(seed):
    rng = np.random.default_rng(seed)
    root = torch.tensor(rng.standard_normal((30, 30)))
    matrix, right = root @ root.T + torch.eye(30), torch.tensor(rng.standard_normal(30))
    x = conjugate_gradients(lambda v: matrix @ v, right)
    assert (matrix @ x - right).norm() <= 1.01e-3 * right.norm()
    assert torch.equal(conjugate_gradients(lambda v: matrix @ v, 0 * right), 0 * right)


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
def test_it_interpolates_noise_to_rounding_in_a_few_steps(beta, seed):
    """Noise, so that nothing but interpolation lowers the loss; n c = 40 below P."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((20, 6, 3)), rng.standard_normal((20, 2))
    model = ResidualTransformerRegressor(
        beta, solver="gauss_newton", max_iter=60, random_state=seed, n_iter_no_change=60
    ).fit(X, y)
    curve = model.convergence_.relative_loss
    # Outputs right to a few units in the last place.
    assert curve[-1] < 1e-27
    assert len(curve) < 60  # it knows that it is done
    assert model.history_["gain"].iloc[-1] == 0
    assert np.all(np.diff(curve) < 0)
    np.testing.assert_allclose(model.predict(X), y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_repeated_rows(loss, seed):
    rng = np.random.default_rng(seed)
    X, y, weight = rng.standard_normal((20, 5, 3)), rng.standard_normal(20), rng.integers(0, 3, 20)
    kind, target = ResidualTransformerRegressor, y
    if loss == "log_loss":
        kind, target = ResidualTransformerClassifier, (y > 0) + 1 * (y > 1)
    model = kind(solver="gauss_newton", random_state=seed, max_iter=5, weight_decay=1e-3)
    curve = model.fit(X, target, sample_weight=weight).loss_curve_
    repeated = model.fit(np.repeat(X, weight, 0), np.repeat(target, weight)).loss_curve_
    np.testing.assert_allclose(curve, repeated, rtol=1e-7)


def test_decay_and_validation_bound_what_is_interpolated(seed):
    """Each leaves training loss where interpolation leaves none."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((40, 5, 3)), rng.standard_normal(40)
    plain = ResidualTransformerRegressor(solver="gauss_newton", random_state=seed)
    assert plain.fit(X, y).loss_curve_[-1] < 1e-6
    decayed = ResidualTransformerRegressor(
        solver="gauss_newton", random_state=seed, weight_decay=0.05
    ).fit(X, y)
    assert decayed.loss_curve_[-1] > 0.1
    assert np.linalg.norm(decayed.net_.module_.W_U.detach()) < np.linalg.norm(
        plain.net_.module_.W_U.detach()
    )
    stopped = ResidualTransformerRegressor(
        solver="gauss_newton", random_state=seed, early_stopping=True
    ).fit(X, y)
    best = int(np.argmax(stopped.validation_scores_)) + 1
    assert stopped.best_iteration_ == best
    assert stopped.best_validation_score_ == max(stopped.validation_scores_)


def test_a_step_that_raises_the_loss_is_not_taken(seed):
    """Whatever the first damping, the penalised loss only falls."""
    objective = make_objective(seed)
    descent = GaussNewton(objective, 0.01)
    descent.damping = 1e-12
    losses = [descent._here.penalised]
    for _ in range(8):
        descent.measured_step()
        losses.append(descent._here.penalised)
    assert np.all(np.diff(losses) < 0)
    assert descent._look().loss == pytest.approx(descent.loss, rel=1e-13)


def test_at_a_minimum_it_is_finished_and_moves_nothing(seed):
    objective = make_objective(seed)
    objective.data.target = objective.outputs()
    before = [p.detach().clone() for p in objective.parameters]
    descent = GaussNewton(objective)
    measured, _ = descent.measured_step()
    assert descent.finished
    assert measured["gain"] == 0
    for p, b in zip(objective.parameters, before, strict=True):
        assert torch.equal(p, b)


def test_a_single_class_ends_at_once():
    X = np.random.default_rng(0).standard_normal((8, 4, 2))
    model = ResidualTransformerClassifier(solver="gauss_newton", random_state=0)
    assert model.fit(X, np.zeros(8)).predict(X).tolist() == [0.0] * 8
    assert model.n_iter_ == 1


def test_float32_stops_at_its_own_rounding(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((15, 4, 2)), rng.standard_normal(15)
    model = ResidualTransformerRegressor(
        solver="gauss_newton", dtype="float32", random_state=seed, max_iter=80, n_iter_no_change=80
    ).fit(X, y)
    assert model.net_.module_.W_U.dtype == torch.float32
    assert model.convergence_.relative_loss[-1] < 1e-9  # (eps 1e-7)^2, with room for their sums
    assert model.n_iter_ < 80


def test_its_type_is_float64_whatever_the_size_and_type_of_X():
    X = np.zeros((20, 4, 2), dtype=np.float32)
    X[::2] = 1
    model = ResidualTransformerRegressor(solver="gauss_newton", max_iter=1, random_state=0)
    assert model.fit(X, X[:, 0, 0]).net_.module_.W_U.dtype == torch.float64


def test_many_rows_go_by_conjugate_gradients(monkeypatch, seed):
    """Beyond the limit no kernel is formed; inexact steps take longer, and still far from 400."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 5, 3)), rng.standard_normal(30)
    model = ResidualTransformerRegressor(
        solver="gauss_newton", max_iter=12, random_state=seed, learning_rate_init="auto"
    )
    assert set(model.fit(X, y).convergence_.details["n_products"]) == {0}
    monkeypatch.setattr(gauss_newton, "MAX_DENSE_ROWS", 29)
    monkeypatch.setattr(gauss_newton, "weight_jacobians", None)
    assert model.fit(X, y).convergence_.relative_loss[-1] < 1e-3
    assert (model.convergence_.details["n_products"] > 0).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dropout": 0.1}, "solver='gauss_newton' descends the exact loss .* dropout must be 0"),
        ({"learning_rate": "one_cycle"}, "learning_rate='one_cycle' is for the other solvers"),
        ({"dtype": "bfloat16"}, "set dtype='auto', which is float64"),
        ({"loss": "huber"}, "'squared_error' or 'log_loss', got loss='huber': use solver='lbfgs'"),
    ],
)
def test_what_has_no_meaning_is_refused(parameters, message):
    X = np.random.default_rng(0).standard_normal((8, 4, 2))
    model = ResidualTransformerRegressor(solver="gauss_newton", **parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, X[:, 0, 0])


def test_a_loss_that_is_not_finite_at_the_start_says_what_to_lower():
    X = np.random.default_rng(0).standard_normal((8, 4, 2))
    model = ResidualTransformerRegressor(1e160, solver="gauss_newton", random_state=0)
    with pytest.raises(DivergenceError, match="residual_beta"):
        model.fit(X, X[:, 0, 0])


@pytest.mark.parametrize("solver", ["gauss_newton", "lbfgs"])
def test_patience_watches_what_is_minimised(solver, seed):
    """With decay the loss may rise while its penalised sum falls: that must not end the fit."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 5, 3)), rng.standard_normal(30)
    settings = {"solver": solver, "weight_decay": 0.02, "random_state": seed}
    model = ResidualTransformerRegressor(**settings, max_iter=60, n_iter_no_change=5, tol=1e-3)
    watched = model.fit(X, y).history_["penalised_loss"].to_numpy()
    module = model.net_.module_
    matrices = [p for k, p in module.named_parameters() if k.rpartition(".")[2].startswith("W_")]
    penalty = 0.01 * sum(float(p.detach().square().sum()) for p in matrices)
    end = model.__restrans_objective__(X, y, None, fitted=True).objective.value() + penalty
    assert np.all(np.diff(watched) <= 1e-12 * watched[0]) and end <= watched[-1] * (1 + 1e-12)
    # The rule that ended it, written out on what was watched.
    since, best, epochs = 0, np.inf, 0
    for value in watched:
        epochs, since = epochs + 1, 0 if value < best - 1e-3 else since + 1
        best = min(best, value)
        if since >= 5:
            break
    assert epochs == len(watched)
    plain = ResidualTransformerRegressor(**settings | {"weight_decay": 0}).fit(X, y)
    assert "penalised_loss" not in plain.history_
