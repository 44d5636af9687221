"""From parameters and data to a problem: what is learnt, split and resolved before training."""

import numpy as np
import pytest
import torch
from smallmodels import ESTIMATORS, SMALL, Recorder, table

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


def split_of(model, X, y):
    """Rows that a fit with early stopping trains on and validates on."""
    recorder = Recorder()
    model.set_params(early_stopping=True, d_model=8, max_iter=1, callbacks=[recorder]).fit(X, y)
    return recorder.split_


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


def test_early_stopping_keeps_the_proportions_of_the_classes():
    X, _ = table(ResidualTransformerClassifier)
    y = np.repeat(["often", "seldom"], [54, 6])
    for seed in range(5):  # by chance alone all five would hold three with probability 0.003
        rows, valid = split_of(
            ResidualTransformerClassifier(validation_fraction=0.5, random_state=seed), X, y
        )
        assert (len(rows), len(valid)) == (30, 30)
        assert (y[valid] == "seldom").sum() == 3


def history_of(ends, window, dilation=1):
    """Every row of the series that the windows ending at ``ends`` look at."""
    return {end - k * dilation for end in ends for k in range(window)}


@pytest.mark.parametrize("order", ["sorted", "shuffled", "every third"])
@pytest.mark.parametrize("dilation", [1, 3])
def test_windows_are_validated_on_the_end_of_the_series(order, dilation, seed):
    """No validation window shares a row with a training window, whatever order they come in."""
    window = 4
    ends = np.arange(12, 100)
    if order == "shuffled":
        ends = np.random.default_rng(seed).permutation(ends)
    if order == "every third":
        ends = ends[::3]
    view = SequenceView(np.ones((100, 2)), ends, window, dilation=dilation)
    model = ResidualTransformerRegressor(validation_fraction=0.2)
    rows, valid = split_of(model, view, np.arange(len(ends)))
    assert len(valid) == np.ceil(0.2 * len(ends))
    assert ends[rows].max() < ends[valid].min()
    assert not history_of(ends[rows], window, dilation) & history_of(ends[valid], window, dilation)
    # nothing more is left out: the next window would share a row
    left_out = sorted(set(ends) - set(ends[rows]) - set(ends[valid]))
    assert len(left_out) <= (window - 1) * dilation
    first = min(history_of(ends[valid], window, dilation))
    assert all(end >= first for end in left_out)


def test_segments_end_the_history_of_a_validation_window():
    view = SequenceView(np.ones((40, 1)), np.arange(40), 8, segments=np.repeat([0, 1], [30, 10]))
    model = ResidualTransformerRegressor(validation_fraction=0.25)
    rows, valid = split_of(model, view, np.arange(40))
    assert rows.tolist() == list(range(30))
    assert valid.tolist() == list(range(30, 40))


def test_too_few_windows_to_set_some_aside_are_an_error():
    """25 rows, window 24: the windows of the last three rows reach back to the first."""
    X, y = table(ResidualTransformerRegressor, n=25)
    with pytest.raises(ValueError, match="leaves 0 training and 3 validation rows of 25"):
        ResidualTransformerRegressor(window=24, early_stopping=True, **SMALL).fit(X, y)
