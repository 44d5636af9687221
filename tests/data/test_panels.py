"""Series as aeon and sktime hold them become the sequences that the estimators read."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from serieswindows import in_patches

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._data.panels import as_sequences
from sklearn_restrans._data.sources import WindowSource

N, C, T = 30, 2, 12
SMALL = {"d_model": 8, "max_iter": 2, "random_state": 0}


def channels_first(seed=0, n=N):
    return np.random.default_rng(seed).standard_normal((n, C, T)).cumsum(axis=2)


def unequal(seed=0):
    """Arrays (C, T_i) and the padded sequences, written element by element."""
    rng = np.random.default_rng(seed)
    samples = [rng.standard_normal((C, length)) for length in rng.integers(3, T + 1, N)]
    longest = max(sample.shape[1] for sample in samples)
    padded = np.full((N, longest, C), np.nan)
    for i, sample in enumerate(samples):
        for c in range(C):
            for t in range(sample.shape[1]):
                padded[i, t, c] = sample[c, t]
    return samples, padded


def nested(samples):
    return pd.DataFrame(
        {f"dim_{c}": [pd.Series(sample[c]) for sample in samples] for c in range(C)}
    )


def long(samples, names=None):
    """A frame with one row per instance and time, as sktime's pd-multiindex."""
    names = range(len(samples)) if names is None else names
    parts = {
        name: pd.DataFrame(sample.T, columns=["u", "v"])
        for name, sample in zip(names, samples, strict=True)
    }
    return pd.concat(parts)


def test_arrays_put_the_channels_last():
    X = channels_first()
    out = as_sequences(X)
    assert out.shape == (N, T, C)
    for i, t, c in ((0, 0, 0), (3, 5, 1), (N - 1, T - 1, 0)):
        assert out[i, t, c] == X[i, c, t]
    one = as_sequences(X[:, 0])
    np.testing.assert_array_equal(one[:, :, 0], X[:, 0])
    for other in (torch.tensor(X), X.astype(object), list(X), [list(map(list, x)) for x in X]):
        np.testing.assert_array_equal(as_sequences(other), out)
    assert as_sequences(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(as_sequences(pd.DataFrame(X[:, 0])), one)


@pytest.mark.parametrize("form", [list, nested, long, lambda s: np.array([*s, 0], object)[:-1]])
def test_unequal_lengths_are_padded_at_the_end(form):
    samples, expected = unequal()
    np.testing.assert_array_equal(as_sequences(form(samples)), expected)


def test_channels_of_unequal_length_miss_readings_at_the_end():
    frame = pd.DataFrame({"a": [pd.Series([1.0, 2.0])], "b": [np.array([5, 6, 7])]})
    out = as_sequences(frame)[0]
    np.testing.assert_array_equal(out, [[1.0, 5.0], [2.0, 6.0], [np.nan, 7.0]])


def test_rows_of_a_multiindex_are_ordered_by_time_and_instances_as_they_come():
    X = channels_first()
    frame = long(X, names=[f"s{k}" for k in np.random.default_rng(0).permutation(N)])
    order = np.random.default_rng(1).permutation(T)
    mixed = pd.concat([frame.iloc[i * T : (i + 1) * T].iloc[order] for i in range(N)])
    np.testing.assert_array_equal(as_sequences(mixed), X.transpose(0, 2, 1))


def test_new_data_are_padded_to_the_length_of_training():
    out = as_sequences(channels_first(), n_tokens=T + 4)
    assert out.shape == (N, T + 4, C) and np.isnan(out[:, T:]).all()
    with pytest.raises(
        ValueError, match=r"n_tokens=11 is shorter than sample 0 of X, which has 12"
    ):
        as_sequences(channels_first(), n_tokens=T - 1)
    with pytest.raises(ValueError, match="n_tokens must be an integer >= 1, got 0"):
        as_sequences(channels_first(), n_tokens=0)


TWICE = long(channels_first(n=2))
TWICE.index = TWICE.index.set_codes([*TWICE.index.codes[:1], [0] * 2 * T])
WRONG = [
    ([], "X is empty"),
    (np.zeros((2, 2, 2, 2)), r"X has 4 axes and shape"),
    (np.zeros(3), "X has 1 axes"),
    ([np.zeros((2, 5)), np.zeros((3, 5))], "samples of 2 to 3 channels"),
    ([np.zeros((2, 5)), np.zeros((1, 2, 5))], "sample 1 of X has 3 axes"),
    ([pd.DataFrame(np.zeros((5, 2)))], "sample 0 of X is a DataFrame"),
    ([np.zeros((2, 5)), "ab"], "sample 1 of X holds text"),
    ("abc", "X is of the type str"),
    (None, "X is of the type NoneType"),
    (np.zeros((3, 2, 0)), r"shape \(3, 0, 2\)"),
    (SequenceView(np.zeros((9, 1)), [8], 3), "SequenceView, which the estimators take"),
    (nested([np.zeros((2, 3))]).assign(dim_1=3.0, dim_0=[pd.Series([1.0])]), "X holds .*dim_0|X"),
    (TWICE, "more than once"),
    (np.array([["a", "b"]]), "X holds text"),
]


@pytest.mark.parametrize(("X", "message"), WRONG, ids=range(len(WRONG)))
def test_other_forms_are_refused_in_words(X, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(X)


@pytest.mark.parametrize("form", [nested, long])
@pytest.mark.parametrize("estimator", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_fit_and_predict_take_panels_as_they_are(form, estimator):
    samples, padded = unequal()
    y = np.array([sample.mean() for sample in samples])
    y = y > np.median(y) if estimator is ResidualTransformerClassifier else y
    expected = estimator(**SMALL).fit(padded, y).predict(padded)
    model = estimator(**SMALL).fit(form(samples), y)
    np.testing.assert_array_equal(model.predict(form(samples)), expected)
    # Shorter new sequences are padded to the length of fit.
    short = min(range(N), key=lambda i: samples[i].shape[1])
    np.testing.assert_array_equal(model.predict(form([samples[short]])), expected[[short]])


def test_rows_of_a_multiindex_with_a_target_each_stay_a_table():
    frame = long(channels_first())
    model = ResidualTransformerRegressor(**SMALL).fit(frame, frame["u"].to_numpy())
    assert model.predict(frame).shape == (N * T,)


@pytest.mark.parametrize(
    "X",
    [
        channels_first(),  # (n, 2, 12)
        channels_first()[:, :1],  # one channel
        1e3 * np.arange(C)[None, :, None] + channels_first(1),
        np.where(np.random.default_rng(0).random((N, C, T)) < 0.1, np.nan, channels_first()),
    ],
    ids=["two channels", "one channel", "other units", "missing"],
)
def test_swapped_axes_are_hinted_at(X):
    with pytest.warns(UserWarning, match=r"pass as_sequences\(X\)"):
        ResidualTransformerRegressor(**SMALL).fit(X, np.arange(N))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ResidualTransformerRegressor(**SMALL).fit(as_sequences(X), np.arange(N))


@pytest.mark.parametrize("seed", range(5))
def test_no_hint_where_channels_are_channels(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((N, 8, 100))  # word vectors: many channels, none near the other
    series = rng.standard_normal((N, 10, 60)).cumsum(axis=1)  # ten steps of sixty channels
    single = rng.standard_normal((N, 1, 1))
    pictures = rng.standard_normal((N, 6, 40)).cumsum(axis=1).cumsum(axis=2)  # smooth both ways
    constant = np.zeros((N, 2, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (vectors, series, single, pictures, constant):
            ResidualTransformerRegressor(**SMALL).fit(X, np.arange(N))


def test_lists_of_unequal_arrays_name_the_converter():
    samples, _ = unequal()
    with pytest.raises(ValueError, match=r"as_sequences\(X\)"):
        ResidualTransformerRegressor(**SMALL).fit(samples, np.arange(N))


# ---- patches ---------------------------------------------------------------------------------
FORMS = [
    lambda samples: samples,
    nested,
    long,
    lambda samples: as_sequences(samples).transpose(0, 2, 1),  # NaN at the end of shorter ones
]


def late(samples, window):
    """Arrays (C, T_i) as rows (n, window, C) that end together, written element by element."""
    rows = np.full((len(samples), window, C), np.nan)
    for i, sample in enumerate(samples):
        length = sample.shape[1]
        for t in range(length):
            for c in range(C):
                rows[i, window - length + t, c] = sample[c, t]
    return rows


@pytest.mark.parametrize("form", FORMS, ids=["list", "nested", "long", "padded array"])
@pytest.mark.parametrize(
    ("patch", "stride", "window"),
    [(4, None, 12), (4, 2, 12), (5, None, 15), (5, 3, 14), (12, 1, 12)],
)
def test_patches_of_a_collection_are_its_points_one_after_the_other(form, patch, stride, window):
    samples, _ = unequal()
    assert max(sample.shape[1] for sample in samples) == T
    samples[3][:, 1], samples[3][0, -1] = np.nan, np.nan  # readings that are missing stay so
    view = as_sequences(form(samples), patch=patch, patch_stride=stride)
    expected = in_patches(late(samples, window), patch, patch if stride is None else stride)
    assert view.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(view), expected)
    tokens = np.isnan(in_patches(late(samples, window), patch, stride or patch)).all(axis=2)
    _, mask = WindowSource(torch.tensor(view.series), view).take(np.arange(N))
    began = np.logical_or.accumulate(~tokens, axis=1)
    np.testing.assert_array_equal(mask, began)


def test_one_channel_is_cut_into_patches_without_a_copy():
    X = np.ascontiguousarray(channels_first()[:, :1])
    view = as_sequences(X, patch=4, patch_stride=2)
    assert np.shares_memory(view.series, X)
    assert as_sequences(X.astype(np.float32), patch=4).dtype == np.float32
    assert as_sequences((10 * X).astype(int), patch=4).dtype == np.float64


def test_a_patch_of_one_is_the_array_it_always_was():
    X = channels_first()
    np.testing.assert_array_equal(as_sequences(X, patch=1, patch_stride=1), as_sequences(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patch": 0}, "patch must be an integer >= 1, got 0"),
        ({"patch": 13}, "patch=13 is longer than the longest sample of X, which has 12 points"),
        ({"patch": 4, "patch_stride": 5}, "patch_stride=5 is longer than patch=4"),
        ({"patch_stride": 2}, "patch_stride=2 is longer than patch=1"),
        ({"relative": "mean"}, "relative must be 'last', 'standard' or None, got 'mean'"),
        ({"patch": 4, "n_tokens": 2}, "n_tokens=2 of patch=4, which hold 8 points, is shorter"),
        ({"patch": 4, "n_tokens": 0}, "n_tokens must be an integer >= 1, got 0"),
    ],
)
def test_patches_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(channels_first(), **arguments)


def test_a_sample_without_readings_is_named():
    X = channels_first()
    X[4] = np.nan
    with pytest.raises(ValueError, match=r"sample 4 of X has no reading"):
        as_sequences(X, patch=4)


@pytest.mark.parametrize("form", [nested, long])
@pytest.mark.parametrize("estimator", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_new_panels_are_cut_into_the_patches_of_fit(form, estimator):
    samples, _ = unequal()
    y = np.array([sample.mean() for sample in samples])
    y = y > np.median(y) if estimator is ResidualTransformerClassifier else y
    view = as_sequences(samples, patch=4, patch_stride=2, relative="standard")
    model = estimator(**SMALL).fit(view, y)
    expected = model.predict(view)
    np.testing.assert_array_equal(model.predict(form(samples)), expected)
    short = [sample for sample in samples if sample.shape[1] < 8]
    picked = [sample.shape[1] < 8 for sample in samples]
    new = as_sequences(short, n_tokens=5, patch=4, patch_stride=2, relative="standard")
    np.testing.assert_array_equal(model.predict(new), expected[picked])
    np.testing.assert_array_equal(model.predict(form(short)), expected[picked])
    with pytest.raises(ValueError, match=r"2 channels .* 8 channels .*patches of 4 rows"):
        model.predict(as_sequences(samples))
    with pytest.raises(ValueError, match=r"patch_stride=4, but .* patch_stride=2"):
        model.predict(as_sequences(samples, patch=4, relative="standard"))


@pytest.mark.parametrize("seed", range(3))
def test_relative_takes_level_and_size_off_every_sample(seed):
    rng = np.random.default_rng(seed)
    samples, _ = unequal(seed)
    y = np.array([sample[0, 0] > sample[0, -1] for sample in samples])
    moved = [rng.uniform(0.5, 2) * sample + rng.normal(0, 9) for sample in samples]
    cut = {"patch": 3, "n_tokens": 4, "relative": "standard"}
    model = ResidualTransformerClassifier(dtype="float64", **SMALL)
    model.fit(as_sequences(samples, **cut), y)
    # Samples that hardly vary are divided by a floor, which their size then does not leave.
    same = np.array([sample.std(axis=1).min() > 0.5 for sample in samples])
    assert same.sum() > N / 2
    probability = model.predict_proba(as_sequences(samples, **cut))[same]
    of_moved = model.predict_proba(as_sequences(moved, **cut))[same]
    np.testing.assert_allclose(of_moved, probability, rtol=0, atol=1e-10)  # float64 of scaled sums


def wiggles(n, length, seed):
    """Noise (n, 1, T) in which a wiggle that goes up first, or down first, stands anywhere."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    wiggle = 2 * np.sin(2 * np.pi * (np.arange(12) + 0.5) / 12)
    X = 0.3 * rng.standard_normal((n, 1, length))
    for i, start in enumerate(rng.integers(0, length - 12, n)):
        X[i, 0, start : start + 12] += np.where(y[i], wiggle, -wiggle)
    return X, y


@pytest.mark.parametrize("seed", range(3))
def test_patches_see_the_shape_that_single_points_do_not(seed):
    """Both classes hold the same readings at the same places; only their order differs."""
    X, y = wiggles(320, 48, seed)
    scores = {}
    for patch in (1, 8):
        cut = as_sequences(X, patch=patch)
        model = ResidualTransformerClassifier(d_model=16, random_state=seed, device="cpu")
        scores[patch] = model.fit(cut[:120], y[:120]).score(cut[120:], y[120:])
    assert scores[8] > 0.9
    assert scores[8] > scores[1] + 0.15
