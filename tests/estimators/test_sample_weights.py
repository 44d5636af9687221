"""A weight counts its row that often; class weights are weights of rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight
from smallmodels import ESTIMATORS, SAME, SMALL, outputs, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("solver", ["gd", "adamw"])
def test_a_row_of_weight_zero_is_no_row(estimator, solver):
    """To the bit: the row is not trained on, scaled by, shuffled with or validated on."""
    X, y = table(estimator)
    weight = np.ones(60)
    weight[10:20] = 0.0
    junk = X.copy()
    junk[10:20] = 1e6
    for early_stopping in (False, True):
        model = estimator(solver=solver, early_stopping=early_stopping, **SMALL)
        removed = clone(model).fit(X[weight > 0], y[weight > 0])
        zeroed = model.fit(junk, y, weight)
        np.testing.assert_array_equal(outputs(zeroed, X), outputs(removed, X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_integer_weight_is_a_repeated_row(estimator):
    """Full-batch gradient descent, where the batches cannot differ."""
    X, y = table(estimator)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    model = estimator(solver="gd", learning_rate_init=1e-2, **SMALL)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(outputs(model.fit(X, y, weight), X), outputs(repeated, X), **SAME)
    unweighted = clone(model).fit(X, y)
    assert abs(outputs(unweighted, X) - outputs(repeated, X)).max() > 1e-4


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_scale_of_the_weights_does_not_matter(estimator):
    X, y = table(estimator)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    models = [estimator(**SMALL).fit(X, y, scale * weight) for scale in (1.0, 3e-9, 7e9)]
    for model in models[1:]:
        np.testing.assert_allclose(outputs(model, X), outputs(models[0], X), **SAME)


def test_class_weights_are_sample_weights():
    X, y = table(ResidualTransformerClassifier)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    for class_weight in ("balanced", {0: 1.0, 1: 3.0}, {1: 0.0}):
        model = ResidualTransformerClassifier(class_weight=class_weight, **SMALL).fit(X, y)
        by_hand = clone(model).set_params(class_weight=None)
        by_hand.fit(X, y, compute_sample_weight(class_weight, y))
        np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(X), **SAME)
    both = ResidualTransformerClassifier(class_weight={1: 3.0}, **SMALL).fit(X, y, weight)
    by_hand.fit(X, y, np.where(y == 1, 3.0, 1.0) * weight)
    np.testing.assert_allclose(both.predict_proba(X), by_hand.predict_proba(X), **SAME)


def test_balanced_classes_weigh_the_same_with_sample_weights():
    """Each class has the same total weight, also when weights already favour one, or drop one."""
    X, y = table(ResidualTransformerClassifier)
    y = y + (X[:, 2] > 1)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    weight[y == 2] = 0.0
    model = ResidualTransformerClassifier(class_weight="balanced", **SMALL).fit(X, y, weight)
    total = np.array([weight[y == c].sum() for c in (0, 1)])
    by_hand = clone(model).set_params(class_weight=None)
    by_hand.fit(X, y, weight / np.r_[total, 1.0][y])
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(X), **SAME)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 0.0, 1: 0.0}, "leaves no sample a weight above zero"),
        ({0: -1.0}, "class_weight must not be negative, got {0: -1.0}"),
    ],
)
def test_class_weights_that_make_no_sense_are_refused(class_weight, message):
    X, y = table(ResidualTransformerClassifier)
    with pytest.raises(ValueError, match=message):
        ResidualTransformerClassifier(class_weight=class_weight, **SMALL).fit(X, y)
