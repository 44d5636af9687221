"""Rank collapse: whether a record shows it, and which beta is sure to prevent it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..theory.collapse import SkipTerms, kept_spread, skip_terms, sufficient_beta
from .protocol import fitted_traces
from .summary import COLLAPSED_BELOW
from .traces import LayerTrace, checked, unpadded

__all__ = ["LambdaSkipBound", "lambda_skip_bound"]


class Collapse(NamedTuple):
    """The first layer of a record in which tokens have become equal."""

    layer: int
    n_layers: int
    value: float
    of_input: float

    def in_words(self, epoch: int) -> str:
        """What has collapsed, when, and how far."""
        when = f"after epoch {epoch}" if epoch else "before training"
        return (
            f"rank collapse in layer {self.layer} (of {self.n_layers}, from 0) {when}: the tokens "
            f"of Z differ from their mean by {self.value:.1e} of their norm, below "
            f"{COLLAPSED_BELOW:g}; those of the model's input by {self.of_input:.1e}."
        )


def rank_collapse_of(record: Any) -> Collapse | None:
    """The collapse that the last record of a Conditioning shows, or None.

    Collapse of a layer: the rank-collapse residual of Z, the median over sequences, is below
    1e-3 and that of the model's input is not. Sequences whose tokens are equal from the start, or
    that have one token only, have lost nothing.
    """
    of_input = float(record.X.rank_collapse[-1, 0])
    values = record.Z.rank_collapse[-1]
    layers = np.flatnonzero(values < COLLAPSED_BELOW)
    if of_input < COLLAPSED_BELOW or not len(layers):
        return None
    layer = int(layers[0])
    return Collapse(layer, len(values), float(values[layer]), of_input)


@dataclass(frozen=True, eq=False)
class LambdaSkipBound:
    """For each layer the beta that is sure to keep a share of the tokens' spread.

    Attributes
    ----------
    kept : float
        The share asked for.
    layer_norm : bool
        Whether tokens are taken as normalised after the residual.
    beta : ndarray of shape (n_layers,)
        Residual coefficient of attention, as the model has it.
    sufficient_beta : ndarray of shape (n_layers,)
        Beta from which on the layer is sure to keep the share, for each of the sequences.
    kept_share : ndarray of shape (n_layers,)
        Share that was kept in fact, the smallest over the sequences.
    sure_share : ndarray of shape (n_layers,)
        Share that is sure at the model's beta, the smallest over the sequences; negative or -inf
        where nothing is sure.
    shift, spread : ndarray of shape (n_layers,)
        alpha and g of attention, their largest over the sequences
        (:func:`sklearn_restrans.theory.skip_terms`).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor
    >>> from sklearn_restrans.diagnostics import lambda_skip_bound
    >>> X = np.random.default_rng(0).standard_normal((20, 5, 3))
    >>> model = ResidualTransformerRegressor(2.0, n_layers=2, max_iter=1, random_state=0)
    >>> bound = lambda_skip_bound(model.fit(X, X[:, 0, 0]), X)
    >>> bool((bound.kept_share >= bound.sure_share).all())
    True
    """

    kept: float
    layer_norm: bool
    beta: np.ndarray
    sufficient_beta: np.ndarray
    kept_share: np.ndarray
    sure_share: np.ndarray
    shift: np.ndarray
    spread: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """One row per layer.

        Returns
        -------
        frame : DataFrame indexed by layer
            beta, sufficient_beta, kept_share, sure_share, shift, spread.
        """
        names = ("beta", "sufficient_beta", "kept_share", "sure_share", "shift", "spread")
        frame = pd.DataFrame({name: getattr(self, name) for name in names})
        return frame.rename_axis("layer")

    def __repr__(self) -> str:
        what = "LN(X)" if self.layer_norm else "X"
        lines = [f"LambdaSkipBound: beta that keeps {self.kept:g} of the spread of {what}'s tokens"]
        for layer, row in self.to_frame().iterrows():
            lines.append(
                f"  layer {layer}: beta {row.beta:.3g} keeps {row.kept_share:.3g} (sure: "
                f"{row.sure_share:.3g}); sufficient: beta {row.sufficient_beta:.3g}"
            )
        return "\n".join(lines)


def lambda_skip_bound(
    estimator: Any, X: Any, *, kept: float = 0.5, layer_norm: bool = False, segments: Any = None
) -> LambdaSkipBound:
    """Which beta is sure to prevent rank collapse in each layer of a fitted model.

    A layer keeps the share mu(Z) / mu(X) of its tokens' spread mu(X) = ||X - 1 x^T||_F; with
    ``layer_norm`` the share mu(LN(Z)) / mu(LN(X)). From Attn(X) as it is on these data follows the
    beta that is sure to keep the share ``kept`` (:func:`sklearn_restrans.theory.sufficient_beta`,
    which has the proof). The feed-forward part, and its own beta, are left out. Changing beta in
    one layer changes the inputs of the next ones, so ask again after a fit with the new beta.

    The condition of Theorem 4.1 of arXiv:2410.10609 on lambda, which holds for any attention of
    bounded norm, is :func:`sklearn_restrans.theory.lambda_skip`; it is larger.

    Parameters
    ----------
    estimator : estimator
        Fitted, or a fitted Pipeline that ends with one.
    X : array-like
        Data as for `estimator.predict`.
    kept : float, default=0.5
        Share of the spread to be kept, > 0; below 1 with ``layer_norm``.
    layer_norm : bool, default=False
        Take the tokens as normalised, before and after the residual: for ``norm="post"``.
    segments : array-like of shape (n_rows,), default=None
        As for `estimator.predict`, of an estimator with ``window``.

    Returns
    -------
    bound : LambdaSkipBound

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError, ValueError
        If it is not an estimator of this package, ``kept`` is not in its range, no sequence has
        two different tokens, or a token cannot be normalised.

    References
    ----------
    F. Arangath Joseph, J. Sieber, M. N. Zeilinger, C. Amo Alonso, "Lambda-Skip Connections",
    ICLR 2025, arXiv:2410.10609.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor
    >>> from sklearn_restrans.diagnostics import lambda_skip_bound
    >>> X = np.random.default_rng(0).standard_normal((20, 5, 3))
    >>> model = ResidualTransformerRegressor(1.0, max_iter=1, random_state=0).fit(X, X[:, 0, 0])
    >>> lambda_skip_bound(model, X, kept=0.5).beta.tolist()
    [1.0]
    """
    sufficient_beta(kept, SkipTerms(np.zeros(1), np.zeros(1)), layer_norm=layer_norm)  # the range
    chunks, _ = fitted_traces(estimator, X, "lambda_skip_bound", segments)
    found: dict[int, list[tuple[float, ...]]] = {}
    for chunk in chunks:
        for index, trace in enumerate(chunk):
            trace = checked(trace, np.shape(trace.inputs)[-1], index)
            for group in unpadded(trace):
                found.setdefault(index, []).extend(_terms(group, kept, layer_norm))
    if not all(found.get(index) for index in range(max(found, default=0) + 1)):
        raise ValueError("X must have a sequence with two different tokens, got none.")
    layers = [np.array(found[index]) for index in range(len(found))]
    largest, least = ([f(rows, axis=0) for rows in layers] for f in (np.max, np.min))
    return LambdaSkipBound(
        kept=float(kept),
        layer_norm=layer_norm,
        beta=np.array([np.median(rows[:, 0]) for rows in layers]),
        sufficient_beta=np.array([row[1] for row in largest]),
        kept_share=np.array([row[2] for row in least]),
        sure_share=np.array([row[3] for row in least]),
        shift=np.array([row[4] for row in largest]),
        spread=np.array([row[5] for row in largest]),
    )


def _terms(group: LayerTrace, kept: float, layer_norm: bool) -> list[tuple[float, ...]]:
    """Of each sequence with different tokens: beta, the sufficient one, shares, shift, spread."""
    X, attention, Z = group.inputs, group.attention, group.output
    terms = skip_terms(X, attention, layer_norm=layer_norm)
    some = np.isfinite(terms.spread)
    X, attention, Z = X[some], attention[some], Z[some]
    terms = SkipTerms(terms.shift[some], terms.spread[some])
    # Z = Attn(X) + beta X, solved for beta.
    beta = ((Z - attention) * X).sum((1, 2)) / (X * X).sum((1, 2))
    before, after = (_spread(_normalised(part) if layer_norm else part) for part in (X, Z))
    sufficient = sufficient_beta(kept, terms, layer_norm=layer_norm)
    sure = kept_spread(np.maximum(beta, 0.0), terms, layer_norm=layer_norm)
    return list(zip(beta, sufficient, after / before, sure, *terms, strict=True))


def _normalised(X: np.ndarray) -> np.ndarray:
    """LN(X) without gain, shift and the eps under the root; a token of equal channels stays 0."""
    centred = X - X.mean(axis=-1, keepdims=True)
    size = np.sqrt((centred**2).mean(axis=-1, keepdims=True))
    return np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)


def _spread(X: np.ndarray) -> np.ndarray:
    return np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=(1, 2))
