"""Numbers at the edges: what a fit must survive, and what it must refuse in words."""

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans.forecasting import make_supervised


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(size=(30, 3))
    return X, X[:, 0]


def regressor(**kwargs):
    return ResidualTransformerRegressor(d_model=8, random_state=0, **{"max_iter": 5, **kwargs})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("step", "epochs"), [(1e20, 1), (1e10, 1), (1e10, 2)])
def test_a_last_step_that_diverges_is_an_error_not_a_nan_model(data, dtype, step, epochs):
    X, y = data
    settings = {
        "solver": "sgd",
        "learning_rate_init": step,
        "max_iter": epochs,
        "dtype": dtype,
        "random_state": 0,
    }
    for model, target in (
        (ResidualTransformerRegressor(**settings), y),
        (ResidualTransformerClassifier(**settings), y > 0),
    ):
        with pytest.raises(DivergenceError, match="Lower learning_rate_init"):
            model.fit(X, target)


@pytest.mark.parametrize("power", [-1000, -500, 500, 1000])
def test_the_unit_of_X_does_not_matter(data, power):
    # A power of two changes no digit, so the predictions are equal to the bit.
    X, y = data
    scaled = np.ldexp(X, power)
    expected = regressor().fit(X, y).predict(X)
    np.testing.assert_array_equal(regressor().fit(scaled, y).predict(scaled), expected)


@pytest.mark.parametrize("power", [-900, 900])
def test_the_unit_of_y_does_not_matter(data, power):
    X, y = data
    expected = regressor().fit(X, y).predict(X)
    predicted = regressor().fit(X, np.ldexp(y, power)).predict(X)
    np.testing.assert_array_equal(np.ldexp(predicted, -power), expected)


def test_huge_weights_are_weights(data):
    X, y = data
    expected = regressor().fit(X, y, np.ones(30)).predict(X)
    np.testing.assert_array_equal(regressor().fit(X, y, np.full(30, 1e308)).predict(X), expected)


@pytest.mark.parametrize("value", [0.0, 1e-6, -3.5, 1e300])
def test_a_constant_target_is_predicted(data, value):
    X, y = data
    np.testing.assert_array_equal(regressor().fit(X, np.full(30, value)).predict(X), value)
    two = regressor().fit(X, np.column_stack([y, np.full(30, value)])).predict(X)
    np.testing.assert_array_equal(two[:, 1], value)
    assert np.ptp(two[:, 0]) > 0


def test_an_input_too_far_away_is_cut_not_predicted_as_nan(data):
    X, y = data
    model = regressor().fit(X, y)
    far, low = np.full((1, 3), 1e308), np.full((1, 3), -1e308)
    width = np.ptp(X, axis=0)
    np.testing.assert_array_equal(model.predict(far), model.predict([X.max(axis=0) + width]))
    np.testing.assert_array_equal(model.predict(low), model.predict([X.min(axis=0) - width]))


def test_the_recorded_step_is_the_one_taken(data):
    X, y = data
    history = regressor(learning_rate="one_cycle", max_iter=4).fit(X, y).history_
    rates = history["learning_rate"]
    # One batch an epoch: a cycle of four steps starts at max / 25 and ends at its floor.
    assert rates.iloc[0] == pytest.approx(5e-3 / 25)
    assert rates.iloc[-1] == rates.min() < 1e-6


def frame(columns="abc"):
    values = np.random.default_rng(0).normal(size=(60, 3)).cumsum(axis=0)
    return pd.DataFrame(values, columns=list("abc"))[list(columns)]


def test_a_view_keeps_column_names_and_their_order_is_checked():
    X, y = make_supervised(frame(), "a", 1, window=4)
    model = regressor(max_iter=2).fit(X, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    other, _ = make_supervised(frame("cba"), "a", 1, window=4)
    with pytest.raises(ValueError, match="same columns in the same order"):
        model.predict(other)
    assert model.predict(X[:3]).shape == (3,)


def test_a_view_with_another_dilation_is_refused():
    values, ends = frame().to_numpy(), np.arange(20, 60)
    model = regressor(max_iter=2).fit(SequenceView(values, ends, 4), values[ends, 0])
    with pytest.raises(ValueError, match=r"dilation=2, but .* fitted on dilation=1"):
        model.predict(SequenceView(values, ends, 4, dilation=2))


def test_a_view_longer_than_its_series_is_refused_in_fit():
    view = SequenceView(np.zeros((5, 1)), [3, 4], 6)
    with pytest.raises(ValueError, match="window=6 on a series of 5 rows"):
        regressor().fit(view, [0.0, 1.0])
