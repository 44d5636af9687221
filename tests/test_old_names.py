"""Names of earlier releases: what still works, with a warning, and where it leads."""

import warnings

import numpy as np
import pytest

import sklearn_restrans
import sklearn_restrans.conditioning as conditioning_module
from sklearn_restrans import (
    ResidualTransformerRegressor,
    measure_conditioning,
)


def small(**settings):
    return ResidualTransformerRegressor(d_model=4, max_iter=1, random_state=0, **settings)


def test_the_module_is_what_an_import_of_it_gives():
    assert conditioning_module is sklearn_restrans.conditioning
    assert conditioning_module.Conditioning is sklearn_restrans.Conditioning
    assert conditioning_module.measure_conditioning is measure_conditioning


@pytest.mark.parametrize("old", [conditioning_module, conditioning_module.conditioning])
def test_the_old_name_works_and_warns_of_the_line_that_calls_it(old):
    X = np.random.default_rng(0).standard_normal((20, 3))
    model = small().fit(X, X[:, 0])
    with pytest.warns(FutureWarning, match="is now measure_conditioning") as record:
        found = old(model, X)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = measure_conditioning(model, X)
    assert found.to_frame().equals(new.to_frame())
