"""Every parameter is declared once, does what it says, and is refused by name where it cannot."""

import inspect
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from smallmodels import ESTIMATORS, SAME, SMALL, Recorder, outputs, table

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans._estimators.parameters import (
    beta_matrix,
    check_parameters,
    check_step,
    draw_seed,
)
from sklearn_restrans._training import prediction


def beta_is_fitted(model, base):
    np.testing.assert_array_equal(model.residual_beta_, [[0.3, 0.3]])
    np.testing.assert_array_equal(base.residual_beta_, [[1.0, 1.0]])


def beta_is_learned(model, base):
    assert (model.residual_beta_ != 1.0).all()


def has_two_layers(model, base):
    assert (model.conditioning_.n_layers, base.conditioning_.n_layers) == (2, 1)
    assert model.residual_beta_.shape == (2, 2)


def has_width(model, base):
    assert (model.conditioning_.d_model, base.conditioning_.d_model) == (4, 8)


def has_w2_of_height(model, base):
    assert model.net_.module_.layers[0].W_2.shape == (5, 8)
    assert base.net_.module_.layers[0].W_2.shape == (16, 8)


def starts_at_zero_output(model, base):
    # W_U = 0 predicts the mean of standardised targets, or two classes alike.
    expected = np.log(2) if hasattr(model, "classes_") else 1.0
    np.testing.assert_allclose(model.loss_curve_, expected, **SAME)
    assert (abs(np.array(base.loss_curve_) - expected) > 0.01).all()


def only_the_first_rows_have_short_history(model, base):
    assert model.net_.module_.arch.n_tokens == 3


def runs_epochs(model, base):
    assert (model.n_iter_, base.n_iter_) == (6, 3)


def has_validation_scores(model, base):
    assert len(model.validation_scores_) == model.n_iter_
    assert not hasattr(base, "validation_scores_")


def stops_early(model, base):
    assert model.n_iter_ < base.n_iter_


def keeps_the_step(model, base):
    assert model.history_["learning_rate"].tolist() == [5e-3] * 3
    assert base.history_["learning_rate"].nunique() == 3


def goes_on(model, base):
    X, y = table(type(model))
    assert (model.fit(X, y).n_iter_, base.fit(X, y).n_iter_) == (6, 3)


def called_the_callback(model, base):
    assert model.callbacks[0].epochs_ == model.n_iter_


def measured_every_second_epoch(model, base):
    assert model.conditioning_.epochs.tolist() == [0, 2, 3]
    assert base.conditioning_.epochs.tolist() == [0, 3]


def has_a_probe_of(model, base):
    assert (model.conditioning_.n_sequences, base.conditioning_.n_sequences) == (7, 60)


def ends_with_the_first_epoch(model, base):
    assert (model.n_iter_, base.n_iter_) == (1, 3)


def is_single(model, base):
    assert model.net_.module_.W_in.dtype == torch.float32
    assert base.net_.module_.W_in.dtype == torch.float64


def is_on_the_cpu(model, base):
    assert model.device_ == "cpu"


def has_its_levels(model, base):
    assert (model.quantiles_, base.quantiles_) == ((0.2, 0.6), (0.1, 0.5, 0.9))


# name -> (value, what must hold of the model with it and the model without). None: it must predict
# something else. A second parameter stands beside it where the first needs it to mean anything.
SHARED = {
    "residual_beta": (0.3, beta_is_fitted),
    "learn_beta": (True, beta_is_learned),
    "n_layers": (2, has_two_layers),
    "d_model": (4, has_width),
    "n_heads": (2, None),
    "d_ff": (5, has_w2_of_height),
    "activation": ("tanh", None),
    "norm": ("pre", None),
    "dropout": (0.5, None),
    "positions": (None, None),
    "readout": ("last", None),
    "init": ("zero_unembedding", starts_at_zero_output, {"learning_rate_init": 1e-30}),
    "window": (3, only_the_first_rows_have_short_history),
    "embedding": ("token", None),
    "solver": ("sgd", None, {"learning_rate": "constant"}),
    "learning_rate_init": (1e-2, None),
    "batch_size": (16, None),
    "max_iter": (6, runs_epochs),
    "weight_decay": (10.0, None),
    "loss": ({"regressor": "absolute_error", "classifier": "squared_error"}, None),
    "early_stopping": (True, has_validation_scores),
    "validation_fraction": (0.4, None, {"early_stopping": True}),
    "n_iter_no_change": (1, stops_early, {"tol": 10.0, "max_iter": 8, "learning_rate": "constant"}),
    "tol": (10.0, stops_early, {"n_iter_no_change": 1, "max_iter": 8, "learning_rate": "constant"}),
    "learning_rate": ("constant", keeps_the_step),
    "warm_start": (True, goes_on),
    "callbacks": ([Recorder()], called_the_callback),
    "conditioning_interval": (2, measured_every_second_epoch),
    "conditioning_samples": (7, has_a_probe_of),
    "on_collapse": ("stop", ends_with_the_first_epoch, {"residual_beta": 0.0, "n_layers": 6}),
    "device": ("cpu", is_on_the_cpu),
    "dtype": ("float32", is_single),
    "n_threads": (2, None),
    "random_state": (1, None),
    "verbose": (1, None),
    "class_weight": ({0: 1.0, 1: 5.0}, None),
    "quantiles": ((0.2, 0.6), has_its_levels, {"loss": "quantile"}),
}
# No effect on a model of this table; tests of their own below, in test_segments.py, test_text.py.
SEEN_ELSEWHERE = ("n_threads", "verbose", "embedding")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_table_names_every_parameter(estimator):
    own = set(inspect.signature(estimator).parameters)
    assert own | {"class_weight", "quantiles"} == set(SHARED)
    assert ("quantiles" in own) == (estimator is ResidualTransformerRegressor)


@pytest.mark.filterwarnings("ignore::sklearn_restrans.RankCollapseWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", [name for name in SHARED if name not in SEEN_ELSEWHERE])
def test_the_parameter_has_its_effect(estimator, name):
    if name not in inspect.signature(estimator).parameters:
        return
    value, claim, *also = SHARED[name]
    if isinstance(value, dict) and name == "loss":
        value = value["classifier" if hasattr(estimator, "predict_proba") else "regressor"]
    X, y = table(estimator)
    base = estimator(**SMALL).set_params(**(also[0] if also else {}))
    model = clone(base).set_params(**{name: value}).fit(X, y)
    base.fit(X, y)
    if claim is not None:
        claim(model, base)
    else:
        assert not np.allclose(outputs(model, X), outputs(base, X), rtol=1e-3, atol=0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_n_threads_holds_during_fit_and_predict_and_no_longer(estimator, monkeypatch):
    X, y = table(estimator)
    before = torch.get_num_threads()
    recorder = Recorder()
    model = estimator(n_threads=before + 1, callbacks=[recorder], **SMALL).fit(X, y)
    assert (recorder.threads_, torch.get_num_threads()) == (before + 1, before)
    seen, run = [], prediction.run

    def spy(*args):
        seen.append(torch.get_num_threads())
        return run(*args)

    monkeypatch.setattr(prediction, "run", spy)
    model.predict(X)
    assert (set(seen), torch.get_num_threads()) == ({before + 1}, before)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_verbose_prints_one_line_an_epoch_and_the_default_nothing(estimator, capsys):
    X, y = table(estimator)
    estimator(**SMALL).fit(X, y).predict(X)
    assert capsys.readouterr() == ("", "")
    estimator(verbose=1, **SMALL).fit(X, y).predict(X)
    lines = capsys.readouterr().out.splitlines()
    assert set(lines[0].split()) == {"epoch", "train_loss", "learning_rate", "dur"}
    assert [line.split()[0] for line in lines[2:]] == ["1", "2", "3"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "tpu"}, r"device must be .*'cuda:<number>'.* got 'tpu'"),
        ({"device": "cuda:77"}, r"device='cuda:77' is not available.*use device='auto' or 'cpu'"),
        ({"d_model": 8, "n_heads": 3}, "d_model must be a multiple of n_heads, got d_model=8"),
        ({"window": 61}, "window=61 is longer than the 60 rows of X; use a window of at most 60"),
        (
            {"residual_beta": [1, 1, 1], "n_layers": 3},
            r"shape \(3, 2\); got shape \(3,\)|= \(3, 2\)",
        ),
        (
            {"residual_beta": (1.0, -1.0)},
            r"residual_beta must be .*not negative; got \(1.0, -1.0\)",
        ),
        ({"residual_beta": (1.0, np.inf)}, "residual_beta must be .*finite"),
        ({"residual_beta": ["a", "b"]}, r"residual_beta must be .* got \['a', 'b'\]"),
        ({"residual_beta": -1.0}, "'residual_beta' parameter .* Got -1.0 instead"),
        ({"residual_beta": np.nan}, "'residual_beta' parameter .* Got nan instead"),
        ({"activation": "sine"}, "'activation' parameter .* Got 'sine' instead"),
        ({"on_collapse": "raise"}, "'on_collapse' parameter .* Got 'raise' instead"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(estimator, settings, message):
    X, y = table(estimator)
    with pytest.raises(ValueError, match=message):
        estimator(**{**SMALL, **settings}).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None])
@pytest.mark.parametrize("embedding", ["auto", "token"])
def test_epochs_are_a_number_or_auto(estimator, value, embedding):
    X, y = table(estimator)
    X = 1 + np.abs(X * 5).astype(int)
    allowed = r"int in the range \[1, inf\) or a str among {'auto'}. Got " + re.escape(repr(value))
    with pytest.raises(ValueError, match=f"'max_iter' parameter .* must be an {allowed} instead"):
        estimator(max_iter=value, embedding=embedding).fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_threads_beyond_reason_are_refused(estimator):
    """The library of threads ends the process where it finds no room for them."""
    X, y = table(estimator)
    with pytest.raises(ValueError, match=r"n_threads.*\[1, 1024\]"):
        estimator(n_threads=10**9, **SMALL).fit(X, y)


# -- what parameters mean together ---------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 0.5, (0.5, 2.0), [0.5, 2.0], np.full((2, 2), 0.25)])
def test_every_form_of_beta_is_one_matrix(value):
    found = beta_matrix(value, 2)
    np.testing.assert_array_equal(found, np.broadcast_to(value, (2, 2)))
    found[:] = 9
    np.testing.assert_array_equal(beta_matrix(value, 2), np.broadcast_to(value, (2, 2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "adamw", "learning_rate_init": "auto"}, "a step for solver='gd' or 'sgd'"),
        ({"solver": "gd", "dropout": 0.1}, "dropout must be 0, got 0.1"),
        ({"solver": "gd", "weight_decay": 0.3}, "weight_decay must be 0, got 0.3"),
        ({"solver": "gd", "learning_rate": "one_cycle"}, "'one_cycle' is for the other solvers"),
    ],
)
def test_a_step_that_the_solver_does_not_take_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        check_step(ResidualTransformerRegressor(**settings))
    with pytest.raises(ValueError, match=message):
        check_parameters(ResidualTransformerRegressor(**settings))


def test_seeds_of_every_kind_leave_the_global_generator_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002  the legacy generator is the global one
    assert draw_seed(3) == draw_seed(3) != draw_seed(4)
    assert len({draw_seed(None) for _ in range(20)}) == 20
    generator = np.random.RandomState(3)
    assert draw_seed(generator) == draw_seed(3) != draw_seed(generator)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
