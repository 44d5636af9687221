"""What the displays share: styles, and the checks of what they are given."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    BetaPathDisplay,
    ConvergenceDisplay,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleRegressor,
    SpectrumDisplay,
)

DISPLAYS = [BetaPathDisplay, ConvergenceDisplay, SpectrumDisplay]
NAMES = ("test_score", "test_rate", "test_sigma_min")


def test_curves_differ_in_colour_and_marker():
    lines = ConvergenceDisplay({k: [1.0, 0.5] for k in range(10)}).plot().lines_
    assert len({line.get_marker() for line in lines}) == 10
    lightness = [np.dot(line.get_color()[:3], [0.2126, 0.7152, 0.0722]) for line in lines]
    assert (np.diff(lightness) > 0).all(), "grey print tells the curves apart by lightness"


NOT_FITTED = [
    None,
    "model",
    3,
    StandardScaler(),
    StandardScaler,
    ResidualTransformerRegressor(),
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV([0.0, 1.0]),
    SeedEnsembleRegressor(ResidualTransformerRegressor()),
]


@pytest.mark.parametrize("display", DISPLAYS)
@pytest.mark.parametrize("estimator", NOT_FITTED, ids=lambda value: repr(value)[:40])
def test_what_is_not_a_fitted_estimator_is_refused_in_words(display, estimator):
    with pytest.raises(
        (TypeError, ValueError), match=r"estimator.*(got| in|no fitted)|no .* found"
    ):
        display.from_estimator(estimator)
    if display is not BetaPathDisplay:
        with pytest.raises((TypeError, ValueError), match=r"estimator.*(got|no)|no .* found"):
            display.from_estimator({"a": estimator})
        with pytest.raises(ValueError, match="estimator is an empty dict: pass fitted estimators"):
            display.from_estimator({})


@pytest.mark.parametrize("display", DISPLAYS)
def test_an_ensemble_without_a_member_is_refused_in_words(display):
    empty = SimpleNamespace(estimators_=[], get_params=dict)
    with pytest.raises(ValueError, match="estimator, a SimpleNamespace, has no fitted member"):
        display.from_estimator(empty)


@pytest.mark.parametrize("ax", ["here", 3, SimpleNamespace(plot=print)])
def test_axes_of_another_library_are_refused_in_words(ax):
    table = pd.DataFrame({("loss", "mean"): [0.9, 0.5]}, index=[0.0, 1.0])
    displays = [
        ConvergenceDisplay({"a": [1.0]}),
        SpectrumDisplay({"a": ([1.0], [1.0])}),
        BetaPathDisplay(table),
    ]
    for display in displays:
        with pytest.raises(
            TypeError, match=rf"ax must be a matplotlib Axes, got {type(ax).__name__}"
        ):
            display.plot(ax)
    with pytest.raises(TypeError, match=r"got ndarray\. Pass one of its elements"):
        displays[0].plot(plt.subplots(1, 2)[1])


@pytest.mark.parametrize("display", DISPLAYS)
def test_results_of_a_search_that_is_not_fitted_are_refused(display):
    with pytest.raises(TypeError, match="cv_results must be cv_results_ of a search, or the"):
        display.from_cv_results(ResidualTransformerRegressor())


@pytest.mark.parametrize("display", DISPLAYS)
def test_betas_that_are_pairs_have_no_axis(display):
    results = {"param_residual_beta": [0, (0, 1)]}
    results |= {f"{of}_{name}": [0.0, 1.0] for of in ("mean", "std") for name in NAMES}
    with pytest.raises(
        ValueError, match=r"x='residual_beta' must be a parameter whose .* numbers, got \[0"
    ):
        display.from_cv_results(results)
