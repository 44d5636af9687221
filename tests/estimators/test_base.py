"""What a user sees of both estimators: parameters, reports, targets, weights, classes.

Small models on few rows: what is claimed here holds for any fit, good or bad.
"""

import inspect
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from smallmodels import ESTIMATORS, SAME, SMALL, Recorder, outputs, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._training import prediction
from sklearn_restrans._training.device import resolve_device


def sequences(estimator, n=60, seed=0):
    """Sequences (n, 5, 3) with targets read off their last token."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5, 3))
    y = X[:, -1, 0] - X[:, -2, 1]
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


# -- every parameter of every estimator does what it says ----------------------------------------


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


def is_single(model, base):
    assert model.net_.module_.W_in.dtype == torch.float32
    assert base.net_.module_.W_in.dtype == torch.float64


def is_on_the_cpu(model, base):
    assert model.device_ == "cpu"


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
    "n_iter_no_change": (1, stops_early, {"tol": 10.0, "max_iter": 8}),
    "tol": (10.0, stops_early, {"n_iter_no_change": 1, "max_iter": 8}),
    "learning_rate": ("constant", keeps_the_step),
    "warm_start": (True, goes_on),
    "callbacks": ([Recorder()], called_the_callback),
    "conditioning_interval": (2, measured_every_second_epoch),
    "conditioning_samples": (7, has_a_probe_of),
    "device": ("cpu", is_on_the_cpu),
    "dtype": ("float32", is_single),
    "n_threads": (2, None),
    "random_state": (1, None),
    "verbose": (1, None),
    "class_weight": ({0: 1.0, 1: 5.0}, None),
}
# No effect on a model of this table; tests of their own below, in test_segments.py, test_text.py.
SEEN_ELSEWHERE = ("n_threads", "verbose", "embedding")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_table_names_every_parameter(estimator):
    own = set(inspect.signature(estimator).parameters)
    assert own | {"class_weight"} == set(SHARED)


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
def test_auto_takes_cuda_then_mps_then_the_cpu(estimator, monkeypatch):
    assert estimator().device == "auto"
    for cuda, mps, expected in [
        (True, True, "cuda"),
        (False, True, "mps"),
        (False, False, "cpu"),
    ]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert resolve_device("auto").type == expected


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
    ],
)
def test_a_setting_that_makes_no_sense_is_named(estimator, settings, message):
    X, y = table(estimator)
    with pytest.raises(ValueError, match=message):
        estimator(**{**SMALL, **settings}).fit(X, y)


@pytest.mark.parametrize("beta", [0, 0.5, (0.5, 2.0), [0.5, 2.0], np.full((2, 2), 0.25)])
def test_the_forms_of_residual_beta(beta):
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(beta, n_layers=2, **SMALL).fit(X, y)
    np.testing.assert_array_equal(model.residual_beta_, np.broadcast_to(beta, (2, 2)))


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


# -- what fit reports ----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_report_of_a_fit_agrees_with_itself(estimator):
    X, y = table(estimator)
    model = estimator(**SMALL).fit(X, y)
    assert (model.n_iter_, model.best_iteration_) == (3, 3)
    assert model.history_.index.tolist() == [1, 2, 3]
    assert model.history_["train_loss"].tolist() == model.loss_curve_
    np.testing.assert_array_equal(model.convergence_.loss, model.loss_curve_)
    assert model.history_["dur"].between(0, 60).all()
    assert model.n_features_in_ == 4


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
def test_the_loss_curve_is_the_loss_of_the_weights_before_the_step(loss):
    """One step of gradient descent an epoch: epoch k + 1 reports the loss of the model of k."""
    X, y = table(ResidualTransformerRegressor)
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    settings = SMALL | {"solver": "gd", "learning_rate_init": 1e-2, "loss": loss}
    curve = ResidualTransformerRegressor(**settings).fit(X, y, weight).loss_curve_
    first = ResidualTransformerRegressor(**settings | {"max_iter": 1}).fit(X, y, weight)
    mean = np.average(y, weights=weight)
    scale = np.sqrt(np.average((y - mean) ** 2, weights=weight))
    r = (first.predict(X) - y) / scale  # residual in units of the weighted standard deviation
    per_row = {
        "squared_error": r**2,
        "absolute_error": abs(r),
        "huber": np.where(abs(r) < 1, r**2 / 2, abs(r) - 0.5),
    }[loss]
    np.testing.assert_allclose(curve[1], np.average(per_row, weights=weight), **SAME)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_the_loss_curve_of_classes(loss):
    X, y = table(ResidualTransformerClassifier)
    settings = SMALL | {"solver": "gd", "learning_rate_init": 1e-2, "loss": loss}
    curve = ResidualTransformerClassifier(**settings).fit(X, y).loss_curve_
    first = ResidualTransformerClassifier(**settings | {"max_iter": 1}).fit(X, y)
    if loss == "log_loss":
        expected = -np.log(first.predict_proba(X)[np.arange(60), y]).mean()
    else:  # on raw outputs: probabilities are clipped
        expected = ((first._outputs(X) - np.eye(2)[y]) ** 2).mean()
    np.testing.assert_allclose(curve[1], expected, **SAME)


# -- targets -------------------------------------------------------------------------------------


def test_several_targets_are_learned_together():
    X, y = table(ResidualTransformerRegressor, n=200)
    Y = np.c_[y, 1000 - 50 * X[:, 1]]
    model = ResidualTransformerRegressor(max_iter=20, random_state=0, batch_size=16).fit(X, Y)
    assert model.predict(X).shape == (200, 2)
    assert model.score(X, Y) > 0.8
    frame = pd.DataFrame(Y, columns=["a", "b"])
    again = clone(model).set_params(max_iter=1).fit(X, frame)
    assert again.predict(X).shape == (200, 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_raw_units_of_inputs_and_targets_do_not_matter(seed):
    """Powers of two rescale without rounding: the standardised fit is the same to the bit."""
    X, y = table(ResidualTransformerRegressor, seed=seed)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    scaled = clone(model).fit(X * 2.0**20, y * 2.0**-12)
    np.testing.assert_array_equal(scaled.predict(X * 2.0**20), model.predict(X) * 2.0**-12)
    assert scaled.loss_curve_ == model.loss_curve_


def test_constant_columns_and_targets_are_no_trouble():
    X, _ = table(ResidualTransformerRegressor)
    X[:, 2] = 7.0
    model = ResidualTransformerRegressor(**SMALL).fit(X, np.full(60, 3.0))
    assert np.isfinite(model.predict(X)).all()
    assert abs(model.predict(X) - 3.0).max() < 3.0


# -- classes and learning -----------------------------------------------------------------------


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


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_loss_falls_under_full_batch_gradient_descent(estimator, seed):
    X, y = table(estimator, seed=seed)
    curve = (
        estimator(solver="gd", learning_rate_init=1e-3, random_state=seed, max_iter=10)
        .fit(X, y)
        .loss_curve_
    )
    assert all(later < earlier for earlier, later in pairwise(curve))


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
