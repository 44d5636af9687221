"""Sufficient values of beta against rank collapse: proved in the docstring, tried here on problems.

MAPIE's way: the theorem is checked by simulation, with extreme cases beside random ones.
"""

import math

import numpy as np
import pytest
from scipy.special import softmax

from sklearn_restrans.theory import (
    SkipTerms,
    kept_spread,
    lambda_skip,
    skip_terms,
    sufficient_beta,
)

SEEDS = range(40)
BETAS = [0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0]
# Spreads are sums of some hundred squares in float64, compared with each other.
ROUNDING = 1e-9


def spread(X):
    return np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=(1, 2))


def layer_norm(X):
    X = X - X.mean(axis=-1, keepdims=True)
    return X / np.sqrt((X**2).mean(axis=-1, keepdims=True))


def problem(seed, n=6):
    """X and softmax attention on it, of random sizes, scales and similarity of the tokens."""
    rng = np.random.default_rng(seed)
    # A layer norm over two channels leaves two directions, and tokens of one sign none.
    T, d = rng.integers(2, 12), rng.integers(3, 9)
    common = rng.choice([0.0, 1.0, 10.0]) * rng.standard_normal((n, 1, d))
    X = (rng.standard_normal((n, T, d)) + common) * rng.choice([0.1, 1.0, 10.0])
    P = softmax(rng.choice([0.0, 1.0, 30.0]) * rng.standard_normal((n, T, T)), axis=-1)
    W = rng.choice([0.1, 1.0, 3.0]) * rng.standard_normal((d, d))
    return X, P @ X @ W


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm", [True, False])
def test_the_share_that_is_sure_is_kept(norm, seed):
    X, attention = problem(seed)
    f = layer_norm if norm else np.asarray
    terms = skip_terms(X, attention, layer_norm=norm)
    for beta in BETAS:
        sure = kept_spread(beta, terms, layer_norm=norm)
        kept = spread(f(attention + beta * X)) / spread(f(X))
        assert (kept >= sure - ROUNDING * (1 + abs(beta))).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("norm", [True, False])
def test_the_sufficient_beta_is_the_smallest_that_is_sure(norm, seed):
    X, attention = problem(seed)
    terms = skip_terms(X, attention, layer_norm=norm)
    for kept in (0.05, 0.3, 0.5, 0.9):
        beta = sufficient_beta(kept, terms, layer_norm=norm)
        np.testing.assert_allclose(kept_spread(beta, terms, layer_norm=norm), kept, rtol=1e-8)
        assert (kept_spread(0.999 * beta, terms, layer_norm=norm) < kept).all()
        f = layer_norm if norm else np.asarray
        Z = attention + beta[:, None, None] * X
        assert (spread(f(Z)) >= (kept - ROUNDING) * spread(f(X))).all()


def test_without_layer_norm_the_bound_is_attained():
    """Attn(X) = -g X takes exactly g from beta: no smaller beta is sufficient for all problems."""
    X = np.random.default_rng(0).standard_normal((3, 5, 4))
    terms = skip_terms(X, -0.7 * X, layer_norm=False)
    np.testing.assert_allclose(terms.spread, 0.7, rtol=1e-14)
    assert terms.shift.tolist() == [0, 0, 0]
    np.testing.assert_allclose(spread(1.2 * X - 0.7 * X) / spread(X), 0.5, rtol=1e-14)
    np.testing.assert_allclose(kept_spread(1.2, terms, layer_norm=False), 0.5, rtol=1e-14)


def test_under_layer_norm_what_is_added_to_all_tokens_alike_costs_spread():
    """Tokens close to the direction of the shift keep beta / (beta + alpha) of it, as claimed."""
    direction = np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2)
    across = np.array([0.0, 0.0, 1.0, -1.0]) / np.sqrt(2)
    angles = np.linspace(-1e-4, 1e-4, 5)[:, None]
    X = (np.cos(angles) * direction + np.sin(angles) * across)[None]
    attention = np.broadcast_to(3.0 * direction, X.shape)
    terms = skip_terms(X, attention)
    np.testing.assert_allclose(terms, [[3.0], [0.0]], atol=1e-9)
    kept = spread(layer_norm(attention + 2.0 * X)) / spread(layer_norm(X))
    assert kept[0] == pytest.approx(2 / 5, rel=1e-6)
    # beta <= alpha says nothing in general; 3.1 is sure to keep about half.
    assert kept_spread(2.0, terms)[0] == -np.inf
    assert kept_spread(3.1, terms)[0] == pytest.approx(3.1 / 6.1, rel=1e-6)


def test_flat_attention_needs_a_small_beta_only_without_layer_norm():
    X = np.random.default_rng(0).standard_normal((2, 6, 5)) + 2
    flat = np.broadcast_to(X.mean(axis=1, keepdims=True), X.shape)
    plain = skip_terms(X, flat, layer_norm=False)
    np.testing.assert_allclose(plain.spread, 0, atol=1e-15)
    np.testing.assert_allclose(sufficient_beta(0.5, plain, layer_norm=False), 0.5, rtol=1e-12)
    terms = skip_terms(X, flat)
    assert (sufficient_beta(0.5, terms) >= terms.shift).all() and (terms.shift > 0.1).all()


def test_tokens_without_spread_have_nothing_to_keep():
    X = np.ones((1, 3, 1)) * np.arange(4.0)
    terms = skip_terms(X, 0 * X + np.arange(3.0)[:, None])
    assert terms.spread.tolist() == [np.inf]
    assert sufficient_beta(0.5, terms).tolist() == [np.inf]
    assert skip_terms(X, X, layer_norm=False).spread.tolist() == [np.inf]


# ---- the paper's -------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("product", [0.1, 1.0, 11.3])
def test_lambda_satisfies_the_conditions_of_the_theorem_with_equality(a, product):
    lam = lambda_skip(a, product / 2, 2.0)
    assert lam**2 == pytest.approx(a * (product + lam) ** 2, rel=1e-10)
    assert lam == pytest.approx((a + math.sqrt(a)) * product / (1 - a), rel=1e-10)
    for K, share in ((1, 1.0), (3, 0.2)):
        lam = lambda_skip(a, product, 1.0, n_layers=K, relative_spread=share)
        # b / (N d) of the docstring.
        b = 2 * lam * product / (lam**2 - a * (product + lam) ** 2) / a**K
        assert b == pytest.approx(share, rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_the_papers_lambda_keeps_its_share_on_random_layers(seed):
    """K layers as in the theorem: softmax mixing, values of norm S, a layer norm, one lambda."""
    rng = np.random.default_rng(seed)
    N, d, K, a, S = 6, 5, 3, 0.5, 1.0
    Y = layer_norm(rng.standard_normal((1, N, d)))
    before = spread(Y)[0]
    lam = lambda_skip(a, S, math.sqrt(N), n_layers=K, relative_spread=float(before**2 / (N * d)))
    for _ in range(K):
        W = rng.standard_normal((d, d))
        M = softmax(rng.choice([0.1, 1, 20]) * rng.standard_normal((N, N)), axis=-1)
        Y = layer_norm(M @ Y @ (S * W / np.linalg.norm(W, 2)) + lam * Y)
    assert spread(Y)[0] ** 2 >= a**K * before**2


# ---- refusals ------------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal((2, 3, 4))
TERMS = SkipTerms(np.zeros(2), np.ones(2))
REFUSED = {
    "shapes": (lambda: skip_terms(X, X[:1]), "one shape"),
    "a matrix": (lambda: skip_terms(X[0], X[0]), "3 dimension"),
    "equal channels": (lambda: skip_terms(0 * X, X), "channels are all equal"),
    "nan": (lambda: skip_terms(X, X * np.nan), "finite"),
    "a negative beta": (lambda: kept_spread(-1.0, TERMS), "finite and >= 0"),
    "all of it": (lambda: sufficient_beta(1.0, TERMS), "`kept` must be below 1, got 1.0"),
    "none of it": (lambda: sufficient_beta(0.0, TERMS), "finite and > 0"),
    "a of one": (lambda: lambda_skip(1.0, 1.0, 1.0), "`kept` must be below 1"),
    "no layers": (lambda: lambda_skip(0.5, 1.0, 1.0, n_layers=0), "`n_layers` must be"),
    "no spread": (lambda: lambda_skip(0.5, 1.0, 1.0, relative_spread=0), "must be above 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused(case):
    call, sentence = REFUSED[case]
    with pytest.raises(ValueError, match=sentence):
        call()
    assert sufficient_beta(1.5, TERMS, layer_norm=False).tolist() == [2.5, 2.5]


def test_float32_is_refused():
    with pytest.raises(TypeError, match="float64 copy of the model, got float32"):
        skip_terms(X.astype(np.float32), X)
