"""What a net has learnt as plain arrays, and nets made of such arrays."""

from __future__ import annotations

import copy
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from .._model.architecture import Architecture
from .._model.transformer import ResidualTransformer
from .skorch_names import History


def module_state(module):
    """A model as plain values: its architecture, number type and weights."""
    return {
        "arch": asdict(module.arch),
        "dtype": str(module.W_in.dtype).removeprefix("torch."),
        "weights": _to_numpy(module.state_dict()),
    }


def unfilled_module(state):
    """A model of the architecture and number type in what :func:`module_state` returned."""
    module = ResidualTransformer(Architecture(**state["arch"]))
    return module.to(getattr(torch, state["dtype"]))


def restore_module(state):
    """The model that :func:`module_state` was asked about, on the CPU."""
    module = unfilled_module(state)
    module.load_state_dict(_to_torch(state["weights"]))
    return module.eval()


def net_state(net, with_optimizer):
    """Model, history, and optimiser state if asked: no tensor, no device, no skorch.

    Copies: what the net learns later does not change them.
    """
    state = module_state(net.module_)
    state["history"] = [dict(row) for row in net.history.to_list()]
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
