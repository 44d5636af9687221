"""Targets: what y may be, how it becomes numbers, and how outputs become predictions again."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import norm
from smallmodels import SMALL

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    SeedEnsembleClassifier,
    residual_beta_path,
)
from sklearn_restrans._data.targets import ClassTargets, RegressionTargets, weigh_classes

X = np.random.default_rng(0).standard_normal((30, 3))
SIGN = X[:, 0] > 0
WORDS = np.where(SIGN, "good", "bad")
PLAIN = ResidualTransformerClassifier(**SMALL)
MODELS = [
    PLAIN,
    ResidualTransformerClassifierCV([0.0, 1.0], cv=2, **SMALL),
    SeedEnsembleClassifier(PLAIN, n_estimators=2, random_state=0),
]


def at(labels, rows, value, dtype=object):
    """The labels, with a value in some rows."""
    labels = np.array(labels, dtype=dtype)
    labels[rows] = value
    return labels


MISSING = [
    at(WORDS, 4, None),
    at(WORDS, 4, np.nan),
    at(WORDS, 4, None).tolist(),
    at(WORDS, 4, np.nan).tolist(),  # numpy would make them strings, "nan" among them
    at(SIGN, 4, np.nan, float),
    at(SIGN.astype(int), 4, None),
    np.ma.array(SIGN.astype(int), mask=np.arange(30) == 4),
    np.where(SIGN, "2020", at(np.full(30, "2021"), 4, "NaT", "U4")).astype("M8[s]"),
    pd.Series(at(WORDS, 4, pd.NA)),
    pd.Series(at(WORDS, 4, None), dtype="string"),
    pd.Series(at(WORDS, 4, None), dtype="category", index=range(100, 130)),
    pd.Series(at(SIGN, 4, pd.NA), dtype="boolean"),
    pd.Series(at(SIGN.astype(int), 4, pd.NA), dtype="Int64"),
    pl.Series(at(WORDS, 4, None).tolist()),
]


@pytest.mark.parametrize("y", MISSING)
def test_missing_labels_are_counted_and_the_first_is_named(y):
    message = r"Input y contains NaN or None: 1 of 30 labels are missing, first in row 4 \("
    for model in MODELS:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        residual_beta_path(X, y, [0.0], estimator=PLAIN, cv=2)


def test_missing_labels_are_named_in_every_call():
    model = ResidualTransformerClassifier(**SMALL).fit(X, WORDS)
    y = at(WORDS, [7, 9, 20], None)
    message = r"3 of 30 labels are missing, first in row 7 \(None\); drop these rows of X and y"
    with pytest.raises(ValueError, match=message):
        model.score(X, y)
    with pytest.raises(ValueError, match="in X_val, y_val: .*" + message):
        model.fit(X, WORDS, X_val=X, y_val=y)


MIXED = [
    (at(WORDS, 4, 3), r"types str \(row 0\), int \(row 4\); make them all strings"),
    (at(WORDS, [4, 5], 3).tolist(), r"types str \(row 0\), int \(row 4\)"),
    (at(WORDS, 0, True), r"types bool \(row 0\), str \(row 1\)"),
    (pd.Series(at(WORDS, 4, 2.5)), r"types str \(row 0\), float \(row 4\)"),
    ([{"a"}] * 30, r"types set \(row 0\)"),
]


@pytest.mark.parametrize(("y", "message"), MIXED)
def test_labels_of_several_types_are_refused(y, message):
    for model in MODELS:
        with pytest.raises(ValueError, match="y holds labels of the " + message):
            model.fit(X, y)


FORMS = [
    (WORDS.tolist(), ["bad", "good"]),
    (WORDS.astype(object), ["bad", "good"]),
    (list(WORDS), ["bad", "good"]),
    (pd.Series(WORDS), ["bad", "good"]),
    (pd.Series(WORDS, dtype="string"), ["bad", "good"]),
    (pd.Series(WORDS, dtype="category"), ["bad", "good"]),
    (pl.Series(WORDS), ["bad", "good"]),
    (SIGN.tolist(), [False, True]),
    (SIGN.astype(object), [False, True]),
    (pd.Series(SIGN, dtype="boolean"), [False, True]),
    (SIGN.astype(int).tolist(), [0, 1]),
    (SIGN.astype(int).astype(object), [0, 1]),
    (pd.Series(SIGN.astype(int), dtype="Int64"), [0, 1]),
    (pl.Series(SIGN.astype(int)), [0, 1]),
    (np.where(SIGN, 1.0, 2.0).astype(object), [1.0, 2.0]),
]


@pytest.mark.parametrize(("y", "classes"), FORMS)
def test_labels_come_back_as_they_were(y, classes):
    model = ResidualTransformerClassifier(**SMALL).fit(X, y)
    assert model.classes_.tolist() == classes
    assert [type(label) for label in model.classes_.tolist()] == [type(label) for label in classes]
    expected = ResidualTransformerClassifier(**SMALL).fit(X, np.searchsorted(classes, [*y]))
    np.testing.assert_array_equal(model.predict(X), model.classes_[expected.predict(X)])
    assert model.score(X, y) == expected.score(X, np.searchsorted(classes, [*y]))


# ---- the codings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(30,), (30, 2)])
def test_numbers_are_standardised_on_the_training_rows_and_come_back(shape, seed):
    y = 100 + 5 * np.random.default_rng(seed).standard_normal(shape)
    rows = np.arange(20)
    targets = RegressionTargets.learn(y, rows, None, "squared_error")
    coded = targets.encode(y, torch.float64).numpy()
    expected = ((y - y[rows].mean(axis=0)) / y[rows].std(axis=0)).reshape(30, -1)
    # y near 100 has an absolute error of 1e-14, the units are 5
    np.testing.assert_allclose(coded, expected, rtol=0, atol=1e-13)
    decoded = targets.decode(coded)
    assert decoded.shape == shape
    np.testing.assert_allclose(decoded, y, rtol=1e-14)
    assert targets.n_outputs == expected.shape[1]
    with pytest.raises(ValueError, match=r"y has 3 target columns, but \d are expected"):
        targets.check(np.ones((4, 3)), "Model")


@pytest.mark.parametrize("shape", [(30,), (30, 1), (30, 2)])
def test_quantiles_come_back_in_the_units_of_their_target(shape, seed):
    """Outputs of 0 are normal quantiles; predictions are the median, the columns stay apart."""
    rng, levels = np.random.default_rng(seed), (0.1, 0.5, 0.9)
    y = 100 + rng.standard_normal(shape) * np.array([5.0, 200.0])[: shape[1] if shape[1:] else 1]
    targets = RegressionTargets.learn(y, np.arange(30), None, "quantile", levels)
    columns = 1 if len(shape) == 1 else shape[1]
    assert (targets.n_targets, targets.n_outputs) == (columns, 3 * columns)
    found = targets.decode_quantiles(np.zeros((4, 3 * columns)))
    assert found.shape == (4, *shape[1:], 3)
    expected = norm.ppf(levels, y.mean(axis=0)[..., None], y.std(axis=0)[..., None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)
    np.testing.assert_array_equal(targets.decode(np.zeros((4, 3 * columns))), found[..., 1])
    two = RegressionTargets.learn(y, np.arange(30), None, "quantile", (0.2, 0.8))
    np.testing.assert_allclose(
        two.decode(np.zeros((4, 2 * columns))), np.broadcast_to(y.mean(axis=0), (4, *shape[1:]))
    )
    if shape != (30, 1):  # of which check warns
        assert targets.check(y, "Model").shape == shape


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_labels_are_numbers_of_sorted_classes_or_one_hot(loss):
    targets = ClassTargets.learn(WORDS, np.arange(30), None, loss)
    assert targets.classes.tolist() == ["bad", "good"] and targets.n_outputs == 2
    coded = targets.encode(WORDS, torch.float64)
    if loss == "log_loss":
        assert coded.tolist() == SIGN.astype(int).tolist()
    else:
        np.testing.assert_array_equal(coded.numpy(), np.c_[~SIGN, SIGN])
    np.testing.assert_array_equal(targets.decode(np.c_[~SIGN, SIGN] - 0.5), WORDS)
    with pytest.raises(ValueError, match=r"not in the fitted classes: \['fair'\]"):
        targets.check(["good", "fair"], "Model")


def test_weights_of_classes_multiply_those_of_the_samples():
    y, weight = np.array([0, 0, 0, 1]), np.array([1.0, 0.5, 0.5, 1.0])
    assert weigh_classes(None, y, None) is None and weigh_classes(None, y, weight) is weight
    np.testing.assert_array_equal(weigh_classes({0: 2, 1: 3}, y, None), [2, 2, 2, 3])
    np.testing.assert_array_equal(weigh_classes({0: 2, 1: 3}, y, weight), [2, 1, 1, 3])
    balanced = weigh_classes("balanced", y, None)
    assert balanced[:3].sum() == pytest.approx(balanced[3], rel=1e-15)
    with pytest.raises(ValueError, match=r"class_weight must not be negative, got \{0: -1, 1: 1\}"):
        weigh_classes({0: -1, 1: 1}, y, None)
    with pytest.raises(ValueError, match="leaves no sample a weight above zero"):
        weigh_classes({0: 0, 1: 0}, y, None)
