"""What fit reports of conditioning, computed again from the fitted weights with plain numpy.

Nothing of the package but its weights enters the reference: the inputs are standardised, embedded
and attended to here, by the formulas of theory.md, and every quantity follows from its definition.
"""

import numpy as np
import pytest
from scipy.signal import lfilter

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    measure_conditioning,
)

# Sums of a few hundred terms in another order, in float64, through two layers: errors of 1e-14, and
# of at most 1e-10 where the softmax has amplified them.
SAME = 1e-9
EPS = np.finfo(np.float32).eps  # ranks of a fit are counted in float32, whatever its dtype


# ---- the model, in numpy ------------------------------------------------------------------------


def softmax(scores):
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def layer_norm(x, gain, shift):
    """Of each token; 1e-5 is added to the variance."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * gain + shift


def layers_of(weights, X, n_heads, norm, real):
    """(X, Attn(X), Z, softmax matrices) of each layer, for the embedded sequences X (n, T, d)."""
    d, beta, found = X.shape[2], weights["beta"], []
    for index in range(len(beta)):
        w = {k.split(".", 2)[2]: v for k, v in weights.items() if k.startswith(f"layers.{index}.")}
        inner = layer_norm(X, w["norm_1.gain"], w["norm_1.shift"]) if norm == "pre" else X
        heads = []
        for part in np.split(np.arange(d), n_heads):
            Q, K = inner @ w["W_Q"][:, part], inner @ w["W_K"][:, part]
            scores = Q @ K.swapaxes(1, 2) / np.sqrt(d / n_heads)
            heads.append(softmax(np.where(real[:, None, :], scores, -np.inf)))
        values = np.split(inner @ w["W_V"], n_heads, axis=2)
        attention = np.concatenate([P @ V for P, V in zip(heads, values, strict=True)], axis=2)
        if n_heads > 1:
            attention = attention @ w["W_O"]
        Z = attention + beta[index, 0] * X
        found.append((X, attention, Z, np.stack(heads, axis=1)))
        inner = closed = layer_norm(Z, w["norm_1.gain"], w["norm_1.shift"]) if norm == "post" else Z
        if norm == "pre":
            inner = layer_norm(Z, w["norm_2.gain"], w["norm_2.shift"])
        H = np.maximum(inner @ w["W_1"] + w["b_1"], 0)
        X = H @ w["W_2"] + w["b_2"] + beta[index, 1] * closed
        if norm == "post":
            X = layer_norm(X, w["norm_2.gain"], w["norm_2.shift"])
    return found


def standardised(X):
    """Channels over their real tokens, which are those that are not NaN."""
    real = ~np.isnan(X).all(axis=2)
    rows = X[real]
    return np.where(real[..., None], (X - rows.mean(axis=0)) / rows.std(axis=0), 0.0), real


def embedded(weights, kind, X):
    """The first layer's input (n, T, d), and which of its tokens are real."""
    if kind == "tokens":
        return weights["W_in"][X] + weights["positions"][: X.shape[1]], X > 0
    if kind == "table":  # each column is a token, with an embedding of its own
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        real = np.ones(X.shape, bool)
        return X[..., None] * weights["W_in"] + weights["positions"], real
    X, real = X if kind == "windows" else standardised(X)
    return X @ weights["W_in"] + weights["positions"], real


# ---- the quantities, by their definitions -------------------------------------------------------


def entropy(p):
    p = p[p > 0]
    return -(p * np.log(p)).sum()


def rank_of(s, shape):
    return int((s > max(shape) * EPS * s[0]).sum())


def matrix_quantities(M, X, real):
    """Quantities of one matrix, Attn or Z, per sequence M (n, T, d), and of the stack."""
    stack, inputs = M[real], X[real]
    s = np.linalg.svd(stack, compute_uv=False)
    r = rank_of(np.linalg.svd(inputs, compute_uv=False), inputs.shape)
    smallest, collapse = [], []
    for M_i, X_i, real_i in zip(M, X, real, strict=True):
        M_i, X_i = M_i[real_i], X_i[real_i]
        r_i = rank_of(np.linalg.svd(X_i, compute_uv=False), X_i.shape)
        smallest.append(np.linalg.svd(M_i, compute_uv=False)[r_i - 1])
        collapse.append(np.linalg.norm(M_i - M_i.mean(axis=0)) / np.linalg.norm(M_i))
    return {
        "singular_values": s,
        "input_rank": r,
        "numerical_rank": rank_of(s, stack.shape),
        "sigma_min": s[r - 1],
        "sigma_max": s[0],
        "condition_number": s[0] / s[r - 1],
        "effective_rank": np.exp(entropy(s / s.sum())),
        "stable_rank": (s**2).sum() / s[0] ** 2,
        "rank_collapse": np.median(collapse),
        "sequence_sigma_min": np.quantile(smallest, [0, 0.25, 0.5, 0.75, 1]),
    }


def softmax_quantities(weights, real):
    """Quantities of the softmax matrices P (n, h, T, T) on their real tokens."""
    rows, shares, spreads, keys, smallest, ranks = [], [], [], [], [], []
    for heads, real_i in zip(weights, real, strict=True):
        for P in heads[:, real_i][:, :, real_i]:
            rows += [entropy(p) for p in P]
            shares += [entropy(p) / np.log(len(p)) for p in P if len(p) > 1]
            spreads += [np.log(p[p > 0]).std() for p in P]
            keys.append(len(set(P.argmax(axis=1))))
            s = np.linalg.svd(P, compute_uv=False)
            smallest.append(s[-1])
            ranks.append(np.exp(entropy(s / s.sum())))
    return {
        "attention_entropy": np.mean(rows),
        "attention_entropy_share": np.mean(shares),
        "score_std": np.mean(spreads),
        "n_argmax_keys": np.mean(keys),
        "attention_sigma_min": np.median(smallest),
        "attention_effective_rank": np.median(ranks),
    }


def weights_of(model):
    module = model.net_.module_
    weights = {k: v.double().numpy() for k, v in module.state_dict().items()}
    # A trainable beta is a parameter, a fixed one a buffer: both are in the state.
    return {"positions": 0.0} | weights


def check(model, kind, X, record=None, rtol=SAME, rounding=1e-13):
    """Hold the last record of `conditioning_` against numpy.

    `rounding` is the error of a matrix relative to its largest singular value.
    """
    record, weights = model.conditioning_ if record is None else record, weights_of(model)
    embedding, real = embedded(weights, kind, X)
    layers = layers_of(weights, embedding, model.n_heads, model.norm, real)
    assert record.n_layers == len(layers) and record.n_rows == real.sum()
    for index, (inputs, attention, Z, P) in enumerate(layers):
        for view, M in ((record.X, inputs), (record.attention, attention), (record.Z, Z)):
            quantities = matrix_quantities(M, inputs, real)
            largest = quantities["sigma_max"]
            for name, expected in quantities.items():
                found, error = getattr(view, name)[-1, index], rtol * np.abs(expected)
                # A singular value is exact relative to the largest one only.
                if name in ("singular_values", "sigma_min", "sequence_sigma_min"):
                    error += rounding * largest
                elif name == "condition_number":
                    error += rounding * expected**2
                assert np.all(np.abs(found - expected) <= error), (name, found, expected)
        for name, expected in softmax_quantities(P, real).items():
            found = getattr(record, name)[-1, index]
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=rounding, err_msg=name)


# ---- data ---------------------------------------------------------------------------------------

N = 14  # below 16, so that every sequence's own spectrum is recorded


def data_of(kind, seed):
    """(X for fit, X as the reference takes it, y, settings)."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(N)
    if kind == "table":
        X = 3 + rng.standard_normal((N, 5))
        return X, X, y, {}
    if kind == "tokens":
        X = rng.integers(2, 9, (N, 6))
        return X, X, y, {"embedding": "token"}
    if kind == "padded tokens":
        X = np.where(np.arange(6) < rng.integers(2, 7, N)[:, None], rng.integers(2, 9, (N, 6)), 0)
        return X, X, y, {"embedding": "token"}
    if kind == "windows":  # the first three rows have a short history
        X, T = 5 * rng.standard_normal((N, 3)), 4
        # The windows' rows are scaled as rows of the table, of which each counts once.
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        rows = np.arange(N)[:, None] + np.arange(1 - T, 1)
        return X, (scaled[np.maximum(rows, 0)], rows >= 0), y, {"window": T}
    X = 2 + rng.standard_normal((N, 6, 3))
    if kind == "padded":
        for row, length in enumerate(rng.integers(2, 7, N)):
            X[row, length:] = np.nan
    return X, X, y, {}


def fitted(kind, seed, cls=ResidualTransformerRegressor, **settings):
    """A model whose fit has moved every weight, and X as the reference takes it."""
    X, reference, y, own = data_of(kind, seed)
    plain = {"d_model": 6, "d_ff": 5, "activation": "relu", "dtype": "float64", "max_iter": 4}
    y = y if cls is ResidualTransformerRegressor else (y > np.median(y)).astype(int)
    # All rows are measured; with "auto" too, as there are fewer than 16.
    settings = {"residual_beta": 0.7, "learning_rate_init": 0.05} | plain | own | settings
    model = cls(random_state=seed, **settings)
    return model.fit(X, y), X, reference


KINDS = ["table", "sequences", "padded", "windows", "tokens", "padded tokens"]
MODELS = {
    "one head": {},
    "heads": {"n_heads": 2},
    "pre": {"norm": "pre", "n_heads": 3},
    "post": {"norm": "post"},
    "two layers": {"n_layers": 2, "n_heads": 2, "residual_beta": (0.3, 1.2)},
    "two layers, pre": {"n_layers": 2, "norm": "pre"},
    "two layers, post": {"n_layers": 2, "norm": "post", "learn_beta": True},
    "no beta": {"residual_beta": 0.0},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_record_follows_from_the_fitted_weights(kind, name, seed):
    model, X, reference = fitted(kind, seed, **MODELS[name])
    kind = kind.removeprefix("padded ").replace("padded", "sequences")
    check(model, kind, reference)
    assert model.conditioning_.epochs.tolist() == [0, model.best_iteration_]
    # Of the same sequences measure_conditioning says the same.
    check(model, kind, reference, measure_conditioning(model, X))


def test_of_a_view_and_of_classes(seed):
    X, y = np.random.default_rng(seed).standard_normal((2, N + 5, 3))
    view = SequenceView(X, np.arange(5, N + 5), 4)
    rows = np.arange(5, N + 5)[:, None] + np.arange(-3, 1)
    # The rows up to the last window are scaled, also those that stand in no window.
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    model = ResidualTransformerRegressor(
        0.7, d_model=6, dtype="float64", max_iter=3, random_state=seed, positions="learned"
    )
    reference = scaled[rows], np.ones(rows.shape, bool)
    check(model.fit(view, y[5:, 0]), "windows", reference)
    check(model, "windows", reference, measure_conditioning(model, view))
    model, X, reference = fitted("sequences", seed, ResidualTransformerClassifier, n_heads=2)
    check(model, "sequences", reference)


@pytest.mark.parametrize("kind", ["table", "sequences", "tokens"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_of_a_fit_in_less_precision(kind, dtype, seed):
    """Its weights are float32 numbers, and the inputs too: that alone is rounded."""
    model, _, reference = fitted(kind, seed, dtype=dtype, n_layers=2)
    check(model, kind, reference, rtol=1e-5, rounding=1e-6)


# ---- which sequences ----------------------------------------------------------------------------


def spectrum(X):
    rows = X.reshape(-1, X.shape[2])
    return np.linalg.svd(rows, compute_uv=False)


@pytest.mark.parametrize(
    ("samples", "n", "n_tokens", "measured"),
    [
        # "auto": 64 rows, of which at most 1,024 tokens, and 16 rows at least, are measured
        ("auto", 90, 8, 64),
        ("auto", 90, 40, 25),
        ("auto", 90, 100, 16),
        (20, 90, 100, 20),
        (200, 90, 8, 90),
    ],
)
def test_the_probe_is_rows_of_the_training_set_evenly_chosen(samples, n, n_tokens, measured, seed):
    """The spectra are those of these rows and of no others."""
    X = np.random.default_rng(seed).standard_normal((n, n_tokens, 3))
    model = ResidualTransformerRegressor(
        d_model=4, max_iter=1, random_state=seed, conditioning_samples=samples, dtype="float64"
    )
    model.fit(X, X[:, -1, 0])
    record = model.conditioning_
    assert (record.n_sequences, record.n_rows) == (measured, measured * n_tokens)
    # The rows drawn, and of them those measured: as far from each other as their number allows.
    seed = int(np.random.RandomState(seed).randint(2**31 - 1))
    drawn = min(n, 64 if samples == "auto" else samples)
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:drawn])
    rows = rows[np.arange(measured) * drawn // measured]
    weights = weights_of(model)
    inputs, real = embedded(weights, "sequences", X)
    found = layers_of(weights, inputs[rows], 1, None, real[rows])[0]
    for view, M in ((record.attention, found[1]), (record.Z, found[2])):
        np.testing.assert_allclose(view.singular_values[-1, 0], spectrum(M), rtol=1e-10)


# ---- the rank of the input ----------------------------------------------------------------------

BETAS = [0.0, 0.25, 1.0, 2.0]


def smooth_series(seed, n_channels, n_tokens, n=200):
    """Windows (n, T, f) of autoregressive channels, like weather, and the next value."""
    noise = np.random.default_rng(seed).standard_normal((n + n_tokens, n_channels))
    series = lfilter([1.0], [1.0, -0.95], noise, axis=0)
    X = np.lib.stride_tricks.sliding_window_view(series, n_tokens, axis=0).swapaxes(1, 2)
    return X[:n], series[n_tokens:, 0]


@pytest.mark.parametrize(("n_channels", "n_tokens"), [(1, 48), (6, 120)])
def test_fits_in_every_precision_agree_on_rank_and_condition(n_channels, n_tokens, seed):
    """The position table falls off without a gap: counted with the eps of float64 a float32 fit
    had rank 32 of 32 and a condition number of 8e8, and a float64 fit another rank.
    """
    X, y = smooth_series(seed, n_channels, n_tokens)
    for beta in BETAS:
        records = {}
        for dtype in ("float64", "float32", "bfloat16"):
            model = ResidualTransformerRegressor(
                beta, d_model=32, max_iter=1, random_state=seed, dtype=dtype
            )
            records[dtype] = model.fit(X, y).conditioning_
        exact = records["float64"]
        assert model.net_.module_.arch.positions == "sinusoidal"
        # sigma_r / sigma_1 of X is above the tolerance of 1e-4, so of Z for beta > 0 as well.
        assert exact.input_rank[0, 0] < 32
        for dtype, record in records.items():
            np.testing.assert_array_equal(record.input_rank, exact.input_rank)
            for name in ("sigma_min", "condition_number", "effective_rank"):
                # Before training the weights differ by their rounding alone. An epoch with products
                # in bfloat16 takes another path: 13 % at beta = 0 were seen.
                start, end = getattr(record, name)[:, 0] / getattr(exact, name)[:, 0]
                assert start == pytest.approx(1, rel=1e-3)
                assert end == pytest.approx(1, rel=0.5 if dtype == "bfloat16" else 1e-2)
            for view, exact_view in ((record.attention, exact.attention), (record.Z, exact.Z)):
                np.testing.assert_allclose(
                    view.sequence_sigma_min[0], exact_view.sequence_sigma_min[0], rtol=1e-2
                )
        if beta:
            assert exact.condition_number.max() < 1e3


def test_the_rank_of_a_fit_is_that_of_the_table_it_would_have_in_exact_numbers(seed):
    """Positions and embedding once more in float64, by their formulas."""
    X, y = smooth_series(seed, 1, 48)
    model = ResidualTransformerRegressor(1.0, max_iter=1, random_state=seed, dtype="float32")
    model.fit(X, y)
    place, frequency = np.arange(48.0)[:, None], 10_000.0 ** (-np.arange(0, 32, 2) / 32)
    positions = np.stack([np.sin(place * frequency), np.cos(place * frequency)], axis=2)
    embedding = weights_of(model)["W_in"]
    record = model.conditioning_
    drawn = np.random.default_rng(int(np.random.RandomState(seed).randint(2**31 - 1)))
    rows = np.sort(drawn.permutation(len(X))[:64])
    rows = rows[np.arange(record.n_sequences) * 64 // record.n_sequences]
    inputs = standardised(X)[0][rows] @ embedding + positions.reshape(48, 32)
    s = spectrum(inputs)
    assert record.input_rank[-1, 0] == rank_of(s, (record.n_rows, 32)) < 20
    # In float64 the table alone shows directions that float32 has rounded away.
    assert np.linalg.matrix_rank(inputs.reshape(-1, 32)) > record.input_rank[-1, 0]
    assert measure_conditioning(model, X[rows]).input_rank[0, 0] == record.input_rank[-1, 0]
