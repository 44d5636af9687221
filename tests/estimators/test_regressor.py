"""The regressor: several targets, raw units, and targets that do not vary."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from smallmodels import SMALL, table

from sklearn_restrans import ResidualTransformerRegressor


def test_several_targets_are_learned_together():
    X, y = table(ResidualTransformerRegressor, n=200)
    Y = np.c_[y, 1000 - 50 * X[:, 1]]
    model = ResidualTransformerRegressor(max_iter=20, random_state=0, batch_size=16).fit(X, Y)
    assert model.predict(X).shape == (200, 2)
    assert model.score(X, Y) > 0.8
    frame = pd.DataFrame(Y, columns=["a", "b"])
    again = clone(model).set_params(max_iter=1).fit(X, frame)
    assert again.predict(X).shape == (200, 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_raw_units_of_inputs_and_targets_do_not_matter(seed):
    """Powers of two rescale without rounding: the standardised fit is the same to the bit."""
    X, y = table(ResidualTransformerRegressor, seed=seed)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    scaled = clone(model).fit(X * 2.0**20, y * 2.0**-12)
    np.testing.assert_array_equal(scaled.predict(X * 2.0**20), model.predict(X) * 2.0**-12)
    assert scaled.loss_curve_ == model.loss_curve_


def test_constant_columns_and_targets_are_no_trouble():
    X, _ = table(ResidualTransformerRegressor)
    X[:, 2] = 7.0
    model = ResidualTransformerRegressor(**SMALL).fit(X, np.full(60, 3.0))
    assert np.isfinite(model.predict(X)).all()
    assert abs(model.predict(X) - 3.0).max() < 3.0
