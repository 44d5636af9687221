"""Claims about the largest eigenvalue that Lanczos finds."""

import numpy as np
import pytest

from sklearn_restrans._lanczos import lanczos_largest

SEEDS = [0, 1, 2]


def symmetric(eigenvalues, seed):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2))[0]
    return Q * eigenvalues @ Q.T


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "eigenvalues",
    [
        np.r_[10.0, np.linspace(0, 5, 199)],
        np.r_[-40.0, np.linspace(-1, 4, 198), 10.0],  # the largest modulus is negative
        np.r_[np.zeros(140), np.geomspace(1e-6, 1.0, 60)],  # like a loss near its minimum
    ],
)
def test_lanczos_comes_within_five_percent_in_ten_products(eigenvalues, seed):
    A = symmetric(eigenvalues, seed)
    result = lanczos_largest(lambda v: A @ v, 200, n_iter=10, rng=seed)
    largest = np.linalg.eigvalsh(A)[-1]
    assert 0.95 * largest <= result.value <= largest * (1 + 1e-12)
    assert len(result.trace) == 10
    assert result.value == result.trace[-1]
    assert (np.diff(result.trace) >= -1e-12 * largest).all()
    # Its own stop criterion: an eigenvalue lies within the residual norm.
    assert np.abs(np.linalg.eigvalsh(A) - result.value).min() <= result.residual_norm + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("eigenvalues", [np.linspace(-3, 1, 30), np.linspace(-9, -2, 30)])
def test_lanczos_with_all_products_is_exact(eigenvalues, seed):
    A = symmetric(eigenvalues, seed)
    result = lanczos_largest(lambda v: A @ v, 30, n_iter=100, rng=seed)
    assert result.value == pytest.approx(eigenvalues[-1], rel=1e-12)
    assert len(result.trace) <= 30


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("eigenvalues", "n_distinct"),
    [
        (np.r_[7.0, 3.0, np.zeros(48)], 3),
        (np.r_[-7.0, np.zeros(49)], 2),
        (np.full(50, 2.0), 1),
        (np.zeros(50), 1),
    ],
)
def test_lanczos_stops_when_the_krylov_space_is_exhausted(eigenvalues, n_distinct, seed):
    """m distinct eigenvalues need m products; then the value is exact, the residual rounding.

    One more where the start vector has almost no part along one of them.
    """
    A = symmetric(eigenvalues, seed)
    result = lanczos_largest(lambda v: A @ v, 50, n_iter=20, rng=seed)
    assert n_distinct <= len(result.trace) <= n_distinct + 1
    assert result.value == pytest.approx(eigenvalues.max(), abs=1e-13)
    assert result.residual_norm <= 1e-12


@pytest.mark.parametrize("size", [1e-300, 1e-14, 1e14, 1e300])
def test_lanczos_does_not_depend_on_the_size_of_the_matrix(size):
    """Its stop is relative: a residual of 1e-14 is rounding for ||A|| = 1 alone."""
    A = symmetric(np.r_[10.0, np.linspace(0, 5, 79)], seed=0)
    plain = lanczos_largest(lambda v: A @ v, 80, rng=1)
    scaled = lanczos_largest(lambda v: size * (A @ v), 80, rng=1)
    assert len(scaled.trace) == len(plain.trace) == 10
    np.testing.assert_allclose(scaled.trace / size, plain.trace, rtol=1e-12)
    assert scaled.residual_norm / size == pytest.approx(plain.residual_norm, rel=1e-9)


def test_lanczos_keeps_its_basis_orthogonal():
    """The far eigenvalue is found at once: without re-orthogonalisation it returns as ghosts."""
    A = symmetric(np.r_[-1e3, np.linspace(0, 1, 99)], seed=0)
    vectors = []
    lanczos_largest(lambda v: vectors.append(v.copy()) or A @ v, 100, n_iter=40, rng=0)
    assert len(vectors) == 40
    Q = np.stack(vectors)
    assert np.abs(Q @ Q.T - np.eye(40)).max() < 1e-13


def test_lanczos_is_reproducible_and_refuses_bad_products():
    A = symmetric(np.linspace(0, 1, 40), seed=0)
    first, second = (lanczos_largest(lambda v: A @ v, 40, rng=3) for _ in range(2))
    assert np.array_equal(first.trace, second.trace)
    for wrong in (lambda v: v[:-1], lambda v: v * np.nan):
        with pytest.raises(ValueError, match="matvec must return 40 finite numbers"):
            lanczos_largest(wrong, 40, rng=0)
    returned = np.ones(40)
    lanczos_largest(lambda v: returned, 40, n_iter=1, rng=0)
    assert np.array_equal(returned, np.ones(40))
