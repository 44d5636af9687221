"""From arrays to tensors: windows, masks and scaling, without copying what can be viewed.

A *source* holds the scaled inputs of one call to fit or predict as tensors and hands out batches
``(x, mask)``: x (B, T, f), mask (B, T) with True at real tokens, or None when every token of the
batch is real. Which rows are ``partial`` (short history, padding) is known beforehand, so that a
row always meets the same kernels, whatever rows come with it.
"""

from __future__ import annotations

import numpy as np
import torch

# Rows converted at once: small enough for the float64 temporaries to stay in the cache.
_BLOCK_ROWS = 16_384


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

    Attributes
    ----------
    shape : tuple (n_samples, window, n_features)
        As of the 3-D array that ``np.asarray(view)`` makes.
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
        smaller than 1, or a segment comes back after another one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import SequenceView
    >>> view = SequenceView(np.arange(10.0).reshape(5, 2), ends=[2, 3, 4], window=3)
    >>> view.shape
    (3, 3, 2)
    >>> np.asarray(view[1:])[0, :, 0].tolist()
    [2.0, 4.0, 6.0]
    """

    ndim = 3

    def __init__(self, series, ends, window, *, dilation=1, segments=None):
        if not hasattr(series, "shape"):
            series = np.asarray(series)
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
        for name, value in (("window", window), ("dilation", dilation)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
        ends = np.asarray(ends)
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
        self.window = int(window)
        self.dilation = int(dilation)
        self.first = None if segments is None else _segment_starts(segments, len(series))

    @property
    def shape(self):
        """(n_samples, window, n_features)."""
        return (len(self.ends), self.window, self.series.shape[1])

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
            raise ValueError("a SequenceView holds no 3-D array: it cannot be had without a copy.")
        rows = self.ends[:, None] - np.arange(self.window - 1, -1, -1) * self.dilation
        first = 0 if self.first is None else self.first[self.ends][:, None]
        missing = rows < first
        values = np.asarray(self.series)[np.where(missing, 0, rows)]
        if missing.any():
            values = values.astype(np.result_type(values.dtype, np.float32))
            values[missing] = np.nan
        return values if dtype is None else values.astype(dtype)

    def __repr__(self):
        return (
            f"SequenceView(shape={self.shape}, dilation={self.dilation}, "
            f"series of {self.series.shape[0]} rows)"
        )


def _segment_starts(segments, n_rows):
    """First row of the segment each row belongs to, (n_rows,)."""
    segments = np.asarray(segments)
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


class Scaler:
    """x -> (x - mean) / scale, from weighted statistics of the rows that are not NaN.

    ``scale`` is 0 for a column that does not vary: it is only centred, and :meth:`inverse` returns
    its constant.
    """

    def __init__(self, mean, scale):
        self.mean, self.scale = mean, scale

    @classmethod
    def fit(cls, rows, weights=None):
        """Statistics of rows (N, f) in float64, from passes over blocks of them.

        Corrected two-pass algorithm: with m the mean of the first pass, mean = m + E[x - m] and
        variance = E[(x - m)^2] - E[x - m]^2. The corrections take away the rounding of m, which
        would otherwise be the "scale" of a constant column. Columns are divided by a power of two
        near their largest value before, which is exact, so that no square over- or underflows.
        """
        largest = np.zeros(rows.shape[1])
        for block, _ in _blocks(rows, None):
            largest = np.fmax(largest, np.abs(block).max(axis=0, initial=0.0, where=block == block))
        # ldexp keeps the exponent of denormal columns in range too
        exponent = np.clip(np.frexp(largest)[1], -1000, 1000)
        total, count = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for block, weight in _blocks(rows, weights):
            real = ~np.isnan(block)
            count += weight @ real
            total += weight @ np.where(real, np.ldexp(block, -exponent), 0.0)
        count = np.maximum(count, np.finfo(float).tiny)
        mean = total / count
        shift, square = np.zeros_like(mean), np.zeros_like(mean)
        for block, weight in _blocks(rows, weights):
            difference = np.nan_to_num(np.ldexp(block, -exponent) - mean)
            shift += weight @ difference
            square += weight @ difference**2
        shift, square = shift / count, square / count
        mean += shift
        scale = np.sqrt(np.maximum(square - shift**2, 0.0))
        # Rounding alone makes a constant column vary by about eps * |mean|.
        constant = scale <= 10 * np.finfo(float).eps * np.abs(mean)
        return cls(np.ldexp(mean, exponent), np.where(constant, 0.0, np.ldexp(scale, exponent)))

    def to_tensor(self, rows, dtype, device):
        """Scaled rows (N, f) as a tensor; NaN becomes 0, the mean."""
        out = np.empty(rows.shape, dtype=np.float32 if dtype != torch.float64 else np.float64)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = np.asarray(rows[start : start + _BLOCK_ROWS], dtype=np.float64)
            # Halves, so that the difference of two numbers near the largest one does not overflow.
            block = (block / 2 - self.mean / 2) / (np.where(self.scale, self.scale, 1.0) / 2)
            out[start : start + _BLOCK_ROWS] = np.nan_to_num(block, copy=False)
        return torch.from_numpy(out).to(device)

    def inverse(self, values):
        return values * self.scale + self.mean


def _blocks(rows, weights):
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = np.asarray(rows[start : start + _BLOCK_ROWS], dtype=np.float64)
        weight = np.ones(len(block)) if weights is None else weights[start : start + _BLOCK_ROWS]
        yield block, weight


def padding_mask(X):
    """Real tokens (n, T) of a 3-D array whose trailing tokens may be NaN in every channel.

    Returns None when nothing is padded.

    Raises
    ------
    ValueError
        If a NaN is not such padding, or a whole sequence is.
    """
    missing = np.isnan(X)
    if not missing.any():
        return None
    padded = missing.all(axis=2)
    # Reversed back by a copy: torch takes no negative strides.
    real = np.logical_or.accumulate(~padded[:, ::-1], axis=1)[:, ::-1].copy()
    if missing[real].any():
        raise ValueError(
            "Input X contains NaN. In a 3-D X only trailing tokens that are NaN in every channel "
            "are allowed: they are padding. Fill or drop the other missing readings first."
        )
    if not real[:, 0].all():
        rows = np.flatnonzero(~real[:, 0])
        raise ValueError(
            f"X holds sequences that are all padding (NaN in every token), first at row {rows[0]}; "
            "remove them."
        )
    return real


class DenseSource:
    """Sequences held as one tensor (n, T, f)."""

    def __init__(self, x, mask=None):
        self.x = x
        self.mask = None if mask is None else torch.as_tensor(mask, device=x.device)
        self.partial = np.zeros(len(x), bool) if mask is None else ~np.asarray(mask).all(axis=1)

    def __len__(self):
        return len(self.x)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): x (B, T, f) and mask (B, T) or None."""
        index = torch.as_tensor(rows, device=self.x.device)
        x = self.x.index_select(0, index)
        if not self.partial[rows].any():
            return x, None
        return x, self.mask.index_select(0, index)


class WindowSource:
    """Windows of a series tensor (N, f): a strided view, one copy per batch."""

    def __init__(self, series, view):
        self.series = series.contiguous()
        self.ends = view.ends
        self.partial = view.partial
        self.some_partial = bool(self.partial.any())
        self.first = view.first
        self.offsets = np.arange(view.window - 1, -1, -1) * view.dilation
        span = (view.window - 1) * view.dilation
        n_rows, n_features = series.shape
        self.starts = torch.as_tensor(self.ends - span, device=series.device)
        self.windows = None
        if n_rows > span:
            self.windows = self.series.as_strided(
                (n_rows - span, view.window, n_features),
                (n_features, view.dilation * n_features, 1),
            )

    def __len__(self):
        return len(self.ends)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): x (B, T, f) and mask (B, T) or None."""
        if not self.some_partial or not self.partial[rows].any():
            index = torch.as_tensor(rows, device=self.starts.device)
            return self.windows.index_select(0, self.starts.index_select(0, index)), None
        ends = self.ends[rows]
        index = ends[:, None] - self.offsets
        first = 0 if self.first is None else self.first[ends][:, None]
        real = torch.as_tensor(index >= first, device=self.series.device)
        index = torch.as_tensor(np.maximum(index, first), device=self.series.device)
        # What stands before the start of a series is no value: masked, and zero to stay finite.
        return self.series[index] * real[..., None], real


def make_source(X, scaler, dtype, device):
    """Source of scaled batches for a validated X: 2-D table, 3-D array or SequenceView."""
    if isinstance(X, SequenceView):
        return WindowSource(scaler.to_tensor(X.series, dtype, device), X)
    if X.ndim == 2:
        return DenseSource(scaler.to_tensor(X, dtype, device)[..., None])
    mask = padding_mask(X)
    rows = scaler.to_tensor(X.reshape(-1, X.shape[2]), dtype, device)
    return DenseSource(rows.reshape(X.shape), mask)


def chunks(source, size):
    """Rows of a source in chunks of exactly ``size`` that are all full or all partial.

    Yields ``(rows, n_real)``: the last chunk of either kind repeats its last row, since matrix
    kernels choose by shape and a smaller chunk would change the last bits.
    """
    for kind in (False, True):
        rows = np.flatnonzero(source.partial == kind)
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            n_real = len(chunk)
            if n_real < size:
                chunk = np.pad(chunk, (0, size - n_real), mode="edge")
            yield chunk, n_real
