"""Exact shortcuts: the same numbers as the plain formulas of ``_core``, with less work.

:func:`forward` is the one place that chooses. What the read-out never looks at is not computed:

"folded"        one layer, one query, linear embedding, no norm before attention. With q = X_r W_Q,
                q (X W_K)^T = (q W_K^T) X^T and X = x W_in + P, so scores are
                ((q W_K^T) W_in^T) x^T + (q W_K^T) P^T and Attn = ((a x) W_in + a P) W_V:
                every T-sized product is in the f input channels.
"single_query"  the last layer of any model read at one token: the same re-association in the d
                channels of X; all other layers are computed in full.
"mean"          the last layer of a model read as a mean, no norm after it:
                mean(phi(Z W_1) W_2 + beta Z) = mean(phi(Z W_1)) W_2 + beta mean(Z).
"plain"         everything else.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ._core import (
    Architecture,
    Layer,
    ResidualTransformer,
    average_tokens,
    last_token,
    per_candidate,
    project,
    read_token,
)


def choose(arch: Architecture) -> str:
    """Name of the shortcut for an architecture (see the module's docstring)."""
    if arch.readout == "mean":
        return "mean" if arch.norm != "post" else "plain"
    if arch.n_layers == 1 and arch.embedding == "linear" and arch.norm != "pre":
        return "folded"
    return "single_query"


def forward(model: ResidualTransformer, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """F(X) of every sequence, (*K, n, c): ``model(x, mask)`` by the cheapest exact route."""
    path = choose(model.arch)
    if path == "plain":
        return model(x, mask)
    last = model.layers[-1]
    beta = model.layer_beta(-1)
    if path == "folded":
        attention, x_read = _attend_folded(model, last, x, mask)
    else:
        X = model.embed(x)
        for index, layer in enumerate(model.layers[:-1]):
            X = layer(X, mask, model.layer_beta(index))
        if path == "mean":
            return model.unembed(_mean_of_last(last, X, mask, beta))
        x_read = read_token(X, last_token(mask, X.shape[-2]))
        attention = _attend_one_query(last, X, x_read, mask)
    z = last.add_residual(attention, x_read, beta)
    return model.unembed(last.feedforward(z, beta))


def _query_in_model_space(layer: Layer, x_read: Tensor) -> Tensor:
    """q_h (W_K^h)^T / sqrt(d_k) of every head, (*K, n, h, d)."""
    query = project(x_read, layer.W_Q).unflatten(-1, (layer.arch.n_heads, -1))
    if layer.arch.n_heads == 1:
        back = project(query.squeeze(-2), layer.W_K.transpose(-1, -2)).unsqueeze(-2)
    else:
        # one product per head: (*K, h, n, d_k) x (*K, h, d_k, d)
        key_map = layer.W_K.unflatten(-1, (layer.arch.n_heads, -1)).movedim(-2, -3)
        back = (query.transpose(-2, -3) @ key_map.transpose(-1, -2)).transpose(-2, -3)
    return back / math.sqrt(query.shape[-1])


def _weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the real tokens of scores (*K, n, h, T)."""
    if mask is not None:
        scores = scores.masked_fill(~mask[..., None, :], -torch.inf)
    return scores.softmax(-1)


def _value_of_context(layer: Layer, context: Tensor) -> Tensor:
    """Per head context (*K, n, h, d) times W_V^h, merged: Attn at the read-out token (*K, n, d)."""
    if layer.arch.n_heads == 1:
        return project(context.squeeze(-2), layer.W_V)
    value_map = layer.W_V.unflatten(-1, (layer.arch.n_heads, -1)).movedim(-2, -3)
    merged = (context.transpose(-2, -3) @ value_map).transpose(-2, -3).flatten(-2)
    return project(merged, layer.W_O)


def _attend_one_query(layer: Layer, X: Tensor, x_read: Tensor, mask: Tensor | None) -> Tensor:
    X, x_read = layer.normed(X, "norm_1"), layer.normed(x_read, "norm_1")
    query = _query_in_model_space(layer, x_read)
    weights = _weights(query @ X.transpose(-1, -2), mask)
    return _value_of_context(layer, weights @ X)


def _attend_folded(
    model: ResidualTransformer, layer: Layer, x: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attn and X at the read-out token, with T-sized products in the input channels only."""
    model.check_input(x)
    index = last_token(mask, x.shape[-2])
    raw_read = read_token(x, index)
    if model.arch.n_candidates is not None and raw_read.ndim == 2:
        raw_read = raw_read.expand(model.arch.n_candidates, *raw_read.shape)
    x_read = project(raw_read, model.W_in)
    table = model.positions
    if table is not None:
        x_read = x_read + _position_read(table, index, x_read)
    query = _query_in_model_space(layer, x_read)
    scores = project(query, model.W_in.transpose(-1, -2)) @ x.transpose(-1, -2)
    if table is not None:
        scores = scores + _by_table(query, table.transpose(-1, -2))
    weights = _weights(scores, mask)
    context = project(weights @ x, model.W_in)
    if table is not None:
        context = context + _by_table(weights, table)
    return _value_of_context(layer, context), x_read


def _by_table(x: Tensor, table: Tensor) -> Tensor:
    """x (*K, n, h, i) times a position table shared by all sequences, (*K or none, i, o)."""
    return project(x, table) if table.ndim == 3 else x @ table


def _position_read(table: Tensor, index: Tensor | None, like: Tensor) -> Tensor:
    """Position vector of the token read out, broadcastable to (*K, n, d)."""
    if index is None:
        return per_candidate(table[..., -1, :], like) if table.ndim == 3 else table[-1]
    if table.ndim == 2:
        return table[index]
    index = index.expand(like.shape[:-1])
    return table.gather(1, index[..., None].expand(*index.shape, table.shape[-1]))


def _mean_of_last(layer: Layer, X: Tensor, mask: Tensor | None, beta: Tensor) -> Tensor:
    z = layer.add_residual(layer.attend(X, mask)[0], X, beta)
    hidden = average_tokens(layer.hidden(z), mask)
    return layer.add_feedforward(hidden, average_tokens(z, mask), beta)
