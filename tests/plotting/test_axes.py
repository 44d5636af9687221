"""What the displays share: styles, and the checks of what they are given."""

import numpy as np
import pytest

from sklearn_restrans import (
    BetaPathDisplay,
    ConvergenceDisplay,
    ResidualTransformerRegressor,
    SpectrumDisplay,
)

DISPLAYS = [BetaPathDisplay, ConvergenceDisplay, SpectrumDisplay]
NAMES = ("test_score", "test_rate", "test_sigma_min")


def test_curves_differ_in_colour_and_marker():
    lines = ConvergenceDisplay({k: [1.0, 0.5] for k in range(10)}).plot().lines_
    assert len({line.get_marker() for line in lines}) == 10
    lightness = [np.dot(line.get_color()[:3], [0.2126, 0.7152, 0.0722]) for line in lines]
    assert (np.diff(lightness) > 0).all(), "grey print tells the curves apart by lightness"


@pytest.mark.parametrize("display", DISPLAYS)
def test_results_of_a_search_that_is_not_fitted_are_refused(display):
    with pytest.raises(TypeError, match="cv_results must be cv_results_ of a search, or the"):
        display.from_cv_results(ResidualTransformerRegressor())


@pytest.mark.parametrize("display", DISPLAYS)
def test_betas_that_are_pairs_have_no_axis(display):
    results = {"param_residual_beta": [0, (0, 1)]}
    results |= {f"{of}_{name}": [0.0, 1.0] for of in ("mean", "std") for name in NAMES}
    with pytest.raises(ValueError, match=r"x='residual_beta' took values that are no numbers: \[0"):
        display.from_cv_results(results)
