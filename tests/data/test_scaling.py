"""Statistics of a column are those of exact sums, and rows come back as they were."""

import math

import numpy as np
import pytest
import torch
from serieswindows import Unread, make_series
from sklearn.preprocessing import StandardScaler

from sklearn_restrans._data import scaling
from sklearn_restrans._data.scaling import Scaler

CPU = torch.device("cpu")


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
