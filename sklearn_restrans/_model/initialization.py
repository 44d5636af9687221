"""How the weights start."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .transformer import ResidualTransformer


def reset_parameters(
    model: ResidualTransformer,
    init: str = "gaussian",
    generator: torch.Generator | None = None,
) -> None:
    """Draw every weight anew.

    "gaussian": W ~ N(0, 1 / fan_in), the paper's full-rank start. "orthogonal": every square or
    tall matrix has orthonormal columns (rows where it is wide), same scale.
    "zero_unembedding": Gaussian, but W_U = 0, so that the loss starts equal for every beta.
    "depth_scaled": Gaussian, but the last matrix of each branch (W_V, or W_O of several heads;
    W_2) times :func:`depth_scale`; the same as "gaussian" for one layer.
    """
    # NOTE[DIFF] a column of a table starts as a vector of length about 1, not of unit entries:
    # flat attention at the start (measured: digits .905 against .868, diabetes .488 against
    # .467).
    linear = model.arch.embedding == "linear"
    _gaussian(model.W_in, generator, model.arch.n_features if linear else model.arch.d_model)
    if model.arch.embedding == "token":
        # Padding, the unknown token and positions that training may never meet start at zero. No
        # random number is drawn for a position, so that the width of X in fit changes no weight.
        nn.init.zeros_(model.W_in.detach()[..., :2, :])
        if isinstance(model.positions, nn.Parameter):
            nn.init.zeros_(model.positions)
    elif isinstance(model.positions, nn.Parameter):
        _gaussian(model.positions, generator, model.arch.d_model)
    for index, layer in enumerate(model.layers):
        for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
            weight = getattr(layer, name)
            if weight is None:
                continue
            if init == "orthogonal":
                _orthogonal(weight, generator)
            else:
                _gaussian(weight, generator, weight.shape[-2])
        if init == "depth_scaled":
            scale = depth_scale(model.layer_beta(index).detach(), model.arch.n_layers)
            for part, weight in enumerate((layer.last_of_attention, layer.W_2)):
                weight.detach().mul_(scale[..., part, None, None])
        nn.init.zeros_(layer.b_1)
        nn.init.zeros_(layer.b_2)
    if init == "zero_unembedding":
        nn.init.zeros_(model.W_U)
    elif init == "orthogonal":
        _orthogonal(model.W_U, generator)
    else:
        _gaussian(model.W_U, generator, model.arch.d_model)
    nn.init.zeros_(model.b_U)


def depth_scale(beta: Tensor, n_layers: int) -> Tensor:
    """s = sqrt(max(1 - beta^2, 1 / L)), the size of a branch beside its residual beta X.

    A part turns tokens of variance v into ones of about (beta^2 + s^2) v: L layers then neither
    multiply them (Noci et al. 2022, arXiv:2206.03126, scale by 1 / sqrt(L) for beta = 1) nor, for
    beta < 1, let them vanish sooner than they must.
    """
    return torch.sqrt(torch.clamp(1 - beta.square(), min=1 / n_layers))


def _gaussian(weight: Tensor, generator: torch.Generator | None, fan_in: int) -> None:
    nn.init.normal_(weight, std=fan_in**-0.5, generator=generator)


def _orthogonal(weight: Tensor, generator: torch.Generator | None) -> None:
    """Each matrix of (*K, i, o) by itself; torch would take a stack of them for one matrix."""
    for matrix in weight.detach().reshape(-1, *weight.shape[-2:]):
        nn.init.orthogonal_(matrix, generator=generator)
