"""What both estimators report of a fit: epochs, and a loss curve that follows its definition."""

import dataclasses
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from smallmodels import ESTIMATORS, SAME, SMALL, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SequenceView,
    linearized_prediction,
    measure_conditioning,
)


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


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_loss_falls_under_full_batch_gradient_descent(estimator, seed):
    X, y = table(estimator, seed=seed)
    curve = (
        estimator(solver="gd", learning_rate_init=1e-3, random_state=seed, max_iter=10)
        .fit(X, y)
        .loss_curve_
    )
    assert all(later < earlier for earlier, later in pairwise(curve))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_is_not_taken_apart_as_a_dataclass_would_be(estimator):
    model = estimator(d_model=8)
    assert not dataclasses.is_dataclass(model)
    assert pd.DataFrame([model]).shape == (1, 1)


def test_a_subclass_may_add_a_parameter():
    class Named(ResidualTransformerRegressorCV):
        def __init__(self, betas=(0.0, 1.0), *, name="", d_model=4, max_iter=2):
            super().__init__(betas, d_model=d_model, max_iter=max_iter, cv=2, random_state=0)
            self.name = name

    X, y = table(ResidualTransformerRegressor)
    model = clone(Named(name="mine")).fit(X, y)
    assert model.name == "mine" and model.predict(X).shape == y.shape


def test_diagnostics_of_a_fit_read_nothing_from_later_parameters():
    X, y = table(ResidualTransformerClassifier)
    settings = {"solver": "gd", "learning_rate_init": "auto", "random_state": 0}
    model = ResidualTransformerClassifier(loss="squared_error", d_model=4, max_iter=3, **settings)
    model.fit(X, y)
    expected = linearized_prediction(model, X, y, n_steps=3).loss
    model.set_params(loss="log_loss", d_model=6, n_heads=4, n_layers=2, norm="pre")
    np.testing.assert_array_equal(linearized_prediction(model, X, y, n_steps=3).loss, expected)
    model.set_params(loss="log_loss", d_model=4, n_heads=1, n_layers=1, norm=None).fit(X, y)
    with pytest.raises(ValueError, match="linearized_prediction needs the squared error, got"):
        linearized_prediction(model.set_params(loss="squared_error"), X, y)


def test_conditioning_of_windows_takes_the_segments_of_its_rows():
    X, y = table(ResidualTransformerRegressor)
    labels = np.arange(len(X)) // 20
    model = ResidualTransformerRegressor(window=5, **SMALL).fit(X, y, segments=labels)
    view = SequenceView(X, np.arange(len(X)), 5, segments=labels)
    of_views = ResidualTransformerRegressor(**SMALL).fit(view, y)
    got = measure_conditioning(model, X, segments=labels).Z.singular_values
    # The same windows, weights and float64 products.
    np.testing.assert_array_equal(got, measure_conditioning(of_views, view).Z.singular_values)
