"""What happens during a fit: validation, going on, failure, callbacks."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from skorch.callbacks import Checkpoint, EarlyStopping, GradientNormClipping
from smallmodels import ESTIMATORS, SAME, SMALL, Interrupt, Recorder, outputs, table

from sklearn_restrans import DivergenceError, ResidualTransformerRegressor
from sklearn_restrans._estimators.fitting import fit_problem, new_module
from sklearn_restrans._estimators.preparation import prepare, training_settings
from sklearn_restrans._model.transformer import sinusoidal


# They train on labels of chance, or for a few steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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
    patient = clone(model).set_params(n_iter_no_change=1, tol=10.0, learning_rate="constant")
    hasty = clone(patient).set_params(early_stopping=True)
    n_iter = [m.fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:]).n_iter_ for m in (patient, hasty)]
    assert n_iter == [12, 2]


# -- one training ----------------------------------------------------------------------------------


def problem_of(model, n=60):
    X, y = table(type(model), n)
    problem = prepare(model, X, y)
    return problem, training_settings(model, problem)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_beta_and_positions_are_exact_in_the_type_of_the_weights(dtype):
    """A detour over float32 would change beta = 0.3 in its eighth digit."""
    model = ResidualTransformerRegressor(dtype=dtype, positions="sinusoidal", **SMALL)
    problem, settings = problem_of(model)
    beta = np.array([[0.3, 0.7]])
    module = new_module(problem, settings.init, beta, torch.Generator().manual_seed(0))
    exact = getattr(torch, dtype)
    assert module.W_in.dtype == exact
    assert torch.equal(module.beta, torch.as_tensor(beta).to(exact))
    assert torch.equal(module.positions, sinusoidal(4, 8).to(exact))


def test_a_training_leaves_a_net_without_the_data_and_the_hooks():
    model = ResidualTransformerRegressor(conditioning_interval=2, **SMALL)
    problem, settings = problem_of(model)
    user = Recorder()
    trained = fit_problem(problem, settings, np.ones((1, 2)), 0, (user,))
    assert trained.best_epoch == len(trained.net.history) == user.epochs_ == 3
    assert trained.conditioning.epochs.tolist() == [0, 2, 3]
    assert [epoch for epoch, *_ in trained.gradients] == [0, 2, 3]
    assert user in dict(trained.net.callbacks_).values()
    assert not {"stop_rule", "conditioning"} & dict(trained.net.callbacks_).keys()
    net = trained.net
    assert net.generator_ is None and net.valid_set_ is None and net.descent_ is None


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


# They train on labels of chance, or for a few steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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
    ("callback", "message"),
    [
        (EarlyStopping(), "EarlyStopping reads an entry.*valid_loss.*train_loss"),
        (Checkpoint(), "Checkpoint reads an entry.*valid_loss.*pass validation data"),
    ],
)
def test_callbacks_that_read_a_validation_loss_need_one(estimator, callback, message):
    X, y = table(estimator)
    with pytest.raises(ValueError, match=message):
        estimator(callbacks=[callback], **SMALL).fit(X, y)
