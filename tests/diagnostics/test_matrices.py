"""The view of one matrix: its singular values as quantities, and what is not resolved."""

import numpy as np
import pytest
from layertraces import attention_trace, measured

import sklearn_restrans.diagnostics.conditioning as where_it_was
from sklearn_restrans.conditioning import LayerTrace, MatrixConditioning

SEEDS = [0, 1, 2]


def view_of(singular_values, input_rank, input_sigma_min=None):
    """A view of one epoch and one layer."""
    s = np.array(singular_values, dtype=float)[None, None]
    rank = np.array([[input_rank]])
    smallest = None if input_sigma_min is None else np.array([[input_sigma_min]])
    return MatrixConditioning(s, rank, rank * 0.0, np.zeros((1, 1, 5)), rank, smallest)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_condition_number_that_is_rounding_is_infinite(seed):
    """Rank-one attention: its second singular value is 1e-16 of the first, whatever is done."""
    trace = attention_trace(n=20, d=8, seed=seed)
    flat = np.broadcast_to(trace.inputs[0].mean(axis=0), trace.inputs.shape)
    result = measured(LayerTrace(trace.inputs, flat, flat + trace.inputs))
    attention = result.attention
    assert attention.numerical_rank[0, 0] == 1 < attention.input_rank[0, 0] == 8
    assert attention.sigma_min[0, 0] < 1e-13 * attention.sigma_max[0, 0]
    assert np.isinf(attention.condition_number[0, 0])
    assert result.get("sigma_min_ratio", of="attention") < 1e-12
    assert 1 < result.get("condition_number") < 100
    assert "Attn has rank 1, its sigma_8 is not resolved" in repr(result)


def test_a_condition_number_that_float64_can_show_stays():
    """1e12 is above the rounding of a decomposition, d eps = 1e-15 of the largest value."""
    assert view_of([1.0, 1e-3, 1e-12], 3).condition_number[0, 0] == pytest.approx(1e12)
    assert np.isinf(view_of([1.0, 1e-3, 1e-16], 3).condition_number[0, 0])
    assert np.isinf(view_of([0.0, 0.0], 0).condition_number[0, 0])


def test_the_ratio_needs_a_positive_sigma_min_of_the_input():
    assert view_of([4.0, 1.0], 2, 2.0).sigma_min_ratio.tolist() == [[0.5]]
    assert np.isnan(view_of([4.0, 1.0], 2).sigma_min_ratio[0, 0])
    assert np.isnan(view_of([4.0, 1.0], 2, 0.0).sigma_min_ratio[0, 0])


def test_old_pickles_find_the_class_where_it_was():
    assert where_it_was.MatrixConditioning is MatrixConditioning
