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


NO_CURVES = {
    "None": (None, "curves must be a dict from labels to losses per epoch, got NoneType"),
    "a text": ("abc", "curves must be a dict from labels to losses per epoch, got str"),
    "a list": ([1.0, 2.0], "curves must be a dict from labels to losses per epoch, got list"),
    "an empty dict": ({}, "curves is an empty dict: pass losses per epoch"),
    "labels that print alike": ({1: [1.0], "1": [2.0]}, "curves has two labels that print alike"),
    "a number": ({"a": 3.0}, r"curves\['a'\] must be a list of losses, one per epoch, got 3\.0"),
    "words": ({"a": ["x"]}, r"curves\['a'\] must be a list of losses, one per epoch, got \['x'\]"),
    "a matrix": ({"a": np.ones((2, 3))}, r"curves\['a'\] must .* an array of shape \(2, 3\)"),
    "NaN": (
        {"a": [1.0], "b": [1.0, np.nan]},
        r"curves\['b'\] must be finite, got nan at position 1",
    ),
    "infinity": ({"a": [np.inf]}, r"curves\['a'\] must be finite, got inf at position 0"),
}


@pytest.mark.parametrize("case", NO_CURVES)
def test_what_is_not_a_curve_is_refused_in_words(case):
    wrong, sentence = NO_CURVES[case]
    with pytest.raises(ValueError, match=sentence):
        ConvergenceDisplay(wrong)


def test_curves_may_differ_in_length_and_hold_zeros():
    curves = {"a": [1.0, 0.5, 0.0], "b": [2.0, 1.0]}
    display = ConvergenceDisplay(curves).plot()
    assert [line.get_ydata().tolist() for line in display.lines_] == list(curves.values())
    assert display.ax_.get_yscale() == "linear", "a logarithmic axis has no place for 0"
    with pytest.raises(ValueError, match=r"relative=True divides .* is 0 in curves\['b'\]"):
        ConvergenceDisplay({"a": [1.0], "b": [0.0, 0.0]}, relative=True).plot()


def test_losses_that_fall_by_decades_have_a_logarithmic_axis():
    assert ConvergenceDisplay({"a": [1.0, 0.05]}).plot().ax_.get_yscale() == "log"
    assert ConvergenceDisplay({"a": [1.0, 0.5]}).plot().ax_.get_yscale() == "linear"


def test_ticks_stand_at_whole_epochs():
    ax = ConvergenceDisplay({"a": [1.0, 0.5, 0.4]}).plot().ax_
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_the_curve_of_one_estimator_needs_no_legend(models):
    assert ConvergenceDisplay.from_estimator(models["beta = 1.0"]).ax_.get_legend() is None


def test_a_long_legend_stands_beside_the_axes():
    ax = ConvergenceDisplay({k: [1.0, 0.5] for k in range(30)}).plot().ax_
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def results(**columns):
    """A table of a search with three candidates."""
    return {
        "param_residual_beta": [1.0, 0.0, 2.0],
        "mean_test_rate": [3.0, 1.0, 2.0],
        "std_test_rate": [0.1, 0.1, 0.1],
    } | columns


def test_every_setting_of_the_other_parameters_has_a_curve_of_its_own():
    twice = {name: column * 2 for name, column in results().items()}
    twice["param_mlp__alpha"] = [0.1] * 3 + [0.2] * 3
    twice["mean_test_rate"] = [3.0, 1.0, 2.0, 6.0, 4.0, 5.0]
    display = ConvergenceDisplay.from_cv_results(twice)
    assert {label: curve.tolist() for label, curve in display.curves.items()} == {
        "alpha = 0.1": [1.0, 3.0, 2.0],
        "alpha = 0.2": [4.0, 6.0, 5.0],
    }
    for line in display.lines_:
        assert line.get_xdata().tolist() == [0.0, 1.0, 2.0]
    assert len(display.ax_.get_legend().get_texts()) == 2


def test_failed_candidates_and_those_without_the_parameter_are_left_out():
    display = ConvergenceDisplay.from_cv_results(results(mean_test_rate=[np.nan, 1.0, 2.0]))
    assert display.lines_[0].get_xdata().tolist() == [0.0, 2.0]
    masked = np.ma.masked_array([1.0, 0.0, 2.0], [False, True, False])
    display = ConvergenceDisplay.from_cv_results(results(param_residual_beta=masked))
    assert display.lines_[0].get_xdata().tolist() == [1.0, 2.0]


def test_a_parameter_over_decades_has_a_logarithmic_axis():
    table = results(param_alpha=[1e-4, 1e-2, 1.0], param_residual_beta=[1.0, 1.0, 1.0])
    display = ConvergenceDisplay.from_cv_results(table, x="alpha")
    assert display.ax_.get_xscale() == "log"
    assert ConvergenceDisplay.from_cv_results(results()).ax_.get_xscale() == "linear"


NO_RESULTS = {
    "no number": (
        results(mean_test_rate=["a", "b", "c"]),
        "column 'mean_test_rate' must hold numb",
    ),
    "nothing": ({}, r"cv_results has no column 'mean_test_rate'; its scorers are \[\]"),
    "other lengths": (results(mean_test_rate=[1.0]), "cv_results must have columns of one length"),
    "only failures": (results(mean_test_rate=[np.nan] * 3), "quantity='rate' has no finite value"),
    "None as beta": (
        results(param_residual_beta=[None, 1, 2]),
        "x='residual_beta' must be a param",
    ),
}


@pytest.mark.parametrize("case", NO_RESULTS)
def test_results_that_cannot_be_drawn_are_refused_in_words(case):
    wrong, sentence = NO_RESULTS[case]
    with pytest.raises(ValueError, match=sentence):
        ConvergenceDisplay.from_cv_results(wrong)


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
