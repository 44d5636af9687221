"""Claims about the conditioning of Attn(X) and Z = Attn(X) + beta X, on arrays alone."""

import pickle
import pickletools
import weakref

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.stats
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from sklearn_restrans.conditioning import (
    Conditioning,
    LayerTrace,
    conditioning_from_traces,
    measure_conditioning,
)
from sklearn_restrans.diagnostics import measure

SEEDS = [0, 1, 2]


def softmax(scores):
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def attention_trace(n=6, T=7, d=4, h=2, beta=1.0, seed=0, rank=None, lengths=None):
    """Plain attention of theory.md section 1, heads averaged, and the scores it came from."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, T, rank or d)) @ rng.standard_normal((rank or d, d))
    scores = rng.standard_normal((n, h, T, T))
    mask = None if lengths is None else np.arange(T) < np.asarray(lengths)[:, None]
    if mask is not None:
        scores = np.where(mask[:, None, None, :], scores, -np.inf)
    weights = softmax(scores)
    attention = weights.mean(axis=1) @ X @ rng.standard_normal((d, d))
    return LayerTrace(X, attention, attention + beta * X, weights, mask)


def part(trace, rows):
    return LayerTrace(*(None if field is None else field[rows] for field in trace))


def measured(*traces):
    return conditioning_from_traces([traces])


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
    """Input of rank r < d: sigma_d is rounding for every beta, sigma_r shows what beta does."""
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
    assert "rank 3 of 8: sigma_8 is rounding for every beta, and sigma_min is sigma_3" in repr(
        result
    )
    assert "rounding" not in repr(measured(attention_trace()))


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


def assert_same(first, second, rtol=1e-12):
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame(), rtol=rtol)
    for a, b in ((first.attention, second.attention), (first.Z, second.Z)):
        np.testing.assert_allclose(a.singular_values, b.singular_values, rtol=rtol)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("padding", [0.0, np.nan, 1e6])
def test_masked_sequences_equal_unpadded_ones(padding, seed):
    lengths = np.array([7, 3, 5, 7, 2, 3])
    trace = attention_trace(lengths=lengths, seed=seed)
    real = trace.mask[..., None]
    padded = [np.where(real, array, padding) for array in trace[:3]]
    weights = np.where(trace.mask[:, None, :, None], trace.weights, padding)
    masked = measured(LayerTrace(*padded, weights, trace.mask))
    single = [
        [
            LayerTrace(
                *(array[i : i + 1, :t] for array in trace[:3]), trace.weights[i : i + 1, :, :t, :t]
            )
        ]
        for i, t in enumerate(lengths)
    ]
    assert masked.n_rows == lengths.sum()
    assert_same(masked, conditioning_from_traces(single))
    third = [
        scipy.linalg.svdvals(M[:t, :t])[2:3] for i, t in enumerate(lengths) for M in weights[i]
    ]
    computed = masked.attention_singular_values[0, 0]
    assert computed[2] == pytest.approx(np.median(np.concatenate(third)), rel=1e-12)


def test_masks_need_not_be_trailing():
    """A window with a short history has its padding in front."""
    trace = attention_trace(lengths=[7, 3, 5, 7, 2, 3])
    turned = LayerTrace(
        *(array[:, ::-1] for array in trace[:3]),
        trace.weights[:, :, ::-1, ::-1],
        trace.mask[:, ::-1],
    )
    assert_same(measured(trace), measured(turned))


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


def two_records():
    result = Conditioning().record(0, [[attention_trace(beta=0.1), attention_trace(seed=5)]])
    return result.record(4, [[attention_trace(beta=0.1, seed=7), attention_trace(seed=6)]])


def test_frame_has_one_row_per_epoch_layer_and_matrix():
    result = two_records()
    frame = result.to_frame()
    assert frame["epoch"].tolist() == [0] * 4 + [4] * 4
    assert frame["layer"].tolist() == [0, 0, 1, 1] * 2
    assert frame["of"].tolist() == ["attention", "Z"] * 4
    assert (frame["n_rows"] == 42).all()
    for view, of in ((result.attention, "attention"), (result.Z, "Z")):
        rows = frame[frame["of"] == of]
        for name in ("sigma_min", "condition_number", "numerical_rank", "rank_collapse"):
            assert np.array_equal(rows[name], getattr(view, name).ravel())
        assert np.array_equal(
            rows["sequence_sigma_min_q25"], view.sequence_sigma_min[..., 1].ravel()
        )
    assert np.array_equal(
        frame.loc[frame["of"] == "attention", "score_std"], result.score_std.ravel()
    )
    assert frame.loc[frame["of"] == "Z", "score_std"].isna().all()


def test_get_returns_one_number():
    result = two_records()
    assert result.epochs.tolist() == [0, 4]
    assert result.get("sigma_min") == result.Z.sigma_min[1, 1]
    assert result.get("sigma_min", of="attention", layer=0) == result.attention.sigma_min[1, 0]
    assert result.get("condition_number", stage="initial") == result.Z.condition_number[0, 1]
    assert result.get("attention_entropy", layer=0) == result.attention_entropy[1, 0]
    assert type(result.get("numerical_rank")) is float


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantity": "sigma"}, "quantity must be one of sigma_min, .*n_argmax_keys; got 'sigma'"),
        ({"quantity": "sigma_min", "of": "attn"}, "of must be one of attention, Z; got 'attn'"),
        ({"quantity": "sigma_min", "stage": "last"}, "stage must be one of final, initial; got"),
        ({"quantity": "sigma_min", "layer": 2}, "layer must be below n_layers = 2, got 2"),
        ({"quantity": "sigma_min", "layer": -3}, "layer must be below n_layers = 2, got -3"),
    ],
)
def test_get_lists_what_there_is(arguments, message):
    with pytest.raises(ValueError, match=message):
        two_records().get(**arguments)


def test_every_name_that_get_lists_can_be_got():
    with pytest.raises(ValueError, match="quantity must be") as error:
        two_records().get("")
    names = str(error.value).split("one of ")[1].split(";")[0].split(", ")
    assert len(names) == 15
    assert all(
        np.isfinite(two_records().get(name, of)) for name in names for of in ("Z", "attention")
    )


def test_repr_is_a_sentence_about_the_last_layer():
    result = two_records()
    text = repr(result)
    assert text.startswith(
        "Conditioning of layer 1, the last of 2, before training -> after epoch 4 "
        "(6 sequences, 42 rows)\n  Attn: sigma_min "
    )
    first, last = result.Z.sigma_min[:, 1]
    assert f"\n  Z:    sigma_min {first:.3g} -> {last:.3g}, condition number " in text
    assert text.endswith("the input has rank 4 of 4")
    once = repr(conditioning_from_traces([[attention_trace()]], epoch=3))
    assert "after epoch 3 (" in once
    assert "->" not in once
    assert repr(Conditioning()) == "Conditioning: nothing recorded yet"


def test_pickle_holds_numpy_and_builtins_only():
    result = two_records()
    data = pickle.dumps(result)
    assert_same(result, pickle.loads(data), rtol=0)
    strings = [arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)]
    modules = {s for s in strings if s.partition(".")[0] in ("numpy", "torch", "pandas", "scipy")}
    assert all(s.startswith("numpy") for s in modules)
    own = [s for s in strings if s.startswith("sklearn_restrans")]
    assert own == ["sklearn_restrans.diagnostics.conditioning"]


def test_records_of_another_probe_set_are_refused():
    result = measured(attention_trace())
    with pytest.raises(ValueError, match=r"the probe set changed: first .*'n_rows': 42"):
        result.record(1, [[attention_trace(n=7)]])
    with pytest.raises(ValueError, match="the probe set changed"):
        result.record(1, [[attention_trace(), attention_trace()]])
    assert result.epochs.tolist() == [0]


def test_bad_traces_are_refused_in_words():
    good = attention_trace()
    cases = [
        ([], ValueError, "probe set is empty"),
        ([good], TypeError, "each chunk must be a list of LayerTrace"),
        ([[good], [good, good]], ValueError, "a chunk has 2 layers, the first had 1"),
        ([[good._replace(output=good.output[1:])]], ValueError, "must have one shape"),
        ([[good], [attention_trace(d=5)]], ValueError, "d = 4 as in the first chunk"),
        ([[LayerTrace(*(a[0] for a in good[:3]))]], ValueError, "must have one shape"),
        ([[good._replace(weights=good.weights[:, 0])]], ValueError, r"must be \(n, h, T, T\)"),
        ([[good._replace(mask=np.ones((6, 7)))]], ValueError, "mask of layer 0 must be boolean"),
        ([[good._replace(mask=np.zeros((6, 7), bool))]], ValueError, "at least one real token"),
    ]
    for field in ("inputs", "attention", "output", "weights"):
        bad = getattr(good, field).copy()
        bad[0, 0, 0] = np.nan
        chunk = [good, good._replace(**{field: bad})]
        cases.append(([chunk], ValueError, f"{field} of layer 1 holds NaN or infinity"))
    for chunks, error, message in cases:
        with pytest.raises(error, match=message):
            conditioning_from_traces(chunks)


class TwoLayers(BaseEstimator):
    """Hands X itself over, in chunks of two sequences, as an estimator of the package does."""

    def fit(self, X, y=None):
        self.best_iteration_ = 12
        return self

    def __restrans_traces__(self, X):
        for start in range(0, len(X), 2):
            rows = np.asarray(X[start : start + 2], dtype=float)[:, :, None]
            yield [LayerTrace(rows, 0 * rows, rows), LayerTrace(rows, rows, 3 * rows)]


def test_conditioning_of_an_estimator_and_through_a_pipeline():
    X = np.random.default_rng(0).standard_normal((7, 5)) + 3
    result = measure_conditioning(TwoLayers().fit(X), X)
    assert result.epochs.tolist() == [12]
    norm = np.linalg.norm(X)
    np.testing.assert_allclose(result.sigma_max, [[norm, 3 * norm]], rtol=1e-14)

    pipe = make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), TwoLayers())).fit(X)
    scaled = MinMaxScaler().fit_transform(StandardScaler().fit_transform(X))
    norm = np.linalg.norm(scaled)
    np.testing.assert_allclose(
        measure_conditioning(pipe, X).sigma_max, [[norm, 3 * norm]], rtol=1e-13
    )
    alone = make_pipeline(TwoLayers()).fit(X)
    assert_same(measure_conditioning(alone, X), result, rtol=0)


def test_conditioning_refuses_other_objects():
    X = np.ones((4, 3))
    for unfitted in (TwoLayers(), make_pipeline(StandardScaler(), TwoLayers())):
        with pytest.raises(NotFittedError):
            measure_conditioning(unfitted, X)
    for other in (StandardScaler().fit(X), make_pipeline(StandardScaler()).fit(X)):
        with pytest.raises(TypeError, match=r"that ends with one, got StandardScaler; for arrays"):
            measure_conditioning(other, X)
