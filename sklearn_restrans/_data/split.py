"""Which rows train, which validate, which scale, and how much each of them counts."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

from .._compat import _check_sample_weight, _num_samples
from .sources import padding_mask
from .windows import SequenceView


# Share of the largest weight below which a row counts as if its weight were zero: no sum of fewer
# than 1e14 rows sees it in float64, and its weight may be zero in float32.
_NEGLIGIBLE = 1e-30


def check_weight(sample_weight, X):
    """Sample weights (n,) divided by the largest, or None where there are none."""
    if sample_weight is None:
        return None
    probe = np.empty((_num_samples(X), 0))
    weight = _check_sample_weight(sample_weight, probe, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight is zero for every sample; there is nothing to fit.")
    return weight / weight.max()


def split_rows(X, y, weight, fraction, seed, stratified):
    """Rows to train on and rows to validate on; a weight of about zero leaves a row out of both.

    Parameters
    ----------
    X, y : validated samples and targets
    weight : ndarray of shape (n,) or None
    fraction : float or None
        Part of the rows set aside; None sets none aside.
    seed : int
        Seed of the draw; windows are not drawn, the last ones are set aside.
    stratified : bool
        Whether the parts keep the proportions of the classes.
    """
    rows = (
        np.arange(len(y)) if weight is None else np.flatnonzero(weight > _NEGLIGIBLE * weight.max())
    )
    if fraction is None:
        return rows, rows[:0]
    n_valid = int(np.ceil(fraction * len(rows)))
    if isinstance(X, SequenceView):
        train_rows, valid_rows = _split_in_time(X, rows, n_valid)
    else:
        try:
            train_rows, valid_rows = train_test_split(
                rows, test_size=n_valid, random_state=seed, stratify=y[rows] if stratified else None
            )
        except ValueError as error:
            raise ValueError(f"early_stopping=True cannot set aside rows: {error}") from None
    if len(train_rows) < 1 or len(valid_rows) < 2:
        raise ValueError(
            f"early_stopping=True with validation_fraction={fraction} leaves {len(train_rows)} "
            f"training and {len(valid_rows)} validation rows of {len(rows)}; at least 1 and 2 are "
            "needed: change validation_fraction, pass X_val and y_val, or set "
            "early_stopping=False."
        )
    return np.sort(train_rows), np.sort(valid_rows)


def _split_in_time(X, rows, n_valid):
    """The last windows validate; those train that end before the first row of any of them."""
    rows = rows[np.argsort(X.ends[rows], kind="stable")]
    valid_rows = rows[len(rows) - n_valid :]
    starts = X.ends[valid_rows] - (X.window - 1) * X.dilation
    if X.first is not None:
        starts = np.maximum(starts, X.first[X.ends[valid_rows]])
    return rows[X.ends[rows] < starts.min()], valid_rows


def scaling_rows(X, rows, weight):
    """Rows (N, f) and weights whose statistics scale the inputs: of the training part only."""
    if isinstance(X, SequenceView):
        ends = X.ends[rows]
        series = X.series[: ends.max() + 1]
        if X.first is None:
            return series, None
        # Of every segment the rows up to its last training window.
        last = np.full(len(X.series), -1)
        np.maximum.at(last, X.first[ends], ends)
        first = X.first[: len(series)]
        return series, (np.arange(len(series)) <= last[first]).astype(float)
    if X.ndim == 2:
        return X[rows], weight
    X = X[rows]
    weight = None if weight is None else np.repeat(weight, X.shape[1])
    flat, real = X.reshape(-1, X.shape[2]), padding_mask(X)
    if real is None:
        return flat, weight
    return flat[real.ravel()], None if weight is None else weight[real.ravel()]
