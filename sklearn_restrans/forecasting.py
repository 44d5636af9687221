"""Forecasting as supervised learning: targets, baselines, backtests, calendar features."""

from numbers import Integral

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like, is_numeric_dtype
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length

from ._calendar import CalendarFeatures
from ._data.clock import gaps, longest_step
from ._data.windows import SequenceView
from ._naive import (
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    _as_list,
    _checked_period,
    _horizons,
    _NaiveRegressor,
    _note_of,
    _rows_at,
    _step_of,
)
from ._validation import check_splits

__all__ = [
    "CalendarFeatures",
    "PersistenceRegressor",
    "SeasonalNaiveRegressor",
    "backtest",
    "make_supervised",
    "mean_absolute_scaled_error",
]


def make_supervised(
    frame,
    target,
    horizon,
    *,
    freq=None,
    window=None,
    dilation=1,
    max_gap="auto",
    known=(),
    group=None,
):
    """Pair every row of a time-ordered frame with the target ``horizon`` steps ahead.

    Row t of `y` is the target in the row nearest to ``t + horizon * step``, if that row is later
    than t and at most half a step off (of two equally near rows the later, so a tie never
    shortens the horizon). No target reaches across a gap, as a plain `shift` would, and a clock
    that moves by some minutes after a gap still finds its targets.

    Parameters
    ----------
    frame : DataFrame of shape (n_rows, n_features)
        Numeric columns; DatetimeIndex (sorted, unique) or RangeIndex (equally spaced rows).
    target : label or list of labels
        Column(s) to forecast.
    horizon : int, or list or range of int, all >= 1
        Steps ahead; a list or range gives one column of `y` for each.
    freq : str, Timedelta or DateOffset, default=None
        The step of a DatetimeIndex. None infers its regular frequency, or else takes the median
        distance between rows; business days with holidays need ``"B"``.
    window : int, default=None
        Lookback window: X becomes a SequenceView of the last ``window`` rows up to each row.
    dilation : int, default=1
        Distance in rows between two rows of a window.
    max_gap : str, Timedelta or None, default="auto"
        A step of the index longer than this starts a new segment, which no window crosses. "auto"
        is one and a half times the median step; None ignores the index.
    known : label or list of labels, default=()
        Columns known in advance (a timetable, a forecast bought elsewhere): their values at each
        target time become further columns ``"<label> t+<horizon>"`` of X.
    group : label, default=None
        Column that names the series (a station, a shop) of each row. Rows of one series stand
        together and in time order; targets and windows stay within it, and X is without it.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features) or SequenceView (n_samples, window, n_features)
        The rows that have all their targets, in time order; missing readings stay NaN.
    y : Series (n_samples,) or DataFrame (n_samples, n_targets * n_horizons)
        Named ``"<target> t+<horizon>"``, horizons running fastest; a DataFrame if `target` or
        `horizon` is a list. ``y.attrs`` holds ``target`` and ``horizon`` (lists), ``freq`` (the
        step of the index, None where series have different ones), and ``dropped``, the number of
        rows left out because there is no row at a target time (``no_row``: a gap, or the end) or
        because the target there is NaN (``missing``).

    Raises
    ------
    TypeError, ValueError
        If the frame, an argument or their combination cannot be used, or no row has a target.

    Notes
    -----
    "Half a step" is half the smaller of the step and the median distance between rows. The
    newest rows have no target yet: a model of views forecasts from the view of the last row, as
    below, one that has ``window=`` itself from ``frame.iloc[-window:]``, its last prediction. A
    dropped row is also missing from the history that an estimator's ``window=`` builds over the
    rows of X; a SequenceView keeps it.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_restrans.forecasting import make_supervised
    >>> times = pd.to_datetime(["2024-01-01 00:10", "2024-01-01 01:10", "2024-01-01 02:30"])
    >>> X, y = make_supervised(pd.DataFrame({"T": [1.0, 2.0, 4.0]}, index=times), "T", 1, freq="1h")
    >>> y.tolist(), y.name, y.attrs["dropped"]
    ([2.0, 4.0], 'T t+1', {'no_row': 1, 'missing': 0})

    A window that ends at the last row forecasts beyond the end of the frame:

    >>> from sklearn_restrans import ResidualTransformerRegressor, SequenceView
    >>> times = pd.date_range("2024-01-01", periods=60, freq="h")
    >>> frame = pd.DataFrame({"T": [float(t % 6) for t in range(60)]}, index=times)
    >>> X, y = make_supervised(frame, "T", 1, window=6)
    >>> model = ResidualTransformerRegressor(d_model=8, max_iter=2).fit(X, y)
    >>> model.predict(SequenceView(frame, [len(frame) - 1], 6)).shape
    (1,)
    """
    _check_type(frame)
    frame, stretches = _series_of(frame, group)
    targets, horizons, known = _as_list(target), _horizons(horizon), _as_list(known)
    _check_labels(frame, targets, known)
    _check_lengths(stretches, max(horizons), window, dilation)
    later, freq = _rows_ahead(frame.index, stretches, horizons, freq)
    values = frame[targets].to_numpy(dtype=float, na_value=np.nan)
    # y[t, (target, horizon)] = values[row nearest to t + horizon * step, target]
    future = np.where(later[:, None, :] >= 0, values[later].transpose(0, 2, 1), np.nan)
    future = future.reshape(len(frame), -1)
    has_rows, complete = (later >= 0).all(axis=1), ~np.isnan(future).any(axis=1)
    dropped = {"no_row": int(np.sum(~has_rows)), "missing": int(np.sum(has_rows & ~complete))}
    kept = np.flatnonzero(complete)
    if len(kept) == 0:
        raise ValueError(
            f"no row of frame has a target {horizons} steps ahead: {dropped['no_row']} of "
            f"{len(frame)} have no row there (check freq={freq!r} and the gaps of the index), "
            f"{dropped['missing']} a missing value of {targets} (fill it, or choose another)."
        )
    for label in known:
        column = frame[label].to_numpy(dtype=float, na_value=np.nan)
        for k, h in enumerate(horizons):
            ahead = np.where(later[:, k] >= 0, column[later[:, k]], np.nan)
            frame = frame.assign(**{f"{label} t+{h}": ahead})
    X = frame.iloc[kept]
    index = X.index
    longest = longest_step(frame.index, max_gap)
    if window is not None:
        new = np.zeros(len(frame), dtype=bool)
        new[[rows.start for rows in stretches]] = True
        stretch = np.cumsum(new | gaps(frame.index, longest))
        X = SequenceView(frame.astype(float), kept, window, dilation=dilation, segments=stretch)
    names = [f"{label} t+{h}" for label in targets for h in horizons]
    y = pd.DataFrame(future[kept], index=index, columns=names)
    y = y if is_list_like(target) or is_list_like(horizon) else y[names[0]]
    y.attrs = {"target": targets, "horizon": horizons, "freq": freq, "dropped": dropped}
    return X, y


def _check_type(frame):
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame must be a pandas DataFrame, got {type(frame).__name__}: convert it "
            "(pd.DataFrame(...), .to_pandas()) and set its time stamps as the index."
        )


def _series_of(frame, group):
    """The frame without its group column, and the slice of rows of each series, all checked."""
    if group is None:
        _check_frame(frame, "frame")
        return frame, [slice(0, len(frame))]
    if group not in list(frame.columns):
        raise ValueError(f"group={group!r} not in frame: choose one of {list(frame.columns)}.")
    if len(frame) == 0:
        _check_frame(frame, "frame")
    labels, frame = frame[group], frame.drop(columns=group)
    if labels.isna().any():
        raise ValueError(f"group={group!r} has missing labels: fill them, or drop these rows.")
    codes = labels.factorize()[0]
    starts = np.flatnonzero(np.r_[True, np.diff(codes) != 0])
    if len(starts) > codes.max() + 1:
        raise ValueError(
            f"group={group!r} comes back after another label: sort the frame by {group!r}, then by "
            "time."
        )
    rows = [slice(a, b) for a, b in zip(starts, [*starts[1:], len(frame)], strict=True)]
    for part in rows:
        _check_frame(frame.iloc[part], f"series {labels.iloc[part.start]!r} of frame")
    return frame, rows


def _check_frame(frame, name):
    index, names = frame.index, frame.columns
    timed = isinstance(index, (pd.DatetimeIndex, pd.RangeIndex))
    kinds = frame.dtypes.items()
    textual = [name for name, kind in kinds if not is_numeric_dtype(kind) or kind.kind == "c"]
    repeated = index[index.duplicated()].astype(str).tolist()
    faults = [
        (not timed, "no time index: set a DatetimeIndex, or reset_index(drop=True) if equispaced"),
        (len(frame) < 2, f"{len(frame)} row(s): pass at least horizon + 1, so one has a target"),
        (names.has_duplicates, f"columns of one name: rename {list(names[names.duplicated()])}"),
        (textual, f"columns that are not numeric: drop or encode {textual}"),
        (index.hasnans, "missing time stamps (NaT): drop these rows"),
        (repeated, f"duplicate time stamps: keep one row each of {len(repeated)}, {repeated[:3]}"),
        (not index.is_monotonic_increasing, "unsorted time stamps: call frame.sort_index()"),
    ]
    for found, fault in faults:
        if found:
            raise ValueError(f"{name} has {fault}.")


def _check_labels(frame, targets, known):
    columns = list(frame.columns)
    for name, labels in (("target", targets), ("known", known)):
        unknown = [label for label in labels if label not in columns]
        if unknown:
            raise ValueError(f"{name}={unknown} not in frame: choose from {columns}.")
        if len(set(labels)) < len(labels):
            raise ValueError(f"{name}={labels} names a column twice; name each once.")
    if not targets:
        raise ValueError("target is empty: name the column(s) to forecast.")


def _check_lengths(stretches, horizon, window, dilation):
    longest = max(rows.stop - rows.start for rows in stretches)
    if horizon >= longest:
        raise ValueError(
            f"horizon={horizon} reaches past the end of frame from each of its {longest} rows: "
            "pass a shorter horizon or a longer series."
        )
    if window is None and dilation != 1:
        raise ValueError(f"dilation={dilation!r} has a meaning for window=... only; set window.")
    if isinstance(window, Integral) and window > longest:
        series = "frame" if len(stretches) == 1 else "the longest series of frame"
        raise ValueError(
            f"window={window} is longer than the {longest} rows of {series}: pass a window of at "
            f"most {longest}, or a longer series."
        )


def _rows_ahead(index, stretches, horizons, freq):
    """For every row and horizon the row of its target, -1 without one; and a note of the step."""
    if freq is not None and not isinstance(index, pd.DatetimeIndex):
        raise ValueError(f"freq={freq!r} needs a DatetimeIndex: leave it out, or set one.")
    later, notes = np.full((len(index), len(horizons)), -1), []
    for rows in stretches:
        part, here = index[rows], np.arange(rows.stop - rows.start)
        step, tolerance = _step_of(part, freq)
        notes.append(_note_of(step))
        for k, h in enumerate(horizons):
            nearest = _rows_at(part, h * step, tolerance)
            # A calendar step can be shorter than the tolerance (31 January + "MS"): never the row
            # itself.
            later[rows, k] = np.where(nearest > here, nearest + rows.start, -1)
    return later, notes[0] if all(note == notes[0] for note in notes) else None


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
    y_true, y_pred = _columns(y_true, "y_true"), _columns(y_pred, "y_pred")
    y_train = _columns(y_train, "y_train")
    for name, y in (("y_true", y_true), ("y_pred", y_pred), ("y_train", y_train)):
        if np.isnan(y).any():
            raise ValueError(
                f"{name} has missing values (NaN): leave these rows out, or fill them."
            )
    if y_true.shape != y_pred.shape or y_true.shape[1] != y_train.shape[1]:
        raise ValueError(
            f"y_true {y_true.shape}, y_pred {y_pred.shape} and y_train {y_train.shape} do not fit: "
            "pass as many rows in y_true as in y_pred, and the same outputs in all three."
        )
    scale = _naive_error(y_train, period)
    if np.any(scale == 0):
        raise ValueError(
            f"y_train repeats itself after period={period} rows, which leaves no error to scale "
            "by: pass a longer y_train, or report the plain mean absolute error."
        )
    return float(np.mean(np.abs(y_true - y_pred).mean(axis=0) / scale))


def _columns(y, name):
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


def _naive_error(y_train, period):
    # mean_t |y(t) - y(t - period)| of each column
    if len(y_train) <= _checked_period(period):
        raise ValueError(
            f"period={period} needs more than {period} training rows, got {len(y_train)}: pass a "
            "shorter period or a longer series."
        )
    return np.abs(y_train[period:] - y_train[:-period]).mean(axis=0)


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
    horizons = noted if horizon is None else _horizons(horizon)
    if noted not in (None, horizons):
        raise ValueError(
            f"horizon={horizon!r}, but y was made with horizon {noted}: pass the same or none."
        )
    targets = made_with.get("target", [])
    names = getattr(X, "columns", None)
    if baseline is None and targets and set(targets) <= set(() if names is None else names):
        baseline = PersistenceRegressor([list(X.columns).index(label) for label in targets])
    truth = _columns(y, "y")
    # the index of a list is a method
    found = [part.index for part in (X, y) if isinstance(getattr(part, "index", None), pd.Index)]
    labels = (found or [np.arange(len(truth))])[0]
    clock = _clock(labels)
    folds = []
    for fold, (train, test) in enumerate(check_splits(cv, X, y)):
        _check_fold(fold, train, test, max(horizons or [1]), clock)
        train, test = slice(train[0], train[-1] + 1), slice(test[0], test[-1] + 1)
        error = _forecast(estimator, X, y, train, test) - truth[test]
        mae, scale = np.abs(error).mean(axis=0), _naive_error(truth[train], period)
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
    return _columns(forecast[history:], f"the forecast of {type(estimator).__name__}")


def _rows(data, rows):
    return data.iloc[rows] if hasattr(data, "iloc") else data[rows]


def _history(estimator):
    # rows before a row that its prediction reads: sum of (window - 1) * dilation over nested steps
    estimator = getattr(estimator, "best_estimator_", estimator)
    nested = [part for part in estimator.get_params().values() if hasattr(part, "get_params")]
    if any(isinstance(part, _NaiveRegressor) for part in (estimator, *nested)):
        return np.inf  # they look back by the clock, however many rows that is
    windows = [(getattr(e, "window", 1), getattr(e, "dilation", 1)) for e in (estimator, *nested)]
    return sum((w - 1) * dilation for w, dilation in windows if isinstance(w, Integral))
