"""Windows of a series, made only when they are looked at."""

from __future__ import annotations

import numpy as np

from .._validation import check_integer
from .cells import as_array
from .forms import PLAIN, learn_form, relative_form

# Row numbers are 64-bit integers, and some are subtracted from others.
_FARTHEST = 2**62


class SequenceView:
    """Windows of one shared series, made only when they are looked at.

    Sample i is the ``window`` rows ``ends[i], ends[i] - dilation, ...`` of ``series`` in time
    order. Indexing with an integer array, a mask or a slice gives another view on the same
    series, so a view goes through scikit-learn's splitters and searches as it is, and a test fold
    keeps its true history.

    Parameters
    ----------
    series : array-like of shape (n_rows, n_features)
        Rows in time order; a memory map is not read before it is needed.
    ends : array-like of int of shape (n_samples,)
        Row of ``series`` at which each window ends.
    window : int
        Number of rows in a window, >= 1.
    dilation : int, default=1
        Distance between two rows of a window, >= 1.
    segments : array-like of shape (n_rows,), default=None
        Label of the series, station or stretch each row belongs to; equal labels must be
        neighbours. A window never crosses from one segment into another.
    patch : int, default=1
        Number of consecutive rows of a window that make one token of ``patch * n_features``
        channels, row after row. A token exists if any of its rows does; rows of it before the
        beginning of the series count as missing readings.
    patch_stride : int, default=None
        Rows from the beginning of one patch to that of the next, at most ``patch``; smaller ones
        make patches overlap. None is ``patch``. The patches must end where the window does:
        ``window - patch`` is a multiple of the stride.
    relative : {"last", "standard"}, default=None
        The estimators read every window relative to its own last value ("last"), or to its own mean
        and standard deviation ("standard"): level, or level and size, are taken off, which helps
        where they drift. Missing readings do not count. "standard" divides a window by no less
        than a tenth of the root mean square of the standard deviations of the training windows,
        and a window of one reading by that root mean square. The array that ``np.asarray(view)``
        makes holds the readings as they are.
    relative_columns : column or list of columns, default=None
        Numbers or names of the columns that are read so. None is all of them.
    target_columns : column or list of (column or None), default=None
        For every column of ``y`` the column of ``series`` it is a later value of, in the same
        units: a regressor takes off its targets what it takes off that column, and adds it to its
        predictions again, so that ``y`` and predictions keep their units. None, for one target or
        for all, leaves them as they are. A ``y`` that is transformed alone, as by a
        TransformedTargetRegressor, has other units than its column; where it shows, ``fit``
        refuses it.
    channel_independent : bool, default=False
        Whether each column that ``target_columns`` names, or each column where it is None, is a
        sample of its own: a regressor then reads every window once for each of them, with that
        column, standardised by its own mean and deviation, as the only channel beside the columns
        that are no target. One model serves all, as in PatchTST (Nie et al., arXiv:2211.14730).
        ``y`` has equally many columns for each, and predictions have the columns of ``y``.

    Attributes
    ----------
    shape : tuple (n_samples, n_tokens, patch * n_features)
        As of the 3-D array that ``np.asarray(view)`` makes; without patches every row of a window
        is a token.
    dtype : dtype
        Number type of the series.
    columns : ndarray of str of shape (n_features,) or None
        Column names, if the series was a DataFrame with string names.
    partial : ndarray of bool of shape (n_samples,)
        Windows that begin before their series, or segment, does.

    Raises
    ------
    ValueError
        If ``series`` is not 2-D, an end is not one of its rows, ``window`` or ``dilation`` is
        smaller than 1, a segment comes back after another one, patches leave rows out, or a column
        is named that is not there.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import SequenceView
    >>> view = SequenceView(np.arange(10.0).reshape(5, 2), ends=[2, 3, 4], window=3)
    >>> view.shape
    (3, 3, 2)
    >>> np.asarray(view[1:])[0, :, 0].tolist()
    [2.0, 4.0, 6.0]

    Two hourly readings of one sensor as a token:

    >>> view = SequenceView(np.arange(10.0).reshape(10, 1), ends=[3, 4], window=4, patch=2)
    >>> np.asarray(view)[0].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """

    ndim = 3
    # Number (n_rows,) of the station each row belongs to, where gaps cut a station into segments;
    # None takes every segment for a station.
    stations = None
    # Views that were stored before there were patches have none.
    form = PLAIN

    def __init__(
        self,
        series,
        ends,
        window,
        *,
        dilation=1,
        segments=None,
        patch=1,
        patch_stride=None,
        relative=None,
        relative_columns=None,
        target_columns=None,
        channel_independent=False,
    ):
        if not hasattr(series, "shape"):
            series = as_array(series, "series")
        columns = None
        if hasattr(series, "to_numpy"):
            names = list(getattr(series, "columns", []))
            if names and all(isinstance(name, str) for name in names):
                columns = np.asarray(names, dtype=object)
            series = series.to_numpy()
        if len(series.shape) != 2:
            raise ValueError(
                f"series must be 2-D (n_rows, n_features), got shape {tuple(series.shape)}; "
                "reshape a single variable with series.reshape(-1, 1)."
            )
        self.window = check_integer("window", window)
        self.dilation = check_integer("dilation", dilation)
        if (self.window - 1) * self.dilation > _FARTHEST:
            raise ValueError(
                f"window={window} with dilation={dilation} reaches back further than rows can be "
                "counted; pass smaller ones."
            )
        form = learn_form(self.window, patch, patch_stride)
        asked = (relative, relative_columns, target_columns)
        known = (series.shape[1], columns, channel_independent)
        self.form = relative_form(form, *asked, *known)
        ends = as_array(ends, "ends")
        if ends.ndim != 1 or (ends.size and not np.issubdtype(ends.dtype, np.integer)):
            raise ValueError(
                f"ends must be a 1-D array of row numbers, got {ends.ndim}-D of {ends.dtype}."
            )
        if ends.size and not 0 <= ends.min() <= ends.max() < len(series):
            raise ValueError(
                f"ends must lie between 0 and {len(series) - 1}, the rows of series; "
                f"got {ends.min()} to {ends.max()}."
            )
        self.series, self.columns = series, columns
        self.ends = ends.astype(np.int64, copy=False)
        self.first = None if segments is None else _segment_starts(segments, len(series))

    @property
    def shape(self):
        """(n_samples, n_tokens, patch * n_features)."""
        n_tokens = self.form.n_tokens(self.window)
        return (len(self.ends), n_tokens, self.form.patch * self.series.shape[1])

    @property
    def dtype(self):
        """Number type of the series."""
        return self.series.dtype

    @property
    def partial(self):
        """Boolean (n_samples,): windows that begin before their series (or segment) does."""
        first = 0 if self.first is None else self.first[self.ends]
        return self.ends - (self.window - 1) * self.dilation < first

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, key):
        if isinstance(key, tuple):
            # scikit-learn indexes arrays as X[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise IndexError(
                    "a SequenceView is indexed by samples only; np.asarray(view) gives a 3-D array."
                )
            key = key[0]
        if isinstance(key, int | np.integer):
            return np.asarray(self[[key]])[0]
        ends = self.ends[key]
        if ends.ndim != 1:
            raise IndexError(
                "a SequenceView is indexed by an integer, a slice, a mask or a 1-D array of "
                f"integers; got {key!r}."
            )
        view = object.__new__(SequenceView)
        view.__dict__.update(self.__dict__, ends=ends)
        return view

    def __array__(self, dtype=None, copy=None):
        """The windows as a 3-D array; rows before the start of the series are NaN."""
        if copy is False:
            raise ValueError(
                "a SequenceView makes its 3-D array when asked and cannot give one without a copy."
            )
        places = self.form.places(self.window).ravel()
        values = _rows_at(self, self.ends, places).reshape(self.shape)
        return values if dtype is None else values.astype(dtype)

    def __repr__(self):
        form = self.form
        patches = f"patch={form.patch}, patch_stride={form.stride}, " if form.patch > 1 else ""
        patches += "" if form.relative is None else f"relative={form.relative!r}, "
        patches += "channel_independent=True, " if form.channels else ""
        return (
            f"SequenceView(shape={self.shape}, dilation={self.dilation}, {patches}"
            f"series of {self.series.shape[0]} rows)"
        )


def rows_in(view, key):
    """Windows (m, window, n_features) as arrays of rows, whatever tokens are made of them."""
    return _rows_at(view, view.ends[key], np.arange(view.window))


def _rows_at(view, ends, places):
    """Rows (m, k, n_features) of windows at places counted from the beginning of each window."""
    rows = ends[:, None] - (view.window - 1 - places) * view.dilation
    first = 0 if view.first is None else view.first[ends][:, None]
    missing = rows < first
    values = np.asarray(view.series)[np.where(missing, 0, rows)]
    if missing.any():
        values = values.astype(np.result_type(values.dtype, np.float32))
        values[missing] = np.nan
    return values


def on_series(view, series):
    """The same windows of another series, of as many rows."""
    other = object.__new__(SequenceView)
    other.__dict__.update(view.__dict__, series=series)
    return other


def as_stacked(view, series, n_copies, form):
    """Each window ``n_copies`` times, on copies of its series that stand one after the other.

    The copies of a window follow each other. ``series`` (n_copies * n_rows, ...) holds the rows.
    """
    n_rows, copies = len(view.series), np.arange(n_copies)[:, None]
    first = np.zeros(n_rows, dtype=np.int64) if view.first is None else view.first
    stations = view.stations
    if stations is not None:
        stations = (copies * (stations.max(initial=0) + 1) + stations).ravel()
    other = object.__new__(SequenceView)
    other.__dict__.update(
        view.__dict__,
        series=series,
        columns=None,
        ends=(view.ends[:, None] + copies.T * n_rows).ravel(),
        first=(copies * n_rows + first).ravel(),
        stations=stations,
        form=form,
    )
    return other


def of_stations(view, stations):
    """The view, told which of its segments are stretches of one station.

    ``stations`` (n_rows,) numbers the station of every row; None is one station.
    """
    told = object.__new__(SequenceView)
    if stations is None:
        stations = np.zeros(len(view.series), dtype=np.int64)
    told.__dict__.update(view.__dict__, stations=stations)
    return told


def are_apart(view, ends):
    """Whether every window that ends at ``ends`` has a station to itself, as samples drawn have."""
    station = view.first if view.stations is None else view.stations
    ends = np.unique(ends)
    return station is not None and len(np.unique(station[ends])) == len(ends)


def _segment_starts(segments, n_rows):
    """First row of the segment each row belongs to, (n_rows,)."""
    segments = as_array(segments, "segments")
    if segments.shape != (n_rows,):
        raise ValueError(
            f"segments must hold one label per row, shape ({n_rows},), got {segments.shape}."
        )
    new = np.r_[True, segments[1:] != segments[:-1]][:n_rows]
    labels = segments[new]
    if len(np.unique(labels)) < len(labels):
        raise ValueError(
            "segments must keep equal labels together; a label comes back after another one. "
            "Sort the rows by segment, then by time."
        )
    return np.maximum.accumulate(np.where(new, np.arange(n_rows), 0))
