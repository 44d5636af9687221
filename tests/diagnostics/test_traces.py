"""Layer traces: padding is left out, and arrays that do not fit are refused."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from layertraces import SEEDS, assert_same, attention_trace, measured

from sklearn_restrans.conditioning import (
    LayerTrace,
    conditioning_from_traces,
)


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
