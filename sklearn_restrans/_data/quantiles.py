"""Levels of quantiles, and outputs of a model as quantiles that never cross."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from scipy.stats import norm
from torch.nn import functional as F

# What loss="quantile" predicts where no levels are named: the median and an interval of 80 %.
DEFAULT_LEVELS = (0.1, 0.5, 0.9)


def check_levels(quantiles, name="quantiles"):
    """Levels as a tuple of floats, or a ValueError that says what they must be."""
    allowed = f"{name} must be rising numbers between 0 and 1, such as {DEFAULT_LEVELS}"
    try:
        levels = np.asarray(quantiles, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{allowed}; got {quantiles!r:.80}.") from None
    if levels.ndim != 1 or not levels.size:
        raise ValueError(f"{allowed}; got {quantiles!r:.80}, of shape {levels.shape}.")
    outside = levels[~((levels > 0) & (levels < 1))]
    if outside.size:
        raise ValueError(f"{allowed}; got {outside[0]}: leave it out, 0 and 1 too.")
    steps = np.diff(levels)
    if (steps == 0).any():
        raise ValueError(f"{allowed}; {levels[:-1][steps == 0][0]} stands there twice: drop one.")
    if (steps < 0).any():
        raise ValueError(f"{allowed}; got {levels.tolist()!s:.80}: sort them.")
    return tuple(levels.tolist())


def middle_of(levels):
    """Place of the level nearest to 0.5, the lower one of two."""
    return int(np.argmin(np.abs(np.asarray(levels) - 0.5)))


def spread(outputs, levels):
    """Quantiles (..., q) of outputs (..., q): tensors with gradients, or arrays.

    The output at the middle level is that quantile; each of the others is the gap to the next
    level towards the middle, ``softplus(o) / log 2`` times that gap of a standard normal
    distribution. The gaps are positive, so that quantiles never cross, in training and after it,
    and outputs of 0 are the quantiles of a standard normal target.
    """
    z, m = norm.ppf(levels), middle_of(levels)
    unit = np.diff(z) / np.log(2.0)
    # Predictions are made by numpy, which computes every element alike: torch gives the last few
    # of an array other bits than those before them.
    softplus, flip, join = partial(np.logaddexp, 0.0), np.flip, np.concatenate
    if isinstance(outputs, torch.Tensor):
        softplus, flip, join = F.softplus, torch.flip, torch.cat
        unit = torch.as_tensor(unit).to(outputs)
    middle = outputs[..., m : m + 1] + float(z[m])
    up = (softplus(outputs[..., m + 1 :]) * unit[m:]).cumsum(-1)
    down = flip(flip(softplus(outputs[..., :m]) * unit[:m], (-1,)).cumsum(-1), (-1,))
    return join([middle - down, middle, middle + up], -1)


def at_level(quantiles, levels, level):
    """The quantile (...) at any level: linear between those of (..., q), constant beyond them."""
    place = np.interp(level, levels, np.arange(len(levels)))
    k = min(int(place), len(levels) - 1)
    share = place - k
    if share == 0:
        return quantiles[..., k]
    low, high = quantiles[..., k], quantiles[..., k + 1]
    return low + share * (high - low)
