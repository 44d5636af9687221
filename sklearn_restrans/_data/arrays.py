"""Arrays as users pass them: their axes, and the sentences for what cannot be read."""

from __future__ import annotations

import numpy as np


def n_axes(X):
    """Number of axes, without converting a list of lists."""
    if hasattr(X, "shape"):
        return len(X.shape)
    ndim = 0
    while isinstance(X, list | tuple) and len(X):
        X, ndim = X[0], ndim + 1
    return ndim + (len(X.shape) if hasattr(X, "shape") else 0)


def refuse_unequal_lengths(X):
    """Refuse rows or sequences of unequal length, which numpy would call inhomogeneous."""
    objects = isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1
    if not isinstance(X, list | tuple) and not objects:
        return
    lengths = {len(row) for row in X if isinstance(row, list | tuple | np.ndarray)}
    if len(lengths) < 2:
        _refuse_unequal_widths(X)
        return
    if max(n_axes(row) for row in X) < 2:
        raise ValueError(
            f"X holds rows of {min(lengths)} to {max(lengths)} values; a table has rows of one "
            "length, and sequences have 3 axes, (n_samples, n_tokens, n_channels)."
        )
    raise ValueError(
        f"X holds sequences of {min(lengths)} to {max(lengths)} tokens; pad the shorter ones at "
        "the end with tokens that are NaN in every channel, as as_sequences(X) does for arrays "
        "(channels, T)."
    )


def _refuse_unequal_widths(X):
    """Refuse lists of arrays (channels, T) whose T differ, as aeon has them."""
    widths = {row.shape[1] for row in X if isinstance(row, np.ndarray) and row.ndim == 2}
    if len(widths) > 1:
        raise ValueError(
            f"X holds arrays with second axes of {min(widths)} to {max(widths)} entries; if these "
            "are arrays (channels, T), as_sequences(X) makes padded sequences of them."
        )


def refuse_masked(X, name, filled):
    """Refuse masked entries, which `numpy.asarray` reads as ordinary values."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            f"{name} is an array with {np.ma.count_masked(X)} masked entries, whose mask would be "
            f"lost; pass {name}.{filled}."
        )
