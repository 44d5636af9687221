"""What y may be, how it becomes numbers, and how outputs become predictions.

The two kinds have one form: ``read`` validates y, ``learn`` makes the coding from the training
rows, ``check`` validates a later y against it, ``encode`` and ``decode`` translate.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from .._compat import _check_y
from .cells import as_numbers, naming, plain
from .quantiles import at_level, spread
from .scaling import Scaler

_REMEDIES = {
    "dates": "a regressor predicts numbers: subtract a start and divide by a unit",
    "durations": "a regressor predicts numbers: divide by a unit, such as pd.Timedelta('1h')",
    "text": "ResidualTransformerClassifier predicts labels",
    "complex numbers": "pass their real and imaginary parts as two columns",
}


@dataclass(frozen=True, eq=False)
class RegressionTargets:
    """Numbers, standardised by the statistics of the training rows.

    With ``levels``, a tuple, the model has an output for each of these quantiles of each target.
    """

    n_axes: int
    scaler: Scaler
    levels: tuple[float, ...] | None = None  # pickles of earlier versions lack it

    # Rows are drawn whatever their targets are.
    stratified = False

    @staticmethod
    def read(y, owner):
        """y as a finite array (n,) or (n, c)."""
        y = _refuse_sparse(plain(y))
        y = as_numbers(y, "y", remedies=_REMEDIES)
        y = naming("y", _check_y, y, multi_output=True, y_numeric=True, estimator=owner)
        if not np.isfinite(y).all():  # None became NaN
            raise ValueError("Input y contains NaN: a target is missing; leave these rows out.")
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; the fit is the same, "
                "and predict returns a column. Pass y.ravel() for 1d predictions.",
                DataConversionWarning,
                stacklevel=2,
            )
        return y

    @classmethod
    def learn(cls, y, rows, weight, loss, levels=None):
        """The coding of a validated y; ``weight`` (n,) or None counts on the training rows."""
        fit_weight = None if weight is None else weight[rows]
        scaler = Scaler.fit(y[rows].reshape(len(rows), -1), fit_weight)
        return cls(y.ndim, scaler, levels)

    @property
    def n_targets(self):
        """Number of target columns."""
        return len(self.scaler.mean)

    @property
    def n_outputs(self):
        """Number of outputs of the model."""
        return self.n_targets * (1 if self.levels is None else len(self.levels))

    def check(self, y, owner):
        """A validated y with the number of columns that fit saw."""
        y = self.read(y, owner)
        width = y[:1].size
        if width != self.n_targets:
            raise ValueError(f"y has {width} target columns, but {self.n_targets} are expected.")
        return y

    def encode(self, y, dtype):
        """Standardised targets (n, c)."""
        y = y.reshape(len(y), -1)
        return self.scaler.to_tensor(y, dtype, "cpu", bounded=False)

    def decode(self, outputs):
        """Predictions in the units and the shape of y, from outputs (n, c).

        Of quantiles the median, see `at_level` where 0.5 is not among the levels.
        """
        if self.levels is not None:
            return at_level(self.decode_quantiles(outputs), self.levels, 0.5)
        y = self._in_units(outputs)
        return y[:, 0] if self.n_axes == 1 else y

    def decode_quantiles(self, outputs):
        """Quantiles (n, q), or (n, c, q) for a y of columns, from outputs (n, c q)."""
        outputs = outputs.reshape(len(outputs), self.n_targets, len(self.levels))
        y = self._in_units(spread(outputs, self.levels).swapaxes(1, 2)).swapaxes(1, 2)
        return y[:, 0] if self.n_axes == 1 else y

    def _in_units(self, values):
        """Standardised values (..., c) in the units of y."""
        with np.errstate(over="ignore"):
            y = self.scaler.inverse(values)
        if not np.isfinite(y).all():
            raise ValueError(
                "a prediction is beyond the largest number of float64 (1.8e308): fit on y in a "
                "larger unit, y / 1e10 for instance, and check the units of X."
            )
        return y


@dataclass(frozen=True, eq=False)
class ClassTargets:
    """Labels, by their place among the sorted classes, or one-hot for the squared error."""

    classes: np.ndarray
    one_hot: bool

    stratified = True

    @staticmethod
    def read(y, owner):
        """y as an array (n,) of labels of one type."""
        y = _refuse_sparse(plain(y))
        y = naming("y", checked_labels, y)
        y = naming("y", _check_y, y, multi_output=False, estimator=owner)
        naming("y", check_classification_targets, y)
        return y

    @classmethod
    def learn(cls, y, rows, weight, loss, levels=None):
        """The coding of a validated y; every row counts, as later ones may hold any class."""
        return cls(np.unique(y), loss == "squared_error")

    @property
    def n_outputs(self):
        """Number of classes."""
        return len(self.classes)

    def check(self, y, owner):
        """A validated y without labels that fit did not see."""
        y = self.read(y, owner)
        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            raise ValueError(
                f"y has labels that are not in the fitted classes: {unknown[:5].tolist()}."
            )
        return y

    def encode(self, y, dtype):
        """Class numbers (n,), or one-hot rows (n, c)."""
        codes = torch.as_tensor(np.searchsorted(self.classes, y))
        if not self.one_hot:
            return codes
        return torch.nn.functional.one_hot(codes, len(self.classes)).to(dtype)

    def decode(self, outputs):
        """The class of the largest output of each row."""
        return self.classes[outputs.argmax(axis=1)]


def _refuse_sparse(y):
    if issparse(y):
        raise TypeError(f"y is a sparse matrix of shape {y.shape}; pass y.toarray().")
    return y


def weigh_classes(class_weight, y, weight):
    """Sample weights (n,) times the weight of each row's class; None stays "all equal"."""
    if class_weight is None:
        return weight
    classes, codes = np.unique(y, return_inverse=True)
    with np.errstate(divide="ignore"):
        per_class = compute_class_weight(class_weight, classes=classes, y=y, sample_weight=weight)
    # "balanced" divides by zero for a class whose every sample has weight zero.
    per_class[~np.isfinite(per_class)] = 0.0
    if (per_class < 0).any():
        raise ValueError(f"class_weight must not be negative, got {class_weight!r}.")
    weight = per_class[codes] if weight is None else weight * per_class[codes]
    if not weight.any():
        raise ValueError(
            f"class_weight={class_weight!r} leaves no sample a weight above zero; there is nothing "
            "to fit."
        )
    return weight


def checked_labels(y):
    """y as an array (n,) of labels of one type; a ValueError names missing and mixed ones."""
    if isinstance(y, np.ma.MaskedArray):
        y = y.tolist()  # None where the mask is set
    # As objects, because numpy turns "a" and nan into strings and nullable integers into floats.
    labels = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)
    labels = column_or_1d(labels, warn=True)
    missing = pd.isna(labels)
    if missing.any():
        row = missing.argmax()
        raise ValueError(
            f"Input y contains NaN or None: {missing.sum()} of {len(labels)} labels are missing, "
            f"first in row {row} ({labels[row]}); drop these rows of X and y."
        )
    if labels.dtype != object:
        return labels
    if all(isinstance(label, str) for label in labels):
        return np.asarray(y) if isinstance(y, list | tuple) else labels
    first = {type(label).__name__: row for row, label in reversed([*enumerate(labels)])}
    labels = pd.Series(labels).infer_objects().to_numpy()
    if labels.dtype == object:
        found = ", ".join(f"{name} (row {first[name]})" for name in sorted(first, key=first.get))
        raise ValueError(
            f"y holds labels of the types {found}; make them all strings, all numbers or all "
            "booleans, for instance with [str(label) for label in y]."
        )
    return labels
