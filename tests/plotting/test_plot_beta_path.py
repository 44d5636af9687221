"""BetaPathDisplay shows the means and intervals that a path holds."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    BetaPathDisplay,
    ConvergenceDisplay,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    residual_beta_path,
)


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


def frame(columns, index=(0.0, 1.0)):
    return pd.DataFrame(columns, index=list(index))


NO_TABLES = {
    "None": (None, r"table must be a DataFrame with columns .*, got NoneType"),
    "a number": (3, r"table must be a DataFrame with columns .*, got int"),
    "a dict": ({"loss": [1.0]}, r"table must be a DataFrame with columns .*, got dict"),
    "one level": (frame({"loss": [1.0, 2.0]}), r"columns \(quantity, statistic\)"),
    "no row": (
        frame({("loss", "mean"): []}, ()),
        r"a row and a column or more, got shape \(0, 1\)",
    ),
    "no mean": (
        frame({("loss", "low"): [1.0, 2.0]}),
        r"must have a column \('loss', 'mean'\), got",
    ),
    "words as beta": (
        frame({("loss", "mean"): [1.0, 2.0]}, ("a", "b")),
        r"table must be indexed by beta, each a number and listed once, got \['a', 'b'\]",
    ),
    "a beta twice": (
        frame({("loss", "mean"): [1.0, 2.0]}, (0.0, 0.0)),
        r"table must be indexed by beta, each a number and listed once, got \[0\.0, 0\.0\]",
    ),
}


@pytest.mark.parametrize("case", NO_TABLES)
def test_what_is_not_a_table_of_a_path_is_refused_in_words(case):
    wrong, sentence = NO_TABLES[case]
    with pytest.raises(ValueError, match=sentence):
        BetaPathDisplay(wrong)


def test_an_estimator_without_a_path_is_refused_in_words(models):
    with pytest.raises(ValueError, match=r"pass a fitted \.\.\.CV estimator"):
        BetaPathDisplay.from_estimator(models["beta = 0.0"])


def test_a_search_over_more_than_beta_is_sent_to_the_display_that_can_draw_it():
    results = {
        "param_residual_beta": [0.0, 0.0, 1.0, 1.0],
        "param_alpha": [1, 2, 1, 2],
        "mean_test_score": [1.0, 2.0, 3.0, 4.0],
    }
    with pytest.raises(ValueError, match=r"draw it with ConvergenceDisplay\.from_cv_results"):
        BetaPathDisplay.from_cv_results(results)
    assert len(ConvergenceDisplay.from_cv_results(results, quantity="score").curves) == 2


def test_a_beta_whose_fits_diverged_leaves_the_logarithmic_axis_as_it_is():
    means = [1e-3, 1.0, np.nan]
    display = BetaPathDisplay(frame({("sigma", "mean"): means}, (0.0, 1.0, 2.0))).plot()
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), means)
    assert display.axes_[0].get_yscale() == "log"
