"""The regressor: its targets, predictions and score; the rest is in `base`."""

from __future__ import annotations

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._compat import StrOptions
from .._data.quantiles import DEFAULT_LEVELS, check_levels
from .._data.targets import RegressionTargets
from .base import GivenBeta, ResidualTransformerBase
from .declaration import declared, parameter

__all__ = ["Regressing", "ResidualRegressor", "ResidualTransformerRegressor"]


_LOSSES = ("squared_error", "absolute_error", "huber", "quantile")


def predicts_quantiles(estimator):
    """Whether an estimator, or the fit it keeps, has quantiles; an AttributeError says why not."""
    fitted = hasattr(estimator, "net_")
    loss = estimator.net_.settings.loss if fitted else estimator.loss
    if loss != "quantile":
        raise AttributeError(
            f"quantiles are predicted by a model of loss='quantile', and this one has loss="
            f"{loss!r}: set loss='quantile' and fit again."
        )
    return True


@declared
class Regressing(RegressorMixin):
    """What every regressor has: its losses, and the levels of its quantiles."""

    loss: str = parameter(
        "squared_error",
        '{"squared_error", "absolute_error", "huber", "quantile"}',
        [StrOptions(set(_LOSSES))],
        'Loss on standardised targets. "quantile" is the mean pinball loss of ``quantiles``: '
        "``predict`` then returns the median, and ``predict_quantiles`` all of them.",
    )
    quantiles: object = parameter(
        None,
        "array-like of float of shape (n_quantiles,)",
        ["array-like", None],
        'Levels in (0, 1), rising, of ``loss="quantile"``; None is (0.1, 0.5, 0.9). Their '
        "predictions never cross.",
    )

    _target_kind = RegressionTargets

    def _levels(self):
        if self.loss == "quantile":
            return DEFAULT_LEVELS if self.quantiles is None else check_levels(self.quantiles)
        if self.quantiles is not None:
            raise ValueError(
                f"quantiles={self.quantiles!r:.80} are levels of loss='quantile', got loss="
                f"{self.loss!r}: set loss='quantile', or leave quantiles at None."
            )
        return None

    @property
    def quantiles_(self):
        """Levels of ``predict_quantiles``, of a fitted model with ``loss="quantile"``."""
        predicts_quantiles(self)
        check_is_fitted(self)
        return self._preprocessing.targets.levels


@declared
class ResidualRegressor(Regressing, ResidualTransformerBase):
    """Body of the regressors of numbers and token ids: their predictions and score."""

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
            As y had in ``fit``. With ``loss="quantile"`` the median; where 0.5 is not among
            ``quantiles``, the value on the line between the two next to it, or the one nearest to
            it.
        """
        outputs = self._outputs(X, segments)
        return self._preprocessing.predictions(outputs, X)

    @available_if(predicts_quantiles)
    def predict_quantiles(self, X, *, segments=None):
        """Predict the quantiles of the targets; of a model with ``loss="quantile"``.

        Parameters
        ----------
        X : array-like or SequenceView
            Samples of the kind the model was fitted on.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        q : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)
            In the order of ``quantiles_``, and never falling along it.
        """
        outputs = self._outputs(X, segments)
        return self._preprocessing.quantiles(outputs, X)

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
