"""What a user sees of both estimators: parameters, targets, weights, validation, warm start.

Small models on few rows: what is claimed here holds for any fit, good or bad.
"""

import inspect
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.utils.class_weight import compute_sample_weight
from skorch.callbacks import Callback, EarlyStopping, EpochScoring, GradientNormClipping

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._device import resolve_device

ESTIMATORS = [ResidualTransformerRegressor, ResidualTransformerClassifier]
SMALL = {"d_model": 8, "max_iter": 3, "random_state": 0}

# float64 sums of other order or weights of another scale part by a few eps, which a dozen steps
# of a small model amplify by far less than a million.
SAME = {"rtol": 1e-9, "atol": 1e-9}


def table(estimator, n=60, seed=0):
    """A table and targets for an estimator: a smooth function of it, or its sign as 0 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    y = X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)
    return X, y if estimator is ResidualTransformerRegressor else (y > y.mean()).astype(int)


def sequences(estimator, n=60, seed=0):
    """Sequences (n, 5, 3) with targets read off their last token."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5, 3))
    y = X[:, -1, 0] - X[:, -2, 1]
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


def outputs(model, X):
    """Predictions that show any change of the model: numbers, or probabilities."""
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


class Recorder(Callback):
    """Notes what a fit does: epochs, torch threads, rows trained and validated on."""

    def on_train_begin(self, net, **kwargs):
        self.epochs, self.threads = 0, torch.get_num_threads()

    def on_epoch_begin(self, net, dataset_train, dataset_valid, **kwargs):
        self.split = dataset_train.rows, None if dataset_valid is None else dataset_valid.rows

    def on_epoch_end(self, net, **kwargs):
        self.epochs += 1


def split_of(model, X, y):
    """Rows that a fit with early stopping trains on and validates on."""
    recorder = Recorder()
    model.set_params(early_stopping=True, d_model=8, max_iter=1, callbacks=[recorder]).fit(X, y)
    return recorder.split


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
    assert model.callbacks[0].epochs == model.n_iter_


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
    "dilation": (2, None, {"window": 3}),
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
SEEN_ELSEWHERE = ("n_threads", "verbose")  # no effect on the model; tests of their own below


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
def test_n_threads_holds_during_fit_and_predict_and_no_longer(estimator):
    X, y = table(estimator)
    before = torch.get_num_threads()
    recorder = Recorder()
    model = estimator(n_threads=before + 1, callbacks=[recorder], **SMALL).fit(X, y)
    assert (recorder.threads, torch.get_num_threads()) == (before + 1, before)
    seen, infer = [], model.net_.infer

    def spy(*args):
        seen.append(torch.get_num_threads())
        return infer(*args)

    model.net_.infer = spy
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
        ({"dilation": 2}, "dilation=2 has a meaning for window=... only; set window"),
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


# -- weights -------------------------------------------------------------------------------------


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
    assert recorder.epochs == 3
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
def test_a_fit_that_fails_leaves_no_model(estimator):
    X, y = table(estimator)
    model = estimator(**SMALL).fit(X, y)
    model.set_params(solver="sgd", learning_rate_init=1e30)
    with pytest.raises(DivergenceError):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


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
    ],
)
def test_callbacks_that_cannot_work_are_refused(estimator, callback, error, message):
    X, y = table(estimator)
    with pytest.raises(error, match=message):
        estimator(callbacks=[callback], **SMALL).fit(X, y)


# -- set_params, classes, probabilities ----------------------------------------------------------


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
