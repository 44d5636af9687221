"""Early stopping sets aside the last windows of every station, and trains on none of their rows."""

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans import ResidualTransformerRegressor, SequenceView
from sklearn_restrans._data.split import split_rows
from sklearn_restrans._data.windows import of_stations
from sklearn_restrans._estimators.preparation import check_data

FRACTION = 0.2


def split(view, weight=None, fraction=FRACTION):
    return split_rows(view, np.zeros(len(view)), weight, fraction, 0, stratified=False)


def rows_of_window(view, sample):
    """Rows a window looks at, by the definition."""
    end = view.ends[sample]
    first = 0 if view.first is None else view.first[end]
    rows = end - np.arange(view.window) * view.dilation
    return set(rows[rows >= first].tolist())


def assert_no_leak(view, stations, train, valid):
    """Training windows of a station end before the first row of its validation windows."""
    assert not set(train) & set(valid)
    for station in np.unique(stations):
        own = [k for k in valid if stations[view.ends[k]] == station]
        if not own:
            continue
        first = min(min(rows_of_window(view, k)) for k in own)
        before = [view.ends[k] for k in train if stations[view.ends[k]] == station]
        assert all(end < first for end in before)


def share_of(stations, view, rows):
    return {s: np.mean(stations[view.ends[rows]] == s) for s in np.unique(stations)}


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("window", [1, 6])
def test_every_station_trains_and_validates(window, dilation):
    stations = np.repeat(["b", "a", "c"], [100, 160, 240])
    view = SequenceView(
        np.zeros((500, 1)), np.arange(500), window, dilation=dilation, segments=stations
    )
    train, valid = split(view)
    for station, size in (("b", 100), ("a", 160), ("c", 240)):
        own = np.flatnonzero(stations == station)
        expected = own[-int(FRACTION * size) :]
        np.testing.assert_array_equal(np.intersect1d(valid, own), expected)
        lost = (window - 1) * dilation
        np.testing.assert_array_equal(
            np.intersect1d(train, own), own[: len(own) - len(expected) - lost]
        )
    assert_no_leak(view, stations, train, valid)


def test_weights_of_zero_do_not_move_the_share_of_a_station():
    stations = np.repeat([0, 1], 100)
    weight = np.ones(200)
    weight[50:100] = 0.0
    view = SequenceView(np.zeros((200, 1)), np.arange(200), 4, segments=stations)
    train, valid = split(view, weight)
    assert weight[train].all() and weight[valid].all()
    np.testing.assert_array_equal(valid, [*range(40, 50), *range(180, 200)])


def test_gaps_within_a_series_make_no_stations():
    """Forty stretches of ten hours: the last fifth validates, as in a series without gaps."""
    hours = np.arange(400) + 48 * (np.arange(400) // 10)
    index = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h")
    X = pd.DataFrame({"a": np.arange(400.0)}, index=index)
    model = ResidualTransformerRegressor(
        window=5, early_stopping=True, validation_fraction=FRACTION
    )
    with pytest.warns(UserWarning, match="gaps between the time stamps"):
        checked = check_data(model, X, np.arange(400.0))
    np.testing.assert_array_equal(checked.valid_rows, np.arange(320, 400))
    # Row 320 begins a stretch, so that no window is lost between the parts.
    np.testing.assert_array_equal(checked.rows, np.arange(320))


@pytest.mark.parametrize("named_by", ["segments", "index"])
def test_stations_with_gaps_validate_at_their_ends(named_by):
    """Two stations of 200 hours, each cut into stretches; both are told in either way."""
    hours = np.tile(np.arange(200) + 30 * (np.arange(200) // 50), 2)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h")
    names = np.repeat(["x", "w"], 200)
    X, segments = pd.DataFrame({"a": np.arange(400.0)}, index=times), names
    if named_by == "index":
        X.index, segments = pd.MultiIndex.from_arrays([names, times]), None
    model = ResidualTransformerRegressor(
        window=8, early_stopping=True, validation_fraction=FRACTION
    )
    checked = check_data(model, X, np.arange(400.0), segments=segments)
    np.testing.assert_array_equal(checked.valid_rows, [*range(160, 200), *range(360, 400)])
    assert_no_leak(checked.X, names, checked.rows, checked.valid_rows)
    # The validation windows begin in row 153: the stretch they stand in begins at 150.
    np.testing.assert_array_equal(checked.rows, [*range(153), *range(200, 353)])


def test_a_label_that_comes_back_is_the_same_station():
    stretches, stations = np.repeat([0, 1, 2], 50), np.repeat([0, 1, 0], 50)
    view = SequenceView(np.zeros((150, 1)), np.arange(150), 4, segments=stretches)
    train, valid = split(of_stations(view, stations))
    np.testing.assert_array_equal(valid, [*range(90, 100), *range(130, 150)])
    assert_no_leak(view, stations, train, valid)


@pytest.mark.parametrize("n_stations", [2, 5, 30])
def test_short_stations_validate_as_a_whole(n_stations):
    """Of 12 rows with windows of 10 the tail split would leave nothing to train on."""
    stations = np.repeat(np.arange(n_stations), 12)
    view = SequenceView(
        np.zeros((len(stations), 1)), np.arange(len(stations)), 10, segments=stations
    )
    train, valid = split(view)
    chosen = np.unique(stations[valid])
    assert len(chosen) == max(1, round(FRACTION * n_stations))
    assert len(train) + len(valid) == len(view), "nothing is lost"
    assert not set(chosen) & set(stations[train])
    if n_stations == 30:  # they come from all over the stations, and not from the end
        assert chosen.min() < 6 and chosen.max() >= 24


def test_short_and_long_stations_together():
    stations = np.repeat(np.arange(12), [200, *[8] * 10, 200])
    view = SequenceView(np.zeros((480, 1)), np.arange(480), 8, segments=stations)
    train, valid = split(view)
    assert_no_leak(view, stations, train, valid)
    held = np.unique(stations[valid])
    assert {0, 11} <= set(held) and len(held) == 4, "two of the ten short ones"
    assert {0, 11} <= set(stations[train])
    assert 0.15 < len(valid) / len(view) < 0.25


@pytest.mark.parametrize("seed", range(20))
def test_no_row_of_a_validation_window_is_trained_on(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60, rng.integers(1, 9))
    stations = np.repeat(np.arange(len(sizes)), sizes)
    n = len(stations)
    ends = (
        np.sort(rng.permutation(n)[: rng.integers(max(4, n // 2), n + 1)])
        if n > 8
        else np.arange(n)
    )
    view = SequenceView(
        np.zeros((n, 1)),
        ends,
        int(rng.integers(1, 12)),
        dilation=int(rng.integers(1, 3)),
        segments=stations,
    )
    try:
        train, valid = split(view, fraction=float(rng.choice([0.1, 0.3, 0.5])))
    except ValueError as error:  # one short series has no room for both parts
        assert "leaves" in str(error)
        return
    assert_no_leak(view, stations, train, valid)


def test_a_station_is_no_longer_the_whole_validation_part():
    """The last station is of another kind: its loss alone would stop the training of the others."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 2))
    stations = np.repeat([0, 1, 2], 200)
    y = np.where(stations == 2, -1.0, 1.0) * X[:, 0]
    model = ResidualTransformerRegressor(window=3, early_stopping=True, max_iter=5, random_state=0)
    checked = check_data(model, X, y, segments=stations)
    assert set(stations[checked.valid_rows]) == set(stations[checked.rows]) == {0, 1, 2}
    # Of every segment the rows up to its last training window scale the inputs.
    np.testing.assert_allclose(
        checked.preprocessing.scaler.mean,
        np.concatenate([X[a : a + 178] for a in (0, 200, 400)]).mean(axis=0),
        rtol=1e-12,
    )
