"""Derivatives of single sequences, all at once, are those of the plain formulas."""

import numpy as np
import pytest
import torch
from objectives import dense_jacobian, make_objective

from sklearn_restrans._training import jacobian
from sklearn_restrans._training.jacobian import weight_jacobians

SETTINGS = [
    {},
    {"readout": "mean"},
    {"norm": "pre", "n_layers": 2, "n_heads": 2},
    {"norm": "post", "readout": "mean"},
    {"learn_beta": True, "positions": "sinusoidal"},
    {"positions": None, "n_outputs": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_blocks_are_those_of_the_plain_formulas(settings, seed):
    objective = make_objective(seed, **settings)
    blocks = list(weight_jacobians(objective))
    assert all(w is p for (w, _), p in zip(blocks, objective.parameters, strict=True))
    together = torch.cat([block.flatten(2).flatten(0, 1) for _, block in blocks], 1)
    # Sums of a few dozen products in float64, of size 1 to 10.
    np.testing.assert_allclose(together, dense_jacobian(objective), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_outputs", [2, 3])
def test_contrasts_are_differences_to_the_last_output(n_outputs, seed):
    objective = make_objective(seed, n_outputs=n_outputs)
    whole, contrasts = weight_jacobians(objective), weight_jacobians(objective, contrasts=True)
    for (_, block), (_, difference) in zip(whole, contrasts, strict=True):
        expected = block[:, :-1] - block[:, -1:]
        np.testing.assert_allclose(difference, expected, rtol=0, atol=1e-13)


def test_parts_give_the_whole(monkeypatch, seed):
    """Chunks of sequences and groups of weights change nothing but the last digits."""
    objective = make_objective(seed)
    whole = list(weight_jacobians(objective))
    monkeypatch.setattr(jacobian, "JACOBIAN_BYTES", 1)
    monkeypatch.setattr(jacobian, "_CHUNK", 3)
    for (_, block), (_, part) in zip(whole, weight_jacobians(objective), strict=True):
        np.testing.assert_allclose(part, block, rtol=0, atol=1e-13)


def test_the_model_stays_as_it_is(seed):
    objective = make_objective(seed)
    before = {k: v.clone() for k, v in objective.module.state_dict().items()}
    objective.module.train()
    list(weight_jacobians(objective))
    assert objective.module.training
    for name, value in objective.module.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None for p in objective.parameters)
