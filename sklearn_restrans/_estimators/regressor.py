"""The regressor: its targets, predictions and score; the rest is in `base`."""

from __future__ import annotations

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from .._data.targets import RegressionTargets
from .base import GivenBeta, ResidualTransformerBase
from .declaration import declared

__all__ = ["ResidualRegressor", "ResidualTransformerRegressor"]


@declared
class ResidualRegressor(RegressorMixin, ResidualTransformerBase):
    """Body of the regressors: their targets, predictions and score."""

    _target_kind = RegressionTargets
    _readout_of_sequences = "last"

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
        outputs = self._outputs(X, segments)
        return self._preprocessing.predictions(outputs, X)

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
        return r2_score(y, self.predict(X, segments=segments), sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


@declared
class ResidualTransformerRegressor(GivenBeta, ResidualRegressor):
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
