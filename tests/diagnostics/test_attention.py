"""Attention over lags: means by hand, masks, causal models, and the state of each head."""

import numpy as np
import pytest
import tinycheckpoints as tiny
from layertraces import GivenTraces, attention_trace, softmax
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_restrans import (
    PretrainedTextClassifier,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    attention_over_lags,
    measure_conditioning,
)
from sklearn_restrans.conditioning import LayerTrace


def by_hand(weights, lengths, lag, reading):
    """Mean weight at a lag, row by row, and that of uniform rows."""
    found, uniform = [], []
    for P, length in zip(weights, lengths, strict=True):
        rows = range(length) if reading == "all" else [length - 1]
        for q in rows:
            if 0 <= q - lag < length:
                found.append(P[:, q, q - lag])
                uniform.append(1 / length)
    return np.mean(found, axis=0), np.mean(uniform)


@pytest.mark.parametrize("reading", ["all", "last"])
@pytest.mark.parametrize("lengths", [[7] * 6, [7, 3, 5, 7, 2, 3]])
def test_means_are_those_of_every_row_that_can_read_at_a_lag(lengths, reading, seed):
    traces = [attention_trace(seed=seed + k, lengths=lengths) for k in range(2)]
    found = attention_over_lags(GivenTraces(traces), None, reading=reading)
    lags = np.arange(-6, 7) if reading == "all" else np.arange(7)
    np.testing.assert_array_equal(found.lags, lags)
    assert found.weights.shape == (2, 2, len(lags)) and found.reading == reading
    for k, lag in enumerate(lags):
        for layer, trace in enumerate(traces):
            expected, uniform = by_hand(trace.weights, lengths, lag, reading)
            np.testing.assert_allclose(found.weights[layer, :, k], expected, rtol=1e-12)
            assert found.uniform[k] == pytest.approx(uniform, rel=1e-12)


def test_weights_of_the_last_token_add_up_and_have_a_mean_lag():
    trace = attention_trace()
    found = attention_over_lags(GivenTraces([trace]), None, reading="last")
    np.testing.assert_allclose(found.weights.sum(axis=-1), 1, rtol=1e-12)
    last = trace.weights[:, :, -1].mean(axis=0)
    np.testing.assert_allclose(found.mean_lag[0], last @ np.arange(6, -1, -1), rtol=1e-12)


def test_each_head_has_its_own_word():
    """Three heads on one X: scores of spread .01, 1 and 50."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 12, 4))
    scores = rng.standard_normal((6, 3, 12, 12)) * np.array([0.01, 1.0, 50.0])[:, None, None]
    found = attention_over_lags(GivenTraces([LayerTrace(X, X, X, softmax(scores))]), None)
    assert found.state.tolist() == [["flat", "selective", "saturated"]]
    np.testing.assert_allclose(found.score_std[0, 1], scores[:, 1].std(axis=-1).mean(), rtol=1e-12)
    # Flat attention is uniform over lags as well.
    np.testing.assert_allclose(found.weights[0, 0], found.uniform, rtol=0.05)
    frame = found.to_frame()
    assert len(frame) == 3 * 23 and set(frame["state"]) == {"flat", "selective", "saturated"}
    row = frame.set_index(["layer", "head", "lag"]).loc[(0, 1, 3)]
    assert row["weight"] == found.weights[0, 1, 11 + 3]
    assert "layer 0, head 2: saturated (score std " in repr(found)


def test_a_head_that_copies_the_token_before_is_seen_at_lag_one():
    X = np.random.default_rng(0).standard_normal((4, 6, 3))
    scores = np.where(np.eye(6, k=-1), 100.0, 0.0)
    weights = np.broadcast_to(softmax(scores), (4, 1, 6, 6))
    found = attention_over_lags(GivenTraces([LayerTrace(X, X, X, weights)]), None, reading="last")
    assert found.lags[found.weights[0, 0].argmax()] == 1
    assert "most on lag 1 (1; uniform 0.17)" in repr(found)


def test_causal_rows_are_compared_with_the_keys_they_may_read():
    X = np.random.default_rng(0).standard_normal((4, 5, 3))
    weights = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    found = attention_over_lags(
        GivenTraces([LayerTrace(X, X, X, np.broadcast_to(weights, (4, 1, 5, 5)))]), None
    )
    assert found.lags.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(found.weights[0, 0], found.uniform, rtol=1e-12)
    assert found.entropy_share[0, 0] == pytest.approx(1) and found.state[0, 0] == "flat"


# ---- fitted models ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_of_a_fitted_model_with_padding_and_in_a_pipeline(estimator, seed):
    X = np.random.default_rng(seed).standard_normal((20, 6, 3))
    y = X[:, 0, 0] > 0
    X[3:8, 4:] = np.nan
    model = estimator(n_layers=2, n_heads=2, d_model=8, max_iter=1, random_state=seed)
    pipe = make_pipeline(FunctionTransformer(), model).fit(X, y.astype(int))
    found = attention_over_lags(pipe, X)
    assert found.weights.shape == (2, 2, 11) and np.isfinite(found.weights).all()
    record = measure_conditioning(model, X)
    np.testing.assert_allclose(
        found.entropy_share.mean(axis=1), record.attention_entropy_share[0], rtol=1e-9
    )
    np.testing.assert_allclose(found.score_std.mean(axis=1), record.score_std[0], rtol=1e-9)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_of_a_pretrained_encoder(family, tmp_path):
    folder = tiny.save(family, tmp_path)
    texts, labels = tiny.labelled(16)
    model = PretrainedTextClassifier(folder, 1.0, fine_tune="head", max_iter=1, random_state=0)
    found = attention_over_lags(model.fit(texts, labels), texts)
    assert (found.lags.min() < 0) == (family == "bert"), "GPT-2 does not look ahead"
    assert found.weights.shape[0] == measure_conditioning(model, texts).n_layers


def test_what_it_cannot_use_is_refused():
    trace = attention_trace()
    with pytest.raises(ValueError, match="reading must be 'all' or 'last', got 'first'"):
        attention_over_lags(GivenTraces([trace]), None, reading="first")
    with pytest.raises(TypeError, match="attention_over_lags needs a residual Transformer"):
        attention_over_lags("ridge", None)
    with pytest.raises(ValueError, match="hold no softmax matrices"):
        attention_over_lags(GivenTraces([trace._replace(weights=None)]), None)
    empty = LayerTrace(*(np.zeros((0, 3, 2)) for _ in range(3)))
    with pytest.raises(ValueError, match="at least one sequence"):
        attention_over_lags(GivenTraces([empty]), None)
