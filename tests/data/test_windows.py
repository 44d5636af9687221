"""A SequenceView is the windows of the definition, refuses what is none, and copies no series."""

import pickle

import numpy as np
import pandas as pd
import polars
import pytest
from serieswindows import SEGMENTS, Unread, in_patches, make_series, windows_of
from sklearn.model_selection import TimeSeriesSplit, train_test_split
from sklearn.utils import _safe_indexing, indexable, shuffle

from sklearn_restrans import SequenceView
from sklearn_restrans._data.windows import are_apart, of_stations


@pytest.mark.parametrize(("window", "dilation"), [(2, 2**62 + 1), (10**30, 1), (2**32, 2**32)])
def test_windows_that_reach_back_further_than_rows_can_be_counted_are_refused(window, dilation):
    with pytest.raises(ValueError, match="reaches back further than rows can be counted"):
        SequenceView(np.ones((5, 2)), [4], window, dilation=dilation)


def test_the_farthest_row_that_can_be_counted_is_a_missing_one():
    view = SequenceView(np.ones((5, 2)), [4], 2, dilation=2**62)
    assert np.isnan(np.asarray(view)[0, 0]).all() and view.partial.all()


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one series", "segments"])
@pytest.mark.parametrize(("window", "dilation"), [(1, 1), (1, 7), (3, 1), (3, 2), (4, 5), (20, 1)])
def test_a_view_is_the_windows_of_the_definition(window, dilation, segments):
    """NaN stands where a window begins before its series (or segment) does."""
    series, ends = make_series(), np.array([11, 0, 3, 3, 5, 6, 10])
    view = SequenceView(series, ends, window, dilation=dilation, segments=segments)
    expected, real = windows_of(series, ends, window, dilation, segments)
    assert view.shape == (7, window, 2) and view.ndim == 3 and len(view) == 7
    np.testing.assert_array_equal(np.asarray(view), expected)
    np.testing.assert_array_equal(view.partial, ~real.all(axis=1))
    assert view.dtype == np.asarray(view).dtype == np.float64


def test_indexing_by_samples_gives_views_on_the_same_series():
    series, ends = make_series(), np.array([2, 5, 7, 11, 4])
    view = SequenceView(series, ends, 3, dilation=2, segments=np.zeros(12))
    whole = np.asarray(view)
    mask = np.array([True, False, True, True, False])
    keys = [slice(1, None), slice(None, None, -2), np.array([4, 0, 0]), [3, -1], [], mask]
    keys += [list(mask), pd.Series(mask), np.array([1, 2], dtype=np.uint8), slice(9, None)]
    for key in keys:
        for indexed in (view[key], view[key, ...]):
            assert isinstance(indexed, SequenceView) and indexed.series is series
            np.testing.assert_array_equal(np.asarray(indexed), whole[key])
    for key in (0, -1, np.int64(3)):
        for indexed in (view[key], view[key, ...]):
            assert type(indexed) is np.ndarray
            np.testing.assert_array_equal(indexed, whole[key])
    nested = view[1:][np.array([2, 0])][::-1]
    np.testing.assert_array_equal(np.asarray(nested), whole[[1, 3]])
    np.testing.assert_array_equal(np.array(list(view)), whole)


@pytest.mark.parametrize("key", [5, -6, np.int64(5), [0, 5]])
def test_a_sample_that_is_not_there_is_an_index_error(key):
    view = SequenceView(make_series(), np.arange(5), 2)
    with pytest.raises(IndexError, match=r"(5|-6) is out of bounds for axis 0 with size 5"):
        view[key]


@pytest.mark.parametrize("key", [None, np.array(1), np.array([[0, 1]]), (0, 1), (0, ..., 1)])
def test_an_index_beyond_samples_is_refused(key):
    view = SequenceView(make_series(), np.arange(5), 2)
    with pytest.raises(IndexError, match="a SequenceView is indexed by"):
        view[key]


def test_scikit_learn_splits_and_indexes_a_view_as_it_is():
    series = make_series(40)
    ends = np.arange(3, 40)
    view, y = SequenceView(series, ends, 4), series[ends, 0]
    whole = np.asarray(view)
    rows = np.array([5, 2, 30])
    np.testing.assert_array_equal(np.asarray(_safe_indexing(view, rows)), whole[rows])
    train, test, y_train, y_test = train_test_split(view, y, random_state=0)
    pairs = [(train, y_train), (test, y_test), shuffle(view, y, random_state=0)]
    for part, target in pairs:
        assert isinstance(part, SequenceView) and part.series is series
        # y was made as the first channel of each window's last row, so the pairs still match
        np.testing.assert_array_equal(np.asarray(part)[:, -1, 0], target)
    for train, test in TimeSeriesSplit(3, gap=2).split(view):
        np.testing.assert_array_equal(np.asarray(view[test]), whole[test])
        assert not view[test].partial.any(), "a fold keeps its true history"
        assert len(view[train]) == len(train)
    assert indexable(view, y)[0] is view


def test_conversion_honours_dtype_and_copy():
    integers = np.arange(12).reshape(6, 2)
    assert np.asarray(SequenceView(integers, [1, 3], 2)).dtype == integers.dtype
    assert np.asarray(SequenceView(integers, [0, 3], 2)).dtype == np.float64  # there is a NaN
    single = make_series().astype(np.float32)
    assert np.asarray(SequenceView(single, [0, 3], 2)).dtype == np.float32
    assert np.asarray(SequenceView(single, [0, 3], 2), dtype=np.float64).dtype == np.float64
    view = SequenceView(single, [3], 2)
    np.asarray(view)[...] = 7.0
    assert not (single == 7.0).any(), "the array is a copy"
    with pytest.raises(ValueError, match="without a copy"):
        view.__array__(copy=False)


@pytest.mark.parametrize("dilation", [1, 2])
def test_a_view_survives_pickling(dilation):
    view = SequenceView(make_series(), [0, 6, 5, 11], 3, dilation=dilation, segments=SEGMENTS)
    again = pickle.loads(pickle.dumps(view[1:]))
    assert repr(again) == repr(view[1:])
    np.testing.assert_array_equal(np.asarray(again), np.asarray(view)[1:])
    np.testing.assert_array_equal(again.partial, view.partial[1:])


@pytest.mark.parametrize("kind", ["list", "DataFrame", "polars"])
def test_any_table_may_be_the_series(kind):
    rows = make_series()
    if kind == "polars":
        series = polars.DataFrame(rows, schema=["a", "b"])
    else:
        series = rows.tolist() if kind == "list" else pd.DataFrame(rows, columns=["a", "b"])
    view = SequenceView(series, [4, 9], 3)
    np.testing.assert_array_equal(np.asarray(view), np.asarray(SequenceView(rows, [4, 9], 3)))


def test_a_series_on_disk_is_not_read_before_it_is_needed(tmp_path):
    series = Unread(make_series().astype(np.float32))
    view = SequenceView(series, np.arange(12), 4, segments=SEGMENTS)
    train, _, *_ = train_test_split(view, np.arange(12), random_state=0)
    _ = view.shape, view.dtype, view.partial, repr(train), train[::2]
    assert series.reads == []

    stored = np.memmap(tmp_path / "series", dtype=np.float32, mode="w+", shape=(12, 2))
    stored[:] = series.rows
    view = SequenceView(stored, np.arange(5, 12), 3)
    assert view.series is stored
    np.testing.assert_array_equal(np.asarray(view)[2], series.rows[5:8])


def test_the_repr_says_what_it_is():
    view = SequenceView(make_series(), [4, 5], 3, dilation=2)
    assert repr(view) == "SequenceView(shape=(2, 3, 2), dilation=2, series of 12 rows)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"series": np.zeros(12)}, r"series must be 2-D .* got shape \(12,\).*reshape\(-1, 1\)"),
        ({"series": np.zeros((3, 2, 2))}, r"series must be 2-D"),
        ({"window": 0}, r"window must be an integer >= 1, got 0"),
        ({"window": 2.0}, r"window must be an integer >= 1, got 2.0"),
        ({"window": True}, r"window must be an integer >= 1, got True"),
        ({"dilation": 0}, r"dilation must be an integer >= 1, got 0"),
        ({"ends": [[1]]}, r"ends must be a 1-D array of row numbers, got 2-D of int"),
        ({"ends": [1.0]}, r"ends must be a 1-D array of row numbers, got 1-D of float64"),
        ({"ends": [True]}, r"ends must be a 1-D array of row numbers, got 1-D of bool"),
        ({"ends": [3, 12]}, r"ends must lie between 0 and 11.*got 3 to 12"),
        ({"ends": [-1, 3]}, r"ends must lie between 0 and 11.*got -1 to 3"),
        ({"segments": np.zeros(11)}, r"segments must .* shape \(12,\), got \(11,\)"),
        ({"segments": [0] * 5 + [1] * 6 + [0]}, r"segments must keep equal labels together"),
    ],
)
def test_a_view_that_makes_no_sense_is_refused(changes, message):
    arguments = {"series": make_series(), "ends": [3], "window": 2} | changes
    with pytest.raises(ValueError, match=message):
        SequenceView(**arguments)


def test_views_of_no_samples_and_of_whole_series_are_allowed():
    assert np.asarray(SequenceView(make_series(), [], 3)).shape == (0, 3, 2)
    assert SequenceView(make_series(), [11], np.int64(12)).partial.tolist() == [False]


# ---- patches ---------------------------------------------------------------------------------

PATCHES = [(6, 2, None), (6, 3, None), (6, 6, None), (6, 4, 2), (6, 4, 1), (5, 3, 2)]


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one series", "segments"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("window", "patch", "stride"), PATCHES)
def test_patches_are_rows_of_the_window_one_after_the_other(
    window, patch, stride, dilation, segments
):
    series, ends = make_series(), np.array([11, 0, 3, 3, 5, 6, 10])
    form = {"patch": patch, "patch_stride": stride}
    view = SequenceView(series, ends, window, dilation=dilation, segments=segments, **form)
    plain, real = windows_of(series, ends, window, dilation, segments)
    expected = in_patches(plain, patch, stride or patch)
    assert view.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(view), expected)
    np.testing.assert_array_equal(view.partial, ~real.all(axis=1))


def test_a_view_of_patches_is_indexed_split_and_pickled_like_any_other():
    view = SequenceView(make_series(40), np.arange(3, 40), 6, patch=4, patch_stride=1)
    whole, rows = np.asarray(view), np.array([5, 2, 30])
    for part, expected in [(view[rows], whole[rows]), (view[4:9], whole[4:9])]:
        assert part.form == view.form
        np.testing.assert_array_equal(np.asarray(part), expected)
        np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(part))), expected)
    np.testing.assert_array_equal(view[7], whole[7])
    for _, test in TimeSeriesSplit(3).split(view):
        np.testing.assert_array_equal(np.asarray(view[test]), whole[test])
    assert "patch=4, patch_stride=1, series of 40 rows" in repr(view)


def test_a_view_that_was_stored_before_there_were_patches_has_none():
    view = SequenceView(make_series(), [4, 9], 3)
    state = dict(view.__dict__)
    del state["form"]
    old = object.__new__(SequenceView)
    old.__dict__.update(state)
    np.testing.assert_array_equal(np.asarray(old), np.asarray(view))


def test_windows_are_apart_where_no_station_has_two():
    series, labels = np.zeros((12, 1)), SEGMENTS  # rows 0 to 4, 5, and 6 to 11
    cases = [
        ([4, 5, 11], labels, True),
        ([3, 3, 5], labels, True),  # drawn twice, as a bootstrap does
        ([3, 4, 5], labels, False),
        ([11], None, False),
    ]
    for ends, segments, expected in cases:
        view = SequenceView(series, ends, 4, segments=segments)
        assert are_apart(view, view.ends) == expected
    view = SequenceView(series, [4, 11], 4, segments=labels)
    assert not are_apart(of_stations(view, np.zeros(12, int)), view.ends), "two stretches of one"
