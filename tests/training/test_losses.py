"""Losses of single samples are those of torch."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_pinball_loss
from torch.nn import functional as F

from sklearn_restrans._data.batches import TrainingSet
from sklearn_restrans._data.quantiles import spread
from sklearn_restrans._training.losses import (
    SampleLoss,
    constant_loss,
    output_curvature,
    weighted_quantiles,
)


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


# ---- quantiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [(0.5,), (0.1, 0.5, 0.9), (0.05, 0.6)])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_the_quantile_loss_is_the_mean_pinball_loss(levels, n_targets, seed):
    """That of scikit-learn, of the quantiles that are predicted; candidates share the targets."""
    rng = np.random.default_rng(seed)
    output = torch.tensor(rng.standard_normal((2, 7, n_targets * len(levels))))
    target = torch.tensor(rng.standard_normal((7, n_targets)))
    loss = SampleLoss("quantile", levels)
    assert loss(output, target).shape == (2, 7)
    for k in range(2):
        q = spread(output[k].numpy().reshape(7, n_targets, len(levels)), levels)
        for row in range(7):
            parts = [
                mean_pinball_loss(target[row], q[row, :, j], alpha=tau)
                for j, tau in enumerate(levels)
            ]
            assert loss(output, target)[k, row].item() == pytest.approx(np.mean(parts), rel=1e-12)


def test_the_quantile_loss_of_the_median_is_half_the_absolute_error(seed):
    rng = np.random.default_rng(seed)
    output, target = torch.tensor(rng.standard_normal((2, 9, 2)))
    half = SampleLoss("absolute_error")(output, target) / 2
    torch.testing.assert_close(SampleLoss("quantile", (0.5,))(output, target), half)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_constant_beats_the_weighted_quantiles(weighted, seed):
    """The constant of the quantile loss, against every value of the data, which hold the best."""
    rng, levels = np.random.default_rng(seed), (0.1, 0.5, 0.95)
    target = torch.tensor(rng.standard_normal((40, 2)) ** 3)
    weight = torch.tensor(rng.integers(0, 4, 40)).double() if weighted else None
    share = torch.full((40,), 1 / 40.0).double() if weight is None else weight / weight.sum()
    criterion = SampleLoss("quantile", levels)
    found = weighted_quantiles(target, share, levels)
    assert found.shape == (2, 3)
    best = 0.0
    for c in range(2):
        for j, tau in enumerate(levels):
            e = target[:, c] - target[:, c][:, None]  # a row for each constant
            losses = (share * torch.maximum(tau * e, (tau - 1) * e)).sum(1)
            best += losses.min().item() / 6
            e = target[:, c] - found[c, j]
            of_found = (share * torch.maximum(tau * e, (tau - 1) * e)).sum()
            assert of_found.item() == pytest.approx(losses.min().item(), rel=1e-12)
    data = TrainingSet(None, target, weight, np.arange(40))
    assert constant_loss(criterion, data, 6) == pytest.approx(best, rel=1e-12)


def test_weights_of_quantiles_count_as_repeated_rows(seed):
    rng, levels = np.random.default_rng(seed), (0.2, 0.5, 0.9)
    target, weight = torch.tensor(rng.standard_normal((15, 1))), rng.integers(0, 4, 15)
    repeated = target.repeat_interleave(torch.as_tensor(weight), 0)
    share = torch.as_tensor(weight / weight.sum())
    even = torch.full((len(repeated),), 1 / len(repeated)).double()
    found = weighted_quantiles(target, share, levels), weighted_quantiles(repeated, even, levels)
    # A share that is level up to rounding may pick the next value: both have the same loss.
    loss = SampleLoss("quantile", levels)
    of = [loss.pinball(q.expand(len(repeated), -1, -1), repeated).mean().item() for q in found]
    assert of[0] == pytest.approx(of[1], rel=1e-12)
