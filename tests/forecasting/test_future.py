"""The rows after the last one are those that a calendar names, and the newest window is read."""

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans import SequenceView
from sklearn_restrans.forecasting import make_supervised
from sklearn_restrans.forecasting.future import Calendar, newest_window, seasons_of

# Index, and the labels one and two steps after its last one, as a calendar on the wall has them.
LAST_ROWS = {
    "hours": (
        pd.date_range("2024-01-01", periods=30, freq="h"),
        ["2024-01-02 06:00", "2024-01-02 07:00"],
    ),
    "month ends": (
        pd.date_range("2023-01-31", periods=25, freq="ME"),
        ["2025-02-28", "2025-03-31"],
    ),
    "month starts": (
        pd.date_range("2023-02-01", periods=11, freq="MS"),
        ["2024-01-01", "2024-02-01"],
    ),
    "business days": (
        pd.date_range("2024-05-01", "2024-05-31", freq="B"),
        ["2024-06-03", "2024-06-04"],
    ),
    "quarters": (
        pd.date_range("2022-03-31", periods=8, freq="QE"),
        ["2024-03-31", "2024-06-30"],
    ),
}


@pytest.mark.parametrize("name", LAST_ROWS)
def test_the_rows_ahead_follow_the_calendar(name):
    index, expected = LAST_ROWS[name]
    frame = pd.DataFrame({"x": np.arange(len(index), dtype=float)}, index=index.rename("when"))
    calendar = Calendar(frame.index, make_supervised(frame, "x", 1)[1].attrs["freq"])
    ahead = calendar.ahead(frame.index, [1, 2])
    assert list(ahead) == list(pd.to_datetime(expected))
    assert ahead.name == "when"


def test_the_rows_ahead_are_hours_where_the_clock_changes():
    index = pd.date_range("2024-03-29 00:00", "2024-03-31 01:00", freq="h", tz="Europe/Berlin")
    ahead = Calendar(index, "h").ahead(index, [1, 2])
    # 02:00 does not exist on the last Sunday of March.
    assert [stamp.isoformat() for stamp in ahead] == [
        "2024-03-31T03:00:00+02:00",
        "2024-03-31T04:00:00+02:00",
    ]


def test_the_rows_ahead_have_the_kind_of_the_index():
    months = pd.period_range("2023-01", periods=24, freq="M")
    assert list(Calendar(months, "MS").ahead(months, [1, 3])) == [
        pd.Period("2025-01", "M"),
        pd.Period("2025-03", "M"),
    ]
    hours = pd.timedelta_range("0h", periods=10, freq="h")
    assert list(Calendar(hours, "h").ahead(hours, [2])) == [pd.Timedelta("11h")]
    every_second = pd.RangeIndex(4, 24, 2, name="row")
    ahead = Calendar(every_second, 2).ahead(every_second, [1, 3])
    assert list(ahead) == [24, 28]
    assert ahead.name == "row"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            pd.date_range("2025-01-01", periods=40, freq="30min"),
            "other frequency .*00:30:00 apart",
        ),
        (pd.date_range("2025-01-01", periods=40, freq="2h"), "step was 'h'"),
        (pd.RangeIndex(40), "row numbers, but in fit it was by time stamps"),
        (pd.MultiIndex.from_product([["a", "b"], range(20)]), "several series"),
    ],
)
def test_an_index_of_another_step_is_refused(other, message):
    calendar = Calendar(pd.date_range("2024-01-01", periods=40, freq="h"), "h")
    with pytest.raises(ValueError, match=message):
        calendar.times(other)


def test_an_index_with_gaps_has_the_same_step():
    index = pd.date_range("2024-01-01", periods=400, freq="h")
    kept = np.random.default_rng(0).random(400) > 0.2
    calendar = Calendar(index, "h")
    assert calendar.times(index[kept]).equals(index[kept])
    rows = Calendar(pd.RangeIndex(40), 1)
    with pytest.raises(ValueError, match="row numbers with gaps"):
        rows.times(pd.Index([0, 1, 5]))


@pytest.mark.parametrize("horizons", [[1], [3], [2, 5]])
@pytest.mark.parametrize("options", [{}, {"patch": 2, "relative": "last"}, {"dilation": 3}])
@pytest.mark.parametrize("index", [pd.RangeIndex(5, 105, 2), pd.date_range("2024", periods=50)])
def test_the_newest_window_is_that_of_the_last_row(horizons, options, index):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50, 2)), index=index, columns=["a", "b"])
    options = {"window": 4} | options
    _, y = make_supervised(frame, ["a", "b"], horizons, **options)
    view = newest_window(frame, ["a", "b"], horizons, Calendar(index, y.attrs["freq"]), options)
    by_hand = {name: value for name, value in options.items() if name != "relative"}
    np.testing.assert_array_equal(view, SequenceView(frame, [49], **by_hand))
    assert view.form.relative == options.get("relative")


def test_the_newest_window_stops_at_a_gap():
    index = pd.date_range("2024-01-01", periods=40, freq="h").delete([36])
    frame = pd.DataFrame({"a": np.arange(39.0)}, index=index)
    view = newest_window(frame, "a", [1], Calendar(index, "h"), {"window": 6})
    assert np.isnan(np.asarray(view)[0, :3, 0]).all()
    assert np.asarray(view)[0, 3:, 0].tolist() == [36.0, 37.0, 38.0]


def test_seasons_are_whole_numbers_of_steps():
    assert seasons_of("h") == {"day": 24, "week": 168}
    assert seasons_of("10min") == {"day": 144, "week": 1008}
    assert seasons_of("D") == {"week": 7, "year": 365}
    assert seasons_of("B") == {"week": 5, "year": 261}
    assert seasons_of("W-TUE") == {"year": 52}
    assert seasons_of("ME") == {"year": 12}
    assert seasons_of("QS-OCT") == {"year": 4}
    assert seasons_of(pd.Timedelta("7h")) == {"week": 24}
    assert seasons_of("YS") == seasons_of("ms") == seasons_of(3) == seasons_of(None) == {}
