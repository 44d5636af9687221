"""Errors of forecasts in units of the error of the naive forecast."""

import numpy as np

from .._validation import check_integer


def mean_absolute_scaled_error(y_true, y_pred, y_train, period=1):
    """Mean absolute error in units of the naive forecast's error on the training series.

    MASE = mean |y_true - y_pred| / mean_t |y_train(t) - y_train(t - period)|.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Truth and forecast, in the same units.
    y_train : array-like of shape (n_train,) or (n_train, n_outputs)
        The training series in time order.
    period : int, default=1
        Rows between the compared values of `y_train`: a season, or the forecast horizon.

    Returns
    -------
    mase : float
        Mean over the outputs, without unit; below 1 is better than the naive forecast.

    Raises
    ------
    ValueError
        If the shapes differ, a value is missing, or `y_train` is not longer than `period` or
        never changes.

    References
    ----------
    R. J. Hyndman, A. B. Koehler, "Another look at measures of forecast accuracy", International
    Journal of Forecasting 22 (2006) 679-688, section 3.

    Examples
    --------
    >>> from sklearn_restrans.forecasting import mean_absolute_scaled_error
    >>> mean_absolute_scaled_error([5.0, 7.0], [6.0, 6.0], y_train=[0.0, 2.0, 4.0])
    0.5
    """
    y_true, y_pred = as_columns(y_true, "y_true"), as_columns(y_pred, "y_pred")
    y_train = as_columns(y_train, "y_train")
    for name, y in (("y_true", y_true), ("y_pred", y_pred), ("y_train", y_train)):
        if np.isnan(y).any():
            raise ValueError(
                f"{name} has missing values (NaN): leave these rows out, or fill them."
            )
    if y_true.shape != y_pred.shape or y_true.shape[1] != y_train.shape[1]:
        raise ValueError(
            f"y_true has shape {y_true.shape}, y_pred {y_pred.shape} and y_train {y_train.shape}: "
            "pass as many rows in y_true as in y_pred, and the same outputs in all three."
        )
    scale = naive_error(y_train, period)
    if np.any(scale == 0):
        raise ValueError(
            f"y_train repeats itself after period={period} rows, so the error to divide by is 0: "
            "pass a longer y_train, or report the plain mean absolute error."
        )
    return float(np.mean(np.abs(y_true - y_pred).mean(axis=0) / scale))


def as_columns(y, name):
    try:
        columns = np.asarray(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}.") from error
    if columns.size == 0 or columns.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have shape (n_samples,) or (n_samples, n_outputs) and at least one row, "
            f"got {columns.shape}."
        )
    return columns.reshape(len(columns), -1)


def naive_error(y_train, period):
    # mean_t |y(t) - y(t - period)| of each column
    if len(y_train) <= check_integer("period", period):
        raise ValueError(
            f"period={period} needs more than {period} training rows, got {len(y_train)}: pass a "
            "shorter period or a longer series."
        )
    return np.abs(y_train[period:] - y_train[:-period]).mean(axis=0)
