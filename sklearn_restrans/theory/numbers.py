"""Arguments of the theory's functions as float64 numbers, and what leaves their range."""

import numpy as np

EPS = float(np.finfo(np.float64).eps)


def real(value, name, ndim=None, sign=""):
    """`value` as a float64 array, checked to be finite and of this sign."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.dtype.itemsize < 8):
        raise TypeError(f"`{name}` must come from a float64 copy of the model, got {array.dtype}.")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"`{name}` must have {ndim} dimension(s), got shape {array.shape}.")
    good = np.isfinite(array) & {"": True, ">= 0": array >= 0, "> 0": array > 0}[sign]
    if not good.all():
        at = tuple(np.argwhere(~good)[0].tolist())
        wanted = f"finite and {sign}" if sign else "finite"
        raise ValueError(f"`{name}` must be {wanted}, got {array[at]} at index {list(at)}.")
    return array.astype(np.float64, copy=False)


def row_factor(sample_weight, scale, n_rows):
    """sqrt(s w_i) for every row, where each weight belongs to n_rows / len(sample_weight) rows."""
    weight = [1.0] if sample_weight is None else sample_weight
    weight = real(weight, "sample_weight", 1, sign=">= 0")
    if not weight.any() or n_rows % len(weight):
        raise ValueError(
            "`sample_weight` must hold one value for each sample, and not only zeros; got "
            f"{len(weight)} values of sum {weight.sum():g} for {n_rows} rows."
        )
    # One root each: the product of a large s and a large w may be no float64 number.
    factor = np.sqrt(real(scale, "scale", sign="> 0")) * np.sqrt(weight)
    return np.repeat(factor, n_rows // len(weight))


def in_range(compute, what):
    """`compute()`, refused in words if the result is beyond the range of float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = compute()
    if not np.isfinite(value).all():
        raise ValueError(
            f"{what} is above the largest float64 number (1.8e308): divide the arguments by a "
            "constant. PL constants and eigenvalues scale with its square."
        )
    return value
