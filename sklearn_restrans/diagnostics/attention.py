"""Where attention looks: softmax weight by the lag behind the token that reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .. import _linalg
from .measure import keys_of_rows
from .protocol import fitted_traces
from .summary import attention_state
from .traces import checked, unpadded

__all__ = ["AttentionOverLags", "attention_over_lags"]


@dataclass(frozen=True, eq=False)
class AttentionOverLags:
    """Mean softmax weight of each head by lag, in L layers of h heads.

    Attributes
    ----------
    lags : int ndarray of shape (n_lags,)
        Tokens behind the reading one: 0 is that token itself, 3 the third before it, -1 the next.
    weights : ndarray of shape (L, h, n_lags)
        Mean over sequences and over the reading tokens that have a key at that lag; nan where no
        reading token may read one.
    uniform : ndarray of shape (n_lags,)
        The same mean for a softmax that weighs all keys alike.
    score_std, entropy_share : ndarray of shape (L, h)
        Over the rows of the reading tokens: the mean standard deviation of the scores, and the mean
        entropy over log of the number of keys (nan if there is one key only).
    reading : str
        "all" or "last".

    Examples
    --------
    Flat attention of three tokens:

    >>> import numpy as np
    >>> from sklearn_restrans.diagnostics import AttentionOverLags
    >>> flat = np.full((1, 1, 5), 1 / 3)
    >>> lags = np.arange(-2, 3)
    >>> found = AttentionOverLags(lags, flat, flat[0, 0], np.zeros((1, 1)), np.ones((1, 1)), "all")
    >>> found.state.tolist(), abs(found.mean_lag).round(12).tolist()
    ([['flat']], [[0.0]])
    """

    lags: np.ndarray
    weights: np.ndarray
    uniform: np.ndarray
    score_std: np.ndarray
    entropy_share: np.ndarray
    reading: str

    @property
    def state(self) -> np.ndarray:
        """ "flat", "selective" or "saturated" of each head, shape (L, h).

        The thresholds are those of :class:`Conditioning`.
        """
        states: np.ndarray = attention_state(self.score_std, self.entropy_share)
        return states

    @property
    def mean_lag(self) -> np.ndarray:
        """Mean lag of each head with ``weights`` as weights, shape (L, h)."""
        weights = np.nan_to_num(self.weights)
        mean: np.ndarray = (weights * self.lags).sum(axis=-1) / weights.sum(axis=-1)
        return mean

    def to_frame(self) -> pd.DataFrame:
        """One row per (layer, head, lag).

        Returns
        -------
        frame : DataFrame
            Columns layer and head (from 0), lag, weight, uniform, score_std, entropy_share, state.
        """
        L, h, n = self.weights.shape
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(L), h * n),
                "head": np.tile(np.repeat(np.arange(h), n), L),
                "lag": np.tile(self.lags, L * h),
                "weight": self.weights.ravel(),
                "uniform": np.tile(self.uniform, L * h),
                "score_std": np.repeat(self.score_std.ravel(), n),
                "entropy_share": np.repeat(self.entropy_share.ravel(), n),
                "state": np.repeat(self.state.ravel(), n),
            }
        )

    def __repr__(self) -> str:
        who = "the last token" if self.reading == "last" else "every token"
        lines = [f"AttentionOverLags, read by {who} ({len(self.lags)} lags)"]
        # The mean of a lag that few reading tokens have says little: named is one that half have.
        reach = np.abs(self.lags)
        named = (2 * reach <= reach.max()) | (self.reading == "last")
        for layer, heads in enumerate(self.weights):
            for head, weights in enumerate(heads):
                top = int(np.argmax(np.where(named, np.nan_to_num(weights), -1.0)))
                lines.append(
                    f"  layer {layer}, head {head}: {self.state[layer, head]} (score std "
                    f"{self.score_std[layer, head]:.3g}, entropy "
                    f"{self.entropy_share[layer, head]:.3g} of log T), most on lag "
                    f"{self.lags[top]} ({weights[top]:.2g}; uniform {self.uniform[top]:.2g})"
                )
        return "\n".join(lines)


def attention_over_lags(
    estimator: Any, X: Any, *, reading: str = "all", segments: Any = None
) -> AttentionOverLags:
    """How far behind the reading token each head of a fitted model looks.

    Lags count real tokens: padding is left out. Attention of windows and tables looks both ways,
    so lags are negative too, unless the last token reads or the model is causal. A model whose
    ``readout`` is "last" reads the last token of its last layer only, but the tokens before it in
    the layers below.

    Parameters
    ----------
    estimator : estimator
        Fitted, or a fitted Pipeline that ends with one.
    X : array-like
        Data as for `estimator.predict`; every sequence is counted once.
    reading : {"all", "last"}, default="all"
        The tokens that read: all of a sequence, or its last one.
    segments : array-like of shape (n_rows,), default=None
        As for `estimator.predict`, of an estimator with ``window``.

    Returns
    -------
    found : AttentionOverLags

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError, ValueError
        If it is not an estimator of this package, or ``reading`` is another word.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, attention_over_lags
    >>> X = np.random.default_rng(0).standard_normal((20, 5, 3))
    >>> model = ResidualTransformerRegressor(max_iter=1, random_state=0).fit(X, X[:, 0, 0])
    >>> found = attention_over_lags(model, X, reading="last")
    >>> found.lags.tolist(), found.weights.shape, round(float(found.weights.sum()), 9)
    ([0, 1, 2, 3, 4], (1, 1, 5), 1.0)
    """
    if reading not in ("all", "last"):
        raise ValueError(f"reading must be 'all' or 'last', got {reading!r}.")
    chunks, _ = fitted_traces(estimator, X, "attention_over_lags", segments)
    layers: list[_Lags] = []
    for chunk in chunks:
        layers = layers or [_Lags() for _ in chunk]
        for index, (layer, trace) in enumerate(zip(layers, chunk, strict=True)):
            for group in unpadded(checked(trace, np.shape(trace.inputs)[-1], index)):
                if group.weights is None:
                    raise ValueError("the estimator's traces hold no softmax matrices.")
                layer.update(
                    _linalg.finite_real(group.weights, f"weights of layer {index}", 4), reading
                )
    if not layers:
        raise ValueError("X must hold at least one sequence, got none.")
    return _result(layers, reading)


class _Lags:
    """Sums over the rows of one layer: by lag (h, 2 S - 1) around lag 0, and of whole rows."""

    def __init__(self) -> None:
        self.weight, self.uniform, self.count = np.zeros((1, 1)), np.zeros(1), np.zeros(1)
        self.score_std: Any = 0.0
        self.entropy: Any = 0.0
        self.n_rows = self.n_choices = 0

    def update(self, weights: np.ndarray, reading: str) -> None:
        """Add unpadded softmax matrices (n, h, T, T)."""
        n, h, T, _ = weights.shape
        keys = keys_of_rows(weights)
        rows = np.arange(T) if reading == "all" else np.array([T - 1])
        weights, keys = weights[:, :, rows], keys[rows]
        self._grow(h, T)
        # Column `middle + lag` of the sums belongs to a lag; the keys of row q have q - k.
        middle = self.weight.shape[1] // 2
        total = weights.sum(axis=0)
        for row, (q, n_keys) in enumerate(zip(rows, keys, strict=True)):
            # A causal row may read the first n_keys tokens, another one all T.
            place = middle + q - np.arange(n_keys)
            self.weight[:, place] += total[:, row, :n_keys]
            self.uniform[place] += n / n_keys
            self.count[place] += n
        log = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        positive = np.maximum((weights > 0).sum(axis=-1), 1)
        mean = log.sum(axis=-1) / positive
        square = np.where(weights > 0, (log - mean[..., None]) ** 2, 0.0).sum(axis=-1) / positive
        entropy, choice = -(weights * log).sum(axis=-1), keys > 1
        self.score_std = self.score_std + np.sqrt(square).sum(axis=(0, 2))
        self.entropy = self.entropy + (entropy[..., choice] / np.log(keys[choice])).sum(axis=(0, 2))
        self.n_rows += n * len(rows)
        self.n_choices += n * int(choice.sum())

    def _grow(self, h: int, T: int) -> None:
        """Room for the lags of sequences of T tokens."""
        more = max(0, T - 1 - self.weight.shape[1] // 2)
        self.weight = np.pad(self.weight, ((0, h - len(self.weight)), (more, more)))
        self.uniform, self.count = np.pad(self.uniform, more), np.pad(self.count, more)


def _result(layers: list[_Lags], reading: str) -> AttentionOverLags:
    middle = len(layers[0].count) // 2
    lags = np.arange(-middle, middle + 1)
    read = np.any([layer.count > 0 for layer in layers], axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 is nan: no token may read at that lag
        weights = np.stack([layer.weight / layer.count for layer in layers])
        uniform = layers[0].uniform / layers[0].count
    return AttentionOverLags(
        lags=lags[read],
        weights=weights[..., read],
        uniform=uniform[read],
        score_std=np.stack([layer.score_std / layer.n_rows for layer in layers]),
        entropy_share=np.stack([layer.entropy / (layer.n_choices or np.nan) for layer in layers]),
        reading=reading,
    )
