"""The classifier: its labels, predictions and score; the rest is in `base`."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from .._compat import StrOptions
from .._data.targets import ClassTargets, checked_labels, weigh_classes
from .base import GivenBeta, ResidualTransformerBase
from .declaration import declared, parameter
from .parameters import OF_CLASSIFIERS

__all__ = ["ResidualClassifier", "ResidualTransformerClassifier"]


@declared
class Classifying(ClassifierMixin):
    """What every classifier has: its losses, its labels, and probabilities of outputs."""

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

    _target_kind = ClassTargets

    def _weigh(self, y, weight):
        return weigh_classes(self.class_weight, y, weight)

    def _fitted_attributes(self, problem, trained):
        attributes = super()._fitted_attributes(problem, trained)
        return attributes | {"classes_": problem.preprocessing.targets.classes}

    def _probabilities(self, outputs):
        """Probabilities (n, n_classes) of the model's outputs."""
        if not self._preprocessing.targets.one_hot:
            return softmax(outputs, axis=1)
        p = np.clip(outputs, 0.0, 1.0)
        # No output above 0: the class of the largest output gets the probability 1.
        empty = p.sum(axis=1) == 0
        p[empty] = np.eye(p.shape[1])[outputs[empty].argmax(axis=1)]
        return p / p.sum(axis=1, keepdims=True)


@declared
class ResidualClassifier(Classifying, ResidualTransformerBase):
    """Body of the classifiers of numbers and token ids: their predictions and score."""

    _readout_of_sequences = "mean"

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
        return self._preprocessing.targets.decode(outputs)

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
        return self._probabilities(self._outputs(X, segments))

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
        predicted = self.predict(X, segments=segments)
        return accuracy_score(checked_labels(y), predicted, sample_weight=sample_weight)


@declared
class ResidualTransformerClassifier(GivenBeta, ResidualClassifier):
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
