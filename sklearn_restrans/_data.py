"""From arrays to tensors: windows, masks and scaling, without copying what can be viewed.

A *source* holds the scaled inputs of one call to fit or predict as tensors and hands out batches
``(x, mask)``: x (B, T, f), mask (B, T) with True at real tokens, or None when every token of the
batch is real. Which rows are ``partial`` (short history, padding) is known beforehand, so that a
row always meets the same kernels, whatever rows come with it.
"""

from __future__ import annotations

import numpy as np
import torch

from ._views import SequenceView

# Rows converted at once: small enough for the float64 temporaries to stay in the cache.
_BLOCK_ROWS = 16_384


class Scaler:
    """x -> (x - mean) / scale, from weighted statistics of the rows that are not NaN.

    ``scale`` is 0 for a column that does not vary: it is only centred, and :meth:`inverse` returns
    its constant. ``missing`` are the columns in which a NaN was seen: a model is told where their
    readings are missing by a column of ones and zeros for each, and learns a vector for it.
    """

    def __init__(self, mean, scale, missing=()):
        self.mean, self.scale, self.missing = mean, scale, np.asarray(missing, dtype=int)

    @classmethod
    def fit(cls, rows, weights=None):
        """Statistics of rows (N, f) in float64, from passes over blocks of them.

        Corrected two-pass algorithm: with m the mean of the first pass, mean = m + E[x - m] and
        variance = E[(x - m)^2] - E[x - m]^2. The corrections take away the rounding of m, which
        would otherwise be the "scale" of a constant column. Columns are divided by a power of two
        near their largest value before, which is exact, so that no square over- or underflows.
        """
        largest, missing = np.zeros(rows.shape[1]), np.zeros(rows.shape[1], dtype=bool)
        for block, weight in _blocks(rows, weights):
            block = block if weights is None else block[weight > 0]
            missing |= np.isnan(block).any(axis=0)
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
        scale = np.where(constant, 0.0, np.ldexp(scale, exponent))
        return cls(np.ldexp(mean, exponent), scale, np.flatnonzero(missing))

    @property
    def n_columns(self):
        """Columns of a scaled row: the readings, and where they are missing."""
        return len(self.mean) + len(self.missing)

    def to_tensor(self, rows, dtype, device):
        """Scaled rows (N, n_columns) as a tensor; NaN becomes 0, the mean."""
        f = len(self.mean)
        out = np.empty((len(rows), self.n_columns), np.float32 if dtype != torch.float64 else float)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = np.asarray(rows[start : start + _BLOCK_ROWS], dtype=np.float64)
            # Halves, so that the difference of two numbers near the largest one does not overflow.
            block = (block / 2 - self.mean / 2) / (np.where(self.scale, self.scale, 1.0) / 2)
            out[start : start + _BLOCK_ROWS, f:] = np.isnan(block[:, self.missing])
            out[start : start + _BLOCK_ROWS, :f] = np.nan_to_num(block, copy=False)
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

    Returns None when nothing is padded. Any other NaN is a missing reading.

    Raises
    ------
    ValueError
        If a whole sequence is padding.
    """
    padded = np.isnan(X).all(axis=2)
    if not padded[:, -1].any():
        return None
    # Reversed back by a copy: torch takes no negative strides.
    real = np.logical_or.accumulate(~padded[:, ::-1], axis=1)[:, ::-1].copy()
    if not real[:, 0].all():
        rows = np.flatnonzero(~real[:, 0])
        raise ValueError(
            f"X holds sequences that are all padding (NaN in every token), first at row {rows[0]}; "
            "remove them."
        )
    return real


class DenseSource:
    """Sequences held as one tensor (n, T, f)."""

    lengths = None

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

    lengths = None

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
        starts = self.starts.index_select(0, torch.as_tensor(rows, device=self.starts.device))
        if not self.some_partial or not self.partial[rows].any():
            return self.windows.index_select(0, starts), None
        ends = self.ends[rows]
        index = ends[:, None] - self.offsets
        first = 0 if self.first is None else self.first[ends][:, None]
        real = torch.as_tensor(index >= first, device=self.series.device)
        if self.windows is None:
            x = self.series[torch.as_tensor(np.maximum(index, first), device=self.series.device)]
        else:
            # From the first row of the series on at least; rolled to where the window ends.
            x = self.windows.index_select(0, starts.clamp(min=0))
            short = np.flatnonzero(index[:, 0] < 0)
            if len(short):
                places = torch.as_tensor(np.maximum(index[short], 0), device=self.series.device)
                x[torch.as_tensor(short, device=x.device)] = self.series[places]
        # What stands before the start of a series is no value: masked, and zero to stay finite.
        return x * real[..., None], real


def padded_length(n_tokens):
    """Tokens a sequence is padded to: the next of 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, ...

    Above 32 the powers of two and the numbers half-way between them. A ladder that knows nothing of
    the other sequences: matrix kernels choose by shape, so a row's last bits would depend on them.
    """
    n_tokens = np.maximum(n_tokens, 1)
    power = 1 << np.ceil(np.log2(n_tokens)).astype(np.int64)
    rung = np.where(n_tokens <= 3 * power // 4, 3 * power // 4, power)
    return np.where(n_tokens <= 32, -(-n_tokens // 8) * 8, rung)


class TokenSource:
    """Token ids as one tensor (n, W), 0 after the last token of each row.

    Every row has a padded length of its own; a batch is as long as the longest of its rows needs.
    """

    def __init__(self, ids, device):
        ids = np.ascontiguousarray(ids, dtype=np.int32)
        lengths = padded_length((ids != 0).sum(axis=1))
        # Rows of one padded length are alike: all of them come with a mask.
        self.lengths, self.partial = lengths, np.zeros(len(ids), bool)
        missing = max(0, int(lengths.max(initial=0)) - ids.shape[1])
        self.x = torch.as_tensor(np.pad(ids, ((0, 0), (0, missing))) if missing else ids).to(device)

    def __len__(self):
        return len(self.x)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): ids (B, T) and mask (B, T)."""
        index = torch.as_tensor(rows, device=self.x.device)
        ids = self.x[:, : int(self.lengths[rows].max())].index_select(0, index)
        return ids, ids != 0


def by_length(source, rows):
    """Groups of the given rows that are padded alike: (padded length or None, places in rows)."""
    if source.lengths is None:
        yield None, np.arange(len(rows))
        return
    lengths = source.lengths[rows]
    for length in np.unique(lengths):
        yield int(length), np.flatnonzero(lengths == length)


def make_source(X, scaler, dtype, device):
    """Source of scaled batches for a validated X: 2-D table, 3-D array or SequenceView.

    Without a scaler X holds token ids.
    """
    if scaler is None:
        return TokenSource(X, device)
    if isinstance(X, SequenceView):
        return WindowSource(scaler.to_tensor(X.series, dtype, device), X)
    if X.ndim == 2:
        return DenseSource(scaler.to_tensor(X, dtype, device)[..., None])
    mask = padding_mask(X)
    rows = scaler.to_tensor(X.reshape(-1, X.shape[2]), dtype, device)
    rows = rows.reshape(*X.shape[:2], -1)
    if mask is not None:
        rows *= torch.as_tensor(mask, device=device)[..., None]  # no reading is missing in padding
    return DenseSource(rows, mask)


class TrainingSet:
    """A source of sequences with targets and weights, and the rows of it that are trained on."""

    def __init__(self, source, target, weight, rows):
        self.source, self.target, self.weight, self.rows = source, target, weight, rows

    def __len__(self):
        return len(self.rows)

    def subset(self, size, seed):
        """At most ``size`` of the rows, drawn without replacement."""
        if size >= len(self):
            return self
        chosen = np.sort(np.random.default_rng(seed).permutation(len(self))[:size])
        index = torch.as_tensor(chosen, device=self.target.device)
        weight = None if self.weight is None else self.weight[index]
        return TrainingSet(self.source, self.target[index], weight, self.rows[chosen])

    def order(self, batch_size, generator):
        """Positions in the random order of one epoch; rows padded alike meet in a batch.

        Sorted by length within fifty batches, which are then shuffled. One padded length for most
        batches is 1.8 to 3.4 times faster than batches padded to their longest row, and 1.4 to 2.2
        times faster than to send each length through the net by itself (SST-2, batches of 64 and
        256, d = 32 and 64): every pass has its own gradient of the whole table of vectors.
        """
        n = len(self)
        order = torch.randperm(n, generator=generator).numpy()
        if self.source.lengths is None:
            return order
        lengths = self.source.lengths[self.rows]
        parts = [order[i : i + 50 * batch_size] for i in range(0, n, 50 * batch_size)]
        order = np.concatenate([part[np.argsort(lengths[part], kind="stable")] for part in parts])
        n_full = n // batch_size
        shuffled = torch.randperm(n_full, generator=generator).numpy()
        full = order[: n_full * batch_size].reshape(n_full, batch_size)[shuffled]
        return np.concatenate([full.ravel(), order[n_full * batch_size :]])

    def longest(self, positions):
        """Padded length of a batch; None where all sequences have one length."""
        lengths = self.source.lengths
        return None if lengths is None else int(lengths[self.rows[positions]].max())

    def batch(self, positions):
        """(x, mask), target and weight of some of the rows; positions count within ``rows``."""
        x, mask = self.source.take(self.rows[positions])
        index = torch.as_tensor(positions, device=self.target.device)
        weight = None if self.weight is None else self.weight.index_select(0, index)
        return (x, mask), self.target.index_select(0, index), weight


def chunks(source, size, rows=None):
    """Rows of a source in chunks of exactly ``size`` that are all full or all partial.

    All rows, or those given. Yields ``(rows, n_real)``: the last chunk of either kind repeats its
    last row, since matrix kernels choose by shape and a smaller chunk would change the last bits.
    """
    rows = np.arange(len(source)) if rows is None else rows
    for kind in (False, True):
        alike = rows[source.partial[rows] == kind]
        for start in range(0, len(alike), size):
            chunk = alike[start : start + size]
            n_real = len(chunk)
            if n_real < size:
                chunk = np.pad(chunk, (0, size - n_real), mode="edge")
            yield chunk, n_real
