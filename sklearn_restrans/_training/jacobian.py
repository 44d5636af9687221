"""Derivatives of the outputs of single sequences by the weights."""

from __future__ import annotations

import numpy as np
import torch

from .._model.candidates import copies
from .._model.shortcuts import forward

# Largest size in bytes of the part of the Jacobian that is formed at once.
JACOBIAN_BYTES = 2**28

# Sequences differentiated together, which bounds the activations that are kept.
_CHUNK = 64


def weight_jacobians(objective, contrasts=False):
    """Derivatives of all outputs by each trained weight tensor, one tensor after the other.

    The outputs of a sequence depend on its own input only, so all sequences share the backward
    passes: one for each output of a sequence.

    Parameters
    ----------
    objective : Objective
    contrasts : bool
        Derivatives of F_k - F_c, k < c, in place of those of F.

    Yields
    ------
    weight : Parameter
    block : Tensor of shape (N, c or c - 1, *weight.shape)
    """
    module, data = objective.module, objective.data
    (x, mask), _, _ = data.batch(np.arange(len(data)))
    n_outputs = module.arch.n_outputs - contrasts
    for places in _groups(objective.parameters, len(data) * n_outputs):
        parts = []
        for start in range(0, len(data), _CHUNK):
            rows = slice(start, start + _CHUNK)
            masks = None if mask is None else mask[rows, None]
            parts.append(_of_chunk(module, x[rows, None], masks, places, contrasts))
        for place, blocks in zip(places, zip(*parts, strict=True), strict=True):
            yield objective.parameters[place], torch.cat(blocks)


def _of_chunk(module, x, mask, places, contrasts):
    """The same for sequences x (n, 1, T, f), by the weights at some places."""
    many = copies(module, len(x))
    trained = [weight for weight in many.parameters() if weight.requires_grad]
    weights = [trained[place] for place in places]
    out = forward(many, x, mask)[:, 0]
    if contrasts:
        out = out[:, :-1] - out[:, -1:]
    if not out.shape[1]:  # a single class has no contrast
        return [weight.new_zeros(len(x), 0, *weight.shape[1:]) for weight in weights]
    wanted = {"retain_graph": True, "materialize_grads": True, "allow_unused": True}
    by_output = [torch.autograd.grad(o, weights, **wanted) for o in out.sum(0)]
    return [torch.stack(derivatives, 1) for derivatives in zip(*by_output, strict=True)]


def _groups(weights, rows):
    """Places of the weights, in groups whose Jacobians together keep within the limit of bytes."""
    group, size = [], 0
    for place, weight in enumerate(weights):
        needed = weight.element_size() * rows * weight.numel()
        if group and size + needed > JACOBIAN_BYTES:
            yield group
            group, size = [], 0
        group.append(place)
        size += needed
    yield group
