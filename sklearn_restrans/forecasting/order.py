"""Rows that are meant to follow each other in time."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from .._data.stamps import read_index
from .._data.windows import SequenceView


def warn_of_order(X, y):
    """Warn of rows that are seen to go back in time."""
    indices = [part.index for part in (y, X) if isinstance(getattr(part, "index", None), pd.Index)]
    times = [read_index(index, warn=False).times for index in indices]
    times = [found for found in times if found is not None]
    # Rows of several stations in the order of time share a time stamp, and their ends go back.
    if times:
        back = not times[0].is_monotonic_increasing
    else:
        back = isinstance(X, SequenceView) and bool(np.any(np.diff(X.ends) < 0))
    if back:
        warnings.warn(
            "the rows of X and y go back in time, so they are shuffled, or one series follows "
            "another: residuals of rows beside training rows are too small, and so are the "
            "intervals then; calibrate on the rows just before those that are forecast, sorted by "
            "time, not on a random part (shuffle=False in train_test_split).",
            UserWarning,
            stacklevel=3,
        )
