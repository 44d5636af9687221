"""Small generators with a known rule, for tests, examples and benchmarks."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils import check_random_state

from .._validation import check_integer

# Larger factors of a normal number overflow.
_LARGEST = 1e300
# 8 TiB of float64: more is a slip, which numpy would answer with a sentence about dimensions.
_MOST_VALUES = 2**40


def make_planted_sequences(
    n_samples=200,
    n_tokens=8,
    n_features=4,
    *,
    sharpness=3.0,
    noise=0.0,
    return_coef=False,
    random_state=None,
):
    """Sequences whose target one attention head can compute and a linear model cannot.

    With x_t the token t of a standard normal sequence, T the last one and w a random unit vector,

        y = sum_t a_t <w, x_t[2:]> + noise,    a = softmax_t(sharpness * x_T[0] * x_t[1]):

    channel 0 of the last token asks for large or small values of channel 1, and the answer is
    read from the other channels of the tokens that have them.

    Parameters
    ----------
    n_samples : int, default=200
        Number of sequences.
    n_tokens : int, default=8
        Tokens of every sequence.
    n_features : int, default=4
        Channels of a token, at least 3.
    sharpness : float, default=3.0
        Scale of the scores; 0 makes the target a mean over the tokens, which is linear.
    noise : float, default=0.0
        Standard deviation of the noise added to the target.
    return_coef : bool, default=False
        Whether to return w as well.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_samples, n_tokens, n_features)
        Sequences, float64.
    y : ndarray of shape (n_samples,)
        Targets, float64.
    coef : ndarray of shape (n_features - 2,)
        The vector w, only if `return_coef`.

    Raises
    ------
    ValueError
        If a number is too small or too large.

    Examples
    --------
    >>> from sklearn_restrans.datasets import make_planted_sequences
    >>> X, y = make_planted_sequences(100, n_tokens=6, random_state=0)
    >>> X.shape, y.shape
    ((100, 6, 4), (100,))
    """
    for name, value, least in (
        ("n_samples", n_samples, 1),
        ("n_tokens", n_tokens, 1),
        ("n_features", n_features, 3),
    ):
        check_integer(name, value, least)
    for name, value in (("sharpness", sharpness), ("noise", noise)):
        # A float32 cannot be compared with the limit, which is beyond its range.
        number = float(value) if isinstance(value, np.floating) else value
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= number <= _LARGEST:
            raise ValueError(f"{name} must be a number from 0 to {_LARGEST:g}, got {value!r:.80}.")
    if n_samples * n_tokens * n_features > _MOST_VALUES:
        raise ValueError(
            f"n_samples={n_samples}, n_tokens={n_tokens} and n_features={n_features} ask for more "
            f"than {_MOST_VALUES} values; pass smaller numbers."
        )
    if not isinstance(return_coef, bool | np.bool_):
        raise ValueError(f"return_coef must be True or False, got {return_coef!r:.80}.")
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, an integer from 0 to 2**32 - 1 or a RandomState, got "
            f"{random_state!r:.80}."
        ) from error
    X = rng.standard_normal((n_samples, n_tokens, n_features))
    coef = rng.standard_normal(n_features - 2)
    coef /= np.linalg.norm(coef)
    scores = sharpness * X[:, -1:, 0] * X[:, :, 1]
    attention = np.exp(scores - scores.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    y = (attention * (X[:, :, 2:] @ coef)).sum(axis=1) + noise * rng.standard_normal(n_samples)
    return (X, y, coef) if return_coef else (X, y)
