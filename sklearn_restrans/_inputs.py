"""What may be passed to the estimators, and the sentences for what may not."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ._compat import _check_sample_weight, _num_samples
from ._data import padded_length, padding_mask
from ._views import SequenceView, gaps, longest_step

# More rows than this of an embedding table come from ids that were never counted from 0.
_MOST_IDS = 2_000_000
# Larger entries of a vector leave float32 no digit below 1: what training adds to them is lost.
_LARGEST_ENTRY = 2**24

_KINDS = {
    "tokens": "2-D array of token ids",
    "table": "2-D table",
    "window": "2-D array cut into windows",
    "sequence": "3-D array or SequenceView of sequences",
}


def _ndim(X):
    """Number of axes, without converting a list of lists."""
    if hasattr(X, "shape"):
        return len(X.shape)
    ndim = 0
    while isinstance(X, list | tuple) and len(X):
        X, ndim = X[0], ndim + 1
    return ndim + (len(X.shape) if hasattr(X, "shape") else 0)


def _check_lengths(X):
    """Refuse rows or sequences of unequal length, which numpy would call inhomogeneous."""
    objects = isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1
    if not isinstance(X, list | tuple) and not objects:
        return
    lengths = {len(row) for row in X if isinstance(row, list | tuple | np.ndarray)}
    if len(lengths) < 2:
        return
    if max(_ndim(row) for row in X) < 2:
        raise ValueError(
            f"X holds rows of {min(lengths)} to {max(lengths)} values; a table has rows of one "
            "length, and sequences have 3 axes, (n_samples, n_tokens, n_channels)."
        )
    raise ValueError(
        f"X holds sequences of {min(lengths)} to {max(lengths)} tokens; pad the shorter ones at "
        "the end with tokens that are NaN in every channel."
    )


def _check_mask(X, name, filled):
    """Refuse masked entries, which `numpy.asarray` reads as if they were none."""
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            f"{name} is an array with {np.ma.count_masked(X)} masked entries, whose mask would be "
            f"lost; pass {name}.{filled}."
        )


def _as_ids(X, estimator):
    """X as an array of integers >= 0, or a sentence about what it is instead."""
    remedy = "token ids are integers >= 0, as SequenceVectorizer makes them of texts"
    _check_mask(X, "X", "filled(0), where 0 is padding at the end and 1 an unknown token")
    if isinstance(X, list | tuple):
        lengths = {len(row) for row in X if isinstance(row, list | tuple | np.ndarray)}
        if len(lengths) > 1:
            raise ValueError(
                f"X holds rows of {min(lengths)} to {max(lengths)} token ids; pad the shorter ones "
                "with 0 at the end."
            )
    if isinstance(X, SequenceView) or _ndim(X) != 2:
        shape = f" and shape {tuple(X.shape)}" if hasattr(X, "shape") else ""
        raise ValueError(
            f"X must be 2-D, one row of token ids per text, got {type(X).__name__} with "
            f"{_ndim(X)} axes{shape}; {remedy}."
        )
    try:
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
        if X.dtype.kind in "bmM":
            raise ValueError(f"its type is {X.dtype}.")
        ids = X if X.dtype.kind in "iu" else X.astype(np.float64)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")  # other lines print X
        raise type(error)(f"X cannot be read as token ids: {reason}; {remedy}.") from None
    wrong = ~(np.isfinite(ids) & (ids >= 0) & (ids == np.floor(ids)) & (ids < _MOST_IDS))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value = ids[row, column].item()
        kind = "is missing; pad with 0" if value != value else f"is {value!r}, no token id"
        raise ValueError(
            f"X[{row}, {column}] {kind}; {remedy} (0: padding at the end, 1: unknown, at most "
            f"{_MOST_IDS - 1:,})."
        )
    return ids.astype(np.int64)


class _Segmented(NamedTuple):
    """Rows in time order, and the label of the segment each belongs to."""

    rows: object
    labels: object


def _segments(rows, labels, longest):
    """Number of the segment of each row: a new label, or a gap in the time stamps, starts one.

    None where neither tells. ``rows`` are as the user passed them, with their index, which must go
    forward within a label; ``longest`` is the longest step of fit.
    """
    n = _num_samples(rows)
    new = np.zeros(n, dtype=bool)
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != (n,):
            raise ValueError(
                f"segments must hold one label per row of X, shape ({n},), got {labels.shape}."
            )
        if pd.isna(labels).any():
            raise ValueError("segments holds missing labels; give every row one.")
        new[1:] |= labels[1:] != labels[:-1]
    index = getattr(rows, "index", None)
    if isinstance(index, pd.DatetimeIndex):
        back = np.r_[False, np.diff(index.asi8) <= 0] & ~new
        if back.any():
            row = int(np.flatnonzero(back)[0])
            raise ValueError(
                f"the time stamps of X go back, or repeat, at row {row} ({index[row]}): sort the "
                "rows by time and keep one of each (X.sort_index()), name the series of every row "
                "with segments=..., or pass X.to_numpy() to ignore the index."
            )
        new |= gaps(index, longest)
    return np.cumsum(new) if new.any() else None


class InputChecks:
    """Validation of X, weights, splits and residual_beta; mixed into the estimators."""

    # Whether a validation part keeps the proportions of the classes.
    _stratify = False

    def _check_X(self, X, reset):
        """A validated X: table (n, f), 3-D array (n, T, f) or SequenceView."""
        X, labels = X if isinstance(X, _Segmented) else (X, None)
        window = self.window if reset else self._window
        if self._takes_ids() if reset else self._input_kind == "tokens":
            return self._check_ids(X, labels, window, reset)
        if labels is not None and window is None:
            raise ValueError(
                "segments has a meaning for window=... only; set window, or use "
                "SequenceView(..., segments=...)."
            )
        series = X.series if isinstance(X, SequenceView) else X
        _check_mask(series, "X", "astype(float).filled(np.nan): NaN is a missing reading")
        try:
            return self._check_numbers(X, labels, window, reset)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(
                f"X holds text where numbers are expected: {error}; texts go through "
                "SequenceVectorizer to an estimator with embedding='token', categories through "
                "OneHotEncoder."
            ) from None

    def _check_numbers(self, X, labels, window, reset):
        """`_check_X` for anything but token ids."""
        floats, with_nan = [np.float64, np.float32], {"ensure_all_finite": "allow-nan"}
        named = {"estimator": self, "input_name": "X"}
        if isinstance(X, SequenceView):
            check_array(X.series, dtype="numeric", **with_nan, **named)
            if not len(X):
                raise ValueError(f"Found a SequenceView with 0 sample(s) (shape={X.shape}).")
            kind = "sequence"
        elif _ndim(X) > 2:
            _check_lengths(X)
            X = check_array(X, dtype=floats, allow_nd=True, ensure_2d=False, **with_nan, **named)
            if X.ndim > 3:
                raise ValueError(f"X has {X.ndim} axes; a table has 2, an array of sequences 3.")
            if 0 in X.shape:
                raise ValueError(f"X has shape {X.shape}: 0 tokens or 0 feature(s) in a sequence.")
            kind = "sequence"
        else:
            _check_lengths(X)
            segments = None
            if window is not None:
                segments = self._segments_of(X, labels, reset)
            X = validate_data(self, X, dtype=floats, reset=reset, **with_nan)
            kind = "table" if window is None else "window"
        if kind == "sequence":
            self._check_sequences(X, window, reset)
        if not reset and kind != self._input_kind:
            raise ValueError(
                f"X is a {_KINDS[kind]}, but {type(self).__name__} was fitted on a "
                f"{_KINDS[self._input_kind]}; pass the same kind."
            )
        if reset:
            self._input_kind, self._window = kind, window
        if kind == "window":
            if reset and window > len(X):
                raise ValueError(
                    f"window={window} is longer than the {len(X)} rows of X; use a window of "
                    f"at most {len(X)}, or pass more rows."
                )
            X = SequenceView(X, np.arange(len(X)), window, segments=segments)
        if kind == "sequence" and reset:
            self._n_tokens = X.shape[1]
        return X

    def _segments_of(self, X, labels, reset):
        """Segments of the rows of X, by the labels and by the clock as fit knew it."""
        if reset:
            self._longest_step = longest_step(getattr(X, "index", None), "auto")
            self._labelled = labels is not None
        elif self._labelled and labels is None:
            warnings.warn(
                "fit was told the segments of its rows, and this call is not: windows reach across "
                "them. Pass segments=... here too, or use a SequenceView.",
                UserWarning,
                stacklevel=6,
            )
        return _segments(X, labels, self._longest_step)

    def _with_segments(self, X, segments):
        """X, and with it the segments of its rows if there are any."""
        return X if segments is None else _Segmented(X, segments)

    def _check_sequences(self, X, window, reset):
        if window is not None:
            raise ValueError(
                f"window={window} cuts windows out of 2-D rows, but X is already 3-D with "
                f"shape {X.shape}; set window=None."
            )
        n_tokens, n_features = X.shape[1:]
        view = isinstance(X, SequenceView)
        spacing = X.dilation if view else None
        if reset:
            if view and X.window > len(X.series):
                raise ValueError(
                    f"X is a SequenceView with window={X.window} on a series of {len(X.series)} "
                    f"rows; use a window of at most {len(X.series)}, or a longer series."
                )
            self.n_features_in_, self._spacing = n_features, spacing
            self.__dict__.pop("feature_names_in_", None)
            if view and X.columns is not None:
                self.feature_names_in_ = X.columns
            return
        if self._input_kind != "sequence":
            return
        if n_features != self.n_features_in_:
            raise ValueError(
                f"X has {n_features} channels (features), but {type(self).__name__} is expecting "
                f"{self.n_features_in_} channels as input."
            )
        self._check_names(X)
        if view and self._spacing not in (None, spacing):
            raise ValueError(
                f"X is a SequenceView with dilation={spacing}, but {type(self).__name__} was "
                f"fitted on dilation={self._spacing}; pass the same."
            )
        if n_tokens != self._n_tokens:
            raise ValueError(
                f"X has sequences of {n_tokens} tokens, but {type(self).__name__} was fitted on "
                f"{self._n_tokens}; pad shorter ones with NaN tokens at the end, cut longer ones."
            )

    def _takes_ids(self):
        """Whether ``embedding`` asks for token ids."""
        return not isinstance(self.embedding, str) or self.embedding == "token"

    def _check_ids(self, X, labels, window, reset):
        """Token ids (n, T) of X, 0 after the last token of each row, no row without any.

        A row of padding alone holds one unknown token, as an empty text does. Without pretrained
        vectors, ids that fit did not see are unknown ones: no vector was learnt for them.
        """
        if window is not None or labels is not None:
            raise ValueError(
                f"window={window} and segments are for 2-D rows in time order; token ids have "
                "none: set window=None, and pass no segments."
            )
        ids = _as_ids(X, self)
        table = self._check_vectors() if reset else None
        if reset:
            validate_data(self, X, skip_check_array=True)  # the number of columns, and their names
            self._input_kind, self._window = "tokens", window
            self._n_tokens = int(padded_length(ids.shape[1]))
            self._pretrained = table is not None
            self._known_ids = np.zeros(max(2, ids.max() + 1 if table is None else len(table)), bool)
        self._check_names(X)
        n_ids = len(self._known_ids)
        if self._pretrained and ids.max() >= n_ids:
            row, column = np.argwhere(ids >= n_ids)[0]
            raise ValueError(
                f"X holds the token id {ids[row, column]} in row {row}, but embedding has vectors "
                f"for the ids 0 to {n_ids - 1} only; use the vocabulary the vectors belong to, or "
                "write 1 (unknown) for other tokens."
            )
        length = ids.shape[1] - (ids[:, ::-1] != 0).argmax(axis=1)
        length[~ids.any(axis=1)] = 0
        self._check_id_rows(ids, length)
        if reset:
            self._known_ids[np.unique(ids)] = True
        if not self._pretrained:
            known = np.append(self._known_ids, False)[np.minimum(ids, n_ids)]
            ids = np.where(known | (ids == 0), ids, 1)
        ids = ids[:, : max(1, length.max())].copy()
        ids[length == 0, 0] = 1
        return ids

    def _meet_ids(self, X):
        """Ids that a fit which goes on trains, so that they are unknown no longer."""
        met = np.unique(_as_ids(X.rows if isinstance(X, _Segmented) else X, self))
        self._known_ids = self._known_ids.copy()
        self._known_ids[met[met < len(self._known_ids)]] = True
        beyond = met[met >= len(self._known_ids)]
        if len(beyond) and not self._pretrained:
            warnings.warn(
                f"warm_start=True goes on with vectors for the ids below {len(self._known_ids)}: "
                f"{len(beyond)} ids of X, such as {beyond[0]}, are taken for unknown. Fit first on "
                "rows that hold the largest id, or set warm_start=False.",
                UserWarning,
                stacklevel=4,
            )

    def _check_names(self, X):
        """Refuse other column names than those of fit; ids may have fewer or more columns."""
        names, columns = getattr(self, "feature_names_in_", ()), getattr(X, "columns", None)
        pairs = zip(() if columns is None else columns, names, strict=False)
        for place, (column, name) in enumerate(pairs):
            if isinstance(column, str) and column != name:
                raise ValueError(
                    f"column {place} of X is {column!r}, but {type(self).__name__} was fitted on "
                    f"{name!r} there; pass the same columns in the same order."
                )

    def _check_id_rows(self, ids, length):
        """Refuse padding before a token, and more tokens than there are positions."""
        early = (ids == 0) & (np.arange(ids.shape[1]) < length[:, None])
        if early.any():
            row = np.flatnonzero(early.any(axis=1))[0]
            raise ValueError(
                f"row {row} of X has id 0, which is padding, before its last token; pad at the "
                "end, and number the tokens from 1 (1: unknown)."
            )
        if length.max() > self._n_tokens:
            raise ValueError(
                f"row {length.argmax()} of X has {length.max()} tokens, but "
                f"{type(self).__name__} was fitted on rows of {self.n_features_in_} and takes up "
                f"to {self._n_tokens}; cut longer ones (SequenceVectorizer does), or fit on wider "
                "rows."
            )

    def _check_vectors(self):
        """Pretrained vectors as an array (V, d_model); None if there are none."""
        if isinstance(self.embedding, str):
            return None
        module = isinstance(self.embedding, torch.nn.Embedding)
        vectors = self.embedding.weight if module else self.embedding
        _check_mask(vectors, "embedding", "filled(0.0)")
        try:
            if hasattr(vectors, "detach"):  # a tensor, such as the weight of a torch module
                vectors = vectors.detach().cpu()
                # numpy has no bfloat16
                vectors = vectors.float() if vectors.element_size() == 2 else vectors
            vectors = np.asarray(vectors)
            if vectors.dtype.kind not in "biufO":
                raise TypeError(f"its type is {vectors.dtype}")
            vectors = vectors.astype(np.float64)  # a copy: frames lend what is not to be written
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"embedding cannot be read as an array of numbers: {str(error).rstrip('.')}; pass "
                "one vector of numbers per token id."
            ) from None
        if vectors.ndim != 2 or len(vectors) < 2:
            raise ValueError(
                f"embedding has shape {vectors.shape}; pass an array of shape (n_ids, d_model), "
                "row i for the token id i, with rows for 0 (padding) and 1 (unknown)."
            )
        if vectors.shape[1] != self.d_model:
            raise ValueError(
                f"embedding has vectors of width {vectors.shape[1]}, but d_model is "
                f"{self.d_model}; set d_model={vectors.shape[1]}."
            )
        wrong = ~(np.abs(vectors) <= _LARGEST_ENTRY)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"embedding[{row}, {column}] is {vectors[row, column]}; every vector must be "
                "finite, that of padding too (write zeros where there is none), and of a size to "
                f"learn from: scale them below {_LARGEST_ENTRY:,}, best to a variance of 1."
            )
        return vectors

    def _check_weight(self, sample_weight, X):
        if sample_weight is None:
            return None
        probe = np.empty((_num_samples(X), 0))
        weight = _check_sample_weight(
            sample_weight, probe, dtype=np.float64, ensure_non_negative=True
        )
        if not weight.any():
            raise ValueError("sample_weight is zero for every sample; there is nothing to fit.")
        return weight / weight.max()

    def _split(self, X, y, weight, seed, X_val):
        """Rows to train on and rows to validate on; a zero weight leaves a row out of both."""
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
        if X_val is not None or not self.early_stopping:
            return rows, rows[:0]
        n_valid = int(np.ceil(self.validation_fraction * len(rows)))
        if isinstance(X, SequenceView):
            # Time order: train on windows that end before the first row of a validation window.
            rows = rows[np.argsort(X.ends[rows], kind="stable")]
            valid_rows = rows[len(rows) - n_valid :]
            starts = X.ends[valid_rows] - (X.window - 1) * X.dilation
            if X.first is not None:
                starts = np.maximum(starts, X.first[X.ends[valid_rows]])
            train_rows = rows[X.ends[rows] < starts.min()]
        else:
            try:
                train_rows, valid_rows = train_test_split(
                    rows,
                    test_size=n_valid,
                    random_state=seed,
                    stratify=y[rows] if self._stratify else None,
                )
            except ValueError as error:
                raise ValueError(f"early_stopping=True cannot set aside rows: {error}") from None
        if len(train_rows) < 1 or len(valid_rows) < 2:
            raise ValueError(
                f"early_stopping=True with validation_fraction={self.validation_fraction} leaves "
                f"{len(train_rows)} training and {len(valid_rows)} validation rows of {len(rows)}; "
                "at least 1 and 2 are needed: change validation_fraction, pass X_val and y_val, or "
                "set early_stopping=False."
            )
        return np.sort(train_rows), np.sort(valid_rows)

    def _scaling_rows(self, X, rows, weight):
        """Rows (N, f) and weights whose statistics scale the inputs: the training part only."""
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

    def _beta(self, n_layers):
        """residual_beta as an array (n_layers, 2): a number, a pair, or every value."""
        value = self.residual_beta
        allowed = (
            "residual_beta must be a number >= 0, a pair (attention, ffn), or an array of shape "
            f"(n_layers, 2) = ({n_layers}, 2)"
        )
        try:
            beta = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{allowed}; got {value!r}.") from None
        if beta.shape not in ((), (2,), (n_layers, 2)):
            raise ValueError(f"{allowed}; got shape {beta.shape}.")
        if not np.isfinite(beta).all() or (beta < 0).any():
            raise ValueError(f"{allowed}, finite and not negative; got {value!r}.")
        return np.broadcast_to(beta, (n_layers, 2)).copy()
