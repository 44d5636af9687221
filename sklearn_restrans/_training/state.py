"""What a net has learnt as plain arrays, and nets made of such arrays."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from .skorch_names import History


def net_state(net, with_optimizer):
    """Weights, and optimiser state if asked, as numpy arrays: no tensor, no device, no skorch.

    Copies: what the net learns later does not change them.
    """
    state = {
        "weights": _to_numpy(net.module_.state_dict()),
        "history": [dict(row) for row in net.history.to_list()],
    }
    if with_optimizer:
        state["optimizer"] = _to_numpy(net.optimizer_.state_dict())
    return state


def restore_net(net, state):
    """Fill an initialised net with what :func:`net_state` returned."""
    net.module_.load_state_dict(_to_torch(state["weights"]))
    net.module_.eval()
    history = History()
    history.extend(copy.deepcopy(state["history"]))
    net.history_ = history
    if "optimizer" in state:
        net.optimizer_.load_state_dict(_to_torch(state["optimizer"]))
    return net


def continue_net(net, old):
    """Give a new net the weights, history and, for the same solver, optimiser state of ``old``.

    Step size, weight decay and a fixed beta stay those of the new net.
    """
    groups = [
        {k: group[k] for k in ("lr", "weight_decay")} for group in net.optimizer_.param_groups
    ]
    beta = net.module_.beta.detach().clone()
    restore_net(net, net_state(old, with_optimizer=net.settings.solver == old.settings.solver))
    for group, settings in zip(net.optimizer_.param_groups, groups, strict=True):
        group.update(settings)
    if not net.module_.arch.learn_beta:
        net.module_.beta.copy_(beta)
    return net


def _to_numpy(value):
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, dict):
        return {k: _to_numpy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_numpy(v) for v in value]
    return value


def _to_torch(value):
    if isinstance(value, np.ndarray | np.generic):
        return torch.tensor(value)  # a copy: the array may be mapped from a file, and read-only
    if isinstance(value, dict):
        return {k: _to_torch(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_torch(v) for v in value]
    return value
