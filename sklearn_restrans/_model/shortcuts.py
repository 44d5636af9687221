"""Exact shortcuts: the same numbers as the plain formulas of `transformer`, with less work.

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

from .architecture import Architecture
from .products import Products, average_tokens, last_token, per_candidate, read_token
from .transformer import Layer, ResidualTransformer


def choose(arch: Architecture) -> str:
    """Name of the shortcut for an architecture (see the module's docstring)."""
    if arch.biases or arch.causal or arch.outer_norm:
        return "plain"
    if arch.readout == "mean":
        return "mean" if arch.norm != "post" else "plain"
    if arch.n_layers == 1 and arch.embedding == "linear" and arch.norm != "pre":
        return "folded"
    return "single_query"


def forward(model: ResidualTransformer, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """F(X) of every sequence, (*K, n, c): ``model(x, mask)`` by the cheapest exact route.

    Of token ids x may also be what ``model.features`` made of them.
    """
    if model.arch.embedding == "token" and x.is_floating_point():
        return model.unembed(x)
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
    """q_h (W_K^h)^T of every head, (*K, n h, d)."""
    query, h = layer.products.project(x_read, layer.W_Q), layer.arch.n_heads
    if h == 1:
        return layer.products.project(query, layer.W_K.transpose(-1, -2))
    # one product per head: (*K, h, n, d_k) x (*K, h, d_k, d)
    query = query.unflatten(-1, (h, -1)).transpose(-2, -3)
    key_map = layer.W_K.unflatten(-1, (h, -1)).movedim(-2, -3)
    back = layer.products.per_head(query, key_map.transpose(-1, -2))
    return back.transpose(-2, -3).flatten(-3, -2)


def _value_of_context(layer: Layer, context: Tensor) -> Tensor:
    """Per head context (*K, n h, d) times W_V^h, merged: Attn at the read-out token (*K, n, d)."""
    h = layer.arch.n_heads
    if h == 1:
        return layer.products.project(context, layer.W_V)
    context = context.unflatten(-2, (-1, h)).transpose(-2, -3)
    value_map = layer.W_V.unflatten(-1, (h, -1)).movedim(-2, -3)
    merged = layer.products.per_head(context, value_map).transpose(-2, -3).flatten(-2)
    return layer.products.project(merged, layer.last_of_attention)


def _attend_one_query(layer: Layer, X: Tensor, x_read: Tensor, mask: Tensor | None) -> Tensor:
    X, x_read = layer.normed(X, "norm_1"), layer.normed(x_read, "norm_1")
    query = _query_in_model_space(layer, x_read)
    weights = _weights(layer, _by_token(layer.products, query, X.transpose(-1, -2)), None, mask)
    return _value_of_context(layer, _by_token(layer.products, weights, X))


def _by_token(products: Products, rows: Tensor, x: Tensor) -> Tensor:
    """Rows (*K, n h, i) times the sequence they belong to, x (*K, n, i, o)."""
    rows = rows.unflatten(-2, (x.shape[-3], -1))
    if rows.ndim == x.ndim:
        return products.rows_times(rows, x).flatten(-3, -2)
    # One sequence for all candidates: their rows side by side, so that x is not copied K times.
    together = products.rows_times(rows.movedim(0, 1).flatten(1, 2), x)  # (n, K h, o)
    return together.unflatten(1, (len(rows), -1)).movedim(1, 0).flatten(-3, -2)


def _weights(layer: Layer, scores: Tensor, more: Tensor | None, mask: Tensor | None) -> Tensor:
    """Softmax over the real tokens of (scores + more) / sqrt(d_k), each (*K, n h, T)."""
    if more is not None:
        scores = scores + more
    scores = scores / math.sqrt(layer.arch.d_model // layer.arch.n_heads)
    if mask is not None:
        h = layer.arch.n_heads
        mask = mask if h == 1 else mask.repeat_interleave(h, -2)
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1)


def _attend_folded(
    model: ResidualTransformer, layer: Layer, x: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attn and X at the read-out token, with T-sized products in the input channels only."""
    model.check_input(x)
    products, index = layer.products, last_token(mask, x.shape[-2])
    raw_read = read_token(x, index)
    if model.arch.n_candidates is not None and raw_read.ndim == 2:
        raw_read = raw_read.expand(model.arch.n_candidates, *raw_read.shape)
    x_read = products.project(raw_read, model.W_in)
    table, by_position = model.positions, None
    if table is not None:
        x_read = x_read + _position_read(table, index, x_read)
    query = _query_in_model_space(layer, x_read)
    in_channels = products.project(query, model.W_in.transpose(-1, -2))
    scores = _by_token(products, in_channels, x.transpose(-1, -2))
    if table is not None:
        by_position = _by_table(products, query, table.transpose(-1, -2))
    weights = _weights(layer, scores, by_position, mask)
    context = products.project(_by_token(products, weights, x), model.W_in)
    if table is not None:
        context = context + _by_table(products, weights, table)
    return _value_of_context(layer, context), x_read


def _by_table(products: Products, x: Tensor, table: Tensor) -> Tensor:
    """x (*K, n h, i) times a position table shared by all sequences, (*K or none, i, o)."""
    if table.ndim < x.ndim:
        table = table.expand(*x.shape[:-2], *table.shape)
    return products.project(x, table)


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
    hidden = average_tokens(layer.hidden(z), mask, layer.products)
    return layer.add_feedforward(hidden, average_tokens(z, mask, layer.products), beta)
