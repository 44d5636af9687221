"""Calendar features of time-stamped rows."""

from collections.abc import Hashable

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .._compat import _fit_context


class CalendarFeatures(TransformerMixin, BaseEstimator):
    """Append the calendar as sine and cosine pairs, sin(2 pi p) and cos(2 pi p).

    The phase p is the part of the day (``hour``), of the week (``weekday``, from Monday) or of
    the year (``day_of_year``, 365 or 366 days) that has passed, in the local time of the stamps. It
    is continuous: it does not jump at midnight, on Sunday night or on New Year's Eve.

    Parameters
    ----------
    hour, weekday, day_of_year : bool, default=True
        Which cycles to append.
    keep : bool, default=True
        Whether the columns of X come first; False returns the calendar alone.
    column : label, default=None
        Column of time stamps or periods, which is left out of the output; None takes the index.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : int, ndarray of shape (n_features_in_,)
        Number and names of the columns seen in `fit`.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_restrans.forecasting import CalendarFeatures
    >>> X = pd.DataFrame({"T": [1.0, 2.0]}, index=pd.date_range("2024-01-01", periods=2, freq="6h"))
    >>> CalendarFeatures(weekday=False, day_of_year=False).fit_transform(X).round(3)
                           T  hour_sin  hour_cos
    2024-01-01 00:00:00  1.0       0.0       1.0
    2024-01-01 06:00:00  2.0       1.0       0.0
    """

    _parameter_constraints: dict = {  # noqa: RUF012  the form scikit-learn reads
        name: ["boolean"] for name in ("hour", "weekday", "day_of_year", "keep")
    }

    def __init__(self, hour=True, *, weekday=True, day_of_year=True, keep=True, column=None):
        self.hour = hour
        self.weekday = weekday
        self.day_of_year = day_of_year
        self.keep = keep
        self.column = column

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn the columns and check that X has complete time stamps.

        Parameters
        ----------
        X : DataFrame of shape (n_samples, n_features)
            With a DatetimeIndex, a PeriodIndex, a MultiIndex with a level of either, or the column
            `column`.
        y : object, default=None
            Ignored.

        Returns
        -------
        self : object
        """
        _time_stamps(X, self.column)
        twice = list(X.columns[X.columns.duplicated()])
        if twice:
            raise ValueError(f"X has columns of one name: rename {twice}.")
        validate_data(self, X, skip_check_array=True)
        self._kept = [name for name in X.columns if self.keep and name != self.column]
        self._cycles = [c for c in ("hour", "weekday", "day_of_year") if getattr(self, c)]
        names = self.get_feature_names_out()
        if len(set(names)) < len(names):
            raise ValueError(
                f"columns of X clash with those of the calendar in {list(names)}: rename them."
            )
        return self

    def transform(self, X):
        """Append the sine and cosine columns.

        Parameters
        ----------
        X : DataFrame of shape (n_samples, n_features)
            Columns as in `fit`.

        Returns
        -------
        X_out : DataFrame of shape (n_samples, n_features_out)
            On the index of X, with the columns `get_feature_names_out`.
        """
        check_is_fitted(self)
        times = _time_stamps(X, self.column)
        validate_data(self, X, reset=False, skip_check_array=True)
        day = (times.hour + times.minute / 60 + times.second / 3600) / 24
        phases = {
            "hour": day,
            "weekday": (times.day_of_week + day) / 7,
            "day_of_year": (times.day_of_year - 1 + day) / (365 + times.is_leap_year),
        }
        # A pair of waves has no jump where a cycle ends, which the phase itself would have.
        waves = [wave(2 * np.pi * phases[c]) for c in self._cycles for wave in (np.sin, np.cos)]
        names, n_kept = self.get_feature_names_out(), len(self._kept)
        X_out = X[self._kept].set_axis(names[:n_kept], axis=1)
        return X_out.assign(**dict(zip(names[n_kept:], waves, strict=True)))

    def get_feature_names_out(self, input_features=None):
        """Names of the output columns.

        Parameters
        ----------
        input_features : object, default=None
            Ignored: the names are those of `fit`.

        Returns
        -------
        names : ndarray of str of shape (n_features_out,)
            The kept columns, then ``<cycle>_sin`` and ``<cycle>_cos`` of each cycle.
        """
        check_is_fitted(self)
        waves = [f"{cycle}_{wave}" for cycle in self._cycles for wave in ("sin", "cos")]
        return np.array([*map(str, self._kept), *waves], dtype=object)


def _time_stamps(X, column):
    stamps = None
    if isinstance(X, pd.DataFrame):
        known = isinstance(column, Hashable) and column in set(X.columns)
        stamps = _time_level(X.index) if column is None else X[column] if known else None
    if isinstance(getattr(stamps, "dtype", None), pd.PeriodDtype):
        stamps = pd.PeriodIndex(stamps).to_timestamp()
    if isinstance(stamps, pd.DataFrame) or not is_datetime64_any_dtype(stamps):
        raise TypeError(
            f"CalendarFeatures(column={column!r}) finds no time stamps in X ({type(X).__name__}): "
            "pass a DataFrame with a DatetimeIndex or a datetime column (pd.to_datetime), as the "
            "first step of a pipeline."
        )
    if stamps.isna().any():
        raise ValueError("X has missing time stamps (NaT): drop these rows or fill them.")
    return pd.DatetimeIndex(stamps)


def _time_level(index):
    """The level of a MultiIndex that holds time stamps or periods; any other index as it is."""
    if not isinstance(index, pd.MultiIndex):
        return index
    timed = [isinstance(level, pd.DatetimeIndex | pd.PeriodIndex) for level in index.levels]
    return index.get_level_values(timed.index(True)) if any(timed) else None
