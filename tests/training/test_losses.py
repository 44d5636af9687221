"""Losses of single samples are those of torch."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sklearn_restrans._training.losses import SampleLoss, output_curvature


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("squared_error", F.mse_loss),
        ("absolute_error", F.l1_loss),
        ("huber", F.huber_loss),
    ],
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_regression_losses_are_those_of_torch(n_outputs, kind, reference, seed):
    """One number a sample, the mean over its outputs; candidates share the targets."""
    rng = np.random.default_rng(seed)
    output = torch.tensor(3 * rng.standard_normal((2, 7, n_outputs)))
    target = torch.tensor(rng.standard_normal((7, n_outputs)))
    expected = reference(output, target.expand_as(output), reduction="none").mean(-1)
    torch.testing.assert_close(SampleLoss(kind)(output, target), expected)
    assert SampleLoss(kind)(output[0], target).shape == (7,)
    mean = reference(output[0], target)
    torch.testing.assert_close(SampleLoss(kind)(output[0], target).mean(), mean)


def test_log_loss_is_the_cross_entropy_of_torch(seed):
    rng = np.random.default_rng(seed)
    output = torch.tensor(3 * rng.standard_normal((2, 7, 4)))
    target = torch.tensor(rng.integers(0, 4, 7))
    loss = SampleLoss("log_loss")
    for k in range(2):
        expected = F.cross_entropy(output[k], target, reduction="none")
        torch.testing.assert_close(loss(output[k], target), expected)
        torch.testing.assert_close(loss(output, target)[k], expected)
    far = torch.tensor([[1e4, -1e4]]).double()
    assert loss(far, torch.tensor([1])).item() == 2e4, "stays finite where softmax is 0"


@pytest.mark.parametrize("kind", ["squared_error", "log_loss"])
@pytest.mark.parametrize("n_outputs", [1, 2, 4])
def test_the_curvature_by_the_outputs_is_that_of_torch(n_outputs, kind, seed):
    """Slope and Hessian S S^T of the weighted mean, and S rho the slope."""
    rng, n = np.random.default_rng(seed), 6
    F = torch.tensor(3 * rng.standard_normal((n, n_outputs)), requires_grad=True)
    weight = torch.tensor(rng.integers(0, 3, n)).double()
    target = torch.tensor(rng.standard_normal((n, n_outputs)))
    target = target.argmax(1) if kind == "log_loss" else target
    criterion = SampleLoss(kind)

    def phi(outputs):
        return (weight * criterion(outputs, target)).mean()

    found = output_curvature(criterion, F.detach(), target, weight)
    assert found.loss == pytest.approx(phi(F).item(), rel=1e-13)
    torch.testing.assert_close(found.slope, torch.autograd.grad(phi(F), F)[0])
    hessian = torch.autograd.functional.hessian(phi, F.detach())
    width = n_outputs - found.contrasts
    assert found.contrasts == (kind == "log_loss")
    units = torch.eye(width, dtype=torch.float64)
    for i in range(n):
        columns = [found.times(u.expand(n, width))[i] for u in units]
        S = torch.stack(columns, 1) if columns else torch.zeros(0, 0, dtype=torch.float64)
        torch.testing.assert_close(S @ S.T, hessian[i, :width, i, :width])
        rows = found.transposed(units.expand(n, width, width))[i]
        torch.testing.assert_close(rows, S.T)
    torch.testing.assert_close(found.times(found.residual), found.slope[:, :width])
    torch.testing.assert_close(found.to_outputs(found.slope[:, :width]), found.slope)
    if kind == "squared_error":
        assert found.residual.square().sum().item() / 2 == pytest.approx(found.loss, rel=1e-13)


def test_the_curvature_of_a_certain_probability_is_finite():
    """exp(-2,000) is 0 in floating point: right for certain, and wrong for certain."""
    F = torch.tensor([[0.0, 2000.0], [2000.0, 0.0]])
    found = output_curvature(SampleLoss("log_loss"), F, torch.tensor([1, 1]), None)
    for values in (found.residual, found.times(found.residual), found.slope):
        assert values.isfinite().all()
    torch.testing.assert_close(found.slope[1].tolist(), [0.5, -0.5])
