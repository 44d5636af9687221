"""Ridge regression on windows: the linear yardstick of a forecast."""

from __future__ import annotations

from numbers import Real

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._data.inputs import learn_inputs
from .._data.preprocessing import Samples, learn_preprocessing
from .._data.split import check_weight
from .._data.targets import RegressionTargets

_CPU = torch.device("cpu")
# Numbers of a block of windows that are looked at together: 32 MB of float64.
_BLOCK_NUMBERS = 4_000_000


class RidgeForecaster(RegressorMixin, BaseEstimator):
    """Ridge regression from all readings of a window to the targets, in closed form.

    It reads X as `ResidualTransformerRegressor` does: a SequenceView with its relative levels and
    channels as samples, sequences, or a table; standardised, NaN being the mean and one more column
    of those that may be missing. On windows that are relative to their last value this is hard to
    beat where a series is short or near to linear, so it stands among the candidates of
    `AutoForecaster`.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty on the squared coefficients of standardised inputs, against the sum
        of the squared errors of standardised targets; >= 0.

    Attributes
    ----------
    coef_ : ndarray of shape (n_outputs, n_tokens * n_channels)
        Coefficients of the inputs as they are read.
    intercept_ : ndarray of shape (n_outputs,)
        Of the targets as they are read.
    n_features_in_ : int
        Columns of X, or channels of its windows.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had string names.

    See Also
    --------
    PersistenceRegressor : The yardstick without parameters.

    Notes
    -----
    The windows are not held in memory: their products with each other, (n_tokens * n_channels)
    squared numbers, are summed over blocks in float64.

    References
    ----------
    A. Zeng, M. Chen, L. Zhang, Q. Xu, "Are Transformers Effective for Time Series Forecasting?",
    AAAI 2023, arXiv:2205.13504.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn_restrans.forecasting import RidgeForecaster, make_supervised
    >>> frame = pd.DataFrame({"T": 20 + np.sin(np.arange(200.0))})
    >>> X, y = make_supervised(frame, "T", horizon=3, window=12, relative="last")
    >>> X, y = X[~X.partial], y[~X.partial]  # windows with all their history
    >>> model = RidgeForecaster(alpha=1e-6).fit(X[:150], y[:150])
    >>> bool(np.abs(model.predict(X[150:]) - y[150:]).max() < 1e-4)
    True
    """

    # What learning what X is asks of an estimator.
    window, embedding, d_model = None, "linear", None

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def fit(self, X, y, sample_weight=None):
        """Find the coefficients.

        Parameters
        ----------
        X : SequenceView, array-like of shape (n_samples, n_tokens, n_channels) or \
                (n_samples, n_features)
            Windows, sequences or a table.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights.

        Returns
        -------
        self : RidgeForecaster

        Raises
        ------
        ValueError
            If ``alpha`` is negative, or X and y cannot be used; the message names it.
        """
        owner, alpha = type(self).__name__, self.alpha
        if not isinstance(alpha, Real) or isinstance(alpha, bool) or not 0 <= alpha < np.inf:
            raise ValueError(f"alpha must be a finite number >= 0, got {alpha!r:.80}.")
        inputs, X = learn_inputs(self, X)
        if y is None:
            raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
        y = RegressionTargets.read(y, owner)
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, X)
        if weight is not None:  # not as parts of the largest: alpha counts against their sum
            weight = weight * np.max(np.asarray(sample_weight, dtype=float))
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        given = Samples(X, y, weight, rows)
        codings, samples = learn_preprocessing(inputs, RegressionTargets, given, "squared_error")
        target = codings.targets.encode(samples.y, torch.float64).numpy()
        coef, intercept = _solve(codings, samples, target, float(alpha))
        self._preprocessing, self.coef_, self.intercept_ = codings, coef, intercept
        vars(self).pop("feature_names_in_", None)
        self.n_features_in_ = inputs.n_features
        if inputs.names is not None:
            self.feature_names_in_ = inputs.names
        return self

    def predict(self, X):
        """Predict targets.

        Parameters
        ----------
        X : SequenceView, array-like of shape (n_samples, n_tokens, n_channels) or \
                (n_samples, n_features)
            Of the kind that fit was given.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            As y had in ``fit``.
        """
        check_is_fitted(self)
        codings = self._preprocessing
        checked = codings.view(codings.inputs.check(X))
        outputs = np.empty((len(checked), len(self.coef_)))
        for rows, inputs in _blocks(codings.source(checked, torch.float64, _CPU)):
            outputs[rows] = inputs @ self.coef_.T + self.intercept_
        return codings.predictions(outputs, X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags


def _blocks(source, rows=None):
    """Rows of a source and their inputs (m, p) as float64, block by block."""
    rows, block = np.arange(len(source)) if rows is None else rows, 1
    start = 0
    while start < len(rows):
        part = rows[start : start + block]
        x = source.take(part)[0].numpy().reshape(len(part), -1)
        yield part, x
        start += block
        block = max(1, _BLOCK_NUMBERS // x.shape[1])


def _solve(codings, samples, target, alpha):
    """Coefficients (c, p) and intercepts (c,) of the ridge regression of all training rows.

    Sums of products are taken from the inputs less their mean, which a first pass finds.
    """
    source, rows = codings.source(samples.X, torch.float64, _CPU), samples.rows
    weight = np.ones(len(target)) if samples.weight is None else samples.weight
    count = weight[rows].sum()
    mean = sum(weight[part] @ x for part, x in _blocks(source, rows)) / count
    mean_target = weight[rows] @ target[rows] / count
    gram, moment = np.zeros((len(mean), len(mean))), np.zeros((len(mean), target.shape[1]))
    for part, x in _blocks(source, rows):
        root = np.sqrt(weight[part, None])
        x, y = (x - mean) * root, (target[part] - mean_target) * root
        gram += x.T @ x
        moment += x.T @ y
    # A column that never varies has a zero in the diagonal, and any penalty will do for it.
    least = np.finfo(float).eps * len(gram) * max(gram.max(), np.finfo(float).tiny)
    gram[np.diag_indices_from(gram)] += max(alpha, least)
    coef = cho_solve(cho_factor(gram, overwrite_a=True), moment).T
    return coef, mean_target - coef @ mean
