"""Train only those rows of a large table of vectors whose token ids the data hold.

The gradient of the other rows is zero, and no row decays. Of 30,000 rows of a pretrained encoder a
few thousand texts hold some thousands, and each step of Adam would read and write all of them. It
must not remember an earlier fit, which other rows still follow.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def met_ids_only(net, ids):
    """Within the block the table of a net's model holds the rows of some ids, sorted, alone.

    Afterwards it is whole again, with what those rows have learnt; so is the optimiser's state.
    """
    module, full = net.module_, net.module_.W_in
    ids = torch.as_tensor(ids, device=full.device)
    number = torch.zeros(len(full), dtype=torch.int64, device=full.device)
    number[ids] = torch.arange(len(ids), device=full.device)
    few = nn.Parameter(full.detach()[ids])
    _replace(net.optimizer_, full, few, lambda value: value[ids])
    module.W_in, module.number_of_id = few, number
    try:
        yield
    finally:
        with torch.no_grad():
            full[ids] = few
        _replace(net.optimizer_, few, full, lambda value: _spread(value, ids, full))
        module.W_in, module.number_of_id = full, None


def _spread(value, ids, like):
    whole = torch.zeros_like(like)
    whole[ids] = value
    return whole


def _replace(optimizer, old, new, convert):
    """Give an optimiser another weight for one it has, with what it remembers of that."""
    for group in optimizer.param_groups:
        group["params"] = [new if weight is old else weight for weight in group["params"]]
    remembered = optimizer.state.pop(old, None)
    if remembered:
        optimizer.state[new] = {
            name: convert(value) if getattr(value, "shape", ()) == old.shape else value
            for name, value in remembered.items()
        }
