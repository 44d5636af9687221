"""Whole numbers, folds and scores: taken in every form, refused by name."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from sklearn_restrans._validation import check_integer, check_scorer, check_splits

X, Y = np.zeros((12, 2)), np.arange(12) % 3


# ---- whole numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_of_any_kind_become_ints(value):
    assert check_integer("n_steps", value) == 3
    assert type(check_integer("n_steps", value)) is int


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "a", None, np.array([3])])
def test_a_message_names_the_argument_the_value_and_what_is_allowed(value):
    with pytest.raises(ValueError, match=r"^n_steps must be an integer >= 1, got ") as caught:
        check_integer("n_steps", value)
    assert str(caught.value).endswith(f"got {value!r}.")


def test_the_least_value_is_the_callers():
    assert check_integer("n", 0, least=0) == 0
    with pytest.raises(ValueError, match="n must be an integer >= 2, got 1"):
        check_integer("n", 1, least=2)
    with pytest.raises(ValueError) as caught:
        check_integer("n", "x" * 1_000)
    assert len(str(caught.value)) < 120, "a value of any length makes a short message"


# ---- folds ---------------------------------------------------------------------------------------


def assert_same_folds(found, expected):
    for (train, test), (own_train, own_test) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(train, own_train)
        np.testing.assert_array_equal(test, own_test)


def test_folds_are_those_of_scikit_learn():
    assert_same_folds(check_splits(3, X, Y), KFold(3).split(X))
    assert_same_folds(check_splits(3, X, Y, classifier=True), StratifiedKFold(3).split(X, Y))
    groups = np.repeat(np.arange(4), 3)
    found = check_splits(GroupKFold(2), X, Y, groups)
    assert_same_folds(found, GroupKFold(2).split(X, Y, groups))


def test_splits_may_be_lists_masks_or_a_generator():
    mask = np.arange(12) < 8
    splits = ((rows, ~mask) for rows in (mask, list(range(8)), np.arange(8)))
    assert_same_folds(check_splits(splits, X, Y), [(np.arange(8), np.arange(8, 12))] * 3)
    assert_same_folds(check_splits([([0, 1], [])], X, Y), [([0, 1], [])])


@pytest.mark.parametrize(
    ("cv", "error", "message"),
    [
        (KFold, TypeError, "cv must be a splitter, got the class KFold: add brackets"),
        ([], ValueError, "cv yields no folds: pass a number of folds, a splitter, or splits"),
        ([3], ValueError, r"cv: fold 0 must be a pair \(train, test\) of row numbers, got 3"),
        ([([0], [1.5])], ValueError, r"test of fold 0 must be a list of row numbers or a mask of"),
        ([([0], [True])], ValueError, "test of fold 0 must be a list of row numbers or a mask"),
        (
            [([0], [12])],
            ValueError,
            "test of fold 0 names the rows 12 to 12, but there are 0 to 11",
        ),
        ([([-1], [2])], ValueError, "train of fold 0 names the rows -1 to -1"),
    ],
)
def test_what_are_not_folds_is_refused_in_words(cv, error, message):
    with pytest.raises(error, match=message):
        check_splits(cv, X, Y)


# ---- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", [None, "r2", make_scorer(r2_score)])
def test_one_score_by_name_by_function_or_the_estimators_own(scoring):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    model = Ridge().fit(X, y)
    assert check_scorer(model, scoring)(model, X, y) == model.score(X, y)


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        (["r2"], r"scoring must be one score, by name or as a function .* or None, got \['r2'\]"),
        (3, "got 3"),
        ("nonsense", r"scoring='nonsense' is not a score of scikit-learn; sklearn.metrics.get_"),
    ],
)
def test_what_is_not_a_score_is_refused_in_words(scoring, message):
    with pytest.raises(ValueError, match=message):
        check_scorer(Ridge(), scoring)
