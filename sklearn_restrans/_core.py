"""The Transformer with residual coefficient beta, as plain torch modules.

Letters follow arXiv:2506.05249. With X the (T, d) matrix of one sequence, a layer is

    Attn(X) = softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V
    Z       = Attn(X) + beta X                                "attention output matrix"
    A       = phi(Z W_1) W_2 + beta Z

and F = A W_U after the last one, read at one token or averaged over tokens.

Shapes. ``K`` is an optional leading candidate dimension: a model made by
:meth:`ResidualTransformer.stack` holds K models of one architecture, every weight has shape
(K, ...), and every activation (K, n, T, d). Without it K is simply absent. Written ``*K`` below.

Departures from the paper are marked ``NOTE[DIFF]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class Architecture:
    """All that determines the shapes and formulas of a model, as plain values.

    ``embedding`` is "linear" (tokens carry ``n_features`` channels, one matrix embeds them),
    "feature" (a table: every column is a token with one channel and its own embedding vector) or
    "token" (a token is an id below ``n_features``, which picks a row of the matrix: "linear" on
    one-hot channels; sequences may be shorter than ``n_tokens``).
    """

    n_tokens: int
    n_features: int
    n_outputs: int
    n_layers: int = 1
    d_model: int = 32
    n_heads: int = 1
    d_ff: int = 64
    activation: str = "relu"
    norm: str | None = None
    dropout: float = 0.0
    positions: str | None = "learned"
    readout: str = "last"
    embedding: str = "linear"
    learn_beta: bool = False
    n_candidates: int | None = None


class LayerTrace(NamedTuple):
    """Input X, Attn(X), Z (each (*K, n, T, d)) and softmax weights (*K, n, h, T, T) of a layer."""

    inputs: Tensor
    attention: Tensor
    output: Tensor
    weights: Tensor


def project(x: Tensor, weight: Tensor) -> Tensor:
    """x (*K, n, ..., i) times weight (*K, i, o): one GEMM, or one batched GEMM over K."""
    if torch.is_inference_mode_enabled():
        return _product(x, evenly(weight))[..., : weight.shape[-1]]
    return _product(x, weight)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim == 2:
        return x @ weight
    return torch.bmm(x.flatten(1, -2), weight).unflatten(1, x.shape[1:-1])


def evenly(weight: Tensor) -> Tensor:
    """Weights in row-major order, with zero columns up to a multiple of eight.

    Matrix kernels for other widths, and for transposed weights, do not treat all rows of x alike:
    the last bits of a row would depend on its place in the chunk.
    """
    return F.pad(weight, (0, -weight.shape[-1] % 8)).contiguous()


def rows_times(rows: Tensor, x: Tensor) -> Tensor:
    """A few rows (*K, n, r, i) times the sequence they belong to, x (*K, n, i, o)."""
    r = rows.shape[-2]
    if torch.is_inference_mode_enabled():
        # Zero rows up to a multiple of four: kernels for fewer do not treat all sequences alike.
        rows = F.pad(rows, (0, 0, 0, -r % 4))
    return (rows @ x)[..., :r, :]


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (*K, n, ..., i) times weight (*K, i, o) plus bias (*K, o), in one kernel."""
    if torch.is_inference_mode_enabled():
        return project(x, weight) + per_candidate(bias, x)
    if weight.ndim == 2:
        return torch.addmm(bias, x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])
    product = torch.baddbmm(bias[:, None], x.flatten(1, -2), weight)
    return product.unflatten(1, x.shape[1:-1])


def per_candidate(vector: Tensor, like: Tensor, trailing: int = 1) -> Tensor:
    """View a (*K, ...) vector so that it broadcasts over the middle axes of ``like``."""
    n_lead = vector.ndim - trailing
    middle = like.ndim - n_lead - trailing
    return vector.reshape(*vector.shape[:n_lead], *(1,) * middle, *vector.shape[n_lead:])


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Inverted dropout; one place, so that a test can replace the random mask by a known one."""
    return F.dropout(x, p, training) if p > 0.0 and training else x


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


def average_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the real tokens, x (*K, n, T, d) -> (*K, n, d)."""
    if mask is None:
        return x.sum(-2) / x.shape[-2]
    share = mask.to(x.dtype) / mask.sum(-1, keepdim=True)
    return rows_times(share[..., None, :], x).squeeze(-2)


def depth_scale(beta: Tensor, n_layers: int) -> Tensor:
    """s = sqrt(max(1 - beta^2, 1 / L)), the size of a branch beside its residual beta X.

    A part turns tokens of variance v into ones of about (beta^2 + s^2) v: L layers then neither
    multiply them (Noci et al. 2022, arXiv:2206.03126, scale by 1 / sqrt(L) for beta = 1) nor, for
    beta < 1, let them vanish sooner than they must.
    """
    return torch.sqrt(torch.clamp(1 - beta.square(), min=1 / n_layers))


def sinusoidal(n_tokens: int, d_model: int) -> Tensor:
    """Sine and cosine position table (T, d) of Vaswani et al. 2017, section 3.5."""
    position = torch.arange(n_tokens, dtype=torch.float64)[:, None]
    frequency = torch.exp(
        -math.log(10000.0) * torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    )
    table = torch.zeros(n_tokens, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : d_model // 2]
    return table


class Norm(nn.Module):
    """Layer normalisation over the channels, with gain and shift of shape (*K, d)."""

    def __init__(self, d_model: int, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(*lead, d_model))
        self.shift = nn.Parameter(torch.zeros(*lead, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x, x.shape[-1:])
        return x * per_candidate(self.gain, x) + per_candidate(self.shift, x)


class Layer(nn.Module):
    """One residual attention layer and its feed-forward part.

    Shape: X (*K, n, T, d), mask (n, T) or (K, n, T) with True at real tokens, beta (*K, 2) the
    residual coefficients of attention and feed-forward part; returns A (*K, n, T, d).
    """

    def __init__(self, arch: Architecture, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        d, m = arch.d_model, arch.d_ff
        self.arch = arch
        self.W_Q = nn.Parameter(torch.empty(*lead, d, d))
        self.W_K = nn.Parameter(torch.empty(*lead, d, d))
        self.W_V = nn.Parameter(torch.empty(*lead, d, d))
        # NOTE[DIFF] several heads, mixed by W_O as usual; one head is the paper's, without W_O.
        self.W_O = nn.Parameter(torch.empty(*lead, d, d)) if arch.n_heads > 1 else None
        self.W_1 = nn.Parameter(torch.empty(*lead, d, m))
        self.W_2 = nn.Parameter(torch.empty(*lead, m, d))
        # NOTE[DIFF] biases of the feed-forward part; the paper has none.
        self.b_1 = nn.Parameter(torch.empty(*lead, m))
        self.b_2 = nn.Parameter(torch.empty(*lead, d))
        # NOTE[DIFF] layer normalisation, off by default; the paper has none.
        self.norm_1 = Norm(d, lead) if arch.norm else None
        self.norm_2 = Norm(d, lead) if arch.norm else None

    @property
    def last_of_attention(self) -> Tensor:
        """The last matrix of Attn: W_V of one head, W_O of several."""
        return self.W_V if self.W_O is None else self.W_O

    def split_heads(self, x: Tensor) -> Tensor:
        """(*K, n, T, d) -> (*K, n, h, T, d / h); in inference of an even width, see `evenly`."""
        x = x.unflatten(-1, (self.arch.n_heads, -1)).transpose(-2, -3)
        return F.pad(x, (0, -x.shape[-1] % 8)) if torch.is_inference_mode_enabled() else x

    def merge_heads(self, x: Tensor) -> Tensor:
        """(*K, n, h, T, d / h) -> (*K, n, T, d), mixed by W_O where there is one."""
        x = x[..., : self.arch.d_model // self.arch.n_heads].transpose(-2, -3).flatten(-2)
        return x if self.W_O is None else project(x, self.W_O)

    def normed(self, x: Tensor, which: str) -> Tensor:
        """The input of a part: normalised before it for norm="pre", as it is otherwise."""
        return getattr(self, which)(x) if self.arch.norm == "pre" else x

    def closed(self, x: Tensor, which: str) -> Tensor:
        """The output of a part with its residual: normalised after it for norm="post"."""
        return getattr(self, which)(x) if self.arch.norm == "post" else x

    def attention_weights(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """softmax(X W_Q (X W_K)^T / sqrt(d_k)) over the real tokens, (*K, n, h, T, T)."""
        query = self.split_heads(project(x, self.W_Q))
        key = self.split_heads(project(x, self.W_K))
        # The query is divided, not the scores: T d numbers, not T^2.
        d_k = self.arch.d_model // self.arch.n_heads
        scores = (query / math.sqrt(d_k)) @ key.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None, None, :], -torch.inf)
        return scores.softmax(-1)

    def attend(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attn(X) (*K, n, T, d) before dropout, and the softmax weights (*K, n, h, T, T)."""
        x = self.normed(x, "norm_1")
        weights = self.attention_weights(x, mask)
        return self.merge_heads(weights @ self.split_heads(project(x, self.W_V))), weights

    def residual(self, attention: Tensor, x: Tensor, beta: Tensor) -> Tensor:
        """Z = Attn(X) + beta X."""
        return attention + per_candidate(beta[..., 0], x, trailing=0) * x

    def add_residual(self, attention: Tensor, x: Tensor, beta: Tensor) -> Tensor:
        """Z with dropout on Attn(X) while training, normalised for norm="post"."""
        # NOTE[DIFF] dropout; the paper has none. It stands on Attn(X) and on phi(Z W_1) only, so
        # that averaging over tokens still commutes with W_2 (see _fast.py).
        attention = dropout(attention, self.arch.dropout, self.training)
        return self.closed(self.residual(attention, x, beta), "norm_1")

    def hidden(self, z: Tensor) -> Tensor:
        """phi(Z W_1 + b_1) (*K, n, T, m), the input of W_2."""
        z = self.normed(z, "norm_2")
        u = affine(z, self.W_1, self.b_1)
        return dropout(ACTIVATIONS[self.arch.activation](u), self.arch.dropout, self.training)

    def add_feedforward(self, hidden: Tensor, z: Tensor, beta: Tensor) -> Tensor:
        """A = phi(Z W_1) W_2 + beta Z."""
        a = affine(hidden, self.W_2, self.b_2)
        return self.closed(a + per_candidate(beta[..., 1], z, trailing=0) * z, "norm_2")

    def feedforward(self, z: Tensor, beta: Tensor) -> Tensor:
        return self.add_feedforward(self.hidden(z), z, beta)

    def forward(self, x: Tensor, mask: Tensor | None, beta: Tensor) -> Tensor:
        z = self.add_residual(self.attend(x, mask)[0], x, beta)
        return self.feedforward(z, beta)


class ResidualTransformer(nn.Module):
    """Embedding, L residual layers, read-out: F = read(A_L) W_U.

    The plain formulas, every token computed. :func:`sklearn_restrans._fast.forward` gives the same
    numbers sooner.

    Shape: x (n, T, f), or (K, n, T, f) when the candidates see different data; token ids (n, T) or
    (K, n, T) for embedding="token"; mask (n, T) or (K, n, T), True at real tokens, or None; returns
    (*K, n, c).
    """

    beta: Tensor

    def __init__(self, arch: Architecture, beta: Tensor | None = None) -> None:
        super().__init__()
        self.arch = arch
        lead = () if arch.n_candidates is None else (arch.n_candidates,)
        d, T = arch.d_model, arch.n_tokens
        rows = T if arch.embedding == "feature" else arch.n_features
        self.W_in = nn.Parameter(torch.empty(*lead, rows, d))
        self.positions: Tensor | None
        if arch.positions == "learned":
            self.positions = nn.Parameter(torch.empty(*lead, T, d))
        elif arch.positions == "sinusoidal":
            self.register_buffer("positions", sinusoidal(T, d).to(self.W_in.dtype))
        else:
            self.positions = None
        layers = nn.ModuleList(Layer(arch, lead) for _ in range(arch.n_layers))
        self.layers = cast(Sequence[Layer], layers)  # torch's own type forgets what it holds
        self.W_U = nn.Parameter(torch.empty(*lead, d, arch.n_outputs))
        self.b_U = nn.Parameter(torch.empty(*lead, arch.n_outputs))
        if beta is None:
            beta = torch.ones(*lead, arch.n_layers, 2)
        beta = beta.to(self.W_in.dtype).clone()
        if arch.learn_beta:
            self.beta = nn.Parameter(beta)
        else:
            self.register_buffer("beta", beta)

    def reset_parameters(
        self, init: str = "gaussian", generator: torch.Generator | None = None
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
        linear = self.arch.embedding == "linear"
        _gaussian(self.W_in, generator, self.arch.n_features if linear else self.arch.d_model)
        if self.arch.embedding == "token":
            # Padding, an unknown token and a place that training may never meet mean nothing. No
            # random number is drawn for a place: how wide X is padded in fit changes no weight.
            nn.init.zeros_(self.W_in.detach()[..., :2, :])
            if isinstance(self.positions, nn.Parameter):
                nn.init.zeros_(self.positions)
        elif isinstance(self.positions, nn.Parameter):
            _gaussian(self.positions, generator, self.arch.d_model)
        for index, layer in enumerate(self.layers):
            for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
                weight = getattr(layer, name)
                if weight is None:
                    continue
                if init == "orthogonal":
                    _orthogonal(weight, generator)
                else:
                    _gaussian(weight, generator, weight.shape[-2])
            if init == "depth_scaled":
                scale = depth_scale(self.layer_beta(index).detach(), self.arch.n_layers)
                for part, weight in enumerate((layer.last_of_attention, layer.W_2)):
                    weight.detach().mul_(scale[..., part, None, None])
            nn.init.zeros_(layer.b_1)
            nn.init.zeros_(layer.b_2)
        if init == "zero_unembedding":
            nn.init.zeros_(self.W_U)
        elif init == "orthogonal":
            _orthogonal(self.W_U, generator)
        else:
            _gaussian(self.W_U, generator, self.arch.d_model)
        nn.init.zeros_(self.b_U)

    @classmethod
    def stack(cls, models: Sequence[ResidualTransformer]) -> ResidualTransformer:
        """One model holding K models of one architecture along a leading candidate dimension."""
        arch = replace(models[0].arch, n_candidates=len(models))
        stacked = cls(arch).to(models[0].W_in)
        states = [model.state_dict() for model in models]
        own = stacked.state_dict()
        for name, value in own.items():
            parts = [state[name] for state in states]
            own[name] = torch.stack(parts) if value.ndim > parts[0].ndim else parts[0]
        stacked.load_state_dict(own)
        return stacked

    def unstack(self) -> list[ResidualTransformer]:
        """The K models of a stacked one, each with its own copy of the weights."""
        n_candidates = self.arch.n_candidates or 0
        models = []
        for k in range(n_candidates):
            model = ResidualTransformer(replace(self.arch, n_candidates=None)).to(self.W_in)
            state = model.state_dict()
            for name, value in self.state_dict().items():
                state[name] = value[k] if value.ndim > state[name].ndim else value
            model.load_state_dict(state)
            models.append(model)
        return models

    def check_input(self, x: Tensor) -> None:
        """Refuse an x of another shape; some would broadcast to a wrong answer.

        Raises
        ------
        ValueError
            If x is not (n, T, f), or (K, n, T, f) for K candidates; or no token ids (n, t) or
            (K, n, t) with t <= T.
        """
        arch = self.arch
        if arch.embedding == "token":
            lead = ((), (arch.n_candidates,))
            if x.ndim < 2 or x.shape[-1] > arch.n_tokens or x.shape[:-2] not in lead:
                raise ValueError(
                    f"x must hold token ids (n, t), or (K, n, t), with t <= {arch.n_tokens} and "
                    f"K={arch.n_candidates}; got {tuple(x.shape)}."
                )
            return
        tokens, lead = (arch.n_tokens, arch.n_features), ((), (arch.n_candidates,))
        if x.ndim < 3 or x.shape[-2:] != tokens or x.shape[:-3] not in lead:
            raise ValueError(
                f"x must have shape (n, T, f), or (K, n, T, f), with T={arch.n_tokens}, "
                f"f={arch.n_features} and K={arch.n_candidates}; got {tuple(x.shape)}."
            )

    def embed(self, x: Tensor) -> Tensor:
        """X = x W_in + positions, (n, T, f) or (K, n, T, f) -> (*K, n, T, d)."""
        self.check_input(x)
        ids = self.arch.embedding == "token"
        if self.arch.n_candidates is not None and x.ndim == (2 if ids else 3):
            x = x.expand(self.arch.n_candidates, *x.shape)
        if self.arch.embedding == "feature":
            X = x * per_candidate(self.W_in, x, trailing=2)
        elif ids:
            # NOTE[DIFF] dropout on the vectors of tokens: the residual alone reads them otherwise.
            X = dropout(self.look_up(x), self.arch.dropout, self.training)
        else:
            X = project(x, self.W_in)
        if self.positions is None:
            return X
        return X + per_candidate(self.positions[..., : X.shape[-2], :], X, trailing=2)

    def look_up(self, ids: Tensor) -> Tensor:
        """Rows of W_in (*K, V, d) by their numbers (*K, n, T) -> (*K, n, T, d)."""
        n_ids = self.arch.n_features
        if self.arch.n_candidates is not None:  # one table, that of candidate k from row k V on
            first = n_ids * torch.arange(self.arch.n_candidates, device=ids.device)
            ids = ids + first[:, None, None]
        return F.embedding(ids, self.W_in.reshape(-1, self.arch.d_model))

    def layer_beta(self, index: int) -> Tensor:
        """Residual coefficients (*K, 2) of one layer: (attention, feed-forward)."""
        return self.beta[..., index, :]

    def read(self, a: Tensor, mask: Tensor | None) -> Tensor:
        """Read the last real token, or the mean of the real tokens: (*K, n, T, d) -> (*K, n, d)."""
        if self.arch.readout == "mean":
            return average_tokens(a, mask)
        return read_token(a, last_token(mask, a.shape[-2]))

    def unembed(self, a: Tensor) -> Tensor:
        """F = A W_U (*K, n, c)."""
        # NOTE[DIFF] an output bias; the paper has none.
        return affine(a, self.W_U, self.b_U)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        X = self.embed(x)
        for index, layer in enumerate(self.layers):
            X = layer(X, mask, self.layer_beta(index))
        return self.unembed(self.read(X, mask))

    def traces(self, x: Tensor, mask: Tensor | None = None) -> list[LayerTrace]:
        """X, Attn(X), Z and the softmax weights of every layer, for the diagnostics.

        Z stands before a post norm, which would take one rank from it, whatever beta is.
        """
        X, traces = self.embed(x), []
        for index, layer in enumerate(self.layers):
            beta = self.layer_beta(index)
            attention, weights = layer.attend(X, mask)
            traces.append(LayerTrace(X, attention, layer.residual(attention, X, beta), weights))
            if len(traces) < len(self.layers):
                X = layer.feedforward(layer.add_residual(attention, X, beta), beta)
        return traces


def _gaussian(weight: Tensor, generator: torch.Generator | None, fan_in: int) -> None:
    nn.init.normal_(weight, std=fan_in**-0.5, generator=generator)


def _orthogonal(weight: Tensor, generator: torch.Generator | None) -> None:
    """Each matrix of (*K, i, o) by itself; torch would take a stack of them for one matrix."""
    for matrix in weight.detach().reshape(-1, *weight.shape[-2:]):
        nn.init.orthogonal_(matrix, generator=generator)
