"""Ridge on windows against scikit-learn's on arrays made by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import TimeSeriesSplit
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_restrans import SequenceView
from sklearn_restrans.forecasting import RidgeForecaster, backtest, make_supervised

WINDOW = 6


def wandering(seed, n=120):
    """Two series that wander about a mean, of very different sizes."""
    rng = np.random.default_rng(seed)
    values = lfilter([1.0], [1.0, -0.9], rng.standard_normal((n, 2)), axis=0) * [1, 50]
    return pd.DataFrame(values, columns=["a", "b"])


def by_hand(frame, ends, relative):
    """Windows (m, 6, 2) and the location taken off them."""
    windows = np.stack([frame.to_numpy()[ends - k] for k in range(WINDOW)[::-1]], axis=1)
    location = windows[:, -1] if relative else np.zeros((len(ends), 2))
    return windows - location[:, None], location


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("relative", [None, "last"])
def test_it_is_ridge_on_the_flattened_windows(seed, relative):
    frame, alpha = wandering(seed), 0.7
    X, y = make_supervised(frame, ["a", "b"], [1, 2], window=WINDOW, relative=relative)
    full = ~X.partial
    X, y = X[full], y[full]
    train = slice(0, 70)
    model = RidgeForecaster(alpha).fit(X[train], y.iloc[train])
    inputs, location = by_hand(frame, X.ends, relative)
    targets = y.to_numpy() - np.repeat(location, 2, axis=1)
    # standardised columns; of relative windows their root mean square over windows is 1
    seen = inputs[train].reshape(-1, 2) if relative else frame.to_numpy()[: X.ends[69] + 1]
    size = np.sqrt((seen**2).mean(axis=0)) if relative else seen.std(axis=0)
    inputs = ((inputs - (0 if relative else seen.mean(axis=0))) / size).reshape(len(X), -1)
    scaler = StandardScaler().fit(targets[train])
    ridge = Ridge(alpha).fit(inputs[train], scaler.transform(targets[train]))
    expected = scaler.inverse_transform(ridge.predict(inputs)) + np.repeat(location, 2, axis=1)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8)
    assert model.coef_.shape == (4, 2 * WINDOW) and model.intercept_.shape == (4,)


@pytest.mark.parametrize("seed", range(3))
def test_one_model_for_all_channels_is_a_ridge_on_stacked_channels(seed):
    frame = wandering(seed)
    frame["a"] += 3.0 * frame["b"].std()
    options = {"window": WINDOW, "relative": "last", "channel_independent": True}
    X, y = make_supervised(frame, ["a", "b"], 1, **options)
    X, y = X[~X.partial], y[~X.partial]
    model = RidgeForecaster(0.5).fit(X, y)
    inputs, location = by_hand(frame, X.ends, relative=True)
    scale = frame.to_numpy()[: X.ends.max() + 1].std(axis=0)
    inputs = (inputs / scale).swapaxes(1, 2).reshape(-1, WINDOW)
    targets = ((y.to_numpy() - location) / scale).reshape(-1, 1)
    scaler, size = StandardScaler().fit(targets), np.sqrt((inputs**2).mean())
    ridge = Ridge(0.5).fit(inputs / size, scaler.transform(targets).ravel())
    found = scaler.inverse_transform(ridge.predict(inputs / size)[:, None]).reshape(-1, 2)
    np.testing.assert_allclose(model.predict(X), found * scale + location, rtol=1e-8)


def test_weights_are_repeated_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    weight = rng.integers(0, 3, 40)
    for alpha in (0.0, 5.0):
        weighted = RidgeForecaster(alpha).fit(X, y, weight)
        repeated = RidgeForecaster(alpha).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
        np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-8)


def test_constant_columns_and_missing_readings_do_no_harm():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    X[:, 1] = 4.0
    y = X[:, 0] + 0.01 * rng.standard_normal(60)
    X[::7, 2] = np.nan
    model = RidgeForecaster(0.0).fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 0.05


def test_it_forecasts_in_a_backtest_and_beats_persistence_on_a_linear_series():
    rng = np.random.default_rng(0)
    values = np.zeros(400)
    for t in range(2, 400):
        values[t] = 1.6 * values[t - 1] - 0.8 * values[t - 2] + rng.standard_normal()
    X, y = make_supervised(pd.DataFrame({"T": values}), "T", 1, window=4)
    scores = backtest(clone(RidgeForecaster()), X, y, TimeSeriesSplit(2))
    # The best forecast misses by the noise alone, of which the mean size is 0.8.
    assert (scores["skill"] > 0).all() and scores["MAE"].max() < 0.8 * 1.15


@parametrize_with_checks([RidgeForecaster()])
def test_it_keeps_to_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("alpha", [-1.0, "1", True, np.nan])
def test_a_wrong_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha must be a finite number >= 0"):
        RidgeForecaster(alpha).fit(np.zeros((3, 1)), [0, 1, 2])


def test_a_view_of_another_form_is_refused():
    view = SequenceView(np.random.default_rng(0).random((20, 1)), np.arange(5, 20), 5)
    model = RidgeForecaster().fit(view, np.arange(15.0))
    other = SequenceView(view.series, view.ends, 5, relative="last")
    with pytest.raises(ValueError, match="RidgeForecaster was fitted on relative=None"):
        model.predict(other)
