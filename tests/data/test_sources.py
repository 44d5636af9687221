"""Windows, masks and scaling agree with loops over plain numpy arrays, and copy no series."""

import math
import pickle

import numpy as np
import pandas as pd
import polars
import pytest
import torch
from sklearn.model_selection import TimeSeriesSplit, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, indexable, shuffle

from sklearn_restrans import SequenceView
from sklearn_restrans._data import scaling
from sklearn_restrans._data.batches import chunks
from sklearn_restrans._data.scaling import Scaler
from sklearn_restrans._data.sources import DenseSource, WindowSource, make_source, padding_mask

CPU = torch.device("cpu")


def make_series(n_rows=12, n_features=2, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, n_features))


def window_of(series, end, window, dilation=1, segments=None):
    """One window and which of its tokens are real, read off the definition row by row."""
    values, real = [], []
    for lag in reversed(range(window)):
        row = end - lag * dilation
        inside = row >= 0 and (segments is None or segments[row] == segments[end])
        values.append(series[row] if inside else np.full(series.shape[1], np.nan))
        real.append(inside)
    return np.array(values), np.array(real)


def windows_of(series, ends, *args):
    pairs = [window_of(series, end, *args) for end in ends]
    return np.array([v for v, _ in pairs]), np.array([r for _, r in pairs])


SEGMENTS = np.repeat(["JFK", "EWR", "LGA"], [5, 1, 6])


# ---- SequenceView ----------------------------------------------------------------------------


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


class Unread:
    """A series on disk: it knows its shape, and tells which rows were read."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows):
        self.rows, self.shape, self.reads = rows, rows.shape, []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        self.reads.append(key)
        return self.rows[key]


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


# ---- Scaler ----------------------------------------------------------------------------------


def exact_statistics(rows, weights):
    """Mean and standard deviation by exactly rounded sums."""
    total = math.fsum(weights)
    means = [math.fsum(w * x for w, x in zip(weights, c, strict=True)) / total for c in rows.T]
    variances = [
        math.fsum(w * (x - mean) ** 2 for w, x in zip(weights, c, strict=True)) / total
        for c, mean in zip(rows.T, means, strict=True)
    ]
    return np.array(means), np.sqrt(variances)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-3.0, 1e-3), (1e6, 1.0), (273.15, 8.0)])
def test_statistics_are_those_of_numpy_and_scikit_learn(mean, std, weighted, seed):
    rng = np.random.default_rng(seed)
    rows = mean + std * rng.standard_normal((1_000, 3)) * [1.0, 10.0, 0.1]
    weights = rng.integers(0, 4, 1_000).astype(float) if weighted else None
    scaler = Scaler.fit(rows, weights)
    each = np.ones(1_000) if weights is None else weights
    expected_mean, expected_std = exact_statistics(rows, each)
    # The mean is rounded to eps |mean|, which is the error of every difference, std^2 / |mean| of
    # the variance; 20 eps is the rounding of the sums.
    eps = np.finfo(float).eps
    np.testing.assert_allclose(scaler.mean, expected_mean, rtol=20 * eps, atol=20 * eps * std)
    np.testing.assert_allclose(scaler.scale, expected_std, rtol=20 * eps * (1 + abs(mean) / std))
    theirs = StandardScaler().fit(rows, sample_weight=weights)
    np.testing.assert_allclose(scaler.mean, theirs.mean_, rtol=1e-12, atol=1e-14 * std)
    np.testing.assert_allclose(scaler.scale, theirs.scale_, rtol=1e-9)
    if weighted:
        repeated = Scaler.fit(np.repeat(rows, weights.astype(int), axis=0))
        np.testing.assert_allclose(scaler.mean, repeated.mean, rtol=20 * eps, atol=20 * eps * std)
        np.testing.assert_allclose(scaler.scale, repeated.scale, rtol=1e-9)


@pytest.mark.parametrize("mean", [2.0**30, 2.0**40])
def test_a_small_variance_on_a_huge_mean_is_found(mean):
    """mean +- 1: E[x^2] - E[x]^2 would lose every digit at 2^30, where x^2 is rounded to 256."""
    rows = np.where(np.arange(40_000) % 2, mean + 1, mean - 1)[:, None]
    scaler = Scaler.fit(rows)
    assert abs(scaler.mean[0] - mean) <= np.spacing(mean)
    # Shifting by a mean that is off by one ulp u changes the variance by u^2 = (2.4e-4)^2 at most.
    assert abs(scaler.scale[0] - 1) <= 1e-6


@pytest.mark.parametrize("n_rows", [1, 10, 1_000, 16_384, 100_000])
@pytest.mark.parametrize("value", [0.0, 0.1, -273.15, 1e6 / 3, 1e15 / 7, 1e-300])
def test_a_constant_column_has_scale_zero(value, n_rows, seed):
    """The sum of 100,000 times 0.1 is off by 1e-13: that is rounding and no variation."""
    rows = np.full((n_rows, 1), value)
    for weights in (None, np.random.default_rng(seed).uniform(0.1, 2.0, n_rows)):
        scaler = Scaler.fit(rows, weights)
        assert scaler.scale[0] == 0.0
        assert abs(scaler.mean[0] - value) <= 2 * np.spacing(abs(value))


@pytest.mark.parametrize("value", [0.3, -273.15, 1e10 / 3])
def test_a_column_that_varies_by_rounding_alone_has_scale_zero(value):
    """As 0.1 + 0.2 and 0.3: two neighbours among the float64 numbers."""
    rows = np.tile([value, np.nextafter(value, np.inf)], 500)[:, None]
    assert rows.std() > 0
    assert Scaler.fit(rows).scale[0] == 0.0


def test_missing_readings_are_left_out(seed):
    rows = 1e4 + make_series(500, 3, seed)
    rows[np.random.default_rng(seed).random(rows.shape) < 0.3] = np.nan
    rows[:, 2] = np.nan
    scaler = Scaler.fit(rows)
    np.testing.assert_allclose(scaler.mean[:2], np.nanmean(rows[:, :2], axis=0), rtol=1e-14)
    # a mean of 1e4 is off by 1e-12, the variance of 1 by 1e-12 times what the differences sum to
    np.testing.assert_allclose(scaler.scale[:2], np.nanstd(rows[:, :2], axis=0), rtol=1e-12)
    assert (scaler.mean[2], scaler.scale[2]) == (0.0, 0.0)
    scaled = scaler.to_tensor(rows, torch.float64, CPU)
    assert not scaled[:, :3][np.isnan(rows)].any(), "a missing reading becomes the mean, 0"
    # A column that is always missing tells nothing, and neither does that it is missing.
    np.testing.assert_array_equal(scaled[:, 3:], np.isnan(rows[:, :2]))


def test_statistics_do_not_depend_on_the_blocks(monkeypatch, seed):
    rows = 5.0 + make_series(1_000, 3, seed)
    weights = np.random.default_rng(seed).uniform(0.0, 2.0, 1_000)
    whole = Scaler.fit(rows, weights)
    tensor = whole.to_tensor(rows, torch.float32, CPU)
    for size in (1, 7, 999):
        monkeypatch.setattr(scaling, "_BLOCK_ROWS", size)
        blocks = Scaler.fit(rows, weights)
        np.testing.assert_allclose(blocks.mean, whole.mean, rtol=1e-14)
        np.testing.assert_allclose(blocks.scale, whole.scale, rtol=1e-14)
        assert torch.equal(whole.to_tensor(rows, torch.float32, CPU), tensor)


def test_a_series_on_disk_is_read_in_blocks(monkeypatch):
    monkeypatch.setattr(scaling, "_BLOCK_ROWS", 5)
    series = Unread(make_series().astype(np.float32))
    scaler = Scaler.fit(series)
    scaler.to_tensor(series, torch.float32, CPU)
    assert series.reads == [slice(0, 5), slice(5, 10), slice(10, 15)] * 4
    np.testing.assert_allclose(scaler.mean, series.rows.astype(float).mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize("x_dtype", [np.float64, np.float32, np.int64])
def test_scaled_rows_and_back(x_dtype, seed):
    rows = (10 * make_series(50, 3, seed)).astype(x_dtype)
    scaler = Scaler.fit(rows)
    exact = (rows.astype(float) - scaler.mean) / scaler.scale
    for dtype, rtol in ((torch.float64, 0.0), (torch.float32, 6e-8), (torch.bfloat16, 6e-8)):
        scaled = scaler.to_tensor(rows, dtype, CPU)
        # bfloat16 is a way to multiply; the data stay float32
        assert scaled.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        np.testing.assert_allclose(scaled.numpy(), exact, rtol=rtol)
    np.testing.assert_allclose(scaler.inverse(exact), rows, rtol=1e-14, atol=1e-14)


# ---- padding ---------------------------------------------------------------------------------


def test_trailing_tokens_that_are_nan_are_padding():
    X = np.ones((3, 4, 2))
    assert padding_mask(X) is None
    X[1, 2:] = X[2, 1:] = np.nan
    expected = [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(padding_mask(X), np.array(expected, bool))


@pytest.mark.parametrize("where", [(0, 3, 1), (0, 0), (1, 1), (1, slice(0, 3)), (2, 2, 0)])
def test_any_other_nan_is_a_missing_reading(where):
    """One channel, the first token, a token in the middle, leading tokens."""
    X = np.ones((3, 4, 2))
    X[where] = np.nan
    assert padding_mask(X) is None
    X[0, 3] = np.nan
    expected = np.ones((3, 4), bool)
    expected[0, 2 if where == (0, 3, 1) else 3 :] = False
    expected[0, 2] = True
    np.testing.assert_array_equal(padding_mask(X), expected)


def test_a_sequence_that_is_all_padding_is_named():
    X = np.ones((3, 4, 2))
    X[1:] = np.nan
    with pytest.raises(ValueError, match=r"all padding.* first at row 1"):
        padding_mask(X)


# ---- sources ---------------------------------------------------------------------------------


def assert_batch(batch, expected, real):
    """x equals the expected values at real tokens and is 0 elsewhere; no mask if all are real."""
    x, mask = batch
    if real.all():
        assert mask is None
    else:
        np.testing.assert_array_equal(mask.numpy(), real)
    np.testing.assert_array_equal(x.numpy(), np.where(real[..., None], expected, 0.0))


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one series", "segments"])
@pytest.mark.parametrize(("window", "dilation"), [(1, 1), (3, 1), (3, 2), (2, 5), (12, 1), (20, 1)])
def test_a_window_batch_equals_direct_indexing(window, dilation, segments, seed):
    rng = np.random.default_rng(seed)
    series = make_series(12, 2, seed)
    view = SequenceView(series, rng.permutation(12), window, dilation=dilation, segments=segments)
    source = WindowSource(torch.from_numpy(series), view)
    assert len(source) == 12
    batches = [rng.integers(0, 12, size) for size in (1, 5, 30)]
    batches += [np.flatnonzero(~view.partial), np.flatnonzero(view.partial)]
    for rows in batches:
        expected = windows_of(series, view.ends[rows], window, dilation, segments)
        if len(rows):
            assert_batch(source.take(rows), *expected)


def test_windows_share_the_storage_of_the_series():
    """420,000 windows of 144 x 14 would be 3.2 GB; here not one is stored."""
    series = torch.zeros(5_000, 14)
    source = WindowSource(series, SequenceView(series.numpy(), np.arange(143, 5_000), 144))
    assert source.windows.shape == (5_000 - 143, 144, 14)
    assert source.windows.untyped_storage().data_ptr() == series.untyped_storage().data_ptr()
    assert source.windows.untyped_storage().nbytes() == 5_000 * 14 * 4
    x, _ = source.take(np.array([0, 1]))
    x += 1.0
    assert not series.any(), "a batch is a copy"


def test_a_dense_batch_equals_direct_indexing(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((9, 4, 2))
    lengths = np.r_[4, 4, rng.integers(1, 5, 7)]
    real = np.arange(4) < lengths[:, None]
    x = torch.from_numpy(np.where(real[..., None], X, 0.0))
    source = DenseSource(x, real)
    np.testing.assert_array_equal(source.partial, lengths < 4)
    for rows in (np.array([0, 1]), rng.integers(0, 9, 20), rng.permutation(9)):
        assert_batch(source.take(rows), X[rows], real[rows])
    whole = DenseSource(x)
    assert len(whole) == 9 and not whole.partial.any()
    assert_batch(whole.take(np.array([3, 3, 1])), x[[3, 3, 1]].numpy(), np.ones((3, 4), bool))


def test_each_kind_of_input_gets_its_source(seed):
    """A table's columns become tokens of one channel; sequences and views keep their shape."""
    table = 3.0 + make_series(12, 2, seed)
    scaler = Scaler.fit(table)
    scaled = (table - scaler.mean) / scaler.scale
    rows = np.array([3, 0, 11])
    batch = make_source(table, scaler, torch.float64, CPU).take(rows)
    assert_batch(batch, scaled[rows][:, :, None], np.ones((3, 2), bool))

    sequences = table.reshape(3, 4, 2).copy()
    sequences[1, 2:] = np.nan
    source = make_source(sequences, scaler, torch.float64, CPU)
    real = ~np.isnan(sequences[:, :, 0])
    assert_batch(source.take(np.arange(3)), scaled.reshape(3, 4, 2), real)

    view = SequenceView(table, np.arange(12), 3)
    batch = make_source(view, scaler, torch.float64, CPU).take(rows)
    assert_batch(batch, *windows_of(scaled, rows, 3))


@pytest.mark.parametrize("size", [1, 4, 7, 64])
@pytest.mark.parametrize("n_partial", [0, 3, 10])
def test_chunks_hold_every_row_once_and_have_one_size(n_partial, size, seed):
    """So that a row meets the same kernels whatever rows come with it."""
    mask = np.ones((10, 4), bool)
    mask[np.random.default_rng(seed).permutation(10)[:n_partial], 2:] = False
    source = DenseSource(torch.zeros(10, 4, 1), mask)
    seen = []
    for rows, n_real in chunks(source, size):
        assert len(rows) == size and 1 <= n_real <= size
        assert len(set(source.partial[rows])) == 1, "a chunk is all full or all partial"
        assert (rows[n_real:] == rows[n_real - 1]).all()
        seen.extend(rows[:n_real])
    assert sorted(seen) == list(range(10))
    for kind in (False, True):
        ordered = [row for row in seen if source.partial[row] == kind]
        assert ordered == sorted(ordered), "rows keep their order"
