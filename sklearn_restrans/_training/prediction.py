"""Outputs and losses without gradients, of one model or of a stack of them.

Rows travel in chunks of one size through products whose bits do not depend on a row's place, so
that a prediction does not depend on the rows beside it, to the last bit.
"""

from __future__ import annotations

import numpy as np
import torch

from .._data.batches import by_length, chunks
from .._model.chunking import predict_chunk
from .._model.shortcuts import forward


def run(module, x, mask=None, autocast=False):
    """Outputs (*K, n, c) of a batch; ``autocast`` multiplies in bfloat16."""
    if not autocast:
        return forward(module, x, mask)
    with torch.autocast(x.device.type, torch.bfloat16):
        return forward(module, x, mask).float()


def outputs(module, source, autocast=False):
    """Outputs (n, c) of every sample of a source, as float64."""
    return _of_all(module, source, run, module.arch.n_outputs, autocast)


def features(module, source, autocast=False):
    """What the read-out sees of every sample of a source, (n, d) as float64."""
    return _of_all(module, source, _read, module.arch.d_model, autocast)


def _read(module, x, mask, autocast):
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        return module.features(x, mask).float() if autocast else module.features(x, mask)


@torch.inference_mode()
def _of_all(module, source, function, width, autocast):
    module.eval()
    even, arch = module.evenly(), module.arch
    out = np.empty((len(source), width))
    for length, alike in by_length(source, np.arange(len(source))):
        for rows, n_real in chunks(source, predict_chunk(arch.at_length(length)), alike):
            batch = function(even, *source.take(rows), autocast)
            out[rows[:n_real]] = batch[:n_real].cpu().double().numpy()  # MPS has no float64
    return out


@torch.inference_mode()
def evaluate(module, criterion, data, autocast=False):
    """Weighted mean loss over a training set, (*K,), in one forward pass over it."""
    module.eval()
    even, total, weights = module.evenly(), 0.0, 0.0
    for length, alike in by_length(data.source, data.rows):
        size = predict_chunk(module.arch.at_length(length))
        for start in range(0, len(alike), size):
            positions = alike[start : start + size]
            x, target, weight = data.batch(positions)
            loss = criterion(run(even, *x, autocast), target)
            total = total + (loss if weight is None else loss * weight).sum(-1)
            weights = weights + (len(positions) if weight is None else weight.sum())
    return (total / weights).cpu().double().numpy()
