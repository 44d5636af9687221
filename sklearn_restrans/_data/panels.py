"""Collections of series as other libraries hold them, made sequences (n, T, channels)."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from .._validation import check_integer
from .cells import as_numbers, plain
from .forms import PLAIN, filled_window, learn_form
from .windows import SequenceView

_FORMS = (
    "an array (n, channels, T) or (n, T), a list of arrays (channels, T) or (T,), a DataFrame with "
    "a series in every cell, or a DataFrame with a MultiIndex of instance and time"
)
# From so many times more channels than tokens on, a smooth last axis is taken for time.
_MANY_CHANNELS = 4
# Mean squared step along an axis in units of twice the variance: 1 for noise, near 0 where smooth.
_SMOOTH = 0.25


def as_sequences(X, *, n_tokens=None, patch=1, patch_stride=None, relative=None):
    """Sequences (n, T, channels) from the forms in which aeon and sktime hold series.

    Those libraries put the channels before the time: (n, channels, T). The estimators here read
    (n_samples, n_tokens, n_channels), where tokens are the points in time. Shorter sequences are
    padded with NaN at the end, which the estimators mask.

    With ``patch`` or ``relative`` the result is a SequenceView with one window for every sample.
    Shorter samples then end where the longest does and begin late, and the tokens before their
    beginning are masked. Points that are NaN in every channel at the end of a sample are padding,
    and are left out before.

    Parameters
    ----------
    X : array-like or DataFrame
        An array (n, channels, T), or (n, T) of one channel; a list of arrays (channels, T), or (T,)
        of one channel, whose T may differ; a DataFrame with a series in every cell, rows being
        samples and columns channels ("nested"); or a DataFrame with a MultiIndex of instance and
        time, columns being channels.
    n_tokens : int, default=None
        Tokens of every sequence, for new data of a model that was fitted on longer ones; None is
        what the longest sample in X needs.
    patch : int, default=1
        Consecutive points in time that make one token of ``patch * channels`` numbers, at most as
        many as the longest sample has. Where patches do not divide the length, the first one is
        partly missing.
    patch_stride : int, default=None
        Points from the beginning of one patch to that of the next, at most ``patch``; None is
        ``patch``.
    relative : {"last", "standard"}, default=None
        What every channel of a sample is read relative to: its last reading, or its mean and
        standard deviation over the sample, as in SequenceView.

    Returns
    -------
    sequences : ndarray of shape (n_samples, n_tokens, n_channels) or SequenceView
        float32 if all of X is, else float64. The samples of a MultiIndex stand in the order in
        which they first appear, and their rows in the order of time.

    Raises
    ------
    ValueError
        If X has another form, samples have different numbers of channels, one is longer than
        ``n_tokens`` hold or has no reading, a patch is longer than all of them, or
        ``patch_stride`` leaves points out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import as_sequences
    >>> as_sequences(np.zeros((10, 3, 50))).shape
    (10, 50, 3)
    >>> unequal = [np.zeros((3, 40)), np.zeros((3, 50))]
    >>> as_sequences(unequal).shape
    (2, 50, 3)
    >>> as_sequences(unequal, patch=10, patch_stride=5).shape
    (2, 9, 30)
    """
    samples = _samples(X)
    if not len(samples):
        raise ValueError("X is empty; pass at least one sample.")
    widths = {sample.shape[0] for sample in samples}
    if len(widths) > 1:
        raise ValueError(
            f"X holds samples of {min(widths)} to {max(widths)} channels; every sample must be an "
            "array (channels, T) with the same channels."
        )
    lengths = [sample.shape[1] for sample in samples]
    window = _window(lengths, n_tokens, patch, patch_stride)
    shape = (len(samples), window, widths.pop())
    if 0 in shape:
        raise ValueError(
            f"X has shape {shape}, so there is nothing in it; pass series with points."
        )
    single = all(sample.dtype == np.float32 for sample in samples)
    dtype = np.float32 if single else np.float64
    if learn_form(window, patch, patch_stride) != PLAIN or relative is not None:
        return _view(samples, dtype, window, patch, patch_stride, relative)
    out = np.full(shape, np.nan, dtype)
    for place, sample in enumerate(samples):
        out[place, : sample.shape[1]] = sample.T
    return out


def _window(lengths, n_tokens, patch, patch_stride):
    """Points in time that the tokens of every sequence hold."""
    if n_tokens is None:
        longest = max(lengths)
        window = filled_window(longest, patch, patch_stride)
        if patch > longest > 0:
            raise ValueError(
                f"patch={patch} is longer than the longest sample of X, which has {longest} points "
                f"in time; use a patch of at most {longest}."
            )
        return window if longest else 0
    n_tokens = check_integer("n_tokens", n_tokens)
    window = filled_window(0, patch, patch_stride)  # of one token
    window += (n_tokens - 1) * (patch if patch_stride is None else patch_stride)
    if max(lengths) > window:
        held = "" if patch == 1 else f" of patch={patch}, which hold {window} points,"
        raise ValueError(
            f"n_tokens={n_tokens}{held} is shorter than sample {int(np.argmax(lengths))} of X, "
            f"which has {max(lengths)} points in time; cut it, or pass a larger n_tokens."
        )
    return window


def _view(samples, dtype, window, patch, patch_stride, relative):
    """The samples one after the other, each a segment that one window reads."""
    if isinstance(samples, np.ndarray) and not np.isnan(samples[:, :, -1]).all(axis=1).any():
        lengths = np.full(len(samples), samples.shape[2])
        rows = samples.swapaxes(1, 2).reshape(-1, samples.shape[1])  # one channel: no copy
    else:
        samples = [_ended(sample, place) for place, sample in enumerate(samples)]
        lengths = np.array([sample.shape[1] for sample in samples])
        rows = np.concatenate([sample.T for sample in samples])
    return SequenceView(
        rows.astype(dtype, copy=False),
        np.cumsum(lengths) - 1,
        window,
        segments=np.repeat(np.arange(len(lengths)), lengths),
        patch=patch,
        patch_stride=patch_stride,
        relative=relative,
    )


def _ended(sample, place):
    """A sample (channels, T) without the padding at its end, NaN in every channel."""
    real = np.flatnonzero(~np.isnan(sample).all(axis=0))
    if not len(real):
        raise ValueError(f"sample {place} of X has no reading (NaN everywhere); remove it.")
    return sample[:, : real[-1] + 1]


def _samples(X):
    """The samples of any form, each an array (channels, T)."""
    X = plain(X)
    if isinstance(X, SequenceView):
        raise ValueError("X is a SequenceView, which the estimators take as it is: pass it to fit.")
    if isinstance(X, pd.DataFrame):
        if isinstance(X.index, pd.MultiIndex):
            return _of_levels(X)
        if is_nested(X):
            return [
                _channels([X.iat[row, k] for k in range(X.shape[1])], row) for row in range(len(X))
            ]
        X = X.to_numpy()  # one series a row
    if isinstance(X, np.ndarray) and X.dtype != object:
        X = as_numbers(X)
        if X.ndim == 2:
            X = X[:, None, :]
        if X.ndim != 3:
            raise ValueError(f"X has {X.ndim} axes and shape {X.shape}; pass {_FORMS}.")
        return X
    if not isinstance(X, list | tuple | np.ndarray):
        raise ValueError(f"X is of the type {type(X).__name__}; pass {_FORMS}.")
    return [_sample(sample, place) for place, sample in enumerate(X)]


def _sample(sample, place):
    """One sample of a list as an array (channels, T)."""
    if isinstance(sample, pd.DataFrame):
        raise ValueError(
            f"sample {place} of X is a DataFrame, of which libraries write time down the rows or "
            "along the columns; pass arrays (channels, T), such as frame.to_numpy().T if its "
            "rows are points in time."
        )
    sample = np.asarray(as_numbers(plain(sample), f"sample {place} of X"))
    sample = sample[None, :] if sample.ndim == 1 else sample
    if sample.ndim != 2:
        raise ValueError(
            f"sample {place} of X has {sample.ndim} axes; a sample is an array (channels, T), or "
            f"(T,) of one channel. Pass {_FORMS}."
        )
    return sample


def _channels(cells, row):
    """A row of a nested frame as an array (channels, T), shorter channels padded with NaN."""
    series = [np.asarray(as_numbers(plain(cell), f"row {row} of X")) for cell in cells]
    wrong = [k for k, values in enumerate(series) if values.ndim != 1]
    if wrong:
        raise ValueError(
            f"row {row} of X holds no series in column {wrong[0]}; every cell of a nested "
            "DataFrame must be a pandas Series or a 1-D array."
        )
    longest = max(len(values) for values in series)
    if all(len(values) == longest for values in series):
        return np.stack(series)
    return np.stack(
        [
            np.pad(values.astype(float), (0, longest - len(values)), constant_values=np.nan)
            for values in series
        ]
    )


def _of_levels(X):
    """The samples of a frame whose index ends with the time."""
    names, times = X.index.droplevel(-1), X.index.get_level_values(-1)
    number = names.factorize()[0]
    if (number < 0).any() or times.isna().any():
        raise ValueError("the index of X has missing instances or times; drop these rows.")
    if X.index.has_duplicates:
        twice = X.index[X.index.duplicated()][0]
        raise ValueError(f"the index of X has {twice} more than once; keep one row of each.")
    rank = times.factorize(sort=True)[0]
    order = np.lexsort((rank, number))
    values = np.asarray(as_numbers(X)).astype(float)[order]
    return [part.T for part in np.split(values, np.cumsum(np.bincount(number))[:-1])]


def is_nested(X):
    """Whether X is a DataFrame that holds a series in its cells."""
    if not isinstance(X, pd.DataFrame) or not X.size:
        return False
    return all(isinstance(X.iat[0, k], pd.Series | np.ndarray) for k in range(X.shape[1]))


def is_panel(X, y):
    """Whether X is a DataFrame of (instance, time) rows with one target for every instance."""
    if not isinstance(X, pd.DataFrame) or not isinstance(X.index, pd.MultiIndex) or y is None:
        return False
    n_instances = X.index.droplevel(-1).nunique()
    return hasattr(y, "__len__") and len(y) == n_instances != len(X)


def warn_of_swapped_axes(X, *, stacklevel=2):
    """Warn where an array (n, T, channels) looks like (n, channels, T).

    That is where a sequence is one token of several channels, or where there are many more
    channels than tokens and the values change slowly along the channels and not along the tokens.

    Warns
    -----
    UserWarning
        If it does.
    """
    n_tokens, n_channels = X.shape[1:]
    if n_tokens == 1 and n_channels > 1:
        seen = "every sequence is a single token, to which attention has nothing to add"
    elif n_channels >= _MANY_CHANNELS * n_tokens and _steps(X, 2) < _SMOOTH < _steps(X, 1):
        seen = "the values change slowly along the channels and fast along the tokens"
    else:
        return
    warnings.warn(
        f"X is read as (n_samples, n_tokens, n_channels) = {X.shape}, and {seen}. If its last axis "
        "is the time, as in aeon and sktime, pass as_sequences(X).",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def _steps(X, axis):
    """Mean squared step along an axis over twice the variance, of a sample of the sequences."""
    X = np.asarray(X[:: max(1, len(X) // 200)], dtype=float)
    largest = np.abs(X).max(initial=0.0, where=X == X)
    X = X / largest if largest else X
    steps, values = np.diff(X, axis=axis), X[np.isfinite(X)]
    steps = steps[np.isfinite(steps)]
    if not len(steps) or not values.std():
        return np.nan
    return np.mean(steps**2) / (2 * values.var())
