"""Standardisation of inputs and targets from weighted statistics, in float64."""

from __future__ import annotations

import numpy as np
import torch

# Rows converted at once: small enough for the float64 temporaries to stay in the cache.
_BLOCK_ROWS = 16_384


class Scaler:
    """x -> (x - mean) / scale, from weighted statistics of the rows that are not NaN.

    ``scale`` is 0 for a column that does not vary, or has no reading at all: nothing can be learnt
    from it, so its scaled value is 0 whatever comes later, and :meth:`inverse` returns its
    constant. ``missing`` are the columns in which some readings are NaN and others are not: a model
    is told where they are missing by a column of ones and zeros for each, and learns a vector for
    it.
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
        largest = np.zeros(rows.shape[1])
        missing, present = np.zeros((2, rows.shape[1]), dtype=bool)
        for block, weight in _blocks(rows, weights):
            block = block if weights is None else block[weight > 0]
            missing |= np.isnan(block).any(axis=0)
            present |= ~np.isnan(block).all(axis=0)
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
        return cls(np.ldexp(mean, exponent), scale, np.flatnonzero(missing & present))

    @property
    def n_columns(self):
        """Columns of a scaled row: the readings, and where they are missing."""
        return len(self.mean) + len(self.missing)

    def to_tensor(self, rows, dtype, device, *, keep_constant=False):
        """Scaled rows (N, n_columns) as a tensor; NaN becomes 0, the mean.

        ``keep_constant`` only centres columns that did not vary, where they would become 0.
        """
        f, idle = len(self.mean), np.flatnonzero(self.scale == 0)
        out = np.empty((len(rows), self.n_columns), np.float32 if dtype != torch.float64 else float)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = np.asarray(rows[start : start + _BLOCK_ROWS], dtype=np.float64)
            gone = np.isnan(block[:, self.missing])
            # Halves, so that the difference of two numbers near the largest one does not overflow.
            with np.errstate(over="ignore"):  # what does not fit is taken out below, or refused
                block = (block / 2 - self.mean / 2) / (np.where(self.scale, self.scale, 1.0) / 2)
            if not keep_constant:
                block[:, idle] = 0.0
            out[start : start + _BLOCK_ROWS, f:] = gone
            out[start : start + _BLOCK_ROWS, :f] = np.nan_to_num(block, copy=False)
        return torch.from_numpy(out).to(device)

    def moved(self, rows):
        """Columns that did not vary in training and hold another value in these rows (N, f)."""
        idle = np.flatnonzero(self.scale == 0)
        # Constants of float32 and float64 differ by 6e-8 of their size.
        near = 1e-7 * np.abs(self.mean[idle])
        moved = np.zeros(len(idle), dtype=bool)
        for start in range(0, len(rows) if len(idle) else 0, _BLOCK_ROWS):
            block = np.asarray(rows[start : start + _BLOCK_ROWS][:, idle], dtype=np.float64)
            moved |= (np.abs(block / 2 - self.mean[idle] / 2) > near / 2).any(axis=0)
        return idle[moved]

    def inverse(self, values):
        return values * self.scale + self.mean


def _blocks(rows, weights):
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = np.asarray(rows[start : start + _BLOCK_ROWS], dtype=np.float64)
        weight = np.ones(len(block)) if weights is None else weights[start : start + _BLOCK_ROWS]
        yield block, weight
