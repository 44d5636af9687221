"""The classifier: its losses, its label coding and its output; the rest is in ``_base``."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ._base import BaseResidualTransformer
from ._compat import StrOptions, _check_y
from ._parameters import OF_CLASSIFIERS, BetaParameter, declared, parameter

__all__ = ["ResidualTransformerClassifier"]


@declared
class _ResidualClassifier(ClassifierMixin, BaseResidualTransformer):
    """Body of the classifiers: losses, label coding and output."""

    loss: str = parameter(
        "log_loss",
        '{"log_loss", "squared_error"}',
        [StrOptions({"log_loss", "squared_error"})],
        "Cross-entropy, or the squared error to one-hot targets, as the paper has it.",
    )
    class_weight: object = parameter(
        None,
        'dict or "balanced"',
        [dict, StrOptions({"balanced"}), None],
        "Weights of the classes, multiplied with ``sample_weight``.",
    )

    _stratify = True

    def predict(self, X, *, segments=None):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        outputs = self._outputs(X, segments)
        return self.classes_[outputs.argmax(axis=1)]

    def predict_proba(self, X, *, segments=None):
        """Probabilities of the classes.

        For ``loss="squared_error"`` they are the outputs clipped to [0, 1] and rescaled to sum to
        one, which keeps the most probable class.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; rows sum to one.
        """
        outputs = self._outputs(X, segments)
        if self.net_.criterion_.kind == "log_loss":
            return softmax(outputs, axis=1)
        p = np.clip(outputs, 0.0, 1.0)
        # No output above 0: all that is left of the row is which class came first.
        empty = p.sum(axis=1) == 0
        p[empty] = np.eye(p.shape[1])[outputs[empty].argmax(axis=1)]
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X, *, segments=None):
        """Logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        log_p : ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, segments=segments))

    def score(self, X, y, sample_weight=None, *, segments=None):
        """Accuracy of the predictions.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        score : float
        """
        return super().score(self._with_segments(X, segments), _checked_labels(y), sample_weight)

    def _check_targets(self, y, reset):
        y = _check_y(_checked_labels(y), multi_output=False, estimator=self)
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has labels that are not in the fitted classes: {unknown[:5].tolist()}."
            )
        return y

    def _encode_targets(self, y, weight):
        pass

    def _target_tensor(self, y, dtype):
        codes = torch.as_tensor(np.searchsorted(self.classes_, y))
        if self.loss == "log_loss":
            return codes
        return torch.nn.functional.one_hot(codes, len(self.classes_)).to(dtype)

    def _n_outputs(self):
        return len(self.classes_)

    def _weigh_classes(self, y, weight):
        if self.class_weight is None:
            return weight
        classes, codes = np.unique(y, return_inverse=True)
        with np.errstate(divide="ignore"):
            per_class = compute_class_weight(
                self.class_weight, classes=classes, y=y, sample_weight=weight
            )
        # "balanced" divides by zero for a class whose every sample has weight zero.
        per_class[~np.isfinite(per_class)] = 0.0
        if (per_class < 0).any():
            raise ValueError(f"class_weight must not be negative, got {self.class_weight!r}.")
        weight = per_class[codes] if weight is None else weight * per_class[codes]
        if not weight.any():
            raise ValueError(
                f"class_weight={self.class_weight!r} leaves no sample a weight above zero; there "
                "is nothing to fit."
            )
        return weight


@declared
class ResidualTransformerClassifier(_ResidualClassifier, BetaParameter):
    """Classification with a residual Transformer: Z = Attn(X) + beta X.

    Inputs are standardised inside ``fit``; labels may be strings, booleans or integers. After it,
    ``conditioning_`` says how well conditioned the attention output is and ``convergence_`` how
    fast training converged.

    {parameters}

    {attributes}

    See Also
    --------
    ResidualTransformerRegressor : The same model for numbers.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ResidualTransformerClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _attributes = OF_CLASSIFIERS


def _checked_labels(y):
    """y as an array (n,) of labels of one type; or a sentence, such as where one is missing."""
    if isinstance(y, np.ma.MaskedArray):
        y = y.tolist()  # None where the mask is set
    # Not numpy's own types: it makes strings of "a" and nan, and floats of nullable integers.
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
