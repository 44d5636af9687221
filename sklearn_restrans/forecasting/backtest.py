"""Rolling-origin evaluation of forecasts."""

from numbers import Integral

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length

from .._validation import check_splits
from .errors import as_columns, naive_error
from .naive import NaiveRegressor, PersistenceRegressor
from .supervised import check_horizons


def backtest(estimator, X, y, cv, *, horizon=None, baseline=None, period=1):
    """Rolling-origin evaluation: fit on the past, forecast the fold that follows, again and again.

    An estimator with a ``window`` (and ``dilation``), alone or nested, predicts a test fold from
    its true history: the rows of X before the fold are passed too and their forecasts dropped.

    Parameters
    ----------
    estimator : regressor
        Cloned and fitted for every fold.
    X, y : array-likes of n_samples rows in time order
        From `make_supervised`, or alike; X may be anything that slices along its rows.
    cv : splitter or iterable of (train, test) rows
        Unbroken runs of rows, test after train: ``TimeSeriesSplit(5, gap=horizon - 1)``.
    horizon : int, or list or range of int, default=None
        Steps ahead of each column of `y`; None takes what `make_supervised` noted in ``y.attrs``.
        Where known, folds whose training targets lie after the first test row are refused.
    baseline : regressor, default=None
        Reference of the skill; None is persistence if ``y.attrs`` names the target columns and
        X has them, otherwise the skill is NaN.
    period : int, default=1
        Of the MASE's naive forecast, see `mean_absolute_scaled_error`.

    Returns
    -------
    scores : DataFrame
        A row per fold and output: fold, output, horizon, train_start, train_end, test_start,
        test_end (index labels of X or y, or row numbers), n_train, n_test, MAE and RMSE (units of
        y), MASE (NaN if the training target never changes), skill = 1 - MAE / MAE(baseline).

    Raises
    ------
    ValueError
        If y is no table of numbers, or a fold is shuffled, broken, no pair of row numbers, not
        after its training rows or closer than the horizon.

    References
    ----------
    L. J. Tashman, "Out-of-sample tests of forecasting accuracy: an analysis and review",
    International Journal of Forecasting 16 (2000) 437-450.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.model_selection import TimeSeriesSplit
    >>> from sklearn_restrans.forecasting import backtest, make_supervised
    >>> X, y = make_supervised(pd.DataFrame({"T": np.arange(20.0)}), "T", horizon=2)
    >>> scores = backtest(LinearRegression(), X, y, TimeSeriesSplit(2, gap=1))
    >>> scores[["fold", "n_train", "n_test", "MAE", "skill"]].round(6)
       fold  n_train  n_test  MAE  skill
    0     0        5       6  0.0    1.0
    1     1       11       6  0.0    1.0
    """
    check_consistent_length(X, y)
    made_with = getattr(y, "attrs", {})
    noted = made_with.get("horizon")
    horizons = noted if horizon is None else check_horizons(horizon)
    if noted not in (None, horizons):
        raise ValueError(
            f"horizon={horizon!r}, but y was made with horizon {noted}: pass the same or none."
        )
    targets = made_with.get("target", [])
    names = getattr(X, "columns", None)
    if baseline is None and targets and set(targets) <= set(() if names is None else names):
        baseline = PersistenceRegressor([list(X.columns).index(label) for label in targets])
    truth = as_columns(y, "y")
    # the index of a list is a method
    found = [part.index for part in (X, y) if isinstance(getattr(part, "index", None), pd.Index)]
    labels = (found or [np.arange(len(truth))])[0]
    clock = _clock(labels)
    folds = []
    for fold, (train, test) in enumerate(check_splits(cv, X, y)):
        _check_fold(fold, train, test, max(horizons or [1]), clock)
        train, test = slice(train[0], train[-1] + 1), slice(test[0], test[-1] + 1)
        error = _forecast(estimator, X, y, train, test) - truth[test]
        mae, scale = np.abs(error).mean(axis=0), naive_error(truth[train], period)
        reference = np.zeros_like(mae)
        if baseline is not None:
            reference = np.abs(_forecast(baseline, X, y, train, test) - truth[test]).mean(axis=0)
        scores = {
            "fold": fold,
            "output": list(getattr(y, "columns", [getattr(y, "name", None)] * len(mae))),
            "horizon": np.resize(horizons or [np.nan], len(mae)),
            "train_start": labels[train.start],
            "train_end": labels[train.stop - 1],
            "test_start": labels[test.start],
            "test_end": labels[test.stop - 1],
            "n_train": train.stop - train.start,
            "n_test": test.stop - test.start,
            "MAE": mae,
            "RMSE": np.sqrt((error**2).mean(axis=0)),
            "MASE": mae / np.where(scale > 0, scale, np.nan),
            "skill": 1 - mae / np.where(reference > 0, reference, np.nan),
        }
        folds.append(pd.DataFrame(scores))
    return pd.concat(folds, ignore_index=True)


def _clock(labels):
    """Number of the time step of every row: rows of several stations may share one."""
    if not isinstance(labels, pd.DatetimeIndex):
        return np.arange(len(labels))
    if not labels.is_monotonic_increasing:
        raise ValueError(
            "the time stamps of X and y go back, as those of several series below each other do: "
            "sort both by time, e.g. order = np.argsort(y.index, kind='stable'); "
            "backtest(estimator, X[order], y.iloc[order], cv). A SequenceView keeps the history "
            "of every row."
        )
    return np.unique(labels, return_inverse=True)[1]


def _check_fold(fold, train, test, reach, clock):
    fault = None
    if len(train) == 0 or len(test) == 0:
        fault = "is empty, or its training rows are"
    elif any(np.any(np.diff(rows) != 1) for rows in (train, test)):
        fault = "or its training rows are shuffled or have holes"
    elif train[-1] >= test[0]:
        fault = "does not lie after its training rows"
    elif clock[test[0]] - clock[train[-1]] < reach:
        fault = f"starts before the training targets, {reach} steps ahead, are known"
    if fault:
        raise ValueError(
            f"cv: test fold {fold} {fault}. Use ordered folds that leave out horizon - 1 rows, "
            f"e.g. TimeSeriesSplit(n_splits, gap={reach - 1})."
        )


def _forecast(estimator, X, y, train, test):
    fitted = clone(estimator).fit(_rows(X, train), _rows(y, train))
    history = int(min(_history(fitted), test.start))
    forecast = fitted.predict(_rows(X, slice(test.start - history, test.stop)))
    return as_columns(forecast[history:], f"the forecast of {type(estimator).__name__}")


def _rows(data, rows):
    return data.iloc[rows] if hasattr(data, "iloc") else data[rows]


def _history(estimator):
    # rows before a row that its prediction reads: sum of (window - 1) * dilation over nested steps
    estimator = getattr(estimator, "best_estimator_", estimator)
    nested = [part for part in estimator.get_params().values() if hasattr(part, "get_params")]
    if any(isinstance(part, NaiveRegressor) for part in (estimator, *nested)):
        return np.inf  # they look back by the clock, however many rows that is
    windows = [(getattr(e, "window", 1), getattr(e, "dilation", 1)) for e in (estimator, *nested)]
    return sum((w - 1) * dilation for w, dilation in windows if isinstance(w, Integral))
