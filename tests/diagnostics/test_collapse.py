"""Collapse as a record shows it, and the beta that is sure to prevent it in a fitted model."""

import math
import pickle

import numpy as np
import pytest
from layertraces import GivenTraces, attention_trace, measured
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_restrans import ResidualTransformerRegressor, lambda_skip_bound
from sklearn_restrans.conditioning import LayerTrace
from sklearn_restrans.datasets import fetch_jena_climate
from sklearn_restrans.diagnostics.collapse import COLLAPSED_BELOW, rank_collapse_of
from sklearn_restrans.forecasting import make_supervised
from sklearn_restrans.theory import lambda_skip

# ---- what a record shows -------------------------------------------------------------------------


def layer_of_spread(spread_of_Z, spread_of_X=1.0, n=4, T=5, d=3):
    """A trace whose tokens differ from their mean by about these shares of their norm."""
    rng = np.random.default_rng(0)
    mean, own = np.ones((n, 1, d)), rng.standard_normal((n, T, d))
    X, Z = mean + spread_of_X * own, mean + spread_of_Z * own
    return LayerTrace(X, Z - X, Z)


def test_the_first_layer_below_the_threshold_is_named():
    result = measured(*(layer_of_spread(s) for s in (1.0, 1e-4, 1e-6)))
    found = rank_collapse_of(result)
    assert (found.layer, found.n_layers) == (1, 3)
    assert found.value == result.Z.rank_collapse[0, 1] < COLLAPSED_BELOW
    assert found.of_input == result.X.rank_collapse[0, 0]
    assert "layer 1 (of 3, from 0) after epoch 7: the tokens of Z differ" in found.in_words(7)
    assert rank_collapse_of(measured(layer_of_spread(1e-2))) is None


def test_the_last_record_counts_and_what_was_equal_has_not_collapsed():
    result = measured(layer_of_spread(1e-5))
    assert rank_collapse_of(result) is not None
    assert rank_collapse_of(result.record(1, [[layer_of_spread(1.0)]])) is None
    assert rank_collapse_of(measured(layer_of_spread(1e-5, 1e-5))) is None
    assert rank_collapse_of(measured(layer_of_spread(1e-5, T=1))) is None


# ---- the sufficient beta ------------------------------------------------------------------------


def layer_norm(X):
    X = X - X.mean(axis=-1, keepdims=True)
    return X / np.sqrt((X**2).mean(axis=-1, keepdims=True))


def spread(X):
    return np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=(1, 2))


@pytest.mark.parametrize("norm", [True, False])
def test_the_bound_of_a_model_is_that_of_its_sequences(norm, seed):
    lengths = [7, 3, 5, 7, 2, 3]
    traces = [attention_trace(beta=b, seed=seed + k, lengths=lengths) for k, b in enumerate((4, 1))]
    bound = lambda_skip_bound(GivenTraces(traces), None, layer_norm=norm)
    np.testing.assert_allclose(bound.beta, [4, 1], rtol=1e-12)
    f = layer_norm if norm else np.asarray
    for k, trace in enumerate(traces):
        shares = []
        for i, length in enumerate(lengths):
            X, Z = (part[i : i + 1, :length] for part in (trace.inputs, trace.output))
            shares.append((spread(f(Z)) / spread(f(X)))[0])
        assert bound.kept_share[k] == pytest.approx(min(shares), rel=1e-12)
        assert bound.sure_share[k] <= bound.kept_share[k]
        # With the sufficient beta every sequence keeps half.
        Z = trace.attention + bound.sufficient_beta[k] * trace.inputs
        for i, length in enumerate(lengths):
            X_i, Z_i = trace.inputs[i : i + 1, :length], Z[i : i + 1, :length]
            assert spread(f(Z_i))[0] >= (0.5 - 1e-9) * spread(f(X_i))[0]
    assert bound.to_frame().index.name == "layer" and len(bound.to_frame()) == 2
    assert "layer 1: beta 1 keeps " in repr(bound)
    again = pickle.loads(pickle.dumps(bound))
    np.testing.assert_array_equal(again.sufficient_beta, bound.sufficient_beta)


def test_it_reaches_through_a_pipeline_and_refuses_what_it_cannot_use():
    X = np.random.default_rng(0).standard_normal((20, 5, 3))
    model = ResidualTransformerRegressor(0.7, max_iter=1, random_state=0, dtype="float64")
    pipe = make_pipeline(FunctionTransformer(), model).fit(X, X[:, 0, 0])
    assert lambda_skip_bound(pipe, X).beta == pytest.approx([0.7], rel=1e-9)
    with pytest.raises(ValueError, match=r"`kept` must be below 1, got 1\.0"):
        lambda_skip_bound(pipe, X, kept=1.0, layer_norm=True)
    with pytest.raises(TypeError, match="lambda_skip_bound needs a residual Transformer"):
        lambda_skip_bound("ridge", X)
    same = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match="a sequence with two different tokens"):
        lambda_skip_bound(GivenTraces([LayerTrace(same, same, same)]), None)


# ---- tried on weather ----------------------------------------------------------------------------


@pytest.mark.long
def test_on_jena_the_sufficient_beta_is_sufficient_and_loose(data_dir):
    """Eight layers with post norm after an epoch, 200 windows: seen 2026-12-01, beta = 0, .5, 1,
    2, 4, 8 the worst layer and window kept 0, .29, .53, .75, .87 and .93 of the spread; beta = 9.3
    is sure to keep half, and kept .94. Theorem 4.1 asks for 9.9 without its condition on the input.
    """
    frame = fetch_jena_climate(data_dir, frequency="1h")
    X, y = make_supervised(frame, target="T (degC)", horizon=24, window=24)
    rows = np.linspace(24, len(y) - 1, 200).astype(int)
    X, y = X[rows], np.asarray(y)[rows]

    def model(beta):
        settings = {"n_layers": 8, "d_model": 32, "norm": "post", "init": "gaussian"}
        return ResidualTransformerRegressor(
            (beta, 1.0), max_iter=1, random_state=0, dtype="float64", **settings
        ).fit(X, y)

    found = {beta: model(beta) for beta in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)}
    for fit in found.values():
        bound = lambda_skip_bound(fit, X, kept=0.5, layer_norm=True)
        assert (bound.kept_share >= bound.sure_share).all()
    beta = float(lambda_skip_bound(found[1.0], X, layer_norm=True).sufficient_beta.max())
    for _ in range(3):  # the inputs of the layers move with beta
        fit = model(beta)
        bound = lambda_skip_bound(fit, X, layer_norm=True)
        if beta >= bound.sufficient_beta.max():
            break
        beta = float(bound.sufficient_beta.max())
    assert bound.sure_share.min() >= 0.5 - 1e-9 and bound.kept_share.min() >= 0.5
    S = max(np.linalg.norm(layer.W_V.detach().numpy(), 2) for layer in fit.net_.module_.layers)
    paper = lambda_skip(0.25, float(S), math.sqrt(24))
    assert paper > beta > 1.0
