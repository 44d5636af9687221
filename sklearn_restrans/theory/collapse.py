"""How large beta must be for tokens to stay apart: lambda-skip connections, as pure functions.

A layer computes Z = Attn(X) + beta X, and with a post norm LN(Z). With x the token mean, the
spread of X is mu(X) = ||X - 1 x^T||_F; rank collapse is mu(X) = 0. Two sufficient values of beta
stand here.

The paper's. Joseph, Sieber, Zeilinger & Amo Alonso (2025), arXiv:2410.10609, call beta lambda and
consider Y_k = LN(M Y_{k-1} C_V + lambda Y_{k-1}) with ||M||_F <= C_M and ||C_V|| <= S, a layer norm
without gain and shift, and no feed-forward part. Their Theorem 4.1: for a < 1,

    mu(Y_K)^2 >= a^K mu(Y_0)^2   if   lambda^2 > a (S C_M + |lambda|)^2   and   mu(Y_0)^2 >= b,
    b = a^{-K} 2 |lambda| N d S C_M / (lambda^2 - a (S C_M + |lambda|)^2)

for N tokens of width d. It takes the worst case over all mixing matrices M, so lambda is large. The
theorem is quoted from public reviews of the paper, which state it in these letters; we have not
read its proof, and :func:`lambda_skip` computes it as stated.

Ours. It takes Attn(X) as it is, and only the part of it that matters: see :func:`kept_spread`.

References
----------
F. Arangath Joseph, J. Sieber, M. N. Zeilinger, C. Amo Alonso, "Lambda-Skip Connections: the
architectural component that prevents Rank Collapse", ICLR 2025, arXiv:2410.10609.
Y. Dong, J.-B. Cordonnier, A. Loukas, "Attention is not all you need", ICML 2021: the measure mu.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from .numbers import real

__all__ = ["SkipTerms", "kept_spread", "lambda_skip", "skip_terms", "sufficient_beta"]


class SkipTerms(NamedTuple):
    """What attention adds to the tokens of each sequence, in units of the tokens.

    Attributes
    ----------
    shift : ndarray of shape (n,)
        alpha: what is added to all tokens alike. 0 without layer norm, where it does no harm.
    spread : ndarray of shape (n,)
        g: the spread of what is added, over the spread of X; infinite where X has none.

    Examples
    --------
    >>> import numpy as np
    >>> SkipTerms(np.zeros(2), np.ones(2)).spread.tolist()
    [1.0, 1.0]
    """

    shift: np.ndarray
    spread: np.ndarray


def skip_terms(X: Any, attention: Any, *, layer_norm: bool = True) -> SkipTerms:
    """The two terms of a layer that decide whether beta X outweighs Attn(X).

    Without layer norm alpha = 0 and g = mu(Attn) / mu(X). With it every token counts by its
    direction: let J take the mean over the channels from a token, r_i = ||J x_i||,
    u_i = J x_i / r_i and a_i = J Attn(X)_i / r_i. Then alpha = ||a||, a the mean of the a_i, and
    g = ||A - 1 a^T||_F / mu(U).

    Parameters
    ----------
    X, attention : array-like of shape (n, T, d)
        Inputs of a layer and Attn(X), sequences of equal length, in float64.
    layer_norm : bool, default=True
        Whether tokens are normalised after the residual.

    Returns
    -------
    terms : SkipTerms

    Raises
    ------
    TypeError, ValueError
        For arrays that are not float64, not finite, or of different shapes; and for a token whose
        channels are all equal, which a layer norm cannot normalise.

    Examples
    --------
    Rank-one attention has no spread of its own, and without layer norm nothing else matters:

    >>> import numpy as np
    >>> X, attention = np.eye(3)[None], np.full((1, 3, 3), 1 / 3)
    >>> skip_terms(X, attention, layer_norm=False).spread.tolist()
    [0.0]
    """
    X, attention = real(X, "X", 3), real(attention, "attention", 3)
    if X.shape != attention.shape:
        raise ValueError(
            f"`X` and `attention` must have one shape (n, T, d), got {X.shape} and "
            f"{attention.shape}."
        )
    shift = np.zeros(len(X))
    if layer_norm:
        X = X - X.mean(axis=-1, keepdims=True)
        size = np.linalg.norm(X, axis=-1, keepdims=True)
        if not (size > 0).all():
            raise ValueError(
                "`X` must not hold a token whose channels are all equal: a layer norm cannot "
                "normalise it; pass layer_norm=False."
            )
        X, attention = X / size, (attention - attention.mean(axis=-1, keepdims=True)) / size
        shift = np.linalg.norm(attention.mean(axis=1), axis=-1)
    own, added = _spread(X), _spread(attention)
    ratio = np.divide(added, own, out=np.full(len(X), np.inf), where=own > 0)
    return SkipTerms(shift, ratio)


def kept_spread(beta: Any, terms: SkipTerms, *, layer_norm: bool = True) -> Any:
    """Share of the tokens' spread that a layer is sure to keep; negative says nothing.

    Without layer norm mu(Z) >= (beta - g) mu(X), the triangle inequality. With layer norm
    mu(LN(Z)) >= rho mu(LN(X)), and for beta > alpha

        rho = beta / (beta + alpha) - 2 g / (beta - alpha).

    Proof. With the letters of :func:`skip_terms` the direction of J z_i is that of
    beta u_i + a_i = w_i + e_i, w_i = beta u_i + a and e_i = a_i - a. (1) The map from u to the
    direction of w = beta u + a is a bijection of the unit sphere for t = alpha / beta < 1. Where
    u and a are at an angle theta it shrinks a tangent to no less than
    (1 + t cos theta) / (1 + 2 t cos theta + t^2) >= 1 / (1 + t) of its length. The inverse
    therefore stretches arcs by at most 1 + t, and chords too, as sin(k x) <= k sin(x) for k >= 1
    and 0 <= x <= pi / 2. Spread is the root of the mean of the squared chords, up to a constant,
    so that of the directions of w is at least mu(U) / (1 + t). (2) Two vectors p and q differ in
    direction by at most 2 ||p - q|| / (||p|| + ||q||), here 2 ||e_i|| / ||w_i||, and
    ||w_i|| >= beta - alpha. Summed over the tokens, e changes the spread by at most
    2 g mu(U) / (beta - alpha).

    Parameters
    ----------
    beta : float or array-like of shape (n,)
        Residual coefficient, >= 0.
    terms : SkipTerms
        Of the same layer.
    layer_norm : bool, default=True
        As for :func:`skip_terms`.

    Returns
    -------
    rho : float or ndarray of shape (n,)
        -inf where beta <= alpha under layer norm.

    Raises
    ------
    TypeError, ValueError
        If beta is not a finite float64 >= 0.

    Examples
    --------
    >>> round(float(kept_spread(4.0, SkipTerms(1.0, 0.3))), 12)
    0.6
    """
    beta = real(beta, "beta", sign=">= 0")
    alpha, g = np.asarray(terms.shift, dtype=float), np.asarray(terms.spread, dtype=float)
    if not layer_norm:
        return (beta - g)[()]
    room = np.where(beta > alpha, beta - alpha, np.nan)
    rho = beta / np.where(beta + alpha > 0, beta + alpha, 1.0) - 2 * g / room
    return np.where(beta > alpha, rho, -np.inf)[()]


def sufficient_beta(kept: float, terms: SkipTerms, *, layer_norm: bool = True) -> Any:
    """The smallest beta for which :func:`kept_spread` is at least ``kept``.

    Formula: g + kept without layer norm. With it, rho grows with beta above alpha, so beta is the
    larger root of (1 - kept) beta^2 - (alpha + 2 g) beta - 2 g alpha + kept alpha^2 = 0, or alpha
    if that is larger.

    Parameters
    ----------
    kept : float
        Share of the spread to be kept, > 0; below 1 with layer norm.
    terms : SkipTerms
        Of the layer.
    layer_norm : bool, default=True
        As for :func:`skip_terms`.

    Returns
    -------
    beta : float or ndarray of shape (n,)
        Infinite where X has no spread.

    Raises
    ------
    TypeError, ValueError
        If ``kept`` is not in its range.

    Examples
    --------
    >>> float(sufficient_beta(0.6, SkipTerms(1.0, 0.3)).round(12))
    4.0
    """
    _check_share("kept", kept, math.inf if not layer_norm else 1)
    alpha, g = np.asarray(terms.shift, dtype=float), np.asarray(terms.spread, dtype=float)
    if not layer_norm:
        return (g + kept)[()]
    finite = np.where(np.isfinite(g), g, 0.0)
    middle = alpha + 2 * finite
    # Its root is real: for g = 0 it is alpha^2 (1 - 2 kept)^2, and it grows with g.
    square = middle**2 + 4 * (1 - kept) * (2 * finite * alpha - kept * alpha**2)
    root = (middle + np.sqrt(np.maximum(square, 0.0))) / (2 * (1 - kept))
    return np.where(np.isfinite(g), np.maximum(root, alpha), np.inf)[()]


def lambda_skip(
    kept: float,
    value_norm: float,
    mixing_norm: float,
    *,
    n_layers: int = 1,
    relative_spread: float = math.inf,
) -> float:
    """The sufficient lambda of Theorem 4.1 of arXiv:2410.10609, as stated there.

    Formula: the smallest lambda with lambda^2 > a (S C_M + lambda)^2 and mu(Y_0)^2 >= b, which is
    the larger root of (1 - a) lambda^2 - (2 a S C_M + k) lambda - a (S C_M)^2 = 0 for
    k = 2 S C_M N d / (a^K mu(Y_0)^2). Without the condition on the input k = 0, and lambda is
    (a + sqrt(a)) S C_M / (1 - a).

    Parameters
    ----------
    kept : float
        a, the share of mu^2 kept by every layer, between 0 and 1.
    value_norm : float
        S, a bound on the spectral norm of W_V (W_V W_O of several heads) of every layer.
    mixing_norm : float
        C_M, a bound on ||M||_F; sqrt(N) for softmax matrices of N tokens.
    n_layers : int, default=1
        K.
    relative_spread : float, default=inf
        mu(Y_0)^2 / (N d), at most 1 behind a layer norm; inf leaves the condition on the input out.

    Returns
    -------
    lam : float

    Raises
    ------
    TypeError, ValueError
        If a number is not in its range.

    Examples
    --------
    A softmax over 24 tokens and S = 1, to keep half of mu^2; and with tokens far apart:

    >>> round(lambda_skip(0.5, 1.0, 24**0.5), 1)
    11.8
    >>> round(lambda_skip(0.5, 1.0, 24**0.5, relative_spread=0.9), 1)
    53.8
    """
    _check_share("kept", kept, 1)
    S, C = real(value_norm, "value_norm", 0, ">= 0"), real(mixing_norm, "mixing_norm", 0, ">= 0")
    if not relative_spread > 0:
        raise ValueError(f"`relative_spread` must be above 0, got {relative_spread!r}.")
    if isinstance(n_layers, bool) or not isinstance(n_layers, int | np.integer) or n_layers < 1:
        raise ValueError(f"`n_layers` must be an integer >= 1, got {n_layers!r}.")
    product = float(S * C)
    k = 2 * product / (kept**n_layers * relative_spread)
    middle = 2 * kept * product + k
    root = math.sqrt(middle**2 + 4 * (1 - kept) * kept * product**2)
    return (middle + root) / (2 * (1 - kept))


def _spread(X: np.ndarray) -> np.ndarray:
    """mu of each sequence."""
    return np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=(1, 2))


def _check_share(name: str, value: Any, below: float) -> None:
    if not real(value, name, 0, "> 0") < below:
        raise ValueError(f"`{name}` must be below {below:g}, got {value!r}.")
