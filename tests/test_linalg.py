"""Claims about the numerical linear algebra, on spectra planted by construction."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg

from sklearn_restrans import _linalg
from sklearn_restrans._linalg import StreamingQR, singular_values

SEEDS = [0, 1, 2]


def planted(n_rows, s, seed):
    """Matrix U diag(s) V^T with random orthonormal U (n_rows, k) and V (k, k)."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((n_rows, len(s))))[0]
    V = np.linalg.qr(rng.standard_normal((len(s), len(s))))[0]
    return U * s @ V.T


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("condition", "rtol"),
    # The error of sigma_min is c eps condition, c about 1: 2e-13 at 1e3, 2e-7 at 1e9, 2e-4 at 1e12.
    [(1, 1e-14), (1e3, 1e-12), (1e5, 1e-10), (1e9, 1e-6), (1e12, 1e-3)],
)
@pytest.mark.parametrize("n_rows", [32, 6_000])
def test_sigma_min_of_planted_spectrum(n_rows, condition, rtol, seed):
    s = np.geomspace(1.0, 1.0 / condition, 32)
    computed = singular_values(planted(n_rows, s, seed), block_rows=1_000)
    assert computed.shape == (32,)
    assert abs(computed[-1] / s[-1] - 1) <= rtol
    assert abs(computed[0] - 1) <= 1e-14


@pytest.mark.parametrize("exponent", [0, 10, 20, 30, 40])
def test_sigma_min_of_a_matrix_without_rounding(exponent):
    """Hadamard matrices and powers of two make U diag(s) V^T exact, so all error is the QR's."""
    s = np.exp2(-np.linspace(0, exponent, 6).round())
    s = np.r_[s, s[-1], s[-1]]
    U = scipy.linalg.hadamard(1024)[:, :8] / 32.0
    A = (U * s) @ scipy.linalg.hadamard(8)  # rows of the last are orthogonal of norm sqrt(8)
    assert np.array_equal(U.T @ A @ scipy.linalg.hadamard(8) / 8, np.diag(s))
    computed = singular_values(A, block_rows=100) / np.sqrt(8)
    # The bound is relative to sigma_max = 1; 4 eps was never reached on other sizes.
    np.testing.assert_allclose(computed, s, rtol=0, atol=4 * np.finfo(float).eps)


@pytest.mark.parametrize("shape", [(4_000, 7), (50, 50), (7, 40), (1, 9), (9, 1), (1, 1), (3, 5)])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_shape_agrees_with_scipy(shape, seed):
    A = np.random.default_rng(seed).standard_normal(shape)
    expected = scipy.linalg.svdvals(A)
    # Both are backward stable: a few eps times sigma_max.
    atol = 1e-13 * expected[0]
    np.testing.assert_allclose(singular_values(A), expected, rtol=0, atol=atol)
    stream = StreamingQR(shape[1], block_rows=3)
    for block in np.array_split(A, 4):
        stream.update(block)
    assert stream.n_rows == shape[0]
    np.testing.assert_allclose(stream.singular_values(), expected, rtol=0, atol=atol)


def test_zero_rank_deficient_and_empty_matrices():
    assert np.array_equal(singular_values(np.zeros((30, 4))), np.zeros(4))
    assert singular_values(np.zeros((0, 4))).shape == (0,)
    assert StreamingQR(4).singular_values().shape == (0,)
    s = np.array([5.0, 2.0, 1.0, 0.0, 0.0])
    computed = singular_values(planted(3_000, s, seed=0))
    np.testing.assert_allclose(computed, s, rtol=0, atol=1e-14 * 5)
    assert _linalg.numerical_rank(computed, (3_000, 5)) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_result_does_not_depend_on_blocks_or_order(seed):
    A = planted(9_500, np.geomspace(1, 1e-3, 16), seed)
    reference = singular_values(A)
    for block_rows in (1, 17, 1_000, 8_000, 20_000):
        computed = singular_values(A[:2_000] if block_rows == 1 else A, block_rows=block_rows)
        expected = singular_values(A[:2_000]) if block_rows == 1 else reference
        np.testing.assert_allclose(computed, expected, rtol=1e-12)
    shuffled = np.random.default_rng(seed).permutation(A)
    np.testing.assert_allclose(singular_values(shuffled), reference, rtol=1e-12)


def test_size_of_the_incoming_blocks_does_not_change_a_bit():
    A = np.random.default_rng(0).standard_normal((5_000, 8))
    reference = singular_values(A)
    for size in (1, 13, 1_999, 2_000, 2_001, 5_000):
        blocks = (A[i : i + size] for i in range(0, len(A), size))
        assert np.array_equal(singular_values(blocks), reference)


@pytest.mark.parametrize("d", [1, 6])
def test_r_is_the_triangular_factor_and_reading_it_changes_nothing(d):
    A = np.random.default_rng(0).standard_normal((2_600, d))
    read, unread = StreamingQR(d, block_rows=500), StreamingQR(d, block_rows=500)
    for block in np.array_split(A, 7):
        assert read.update(block).r.shape == (d, d)
        assert np.array_equal(read.r, read.r)
        unread.update(block)
    assert np.array_equal(read.r, unread.r)
    assert np.array_equal(read.r, np.triu(read.r))
    np.testing.assert_allclose(read.r.T @ read.r, A.T @ A, rtol=0, atol=1e-10)


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(0)
    A, w = rng.standard_normal((3_000, 5)), rng.integers(0, 4, size=3_000)
    weighted = StreamingQR(5, block_rows=700)
    for rows in np.array_split(np.arange(3_000), 4):
        weighted.update(A[rows], w[rows])
    repeated = singular_values(np.repeat(A, w, axis=0))
    np.testing.assert_allclose(weighted.singular_values(), repeated, rtol=1e-12)


@pytest.mark.parametrize("shape", [(100_000, 64), (4, 3_000)])
def test_memory_is_one_buffer(shape):
    """A buffer of 2,064 rows takes 1.06 MB, the tall matrix 51 MB, R of the wide one 72 MB."""
    A = np.random.default_rng(0).standard_normal(shape)
    tracemalloc.start()
    singular_values(A)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, bool])
def test_other_types_are_cast_to_float64(dtype):
    A = np.random.default_rng(0).integers(-1, 2, size=(200, 5)).astype(dtype)
    expected = scipy.linalg.svdvals(A.astype(np.float64))
    np.testing.assert_allclose(singular_values(A), expected, rtol=1e-12)


@pytest.mark.parametrize("condition", [1e5, 1e6])
def test_float32_gram_is_noise_where_qr_is_not(condition):
    """theory.md section 4: below sqrt(eps) sigma_max a float32 Gram matrix holds rounding."""
    noise = []
    for seed in range(20):
        A = planted(1_000, np.geomspace(1, 1 / condition, 16), seed).astype(np.float32)
        truth = scipy.linalg.svdvals(A.astype(np.float64))[-1]
        assert abs(singular_values(A)[-1] / truth - 1) < 1e-9  # eps times condition
        gram = np.linalg.eigvalsh(A.T @ A)[0]
        noise.append(gram < 0 or abs(np.sqrt(gram) / truth - 1) > 0.5)
    assert np.mean(noise) >= 0.9


def test_bad_input_is_refused_in_words():
    with pytest.raises(ValueError, match="block holds NaN or infinity"):
        StreamingQR(2).update([[1.0, np.nan]])
    for infinity in (np.inf, -np.inf):
        with pytest.raises(ValueError, match="matrix holds NaN or infinity"):
            singular_values(np.array([[1.0, infinity]]))
    with pytest.raises(ValueError, match=r"3 columns, expected n_columns = 2"):
        StreamingQR(2).update(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"2 dimensions, got shape \(3,\)"):
        singular_values([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="matrix has no blocks"):
        singular_values([])
    with pytest.raises(TypeError, match="real numbers, got dtype complex128"):
        singular_values(np.ones((2, 2), dtype=complex))
    with pytest.raises(ValueError, match="weights must be 2 numbers >= 0"):
        StreamingQR(1).update([[1.0], [2.0]], weights=[1.0, -1.0])
    with pytest.raises(ValueError, match="weights must be 2 numbers >= 0"):
        StreamingQR(1).update([[1.0], [2.0]], weights=[1.0])
    with pytest.raises(ValueError, match="block_rows must be an integer >= 1, got 0"):
        StreamingQR(1, block_rows=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_numerical_rank_of_computed_products(seed):
    """A product of rank 5 has rank 5 in the precision it was computed in, and only there."""
    rng = np.random.default_rng(seed)
    B, C = rng.standard_normal((2_000, 5)), rng.standard_normal((5, 24))
    s = singular_values(B @ C)
    assert _linalg.numerical_rank(s, (2_000, 24)) == 5
    s32 = singular_values(B.astype(np.float32) @ C.astype(np.float32))
    assert _linalg.numerical_rank(s32, (2_000, 24), dtype=np.float32) == 5
    assert _linalg.numerical_rank(s32, (2_000, 24)) == 24


def test_numerical_rank_takes_a_tolerance_and_stacks():
    s = np.array([[1.0, 1e-2, 1e-5], [0.0, 0.0, 0.0]])
    assert _linalg.numerical_rank(s, (3, 3)).tolist() == [3, 0]
    assert _linalg.numerical_rank(s, (3, 3), rtol=1e-3).tolist() == [2, 0]
    assert _linalg.numerical_rank([], (0, 3)) == 0


def test_the_tolerance_of_a_rank_grows_with_the_shape_up_to_the_root_of_eps():
    """max(shape) eps of float32 would be 1.2 at ten million rows: no rank at all."""
    s = [1.0, 1e-2, 4e-4, 2e-4, 1e-7]
    for n_rows, rank in [(5, 4), (1_000, 4), (2_000, 3), (10_000_000, 3)]:
        assert _linalg.numerical_rank(s, (n_rows, 5), dtype=np.float32) == rank
    assert _linalg.numerical_rank(s, (10_000_000, 5)) == 5


def test_numbers_beyond_the_range_of_float64_are_refused_in_words():
    with pytest.raises(ValueError, match="divide the rows by a constant"):
        singular_values(np.full((400, 2), 1.5e308))
    with pytest.raises(ValueError, match="block times the roots of its weights holds NaN or inf"):
        StreamingQR(1).update([[1e300]], weights=[1e300])
    for size in (1e-300, 1e300):
        s = singular_values(size * np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
        np.testing.assert_allclose(s, [4 * size, 3 * size], rtol=1e-14)
        root = StreamingQR(1).update([[3.0], [4.0]], weights=[size, size]).singular_values()
        np.testing.assert_allclose(root, 5 * np.sqrt(size), rtol=1e-14)


def test_kth_singular_value_is_zero_beyond_the_last():
    s = np.array([[3.0, 2.0], [5.0, 4.0]])
    assert _linalg.kth_singular_value(s[0], 2) == 2.0
    assert _linalg.kth_singular_value(s[0], 3) == 0.0
    assert _linalg.kth_singular_value(s[0], 0) == 0.0
    assert _linalg.kth_singular_value(s, [1, 7]).tolist() == [3.0, 0.0]
    for wrong in (-1, 1.5):
        with pytest.raises(ValueError, match="k counts singular values"):
            _linalg.kth_singular_value(s[0], wrong)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 4e307])  # the last: sums overflow
def test_ranks_and_condition_of_known_spectra(scale):
    s = scale * np.array([4.0, 2.0, 1.0, 1.0, 0.0])
    p = np.array([0.5, 0.25, 0.125, 0.125])
    # entropy 1.75 bits
    assert _linalg.effective_rank(s) == pytest.approx(2**1.75, rel=1e-14)
    assert _linalg.effective_rank(s) == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-14)
    assert _linalg.stable_rank(s) == pytest.approx(22 / 16, rel=1e-14)
    assert _linalg.condition_number(s, rank=4) == 4.0
    assert _linalg.condition_number(s, rank=5) == np.inf
    stacked = np.stack([s, np.zeros(5)])
    assert _linalg.effective_rank(stacked)[1] == _linalg.stable_rank(stacked)[1] == 0.0
    assert _linalg.condition_number(stacked, [2, 0]).tolist() == [2.0, np.inf]


@pytest.mark.parametrize("seed", SEEDS)
def test_rank_collapse_is_the_formula(seed):
    Z = np.random.default_rng(seed).standard_normal((6, 9, 4)) + 1.0
    expected = [np.linalg.norm(M - M.mean(axis=0)) / np.linalg.norm(M) for M in Z]
    np.testing.assert_allclose(_linalg.rank_collapse(Z), expected, rtol=1e-13)
    np.testing.assert_allclose(_linalg.rank_collapse(1e200 * Z), expected, rtol=1e-13)
    np.testing.assert_allclose(_linalg.rank_collapse(1e-200 * Z), expected, rtol=1e-13)


def test_rank_collapse_at_its_ends():
    equal_tokens = np.ones((1, 5, 3))
    assert _linalg.rank_collapse(equal_tokens) == 0.0
    assert _linalg.rank_collapse(np.zeros((2, 5, 3))).tolist() == [0.0, 0.0]
    centred = np.array([[[1.0, 2.0], [-1.0, -2.0]]])
    assert _linalg.rank_collapse(centred) == 1.0


def test_rank_collapse_leaves_padding_out_whatever_it_holds():
    rng = np.random.default_rng(0)
    lengths = np.array([7, 3, 1, 5])
    mask = np.arange(7) < lengths[:, None]
    Z = np.where(mask[..., None], rng.standard_normal((4, 7, 2)), np.nan)
    alone = [_linalg.rank_collapse(M[None, :t])[0] for M, t in zip(Z, lengths, strict=True)]
    np.testing.assert_allclose(_linalg.rank_collapse(Z, mask), alone, rtol=1e-14)
    with pytest.raises(ValueError, match="mask must be boolean"):
        _linalg.rank_collapse(Z, mask.astype(int))
    with pytest.raises(ValueError, match="Z holds NaN"):
        _linalg.rank_collapse(Z)
