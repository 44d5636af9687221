"""What one column can do to a prediction: nothing if constant, little if it runs away."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._data.scaling import Scaler

SMALL = {"d_model": 8, "max_iter": 5, "random_state": 0}
CPU = torch.device("cpu")
N, T = 120, 4
MOVED = "X varies in columns that held one value, or none, in the training rows"


def rows(idle, seed=0, n=N):
    """Two columns that matter and one, in their middle, that is ``idle``."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.standard_normal(n), np.full(n, idle), rng.standard_normal(n)])


def as_kind(kind, X):
    if kind == "table":
        return X
    view = SequenceView(X, np.arange(T - 1, len(X)), T)
    return view if kind == "view" else np.asarray(view)


KINDS = ["table", "view", "sequences"]


@pytest.mark.parametrize("estimator", [ResidualTransformerRegressor, ResidualTransformerClassifier])
@pytest.mark.parametrize(("before", "after"), [(0.0, 300.0), (-7.5, 1e6), (np.nan, 1013.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_constant_in_training_has_no_effect(kind, before, after, estimator):
    train, same, moved = rows(before), rows(before, 1), rows(after, 1)
    y = train[:, 0] + train[:, 2]
    y = y > 0 if estimator is ResidualTransformerClassifier else y
    X = as_kind(kind, train)
    model = estimator(**SMALL).fit(X, y[-len(X) :])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.predict(as_kind(kind, same))
    with pytest.warns(UserWarning, match=f"{MOVED}: 1. Nothing") as caught:
        predicted = model.predict(as_kind(kind, moved))
    np.testing.assert_array_equal(predicted, expected)
    assert len(caught) == 1


def test_the_warning_names_the_columns_and_comes_for_validation_rows_too():
    frame = pd.DataFrame(rows(0.0), columns=["temperature", "snow", "wind"])
    later = frame.assign(snow=300.0)
    y = frame["temperature"]
    with pytest.warns(UserWarning, match=f"{MOVED}: 'snow'"):
        ResidualTransformerRegressor(**SMALL).fit(frame, y, X_val=later, y_val=y)
    many = pd.DataFrame(np.zeros((20, 8))).assign(x=np.arange(20.0)).rename(columns=str)
    model = ResidualTransformerRegressor(**SMALL).fit(many, np.arange(20.0))
    with pytest.warns(UserWarning, match="'0', '1', '2', '3', '4' and 3 more"):
        model.predict(many + 1.0)


def test_snow_that_falls_after_training_costs_nothing():
    """The hourly series of the report: snow depth 0 for 900 rows, then 300."""
    rng = np.random.default_rng(0)
    hours = np.arange(1_200)
    temperature = np.sin(2 * np.pi * hours / 24) + 0.1 * rng.standard_normal(1_200)
    snow = np.where(hours < 900, 0.0, 300.0)
    X, y = np.column_stack([temperature, snow])[:-1], temperature[1:]
    model = ResidualTransformerRegressor(window=24, random_state=0).fit(X[:900], y[:900])
    with pytest.warns(UserWarning, match=MOVED):
        error = np.abs(model.predict(X[877:])[23:] - y[900:]).mean()
    alone = ResidualTransformerRegressor(window=24, random_state=0).fit(X[:900, :1], y[:900])
    reference = np.abs(alone.predict(X[877:, :1])[23:] - y[900:]).mean()
    # Another column is another draw of the weights; measured 0.10 and 0.10.
    assert error < 1.5 * reference < 0.3


def test_a_column_that_is_always_missing_has_no_indicator():
    """That it is missing would be a constant input, which later turns into another one."""
    X, y = rows(np.nan), rows(np.nan)[:, 0]
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    assert model.net_.module_.arch.n_tokens == 3
    some = X.copy()
    some[:60, 1] = 5.0  # constant where it was read: that it is missing is all it tells
    told = ResidualTransformerRegressor(**SMALL).fit(some, np.isnan(some[:, 1]).astype(float))
    assert told.net_.module_.arch.n_tokens == 4
    with pytest.warns(UserWarning, match=MOVED):
        moved = told.predict(np.where(np.isnan(some), np.nan, some * [1, 60, 1]))
    np.testing.assert_array_equal(moved, told.predict(some))


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("kind", ["noise", "one outlier"])
def test_a_column_goes_one_range_beyond_its_training_range_and_no_further(kind, noise):
    rng = np.random.default_rng(0)
    X = rows(1e6)
    X[:, 1] += noise * (rng.standard_normal(N) if kind == "noise" else np.arange(N) == 5)
    model = ResidualTransformerRegressor(**SMALL).fit(X, X[:, 0])
    low, high = X[:, 1].min(), X[:, 1].max()
    edge, far = X[:10].copy(), X[:10].copy()
    for sign, bound in ((1, high + (high - low)), (-1, low - (high - low))):
        edge[:, 1], far[:, 1] = bound, 1e6 + sign * 1e9
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(model.predict(far), model.predict(edge))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_within_reach_nothing_is_cut(dtype, seed):
    train = (10 * np.random.default_rng(seed).standard_normal((50, 3))).astype(dtype)
    scaler, width = Scaler.fit(train), np.ptp(train.astype(float), axis=0)
    near = np.linspace(train.min(axis=0) - width, train.max(axis=0) + width, 31)
    scaled = scaler.to_tensor(near, torch.float64, CPU).numpy()
    np.testing.assert_allclose(scaled, (near - scaler.mean) / scaler.scale, rtol=1e-12, atol=1e-12)
    targets = scaler.to_tensor(100 * near, torch.float64, CPU, bounded=False).numpy()
    np.testing.assert_allclose(targets, (100 * near - scaler.mean) / scaler.scale, rtol=1e-12)


def test_the_range_is_that_of_the_rows_that_count():
    weights = np.array([1.0, 2.0, 0.0, 1.0])
    scaler = Scaler.fit(np.array([[1.0], [3.0], [99.0], [np.nan]]), weights)
    assert (scaler.lowest[0], scaler.highest[0]) == (1.0, 3.0)
    np.testing.assert_array_equal(scaler.reach, [[-1.0], [5.0]])
    assert Scaler.fit(np.full((3, 1), np.nan)).reach.tolist() == [[0.0], [0.0]]
    assert np.isinf(Scaler.fit(np.array([[-1e308], [1e308]])).reach).all()


def test_a_bounded_input_helps_where_test_rows_run_away(seed):
    """Student's t of 1.5 degrees of freedom and a target that saturates, as most do."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(1.5, (1_000, 4))
    y = np.tanh(X[:, 0]) + X[:, 1].clip(-3, 3)
    model = ResidualTransformerRegressor(random_state=0).fit(X[:500], y[:500])
    cut = np.abs(model.predict(X[500:]) - y[500:])
    scaler = model._preprocessing.scaler
    # The range without an end: nothing is cut.
    scaler.lowest, scaler.highest = np.full(4, -1e300), np.full(4, 1e300)
    free = np.abs(model.predict(X[500:]) - y[500:])
    assert (cut**2).mean() <= (free**2).mean()


def test_a_constant_column_of_another_float_type_is_no_news():
    X = rows(0.1).astype(np.float32)
    model = ResidualTransformerRegressor(**SMALL).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(rows(0.1))
