"""What one layer computed on some sequences, as plain arrays: the input of every measurement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class LayerTrace(NamedTuple):
    """What one layer computed on n sequences of T tokens of width d, in float64.

    Arrays in float32 are accepted too; ranks are then counted with the eps of float32.

    Attributes
    ----------
    inputs : ndarray of shape (n, T, d)
        X, the layer's input.
    attention : ndarray of shape (n, T, d)
        Attn(X), before the residual is added.
    output : ndarray of shape (n, T, d)
        Z = Attn(X) + beta X.
    weights : ndarray of shape (n, h, T, T) or None
        Softmax matrices of the h heads, queries in rows; 0 at masked keys.
    mask : bool ndarray of shape (n, T) or None
        True for real tokens; None if all are.

    Examples
    --------
    Rank-one attention on one sequence of three tokens, and beta = 2:

    >>> import numpy as np
    >>> X, attention = np.eye(3)[None], np.full((1, 3, 3), 1 / 3)
    >>> trace = LayerTrace(X, attention, attention + 2 * X)
    >>> trace.output.shape, trace.mask is None
    ((1, 3, 3), True)
    """

    inputs: np.ndarray
    attention: np.ndarray
    output: np.ndarray
    weights: np.ndarray | None = None
    mask: np.ndarray | None = None


def checked(trace: LayerTrace, d: int, index: int) -> LayerTrace:
    """The trace as arrays whose shapes match; values are checked later, without the padding."""
    trace = LayerTrace._make(None if a is None else np.asarray(a) for a in trace)
    where = f"of layer {index}"
    n, T, _ = (*trace.inputs.shape, 0, 0, 0)[:3]  # zeros stand for missing axes
    if not trace.inputs.shape == trace.attention.shape == trace.output.shape == (n, T, d):
        raise ValueError(
            f"inputs, attention and output {where} must have one shape (n, T, d), d = {d} as "
            f"in the first chunk; got {[array.shape for array in trace[:3]]}."
        )
    weights, mask = trace.weights, trace.mask
    if weights is not None and (
        weights.ndim != 4 or (len(weights), *weights.shape[2:]) != (n, T, T)
    ):
        raise ValueError(
            f"weights {where} must be (n, h, T, T) = ({n}, h, {T}, {T}), got {weights.shape}."
        )
    if mask is not None and (
        mask.dtype != bool or mask.shape != (n, T) or not mask.any(axis=1).all()
    ):
        raise ValueError(
            f"mask {where} must be boolean of shape {(n, T)} with at least one real token "
            f"(True) in each row, got {mask.dtype} of shape {mask.shape}."
        )
    return trace


def unpadded(trace: LayerTrace) -> Iterator[LayerTrace]:
    """Groups of sequences of equal length, without their padding."""
    if trace.mask is None or trace.mask.all():
        yield trace
        return
    lengths = trace.mask.sum(axis=1)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        # Places of the real tokens, which need not be the first ones.
        real = np.nonzero(trace.mask[rows])[1].reshape(len(rows), length)
        weights = trace.weights
        if weights is not None:  # (g, h, T, T) -> (g, h, length, length)
            weights = np.take_along_axis(weights[rows], real[:, None, :, None], axis=2)
            weights = np.take_along_axis(weights, real[:, None, None, :], axis=3)
        inputs, attention, output = (array[rows[:, None], real] for array in trace[:3])
        yield LayerTrace(inputs, attention, output, weights)
