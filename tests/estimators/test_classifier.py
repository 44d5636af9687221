"""The classifier: probabilities, labels, and what no linear model can learn."""

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning
from smallmodels import SMALL, table

from sklearn_restrans import ResidualTransformerClassifier


def test_probabilities_of_the_squared_error_keep_the_class():
    X, y = table(ResidualTransformerClassifier)
    y = y + (X[:, 2] > 0.5)
    model = ResidualTransformerClassifier(
        loss="squared_error", **SMALL | {"max_iter": 30, "learning_rate_init": 0.05}
    ).fit(X, y)
    far = np.random.default_rng(0).standard_normal((500, 4)) * 20
    p = model.predict_proba(far)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)  # a few eps
    assert ((0 <= p) & (p <= 1)).all()
    picked = p[np.arange(500), np.searchsorted(model.classes_, model.predict(far))]
    np.testing.assert_array_equal(picked, p.max(axis=1))


def test_log_probabilities_are_logarithms():
    X, y = table(ResidualTransformerClassifier)
    model = ResidualTransformerClassifier(**SMALL).fit(X, y)
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))


def test_a_column_of_labels_is_flattened_with_a_warning():
    X, y = table(ResidualTransformerClassifier)
    with pytest.warns(DataConversionWarning):
        model = ResidualTransformerClassifier(**SMALL).fit(X, y[:, None])
    assert model.predict(X).shape == (60,)


def test_one_class_is_predicted_with_certainty():
    X, _ = table(ResidualTransformerClassifier)
    model = ResidualTransformerClassifier(**SMALL).fit(X, np.full(60, "only"))
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((60, 1)))
    assert set(model.predict(X)) == {"only"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_classifier_learns_what_no_linear_model_can(seed):
    """Exclusive or of two signs: a linear model stays at 0.5."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((400, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = ResidualTransformerClassifier(
        d_model=16, n_heads=2, norm="pre", max_iter=40, learning_rate_init=0.02, random_state=seed
    )
    assert model.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.85
