"""The error of this package is an arithmetic error; its warning has a class to filter by."""

import pickle

import pytest

from sklearn_restrans import DivergenceError, RankCollapseWarning


def test_divergence_is_a_floating_point_error():
    """Callers that catch ArithmeticError, or numpy's own error, catch it too."""
    with pytest.raises(ArithmeticError, match="the train loss became inf"):
        raise DivergenceError("the train loss became inf")
    assert issubclass(DivergenceError, FloatingPointError)


def test_divergence_comes_back_from_another_process():
    error = pickle.loads(pickle.dumps(DivergenceError("lower the step")))
    assert type(error) is DivergenceError and str(error) == "lower the step"


def test_the_warning_is_one_of_users_and_survives_a_process():
    warning = pickle.loads(pickle.dumps(RankCollapseWarning("raise residual_beta")))
    assert type(warning) is RankCollapseWarning and issubclass(RankCollapseWarning, UserWarning)
    assert str(warning) == "raise residual_beta"
