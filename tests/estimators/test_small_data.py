"""batch_size="auto": small data get enough steps, large data train as with batches of 64."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import KFold
from smallmodels import ESTIMATORS, SAME, SMALL, outputs, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    residual_beta_path,
)
from sklearn_restrans.datasets import make_planted_sequences

SEEDS = range(5)
# Pixels at the rim of the digits are 0 in a small training part, and not in every test row.
pytestmark = pytest.mark.filterwarnings("ignore:X varies in columns that held one value")


def digit_rows(n, seed):
    """Digits as sequences of eight rows, ``n`` of them to train on and all others to test on."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X.reshape(-1, 8, 8)[order], y[order]
    return X[:n], y[:n], X[n:], y[n:]


def gain(data, estimator):
    """Median gain in the test score, over a batch of 64, on subsets of the rows."""
    gains = []
    for seed in SEEDS:
        X, y, X_test, y_test = data(seed)
        auto, large = (
            estimator(batch_size=batch, random_state=seed).fit(X, y).score(X_test, y_test)
            for batch in ("auto", 64)
        )
        gains.append(auto - large)
    return np.median(gains)


@pytest.mark.parametrize(
    ("n", "batch"),
    [
        (1, 1),
        (5, 5),
        (8, 8),
        (20, 8),
        (71, 8),
        (72, 9),
        (200, 25),
        (511, 63),
        (512, 64),
        (9_999, 64),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_is_an_eighth_of_the_rows_from_8_to_64(estimator, n, batch):
    X, y = table(estimator, max(n, 2))
    model = estimator(**SMALL | {"max_iter": 1}).fit(X.reshape(-1, 2, 2)[:n], y[:n])
    assert model.batch_size == "auto", "a parameter is not overwritten by fit"
    assert model.net_.batch_size == batch
    # A table in one batch: there a weight of two is two equal rows (scikit-learn's checks).
    assert model.fit(X[:n], y[:n]).net_.batch_size == min(n, 64)


def test_auto_counts_the_rows_that_are_trained_on():
    X, y = table(ResidualTransformerRegressor, 400)
    X = X.reshape(-1, 2, 2)
    settings = SMALL | {"early_stopping": True, "validation_fraction": 0.5}
    assert ResidualTransformerRegressor(**settings).fit(X, y).net_.batch_size == 25
    assert ResidualTransformerRegressor(**SMALL).fit(X, y, X_val=X, y_val=y).net_.batch_size == 50


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_large_data_train_to_the_bit_as_with_batches_of_64(estimator):
    X, y = table(estimator, 512)
    X = X.reshape(-1, 2, 2)
    auto = estimator(**SMALL).fit(X, y)
    given = estimator(**SMALL, batch_size=64).fit(X, y)
    assert auto.loss_curve_ == given.loss_curve_
    np.testing.assert_array_equal(outputs(auto, X), outputs(given, X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gradient_descent_takes_all_rows_whatever_the_batch_size(estimator):
    X, y = table(estimator, 100)
    models = [
        estimator(**SMALL, solver="gd", learning_rate_init=1e-2, batch_size=batch).fit(X, y)
        for batch in ("auto", 8)
    ]
    assert [model.net_.batch_size for model in models] == [100, 100]
    assert models[0].loss_curve_ == models[1].loss_curve_


def test_stacked_candidates_of_small_data_are_those_trained_alone():
    X, y = table(ResidualTransformerRegressor, 90)
    X = X.reshape(-1, 2, 2)  # 60 sequences in each of three folds: batches of 8
    paths = [
        residual_beta_path(
            X,
            y,
            [0.0, 1.0],
            estimator=ResidualTransformerRegressor(**SMALL),
            cv=KFold(3),
            stacked=stacked,
        )
        for stacked in (True, False)
    ]
    scores = [path.to_frame()["score"] for path in paths]
    np.testing.assert_allclose(scores[0], scores[1], **SAME)


@pytest.mark.parametrize("n", [20, 40, 160])
def test_few_sequences_are_learnt_better_than_with_batches_of_64(n):
    """About 0.05 for twenty, a tenth for more, in benchmarks/bench_small.py and here."""
    assert gain(lambda seed: digit_rows(n, seed), ResidualTransformerClassifier) > 0.02


def test_an_attention_head_is_found_in_160_sequences():
    """A target that no linear model computes; measured R2 0.91 against 0.09 with batches of 64."""

    def data(seed):
        X, y = make_planted_sequences(1_160, random_state=seed)
        return X[:160], y[:160], X[160:], y[160:]

    assert gain(data, ResidualTransformerRegressor) > 0.4


def test_a_rare_class_of_few_sequences_is_found():
    """Thirty zeros and six ones of the digits: every row of a batch of 8 may be a zero."""
    scores = []
    for seed in SEEDS:
        X, y, X_test, y_test = digit_rows(900, seed)
        few = np.r_[np.flatnonzero(y == 0)[:30], np.flatnonzero(y == 1)[:6]]
        test = y_test <= 1
        model = ResidualTransformerClassifier(class_weight="balanced", random_state=seed)
        predicted = model.fit(X[few], y[few]).predict(X_test[test])
        scores.append(balanced_accuracy_score(y_test[test], predicted))
    assert np.median(scores) > 0.95


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(4,), (6, 2)], ids=["table", "sequences"])
def test_a_handful_of_rows_is_fitted(n, shape):
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, *shape)), rng.standard_normal(n)
    model = ResidualTransformerRegressor(random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    if n > 1:
        labels = np.arange(n) % 2
        model = ResidualTransformerClassifier(random_state=0).fit(X, labels)
        assert np.isfinite(model.predict_proba(X)).all()
