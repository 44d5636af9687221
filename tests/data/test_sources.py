"""Batches of windows and padded sequences equal direct indexing, and copy no series."""

import numpy as np
import pytest
import torch
from serieswindows import SEGMENTS, in_patches, make_series, windows_of

from sklearn_restrans import SequenceView
from sklearn_restrans._data.scaling import Scaler
from sklearn_restrans._data.sources import DenseSource, WindowSource, make_source, padding_mask

CPU = torch.device("cpu")


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


# ---- patches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["one series", "segments"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(
    ("window", "patch", "stride"), [(6, 2, 2), (6, 6, 6), (6, 4, 1), (20, 4, 2)]
)
def test_a_batch_of_patches_equals_direct_indexing(window, patch, stride, dilation, segments, seed):
    """A token is real if one of its rows is; of such a token the other rows are 0, the mean."""
    rng = np.random.default_rng(seed)
    series = make_series(12, 2, seed)
    form = {"patch": patch, "patch_stride": stride}
    view = SequenceView(
        series, rng.permutation(12), window, dilation=dilation, segments=segments, **form
    )
    source = WindowSource(torch.from_numpy(series), view)
    batches = [rng.integers(0, 12, size) for size in (1, 5, 30)]
    batches += [np.flatnonzero(~view.partial), np.flatnonzero(view.partial)]
    for rows in filter(len, batches):
        plain, real = windows_of(series, view.ends[rows], window, dilation, segments)
        tokens = np.nan_to_num(in_patches(plain, patch, stride))
        of_token = in_patches(real[..., None].astype(float), patch, stride).any(axis=2)
        x, mask = source.take(rows)
        np.testing.assert_array_equal(x.numpy(), tokens)
        if mask is None:
            assert real.all()
        else:
            np.testing.assert_array_equal(mask.numpy(), of_token)


def test_rows_before_the_series_in_a_patch_are_missing_readings():
    """Column 1 has a NaN in training, so a third column tells where its readings are missing."""
    table = make_series(12, 2)
    table[7, 1] = np.nan
    scaler = Scaler.fit(table)
    view = SequenceView(table, [4, 2, 9], 6, patch=3)
    x, mask = make_source(view, scaler, torch.float64, CPU).take(np.arange(3))
    assert mask.tolist() == [[True, True], [False, True], [True, True]]
    flags = x.numpy().reshape(3, 6, 3)[:, :, 2]
    np.testing.assert_array_equal(flags[0], [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(flags[1], [0, 0, 0, 0, 0, 0])  # its first token does not exist
    np.testing.assert_array_equal(flags[2], [0, 0, 0, 1, 0, 0])  # rows 4 to 9, with the NaN of 7
    np.testing.assert_array_equal(x.numpy().reshape(3, 6, 3)[0, 0, :2], 0.0)
    dense = make_source(np.asarray(view), scaler, torch.float64, CPU).take(np.arange(3))[0]
    np.testing.assert_array_equal(x[[0, 2]], dense[[0, 2]])


def test_overlapping_patches_share_the_storage_of_the_series():
    series = torch.zeros(5_000, 14)
    view = SequenceView(series.numpy(), np.arange(143, 5_000), 144, patch=16, patch_stride=8)
    source = WindowSource(series, view)
    assert source.windows.shape == (5_000 - 143, 17, 16 * 14)
    assert source.windows.untyped_storage().data_ptr() == series.untyped_storage().data_ptr()


@pytest.mark.parametrize("window", [1, 2, 9, 40])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("n_rows", [30, 60, 203])
def test_ranges_of_windows_hold_their_readings(window, dilation, segmented, n_rows, seed):
    """Wide by the readings of a few rows around at most; NaN where a reading is missing."""
    rng = np.random.default_rng(seed)
    series = make_series(n_rows, 2, seed)
    series[rng.integers(0, n_rows, 3), 1] = np.nan
    labels = np.arange(n_rows) // 29 if segmented else None
    view = SequenceView(series, rng.permutation(n_rows), window, dilation=dilation, segments=labels)
    source = WindowSource(torch.from_numpy(series), view)
    low, high = (extreme.numpy() for extreme in source.ranges(2))
    windows, _ = windows_of(series, view.ends, window, dilation, labels)
    missing = np.isnan(windows).any(axis=1)
    assert np.isnan(low[missing]).all() and np.isnan(high[missing]).all()
    near, span = np.nan_to_num(series), (window - 1) * dilation
    for k in range(n_rows):
        around = slice(max(0, view.ends[k] - 2 * span), view.ends[k] + span + 1)
        for column in np.flatnonzero(~np.isnan(low[k])):
            assert low[k, column] <= windows[k, :, column].min()
            assert high[k, column] >= windows[k, :, column].max()
            assert near[around, column].min() <= low[k, column]
            assert near[around, column].max() >= high[k, column]
    if not view.partial.all() and window > 1 and n_rows > 200:
        assert not np.isnan(low).all(), "some windows are known to miss nothing"


def test_ranges_of_sequences_are_those_of_each(seed):
    X = torch.from_numpy(np.random.default_rng(seed).standard_normal((5, 4, 6)))
    X[1, 2, 3] = np.nan
    low, high = DenseSource(X).ranges(2)
    readings = X.numpy().reshape(5, 12, 2)
    np.testing.assert_array_equal(low, readings.min(axis=1))
    np.testing.assert_array_equal(high, readings.max(axis=1))
    assert low[1, 1].isnan() and not low[1, 0].isnan()
