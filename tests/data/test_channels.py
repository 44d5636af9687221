"""Channels as samples: the samples of a window, their targets, and the way back."""

import numpy as np
import pytest

from sklearn_restrans import SequenceView
from sklearn_restrans._data.channels import learn_channels

N, WINDOW = 30, 4


def made(seed, *, targets, n_columns=3, segments=None, **form):
    """A view of random columns of very different sizes, and targets as wide as asked."""
    rng = np.random.default_rng(seed)
    series = rng.standard_normal((N, n_columns)) * 10.0 ** np.arange(n_columns) + 7.0
    view = SequenceView(
        series,
        np.arange(WINDOW, N),
        WINDOW,
        segments=segments,
        target_columns=targets,
        channel_independent=True,
        **form,
    )
    width = len(targets) if isinstance(targets, list) else n_columns
    y = series[view.ends][:, targets if targets else range(n_columns)] + rng.random(width)
    return series, view, y


@pytest.mark.parametrize("seed", range(3))
def test_each_sample_is_a_channel_in_its_own_units_and_the_shared_columns(seed):
    series, view, y = made(seed, targets=[2, 0], segments=np.repeat([0, 1], N // 2))
    rows = np.arange(10)
    channels = learn_channels(view, y, rows, None)
    seen = series[: view.ends[rows].max() + 1, [2, 0]]
    scaled = (series[:, [2, 0]] - seen.mean(axis=0)) / seen.std(axis=0)
    samples, plain = np.asarray(channels.view(view)), np.asarray(view)
    assert samples.shape == (2 * len(view), WINDOW, 2)
    for channel in (0, 1):
        own = SequenceView(scaled[:, [channel]], view.ends, WINDOW, segments=np.repeat([0, 1], 15))
        np.testing.assert_allclose(samples[channel::2, :, :1], np.asarray(own), rtol=1e-12)
        np.testing.assert_array_equal(samples[channel::2, :, 1], plain[..., 1])
    assert np.array_equal(np.isnan(samples[::2]).any(axis=2), np.isnan(plain).any(axis=2))


@pytest.mark.parametrize("targets", [[0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2], [2, 1, 2, 1]])
def test_targets_go_to_their_channel_and_come_back_in_their_order(targets):
    _, view, y = made(0, targets=targets)
    channels = learn_channels(view, y, np.arange(len(y)), None)
    coded = channels.encode(y)
    found, C = list(dict.fromkeys(targets)), channels.n_channels
    assert coded.shape == (len(y) * C, len(targets) // C)
    for place, channel in enumerate(found):
        own = y[:, [k for k, target in enumerate(targets) if target == channel]]
        expected = (own - channels.mean[place]) / channels.scale[place]
        np.testing.assert_allclose(coded[place::C], expected, rtol=1e-12)
    np.testing.assert_allclose(channels.decode(coded)[..., 0], y, rtol=1e-12)
    quantiles = np.stack([coded - 1, coded, coded + 1], axis=-1)
    back = channels.decode(quantiles)
    assert back.shape == (*y.shape, 3) and np.all(np.diff(back, axis=-1) > 0)
    np.testing.assert_allclose(back[..., 1], y, rtol=1e-12)


def test_one_target_for_each_channel_is_one_dimensional_for_the_samples():
    _, view, y = made(1, targets=None)
    channels = learn_channels(view, y, np.arange(len(y)), None)
    coded = channels.encode(y)
    assert coded.shape == (3 * len(y),)
    np.testing.assert_allclose(channels.decode(coded)[..., 0], y, rtol=1e-12)


def test_a_single_channel_keeps_a_one_dimensional_y():
    _, view, y = made(2, targets=[1])
    channels = learn_channels(view, y.ravel(), np.arange(len(y)), None)
    np.testing.assert_allclose(channels.decode(channels.encode(y.ravel()))[:, 0], y.ravel())


@pytest.mark.parametrize("patch", [1, 2])
def test_windows_as_an_array_become_the_same_samples(patch):
    _, view, y = made(0, targets=[2, 0], patch=patch)
    channels = learn_channels(view, y, np.arange(10), None)
    found, expected = channels.view(np.asarray(view)), np.asarray(channels.view(view))
    np.testing.assert_array_equal(found, expected)


def test_a_channel_that_stands_still_is_scaled_by_its_level_or_like_the_others():
    series = np.c_[np.full(N, 1e-6), np.zeros(N), 1e-3 * np.sin(np.arange(N))]
    view = SequenceView(series, np.arange(4, N), WINDOW, channel_independent=True)
    channels = learn_channels(view, series[view.ends], np.arange(N - 4), None)
    np.testing.assert_allclose(channels.scale, [1e-6, channels.scale[2], series[:, 2].std()])


def test_rows_and_weights_follow_their_windows():
    _, view, y = made(0, targets=None)
    channels = learn_channels(view, y, np.arange(len(y)), None)
    assert channels.rows([0, 5]).tolist() == [0, 1, 2, 15, 16, 17]
    assert channels.repeated(np.array([1.0, 0.5])).tolist() == [1, 1, 1, 0.5, 0.5, 0.5]
    assert channels.repeated(None) is None


@pytest.mark.parametrize(
    ("targets", "width", "message"),
    [
        (None, 4, "cannot be shared out among the 3 channels"),
        ([0, 1], 3, "name one for every column of y"),
    ],
)
def test_targets_that_do_not_fit_the_channels_are_refused(targets, width, message):
    _, view, y = made(0, targets=targets)
    with pytest.raises(ValueError, match=message):
        learn_channels(view, np.zeros((len(y), width)), np.arange(len(y)), None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target_columns": [0, 0, 1]}, "as many columns of y for every channel"),
        ({"target_columns": [0, None]}, "None is not a column"),
        ({"channel_independent": 1}, "must be True or False, got 1"),
        (
            {"target_columns": [0, 1], "relative": "last", "relative_columns": [0]},
            "name all of them or none",
        ),
    ],
)
def test_views_whose_channels_cannot_be_samples_are_refused(asked, message):
    asked = {"channel_independent": True} | asked
    with pytest.raises(ValueError, match=message):
        SequenceView(np.zeros((N, 3)), [5], WINDOW, **asked)
