"""ConvergenceDisplay shows the numbers that fit recorded."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    ConvergenceDisplay,
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
    SpectrumDisplay,
    make_conditioning_scorer,
    make_convergence_scorer,
)


def test_loss_curves_are_the_recorded_losses(models):
    display = ConvergenceDisplay.from_estimator(models)
    for line, model in zip(display.lines_, models.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), model.loss_curve_)
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
    assert [t.get_text() for t in display.ax_.get_legend().get_texts()] == list(models)


def test_relative_curves_start_at_one(models):
    display = ConvergenceDisplay.from_estimator(models, relative=True)
    assert [line.get_ydata()[0] for line in display.lines_] == [1.0, 1.0]
    assert display.ax_.get_ylabel() == "Phi / Phi_0"


def test_curves_are_drawn_where_they_are_told(models):
    _, ax = plt.subplots()
    assert ConvergenceDisplay.from_estimator(models, ax=ax).ax_ is ax
    assert len(plt.get_fignums()) == 1


def test_search_results_are_drawn_against_the_parameter_through_a_pipeline(data):
    pipe = make_pipeline(
        StandardScaler(), ResidualTransformerRegressor(d_model=8, max_iter=3, random_state=0)
    )
    betas = [2.0, 0.0, 1.0]
    search = GridSearchCV(
        pipe,
        {"residualtransformerregressor__residual_beta": betas},
        cv=3,
        scoring={
            "r2": "r2",
            "rate": make_convergence_scorer("rate"),
            "sigma_min": make_conditioning_scorer("sigma_min"),
        },
        refit="r2",
    ).fit(*data)
    for cls, quantity in ((ConvergenceDisplay, "rate"), (SpectrumDisplay, "sigma_min")):
        display = cls.from_cv_results(search.cv_results_, quantity=quantity)
        line = display.lines_[0]
        np.testing.assert_array_equal(line.get_xdata(), [0.0, 1.0, 2.0])
        means = search.cv_results_[f"mean_test_{quantity}"]
        np.testing.assert_array_equal(line.get_ydata(), means[np.argsort(betas)])
    with pytest.raises(ValueError, match="its scorers are"):
        ConvergenceDisplay.from_cv_results(search.cv_results_, quantity="mae")
    with pytest.raises(ValueError, match="one of the searched parameters"):
        ConvergenceDisplay.from_cv_results(search.cv_results_, x="window")
    assert ConvergenceDisplay.from_estimator(search).lines_


def test_bad_input_of_curves_is_named():
    with pytest.raises(ValueError, match="no convergence_ found in StandardScaler"):
        ConvergenceDisplay.from_estimator(StandardScaler())
    with pytest.raises(ValueError, match="estimator is an empty dict"):
        ConvergenceDisplay.from_estimator({})
    for nothing in ({}, [1.0, 2.0]):
        with pytest.raises(ValueError, match="curves must be a dict of labels, not empty, got"):
            ConvergenceDisplay(nothing)


def test_a_seed_ensemble_has_a_curve_per_member(data):
    member = ResidualTransformerRegressor(d_model=8, max_iter=3, random_state=0)
    ensemble = SeedEnsembleRegressor(member, n_estimators=2, random_state=0).fit(*data)
    curves = ConvergenceDisplay.from_estimator({"a": ensemble, "b": ensemble.estimators_[0]}).curves
    assert list(curves) == ["a, member 1", "a, member 2", "b"]
    for curve, model in zip(curves.values(), ensemble.estimators_, strict=False):
        np.testing.assert_array_equal(curve, model.loss_curve_)
    assert list(SpectrumDisplay.from_estimator(ensemble).spectra) == ["member 1", "member 2"]


def test_a_curve_without_an_epoch_is_drawn_as_nothing():
    display = ConvergenceDisplay({"a": [], "b": [2.0, 1.0]}, relative=True).plot()
    assert [line.get_ydata().tolist() for line in display.lines_] == [[], [1.0, 0.5]]
