"""The products a layer is made of, in two kinds that differ in their last bits only.

`PLAIN` is the formula: training, derivatives and diagnostics use it. `EVEN` is for prediction.
Matrix kernels choose their path by shape, and for some shapes they do not treat all rows of x
alike: the last bits of a row would depend on its place in the chunk. Padding with zeros, up to
shapes that they do treat alike, changes no value.

Shapes. ``K`` is an optional leading candidate dimension, written ``*K`` (see `transformer`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Products:
    """The plain products."""

    def project(self, x: Tensor, weight: Tensor) -> Tensor:
        """x (*K, n, ..., i) times weight (*K, i, o): one GEMM, or one batched GEMM over K."""
        if weight.ndim == 2:
            return x @ weight
        return torch.bmm(x.flatten(1, -2), weight).unflatten(1, x.shape[1:-1])

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (*K, n, ..., i) times weight (*K, i, o) plus bias (*K, o), in one kernel."""
        if weight.ndim == 2:
            return torch.addmm(bias, x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])
        product = torch.baddbmm(bias[:, None], x.flatten(1, -2), weight)
        return product.unflatten(1, x.shape[1:-1])

    def rows_times(self, rows: Tensor, x: Tensor) -> Tensor:
        """A few rows (*K, n, r, i) times the sequence they belong to, x (*K, n, i, o)."""
        return rows @ x

    def per_head(self, x: Tensor, weight: Tensor) -> Tensor:
        """x (*K, h, n, i) times weight (*K, h, i, o)."""
        return x @ weight

    def widen(self, x: Tensor) -> Tensor:
        """Query, key and value of a head (*K, n, h, T, d / h), in the width they are multiplied."""
        return x


class EvenProducts(Products):
    """The same values, and every row in the same bits wherever it stands."""

    def project(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().project(x, _evenly(weight))[..., : weight.shape[-1]]

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return self.project(x, weight) + per_candidate(bias, x)

    def rows_times(self, rows: Tensor, x: Tensor) -> Tensor:
        # Zero rows up to a multiple of four: kernels for fewer do not treat all sequences alike.
        r = rows.shape[-2]
        return (F.pad(rows, (0, 0, 0, -r % 4)) @ x)[..., :r, :]

    def per_head(self, x: Tensor, weight: Tensor) -> Tensor:
        return (x @ _evenly(weight))[..., : weight.shape[-1]]

    def widen(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, -x.shape[-1] % 8))


PLAIN, EVEN = Products(), EvenProducts()


def _evenly(weight: Tensor) -> Tensor:
    """Weights in row-major order, with zero columns up to a multiple of eight.

    Kernels for other widths, and for transposed weights, do not treat all rows of x alike.
    """
    return F.pad(weight, (0, -weight.shape[-1] % 8)).contiguous()


def per_candidate(vector: Tensor, like: Tensor, trailing: int = 1) -> Tensor:
    """View a (*K, ...) vector so that it broadcasts over the middle axes of ``like``."""
    n_lead = vector.ndim - trailing
    middle = like.ndim - n_lead - trailing
    return vector.reshape(*vector.shape[:n_lead], *(1,) * middle, *vector.shape[n_lead:])


def last_token(mask: Tensor | None, n_tokens: int) -> Tensor | None:
    """Index (*K, n) of the last real token of each sequence; None when that is always T - 1."""
    if mask is None:
        return None
    return n_tokens - 1 - mask.to(torch.int8).flip(-1).argmax(-1)


def read_token(x: Tensor, index: Tensor | None) -> Tensor:
    """x (*K, n, T, d) at one token per sequence -> (*K, n, d)."""
    if index is None:
        return x[..., -1, :]
    batch = torch.broadcast_shapes(x.shape[:-2], index.shape)
    index = index.expand(batch)[..., None, None].expand(*batch, 1, x.shape[-1])
    return x.expand(*batch, *x.shape[-2:]).gather(-2, index).squeeze(-2)


def average_tokens(x: Tensor, mask: Tensor | None, products: Products = PLAIN) -> Tensor:
    """Mean over the real tokens, x (*K, n, T, d) -> (*K, n, d)."""
    if mask is None:
        return x.sum(-2) / x.shape[-2]
    share = mask.to(x.dtype) / mask.sum(-1, keepdim=True)
    return products.rows_times(share[..., None, :], x).squeeze(-2)
