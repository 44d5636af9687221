"""The mean of several forecasts."""

from __future__ import annotations

import numpy as np
from sklearn.base import MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from .._compat import Composition

__all__ = ["MeanForecaster"]


class MeanForecaster(MetaEstimatorMixin, RegressorMixin, Composition):
    """The mean of the forecasts of several regressors, of windows and several targets too.

    Forecasts that err differently cancel some of each other's errors, and the mean squared error of
    their mean is never above the mean of theirs. scikit-learn's VotingRegressor does the same for
    one target.

    Parameters
    ----------
    estimators : list of (str, regressor)
        What to fit, by name; parameters of each are set as ``<name>__<parameter>``.

    Attributes
    ----------
    estimators_ : list of regressor
        The fitted regressors.
    n_features_in_ : int
        As that of the first of them that has one.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Likewise.

    See Also
    --------
    sklearn_restrans.SeedEnsembleRegressor : The mean over seeds of one model, trained together.

    References
    ----------
    J. M. Bates, C. W. J. Granger, "The combination of forecasts", Journal of the Operational
    Research Society 20 (1969) 451-468.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn_restrans.forecasting import MeanForecaster, PersistenceRegressor
    >>> from sklearn_restrans.forecasting import SeasonalNaiveRegressor, make_supervised
    >>> X, y = make_supervised(pd.DataFrame({"T": [1.0, 5.0, 2.0, 6.0, 3.0]}), "T", 1)
    >>> now, before = PersistenceRegressor("T"), SeasonalNaiveRegressor("T", period=2)
    >>> MeanForecaster([("now", now), ("before", before)]).fit(X, y).predict(X)
    array([1. , 3. , 3.5, 4. ])
    """

    def __init__(self, estimators):
        self.estimators = estimators

    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        """Fit a clone of every regressor on the same data.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the regressors.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights, which every regressor must take if they are given.
        X_val, y_val : array-like, default=None
            Validation data, for those that take them.

        Returns
        -------
        self : MeanForecaster

        Raises
        ------
        ValueError
            If ``estimators`` is not a list of names and regressors.
        """
        self._check_estimators()
        fitted = []
        for _, estimator in self.estimators:
            told = {} if sample_weight is None else {"sample_weight": sample_weight}
            if X_val is not None and has_fit_parameter(estimator, "X_val"):
                told |= {"X_val": X_val, "y_val": y_val}
            fitted.append(clone(estimator).fit(X, y, **told))
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            found = [getattr(one, name) for one in fitted if hasattr(one, name)]
            if found:
                setattr(self, name, found[0])
        self.estimators_, self._n_axes = fitted, np.asarray(y).ndim
        return self

    def predict(self, X):
        """Predict the mean of the forecasts.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the regressors.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        check_is_fitted(self)
        # Of a y of one column some return columns, and others do not.
        parts = [np.asarray(estimator.predict(X)) for estimator in self.estimators_]
        mean = np.mean([part.reshape(len(part), -1) for part in parts], axis=0)
        return mean[:, 0] if self._n_axes == 1 else mean

    def _check_estimators(self):
        given = self.estimators
        pairs = isinstance(given, list | tuple) and len(given) > 0
        pairs = pairs and all(isinstance(one, list | tuple) and len(one) == 2 for one in given)
        if not pairs:
            raise ValueError(
                "estimators must be a list of pairs (name, regressor), e.g. [('ridge', "
                f"RidgeForecaster()), ('now', PersistenceRegressor())], got {given!r:.80}."
            )
        self.check_names()
        for name, estimator in given:
            if isinstance(estimator, type) or not hasattr(estimator, "predict"):
                raise ValueError(
                    f"estimators has {estimator!r:.80} for {name!r}, which is no regressor: pass "
                    "one with fit and predict."
                )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        parts = [get_tags(one) for _, one in self.estimators if hasattr(one, "fit")]
        tags.input_tags.allow_nan = all(part.input_tags.allow_nan for part in parts)
        tags.target_tags.multi_output = True
        return tags
