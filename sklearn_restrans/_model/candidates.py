"""Many models of one architecture as one, along a leading candidate dimension of every weight.

Every tensor of a stacked model has the candidate dimension first, but for the sinusoidal position
table, which all candidates share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from .architecture import Architecture
from .transformer import ResidualTransformer


def _is_shared(arch: Architecture, name: str) -> bool:
    return name == "positions" and arch.positions == "sinusoidal"


def stack(models: Sequence[ResidualTransformer]) -> ResidualTransformer:
    """One model that holds K models of one architecture."""
    arch = replace(models[0].arch, n_candidates=len(models))
    stacked = ResidualTransformer(arch).to(models[0].W_in)
    states = [model.state_dict() for model in models]
    own = stacked.state_dict()
    for name in own:
        parts = [state[name] for state in states]
        own[name] = parts[0] if _is_shared(arch, name) else torch.stack(parts)
    stacked.load_state_dict(own)
    stacked.draw_from(models[0].generator)
    return stacked


def unstack(stacked: ResidualTransformer) -> list[ResidualTransformer]:
    """The K models of a stacked one, each with its own copy of the weights."""
    arch = replace(stacked.arch, n_candidates=None)
    n_candidates = stacked.arch.n_candidates or 0
    models = [ResidualTransformer(arch).to(stacked.W_in) for _ in range(n_candidates)]
    copy_to(stacked, models)
    return models


@torch.no_grad()
def copy_to(stacked: ResidualTransformer, models: Sequence[ResidualTransformer]) -> None:
    """Copy the weights of every candidate into a model of its own."""
    state = stacked.state_dict()
    for k, model in enumerate(models):
        for name, value in model.state_dict().items():
            value.copy_(state[name] if _is_shared(model.arch, name) else state[name][k])


@torch.no_grad()
def select(stacked: ResidualTransformer, index: Tensor) -> ResidualTransformer:
    """A stacked model of some of the candidates, by their numbers."""
    arch = replace(stacked.arch, n_candidates=len(index))
    chosen = ResidualTransformer(arch).to(stacked.W_in)
    state = stacked.state_dict()
    for name, value in chosen.state_dict().items():
        value.copy_(state[name] if _is_shared(arch, name) else state[name][index])
    chosen.draw_from(stacked.generator)
    return chosen


def copies(model: ResidualTransformer, n: int) -> ResidualTransformer:
    """One model n times over as a stacked one, whose weights are views of its own.

    With a sequence for each copy, the derivatives by the copies are those of single sequences.
    """
    arch = replace(model.arch, n_candidates=n)
    many = ResidualTransformer(arch).eval()
    many.products, many.number_of_id = model.products, model.number_of_id
    for part, own in zip(many.modules(), model.modules(), strict=True):
        for name, weight in own.named_parameters(recurse=False):
            view = weight.detach().expand(n, *weight.shape)
            setattr(part, name, nn.Parameter(view, weight.requires_grad))
        for name, buffer in own.named_buffers(recurse=False):
            shared = _is_shared(arch, name)
            setattr(part, name, buffer if shared else buffer.expand(n, *buffer.shape))
    return many
