"""Naive forecasts as regressors, against which every other forecast is measured."""

import warnings
from collections.abc import Hashable
from itertools import pairwise
from numbers import Integral

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype, is_object_dtype
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from .._data.stamps import Stamps, read_index
from .._data.steps import as_offset, note_of, rows_at, step_of
from .._data.windows import SequenceView
from .._validation import check_integer
from .supervised import as_labels, check_horizons


def _time_of(X):
    """Stamps of a table, or its row numbers where they only go up, and the series of its rows."""
    index = getattr(X, "index", None)
    if not isinstance(index, pd.Index):
        return Stamps()
    if not is_integer_dtype(index.dtype):
        stamps = read_index(index, warn=False)
        if stamps.times is None and stamps.series is not None:
            # Rows of one series that have numbers instead of stamps are consecutive steps.
            starts = np.r_[True, np.diff(stamps.series) != 0][: len(index)]
            rows = np.arange(len(index))
            rows -= np.maximum.accumulate(np.where(starts, rows, 0))
            return Stamps(pd.Index(rows), stamps.series)
        return stamps
    rising = not index.hasnans and index.is_monotonic_increasing and index.is_unique
    return Stamps(index) if rising else Stamps()


def _names_of(X):
    """Names of the columns of a table or a view, none where it has no names."""
    # Frames of other libraries have columns too; of a method or a number nothing can be read.
    names = getattr(X, "columns", None)
    return [] if names is None or not np.iterable(names) else list(names)


def _check_columns(X):
    """Refuse columns of a DataFrame that share a name or hold no numbers, and name them."""
    if not isinstance(X, pd.DataFrame):
        return
    twice = list(X.columns[X.columns.duplicated()])
    if twice:
        raise ValueError(f"X has columns of one name: rename {twice}.")
    sparse = [name for name, kind in X.dtypes.items() if isinstance(kind, pd.SparseDtype)]
    if sparse:
        raise ValueError(f"X has sparse columns {sparse}: pass X.sparse.to_dense().")
    textual = [
        name for name, column in X.items() if not is_numeric_dtype(column) and not _is_float(column)
    ]
    if textual:
        raise ValueError(f"X has columns that are not numeric: drop or encode {textual}.")


def _is_float(column):
    """Whether a column of objects holds numbers; stamps and periods are none."""
    if not is_object_dtype(column):
        return False
    try:
        column.astype(float)
    except (TypeError, ValueError):
        return False
    return True


def _series_starts(stamps):
    """Rows (n,) at which another series begins: by its name, or because time goes back."""
    starts = np.zeros(len(stamps.times), dtype=bool)
    if stamps.series is not None:
        starts[1:] = np.diff(stamps.series) != 0
    if isinstance(stamps.times, pd.DatetimeIndex):
        starts[1:] |= np.diff(stamps.times.asi8) < 0
    return starts


def _are_mixed(stamps):
    """Whether rows of several series stand side by side, so that none has its own before it."""
    starts, series = _series_starts(stamps), stamps.series
    if series is not None and np.count_nonzero(np.diff(series)) > series.max(initial=0):
        return True
    timed = isinstance(stamps.times, pd.DatetimeIndex)
    return timed and bool(np.any((np.diff(stamps.times.asi8) == 0) & ~starts[1:]))


def _first_rows(stamps):
    """First row of the series each row belongs to; the row itself where series are mixed."""
    rows = np.arange(len(stamps.times))
    if _are_mixed(stamps):
        return rows
    return np.maximum.accumulate(np.where(_series_starts(stamps), rows, 0))


class NaiveRegressor(RegressorMixin, BaseEstimator):
    """Predict the target column(s) of X some rows back; subclasses give the lag per horizon."""

    def fit(self, X, y):
        """Find the target columns in X and the step of its index; y gives the number of outputs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or SequenceView
            Rows in time order; NaN is allowed. The step of its time stamps is the one that
            `make_supervised` took, or else is found as `make_supervised` finds it.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            In the column order of `make_supervised`.

        Returns
        -------
        self : object
        """
        made_with = getattr(y, "attrs", {})
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        names = _names_of(X)
        _check_columns(X)
        # The windows of a view are counted in rows of its series, so it needs no step.
        self._learn_step(None if isinstance(X, SequenceView) else X, made_with.get("freq"))
        if isinstance(X, SequenceView):
            check_consistent_length(X, y)
            self._rows_of(X, reset=True)
        else:
            X, y = validate_data(
                self, X, y, ensure_all_finite="allow-nan", multi_output=True, y_numeric=True
            )
        y = check_array(y, ensure_2d=False, estimator=self, input_name="y")
        labels = as_labels("target", self.target, names)
        self.columns_ = [self._position(label, names) for label in labels]
        if not self.columns_:
            raise ValueError(f"target={self.target!r} is empty: name the target column(s) of X.")
        self._warn_of_target(made_with.get("target", []), names)
        self.lags_ = self._lags(made_with.get("horizon"))
        self._y_mean = y.mean(axis=0)
        n_outputs, n_targets = np.size(self._y_mean), len(self.columns_)
        # One horizon stands for all columns of y, as the docstring of `horizon` says.
        if len(self.lags_) == 1:
            self.lags_ = self.lags_ * max(1, n_outputs // n_targets)
        if n_outputs != n_targets * len(self.lags_):
            raise ValueError(
                f"y has {n_outputs} column(s), target={self.target!r} names {n_targets} with "
                f"{len(self.lags_)} horizon(s) each: pass what make_supervised was given."
            )
        return self

    def predict(self, X):
        """Predict each row from the rows before it in X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or SequenceView
            Rows in time order. Each window of a view is read at its end and in its own past. A
            table is read by its time stamps, or by row numbers that rise; without these its rows
            are consecutive steps. Another series starts where a MultiIndex names one, and where
            time goes back. A missing value is replaced by the last one known before it in the same
            series, and by the training mean of `y` where there is none.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Shaped as the `y` of `fit`, in the units of X.

        Raises
        ------
        ValueError
            If a table holds several rows of one time stamp and the forecast needs their past.
        """
        check_is_fitted(self)
        _check_columns(X)
        series, rows, first = self._rows_of(X, reset=False)
        sources = [self._rows_before(X, rows, first, lag) for lag in self.lags_]
        every, start = np.arange(len(series)), first[rows]
        outputs = []
        for column in self.columns_:
            # filled[t] = x[max {s <= t : x[s] is known}], within the segment of t
            values = np.asarray(series[:, column], dtype=float)
            known = np.maximum.accumulate(np.where(np.isnan(values), 0, every))
            filled = np.where(known >= first, values[known], np.nan)
            outputs += [filled[np.where(row >= start, row, rows)] for row in sources]
        # What has no value in its own past at all is forecast by the mean of training.
        y = outputs[0] if np.ndim(self._y_mean) == 0 else np.column_stack(outputs)
        return np.where(np.isnan(y), self._y_mean, y)

    def _rows_of(self, X, reset):
        """The series (N, f) of X, the rows of it that are the samples, and each row's first one."""
        if not isinstance(X, SequenceView):
            stamps = self._stamps_of(X)
            X = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan", reset=reset)
            every = np.arange(len(X))
            return X, every, np.zeros_like(every) if stamps is None else _first_rows(stamps)
        series = X.series if X.columns is None else pd.DataFrame(X.series, columns=X.columns)
        series = validate_data(self, series, ensure_all_finite="allow-nan", reset=reset)
        first = np.zeros(len(series), dtype=int) if X.first is None else X.first
        return series, X.ends, first

    def _learn_step(self, X, freq):
        """Step of the index of a table, as ``freq`` tells or its rows, and half of it."""
        stamps, self._step = _time_of(X), None
        times = stamps.times
        self._timed = isinstance(times, pd.DatetimeIndex)
        if times is None or len(times) == 0:
            return
        if stamps.series is not None:
            # The longest series: stamps of several together lie closer than those of any.
            times = times[stamps.series == np.bincount(stamps.series).argmax()]
        # Of several series, or of shuffled rows, the stamps that occur at all.
        times = times if times.is_monotonic_increasing else times.sort_values()
        times = times if times.is_unique else times.unique()
        if isinstance(freq, Integral) == self._timed:
            freq = None  # the index is another one than make_supervised had
        if len(times) > 1:
            step, tolerance = step_of(times, stamps.step if freq is None else freq)
            # As text and numbers, which skops writes; it cannot write offsets of pandas.
            far = tolerance.as_unit("ns").value if self._timed else tolerance
            self._step = note_of(step), int(far)

    def _stamps_of(self, X):
        """The stamps of a table that tells time in the steps known from fit, else None."""
        stamps = Stamps() if self._step is None else _time_of(X)
        known = stamps.times is not None
        return (
            stamps if known and isinstance(stamps.times, pd.DatetimeIndex) == self._timed else None
        )

    def _rows_before(self, X, rows, first, lag):
        """For every sample the row ``lag`` steps before it, -1 where X has none."""
        stamps = None if lag == 0 or isinstance(X, SequenceView) else self._stamps_of(X)
        if stamps is None:
            return rows - lag
        times = stamps.times
        if _are_mixed(stamps):
            raise ValueError(
                "X holds several rows of one time stamp, as several series sorted by time do, or "
                "the hour that is repeated when summer time ends: pass one series after the other, "
                "stamps with their time zone, or a SequenceView, which keeps the history of every "
                "row."
            )
        step, tolerance = self._step
        if self._timed:
            step, tolerance = as_offset(step), pd.Timedelta(tolerance, unit="ns")
        # Stamps are only sorted within a series, and `rows_at` relies on that.
        found = np.full(len(times), -1)
        for start, stop in pairwise([*np.unique(first), len(times)]):
            row = rows_at(times[start:stop], step, -lag, tolerance)
            found[start:stop] = np.where(row >= 0, row + start, -1)
        return found

    def _warn_of_target(self, targets, names):
        """Warn where y was made of other columns than are repeated here."""
        if len(targets) != len(self.columns_) or not all(label in names for label in targets):
            return
        found = [names[place] for place in self.columns_]
        if found != list(targets):
            warnings.warn(
                f"{type(self).__name__} repeats the columns {found}, but y was made of {targets}: "
                f"pass target={targets} (or their positions), unless the others are meant.",
                UserWarning,
                stacklevel=3,
            )

    def _position(self, label, names):
        if isinstance(label, bool):
            raise ValueError(f"target={label!r} must be the name or the position of a column of X.")
        if isinstance(label, Integral) and -self.n_features_in_ <= label < self.n_features_in_:
            return int(label)
        if not isinstance(label, Hashable) or label not in set(names):
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


class PersistenceRegressor(NaiveRegressor):
    """Forecast that nothing changes: y(t + h) = x(t), the target's value in the row itself.

    Parameters
    ----------
    target : str, int, or list of these, default=0
        Name or position of the target column(s) in X, which must not be scaled before.

    Attributes
    ----------
    columns_, lags_ : lists of int
        Positions of the target columns; rows back for each horizon (zeros).

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


class SeasonalNaiveRegressor(NaiveRegressor):
    """Forecast the last season again: y(t + h) = x(t + h - k m), k = ceil(h / m), m = period.

    The forecast stands ``k * period - horizon`` steps back in the X that is passed. Steps are those
    of its time stamps or row numbers if X is a table that has them, and rows otherwise. A row whose
    season is not in X repeats its own value (persistence). `backtest` passes the rows before a test
    fold too, and a SequenceView holds the history of every row.

    Parameters
    ----------
    target : str, int, or list of these, default=0
        Name or position of the target column(s) in X, which must not be scaled before.
    period : int, default=1
        Steps in a season, e.g. 24 for the daily course in hourly data; 1 is persistence.
    horizon : int, or list or range of int, default=1
        Steps ahead, as given to `make_supervised`; an int holds for every column of `y`.

    Attributes
    ----------
    columns_, lags_ : lists of int
        Positions of the target columns; steps back for each horizon.
    window : int
        Number of rows that a prediction may need, the largest lag + 1. It is known before `fit`.

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
        horizons, period = check_horizons(self.horizon), check_integer("period", self.period)
        if made_with not in (None, horizons):
            raise ValueError(
                f"horizon={self.horizon!r}, but y was made with horizon {made_with}: pass the same."
            )
        return [-h % period for h in horizons]  # = ceil(h / period) * period - h
