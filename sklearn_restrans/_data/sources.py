"""Scaled inputs as tensors: windows, masks and padding, without copying what can be viewed.

A *source* holds the scaled inputs of one call to fit or predict as tensors and hands out batches
``(x, mask)``: x (B, T, f), mask (B, T) with True at real tokens, or None when every token of the
batch is real. Which rows are ``partial`` (short history, padding) is known beforehand, so that a
row always meets the same kernels, whatever rows come with it.
"""

from __future__ import annotations

import numpy as np
import torch

from .tokens import padded_length
from .windows import SequenceView

# Blocks of rows in a window: more of them bound its readings closer, from more numbers.
_BLOCKS_OF_A_WINDOW = 8


def make_source(X, scaler, dtype, device, tight=False, relative=None):
    """Source of scaled batches for a validated X: 2-D table, 3-D array or SequenceView.

    Without a scaler X holds token ids; ``tight`` is for them. ``relative`` (RelativeWindows or
    None) is for windows.
    """
    if scaler is None:
        return TokenSource(X, device, tight)
    if relative is not None:
        # Missing readings stay NaN until it is known what their window is relative to.
        scaler, *of_windows = relative.scaled(X, scaler)
        source = _absolute(X, scaler, dtype, device, missing=np.nan)
        n_readings = X.shape[1] * X.shape[2] // len(scaler.mean)
        return RelativeSource(source, *of_windows, scaler, n_readings)
    return _absolute(X, scaler, dtype, device)


def _absolute(X, scaler, dtype, device, missing=0.0):
    n_channels = len(scaler.mean)
    if isinstance(X, SequenceView):
        series = scaler.to_tensor(X.series, dtype, device, missing=missing)
        flags = np.arange(scaler.n_columns) >= n_channels
        return WindowSource(series, X, np.where(flags, 1.0, missing))
    if X.ndim == 2:
        return DenseSource(scaler.to_tensor(X, dtype, device)[..., None])
    mask = padding_mask(X)
    # A token of a patch is the channels of several readings, one after the other.
    rows = scaler.to_tensor(X.reshape(-1, n_channels), dtype, device, missing=missing)
    rows = rows.reshape(*X.shape[:2], -1)
    if mask is not None:
        rows *= torch.as_tensor(mask, device=device)[..., None]  # no reading is missing in padding
    return DenseSource(rows, mask)


def rows_of(X, n_channels):
    """The rows (N, f) that a validated table, 3-D array or SequenceView looks at."""
    if not isinstance(X, SequenceView):
        return X.reshape(-1, n_channels)
    if not len(X):
        return X.series[:0]
    first = X.ends.min() - (X.window - 1) * X.dilation
    return X.series[max(0, first) : X.ends.max() + 1]


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

    def ranges(self, n_channels):
        """Smallest and largest reading (n, f) of every sample; NaN where one is missing."""
        readings = self.x.view(len(self.x), -1, n_channels)
        return readings.amin(1), readings.amax(1)


class WindowSource:
    """Windows of a series tensor (N, f): a strided view, one copy per batch.

    ``absent`` (f,) is what stands for a row before the beginning of the series in a patch that
    has other rows: zeros, the means, and ones in the columns that tell of missing readings.
    """

    lengths = None

    def __init__(self, series, view, absent=None):
        self.series = series.contiguous()
        self.ends = view.ends
        self.partial = view.partial
        self.some_partial = bool(self.partial.any())
        self.first = view.first
        patch, stride = view.form.patch, view.form.stride
        self.offsets = (view.window - 1 - view.form.places(view.window)) * view.dilation  # (T, p)
        span = (view.window - 1) * view.dilation
        n_rows, n_features = series.shape
        self.span = span
        self.starts = torch.as_tensor(self.ends - span, device=series.device)
        absent = np.zeros(n_features) if absent is None else absent
        self.absent = torch.as_tensor(absent, dtype=series.dtype, device=series.device)
        self.windows = None
        if n_rows > span:
            shape, step = (n_rows - span, len(self.offsets)), view.dilation * n_features
            steps = (n_features, stride * step)
            if patch == 1 or view.dilation == 1:  # the rows of a patch lie one after the other
                shape, steps = (*shape, patch * n_features), (*steps, 1)
            else:
                shape, steps = (*shape, patch, n_features), (*steps, step, 1)
            self.windows = self.series.as_strided(shape, steps)

    def __len__(self):
        return len(self.ends)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): x (B, T, f) and mask (B, T) or None."""
        starts = self.starts.index_select(0, torch.as_tensor(rows, device=self.starts.device))
        if not self.some_partial or not self.partial[rows].any():
            return self.windows.index_select(0, starts).flatten(2), None
        ends = self.ends[rows]
        index = ends[:, None, None] - self.offsets  # (B, T, p)
        first = 0 if self.first is None else self.first[ends][:, None, None]
        real = torch.as_tensor(index >= first, device=self.series.device)
        if self.windows is None:
            x = self.series[torch.as_tensor(np.maximum(index, first), device=self.series.device)]
        else:
            # A window that starts before row 0 of the series is read from row 0 here, and replaced
            # row by row below.
            x = self.windows.index_select(0, starts.clamp(min=0))
            x = x.view(*index.shape, -1)
            short = np.flatnonzero(index[:, 0, 0] < 0)
            if len(short):
                places = torch.as_tensor(np.maximum(index[short], 0), device=self.series.device)
                x[torch.as_tensor(short, device=x.device)] = self.series[places]
        x, mask = torch.where(real[..., None], x, self.absent), real.any(-1)
        # Tokens before the start of a series are masked, and zero so that products stay finite.
        return x.flatten(2) * mask[..., None], mask

    def ranges(self, n_channels):
        """Bounds (n, f) below and above the readings of every window; NaN where one is missing.

        They are those of a few blocks of rows that hold the window, and of partial windows NaN.
        """
        series, span = self.series, self.span
        size = max(1, span // _BLOCKS_OF_A_WINDOW)
        n_blocks = len(series) // size
        n_held = (span + size - 1) // size + 1  # blocks, wherever the window begins in the first
        block = torch.div(self.starts.clamp(min=0), size, rounding_mode="floor")
        partial = torch.as_tensor(self.partial, device=series.device)
        found = []
        for extreme in (torch.amin, torch.amax):
            values = series[: n_blocks * size].view(n_blocks, size, n_channels)
            rest = series[n_blocks * size :] if n_blocks * size < len(series) else series[-1:]
            last = extreme(rest, 0).expand(n_held, -1)
            held = torch.cat([extreme(values, 1), last]).unfold(0, n_held, 1)
            held = extreme(held, -1)
            found.append(held.index_select(0, block).masked_fill_(partial[:, None], np.nan))
        return tuple(found)


class RelativeSource:
    """Windows of another source, from each of which its own location is taken off in the batch.

    Per sample and channel the difference is multiplied by a factor, and cut at a bound; a reading
    that is missing becomes 0, the location. ``inside`` are the samples that are known to miss no
    reading and to lie within the bound: both steps would leave every bit of them as it is, and are
    left out where a batch holds no others.
    """

    lengths = None

    def __init__(self, source, taken, factor, bound, scaler, n_readings):
        self.source, self.partial = source, source.partial
        like = source.absent if isinstance(source, WindowSource) else source.x
        taken = scaler.to_tensor(taken, like.dtype, like.device)
        n_flags, f = scaler.n_columns - len(scaler.mean), scaler.n_columns
        taken[:, len(scaler.mean) :] = 0.0  # columns that tell of missing readings stay as they are
        self.taken, self.factor = taken, None
        if factor is not None:
            factor = np.pad(factor, ((0, 0), (0, n_flags)), constant_values=1.0)
            self.factor = torch.as_tensor(factor).to(like)
        bound = torch.as_tensor(np.pad(bound, (0, n_flags), constant_values=np.inf)).to(like)
        # Several readings side by side: rows of a few channels are ten times slower. A single
        # channel is subtracted as a number.
        most = min(32, n_readings) if f > 1 else 1
        together = next(k for k in range(most, 0, -1) if n_readings % k == 0)
        self.channels = torch.arange(f, device=like.device).repeat(together)
        self.bound = bound[self.channels]
        inside = torch.ones(len(source), dtype=torch.bool, device=like.device)
        for extreme in source.ranges(f):
            # Rounded as in `take`, where what lies between two numbers stays between them.
            extreme -= taken
            if self.factor is not None:
                extreme *= self.factor
            inside &= (extreme.abs_() <= bound).all(1)  # and is not NaN
        self.inside = inside.cpu().numpy()

    def __len__(self):
        return len(self.source)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): x (B, T, f) and mask (B, T) or None."""
        x, mask = self.source.take(rows)  # a copy, which is changed in place
        index = torch.as_tensor(rows, device=x.device)
        readings = x.view(len(x), -1, len(self.channels))
        readings -= self._for_readings(self.taken, index)
        if self.factor is not None:
            readings *= self._for_readings(self.factor, index)
        if not self.inside[rows].all():
            readings.nan_to_num_(0.0).clamp_(-self.bound, self.bound)
        return x, mask

    def _for_readings(self, values, index):
        """Values (n, f) of the samples, as often as readings lie side by side: (B, 1, k f)."""
        values = values.index_select(0, index)
        if len(self.channels) > values.shape[1]:
            values = values.index_select(1, self.channels)
        return values[:, None]


class TokenSource:
    """Token ids as one tensor (n, W), 0 after the last token of each row.

    Every row has a padded length of its own; a batch is as long as the longest of its rows needs.
    ``tight`` adds no padding to that, for wide models, whose products cost more than their number.
    """

    def __init__(self, ids, device, tight=False):
        ids = np.array(ids, dtype=np.int32, order="C")  # a copy: torch takes no read-only array
        lengths = (ids != 0).sum(axis=1)
        lengths = lengths if tight else padded_length(lengths)
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


class FeatureSource:
    """What a frozen model makes of its sequences (n, d), each read as one token."""

    def __init__(self, x):
        self.x, self.lengths = x, np.ones(len(x), dtype=np.int64)
        self.partial = np.zeros(len(x), dtype=bool)

    def __len__(self):
        return len(self.x)

    def take(self, rows):
        """Batch of the samples ``rows`` (int64 array): x (B, d), and no mask."""
        return self.x.index_select(0, torch.as_tensor(rows, device=self.x.device)), None
