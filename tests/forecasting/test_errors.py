"""The scaled error matches plain numpy, and bad input gets a sentence."""

import re
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

from sklearn_restrans.forecasting import (
    crps_of_quantiles,
    crps_of_sample,
    mean_absolute_scaled_error,
)


@pytest.mark.parametrize("period", [1, 5])
def test_mase_is_the_mean_error_over_the_naive_one(period):
    rng = np.random.default_rng(3)
    train, truth, guess = rng.normal(size=(40, 2)), rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    ratios = []
    for k in range(2):
        naive = [abs(train[t, k] - train[t - period, k]) for t in range(period, 40)]
        ratios.append(np.mean(abs(truth[:, k] - guess[:, k])) / np.mean(naive))
    # 1e-12: sums of 40 doubles of order one
    assert mean_absolute_scaled_error(truth, guess, train, period) == pytest.approx(
        np.mean(ratios), rel=1e-12
    )
    assert mean_absolute_scaled_error(
        1000 * truth[:, 0] + 5, 1000 * guess[:, 0] + 5, 1000 * train[:, 0] + 5, period=period
    ) == pytest.approx(ratios[0], rel=1e-12)


def test_mase_of_the_naive_forecast_on_its_own_training_series_is_one():
    walk = np.random.default_rng(0).normal(size=50).cumsum()
    assert mean_absolute_scaled_error(walk[6:], walk[:-6], walk, period=6) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([1, 2], [1, 2, 3], [1, 2, 3]), "y_pred (3, 1) and y_train (3, 1): pass as many rows"),
        (([1, 2], [1, 2], np.ones((5, 2))), "the same outputs in all three"),
        (([1, 2], [1, 2], [1, 2], 2), "period=2 needs more than 2 training rows, got 2"),
        (([1, 2], [1, 2], [4, 4, 4]), "y_train repeats itself after period=1 rows"),
        (([1, 2], [1, 2], [1, 2, 1, 2], 2), "y_train repeats itself after period=2 rows"),
        (([1, 2], [1, 2], [1, 2, 3], 0.5), "period must be an integer >= 1, got 0.5"),
        (([], [], [1, 2]), "y_true must have shape (n_samples,) or (n_samples, n_outputs) and at"),
        (([1], 2.0, [1, 2]), "y_pred must have shape (n_samples,) or"),
        (([1], [1], None), "y_train must have shape (n_samples,) or"),
        ((["a"], [1], [1, 2]), "y_true must hold numbers: could not convert"),
        (([1], [np.nan], [1, 2]), "y_pred has missing values (NaN)"),
        (([1], [1], [1, np.nan, 2]), "y_train has missing values (NaN)"),
    ],
)
def test_bad_input_to_mase_gets_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        mean_absolute_scaled_error(*arguments)


# ---- the continuous ranked probability score -----------------------------------------------------


def integral_of(cdf, y, low, high, jumps=()):
    """The integral over z of (F(z) - 1{y <= z})^2, piece by piece between jumps."""
    edges = np.unique([low, high, y, *jumps])
    pieces = [
        quad(lambda z: (cdf(z) - (y <= z)) ** 2, a, b, epsabs=1e-11)[0] for a, b in pairwise(edges)
    ]
    return sum(pieces)


@pytest.mark.parametrize("m", [1, 2, 7])
def test_crps_of_a_sample_is_the_integral_of_the_squared_difference(m, seed):
    rng = np.random.default_rng(seed)
    y, sample = rng.normal(size=(4, 2)), rng.normal(size=(4, 2, m))
    sample[0, 0] = sample[0, 0, 0]  # members that agree
    expected = [
        # in the middle of a piece F is constant, and so is the integrand
        integral_of(lambda z, x=x: np.mean(x <= z), truth, -9.0, 9.0, x)
        for truth, x in zip(y.ravel(), sample.reshape(8, m), strict=True)
    ]
    assert crps_of_sample(y, sample) == pytest.approx(np.mean(expected), rel=1e-9)
    in_order = np.sort(sample, axis=-1)
    assert crps_of_sample(y, in_order) == crps_of_sample(y, sample)
    assert crps_of_sample(y[:, 0], sample[:, 0]) == pytest.approx(np.mean(expected[::2]), rel=1e-9)
    far = crps_of_sample(y + 1e6, sample + 1e6)  # 1e6 has an absolute rounding error of 1e-10
    assert far == pytest.approx(np.mean(expected), abs=1e-9)


def test_crps_of_one_member_is_the_mean_absolute_error(seed):
    y, guess = np.random.default_rng(seed).normal(size=(2, 30))
    error = np.abs(y - guess).mean()
    assert crps_of_sample(y, guess[:, None]) == pytest.approx(error, rel=1e-12)
    assert crps_of_quantiles(y, guess[:, None], (0.5,)) == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize(("n", "error"), [(9, 0.05), (99, 1e-3), (999, 1e-4)])
def test_crps_of_many_quantiles_is_the_integral(n, error):
    """Of normal forecasts; a single row errs more than the mean that the docstring has."""
    levels = (np.arange(n) + 0.5) / n
    for y in (-2.0, 0.0, 0.3, 1.5):
        for mean, scale in ((0.0, 1.0), (1.0, 0.2)):
            expected = integral_of(lambda z, m=mean, s=scale: norm.cdf(z, m, s), y, -9.0, 9.0)
            found = crps_of_quantiles([y], norm.ppf(levels, mean, scale)[None], levels)
            assert found == pytest.approx(expected, rel=error)


def test_crps_of_quantiles_is_twice_the_mean_pinball_loss(seed):
    rng, levels = np.random.default_rng(seed), (0.1, 0.5, 0.7)
    y, q = rng.normal(size=(20, 2)), np.sort(rng.normal(size=(20, 2, 3)))
    parts = [mean_pinball_loss(y, q[..., k], alpha=tau) for k, tau in enumerate(levels)]
    assert crps_of_quantiles(y, q, levels) == pytest.approx(2 * np.mean(parts), rel=1e-12)
    each = [crps_of_quantiles(y[:, c], q[:, c], levels) for c in range(2)]
    assert np.mean(each) == pytest.approx(2 * np.mean(parts), rel=1e-12)


@pytest.mark.parametrize(
    ("y", "forecasts", "quantiles", "message"),
    [
        ([1.0], [[1.0, 2.0]], (0.9, 0.1), "quantiles must be rising .*sort them"),
        ([1.0], [[1.0, 2.0]], (0.5,), "holds 2 quantiles of each target, and quantiles has 1"),
        ([1.0], [1.0, 2.0], (0.1, 0.9), r"shape of y_true, \(1,\), and one axis more.* got \(2,\)"),
        ([[1.0, 2.0]], [[1.0, 2.0]], (0.1, 0.9), "one axis more"),
        ([np.nan], [[1.0, 2.0]], (0.1, 0.9), "y_true has missing"),
        ([1.0], [[1.0, np.inf]], (0.1, 0.9), "y_quantiles has missing or infinite"),
        ([1.0], [["a", "b"]], (0.1, 0.9), "y_quantiles must hold numbers"),
    ],
)
def test_forecasts_that_cannot_be_scored_are_named(y, forecasts, quantiles, message):
    with pytest.raises(ValueError, match=message):
        crps_of_quantiles(y, forecasts, quantiles)
    if "quantiles has" not in message and "sort" not in message:
        with pytest.raises(ValueError, match=message.replace("y_quantiles", "sample")):
            crps_of_sample(y, forecasts)
