"""IntervalDisplay shows forecasts, bands and truth, and counts what lies inside."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from sklearn_restrans import IntervalDisplay
from sklearn_restrans.forecasting import ConformalIntervals

FORECAST = [1.0, 2.0, 3.0]
ENDS = {0.8: [[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]], 0.5: [[0.5, 1.5], [1.5, 2.5], [2.5, 3.5]]}


def outline(band):
    """Lower and upper ends of a drawn band at each of its places."""
    points = band.get_paths()[0].vertices
    return {
        x: (points[points[:, 0] == x, 1].min(), points[points[:, 0] == x, 1].max())
        for x in np.unique(points[:, 0])
    }


def test_what_is_drawn_are_the_numbers():
    display = IntervalDisplay(FORECAST, dict(reversed(ENDS.items())), truth=[1.0, 3.0, 9.0]).plot()
    assert list(display.bands_) == [0.8, 0.5], "the widest first, so that none hides another"
    np.testing.assert_array_equal(display.line_.get_ydata(), FORECAST)
    np.testing.assert_array_equal(display.dots_.get_ydata(), [1.0, 3.0, 9.0])
    for level, ends in ENDS.items():
        assert list(outline(display.bands_[level]).values()) == [tuple(pair) for pair in ends]
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["0.8", "0.5", "forecast", "truth"]


def test_shares_inside_count_the_truth_that_is_known():
    display = IntervalDisplay(FORECAST, ENDS, truth=[1.0, 3.0, np.nan])
    assert display.coverages() == {0.8: 1.0, 0.5: 0.5}
    for truth in (None, [np.nan] * 3):
        with pytest.raises(ValueError, match="truth is needed to count"):
            IntervalDisplay(FORECAST, ENDS, truth=truth).coverages()


def test_infinite_ends_leave_the_picture():
    ends = {0.9: [[-np.inf, np.inf], [1.0, 3.0], [2.0, 4.0]]}
    display = IntervalDisplay(FORECAST, ends).plot()
    low, high = outline(display.bands_[0.9])[0.0]
    assert np.isfinite([low, high]).all() and low < 1.0 and high > 4.0


@pytest.mark.parametrize("columns", [0, 2])
def test_a_calibrated_estimator_is_drawn_over_the_index_of_its_targets(columns):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    index = pd.date_range("2020", periods=200, freq="h")
    frame = pd.DataFrame(X + rng.standard_normal((200, 2)), index=index)
    y = frame if columns else frame[1]
    model = ConformalIntervals(Ridge()).fit(X[:150], y[:150])
    _, ax = plt.subplots()
    settings = {"coverage": (0.8, 0.5), "ax": ax, "output": 1 if columns else 0}
    display = IntervalDisplay.from_estimator(model, X[150:], y[150:], **settings)
    assert display.ax_ is ax and (display.x == index[150:]).all()
    expected = model.predict_interval(X[150:], 0.8)
    expected = expected[:, 1] if columns else expected
    np.testing.assert_array_equal(display.intervals[0.8], expected)
    np.testing.assert_array_equal(display.truth, frame[1][150:])
    ridge = Ridge().fit(X[:120], y[:120]).predict(X[150:])
    np.testing.assert_allclose(display.forecast, ridge[:, 1] if columns else ridge)
    single = IntervalDisplay.from_estimator(model, X[150:152], coverage=0.5)
    assert list(single.bands_) == [0.5] and single.dots_ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FORECAST, {}), "intervals is an empty dict"),
        ((FORECAST, [[0, 1]] * 3), "intervals must be a dict from labels to lower and upper ends"),
        ((FORECAST, {90: ENDS[0.8]}), "coverages between 0 and 1 as its keys, got 90"),
        ((FORECAST, {"wide": ENDS[0.8]}), "as its keys, got 'wide'"),
        ((FORECAST, {0.8: ENDS[0.8][:2]}), r"intervals\[0.8\] must have shape .* = \(3, 2\), got"),
        ((FORECAST, {0.8: [[2, 1]] * 3}), "a lower end above the upper one"),
        ((FORECAST, {0.8: [[np.nan, 1]] * 3}), r"intervals\[0.8\] has a missing end"),
        (([np.nan, 1, 2], ENDS), "forecast must be finite"),
    ],
)
def test_what_cannot_be_drawn_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        IntervalDisplay(*arguments)


def test_places_and_truth_have_an_entry_for_each_forecast():
    with pytest.raises(ValueError, match="truth must hold one value for each of the 3 forecasts"):
        IntervalDisplay(FORECAST, ENDS, truth=[1.0])
    with pytest.raises(ValueError, match="x must hold one place for each of the 3 forecasts"):
        IntervalDisplay(FORECAST, ENDS, x=[1, 2])


def test_estimators_without_intervals_and_outputs_that_are_not_there_are_named():
    X = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(TypeError, match=r"estimator must have predict_interval.* got Ridge\(\)"):
        IntervalDisplay.from_estimator(Ridge().fit(X, X), X)
    model = ConformalIntervals(Ridge()).fit(X, X)
    for output in (2, -1, True, "T"):
        with pytest.raises(ValueError, match="output must be the number of a column, 0 to 1, got"):
            IntervalDisplay.from_estimator(model, X, coverage=0.5, output=output)


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_dates_do_not_run_into_each_other(zone):
    """Labels of one axis, side by side, leave room: each is drawn left of the next."""
    x = pd.date_range("2013-10-20", periods=200, freq="h", tz=zone)
    values = np.arange(200.0)
    ends = np.stack([values - 1, values + 1], 1)
    display = IntervalDisplay(values, {0.8: ends}, x=x).plot()
    figure = display.ax_.figure
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in display.ax_.get_xticklabels() if t.get_text()]
    assert len(boxes) > 3
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
