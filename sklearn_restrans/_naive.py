"""Naive forecasts as regressors: the yardsticks of every other one."""

from numbers import Integral

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from ._views import SequenceView


def _as_list(labels):
    return list(labels) if is_list_like(labels) else [labels]


def _horizons(horizon):
    steps = _as_list(horizon)
    valid = [isinstance(h, Integral) and not isinstance(h, bool) and h >= 1 for h in steps]
    if not steps or not all(valid) or len(set(steps)) < len(steps):
        raise ValueError(
            f"horizon={horizon!r} must be an integer >= 1, or a list or range of different ones "
            "(in steps of the index, e.g. 24 for a day of hourly rows)."
        )
    return [int(h) for h in steps]


class _NaiveRegressor(RegressorMixin, BaseEstimator):
    """Predict the target column(s) of X some rows back; subclasses give the lag per horizon."""

    def fit(self, X, y):
        """Find the target column(s) in X; y gives the number of outputs, nothing is learnt.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or SequenceView
            Rows in time order; NaN is allowed.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            In the column order of `make_supervised`.

        Returns
        -------
        self : object
        """
        made_with = getattr(y, "attrs", {}).get("horizon")
        if isinstance(X, SequenceView):
            check_consistent_length(X, y)
            y = check_array(y, ensure_2d=False, estimator=self, input_name="y")
            self._rows_of(X, reset=True)
        else:
            X, y = validate_data(
                self, X, y, ensure_all_finite="allow-nan", multi_output=True, y_numeric=True
            )
        self.columns_ = [self._position(label) for label in _as_list(self.target)]
        self.lags_ = self._lags(made_with)
        self._y_mean = y.mean(axis=0)
        n_outputs, n_targets = np.size(self._y_mean), len(self.columns_)
        if len(self.lags_) == 1:
            self.lags_ = self.lags_ * (n_outputs // n_targets)
        if n_outputs != n_targets * len(self.lags_):
            raise ValueError(
                f"y has {n_outputs} column(s), target={self.target!r} names {n_targets} with "
                f"{len(self.lags_)} horizon(s) each: pass what make_supervised was given."
            )
        return self

    def predict(self, X):
        """Predict each row from the rows before it in X, taken as consecutive time steps.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or SequenceView
            Rows in time order; of a view each window is read at its end and in its own past. The
            last known value stands in for a missing one, and where there is none before it in X,
            the training mean of `y`.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Shaped as the `y` of `fit`, in the units of X.
        """
        check_is_fitted(self)
        series, rows, first = self._rows_of(X, reset=False)
        every = np.arange(len(series))
        outputs = []
        for column in self.columns_:
            # filled[t] = x[max {s <= t : x[s] is known}], within the segment of t
            values = np.asarray(series[:, column], dtype=float)
            known = np.maximum.accumulate(np.where(np.isnan(values), 0, every))
            filled = np.where(known >= first, values[known], np.nan)
            start = first[rows]
            outputs += [
                filled[np.where(rows - lag >= start, rows - lag, rows)] for lag in self.lags_
            ]
        y = outputs[0] if np.ndim(self._y_mean) == 0 else np.column_stack(outputs)
        return np.where(np.isnan(y), self._y_mean, y)

    def _rows_of(self, X, reset):
        """The series (N, f) of X, the rows of it that are the samples, and each row's first one."""
        if not isinstance(X, SequenceView):
            X = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan", reset=reset)
            return X, np.arange(len(X)), np.zeros(len(X), dtype=int)
        series = X.series if X.columns is None else pd.DataFrame(X.series, columns=X.columns)
        series = validate_data(self, series, ensure_all_finite="allow-nan", reset=reset)
        first = np.zeros(len(series), dtype=int) if X.first is None else X.first
        return series, X.ends, first

    def _position(self, label):
        if isinstance(label, Integral) and -self.n_features_in_ <= label < self.n_features_in_:
            return int(label)
        names = list(getattr(self, "feature_names_in_", []))
        if label not in names:
            raise ValueError(
                f"target={label!r} is not a column of X: choose from {names}, or pass its position "
                f"(X has {self.n_features_in_} columns)."
            )
        return names.index(label)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True
        return tags


class PersistenceRegressor(_NaiveRegressor):
    """Forecast that nothing changes: y(t + h) = x(t), the target's value in the row itself.

    Parameters
    ----------
    target : str, int, or list of these, default=0
        Name or position of the target column(s) in X, which must not be scaled before.

    Attributes
    ----------
    columns_, lags_ : lists of int
        Positions of the target columns; rows back per horizon (zeros).

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_restrans.forecasting import PersistenceRegressor, make_supervised
    >>> X, y = make_supervised(pd.DataFrame({"p": [7, 7, 7], "T": [1.0, 2.0, 4.0]}), "T", 1)
    >>> PersistenceRegressor("T").fit(X, y).predict(X)
    array([1., 2.])
    """

    def __init__(self, target=0):
        self.target = target

    def _lags(self, made_with):
        return [0]


class SeasonalNaiveRegressor(_NaiveRegressor):
    """Forecast the last season again: y(t + h) = x(t + h - k m), k = ceil(h / m), m = period.

    That is ``k * period - horizon`` rows back in X as passed. Rows with a shorter history in X
    repeat their own value (persistence); `backtest` passes the true history.

    Parameters
    ----------
    target : str, int, or list of these, default=0
        Name or position of the target column(s) in X, which must not be scaled before.
    period : int, default=1
        Rows in a season, e.g. 24 for the daily course in hourly data; 1 is persistence.
    horizon : int, or list or range of int, default=1
        Steps ahead, as given to `make_supervised`; an int holds for every column of `y`.

    Attributes
    ----------
    columns_, lags_ : lists of int
        Positions of the target columns; rows back per horizon.
    window : int
        Rows a prediction may need: the largest lag + 1 (a property, also before `fit`).

    References
    ----------
    R. J. Hyndman, G. Athanasopoulos, "Forecasting: Principles and Practice", 3rd ed., section 5.2.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_restrans.forecasting import SeasonalNaiveRegressor, make_supervised
    >>> X, y = make_supervised(pd.DataFrame({"T": [1.0, 5.0, 2.0, 6.0, 3.0]}), "T", 1)
    >>> SeasonalNaiveRegressor("T", period=2).fit(X, y).predict(X)  # first row: no history
    array([1., 1., 5., 2.])
    """

    def __init__(self, target=0, *, period=1, horizon=1):
        self.target = target
        self.period = period
        self.horizon = horizon

    @property
    def window(self):
        return max(self._lags(None)) + 1

    def _lags(self, made_with):
        horizons, period = _horizons(self.horizon), _checked_period(self.period)
        if made_with not in (None, horizons):
            raise ValueError(
                f"horizon={self.horizon!r}, but y was made with horizon {made_with}: pass the same."
            )
        return [-h % period for h in horizons]  # = ceil(h / period) * period - h


def _checked_period(period):
    if not isinstance(period, Integral) or isinstance(period, bool) or period < 1:
        raise ValueError(f"period={period!r} must be an integer >= 1 (rows in a season).")
    return int(period)
