"""Series as aeon and sktime hold them become the sequences that the estimators read."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._data.panels import as_sequences

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
