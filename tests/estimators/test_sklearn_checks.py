"""scikit-learn's own checks, every one of them, with the true defaults and other configurations."""

from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)
from smallmodels import ESTIMATORS

# Without dropout and windows: their predictions depend on chance or on the rows passed before,
# which the checks of weights, order and subsets exclude.
CONFIGURATIONS = [
    {},
    {
        "n_layers": 2,
        "n_heads": 2,
        "norm": "pre",
        "d_model": 16,
        "max_iter": 30,
        "learning_rate_init": 3e-3,
    },
    {"solver": "sgd", "learning_rate_init": 0.05, "activation": "gelu", "d_model": 16},
    {
        "residual_beta": (0.5, 0.0),
        "learn_beta": True,
        "readout": "last",
        "norm": "post",
        "positions": None,
        "d_model": 16,
    },
]


# They train on labels of chance, or for a few steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [estimator(**settings) for settings in CONFIGURATIONS for estimator in ESTIMATORS]
)
def test_scikit_learns_check_passes(estimator, check):
    try:
        check(estimator)
    except SkipTest as skip:
        # scikit-learn asks for an environment variable before it tries arrays of other libraries.
        assert check.func.__name__ == "check_array_api_input", skip
        raise


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "check", [check_dataframe_column_names_consistency, check_param_validation]
)
def test_scikit_learns_check_of_its_own_estimators_passes(estimator, check):
    check(estimator.__name__, estimator(max_iter=2))
