"""What determines the shapes and formulas of a model."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Architecture:
    """All that determines the shapes and formulas of a model, as plain values.

    ``embedding`` is "linear" (tokens carry ``n_features`` channels, one matrix embeds them),
    "feature" (a table: every column is a token with one channel and its own embedding vector) or
    "token" (a token is an id below ``n_features``, which picks a row of the matrix: "linear" on
    one-hot channels; sequences may be shorter than ``n_tokens``).

    The last fields are those of pretrained encoders. ``biases`` gives query, key, value and W_O
    one each; ``causal`` lets a token attend to itself and those before it; ``norm_eps`` is added to
    variances; ``outer_norm`` normalises once more, the embedding ("first") or the tokens before the
    read-out ("last"); of ``n_trained`` the last layers and the read-out are trained, of None all.
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
    biases: bool = False
    causal: bool = False
    norm_eps: float = 1e-5
    outer_norm: str | None = None
    n_trained: int | None = None

    def at_length(self, length: int | None) -> Architecture:
        """The architecture for sequences padded to ``length``; None leaves it as it is."""
        return self if length is None else replace(self, n_tokens=length)
