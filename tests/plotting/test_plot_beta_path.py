"""BetaPathDisplay shows the means and intervals that a path holds."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    BetaPathDisplay,
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


def test_bad_input_of_a_path_is_named(models):
    with pytest.raises(ValueError, match=r"table must be a DataFrame with columns .*, got int"):
        BetaPathDisplay(3)
    with pytest.raises(ValueError, match=r"pass a fitted \.\.\.CV estimator"):
        BetaPathDisplay.from_estimator(models["beta = 0.0"])
