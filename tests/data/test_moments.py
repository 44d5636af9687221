"""Moments and extremes of windows equal the plain formulas, and know nothing but their readings."""

import numpy as np
import pytest
from serieswindows import windows_of

from sklearn_restrans import SequenceView
from sklearn_restrans._data import moments as module
from sklearn_restrans._data.forms import PLAIN
from sklearn_restrans._data.moments import extremes, moments

COLUMNS = np.array([2, 0])
N = 400


def series_of(seed):
    """Walks, of which column 0 misses readings and column 2 rests."""
    rng = np.random.default_rng(seed)
    series = 50.0 + rng.standard_normal((N, 3)).cumsum(axis=0)
    series[rng.random(N) < 0.1, 0] = np.nan
    series[200:250, 0] = np.nan
    series[100:180, 2] = 3.3
    return series


def plain(values):
    """Count, mean, sum of squares about it, smallest and largest of readings (w,)."""
    values = values[~np.isnan(values)]
    if not len(values):
        return 0.0, 0.0, 0.0, np.inf, -np.inf
    mean = values.mean()
    return len(values), mean, ((values - mean) ** 2).sum(), values.min(), values.max()


def found_in(X, form=PLAIN, columns=COLUMNS):
    return np.stack([*moments(X, columns, form), *extremes(X, columns, form)], axis=-1)


@pytest.fixture(params=[None, 300], ids=["one block", "blocks"])
def block(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(module, "_BLOCK_READINGS", request.param)


@pytest.mark.parametrize("window", [1, 2, 3, 8, 21, 45])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.usefixtures("block")
def test_statistics_are_those_of_the_plain_formulas(window, dilation, segmented, seed):
    """Ends in any order, some twice. The walk is some 10 deviations of a window from 0: 1e-10."""
    series, rng = series_of(seed), np.random.default_rng(seed)
    labels = np.repeat(["a", "b", "c"], [150, 50, 200]) if segmented else None
    ends = np.r_[rng.permutation(N), rng.integers(0, N, 30)]
    view = SequenceView(series, ends, window, dilation=dilation, segments=labels)
    windows, _ = windows_of(series, ends, window, dilation, labels)
    expected = np.array([[plain(w[:, c]) for c in COLUMNS] for w in windows])
    np.testing.assert_allclose(found_in(view), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("window", [1, 7, 16, 45])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.usefixtures("block")
def test_other_windows_and_other_rows_change_no_bit(window, dilation, seed):
    series, rng = series_of(seed), np.random.default_rng(seed)
    view = SequenceView(series, np.arange(N), window, dilation=dilation)
    together = found_in(view)
    few = rng.integers(0, N, 9)
    np.testing.assert_array_equal(found_in(view[few]), together[few])
    np.testing.assert_array_equal(found_in(np.asarray(view)[few]), together[few])
    other = series.copy()
    other[:100], other[300:] = 1e200, np.nan  # squares of the first overflow
    inside = np.flatnonzero((np.arange(N) - (window - 1) * dilation >= 100) & (np.arange(N) < 300))
    with np.errstate(over="ignore", invalid="ignore"):
        changed = found_in(SequenceView(other, np.arange(N), window, dilation=dilation))
    np.testing.assert_array_equal(changed[inside], together[inside])


@pytest.mark.parametrize(("patch", "stride"), [(1, 1), (4, 4), (6, 2)])
def test_overlapping_patches_of_an_array_count_every_row_once(patch, stride, seed):
    series = series_of(seed)
    view = SequenceView(series, np.arange(N), 24, patch=patch, patch_stride=stride)
    np.testing.assert_array_equal(found_in(np.asarray(view), view.form), found_in(view))


def test_a_high_level_costs_digits_only_in_proportion(seed):
    """Level over deviation is 2^20: about 2^20 eps = 2e-10 of the squares, where the difference of
    two running sums of squares would keep none of its digits at 2^26."""
    noise = np.round(np.random.default_rng(seed).standard_normal((N, 3)) * 2**10) / 2**10
    for level, rtol in [(2.0**20, 1e-9), (2.0**26, 1e-7)]:  # sums of both are exact
        views = [SequenceView(noise + shift, np.arange(49, N), 50) for shift in (0.0, level)]
        near, far = (moments(view, COLUMNS, PLAIN) for view in views)
        np.testing.assert_allclose(far[2], near[2], rtol=rtol)
        np.testing.assert_allclose(far[1] - level, near[1], atol=1e-15 * level)
    resting = SequenceView(np.full((N, 3), 0.1 + level), np.arange(49, N), 50)
    count, mean, square = moments(resting, COLUMNS, PLAIN)
    assert (count == 50).all() and (mean == 0.1 + level).all() and not square.any()


def test_windows_that_overlap_are_not_made_one_by_one(monkeypatch):
    """All windows of 256 rows are 256 times the series."""
    made = []
    read = module.readings
    monkeypatch.setattr(module, "readings", lambda *args: made.append(len(args[1])) or read(*args))
    view = SequenceView(np.ones((5_000, 3)), np.arange(5_000), 256)
    found_in(view)
    assert sum(made) == 2 * 255, "the partial ones, for moments and for extremes"
    found_in(view[::1_000])
    assert sum(made) == 2 * 255 + 2 * 5, "and windows that share no row"
