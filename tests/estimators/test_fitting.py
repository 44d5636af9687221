"""What happens during a fit: validation, warm start, failure, callbacks."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from skorch.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    GradientNormClipping,
)
from smallmodels import ESTIMATORS, SAME, SMALL, Recorder, outputs, table

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)


def split_of(model, X, y):
    """Rows that a fit with early stopping trains on and validates on."""
    recorder = Recorder()
    model.set_params(early_stopping=True, d_model=8, max_iter=1, callbacks=[recorder]).fit(X, y)
    return recorder.split_


# -- validation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_given_validation_rows_are_scored_and_not_trained_on(estimator):
    X, y = table(estimator)
    settings = SMALL | {"max_iter": 12, "learning_rate_init": 0.05}
    plain = estimator(**settings).fit(X[:40], y[:40])
    model = estimator(**settings).fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    assert model.loss_curve_ == plain.loss_curve_
    assert len(model.validation_scores_) == 12
    assert model.best_iteration_ == 1 + np.argmax(model.validation_scores_)
    assert model.best_validation_score_ == max(model.validation_scores_)
    # without early_stopping they choose the epoch but do not end the fit
    patient = clone(model).set_params(n_iter_no_change=1, tol=10.0)
    hasty = clone(patient).set_params(early_stopping=True)
    n_iter = [m.fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:]).n_iter_ for m in (patient, hasty)]
    assert n_iter == [12, 2]


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
    # The second segment has no row before its last windows, and trains as a whole.
    assert rows.tolist() == [*range(15), *range(30, 40)]
    assert valid.tolist() == list(range(22, 30))


def test_too_few_windows_to_set_some_aside_are_an_error():
    """25 rows, window 24: the windows of the last three rows reach back to the first."""
    X, y = table(ResidualTransformerRegressor, n=25)
    with pytest.raises(ValueError, match="leaves 0 training and 3 validation rows of 25"):
        ResidualTransformerRegressor(window=24, early_stopping=True, **SMALL).fit(X, y)


# -- warm start ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_goes_on_where_the_last_fit_ended(estimator):
    """Full batches at one step: three epochs and three more are six."""
    X, y = table(estimator)
    settings = SMALL | {"batch_size": 60, "learning_rate": "constant"}
    twice = estimator(warm_start=True, **settings).fit(X, y).fit(X, y)
    once = estimator(**settings | {"max_iter": 6}).fit(X, y)
    np.testing.assert_allclose(twice.loss_curve_, once.loss_curve_, **SAME)
    np.testing.assert_allclose(outputs(twice, X), outputs(once, X), **SAME)
    assert twice.n_iter_ == twice.best_iteration_ == 6
    assert twice.conditioning_.epochs.tolist() == [3, 6]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_takes_the_new_settings(estimator):
    X, y = table(estimator)
    model = estimator(warm_start=True, learning_rate="constant", **SMALL).fit(X, y)
    before = outputs(model, X)
    recorder = Recorder()
    model.set_params(learning_rate_init=1e-30, weight_decay=0.0, callbacks=[recorder]).fit(X, y)
    np.testing.assert_allclose(outputs(model, X), before, **SAME)
    assert model.history_["learning_rate"].tolist() == [5e-3] * 3 + [1e-30] * 3
    assert recorder.epochs_ == 3
    model.set_params(residual_beta=0.25, solver="sgd", batch_size=10, dtype="float32").fit(X, y)
    assert (model.residual_beta_ == 0.25).all()
    assert model.net_.module_.W_in.dtype == torch.float32


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_keeps_a_learned_beta(estimator):
    X, y = table(estimator)
    model = estimator(warm_start=True, learn_beta=True, **SMALL).fit(X, y)
    learned = model.residual_beta_
    model.set_params(learning_rate_init=1e-30).fit(X, y)
    np.testing.assert_allclose(model.residual_beta_, learned, **SAME)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_takes_other_rows(estimator):
    """More rows, fewer rows than the probe set, another number type."""
    X, y = table(estimator, n=120)
    model = estimator(warm_start=True, solver="gd", learning_rate_init=1e-3, **SMALL)
    model.fit(X[:60], y[:60]).fit(X, y).fit(X[:20], y[:20])
    model.fit(X.astype(np.float32), y)
    assert model.n_iter_ == 12
    assert len(model.predict(X)) == 120


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_may_begin_or_end_validation(estimator):
    X, y = table(estimator)
    model = estimator(warm_start=True, **SMALL).fit(X, y)
    model.fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    assert np.isnan(model.validation_scores_[:3]).all()  # one score for each epoch of history_
    assert model.best_validation_score_ == max(model.validation_scores_[3:])
    model.fit(X, y)
    assert not hasattr(model, "validation_scores_")
    assert not hasattr(model, "best_validation_score_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_warm_fit_that_fails_leaves_the_model_as_it_was(estimator):
    X, y = table(estimator)

    class Interrupt(Callback):
        def on_epoch_end(self, net, **kwargs):
            raise KeyboardInterrupt

    model = estimator(warm_start=True, dropout=0.3, **SMALL).fit(X, y)
    before, n_iter = outputs(model, X), model.n_iter_
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[Interrupt()]).fit(X, y)
    with pytest.raises(DivergenceError):
        model.set_params(callbacks=None, solver="sgd", learning_rate_init=1e30).fit(X, y)
    np.testing.assert_array_equal(outputs(model, X), before)
    assert model.n_iter_ == n_iter
    assert len(model.net_.history) == n_iter


# -- fits that fail, callbacks that stop ---------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(estimator):
    """Data, parameters, or training may be at fault; unfitted stays unfitted, fitted fitted."""
    X, y = table(estimator)
    wild = {"solver": "sgd", "learning_rate_init": 1e30}
    never = estimator(**SMALL).set_params(**wild)
    with pytest.raises(DivergenceError):
        never.fit(X, y)
    with pytest.raises(NotFittedError):
        never.predict(X)
    X = pd.DataFrame(X, columns=list("abcd"))
    model = estimator(**SMALL).fit(X, y)
    expected, state = outputs(model, X), dict(vars(model))
    bad_calls = [(wild, X[["a", "b"]], y), ({"n_heads": 7}, X, y), ({}, X, y[1:])]
    for change, bad_X, bad_y in bad_calls:
        with pytest.raises((DivergenceError, ValueError)):
            model.set_params(**change).fit(bad_X, bad_y)
        model.set_params(**estimator(**SMALL).get_params())
        np.testing.assert_array_equal(outputs(model, X), expected)
        assert all(vars(model)[name] is value for name, value in state.items() if name[-1] == "_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("interval", [None, 1])
def test_divergence_is_reported_as_such_also_by_the_diagnostics(estimator, interval):
    X, y = table(estimator)
    model = estimator(
        0.5,
        d_model=8,
        solver="sgd",
        learning_rate_init=1e9,
        max_iter=20,
        conditioning_interval=interval,
    )
    with pytest.raises(DivergenceError, match=r"learning_rate_init.*residual_beta \(now 0.5\)"):
        model.fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_skorch_callbacks_that_act_on_training_work(estimator):
    X, y = table(estimator)
    base = estimator(**SMALL | {"max_iter": 20}).fit(X, y)
    clipped = clone(base).set_params(callbacks=[GradientNormClipping(1e-4)], solver="sgd").fit(X, y)
    free = clone(base).set_params(solver="sgd").fit(X, y)
    start = estimator(**SMALL | {"max_iter": 1, "learning_rate_init": 1e-30}).fit(X, y)
    moved = [abs(outputs(model, X) - outputs(start, X)).max() for model in (clipped, free)]
    assert moved[0] < 0.01 * moved[1]
    # skorch's own early stopping ends by KeyboardInterrupt, which must not reach the user
    stopper = EarlyStopping("train_loss", patience=2, threshold=10.0, threshold_mode="abs")
    assert clone(base).set_params(callbacks=[stopper]).fit(X, y).n_iter_ < base.n_iter_


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("callback", "error", "message"),
    [
        (print, TypeError, "callbacks must hold skorch callbacks, got <built-in function print>"),
        (EpochScoring("r2"), ValueError, "EpochScoring.*pass X_val and y_val"),
        (("mine", EpochScoring), ValueError, "EpochScoring.*pass X_val and y_val"),
        (EarlyStopping(), ValueError, "EarlyStopping did not find.*valid_loss.*train_loss"),
        (Checkpoint(), ValueError, "Checkpoint did not find.*valid_loss.*pass validation data"),
    ],
)
def test_callbacks_that_cannot_work_are_refused(estimator, callback, error, message):
    X, y = table(estimator)
    with pytest.raises(error, match=message):
        estimator(callbacks=[callback], **SMALL).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_threads_beyond_reason_are_refused(estimator):
    """The library of threads ends the process where it finds no room for them."""
    X, y = table(estimator)
    with pytest.raises(ValueError, match=r"n_threads.*\[1, 1024\]"):
        estimator(n_threads=10**9, **SMALL).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("to", [list, lambda rows: np.array(rows, dtype=object)])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([np.ones(2), np.ones(3)], "X holds rows of 2 to 3 values; a table has rows of one length"),
        ([np.ones((2, 1)), np.ones((4, 1))], "X holds sequences of 2 to 4 tokens; pad the shorter"),
    ],
)
def test_rows_of_unequal_length_are_named(estimator, to, rows, message):
    with pytest.raises(ValueError, match=message):
        estimator(**SMALL).fit(to(rows), [0, 1])
