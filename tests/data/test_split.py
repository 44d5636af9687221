"""Rows that train and rows that validate: nothing in common, nothing lost, nothing from later."""

import numpy as np
import pytest

from sklearn_restrans import SequenceView
from sklearn_restrans._data.split import check_weight, scaling_rows, split_rows


def split(X, fraction, *, y=None, weight=None, seed=0, stratified=False):
    y = np.arange(len(X)) if y is None else y
    return split_rows(X, y, weight, fraction, seed, stratified)


# ---- weights -------------------------------------------------------------------------------------


def test_weights_are_divided_by_the_largest():
    X = np.ones((3, 2))
    assert check_weight(None, X) is None
    np.testing.assert_array_equal(check_weight([0, 2, 8], X), [0.0, 0.25, 1.0])
    np.testing.assert_array_equal(check_weight(1e308 * np.array([1, 0.5, 0]), X), [1, 0.5, 0])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([0, 0, 0], "zero"),  # by scikit-learn where it is new enough
        ([1, -1, 1], "Negative values"),
        ([1, 1], r"sample_weight.shape == \(2,\), expected \(3,\)"),
        ([1, np.nan, 1], "NaN"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        check_weight(weight, np.ones((3, 2)))


# ---- rows drawn ----------------------------------------------------------------------------------


def test_without_a_fraction_every_row_with_a_weight_trains():
    rows, valid = split(np.ones((4, 2)), None, weight=np.array([1.0, 0.0, 0.5, 0.0]))
    assert (rows.tolist(), valid.tolist()) == ([0, 2], [])


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_drawn_rows_are_a_partition_that_the_seed_decides(fraction):
    weight = (np.arange(61) > 0).astype(float)
    for seed in range(3):
        rows, valid = split(np.ones((61, 2)), fraction, weight=weight, seed=seed)
        assert len(valid) == np.ceil(fraction * 60)
        assert sorted([*rows, *valid]) == list(range(1, 61)), "row 0 has no weight"
        assert (rows == np.sort(rows)).all() and (valid == np.sort(valid)).all()
        again = split(np.ones((61, 2)), fraction, weight=weight, seed=seed)
        np.testing.assert_array_equal(again[1], valid)
    assert not np.array_equal(split(np.ones((61, 2)), fraction, weight=weight)[1], valid)


def test_the_parts_keep_the_proportions_of_the_classes():
    y = np.repeat(["often", "seldom"], [54, 6])
    for seed in range(5):  # by chance alone all five would hold three with probability 0.003
        rows, valid = split(np.ones((60, 2)), 0.5, y=y, seed=seed, stratified=True)
        assert (len(rows), len(valid)) == (30, 30)
        assert (y[valid] == "seldom").sum() == 3


@pytest.mark.parametrize("seed", range(3))
def test_series_that_are_samples_are_drawn_like_the_rows_of_a_table(seed):
    """One window a segment: no time runs from one to the next."""
    lengths = np.random.default_rng(seed).integers(4, 9, 60)
    labels = np.repeat(np.arange(60), lengths)
    X = SequenceView(np.zeros((len(labels), 1)), np.cumsum(lengths) - 1, 8, segments=labels)
    y = np.repeat(["often", "seldom"], [54, 6])
    weight = (np.arange(60) > 0).astype(float)
    drawn = [
        split(some, 0.5, y=y, weight=weight, seed=seed, stratified=True)
        for some in (X, np.ones((60, 2)))
    ]
    for of_views, of_table in zip(*drawn, strict=True):
        np.testing.assert_array_equal(of_views, of_table)


# ---- windows -------------------------------------------------------------------------------------


def history_of(ends, window, dilation=1):
    """Every row of the series that the windows ending at ``ends`` look at."""
    return {end - k * dilation for end in ends for k in range(window)}


@pytest.mark.parametrize("order", ["sorted", "shuffled", "every third"])
@pytest.mark.parametrize("dilation", [1, 3])
def test_windows_are_validated_on_the_end_of_the_series(order, dilation, seed):
    """No validation window shares a row with a training window, whatever order they come in."""
    window = 4
    ends = np.arange(12, 100)
    if order == "shuffled":
        ends = np.random.default_rng(seed).permutation(ends)
    if order == "every third":
        ends = ends[::3]
    rows, valid = split(SequenceView(np.ones((100, 2)), ends, window, dilation=dilation), 0.2)
    assert len(valid) == np.ceil(0.2 * len(ends))
    assert ends[rows].max() < ends[valid].min()
    assert not history_of(ends[rows], window, dilation) & history_of(ends[valid], window, dilation)
    # nothing more is left out: the next window would share a row
    left_out = sorted(set(ends) - set(ends[rows]) - set(ends[valid]))
    assert len(left_out) <= (window - 1) * dilation
    first = min(history_of(ends[valid], window, dilation))
    assert all(end >= first for end in left_out)


def test_segments_end_the_history_of_a_validation_window():
    view = SequenceView(np.ones((40, 1)), np.arange(40), 8, segments=np.repeat([0, 1], [30, 10]))
    rows, valid = split(view, 0.25)
    # The second segment has no row before its last windows, and trains as a whole.
    assert rows.tolist() == [*range(15), *range(30, 40)]
    assert valid.tolist() == list(range(22, 30))


def test_too_few_windows_to_set_some_aside_are_an_error():
    """25 rows, window 24: the windows of the last three rows reach back to the first."""
    view = SequenceView(np.ones((25, 2)), np.arange(25), 24)
    with pytest.raises(ValueError, match="leaves 0 training and 3 validation rows of 25"):
        split(view, 0.1)


# ---- rows that scale -----------------------------------------------------------------------------


def test_a_table_is_scaled_by_its_training_rows_and_their_weights():
    X, weight = np.arange(12.0).reshape(6, 2), np.array([1.0, 2.0])
    found, own = scaling_rows(X, np.array([1, 4]), weight)
    np.testing.assert_array_equal(found, [[2, 3], [8, 9]])
    assert own is weight


def test_padding_of_sequences_is_no_row_that_scales():
    X = np.arange(24.0).reshape(3, 4, 2)
    X[1, 2:] = np.nan
    rows, weight = np.array([1, 2]), np.array([3.0, 5.0])
    found, own = scaling_rows(X, rows, weight)
    np.testing.assert_array_equal(found, np.concatenate([X[1, :2], X[2]]))
    np.testing.assert_array_equal(own, [3, 3, 5, 5, 5, 5])
    assert scaling_rows(X, rows, None)[1] is None


def test_windows_are_scaled_by_the_rows_up_to_the_last_training_window():
    series = np.arange(20.0).reshape(10, 2)
    rows, weight = scaling_rows(SequenceView(series, np.arange(10), 3), np.arange(7), None)
    np.testing.assert_array_equal(rows, series[:7])
    assert weight is None
    # of two segments, each up to its own last training window
    view = SequenceView(series, np.arange(10), 3, segments=np.repeat([0, 1], 5))
    rows, weight = scaling_rows(view, np.array([0, 1, 2, 5, 6]), None)
    np.testing.assert_array_equal(rows, series[:7])
    np.testing.assert_array_equal(weight, [1, 1, 1, 0, 0, 1, 1])
