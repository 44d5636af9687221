"""Layer traces of plain attention in numpy, and how two records are compared."""

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from sklearn_restrans.conditioning import (
    LayerTrace,
    conditioning_from_traces,
)

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


def assert_same(first, second, rtol=1e-12):
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame(), rtol=rtol)
    for a, b in ((first.attention, second.attention), (first.Z, second.Z)):
        np.testing.assert_allclose(a.singular_values, b.singular_values, rtol=rtol)


class GivenTraces(BaseEstimator):
    """A fitted estimator whose layers have computed these traces; in chunks of two sequences."""

    best_iteration_ = 1

    def __init__(self, traces):
        self.traces = traces

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def __restrans_traces__(self, X):
        for start in range(0, len(self.traces[0].inputs), 2):
            yield [part(trace, slice(start, start + 2)) for trace in self.traces]
