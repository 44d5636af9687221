"""Fine-tuning: what is trained, the estimators' protocols, and what is kept of a fit."""

import copy
import os
import pickle
import shutil
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import tinycheckpoints as tiny
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from smallmodels import Interrupt, Recorder
from tinycheckpoints import FAMILIES, TEXTS

from sklearn_restrans import (
    PretrainedTextClassifier,
    PretrainedTextRegressor,
    ResidualTransformerClassifier,
    StackedGridSearchCV,
    TextEmbedder,
    make_conditioning_scorer,
    make_convergence_scorer,
    make_crps_scorer,
    measure_conditioning,
    residual_beta_path,
)
from sklearn_restrans._estimators import fitting
from sklearn_restrans._estimators.preparation import prepare, training_settings

ESTIMATORS = [PretrainedTextClassifier, PretrainedTextRegressor]
# Sums in another order part by a few eps of float64, which some dozen steps amplify.
SAME = {"rtol": 1e-8, "atol": 1e-10}


def data(estimator=PretrainedTextClassifier, n=24, seed=0):
    texts, labels = tiny.labelled(n, seed)
    if estimator is PretrainedTextClassifier:
        return texts, labels
    return texts, (labels == "pos") + 0.1 * np.random.default_rng(seed).standard_normal(n)


def small(folder, estimator=PretrainedTextClassifier, **settings):
    given = {"max_iter": 2, "batch_size": 12, "random_state": 0, "learning_rate_init": 1e-3}
    return estimator(folder, **given | settings)


def weights(model):
    return {k: v.clone() for k, v in model.net_.module_.state_dict().items()}


def outputs(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


# ---- what is trained ----------------------------------------------------------------------------


@pytest.fixture
def start(checkpoints):
    """``start(family)``: the weights that training starts from, in float32."""

    def of(family):
        return dict(TextEmbedder(checkpoints(family)).fit().encoder_.state_dict())

    return of


def changed(model, begun):
    """Names of the weights that training changed, of the encoder and the read-out."""
    found = weights(model)
    return {
        name
        for name in found
        if name in ("W_U", "b_U") or not torch.equal(found[name], begun[name])
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_head_leaves_every_bit_of_the_encoder(checkpoints, start, family):
    texts, y = data()
    model = small(checkpoints(family), fine_tune="head", learning_rate_init=0.1).fit(texts, y)
    assert changed(model, start(family)) == {"W_U", "b_U"}
    assert weights(model)["W_U"].abs().max() > 0


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_k_layers_change_and_no_other(checkpoints, start, family, k):
    texts, y = data()
    model = small(checkpoints(family), fine_tune=k, weight_decay=0.0).fit(texts, y)
    found = changed(model, start(family))
    layers = {name.split(".")[1] for name in found if name.startswith("layers.")}
    assert layers == {str(index) for index in range(3 - k, 3)}
    assert "W_in" not in found and "positions" not in found
    # The norm at the end belongs to what is read, the norm of the embedding to what is frozen.
    assert ("outer_norm.gain" in found) == (family == "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
def test_all_changes_the_embedding_too(checkpoints, start, family):
    texts, y = data()
    model = small(checkpoints(family), fine_tune="all", max_iter=3).fit(texts, y)
    found = changed(model, start(family))
    assert {"W_in", "positions", "outer_norm.gain", "layers.0.W_Q", "layers.2.b_2"} <= found
    assert "beta" not in found


def test_more_layers_than_are_kept_cannot_be_trained(checkpoints):
    texts, y = data()
    for n_layers, k in ((None, 4), (2, 3)):
        model = small(checkpoints("bert"), n_layers=n_layers, fine_tune=k)
        message = (
            f"fine_tune={k} asks for more layers than the {n_layers or 3} that are kept; lower"
        )
        with pytest.raises(ValueError, match=message):
            model.fit(texts, y)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("settings", [{}, {"early_stopping": True}, {"loss": "squared_error"}])
def test_a_head_trained_on_kept_vectors_is_one_trained_on_texts(
    checkpoints, monkeypatch, family, settings
):
    """Batches of all rows: the order of the rows within one does not matter."""
    texts, y = data()
    given = {"fine_tune": "head", "learning_rate_init": 0.05, "max_iter": 6, "batch_size": 1000}
    model = small(checkpoints(family), dtype="float64", **given | settings)
    ahead = clone(model).fit(texts, y)
    monkeypatch.setattr(fitting, "read_ahead", lambda net, problem: (problem.train, problem.valid))
    whole = clone(model).fit(texts, y)
    np.testing.assert_allclose(ahead.loss_curve_, whole.loss_curve_, **SAME)
    for name, weight in weights(whole).items():
        np.testing.assert_allclose(weights(ahead)[name], weight, **SAME)
    np.testing.assert_allclose(ahead.predict_proba(texts), whole.predict_proba(texts), **SAME)
    if "early_stopping" in settings:
        np.testing.assert_allclose(ahead.validation_scores_, whole.validation_scores_, **SAME)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_is_trained_as_torch_trains_a_linear_layer(checkpoints, family):
    """AdamW with a constant step, from zero, on the means that transformers computes.

    Its betas are those of all models of token ids (Vaswani et al. 2017, section 5.3).
    """
    texts, y = data()
    folder, beta = checkpoints(family), (0.4, 0.9)
    model = small(folder, residual_beta=beta, fine_tune="head", batch_size=1000, dtype="float64")
    model.set_params(learning_rate="constant", learning_rate_init=0.05, weight_decay=0.1)
    model.set_params(max_iter=8).fit(texts, y)
    scaled = tiny.scale_residuals(tiny.fresh_reference(folder), [beta] * 3)
    states, mask = tiny.hidden_states(folder, texts, model=scaled)
    vectors = torch.as_tensor(tiny.mean_of_tokens(states[-1], mask))
    W, b = (torch.zeros(*shape, dtype=torch.float64).requires_grad_() for shape in ((16, 2), (2,)))
    groups = [{"params": [W], "weight_decay": 0.1}, {"params": [b], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=0.05, betas=(0.9, 0.98)), []
    target = torch.as_tensor(np.searchsorted(["neg", "pos"], y))
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(vectors @ W + b, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(model.loss_curve_, losses, **SAME)
    np.testing.assert_allclose(weights(model)["W_U"], W.detach(), **SAME)
    np.testing.assert_allclose(weights(model)["b_U"], b.detach(), **SAME)


# ---- fit, predict, score ------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_classifier_learns_a_word(checkpoints, family):
    texts, y = data(n=32)
    model = small(checkpoints(family), max_iter=15, learning_rate_init=1e-2).fit(texts, y)
    assert model.score(texts, y) > 0.9
    assert model.classes_.tolist() == ["neg", "pos"]
    assert set(model.predict(texts)) == {"neg", "pos"}
    p = model.predict_proba(texts)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(texts))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(texts)), p, rtol=1e-12)
    assert model.score(texts, y) == np.mean(model.predict(texts) == y)
    assert len(model.loss_curve_) == model.n_iter_ == 15 == len(model.history_)
    assert model.loss_curve_[-1] < 0.5 * model.loss_curve_[0]


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("fine_tune", ["head", 1, "all"])
def test_a_regressor_learns_numbers(checkpoints, n_outputs, fine_tune):
    texts, y = data(PretrainedTextRegressor, n=32)
    y = 100 + 5 * y
    Y = y if n_outputs == 1 else np.stack([y, -3 * y], axis=1)
    step = 0.05 if fine_tune == "head" else 1e-2
    model = small(checkpoints("bert"), PretrainedTextRegressor, fine_tune=fine_tune)
    epochs = 60 if fine_tune == "head" else 10
    model.set_params(max_iter=epochs, learning_rate_init=step).fit(texts, Y)
    assert model.predict(texts).shape == Y.shape
    # A line in 16 random features explains part of it only.
    assert model.score(texts, Y) > (0.15 if fine_tune == "head" else 0.5)
    frame = pd.DataFrame(Y) if n_outputs == 2 else pd.Series(Y)
    again, model = (clone(model).set_params(max_iter=1).fit(texts, one) for one in (frame, Y))
    np.testing.assert_array_equal(again.predict(texts), model.predict(texts))


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("fine_tune", ["head", "all"])
def test_a_regressor_learns_quantiles(checkpoints, n_outputs, fine_tune):
    """A start of zero has those of a normal target; training lowers their loss, none cross."""
    texts, y = data(PretrainedTextRegressor, n=32)
    y = 100 + 5 * y
    Y = y if n_outputs == 1 else np.stack([y, -3 * y], axis=1)
    levels = (0.1, 0.3, 0.5, 0.9)
    settings = {"loss": "quantile", "quantiles": levels, "fine_tune": fine_tune, "dropout": 0.0}
    model = small(checkpoints("bert"), PretrainedTextRegressor, **settings)
    start = clone(model).set_params(learning_rate_init=1e-30).fit(texts, Y)
    expected = Y.mean(0)[..., None] + Y.std(0)[..., None] * norm.ppf(levels)
    found = start.predict_quantiles(texts)
    # Outputs and targets are float32.
    np.testing.assert_allclose(found, np.broadcast_to(expected, (32, *expected.shape)), rtol=1e-5)
    model.set_params(max_iter=20, learning_rate_init=0.05 if fine_tune == "head" else 5e-3)
    found = model.fit(texts, Y).predict_quantiles(texts)
    assert found.shape == (*Y.shape, 4) and (np.diff(found) >= 0).all()
    assert model.quantiles_ == levels
    np.testing.assert_array_equal(model.predict(texts), found[..., 2])
    score = make_crps_scorer()
    assert score(model, texts, Y) > 0.95 * score(start, texts, Y)  # both are negative
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_quantiles(texts), found)


def test_only_regressors_of_quantiles_predict_them(checkpoints):
    texts, y = data(PretrainedTextRegressor, n=12)
    model = small(checkpoints("bert"), PretrainedTextRegressor, fine_tune="head").fit(texts, y)
    assert not hasattr(model, "predict_quantiles") and not hasattr(model, "quantiles_")
    with pytest.raises(ValueError, match="levels of loss='quantile', got loss='squared_error'"):
        model.set_params(quantiles=(0.1, 0.9)).fit(texts, y)


@pytest.mark.parametrize("labels", [[True, False], [3, 7], ["neg", "pos"], ["a", "b", "c"]])
def test_labels_may_be_anything(checkpoints, labels):
    texts, _ = data(n=12)
    y = np.array(labels)[np.arange(12) % len(labels)]
    for loss in ("log_loss", "squared_error"):
        model = small(checkpoints("distilbert"), fine_tune="head", loss=loss).fit(texts, y)
        assert model.classes_.tolist() == sorted(labels)
        assert model.predict(texts).dtype == y.dtype
        p = model.predict_proba(texts)
        assert p.shape == (12, len(labels))
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fine_tune", ["head", "all"])
def test_a_prediction_does_not_depend_on_the_other_rows(checkpoints, estimator, fine_tune):
    texts, y = data(estimator)
    model = small(checkpoints("roberta"), estimator, fine_tune=fine_tune).fit(texts, y)
    whole = outputs(model, TEXTS * 20)
    alone = np.concatenate([outputs(model, [text]) for text in TEXTS])
    np.testing.assert_array_equal(whole, np.concatenate([alone] * 20))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fine_tune", ["head", 1, "all"])
def test_a_seed_gives_the_same_bits(checkpoints, estimator, fine_tune):
    texts, y = data(estimator)
    model = small(checkpoints("bert"), estimator, fine_tune=fine_tune, dropout=0.3)
    first, again = (clone(model).fit(texts, y) for _ in range(2))
    np.testing.assert_array_equal(outputs(first, texts), outputs(again, texts))
    assert first.loss_curve_ == again.loss_curve_
    other = clone(model).set_params(random_state=1).fit(texts, y)
    assert other.loss_curve_ != first.loss_curve_


def test_dropout_acts_on_what_is_trained_only(checkpoints):
    texts, y = data()
    for fine_tune, acts in (("head", False), (1, True), ("all", True)):
        model = small(checkpoints("bert"), fine_tune=fine_tune)
        curves = [clone(model).set_params(dropout=p).fit(texts, y).loss_curve_ for p in (0.0, 0.5)]
        assert (curves[0] != curves[1]) == acts


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fine_tune", ["head", "all"])
def test_a_row_of_weight_zero_is_absent_and_weight_two_is_two_rows(
    checkpoints, estimator, fine_tune
):
    """In batches of all rows, without dropout: the same sums, up to rounding."""
    texts, y = data(estimator, n=18)
    # not where a step of Adam divides rounding by itself: biases whose gradient is zero
    model = small(checkpoints("bert"), estimator, fine_tune=fine_tune, dropout=0.0, solver="sgd")
    model.set_params(batch_size=1000, dtype="float64", learning_rate_init=0.05)
    weight = np.random.default_rng(0).integers(0, 3, 18)
    rows = np.repeat(np.arange(18), weight)
    weighted = clone(model).fit(texts, y, sample_weight=weight)
    repeated = clone(model).fit([texts[k] for k in rows], y[rows])
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, **SAME)
    np.testing.assert_allclose(outputs(weighted, texts), outputs(repeated, texts), **SAME)
    plain = clone(model).fit(texts, y)
    assert np.abs(outputs(plain, texts) - outputs(weighted, texts)).max() > 1e-6


def test_balanced_classes_are_weights(checkpoints):
    texts, y = data(n=20)
    y = np.where(np.arange(20) < 15, "neg", "pos")
    weight = np.where(y == "neg", 20 / (2 * 15), 20 / (2 * 5))
    model = small(checkpoints("bert"))
    balanced = clone(model).set_params(class_weight="balanced").fit(texts, y)
    weighted = clone(model).fit(texts, y, sample_weight=weight)
    by_name = clone(model).set_params(class_weight={"neg": 2 / 3, "pos": 2.0}).fit(texts, y)
    for other in (weighted, by_name):  # the weights may differ in their last bit
        np.testing.assert_allclose(
            balanced.predict_proba(texts), other.predict_proba(texts), rtol=1e-5
        )
    plain = clone(model).fit(texts, y)
    assert np.abs(plain.predict_proba(texts) - balanced.predict_proba(texts)).max() > 1e-3


@pytest.mark.parametrize("fine_tune", ["head", "all"])
def test_validation_keeps_the_best_epoch(checkpoints, fine_tune):
    texts, y = data(n=40)
    model = small(checkpoints("bert"), fine_tune=fine_tune, max_iter=6, learning_rate_init=0.05)
    other, labels = data(n=16, seed=1)
    given = clone(model).fit(texts, y, X_val=other, y_val=labels)
    aside = clone(model).set_params(early_stopping=True, validation_fraction=0.25).fit(texts, y)
    for one in (given, aside):
        assert len(one.validation_scores_) == 6
        assert one.best_iteration_ == 1 + int(np.argmax(one.validation_scores_))
        assert one.best_validation_score_ == max(one.validation_scores_)
    chosen = np.searchsorted(given.classes_, labels)
    loss = -np.log(given.predict_proba(other)[np.arange(16), chosen]).mean()
    np.testing.assert_allclose(-given.best_validation_score_, loss, rtol=1e-5)
    with pytest.raises(ValueError, match="X_val was given without y_val; pass both"):
        clone(model).fit(texts, y, X_val=other)
    with pytest.raises(ValueError, match="in X_val, y_val: "):
        clone(model).fit(texts, y, X_val=other, y_val=["unheard"] * 16)


@pytest.mark.parametrize("fine_tune", ["head", 1, "all"])
def test_a_warm_start_goes_on(checkpoints, fine_tune):
    texts, y = data()
    model = small(
        checkpoints("bert"), fine_tune=fine_tune, warm_start=True, learning_rate="constant"
    )
    model.fit(texts, y)
    once, curve = weights(model), list(model.loss_curve_)
    model.fit(texts, y)
    assert model.n_iter_ == 4 and model.loss_curve_[:2] == curve
    assert not torch.equal(weights(model)["W_U"], once["W_U"])
    if fine_tune == "head":
        assert torch.equal(weights(model)["layers.2.W_Q"], once["layers.2.W_Q"])
    for name, value in (("n_layers", 2), ("fine_tune", 2), ("readout", "last")):
        with pytest.raises(
            ValueError, match="warm_start=True continues the fitted model, which can"
        ):
            copy.deepcopy(model).set_params(**{name: value}).fit(texts, y)


def test_a_warm_start_needs_the_folder_no_more(checkpoints, tmp_path):
    texts, y = data()
    given = {"fine_tune": "head", "warm_start": True}
    folder = Path(shutil.copytree(checkpoints("bert"), tmp_path / "own"))
    kept = small(folder, **given).fit(texts, y).fit(texts, y)
    gone = pickle.loads(pickle.dumps(small(folder, **given).fit(texts, y)))
    shutil.rmtree(folder)
    expected = kept.predict_proba(texts)
    np.testing.assert_array_equal(gone.fit(texts, y).predict_proba(texts), expected)
    assert gone.n_iter_ == kept.n_iter_ == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "another/folder"}, "cannot change model from .* to 'another/folder'"),
        ({"max_length": 36}, "cannot change max_length from 40 to 36"),
        ({"n_layers": 2}, "cannot change n_layers from 3 to 2"),
        ({"fine_tune": 1}, "cannot change n_trained from None to 1"),
    ],
)
def test_a_warm_start_refuses_another_encoder(checkpoints, change, message):
    texts, y = data()
    model = small(checkpoints("bert"), warm_start=True).fit(texts, y)
    expected = model.predict_proba(texts)
    with pytest.raises(ValueError, match=message):
        model.set_params(**change).fit(texts, y)
    np.testing.assert_array_equal(model.predict_proba(texts), expected)


@pytest.mark.parametrize("fine_tune", ["head", 1, "all"])
def test_callbacks_of_scikit_learn_see_the_best_epoch(checkpoints, fine_tune):
    callback = pytest.importorskip("sklearn.callback")
    texts, y = data()
    model = small(checkpoints("bert"), fine_tune=fine_tune, early_stopping=True, max_iter=3)
    monitored = clone(model).set_callbacks(callback.ScoringMonitor(scoring="accuracy"))
    monitored.fit(texts, y)
    np.testing.assert_array_equal(
        monitored.predict_proba(texts), model.fit(texts, y).predict_proba(texts)
    )


@pytest.mark.parametrize(
    ("n", "batch", "epochs"),
    [(8, 4, 40), (32, 4, 19), (128, 16, 19), (320, 32, 15), (3_200, 32, 3)],
)
def test_few_texts_get_enough_steps(checkpoints, n, batch, epochs):
    model = PretrainedTextClassifier(checkpoints("bert"), random_state=0)
    texts = [f"good {k % 7}" if k % 2 else "bad film" for k in range(n)]
    problem = prepare(model, texts, np.arange(n) % 2)
    settings = training_settings(model, problem)
    assert (settings.batch_size, settings.max_iter) == (batch, epochs)


# ---- scikit-learn's protocols -------------------------------------------------------------------


def stored(model, way, tmp_path):
    if way == "pickle":
        return pickle.loads(pickle.dumps(model))
    if way == "deepcopy":
        return copy.deepcopy(model)
    joblib.dump(model, tmp_path / "model.joblib")
    return joblib.load(tmp_path / "model.joblib")


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
@pytest.mark.parametrize(("estimator", "fine_tune"), [(ESTIMATORS[0], "head"), (ESTIMATORS[1], 2)])
def test_a_copy_needs_the_folder_no_more(checkpoints, tmp_path, estimator, way, fine_tune, offline):
    folder = Path(shutil.copytree(checkpoints("distilbert"), tmp_path / "own"))
    texts, y = data(estimator)
    model = small(folder, estimator, fine_tune=fine_tune, residual_beta=(0.5, 0.8), n_layers=2)
    expected = outputs(model.fit(texts, y), TEXTS)
    again = stored(model, way, tmp_path)
    shutil.rmtree(folder)
    for one in (again, stored(again, way, tmp_path), model):
        np.testing.assert_array_equal(outputs(one, TEXTS), expected)
        assert one.score(texts, y) == model.score(texts, y)
    assert again.loss_curve_ == model.loss_curve_
    assert measure_conditioning(again, texts).n_layers == 2
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        clone(again).fit(texts, y)
    np.testing.assert_array_equal(outputs(again, TEXTS), expected)


def test_pipelines_searches_and_scorers(checkpoints):
    texts, y = data(n=24)
    pipeline = make_pipeline(
        make_column_transformer(("passthrough", ["text"])), small(checkpoints("bert"), max_iter=1)
    )
    frame = pd.DataFrame({"stars": 1.0, "text": texts})
    name = "pretrainedtextclassifier__"
    grid = {name + "residual_beta": [0.5, (1.0, 0.8)], name + "n_layers": [1, 3]}
    scoring = {
        "score": "accuracy",
        "sigma": make_conditioning_scorer("sigma_min"),
        "kappa": make_conditioning_scorer("neg_condition_number", of="attention", layer=0),
        "loss": make_convergence_scorer("neg_final_loss"),
    }
    search = GridSearchCV(pipeline, grid, scoring=scoring, refit="score", cv=2).fit(frame, y)
    for key in scoring:
        assert np.isfinite(search.cv_results_[f"mean_test_{key}"]).all()
    assert len(set(search.cv_results_["mean_test_sigma"])) == 4
    assert set(search.predict(frame)) <= {"neg", "pos"}
    plain = clone(pipeline[-1]).fit(texts, y)
    as_pipeline = clone(pipeline).fit(frame, y)
    np.testing.assert_array_equal(plain.predict_proba(texts), as_pipeline.predict_proba(frame))
    assert cross_val_score(pipeline[-1], np.array(texts), y, cv=2).shape == (2,)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_texts_come_in_several_forms(checkpoints, estimator):
    texts, y = data(estimator, n=12)
    model = small(checkpoints("gpt2"), estimator, max_iter=1)
    expected = outputs(model.fit(texts, y), texts)
    series = pd.Series(texts, index=range(100, 112))
    for form in (np.array(texts, dtype=object), series, series.to_frame("text"), tuple(texts)):
        np.testing.assert_array_equal(outputs(clone(model).fit(form, y), form), expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_unfitted_model_says_so(checkpoints, estimator):
    model = small(checkpoints("bert"), estimator)
    with pytest.raises(
        NotFittedError, match=f"This {estimator.__name__} instance is not fitted yet"
    ):
        model.predict(TEXTS)
    assert not hasattr(model, "history_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_targets_that_do_not_fit_are_refused(checkpoints, estimator):
    texts, y = data(estimator, n=8)
    model = small(checkpoints("bert"), estimator)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(texts, y[:-1])
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        model.fit(texts, None)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(texts, y, sample_weight=-np.ones(8))
    with pytest.raises(ValueError, match="residual_beta must be a number >= 0, a pair"):
        model.set_params(residual_beta=np.ones((2, 2))).fit(texts, y)
    assert not hasattr(model, "net_")


def test_a_fit_that_fails_or_is_stopped_leaves_the_last_one(checkpoints):
    texts, y = data()
    model = small(checkpoints("bert")).fit(texts, y)
    expected = model.predict_proba(TEXTS)
    with pytest.raises(ValueError, match="text 1 of X is 3"):
        model.fit(["good", 3], ["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[Interrupt()]).fit(texts, y)
    np.testing.assert_array_equal(model.predict_proba(TEXTS), expected)


def test_tags_say_that_x_is_text(checkpoints):
    for estimator in (*ESTIMATORS, TextEmbedder):
        tags = estimator(checkpoints("bert")).__sklearn_tags__().input_tags
        assert tags.string and not tags.two_d_array


# ---- diagnostics and the run --------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fine_tune", ["head", "all"])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_conditioning_and_convergence_are_recorded(checkpoints, estimator, fine_tune, n_layers):
    texts, y = data(estimator)
    model = small(checkpoints("bert"), estimator, fine_tune=fine_tune, n_layers=n_layers)
    model.set_params(max_iter=4, conditioning_interval=2).fit(texts, y)
    record = model.conditioning_
    assert record.epochs.tolist() == [0, 2, 4]
    assert record.sigma_min.shape == (3, n_layers)
    for of in ("Z", "attention"):
        assert np.isfinite(record.get("sigma_min", of=of, layer=0))
        assert record.get("condition_number", of=of) >= 1
    if fine_tune == "head":  # the encoder stays, and its conditioning with it
        np.testing.assert_array_equal(record.sigma_min[0], record.sigma_min[-1])
    else:
        assert (record.sigma_min[0] != record.sigma_min[-1]).all()
    measured = measure_conditioning(model, texts)
    np.testing.assert_allclose(measured.sigma_min[-1], record.sigma_min[-1], rtol=1e-6)
    assert model.convergence_.get("final_loss") == pytest.approx(model.loss_curve_[-1])
    assert np.isfinite(model.convergence_.get("rate"))


def test_conditioning_is_that_of_the_scaled_residual(checkpoints):
    """Z = Attn(X) + beta X of the first layer, from transformers' own parts."""
    texts, y = data()
    folder = checkpoints("bert")
    for beta in (0.0, 0.5, 1.0):
        model = small(folder, residual_beta=beta, n_layers=1, fine_tune="head", dtype="float64")
        model.fit(texts, y)
        layer, seen = tiny.fresh_reference(folder).encoder.layer[0], {}
        dense = layer.attention.output.dense
        dense.register_forward_hook(lambda _, args, out, seen=seen: seen.update(attention=out))
        theirs = tiny.fresh_reference(folder)
        theirs.encoder.layer[0] = layer
        states, mask = tiny.hidden_states(folder, texts, model=theirs)
        Z = seen["attention"].detach().numpy()[mask] + beta * states[0][mask]
        sigma = np.linalg.svd(Z, compute_uv=False)
        np.testing.assert_allclose(model.conditioning_.sigma_min[0, 0], sigma[-1], rtol=1e-7)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("fine_tune", ["head", "all"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_every_number_type_trains(checkpoints, estimator, fine_tune, dtype):
    texts, y = data(estimator)
    model = small(checkpoints("bert"), estimator, fine_tune=fine_tune, dtype=dtype).fit(texts, y)
    kind = torch.float64 if dtype == "float64" else torch.float32
    assert {weight.dtype for weight in model.net_.module_.parameters()} == {kind}
    exact = clone(model).set_params(dtype="float64").fit(texts, y)
    tolerance = {"float32": 1e-3, "float64": 0.0, "bfloat16": 0.1}[dtype]
    np.testing.assert_allclose(outputs(model, texts), outputs(exact, texts), rtol=0, atol=tolerance)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(again, texts), outputs(model, texts))


def test_callbacks_and_progress(checkpoints, capsys):
    texts, y = data()
    for fine_tune in ("head", "all"):
        seen = Recorder()
        model = small(checkpoints("bert"), callbacks=[seen], verbose=1, fine_tune=fine_tune)
        model.fit(texts, y)
        assert seen.epochs_ == 2 and len(seen.split_[0]) == len(texts)
        printed = capsys.readouterr().out
        assert "train_loss" in printed and len(printed.strip().splitlines()) == 4
    with pytest.raises(TypeError, match="callbacks must hold skorch callbacks"):
        model.set_params(callbacks=[3]).fit(texts, y)


def test_paths_and_stacked_searches_say_that_they_are_for_other_models(checkpoints):
    texts, y = data()
    model = small(checkpoints("bert"))
    message = "estimator must be a ResidualTransformerRegressor or -Classifier, got Pretrained"
    with pytest.raises(TypeError, match=message):
        residual_beta_path(texts, y, [0.5, 1.0], estimator=model)
    with pytest.raises(TypeError, match="ResidualTransformer"):
        StackedGridSearchCV(model, {"residual_beta": [0.5, 1.0]}).fit(texts, y)


def test_the_model_is_the_package_s_own_transformer(checkpoints):
    texts, y = data()
    module = small(checkpoints("bert")).fit(texts, y).net_.module_
    plain = ResidualTransformerClassifier(d_model=8, max_iter=1, random_state=0)
    assert type(module) is type(plain.fit(np.eye(8), [0, 1] * 4).net_.module_)


@pytest.mark.parametrize("fine_tune", ["head", 1, "all"])
def test_nothing_of_the_process_changes(checkpoints, fine_tune):
    def state():
        return (
            torch.get_num_threads(),
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            list(warnings.filters),
            dict(os.environ),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
        )

    texts, y = data()
    before, files = state(), tiny.digest(checkpoints("bert"))
    model = small(checkpoints("bert"), fine_tune=fine_tune, early_stopping=True)
    model.set_params(dropout=0.5, max_iter=1).fit(texts, y).predict(texts)
    assert state() == before
    assert tiny.digest(checkpoints("bert")) == files
