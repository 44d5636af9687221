"""What X may be, learnt once in fit and held against every later X.

`learn_inputs` makes an `InputSpec` of the parameters and the first X; ``spec.check(X)`` serves
every later call. A spec is never changed, so a fit that fails leaves nothing behind.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from .._compat import _num_samples
from .arrays import n_axes, refuse_masked, refuse_unequal_lengths
from .cells import as_array, as_numbers, naming, plain
from .clock import Clock, learn_clock, lost_history, station_numbers, warn_of_lost_history
from .forms import PLAIN, WindowForm, check_form
from .panels import as_sequences, is_nested, warn_of_swapped_axes
from .tokens import as_ids, padded_length, pretrained_vectors, takes_ids
from .windows import SequenceView, are_apart, of_stations, on_series

_KINDS = {
    "tokens": "2-D array of token ids",
    "table": "2-D table",
    "window": "2-D array cut into windows",
    "sequence": "3-D array or SequenceView of sequences",
}
_FLOATS = [np.float64, np.float32]
_REMEDY = (
    "windows begin anew after each; fill in the missing rows, pass X.to_numpy() to take the rows "
    "as consecutive, or make the windows with make_supervised(..., window=..., max_gap=...)"
)


@dataclass(frozen=True, eq=False)
class InputSpec:
    """What fit learnt about X.

    Attributes
    ----------
    owner : str
        Class name of the estimator, for messages.
    kind : {"table", "window", "sequence", "tokens"}
    n_features : int
        Columns of a 2-D X, channels of a 3-D X, of a patch those of one row.
    names : ndarray of str or None
        Names of the columns.
    n_tokens : int or None
        Tokens of a sequence; for token ids, the longest row that has position vectors.
    window : int or None
        Rows of a window cut out of 2-D rows.
    spacing : int or None
        Dilation of the SequenceView it was learnt on.
    apart : bool
        Whether every window of the SequenceView was a series of its own.
    form : WindowForm
        How the windows of the SequenceView became tokens.
    clock : Clock or None
        Which steps of the time stamps are gaps, of windows.
    known_ids : bool ndarray or None
        Which token ids training has seen.
    pretrained : bool
        Whether pretrained vectors of the token ids were given.
    """

    owner: str
    kind: str
    n_features: int
    names: np.ndarray | None = None
    n_tokens: int | None = None
    window: int | None = None
    spacing: int | None = None
    apart: bool = False
    form: WindowForm = PLAIN
    clock: Clock | None = None
    known_ids: np.ndarray | None = None
    pretrained: bool = False

    def check(self, X, segments=None):
        """A validated X: table (n, f), array (n, T, f), SequenceView or token ids (n, T).

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind learnt in fit.
        segments : array-like of shape (n_rows,), default=None
            For windows, the label of the series or stretch each row belongs to.

        Raises
        ------
        ValueError
            If X is of another kind or shape, or holds values that cannot be read.
        """
        X = plain(X)
        if self.kind == "tokens":
            _refuse_time(None, segments)
            return self._known(as_ids(X, self.owner), X)
        if self.kind == "sequence":
            X = self._sequences_of(X)
        _refuse_segments(self.window, segments)
        kind = _kind_of(X, self.window)
        if kind != self.kind and n_axes(X) > 1:  # fewer axes are refused by scikit-learn's check
            if kind == "sequence":
                _read_sequences(X, self.owner)  # text in X is refused first, in words of its own
            raise ValueError(
                f"X is a {_KINDS[kind]}, but {self.owner} was fitted on a {_KINDS[self.kind]}; "
                "pass the same kind."
            )
        if self.kind == "sequence" == kind:
            X = _read_sequences(X, self.owner)
            self._check_sequences(X)
            return X
        if kind == "window":
            segments = _segment_numbers(X, segments, self.clock)
        rows, _, _ = _read_rows(X, self.owner, self)
        return _cut(rows, self.window, segments) if kind == "window" else rows

    def _sequences_of(self, X):
        """X with the panels of other libraries made sequences as long as those of fit."""
        if is_nested(X) or (isinstance(X, pd.DataFrame) and isinstance(X.index, pd.MultiIndex)):
            return as_sequences(X, n_tokens=self.n_tokens, **self.form.arguments)
        row = (1, self.n_features)
        if n_axes(X) == 2 and getattr(X, "shape", None) == row and self.n_tokens > 1:
            # Wrappers, such as those of MAPIE, try a fitted model on one row of zeros.
            warnings.warn(
                f"X is one row of {self.n_features} numbers, which is read as a sequence of one "
                f"token; {self.owner} was fitted on sequences of {self.n_tokens}.",
                UserWarning,
                stacklevel=5,
            )
            sequence = np.full((1, self.n_tokens, self.n_features * self.form.patch), np.nan)
            sequence[0, 0] = np.asarray(as_numbers(X))[0]
            return sequence
        return X

    def meeting(self, X):
        """The spec of a fit that goes on and trains the ids of X too."""
        if self.kind != "tokens":
            return self
        met = np.unique(as_ids(plain(X), self.owner))
        known = self.known_ids.copy()
        known[met[met < len(known)]] = True
        beyond = met[met >= len(known)]
        if len(beyond) and not self.pretrained:
            warnings.warn(
                f"warm_start=True continues with the vectors of the ids below {len(known)}: "
                f"{len(beyond)} ids of X, such as {beyond[0]}, are treated as unknown. Fit first "
                "on rows that hold the largest id, or set warm_start=False.",
                UserWarning,
                stacklevel=5,
            )
        return replace(self, known_ids=known)

    def _check_sequences(self, X):
        n_tokens, n_features, expected = *X.shape[1:], self.n_features * self.form.patch
        if isinstance(X, SequenceView):
            check_form(self.form, X.form, self.owner)
        if n_features != expected:
            patches = f": patches of {self.form.patch} rows" if self.form.patch > 1 else ""
            raise ValueError(
                f"X has {n_features} channels (features), but {self.owner} is expecting "
                f"{expected} channels as input{patches}."
            )
        self._check_names(X)
        spacing = X.dilation if isinstance(X, SequenceView) else None
        if spacing is not None and self.spacing not in (None, spacing):
            raise ValueError(
                f"X is a SequenceView with dilation={spacing}, but {self.owner} was fitted on "
                f"dilation={self.spacing}; pass the same."
            )
        if n_tokens != self.n_tokens:
            raise ValueError(
                f"X has sequences of {n_tokens} tokens, but {self.owner} was fitted on "
                f"{self.n_tokens}; pad shorter ones with NaN tokens at the end, cut longer ones."
            )

    def _check_names(self, X):
        """Refuse other column names than those of fit; ids may have fewer or more columns."""
        columns = getattr(X, "columns", None)
        names = () if self.names is None else self.names
        pairs = zip(() if columns is None else columns, names, strict=False)
        for place, (column, name) in enumerate(pairs):
            if isinstance(column, str) and column != name:
                raise ValueError(
                    f"column {place} of X is {column!r}, but {self.owner} was fitted on "
                    f"{name!r} there; pass the same columns in the same order."
                )

    def _known(self, ids, X):
        """Token ids (n, T) with 0 after the last token of each row, which has at least one token.

        A row of padding alone becomes one unknown token, as an empty text does. Without pretrained
        vectors, ids that fit did not see become unknown tokens: no vector was learnt for them.
        """
        self._check_names(X)
        n_ids = len(self.known_ids)
        if self.pretrained and ids.max() >= n_ids:
            row, column = np.argwhere(ids >= n_ids)[0]
            raise ValueError(
                f"X holds the token id {ids[row, column]} in row {row}, but embedding has vectors "
                f"for the ids 0 to {n_ids - 1} only; use the vocabulary the vectors belong to, or "
                "write 1 (unknown) for other tokens."
            )
        length = ids.shape[1] - (ids[:, ::-1] != 0).argmax(axis=1)
        length[~ids.any(axis=1)] = 0
        self._check_id_rows(ids, length)
        if not self.pretrained:
            known = np.append(self.known_ids, False)[np.minimum(ids, n_ids)]
            ids = np.where(known | (ids == 0), ids, 1)
        ids = ids[:, : max(1, length.max())].copy()
        ids[length == 0, 0] = 1
        return ids

    def _check_id_rows(self, ids, length):
        """Refuse padding before a token, and more tokens than there are positions."""
        early = (ids == 0) & (np.arange(ids.shape[1]) < length[:, None])
        if early.any():
            row = np.flatnonzero(early.any(axis=1))[0]
            raise ValueError(
                f"row {row} of X has id 0, which is padding, before its last token; pad at the "
                "end, and number the tokens from 1 (1: unknown)."
            )
        if length.max() > self.n_tokens:
            raise ValueError(
                f"row {length.argmax()} of X has {length.max()} tokens, but {self.owner} was "
                f"fitted on rows of {self.n_features} and takes up to {self.n_tokens}; cut longer "
                "ones (SequenceVectorizer does), or fit on wider rows."
            )


def learn_inputs(estimator, X, segments=None):
    """The spec of the X that an estimator is fitted on, and that X validated.

    Parameters
    ----------
    estimator : object
        With the parameters ``window``, ``embedding`` and ``d_model``.
    X : array-like or SequenceView
        Samples, as for fit.
    segments : array-like of shape (n_rows,), default=None
        For windows, the label of the series or stretch each row belongs to.

    Returns
    -------
    spec : InputSpec
    X : ndarray or SequenceView
        As from ``spec.check(X, segments)``.
    """
    owner, window = type(estimator).__name__, estimator.window
    X = plain(X)
    if takes_ids(estimator.embedding):
        _refuse_time(window, segments)
        return _learn_ids(estimator, X, owner)
    _refuse_segments(window, segments)
    X = as_sequences(X) if is_nested(X) else X
    kind = _kind_of(X, window)
    if kind == "sequence":
        X = _read_sequences(X, owner)
        if not isinstance(X, SequenceView):
            warn_of_swapped_axes(X, stacklevel=5)
        return _learn_sequences(X, owner, window), X
    clock = stations = None
    if kind == "window":
        index, n = getattr(X, "index", None), naming("X", _num_samples, X)
        labels = _checked_labels(segments, n)
        if window > n > 0:
            raise ValueError(
                f"window={window} is longer than the {n} rows of X; use a window of at most {n}, "
                "or pass more rows."
            )
        clock = learn_clock(index, "auto", labels)
        segments, stations = clock.segments(index, labels), station_numbers(index, labels)
        share = lost_history(clock, index, window, labels=labels)
        warn_of_lost_history(share, window, _REMEDY, stacklevel=4)
    X, n_features, names = _read_rows(X, owner)
    spec = InputSpec(owner, kind, n_features, names)
    if kind == "table":
        return spec, X
    spec = replace(spec, window=window, n_tokens=window, clock=clock)
    # Early stopping sets aside the end of every station, and not of every stretch between gaps.
    return spec, of_stations(_cut(X, window, segments), stations)


def _learn_ids(estimator, X, owner):
    ids = as_ids(X, owner)
    table = pretrained_vectors(estimator.embedding, estimator.d_model)
    n_features, names = _columns_of(X, owner)
    known = np.zeros(max(2, ids.max() + 1 if table is None else len(table)), dtype=bool)
    known[np.unique(ids[ids < len(known)])] = True
    own = {"known_ids": known, "pretrained": table is not None}
    n_tokens = int(padded_length(ids.shape[1]))
    spec = InputSpec(owner, "tokens", n_features, names, n_tokens=n_tokens, **own)
    return spec, spec._known(ids, X)


def _learn_sequences(X, owner, window):
    if window is not None:
        raise ValueError(
            f"window={window} cuts windows out of 2-D rows, but X is already 3-D with shape "
            f"{X.shape}; set window=None."
        )
    view = isinstance(X, SequenceView)
    if view and X.window > len(X.series):
        raise ValueError(
            f"X is a SequenceView with window={X.window} on a series of {len(X.series)} rows; use "
            f"a window of at most {len(X.series)}, or a longer series."
        )
    if not view:
        return InputSpec(owner, "sequence", X.shape[2], n_tokens=X.shape[1])
    own = {"spacing": X.dilation, "apart": are_apart(X, X.ends), "form": X.form}
    return InputSpec(owner, "sequence", X.series.shape[1], X.columns, n_tokens=X.shape[1], **own)


def _kind_of(X, window):
    if isinstance(X, SequenceView) or n_axes(X) > 2:
        return "sequence"
    return "table" if window is None else "window"


def _cut(rows, window, segments):
    return SequenceView(rows, np.arange(len(rows)), window, segments=segments)


def _refuse_time(window, segments):
    if window is not None or segments is not None:
        raise ValueError(
            f"window={window} and segments are for 2-D rows in time order, which token "
            "ids are not: set window=None, and pass no segments."
        )


def _refuse_segments(window, segments):
    if segments is not None and window is None:
        raise ValueError(
            "segments is used with window=... only; set window, or use SequenceView(..., "
            "segments=...)."
        )


# ---- reading arrays -------------------------------------------------------------------------


def _read_sequences(X, owner):
    """A 3-D array or a SequenceView of finite numbers and NaN."""
    view = isinstance(X, SequenceView)
    _refuse_masked_numbers(X.series if view else X)
    checks = {"ensure_all_finite": "allow-nan", "estimator": owner, "input_name": "X"}
    if view:
        series = as_numbers(X.series, columns=X.columns)
        naming("X", check_array, series, dtype="numeric", **checks)
        if not len(X):
            raise ValueError(f"Found a SequenceView with 0 sample(s) (shape={X.shape}).")
        return X if series is X.series else on_series(X, series)
    refuse_unequal_lengths(X)
    X = as_numbers(X)
    X = naming("X", check_array, X, dtype=_FLOATS, allow_nd=True, ensure_2d=False, **checks)
    if X.ndim > 3:
        raise ValueError(f"X has {X.ndim} axes; a table has 2, an array of sequences 3.")
    if 0 in X.shape:
        raise ValueError(f"X has shape {X.shape}: 0 tokens or 0 feature(s) in a sequence.")
    return X


def _read_rows(X, owner, spec=None):
    """2-D rows of finite numbers and NaN, how many columns they have, and their names.

    Number and names must be those of ``spec`` where there is one, as scikit-learn checks them.
    """
    _refuse_masked_numbers(X)
    refuse_unequal_lengths(X)
    seen, learns = _columns_seen(owner, spec), spec is None
    checks = {"dtype": _FLOATS, "reset": learns, "ensure_all_finite": "allow-nan"}
    X = naming("X", validate_data, seen, as_numbers(X), **checks)
    return X, seen.n_features_in_, getattr(seen, "feature_names_in_", None)


def _columns_of(X, owner):
    """Number and names of the columns, whatever they hold."""
    seen = _columns_seen(owner)
    validate_data(seen, X, skip_check_array=True)
    return seen.n_features_in_, getattr(seen, "feature_names_in_", None)


def _columns_seen(owner, spec=None):
    """The record of columns that scikit-learn's check reads and writes, outside the estimator."""
    seen = _record_named(owner)()
    if spec is not None:
        seen.n_features_in_ = spec.n_features
        if spec.names is not None:
            seen.feature_names_in_ = spec.names
    return seen


@cache
def _record_named(owner):
    """An empty estimator of that class name, which scikit-learn's messages mention."""
    return type(owner, (BaseEstimator,), {})


def _refuse_masked_numbers(X):
    refuse_masked(X, "X", "astype(float).filled(np.nan): NaN is a missing reading")


# ---- segments -------------------------------------------------------------------------------


def _segment_numbers(rows, labels, clock):
    """Number of the segment of each row as the clock of fit has them, None if there is one.

    ``rows`` are as the user passed them, with their index.
    """
    labels = _checked_labels(labels, naming("X", _num_samples, rows))
    index = getattr(rows, "index", None)
    if clock.named_series and labels is None and not isinstance(index, pd.MultiIndex):
        warnings.warn(
            "fit was told the segments of its rows, and this call is not: windows reach across "
            "them. Pass segments=... here too.",
            UserWarning,
            stacklevel=5,
        )
    return clock.segments(index, labels)


def _checked_labels(labels, n):
    if labels is None:
        return None
    labels = as_array(plain(labels), "segments")
    if labels.shape != (n,):
        raise ValueError(
            f"segments must hold one label per row of X, shape ({n},), got {labels.shape}."
        )
    odd = [] if labels.dtype != object else [v for v in labels if not isinstance(v, Hashable)]
    if odd:
        raise ValueError(
            f"segments holds a {type(odd[0]).__name__}; a label is a number, a text or a date."
        )
    if pd.isna(labels).any():
        raise ValueError("segments holds missing labels; give every row one.")
    return labels
