"""A small series, and its windows read off the definition row by row."""

import numpy as np


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


def in_patches(windows, patch, stride):
    """Rows (n, w, f) of windows as tokens (n, T, patch * f), read off the definition."""
    starts = range(0, windows.shape[1] - patch + 1, stride)
    tokens = [windows[:, k : k + patch].reshape(len(windows), -1) for k in starts]
    return np.stack(tokens, axis=1)


SEGMENTS = np.repeat(["JFK", "EWR", "LGA"], [5, 1, 6])


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
