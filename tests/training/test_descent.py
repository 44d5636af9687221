"""Gradient descent: exact derivatives of Phi, the measured step, and what happens when it fails."""

import math

import numpy as np
import pytest
import torch
from objectives import dense_jacobian, make_objective

from sklearn_restrans import DivergenceError, ResidualTransformerRegressor
from sklearn_restrans._training.descent import GradientDescent, gradient_norm, smooth_step


class Plane:
    """Phi(theta) of a few numbers: an objective whose curvature is known."""

    def __init__(self, phi, start, curvature=None, zero_loss=0.0, dtype=torch.float64):
        self.phi, self.curvature, self._zero_loss = phi, curvature, zero_loss
        self.parameters = [torch.tensor(start, dtype=dtype, requires_grad=True)]
        self.n_measured = 0

    def zero_loss(self):
        return self._zero_loss

    def gradient(self):
        phi = self.phi(self.parameters[0])
        return phi.item(), list(torch.autograd.grad(phi, self.parameters))

    def largest_curvature(self, seed):
        self.n_measured += 1
        if self.curvature is not None:
            return self.curvature
        hessian = torch.autograd.functional.hessian(self.phi, self.parameters[0].detach())
        return torch.linalg.eigvalsh(hessian)[-1].item()


# ---- derivatives ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 20, 256])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_loss_and_gradient_are_those_of_the_formula(chunk, norm, seed):
    """Phi = s/2 sum_i w_i ||F_i - Y_i||^2, s = 2 / (N c), by the plain forward pass."""
    objective = make_objective(seed, chunk=chunk, norm=norm)
    (x, mask), target, weight = objective.data.batch(np.arange(20))
    squares = (objective.module(x, mask) - target).square().sum(1)
    phi = 1 / (20 * 2) * (weight * squares).sum()
    expected = torch.autograd.grad(phi, objective.parameters)
    loss, gradient = objective.gradient()
    assert loss == pytest.approx(phi.item(), rel=1e-13)
    assert objective.value() == pytest.approx(loss, rel=1e-13)
    for g, e in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=0, atol=1e-13)
    flat = torch.cat([e.flatten() for e in expected])
    assert gradient_norm(gradient) == pytest.approx(flat.norm().item(), rel=1e-13)
    of_zero = (weight[:, None] * target.square()).sum().item() / 40
    assert objective.zero_loss() == pytest.approx(of_zero, rel=1e-13)


def dense_hessian(objective):
    """Hessian of Phi by the weights, one flat vector of them."""
    shapes = [p.shape for p in objective.parameters]
    names = [k for k, p in objective.module.named_parameters()]
    (x, mask), target, weight = objective.data.batch(np.arange(len(objective.data)))

    def phi(theta):
        pieces = theta.split([s.numel() for s in shapes])
        weights = {k: t.view(s) for k, t, s in zip(names, pieces, shapes, strict=True)}
        output = torch.func.functional_call(objective.module, weights, (x, mask))
        return (weight * objective.criterion(output, target)).mean()

    theta = torch.cat([p.detach().flatten() for p in objective.parameters])
    return torch.autograd.functional.hessian(phi, theta).numpy()


@pytest.mark.parametrize("settings", [{}, {"init": "zero_unembedding"}, {"learn_beta": True}])
def test_hessian_products_and_the_largest_curvature(settings, seed):
    objective = make_objective(seed, chunk=7, **settings)
    H = dense_hessian(objective)
    vector = np.random.default_rng(seed).standard_normal(len(H))
    product, scale = objective.hessian_product(vector), np.abs(H @ vector).max()
    np.testing.assert_allclose(product, H @ vector, rtol=0, atol=1e-12 * scale)
    largest = np.linalg.eigvalsh(H)[-1]
    found = objective.largest_curvature(seed)
    # Ritz values are lower bounds; 10 products leave 5 % at most (theory.md 3).
    assert 0.95 * largest <= found <= largest * (1 + 1e-12)
    assert smooth_step(objective, seed) == 1 / (1.05 * found)


@pytest.mark.parametrize("settings", [{}, {"norm": "post", "n_heads": 2}, {"learn_beta": True}])
def test_outputs_are_pulled_back_and_changes_pushed_forward(settings, seed):
    """J^T q and J v, J the dense Jacobian of the plain formulas."""
    objective, rng = make_objective(seed, chunk=7, **settings), np.random.default_rng(seed)
    J = dense_jacobian(objective)
    slope = torch.tensor(rng.standard_normal((20, 2)))
    pulled = torch.cat([g.flatten() for g in objective.pull_back(slope)])
    np.testing.assert_allclose(pulled, J.T @ slope.flatten(), rtol=0, atol=1e-12)
    change = [torch.tensor(rng.standard_normal(p.shape)) for p in objective.parameters]
    pushed = objective.push_forward(change)
    flat = torch.cat([c.flatten() for c in change])
    np.testing.assert_allclose(pushed.flatten(), J @ flat, rtol=0, atol=1e-12)
    (x, mask), _, _ = objective.data.batch(np.arange(20))
    np.testing.assert_allclose(
        objective.outputs(), objective.module(x, mask).detach(), rtol=0, atol=1e-14
    )


def test_derivatives_do_not_touch_the_model(seed):
    objective = make_objective(seed)
    before = [p.detach().clone() for p in objective.parameters]
    objective.gradient(), objective.largest_curvature(0), objective.value()
    objective.pull_back(objective.outputs()), objective.push_forward(before)
    for p, b in zip(objective.parameters, before, strict=True):
        assert torch.equal(p, b) and p.grad is None


# ---- the step ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["auto", 0.05])
def test_a_step_is_minus_mu_times_the_gradient(step, seed):
    objective = make_objective(seed)
    descent = GradientDescent(objective, step, seed)
    for _ in range(3):
        before = [p.detach().clone() for p in objective.parameters]
        gradient = objective.gradient()[1]
        looked = descent.step()
        for p, b, g in zip(objective.parameters, before, gradient, strict=True):
            np.testing.assert_allclose(p.detach(), b - looked.step_size * g, rtol=0, atol=1e-15)


def quartic(theta):
    """Curvature 1 + 3 x^2: it falls as x goes to 0."""
    return (theta**2 / 2 + theta**4 / 4).sum()


def test_kappa_is_the_mean_curvature_of_the_step():
    descent = GradientDescent(Plane(quartic, [1.0]), 0.1, 0)
    first, second = descent.step(), descent.look()
    assert math.isnan(first.kappa_before)
    # Phi(1) = .75, gradient 2, so x = .8
    after = 0.8**2 / 2 + 0.8**4 / 4
    assert second.kappa_before == pytest.approx(2 * (after - 0.75 + 0.1 * 4) / (0.01 * 4))


def test_auto_is_one_over_the_curvature_and_only_ever_lowered():
    descent = GradientDescent(Plane(quartic, [1.0]), "auto", 0)
    steps = [descent.step() for _ in range(60)]
    sizes = [step.step_size for step in steps]
    assert sizes[0] == pytest.approx(1 / (1.05 * 4)) and steps[0].largest_curvature == 4.0
    assert np.all(np.diff(sizes) <= 0) and not any(step.undone for step in steps)
    # curvature has fallen to 1: measured, but no reason to take longer steps
    assert steps[-1].largest_curvature == pytest.approx(1.0) and sizes[-1] == sizes[0]


def test_curvature_is_measured_again_at_25_50_75_100_and_every_hundredth_step():
    plane = Plane(lambda theta: (theta**2 * 0.5).sum(), [1.0], curvature=20.0)
    descent, at = GradientDescent(plane, "auto", 0), []
    for t in range(420):
        before = plane.n_measured
        descent.step()
        if plane.n_measured > before:
            at.append(t)
    assert at == [25, 50, 75, 100, 200, 300, 400]


def test_curvature_is_measured_again_when_a_step_met_more():
    """Phi = exp(5 x) - 5 x from the left, where it is flat: the curvature at 0 is 25."""
    rising = Plane(lambda theta: (torch.exp(5 * theta) - 5 * theta).sum(), [-2.0])
    descent = GradientDescent(rising, "auto", 0)
    descent.step_size = 0.05  # as a small L would have it
    sizes = [descent.step().step_size for _ in range(40)]
    assert rising.n_measured > 2 and sizes[-1] < 0.05
    assert sizes[-1] <= 1.01 / 25 and descent.losses[-1] == pytest.approx(1.0, abs=1e-2)


def kink(theta):
    """Slope 1 and curvature 0.01 on the right, a wall of curvature 100 on the left of 0."""
    x = theta[0]
    return x + 0.005 * x**2 if x > 0 else 50 * x**2 - x


def test_a_step_that_raises_the_loss_is_undone_and_halved():
    plane = Plane(kink, [0.5], zero_loss=1.0)
    descent = GradientDescent(plane, "auto", 0)
    first, second = descent.step(), descent.step()
    assert first.step_size == pytest.approx(1 / (1.05 * 0.01))  # the wall cannot be seen from here
    assert second.undone and second.kappa_before > 2 / first.step_size
    assert (second.loss, second.gradient_norm) == (first.loss, first.gradient_norm)
    assert second.step_size == first.step_size / 2
    losses = [descent.step() for _ in range(30)]
    kept = [step.loss for step in losses if not step.undone]
    assert len(kept) < 30 and np.all(np.diff(kept) < 0) and kept[-1] < 1e-2


def test_a_loss_that_is_no_number_is_undone():
    plane = Plane(lambda theta: (theta - torch.log(theta)).sum(), [0.1], curvature=1.0)
    descent = GradientDescent(plane, "auto", 0)
    descent.step_size = -1.0  # to x = -8.9, where the logarithm is no number
    descent.step()
    descent.step_size = 1.0
    looked = descent.look()
    assert looked.undone and looked.loss == descent.losses[0] and looked.kappa_before == math.inf
    assert not descent.diverged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_undoes_nothing_and_measures_nothing(dtype, seed):
    """A loss of 1000 that can no longer fall jitters by its last digits."""
    rng = np.random.default_rng(seed)
    jitter = 4 * torch.finfo(dtype).eps * 1000

    def noisy(theta):
        return 1000 + (theta**2).sum() / 2 + jitter * float(rng.standard_normal())

    plane = Plane(noisy, [1e-3, -2e-3], curvature=1.0, zero_loss=1000.0, dtype=dtype)
    descent = GradientDescent(plane, "auto", 0)
    steps = [descent.step() for _ in range(90)]
    assert not any(step.undone for step in steps)
    assert plane.n_measured == 1 + 3  # the start, and steps 25, 50 and 75
    assert any(np.diff([step.loss for step in steps]) > 0)


def test_a_float32_descent_keeps_the_steps_of_float64(seed):
    """Near a loss of 0 what float32 leaves of kappa is no reason to measure or to undo.

    Taken at its word it made 500 to 900 of 1,500 steps measure, and the steps 1,000 times shorter.
    """
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((6, 4, 2)), rng.standard_normal(6)
    model = ResidualTransformerRegressor(
        solver="gd", learning_rate_init="auto", d_model=8, d_ff=8, activation="tanh", max_iter=600
    ).set_params(tol=0, n_iter_no_change=600, device="cpu", random_state=seed)
    steps = [
        model.set_params(dtype=dtype).fit(X, y).history_["learning_rate"].iloc[-1]
        for dtype in ("float32", "float64")
    ]
    # L by Lanczos on float32 products: about eps times the number of weights
    assert steps[0] == pytest.approx(steps[1], rel=1e-3)
    assert model.loss_curve_[-1] < 1e-4 * model.loss_curve_[0]


# ---- a fixed step -----------------------------------------------------------------------------


def bowl(theta):
    return (theta**2).sum() / 2


def test_a_fixed_step_is_taken_until_it_plainly_diverges():
    descent, looked = GradientDescent(Plane(bowl, [1.0]), 2.5, 0), []
    while not (looked and descent.diverged):
        looked.append(descent.step())
    assert len(looked) == 4  # the start, and three rises
    assert [step.step_size for step in looked] == [2.5] * 4
    assert not any(step.undone for step in looked)
    assert [step.kappa_before for step in looked[1:]] == pytest.approx([1.0] * 3)
    assert descent.step_that_works() == pytest.approx(1 / 1.05)
    assert descent.objective.parameters[0].item() == 1.0


def test_a_fixed_step_may_go_up_now_and_then():
    descent = GradientDescent(Plane(kink, [0.03], zero_loss=1.0), 0.015, 0)
    for _ in range(200):
        descent.step()
        assert not descent.diverged
    assert any(np.diff(descent.losses) > 0)


def test_rising_below_the_start_is_no_divergence():
    descent = GradientDescent(Plane(bowl, [1.0]), 2.5, 0)
    descent.losses = [5.0, 1.0, 2.0, 3.0, 4.0]
    assert not descent.diverged
    descent.losses.append(5.1)
    assert descent.diverged


def test_a_loss_that_is_no_number_is_divergence():
    descent = GradientDescent(Plane(lambda theta: torch.exp(theta**2).sum(), [3.0]), 10.0, 0)
    descent.step()
    assert not descent.diverged
    descent.step()
    assert descent.diverged


def test_fit_says_which_step_would_have_worked(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 4, 2)), rng.standard_normal(30)
    model = ResidualTransformerRegressor(
        solver="gd", learning_rate_init=3.0, dtype="float64", random_state=seed, max_iter=60
    )
    with pytest.raises(DivergenceError, match="would have worked") as caught:
        model.fit(X, y)
    step = float(str(caught.value).split("a step of ")[1].split(" would")[0])
    at = model.__restrans_objective__(X, y)
    objective, start = at.objective, at.seed
    assert step == pytest.approx(smooth_step(objective, start), rel=1e-3)
    losses = model.set_params(learning_rate_init=step).fit(X, y).loss_curve_
    assert losses[-1] < losses[0]
