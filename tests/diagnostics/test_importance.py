"""Importance of channels: what the target is made of, and what a table's own function says."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance

from sklearn_restrans import (
    ResidualTransformerRegressor,
    SequenceView,
    channel_importance,
)


def planted(n=300, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, 4, 3))
    return X, 2.0 * X[:, -1, 1] + 0.5 * X[:, -2, 2]


def test_the_channels_the_target_is_made_of_are_found():
    X, y = planted()
    model = ResidualTransformerRegressor(d_model=16, max_iter=30, random_state=0).fit(X, y)
    before = X.copy()
    found = channel_importance(model, X, y, random_state=0)
    np.testing.assert_array_equal(X, before)
    assert found.importances.shape == (3, 5) and found.columns is None
    assert found.baseline_score == model.score(X, y)
    assert found.importances_mean.argsort().tolist() == [0, 2, 1]
    # Permuting an independent target part of share v of the variance takes 2 v from R^2.
    assert found.importances_mean[1] == pytest.approx(2 * 4 / 4.25, abs=0.3)


class LastToken:
    """Predicts from the last token alone."""

    _estimator_type = "regressor"

    def __init__(self, weight):
        self.weight = weight

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X).reshape(len(X), -1, len(self.weight))[:, -1] @ self.weight

    def score(self, X, y):
        return -np.abs(self.predict(X) - y).mean()


def test_of_one_token_it_is_the_importance_of_a_table():
    X, _ = planted()
    X = X[:, -1:]
    model = LastToken(np.array([0.5, -2.0, 0.0]))
    y = model.predict(X)
    found = channel_importance(model, X, y, n_repeats=40, random_state=0)
    table = permutation_importance(model, X[:, 0], y, n_repeats=40, random_state=1)
    # Means of 40 permutations of 300 rows: a standard error of about 0.01.
    np.testing.assert_allclose(found.importances_mean, table.importances_mean, atol=0.05)
    assert not found.importances[2].any()


def test_views_keep_their_names_and_are_not_changed():
    frame = pd.DataFrame(planted(60)[0][:, 0], columns=["a", "b", "c"])
    view = SequenceView(frame, np.arange(3, 60), 4)
    y = frame["b"].to_numpy()[3:]
    model = ResidualTransformerRegressor(d_model=8, max_iter=5, random_state=0).fit(view, y)
    series = view.series.copy()
    found = channel_importance(model, view, y, max_samples=20, n_repeats=2, random_state=0)
    assert list(found.columns) == ["a", "b", "c"] and np.isfinite(found.importances).all()
    np.testing.assert_array_equal(view.series, series)


def test_bad_input_is_named():
    X, y = planted(20)
    model = LastToken(np.ones(3))
    with pytest.raises(ValueError, match="for a table use sklearn"):
        channel_importance(model, X[:, 0], y)
    with pytest.raises(ValueError, match="X holds one sequence"):
        channel_importance(model, X[:1], y[:1])
    with pytest.raises(TypeError, match=r"scoring must return one number, got \[1, 2\]"):
        channel_importance(model, X, y, scoring=lambda *_: [1, 2])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n_repeats": 0}, "n_repeats must be an integer >= 1, got 0"),
        ({"n_repeats": 1.5}, "n_repeats must be an integer >= 1, got 1.5"),
        ({"n_repeats": True}, "n_repeats must be an integer >= 1, got True"),
        ({"n_repeats": None}, "n_repeats must be an integer >= 1, got None"),
        ({"max_samples": 1}, "max_samples must be an integer >= 2, got 1"),
        ({"max_samples": 0.5}, "max_samples must be an integer >= 2, got 0.5"),
        ({"scoring": "nonsense"}, "scoring='nonsense' is not a score of scikit-learn"),
        ({"scoring": ["r2"]}, r"scoring must be one score, .* got \['r2'\]"),
        ({"scoring": 3}, "scoring must be one score, .* got 3"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        channel_importance(LastToken(np.ones(3)), *planted(20), **arguments)
