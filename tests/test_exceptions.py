"""The one error of this package says what became infinite, and is an arithmetic error."""

import pickle

import pytest

from sklearn_restrans import DivergenceError


def test_divergence_is_a_floating_point_error():
    """Callers that catch ArithmeticError, or numpy's own error, catch it too."""
    with pytest.raises(ArithmeticError, match="the train loss became inf"):
        raise DivergenceError("the train loss became inf")
    assert issubclass(DivergenceError, FloatingPointError)


def test_divergence_comes_back_from_another_process():
    error = pickle.loads(pickle.dumps(DivergenceError("lower the step")))
    assert type(error) is DivergenceError and str(error) == "lower the step"
