"""The regressor: its losses, its target coding and its output; the rest is in ``_base``."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import DataConversionWarning

from ._base import BaseResidualTransformer
from ._compat import _check_y
from ._data import Scaler
from ._parameters import BetaParameter, declared

__all__ = ["ResidualTransformerRegressor"]


@declared
class _ResidualRegressor(RegressorMixin, BaseResidualTransformer):
    """Body of the regressors: losses, target coding and output."""

    def predict(self, X, *, segments=None):
        """Predict targets.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on. With ``window``, each prediction depends
            on the rows before it in this call.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            As y had in ``fit``.
        """
        y = self._outputs(X, segments)
        y = self._y_scaler.inverse(y)
        return y[:, 0] if self._y_ndim == 1 else y

    def score(self, X, y, sample_weight=None, *, segments=None):
        """R^2 of the predictions.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        score : float
        """
        return super().score(self._with_segments(X, segments), y, sample_weight)

    def _check_targets(self, y, reset):
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=self)
        if not np.isfinite(y).all():  # None became NaN
            raise ValueError("Input y contains NaN: a target is missing; leave these rows out.")
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; the fit is the same, "
                "and predict returns a column. Pass y.ravel() for 1d predictions.",
                DataConversionWarning,
                stacklevel=3,
            )
        shape = (y.ndim, y[:1].size)
        if reset:
            self._y_ndim, self._y_width = shape
        elif shape[1] != self._y_width:
            raise ValueError(f"y has {shape[1]} target columns, but {self._y_width} are expected.")
        return y

    def _encode_targets(self, y, weight):
        self._y_scaler = Scaler.fit(y.reshape(len(y), -1), weight)

    def _target_tensor(self, y, dtype):
        return self._y_scaler.to_tensor(y.reshape(len(y), -1), dtype, "cpu")

    def _n_outputs(self):
        return self._y_width

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


@declared
class ResidualTransformerRegressor(_ResidualRegressor, BetaParameter):
    """Regression with a residual Transformer: Z = Attn(X) + beta X.

    Inputs and targets are standardised inside ``fit``, so raw units work. After it,
    ``conditioning_`` says how well conditioned the attention output is and ``convergence_`` how
    fast training converged.

    {parameters}

    {attributes}

    See Also
    --------
    ResidualTransformerClassifier : The same model for classes.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressor(max_iter=5, random_state=0).fit(X, y)
    >>> model.predict(X[:2]).shape
    (2,)
    >>> bool(model.conditioning_.sigma_min[-1, -1] > 0)
    True
    """
