"""Losses of single samples are those of torch."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sklearn_restrans._training.losses import SampleLoss


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
