"""Displays show the numbers that fit recorded."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    BetaPathDisplay,
    ConvergenceDisplay,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleRegressor,
    SpectrumDisplay,
    make_conditioning_scorer,
    make_convergence_scorer,
    residual_beta_path,
)

NAMES = ("test_score", "test_rate", "test_sigma_min")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return make_regression(60, 4, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def models(data):
    return {
        f"beta = {beta}": ResidualTransformerRegressor(
            beta, d_model=8, max_iter=4, random_state=0
        ).fit(*data)
        for beta in (0.0, 1.0)
    }


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


def test_spectra_are_the_recorded_singular_values_up_to_the_rank(models):
    for stage, record in (("initial", 0), ("final", -1)):
        display = SpectrumDisplay.from_estimator(models, stage=stage)
        for k, model in enumerate(models.values()):
            rank = model.conditioning_.input_rank[record, -1]
            z, attention = (line.get_ydata() for line in display.lines_[2 * k : 2 * k + 2])
            expected = model.conditioning_.Z.singular_values[record, -1, :rank]
            np.testing.assert_array_equal(z, expected)
            expected = model.conditioning_.attention.singular_values[record, -1, :rank]
            np.testing.assert_array_equal(attention, expected)


def test_displays_draw_where_they_are_told(models):
    _, ax = plt.subplots()
    assert ConvergenceDisplay.from_estimator(models, ax=ax).ax_ is ax
    assert SpectrumDisplay.from_estimator(models, ax=ax).ax_ is ax
    assert len(plt.get_fignums()) == 1


def test_curves_differ_in_colour_and_marker():
    lines = ConvergenceDisplay({k: [1.0, 0.5] for k in range(10)}).plot().lines_
    assert len({line.get_marker() for line in lines}) == 10
    lightness = [np.dot(line.get_color()[:3], [0.2126, 0.7152, 0.0722]) for line in lines]
    assert (np.diff(lightness) > 0).all(), "grey print tells the curves apart by lightness"


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


def test_bad_input_is_named(models):
    with pytest.raises(ValueError, match="stage must be 'final' or 'initial', got 'middle'"):
        SpectrumDisplay.from_estimator(models, stage="middle")
    with pytest.raises(ValueError, match="no convergence_ found in StandardScaler"):
        ConvergenceDisplay.from_estimator(StandardScaler())
    for layer in (1, -2, 0.5):
        with pytest.raises(ValueError, match=f"layer must be an integer from -1 to 0, got {layer}"):
            SpectrumDisplay.from_estimator(models, layer=layer)
    with pytest.raises(ValueError, match="estimator is an empty dict"):
        ConvergenceDisplay.from_estimator({})
    for nothing in ({}, [1.0, 2.0]):
        with pytest.raises(ValueError, match="curves must be a dict of labels, not empty, got"):
            ConvergenceDisplay(nothing)
    for wrong in ([1.0, 2.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"spectra: 'a' must be a pair \(attention, Z\)"):
            SpectrumDisplay({"a": wrong})
    with pytest.raises(ValueError, match=r"table must be a DataFrame with columns .*, got int"):
        BetaPathDisplay(3)
    with pytest.raises(ValueError, match=r"pass a fitted \.\.\.CV estimator"):
        BetaPathDisplay.from_estimator(models["beta = 0.0"])
    for display in (ConvergenceDisplay, SpectrumDisplay, BetaPathDisplay):
        with pytest.raises(TypeError, match="cv_results must be cv_results_ of a search, or the"):
            display.from_cv_results(ResidualTransformerRegressor())


def test_a_seed_ensemble_is_drawn_member_by_member(data):
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


def test_a_path_is_drawn_with_its_means_and_intervals(data):
    model = ResidualTransformerRegressor(d_model=8, max_iter=3, random_state=0)
    path = residual_beta_path(*data, [2.0, 0.0, 1.0], estimator=model, cv=3, n_seeds=2)
    display = BetaPathDisplay.from_estimator(path, quantities=("loss", "sigma_min_Z"))
    assert [ax.get_ylabel() for ax in display.axes_] == ["loss", "sigma min Z"]
    table = path.summary().sort_index()
    for line, ax, name in zip(display.lines_, display.axes_, display.quantities, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [0.0, 1.0, 2.0])
        np.testing.assert_array_equal(line.get_ydata(), table[name, "mean"])
        ends = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert set(table[name, "low"]) | set(table[name, "high"]) <= set(ends)
    assert display.axes_[1].get_yscale() == "log"
    unscored = residual_beta_path(*data, [0.0, 1.0], estimator=model)
    assert "score" not in BetaPathDisplay.from_estimator(unscored).quantities
    with pytest.raises(ValueError, match=r"must be among .*'loss'.*, got 'mae'"):
        BetaPathDisplay.from_estimator(path, quantities=["mae"])
    assert BetaPathDisplay.from_estimator(path, quantities="score").quantities == ["score"]
    for wrong in ([], ["loss", "loss"]):
        with pytest.raises(ValueError, match=r"quantities must name one or more of .*, each once"):
            BetaPathDisplay.from_estimator(path, quantities=wrong)
    with pytest.raises(ValueError, match=r"quantities=\['score'\] have no finite value"):
        BetaPathDisplay.from_estimator(unscored, quantities="score")
    with pytest.raises(ValueError, match="ax holds 1 axes for 2 quantities"):
        display.plot(plt.subplots()[1])


def test_a_cv_estimator_and_its_results_are_drawn_alike(data):
    model = ResidualTransformerRegressorCV([1.0, 0.0], cv=2, d_model=8, max_iter=3, random_state=0)
    pipe = make_pipeline(StandardScaler(), model).fit(*data)
    drawn = BetaPathDisplay.from_estimator(pipe, quantities=("loss", "score", "sigma_min_Z"))
    again = BetaPathDisplay.from_cv_results(pipe[-1].cv_results_)
    for a, b in zip(drawn.lines_, again.lines_, strict=True):
        np.testing.assert_allclose(a.get_ydata(), b.get_ydata(), rtol=1e-12)
    results = pipe[-1].cv_results_
    one = BetaPathDisplay.from_cv_results(results, quantities="test_score")
    assert one.quantities == ["test_score"]
    assert BetaPathDisplay.from_cv_results(pipe[-1]).quantities == again.quantities
    for wrong in (["x"], "x", 3):
        with pytest.raises(ValueError, match=r"quantities must be among .*'test_score'.*, got"):
            BetaPathDisplay.from_cv_results(results, quantities=wrong)


def test_another_search_is_drawn_by_what_its_results_hold(data):
    model = ResidualTransformerRegressor(d_model=8, max_iter=2, random_state=0)
    search = GridSearchCV(model, {"residual_beta": [1.0, 0.0]}, cv=2).fit(*data)
    display = BetaPathDisplay.from_cv_results(search)
    assert display.quantities == ["test_score"]
    np.testing.assert_array_equal(
        display.lines_[0].get_ydata(), search.cv_results_["mean_test_score"][::-1]
    )


@pytest.mark.parametrize("display", [BetaPathDisplay, ConvergenceDisplay, SpectrumDisplay])
def test_betas_that_are_pairs_have_no_axis(display):
    results = {"param_residual_beta": [0, (0, 1)]}
    results |= {f"{of}_{name}": [0.0, 1.0] for of in ("mean", "std") for name in NAMES}
    with pytest.raises(ValueError, match=r"x='residual_beta' took values that are no numbers: \[0"):
        display.from_cv_results(results)
