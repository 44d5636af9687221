"""Small objectives, with masks and weights, for the tests of descents."""

import numpy as np
import torch

from sklearn_restrans._data.batches import TrainingSet
from sklearn_restrans._data.sources import DenseSource
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans._training.descent import Objective
from sklearn_restrans._training.losses import SampleLoss


def make_objective(
    seed, n=20, chunk=256, dtype=torch.float64, init="gaussian", loss="squared_error", **arch
):
    """A small model on padded sequences with weights."""
    rng = np.random.default_rng(seed)
    settings = {"n_features": 2, "n_outputs": 2, "d_model": 4, "d_ff": 6, "activation": "gelu"}
    module = ResidualTransformer(Architecture(n_tokens=3, **settings | arch))
    reset_parameters(module, init, torch.Generator().manual_seed(seed))
    x = torch.tensor(rng.standard_normal((n, 3, 2))).to(dtype)
    mask = np.arange(3) < rng.integers(1, 4, n)[:, None]
    target = torch.tensor(rng.standard_normal((n, module.arch.n_outputs))).to(dtype)
    if loss == "log_loss":
        target = target.argmax(1)
    weight = torch.tensor(rng.uniform(0.5, 1.5, n)).to(dtype)
    data = TrainingSet(DenseSource(x, mask), target, weight, np.arange(n))
    return Objective(module.to(dtype), SampleLoss(loss), data, chunk)


def dense_jacobian(objective):
    """Derivatives of all outputs by all weights (N c, P), by the plain forward pass."""
    shapes = [p.shape for p in objective.parameters]
    names = [k for k, p in objective.module.named_parameters() if p.requires_grad]
    (x, mask), _, _ = objective.data.batch(np.arange(len(objective.data)))

    def outputs(theta):
        pieces = theta.split([s.numel() for s in shapes])
        weights = {k: t.view(s) for k, t, s in zip(names, pieces, shapes, strict=True)}
        return torch.func.functional_call(objective.module, weights, (x, mask)).flatten()

    theta = torch.cat([p.detach().flatten() for p in objective.parameters])
    return torch.autograd.functional.jacobian(outputs, theta)
