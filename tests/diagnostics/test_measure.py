"""What is measured of Attn(X) and Z = Attn(X) + beta X, against known and independent numbers."""

import weakref

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from layertraces import SEEDS, assert_same, attention_trace, measured, part, softmax

from sklearn_restrans.conditioning import (
    Conditioning,
    LayerTrace,
    conditioning_from_traces,
)
from sklearn_restrans.diagnostics import measure


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0, 2.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_beta_lifts_every_singular_value_of_rank_one_attention(beta, seed):
    """X with orthonormal columns, Attn = a X w w^T: Z = X (beta I + a w w^T), spectrum known."""
    rng = np.random.default_rng(seed)
    n, T, d, a = 8, 5, 6, 3.0
    X = np.linalg.qr(rng.standard_normal((n * T, d)))[0]
    w = rng.standard_normal(d)
    w /= np.linalg.norm(w)
    attention = a * (X @ w)[:, None] * w
    stack = [M.reshape(n, T, d) for M in (X, attention, attention + beta * X)]
    result = measured(LayerTrace(*stack))
    # Values of size one from matrices of norm a + beta: 1e-14 is a few eps of that.
    np.testing.assert_allclose(
        result.Z.singular_values[0, 0], np.r_[a + beta, np.full(d - 1, beta)], atol=1e-14
    )
    np.testing.assert_allclose(
        result.attention.singular_values[0, 0], np.r_[a, np.zeros(d - 1)], atol=1e-14
    )
    assert result.input_rank.tolist() == [[d]]
    assert result.attention.numerical_rank.tolist() == [[1]]
    assert result.attention.condition_number[0, 0] > 1e14  # sigma_1 / sigma_r, r that of X
    assert result.attention.effective_rank[0, 0] == pytest.approx(1, abs=1e-12)
    assert result.stable_rank[0, 0] == pytest.approx(
        ((a + beta) ** 2 + 5 * beta**2) / (a + beta) ** 2
    )
    if beta:
        assert result.condition_number[0, 0] == pytest.approx((a + beta) / beta, rel=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_stacked_values_are_those_of_scipy(seed):
    trace = attention_trace(seed=seed)
    result = measured(trace, attention_trace(seed=seed + 10))
    assert (result.n_layers, result.n_sequences, result.n_rows, result.d_model) == (2, 6, 42, 4)
    for view, matrices in ((result.attention, trace.attention), (result.Z, trace.output)):
        s = scipy.linalg.svdvals(matrices.reshape(-1, 4))
        # Both sides are exact to a few eps sigma_max; the condition numbers here stay below 1e3.
        np.testing.assert_allclose(view.singular_values[0, 0], s, rtol=0, atol=1e-14 * s[0])
        assert view.sigma_max[0, 0] == pytest.approx(s[0], rel=1e-14)
        assert view.sigma_min[0, 0] == view.sigma_last[0, 0] == pytest.approx(s[3], rel=1e-11)
        assert view.condition_number[0, 0] == pytest.approx(s[0] / s[3], rel=1e-11)
        p = s / s.sum()
        assert view.effective_rank[0, 0] == pytest.approx(np.exp(scipy.stats.entropy(p)))
        assert view.stable_rank[0, 0] == pytest.approx((s**2).sum() / s[0] ** 2)
        ratios = [np.linalg.norm(M - M.mean(axis=0)) / np.linalg.norm(M) for M in matrices]
        assert view.rank_collapse[0, 0] == pytest.approx(np.median(ratios), rel=1e-13)
    for name in ("sigma_min", "sigma_max", "condition_number", "effective_rank", "stable_rank"):
        assert np.array_equal(getattr(result, name), getattr(result.Z, name))


@pytest.mark.parametrize("seed", SEEDS)
def test_sigma_min_is_that_of_the_rank_of_the_input(seed):
    """Input of rank r < d / 2: sigma_d is rounding for every beta, sigma_r shows what beta does."""
    at_rank, last = [], []
    for beta in (0.0, 0.5, 2.0):
        trace = attention_trace(n=20, d=8, rank=3, seed=seed)
        # W_V that keeps X's row space, as a square d x d one would leave rank(Z) up to 2 r.
        attention = trace.weights.mean(axis=1) @ trace.inputs
        result = measured(
            trace._replace(attention=attention, output=attention + beta * trace.inputs)
        )
        assert result.input_rank.tolist() == [[3]]
        at_rank.append(result.sigma_min[0, 0])
        last.append(result.Z.sigma_last[0, 0] / result.sigma_max[0, 0])
    assert at_rank[0] < at_rank[1] < at_rank[2]
    assert at_rank[2] > 2.0
    assert max(last) < 1e-14
    assert "at the rank of the input X (3 of 8); Attn has rank 3, its" in repr(result)
    assert "; Z has rank 3, its sigma_8 is rounding\n" in repr(result)
    assert "rounding" not in repr(measured(attention_trace()))


def test_the_rank_of_z_may_be_twice_that_of_the_input():
    """A square W_V turns Attn(X) out of X's row space: sigma_d is not rounding although r < d."""
    text = repr(measured(attention_trace(n=20, d=6, rank=3)))
    assert "sigma_min is sigma_3, at the rank of the input X (3 of 6)" in text
    assert "Z has rank" not in text
    assert "Z has rank 6, its sigma_7" in repr(measured(attention_trace(n=20, d=7, rank=3)))


@pytest.mark.parametrize("seed", SEEDS)
def test_quantiles_over_sequences_are_those_of_single_svds(seed):
    trace = attention_trace(n=9, T=5, d=8, rank=3, seed=seed)  # r_i = 3 < T < d
    result = measured(trace)
    for view, matrices in ((result.attention, trace.attention), (result.Z, trace.output)):
        smallest = [scipy.linalg.svdvals(M)[2] for M in matrices]
        expected = np.quantile(smallest, [0, 0.25, 0.5, 0.75, 1])
        np.testing.assert_allclose(view.sequence_sigma_min[0, 0], expected, rtol=1e-12)
    assert result.get("sequence_sigma_min") == result.Z.sequence_sigma_min[0, 0, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_quantities_of_the_softmax_matrices_are_their_plain_formulas(seed):
    rng = np.random.default_rng(seed)
    scores = 3 * rng.standard_normal((5, 2, 6, 6))
    result = measured(attention_trace(n=5, T=6)._replace(weights=softmax(scores)))
    entropy = scipy.stats.entropy(softmax(scores), axis=-1).mean()
    assert result.attention_entropy[0, 0] == pytest.approx(entropy, rel=1e-13)
    # log softmax differs from the scores by one constant a row.
    assert result.score_std[0, 0] == pytest.approx(scores.std(axis=-1).mean(), rel=1e-13)
    keys = [len(set(M.argmax(axis=-1))) for head in scores for M in head]
    assert result.n_argmax_keys[0, 0] == pytest.approx(np.mean(keys))
    s = np.array([scipy.linalg.svdvals(M) for head in softmax(scores) for M in head])
    np.testing.assert_allclose(
        result.attention_singular_values[0, 0], np.median(s, axis=0), rtol=1e-10
    )
    assert result.attention_sigma_min[0, 0] == pytest.approx(np.median(s[:, -1]), rel=1e-10)
    effective = [np.exp(scipy.stats.entropy(row)) for row in s]
    assert result.attention_effective_rank[0, 0] == pytest.approx(np.median(effective))


def test_score_spread_is_taken_over_keys_of_positive_weight():
    weights = np.array([[[[0.5, 0.5, 0.0], [0.8, 0.2, 0.0], [0.0, 0.0, 1.0]]]])
    ones = np.ones((1, 3, 2))
    result = measured(LayerTrace(ones, ones, ones, weights))
    # Rows of spread 0, log(4) / 2 and 0.
    assert result.score_std[0, 0] == pytest.approx(np.log(4) / 6, rel=1e-13)
    assert result.n_argmax_keys[0, 0] == 2


def test_score_spread_tells_flat_from_saturated_attention():
    """theory.md 2b, C3: both limits have sigma_min near 0; spread and entropy tell them apart."""
    scores = np.random.default_rng(0).standard_normal((8, 1, 12, 12))
    flat, saturated = (
        measured(attention_trace(n=8, T=12)._replace(weights=softmax(c * scores)))
        for c in (1e-6, 1e3)
    )
    assert flat.attention_sigma_min[0, 0] < 1e-6 > saturated.attention_sigma_min[0, 0]
    assert flat.attention_entropy[0, 0] == pytest.approx(np.log(12), abs=1e-10)
    assert flat.score_std[0, 0] == pytest.approx(1e-6 * scores.std(axis=-1).mean(), rel=1e-8)
    assert flat.attention_effective_rank[0, 0] == pytest.approx(1, abs=1e-3)
    assert saturated.attention_entropy[0, 0] < 0.05
    assert 6 < saturated.n_argmax_keys[0, 0] < 10  # (1 - 1/e) 12 = 7.7 for independent rows


def test_without_weights_their_quantities_are_nan():
    result = measured(attention_trace()._replace(weights=None))
    assert np.isnan(result.attention_entropy).all()
    assert result.attention_singular_values.shape == (1, 1, 7)
    assert np.isnan(result.get("n_argmax_keys"))


@pytest.mark.parametrize("lengths", [None, [7, 3, 5, 7, 2, 3]])
def test_chunks_and_their_order_do_not_matter(lengths):
    layers = [attention_trace(seed=s, lengths=lengths) for s in SEEDS]
    whole = measured(*layers)
    for parts in ([[0], [1, 2, 3], [4, 5]], [[5, 3], [0, 1, 2, 4]]):
        chunks = ([part(layer, rows) for layer in layers] for rows in parts)
        assert_same(whole, conditioning_from_traces(chunks))


def test_chunks_are_read_one_by_one():
    alive = []

    def chunks():
        for seed in range(6):
            trace = attention_trace(n=2, seed=seed)
            alive.append(weakref.ref(trace.weights))
            # The consumer may still hold the chunk before this one, no earlier one.
            assert sum(ref() is not None for ref in alive) <= 2
            yield [trace]

    assert conditioning_from_traces(chunks()).n_sequences == 12


def test_attention_matrices_beyond_the_budget_are_left_out(monkeypatch):
    weights = np.stack([np.eye(7)] + [np.full((7, 7), 1 / 7)] * 5)[:, None]
    trace = attention_trace()._replace(weights=weights)
    assert measured(trace).attention_sigma_min[0, 0] < 1e-15  # five of six are flat
    for budget in (0, 7**3, 2 * 7**3 - 1):  # one sequence is always measured
        monkeypatch.setattr(measure, "_ATTENTION_SVD_BUDGET", budget)
        assert measured(trace).attention_sigma_min[0, 0] == pytest.approx(1)
        chunks = [[part(trace, [i])] for i in range(6)]
        assert conditioning_from_traces(chunks).attention_sigma_min[0, 0] == pytest.approx(1)
    assert measured(trace).attention_entropy[0, 0] == pytest.approx(np.log(7) * 5 / 6)


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_budget_for_attention_matrices_is_one_for_all_chunks(size, n_heads, monkeypatch):
    """The first sequences that fit into it are decomposed, however they are cut into chunks."""
    flat, share = np.full((7, 7), 1 / 7), np.arange(1, 7) / 10
    # sigma_min of (1 - share) I + share 1 1^T / T is 1 - share: each sequence shows itself
    weights = share[:, None, None] * flat + (1 - share[:, None, None]) * np.eye(7)
    trace = attention_trace()._replace(weights=np.stack([weights] * n_heads, axis=1))
    chunks = [[part(trace, np.arange(k, min(k + size, 6)))] for k in range(0, 6, size)]
    for n_affordable in range(1, 7):
        budget = n_affordable * n_heads * 7**3 + 300  # nearly one more
        monkeypatch.setattr(measure, "_ATTENTION_SVD_BUDGET", budget)
        found = conditioning_from_traces(chunks).attention_sigma_min[0, 0]
        assert found == pytest.approx(np.median(1 - share[:n_affordable]), rel=1e-12)


def test_eight_matrices_of_144_tokens_are_affordable():
    """What the documentation of Conditioning says."""
    assert 8 * 144**3 <= measure._ATTENTION_SVD_BUDGET < 9 * 144**3
    assert "8 matrices of T = 144" in Conditioning.__doc__


@pytest.mark.parametrize("size", [1, 7, 50])
@pytest.mark.parametrize(("smallest", "rank"), [(2e-14, 3), (4e-13, 4)])
def test_the_tolerance_of_a_rank_is_that_of_all_rows_not_of_a_chunk(smallest, rank, size):
    """400 rows: 400 eps = 9e-14; a chunk of one sequence has 8 rows and would see 2e-14."""
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((400, 4)))[0]
    X = (Q * [1.0, 1.0, 1.0, smallest]).reshape(50, 8, 4)  # exact in each column
    trace = LayerTrace(X, X, X)
    chunks = [[part(trace, slice(k, k + size))] for k in range(0, 50, size)]
    result = conditioning_from_traces(chunks)
    assert result.input_rank.tolist() == result.Z.numerical_rank.tolist() == [[rank]]


@pytest.mark.parametrize("rank", [2, 5])
def test_the_type_of_the_entries_may_be_named(rank):
    """Rounded to float32 and cast up again, rank 2 looks like 5 unless it is said."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 6, rank)) @ rng.standard_normal((rank, 5))
    X = X.astype(np.float32).astype(np.float64)
    trace = LayerTrace(X, X, X)
    named = conditioning_from_traces([[trace]], dtype=np.float32)
    assert named.input_rank.tolist() == named.Z.numerical_rank.tolist() == [[rank]]
    assert conditioning_from_traces([[trace]]).input_rank.tolist() == [[5]]
    # Each sequence's own rank too: its second value is no rounding, its third is.
    own = [np.linalg.svd(M, compute_uv=False)[rank - 1] for M in X]
    np.testing.assert_allclose(named.Z.sequence_sigma_min[0, 0, 2], np.median(own), rtol=1e-12)


def test_some_sequences_own_spectra_and_the_stack_of_all():
    trace = attention_trace(n=6, seed=3)
    everything, some = Conditioning(), Conditioning()
    chunks = [[part(trace, [0, 1, 2])], [part(trace, [3, 4, 5])]]
    everything.record(0, chunks)
    some.record(0, chunks, n_spectra=4)
    np.testing.assert_array_equal(some.Z.singular_values, everything.Z.singular_values)
    np.testing.assert_array_equal(some.Z.rank_collapse, everything.Z.rank_collapse)
    first_four = measured(part(trace, [0, 1, 2, 3])).Z.sequence_sigma_min
    np.testing.assert_allclose(some.Z.sequence_sigma_min, first_four, rtol=1e-12)


def test_every_length_has_a_sequence_with_an_own_spectrum():
    trace = attention_trace(lengths=[7, 3, 5, 7, 2, 3])
    found = Conditioning().record(0, [[trace]], n_spectra=1).Z.sequence_sigma_min
    first_of_each = measured(part(trace, [0, 1, 2, 4])).Z.sequence_sigma_min
    np.testing.assert_allclose(found, first_of_each, rtol=1e-12)


def test_degenerate_probes_give_numbers():
    zero = np.zeros((2, 3, 4))
    result = measured(LayerTrace(zero, zero, zero))
    assert result.get("input_rank") == result.get("sigma_min") == result.get("sigma_max") == 0
    assert result.get("condition_number") == np.inf
    assert result.get("effective_rank") == result.get("rank_collapse") == 0
    row = np.array([[[3.0, 0.0, 4.0]]])  # one row: fewer rows than columns
    result = measured(LayerTrace(row, 0 * row, row, np.ones((1, 1, 1, 1))))
    np.testing.assert_allclose(result.Z.singular_values[0, 0], [5, np.nan, np.nan])
    assert result.get("sigma_last") == result.get("sigma_min") == pytest.approx(5)
    assert result.get("condition_number") == result.get("effective_rank") == 1
    assert result.get("rank_collapse") == result.get("attention_entropy") == 0
    integers = np.arange(24).reshape(2, 3, 4)
    assert measured(LayerTrace(integers, integers, integers)).get("input_rank") == 2


def test_float32_traces_get_the_rank_float32_can_show():
    trace = attention_trace(n=30, d=8, rank=3)
    # A product in float32: what is beyond rank 3 is its rounding.
    rng = np.random.default_rng(0)
    low_rank = rng.standard_normal((30, 7, 3)).astype(np.float32) @ rng.standard_normal(
        (3, 8)
    ).astype(np.float32)
    trace = trace._replace(inputs=low_rank, mask=None)
    assert measured(trace).input_rank.tolist() == [[3]]
    cast = trace._replace(inputs=low_rank.astype(np.float64))
    assert measured(cast).input_rank.tolist() == [[8]]
