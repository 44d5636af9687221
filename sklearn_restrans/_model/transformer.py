"""The Transformer with residual coefficient beta, as plain torch modules.

Letters follow arXiv:2506.05249. With X the (T, d) matrix of one sequence, a layer is

    Attn(X) = softmax(X W_Q (X W_K)^T / sqrt(d_k)) X W_V
    Z       = Attn(X) + beta X                                "attention output matrix"
    A       = phi(Z W_1) W_2 + beta Z

and F = A W_U after the last one, read at one token or averaged over tokens.

Shapes. ``K`` is an optional leading candidate dimension: a model made by
:func:`.candidates.stack` holds K models of one architecture, every weight has shape
(K, ...), and every activation (K, n, T, d). Without it K is simply absent. Written ``*K`` below.

Departures from the paper are marked ``NOTE[DIFF]``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .architecture import Architecture
from .products import EVEN, PLAIN, average_tokens, last_token, per_candidate, read_token

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
}
# Of checkpoints too: GELU by the tanh formula of Hendrycks & Gimpel 2016 (arXiv:1606.08415).
_ALL_ACTIVATIONS = ACTIVATIONS | {"gelu_tanh": partial(F.gelu, approximate="tanh")}


def dropout(x: Tensor, p: float, training: bool, generator: torch.Generator | None) -> Tensor:
    """Inverted dropout; one place, so that a test can replace the random mask by a known one.

    The bits of ``F.dropout``, which draws from torch's global generator and takes no other.
    """
    if p == 0.0 or not training:
        return x
    return x * torch.empty_like(x).bernoulli_(1.0 - p, generator=generator).div_(1.0 - p)


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

    def __init__(self, arch: Architecture, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(*lead, arch.d_model))
        self.shift = nn.Parameter(torch.zeros(*lead, arch.d_model))
        self.eps = arch.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        if self.gain.ndim == 1:
            return F.layer_norm(x, x.shape[-1:], self.gain, self.shift, self.eps)
        x = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return x * per_candidate(self.gain, x) + per_candidate(self.shift, x)


class Layer(nn.Module):
    """One residual attention layer and its feed-forward part.

    Shape: X (*K, n, T, d), mask (n, T) or (K, n, T) with True at real tokens, beta (*K, 2) the
    residual coefficients of attention and feed-forward part; returns A (*K, n, T, d).
    """

    def __init__(self, arch: Architecture, lead: tuple[int, ...] = ()) -> None:
        super().__init__()
        d, m = arch.d_model, arch.d_ff
        self.arch, self.products = arch, PLAIN
        self.generator: torch.Generator | None = None
        self.W_Q = nn.Parameter(torch.empty(*lead, d, d))
        self.W_K = nn.Parameter(torch.empty(*lead, d, d))
        self.W_V = nn.Parameter(torch.empty(*lead, d, d))
        # NOTE[DIFF] several heads, mixed by W_O as usual; one head is the paper's, without W_O.
        mixes = arch.n_heads > 1 or arch.biases
        self.W_O = nn.Parameter(torch.empty(*lead, d, d)) if mixes else None
        self.W_1 = nn.Parameter(torch.empty(*lead, d, m))
        self.W_2 = nn.Parameter(torch.empty(*lead, m, d))
        # NOTE[DIFF] biases of the feed-forward part; the paper has none.
        self.b_1 = nn.Parameter(torch.empty(*lead, m))
        self.b_2 = nn.Parameter(torch.empty(*lead, d))
        # NOTE[DIFF] pretrained encoders have biases in attention too.
        for name in ("b_Q", "b_K", "b_V", "b_O"):
            bias = nn.Parameter(torch.zeros(*lead, d)) if arch.biases else None
            self.register_parameter(name, bias)
        # NOTE[DIFF] layer normalisation, off by default; the paper has none.
        self.norm_1 = Norm(arch, lead) if arch.norm else None
        self.norm_2 = Norm(arch, lead) if arch.norm else None

    @property
    def last_of_attention(self) -> Tensor:
        """The last matrix of Attn: W_V of one head, W_O of several."""
        return self.W_V if self.W_O is None else self.W_O

    def drop(self, x: Tensor) -> Tensor:
        """Dropout while training; a layer that is not trained has none."""
        training = self.training and self.W_1.requires_grad
        return dropout(x, self.arch.dropout, training, self.generator)

    def affine(self, x: Tensor, which: str) -> Tensor:
        """x W + b of a matrix of attention, "Q", "K", "V" or "O"; b where there is one."""
        weight, bias = getattr(self, f"W_{which}"), getattr(self, f"b_{which}")
        if bias is None:
            return self.products.project(x, weight)
        return self.products.affine(x, weight, bias)

    def split_heads(self, x: Tensor) -> Tensor:
        """(*K, n, T, d) -> (*K, n, h, T, d / h), in the width of the products."""
        return self.products.widen(x.unflatten(-1, (self.arch.n_heads, -1)).transpose(-2, -3))

    def merge_heads(self, x: Tensor) -> Tensor:
        """(*K, n, h, T, d / h) -> (*K, n, T, d), mixed by W_O where there is one."""
        x = x[..., : self.arch.d_model // self.arch.n_heads].transpose(-2, -3).flatten(-2)
        return x if self.W_O is None else self.affine(x, "O")

    def normed(self, x: Tensor, which: str) -> Tensor:
        """The input of a part: normalised before it for norm="pre", as it is otherwise."""
        return getattr(self, which)(x) if self.arch.norm == "pre" else x

    def closed(self, x: Tensor, which: str) -> Tensor:
        """The output of a part with its residual: normalised after it for norm="post"."""
        return getattr(self, which)(x) if self.arch.norm == "post" else x

    def attention_weights(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """softmax(X W_Q (X W_K)^T / sqrt(d_k)) over the real tokens, (*K, n, h, T, T)."""
        query = self.split_heads(self.affine(x, "Q"))
        key = self.split_heads(self.affine(x, "K"))
        # The query is divided, not the scores: T d numbers, not T^2.
        d_k = self.arch.d_model // self.arch.n_heads
        scores = (query / math.sqrt(d_k)) @ key.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None, None, :], -torch.inf)
        if self.arch.causal:
            later = scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(-1)

    def attend(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attn(X) (*K, n, T, d) before dropout, and the softmax weights (*K, n, h, T, T)."""
        x = self.normed(x, "norm_1")
        weights = self.attention_weights(x, mask)
        return self.merge_heads(weights @ self.split_heads(self.affine(x, "V"))), weights

    def residual(self, attention: Tensor, x: Tensor, beta: Tensor) -> Tensor:
        """Z = Attn(X) + beta X."""
        return attention + per_candidate(beta[..., 0], x, trailing=0) * x

    def add_residual(self, attention: Tensor, x: Tensor, beta: Tensor) -> Tensor:
        """Z with dropout on Attn(X) while training, normalised for norm="post"."""
        # NOTE[DIFF] dropout; the paper has none. It stands on Attn(X) and on phi(Z W_1) only, so
        # that averaging over tokens still commutes with W_2 (see `shortcuts`).
        return self.closed(self.residual(self.drop(attention), x, beta), "norm_1")

    def hidden(self, z: Tensor) -> Tensor:
        """phi(Z W_1 + b_1) (*K, n, T, m), the input of W_2."""
        z = self.normed(z, "norm_2")
        u = self.products.affine(z, self.W_1, self.b_1)
        return self.drop(_ALL_ACTIVATIONS[self.arch.activation](u))

    def add_feedforward(self, hidden: Tensor, z: Tensor, beta: Tensor) -> Tensor:
        """A = phi(Z W_1) W_2 + beta Z."""
        a = self.products.affine(hidden, self.W_2, self.b_2)
        return self.closed(a + per_candidate(beta[..., 1], z, trailing=0) * z, "norm_2")

    def feedforward(self, z: Tensor, beta: Tensor) -> Tensor:
        return self.add_feedforward(self.hidden(z), z, beta)

    def forward(self, x: Tensor, mask: Tensor | None, beta: Tensor) -> Tensor:
        z = self.add_residual(self.attend(x, mask)[0], x, beta)
        return self.feedforward(z, beta)


class ResidualTransformer(nn.Module):
    """Embedding, L residual layers, read-out: F = read(A_L) W_U.

    The plain formulas, every token computed. :func:`.shortcuts.forward` gives the same numbers
    sooner.

    Shape: x (n, T, f), or (K, n, T, f) when the candidates see different data; token ids (n, T) or
    (K, n, T) for embedding="token"; mask (n, T) or (K, n, T), True at real tokens, or None; returns
    (*K, n, c).
    """

    beta: Tensor

    def __init__(self, arch: Architecture, beta: Tensor | None = None) -> None:
        super().__init__()
        self.arch, self.products = arch, PLAIN
        self.generator: torch.Generator | None = None
        # Row of each id while W_in has some of its rows only; None: the id itself.
        self.number_of_id: Tensor | None = None
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
        # NOTE[DIFF] pretrained encoders normalise once more, at one of their ends.
        self.outer_norm = Norm(arch, lead) if arch.outer_norm else None
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
        self._freeze()

    def _freeze(self) -> None:
        """Take from training what stands before the last ``n_trained`` layers; 0: the read-out."""
        n_trained = self.arch.n_trained
        if n_trained is None:
            return
        frozen: list[nn.Parameter] = [self.W_in]
        if isinstance(self.positions, nn.Parameter):
            frozen.append(self.positions)
        if self.outer_norm is not None and (self.arch.outer_norm == "first" or n_trained == 0):
            frozen.extend(self.outer_norm.parameters())
        for layer in self.layers[: len(self.layers) - n_trained]:
            frozen.extend(layer.parameters())
        for weight in frozen:
            weight.requires_grad_(False)

    def draw_from(self, generator: torch.Generator | None) -> None:
        """Draw dropout's masks from this generator, on the model's device; None: torch's own."""
        self.generator = generator
        for layer in self.layers:
            layer.generator = generator

    def evenly(self) -> ResidualTransformer:
        """The same weights in `EVEN` products, for prediction.

        The twin shares every tensor with this model, now and after later changes.
        """
        twin = copy.copy(self)
        twin.products = EVEN
        layers = []
        for layer in self.layers:
            layers.append(copy.copy(layer))
            layers[-1].products = EVEN
        # nn.Module keeps its children in this dict, which the shallow copy still shares.
        twin._modules = self._modules | {"layers": nn.ModuleList(layers)}
        return twin

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
            vectors = self.look_up(x)
            training = self.training and self.W_in.requires_grad
            X = dropout(vectors, self.arch.dropout, training, self.generator)
        else:
            X = self.products.project(x, self.W_in)
        if self.positions is not None:
            X = X + per_candidate(self.positions[..., : X.shape[-2], :], X, trailing=2)
        return self.outer_norm(X) if self.outer_norm and self.arch.outer_norm == "first" else X

    def look_up(self, ids: Tensor) -> Tensor:
        """Rows of W_in (*K, V, d) by their numbers (*K, n, T) -> (*K, n, T, d)."""
        if self.number_of_id is not None:
            ids = self.number_of_id[ids.long()]
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
        if self.outer_norm is not None and self.arch.outer_norm == "last":
            a = self.outer_norm(a)
        if self.arch.readout == "mean":
            return average_tokens(a, mask, self.products)
        return read_token(a, last_token(mask, a.shape[-2]))

    def unembed(self, a: Tensor) -> Tensor:
        """F = A W_U (*K, n, c)."""
        # NOTE[DIFF] an output bias; the paper has none.
        return self.products.affine(a, self.W_U, self.b_U)

    def features(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """What the read-out sees of every sequence, (*K, n, d)."""
        X = self.embed(x)
        for index, layer in enumerate(self.layers):
            X = layer(X, mask, self.layer_beta(index))
        return self.read(X, mask)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.unembed(self.features(x, mask))

    def traces(
        self, x: Tensor, mask: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Of every layer X, Attn(X), Z, each (*K, n, T, d), and softmax weights (*K, n, h, T, T).

        Z stands before a post norm, which would take one rank from it, whatever beta is.
        """
        X, traces = self.embed(x), []
        for index, layer in enumerate(self.layers):
            beta = self.layer_beta(index)
            attention, weights = layer.attend(X, mask)
            traces.append((X, attention, layer.residual(attention, X, beta), weights))
            if len(traces) < len(self.layers):
                X = layer.feedforward(layer.add_residual(attention, X, beta), beta)
        return traces
