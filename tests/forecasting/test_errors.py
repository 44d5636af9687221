"""The scaled error matches plain numpy, and bad input gets a sentence."""

import re

import numpy as np
import pytest

from sklearn_restrans.forecasting import mean_absolute_scaled_error


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
