"""From parameters and data to a problem: what is learnt, split and resolved before training."""

import numpy as np
import pytest
import torch
from smallmodels import ESTIMATORS, SMALL, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)


def sequences(estimator, n=60, seed=0):
    """Sequences (n, 5, 3) with targets read off their last token."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5, 3))
    y = X[:, -1, 0] - X[:, -2, 1]
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_reads_the_last_token_of_ordered_input_and_the_mean_of_columns(estimator):
    X, y = table(estimator)
    S, ys = sequences(estimator)
    view = SequenceView(X, np.arange(4, 60), window=3)
    readouts = [
        estimator(**SMALL).set_params(**settings).fit(A, b).net_.module_.arch.readout
        for A, b, settings in [
            (X, y, {}),
            (X, y, {"window": 3}),
            (view, y[4:], {}),
            (S, ys, {}),
        ]
    ]
    of_sequences = "last" if estimator is ResidualTransformerRegressor else "mean"
    assert readouts == ["mean", "last", "last", of_sequences]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_dtype_is_double_for_double_input_and_little_work(estimator):
    X, y = table(estimator, n=31_251)  # times 4 tokens of width 8: just above 1e6

    def dtype(X, y):
        model = estimator(**SMALL | {"max_iter": 1, "batch_size": 4096}).fit(X, y)
        return model.net_.module_.W_in.dtype

    assert dtype(X[:-1], y[:-1]) == torch.float64
    assert dtype(X, y) == torch.float32
    assert dtype(X[:60].astype(np.float32), y[:60]) == torch.float32


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("given", ["X_val", "y_val"])
def test_half_a_validation_part_is_refused(estimator, given):
    X, y = table(estimator)
    missing = "y_val" if given == "X_val" else "X_val"
    with pytest.raises(ValueError, match=f"{given} was given without {missing}"):
        estimator(**SMALL).fit(X, y, **{given: X if given == "X_val" else y})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_validation_input_must_be_like_the_training_input(estimator):
    X, y = table(estimator)
    with pytest.raises(ValueError, match="X has 3 features"):
        estimator(**SMALL).fit(X, y, X_val=X[:, :3], y_val=y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator(**SMALL).fit(X, y, X_val=X, y_val=y[:5])
    if estimator is ResidualTransformerClassifier:
        with pytest.raises(ValueError, match=r"not in the fitted classes: \[8\]"):
            estimator(**SMALL).fit(X, y, X_val=X, y_val=y + 7 * y)
