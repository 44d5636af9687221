"""Which rows train, which validate, which scale, and how much each of them counts."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split

from .._compat import _check_sample_weight, _num_samples
from .cells import as_numbers, naming, plain
from .sources import padding_mask
from .windows import SequenceView, are_apart

_REMEDIES = dict.fromkeys(
    ("dates", "durations", "text", "complex numbers", "lists"), "pass one number >= 0 per row"
)


# Share of the largest weight below which a row counts as if its weight were zero: no sum of fewer
# than 1e14 rows sees it in float64, and its weight may be zero in float32.
_NEGLIGIBLE = 1e-30


def check_weight(sample_weight, X):
    """Sample weights (n,) divided by the largest, or None where there are none."""
    if sample_weight is None:
        return None
    weight = as_numbers(plain(sample_weight), "sample_weight", remedies=_REMEDIES)
    probe, checks = (
        np.empty((_num_samples(X), 0)),
        {"dtype": np.float64, "ensure_non_negative": True},
    )
    weight = naming("sample_weight", _check_sample_weight, weight, probe, **checks)
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
        Seed of the draw. Windows are not drawn, the last ones of every station are set aside,
        unless every window has a station of its own.
    stratified : bool
        Whether the parts keep the proportions of the classes.
    """
    rows = (
        np.arange(len(y)) if weight is None else np.flatnonzero(weight > _NEGLIGIBLE * weight.max())
    )
    if fraction is None:
        return rows, rows[:0]
    n_valid = int(np.ceil(fraction * len(rows)))
    if isinstance(X, SequenceView) and not are_apart(X, X.ends[rows]):
        train_rows, valid_rows = _split_in_time(X, rows, fraction)
    else:
        try:
            train_rows, valid_rows = train_test_split(
                rows, test_size=n_valid, random_state=seed, stratify=y[rows] if stratified else None
            )
        except ValueError as error:
            raise ValueError(
                f"early_stopping=True with validation_fraction={fraction} cannot set aside "
                f"{n_valid} of {len(rows)} rows: {str(error).rstrip('.')}. Change "
                "validation_fraction so that both parts hold every class, pass X_val and y_val, or "
                "set early_stopping=False."
            ) from None
    if len(train_rows) < 1 or len(valid_rows) < 2:
        raise ValueError(
            f"early_stopping=True with validation_fraction={fraction} leaves {len(train_rows)} "
            f"training and {len(valid_rows)} validation rows of {len(rows)}; at least 1 and 2 are "
            "needed: change validation_fraction, pass X_val and y_val, or set "
            "early_stopping=False."
        )
    return np.sort(train_rows), np.sort(valid_rows)


def _split_in_time(X, rows, fraction):
    """The last windows of every station validate; those before the first row of these train.

    Windows overlap, and those that would train on rows of the validation part are left out. That
    can be most of a short station: where it is more than half, whole stations validate instead.
    """
    rows = rows[np.argsort(X.ends[rows], kind="stable")]
    station = _stations(X)
    number = np.zeros(len(rows), dtype=int)
    if station is not None:
        number = np.unique(station[X.ends[rows]], return_inverse=True)[1]
    order = np.argsort(number, kind="stable")
    parts = np.split(rows[order], np.cumsum(np.bincount(number))[:-1])
    train, valid, short = [], [], []
    for part in parts:
        before, after = _tail(X, part, int(np.ceil(fraction * len(part))))
        if len(parts) > 1 and len(before) < len(part) / 2:
            short.append(part)
        else:
            train.append(before)
            valid.append(after)
    # Spread evenly over the short stations; one at least validates, and one at least trains.
    n_whole = min(round(fraction * len(short)), len(short) - (not train))
    if not valid:
        n_whole = max(n_whole, 1)
    whole = ((np.arange(n_whole) + 0.5) * len(short) / max(n_whole, 1)).astype(int)
    for place, part in enumerate(short):
        (valid if place in whole else train).append(part)
    return tuple(np.concatenate(found or [rows[:0]]) for found in (train, valid))


def _tail(X, rows, n_valid):
    """Windows of one station that end before the first row of its last ones, and these."""
    valid_rows = rows[len(rows) - n_valid :]
    starts = X.ends[valid_rows] - (X.window - 1) * X.dilation
    if X.first is not None:
        starts = np.maximum(starts, X.first[X.ends[valid_rows]])
    return rows[X.ends[rows] < starts.min()], valid_rows


def _stations(X):
    """Number (n_rows,) of the station of each row of the series; None where there is one."""
    return X.first if X.stations is None else X.stations


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
