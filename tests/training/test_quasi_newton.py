"""L-BFGS is SciPy's on the same loss, with the loop, stop rule and history of the others."""

import numpy as np
import pytest
import torch
from objectives import make_objective
from scipy.optimize import minimize

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
)
from sklearn_restrans._training.quasi_newton import QuasiNewton


def data(seed, n=30):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5, 3)), rng.standard_normal(n)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_loss_and_its_slope_have_the_penalty_of_the_matrices(decay, seed):
    objective = make_objective(seed)
    descent = QuasiNewton(objective, decay)
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(objective.size)
    value, slope = descent._value_and_slope(theta)
    penalty = sum(
        decay / 2 * float(p.detach().square().sum())
        for name, p in objective.module.named_parameters()
        if name.rpartition(".")[2].startswith("W_")
    )
    assert value == pytest.approx(objective.value() + penalty, rel=1e-13)
    direction = rng.standard_normal(objective.size)
    ahead, behind = (descent._value_and_slope(theta + h * direction)[0] for h in (1e-6, -1e-6))
    # Central differences of step 1e-6: an error of 1e-10 of the loss.
    assert slope @ direction == pytest.approx((ahead - behind) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_the_path_is_scipys(decay, seed):
    """Its losses are those of SciPy's minimiser on a loss written here."""
    X, y = data(seed)
    model = ResidualTransformerRegressor(
        solver="lbfgs", max_iter=6, weight_decay=decay, random_state=seed
    ).fit(X, y)
    at = ResidualTransformerRegressor(random_state=seed).__restrans_objective__(X, y, None)
    module, target = at.objective.module, at.objective.data.target
    (x, mask), _, _ = at.objective.data.batch(np.arange(len(X)))
    named = [(name, p) for name, p in module.named_parameters()]

    def value_and_slope(theta):
        pieces = torch.as_tensor(theta).split([p.numel() for _, p in named])
        for (_, p), piece in zip(named, pieces, strict=True):
            p.data.copy_(piece.view_as(p))
        loss = (module(x, mask) - target).square().mean()
        for name, p in named:
            if name.rpartition(".")[2].startswith("W_"):
                loss = loss + decay / 2 * p.square().sum()
        slope = torch.autograd.grad(loss, [p for _, p in named])
        return loss.item(), torch.cat([g.flatten() for g in slope]).numpy()

    start = torch.cat([p.detach().flatten() for _, p in named]).numpy()
    end = minimize(
        value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 6, "maxcor": 10}
    ).x
    fitted = torch.cat([p.detach().flatten() for p in model.net_.module_.parameters()])
    # Six iterations multiply the rounding of two ways to the same loss.
    np.testing.assert_allclose(fitted, end, rtol=0, atol=1e-6)
    assert model.n_iter_ == 6


def test_a_row_of_the_history_is_an_iteration(seed):
    X, y = data(seed)
    model = ResidualTransformerRegressor(solver="lbfgs", max_iter=12, random_state=seed).fit(X, y)
    history = model.history_
    assert np.all(np.diff(history["train_loss"]) < 0)
    assert (history["n_evaluations"] >= 1).all()
    assert (history["step_norm"] > 0).all()
    assert history["learning_rate"].isna().all()
    assert (history["dur"] > 0).all()
    frame = model.convergence_.to_frame()
    assert {"step_norm", "n_evaluations", "gradient_norm"} <= set(frame.columns)
    assert model.convergence_.local_rate().rate > 0
    # The first row holds the loss at the start, the rows after it those of the steps before them.
    one = ResidualTransformerRegressor(solver="lbfgs", max_iter=1, random_state=seed).fit(X, y)
    assert one.loss_curve_[0] == model.loss_curve_[0]
    at = one.__restrans_objective__(X, y, None, fitted=True)
    assert at.objective.value() == pytest.approx(model.loss_curve_[1], rel=1e-12)


def test_the_stop_rule_and_validation_are_those_of_the_other_solvers(seed):
    X, y = data(seed, 60)
    patient = ResidualTransformerRegressor(
        solver="lbfgs", random_state=seed, early_stopping=True, n_iter_no_change=3
    ).fit(X, y)
    best = int(np.argmax(patient.validation_scores_)) + 1
    assert patient.best_iteration_ == best
    assert patient.n_iter_ < 200
    loose = ResidualTransformerRegressor(
        solver="lbfgs", random_state=seed, n_iter_no_change=2, tol=10.0
    ).fit(X, y)
    assert loose.n_iter_ == 3


@pytest.mark.parametrize("loss", ["absolute_error", "huber"])
def test_every_loss_is_taken(loss, seed):
    X, y = data(seed)
    model = ResidualTransformerRegressor(solver="lbfgs", loss=loss, max_iter=30, random_state=seed)
    curve = model.fit(X, y).loss_curve_
    assert curve[-1] < 0.5 * curve[0]


def test_a_classifier_separates_its_training_rows(seed):
    X, y = data(seed)
    model = ResidualTransformerClassifier(solver="lbfgs", random_state=seed)
    assert model.fit(X, y > 0).score(X, y > 0) == 1.0


def test_at_a_minimum_there_is_one_row_and_nothing_moves():
    X = np.random.default_rng(0).standard_normal((8, 4, 2))
    model = ResidualTransformerClassifier(solver="lbfgs", random_state=0).fit(X, np.zeros(8))
    assert model.n_iter_ == 1
    assert model.history_["step_norm"].tolist() == [0.0]


def test_max_iter_counts_iterations_and_auto_is_that_of_scikit_learns_mlp(seed):
    X, y = data(seed)
    model = ResidualTransformerRegressor(solver="lbfgs", random_state=seed, n_iter_no_change=10**6)
    assert model.fit(X, y).n_iter_ <= 200
    assert model.set_params(max_iter=4).fit(X, y).n_iter_ == 4


def test_warm_start_goes_on_from_the_weights(seed):
    X, y = data(seed)
    model = ResidualTransformerRegressor(
        solver="lbfgs", max_iter=5, warm_start=True, random_state=seed
    ).fit(X, y)
    last = model.__restrans_objective__(X, y, None, fitted=True).objective.value()
    model.fit(X, y)
    assert model.n_iter_ == 10
    assert model.loss_curve_[5] == pytest.approx(last, rel=1e-12)


def test_a_loss_that_is_not_finite_at_the_start_says_what_to_lower():
    X, y = data(0)
    model = ResidualTransformerRegressor(1e160, solver="lbfgs", random_state=0)
    with pytest.raises(DivergenceError, match="residual_beta"):
        model.fit(X, y)


def test_ctrl_c_goes_to_the_caller(monkeypatch):
    X, y = data(0)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(QuasiNewton, "measured_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ResidualTransformerRegressor(solver="lbfgs", random_state=0).fit(X, y)
