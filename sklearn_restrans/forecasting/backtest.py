"""Rolling-origin evaluation of forecasts."""

import warnings
from numbers import Integral

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length

from .._data.stamps import read_index
from .._validation import check_splits
from .errors import as_columns, naive_error
from .naive import NaiveRegressor, PersistenceRegressor
from .supervised import check_horizons


def backtest(estimator, X, y, cv, *, horizon=None, baseline=None, period=1):
    """Rolling-origin evaluation: for every fold, fit on the past and forecast what follows.

    An estimator with a ``window`` (and ``dilation``) predicts a test fold from its true history:
    the rows of X before the fold are passed too, and their forecasts are dropped. The window is
    that of the fitted estimator, wherever pipelines, searches and other wrappers keep it.

    Parameters
    ----------
    estimator : regressor
        Cloned and fitted for every fold.
    X, y : array-likes of n_samples rows in time order
        From `make_supervised`, or alike; X may be anything that slices along its rows.
    cv : splitter or iterable of (train, test) rows
        Runs of consecutive rows, the test rows after the training rows, as those of
        ``TimeSeriesSplit(5, gap=horizon - 1)``.
    horizon : int, or list or range of int, default=None
        Steps ahead of each column of `y`; None takes what `make_supervised` noted in ``y.attrs``.
        If it is known, folds whose training targets lie after the first test row are refused.
    baseline : regressor or DataFrame, default=None
        Reference of the skill, or its scores on the same folds, as an earlier call returned them.
        None takes persistence if ``y.attrs`` names the target columns and X has them; otherwise
        the skill is NaN.
    period : int, default=1
        Period of the naive forecast in the MASE, see `mean_absolute_scaled_error`.

    Returns
    -------
    scores : DataFrame
        A row per fold and output: fold, output, horizon, train_start, train_end, test_start,
        test_end (index labels of X or y, or row numbers), n_train, n_test, MAE and RMSE (units of
        y), MASE (NaN if the training target never changes), skill = 1 - MAE / MAE(baseline).

    Raises
    ------
    TypeError
        If the estimator or the baseline is not a regressor.
    ValueError
        If y does not hold finite numbers, or a fold is not a pair of row numbers, is shuffled or
        has holes, does not lie after its training rows, or is closer to them than the horizon; or
        if the scores of the baseline are those of other folds.

    Warns
    -----
    UserWarning
        If a test fold is shorter than the largest horizon.

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
    _check_regressor("estimator", estimator)
    known = baseline if isinstance(baseline, pd.DataFrame) else None
    if known is not None:
        baseline = None
    elif baseline is not None:
        _check_regressor("baseline", baseline)
    check_consistent_length(X, y)
    made_with = getattr(y, "attrs", {})
    noted = made_with.get("horizon")
    horizons = noted if horizon is None else check_horizons(horizon)
    if noted not in (None, horizons):
        raise ValueError(
            f"horizon={horizon!r}, but y was made with horizon {noted}: pass the same or none."
        )
    if baseline is None and known is None:
        baseline = _persistence(X, made_with.get("target", []))
    truth = as_columns(y, "y")
    if not np.isfinite(truth).all():
        raise ValueError("y has missing or infinite values: leave these rows out of X and y.")
    labels = _labels(X, y, len(truth))
    clock = _clock(labels)
    folds, reach, told = [], max(horizons or [1]), False
    for fold, (train, test) in enumerate(check_splits(cv, X, y)):
        _check_fold(fold, train, test, reach, clock)
        told = told or _warn_of_short(fold, test, reach, clock)
        train, test = slice(train[0], train[-1] + 1), slice(test[0], test[-1] + 1)
        error = _forecast(estimator, X, y, train, test) - truth[test]
        mae, scale = np.abs(error).mean(axis=0), naive_error(truth[train], period)
        # A reference of 0 makes the skill NaN, which is right without a baseline.
        reference = np.zeros_like(mae)
        if baseline is not None:
            reference = np.abs(_forecast(baseline, X, y, train, test) - truth[test]).mean(axis=0)
        scores = {
            "fold": fold,
            "output": list(getattr(y, "columns", [getattr(y, "name", None)] * len(mae))),
            "horizon": np.resize(horizons or [np.nan], len(mae)),
            # A label of a MultiIndex is a tuple, which pandas would spread over the rows.
            "train_start": [labels[train.start]] * len(mae),
            "train_end": [labels[train.stop - 1]] * len(mae),
            "test_start": [labels[test.start]] * len(mae),
            "test_end": [labels[test.stop - 1]] * len(mae),
            "n_train": train.stop - train.start,
            "n_test": test.stop - test.start,
            "MAE": mae,
            "RMSE": np.sqrt((error**2).mean(axis=0)),
            "MASE": mae / np.where(scale > 0, scale, np.nan),
            "skill": 1 - mae / np.where(reference > 0, reference, np.nan),
        }
        folds.append(pd.DataFrame(scores))
    scores = pd.concat(folds, ignore_index=True)
    return scores if known is None else _against(scores, known)


def _against(scores, baseline):
    """The scores with their skill against those of another regressor on the same folds."""
    same = ["fold", "output", "test_start", "test_end", "n_test"]
    if not set(same) | {"MAE"} <= set(baseline.columns) or not np.array_equal(
        scores[same].to_numpy(object), baseline[same].to_numpy(object)
    ):
        raise ValueError(
            "baseline must be a regressor, or the scores that backtest returned for one on the "
            "same folds and outputs; these are of others."
        )
    reference = baseline["MAE"].to_numpy()
    skill = 1 - scores["MAE"].to_numpy() / np.where(reference > 0, reference, np.nan)
    return scores.assign(skill=skill)


def _check_regressor(name, estimator):
    if isinstance(estimator, type):
        raise TypeError(f"{name} must be a regressor, got the class {estimator.__name__}: add ().")
    if not all(hasattr(estimator, method) for method in ("fit", "predict", "get_params")):
        raise TypeError(
            f"{name} must be a regressor with fit, predict and get_params, got {estimator!r}."
        )


def _persistence(X, targets):
    """The baseline where X has the target columns, else None."""
    names = getattr(X, "columns", None)
    names = [] if names is None else list(names)
    if not targets or not set(targets) <= set(names):
        return None
    return PersistenceRegressor([names.index(label) for label in targets])


def _labels(X, y, n_rows):
    """Labels of the rows: the index of X, or of y, or row numbers."""
    # The attribute `index` of a list is a method.
    found = [part.index for part in (X, y) if isinstance(getattr(part, "index", None), pd.Index)]
    return (found or [np.arange(n_rows)])[0]


def _clock(labels):
    """Number of the time step of every row, which the rows of several stations may share."""
    times = read_index(labels, warn=False).times
    if times is None:
        return np.arange(len(labels))
    if not times.is_monotonic_increasing:
        raise ValueError(
            "the time stamps of X and y go back, as they do where one series follows another: "
            "sort both by time, e.g. order = np.argsort(times, kind='stable') with the time stamps "
            "of y; backtest(estimator, X[order], y.iloc[order], cv). A SequenceView keeps the "
            "history of every row."
        )
    return np.unique(times, return_inverse=True)[1]


def _check_fold(fold, train, test, reach, clock):
    fault = None
    if len(train) == 0 or len(test) == 0:
        fault = "is empty, or it has no training rows"
    elif any(np.any(np.diff(rows) != 1) for rows in (train, test)):
        fault = "is shuffled or has holes, or its training rows are"
    elif train[-1] >= test[0]:
        fault = "does not lie after its training rows"
    elif clock[test[0]] - clock[train[-1]] < reach:
        fault = f"starts before the training targets, {reach} steps ahead, are known"
    if fault:
        raise ValueError(
            f"cv: test fold {fold} {fault}. Use ordered folds that leave out horizon - 1 rows, "
            f"e.g. TimeSeriesSplit(n_splits, gap={reach - 1})."
        )


def _warn_of_short(fold, test, reach, clock):
    """Warn of a test fold that is shorter than the horizon; whether it is."""
    n_steps = int(clock[test[-1]] - clock[test[0]] + 1)
    if n_steps >= reach:
        return False
    warnings.warn(
        f"test fold {fold} spans {n_steps} time step(s), fewer than the horizon of {reach}: all of "
        "its forecasts share steps of the same stretch, so that its error is hardly more than that "
        "of one forecast; use longer test folds, such as TimeSeriesSplit(n_splits, "
        f"test_size={reach}, gap={reach - 1}), fewer of them, or a shorter horizon.",
        UserWarning,
        stacklevel=3,
    )
    return True


def _forecast(estimator, X, y, train, test):
    fitted = clone(estimator).fit(_rows(X, train), _rows(y, train))
    # Forecasts of the history are dropped: only the rows are needed, as the past of the fold.
    history = int(min(_history(fitted), test.start))
    forecast = fitted.predict(_rows(X, slice(test.start - history, test.stop)))
    name = f"the forecast of {type(estimator).__name__}"
    forecast, truth = as_columns(forecast[history:], name), as_columns(_rows(y, test), "y")
    if forecast.shape != truth.shape:
        raise ValueError(
            f"{name} has shape {forecast.shape}, but y has {truth.shape}: an estimator must give "
            "one forecast for every row, and for every column of y."
        )
    return forecast


def _rows(data, rows):
    return data.iloc[rows] if hasattr(data, "iloc") else data[rows]


def _history(fitted):
    """Rows before a row that its prediction reads, through all estimators that were fitted.

    Steps that follow each other add up; of those that stand side by side the longest counts.
    """
    if isinstance(fitted, NaiveRegressor):
        return np.inf  # it looks back by the clock, over an unknown number of rows
    window, dilation = getattr(fitted, "window", 1), getattr(fitted, "dilation", 1)
    known = isinstance(window, Integral) and isinstance(dilation, Integral)
    own = (int(window) - 1) * int(dilation) if known else 0
    if hasattr(fitted, "best_estimator_"):
        return own + _history(fitted.best_estimator_)
    # Of a fitted pipeline the steps themselves were fitted; most other estimators keep what they
    # were given, and fit clones of it, under names that end in "_" or, in one's own, under any.
    given = fitted.get_params(deep=False) if hasattr(fitted, "get_params") else {}
    own_names = {name: value for name, value in vars(fitted).items() if name not in given}
    learnt = {name: value for name, value in own_names.items() if name.endswith("_")}
    dictionaries = {k: list(v.values()) for k, v in own_names.items() if isinstance(v, dict)}
    for held in (learnt, own_names, dictionaries, given):
        parts = [part for part in map(_estimators_in, held.values()) if part]
        if parts:
            break
    # The links of a chain read the forecasts of those before them.
    in_turn = hasattr(fitted, "steps") or hasattr(fitted, "order_")
    return own + sum((sum if in_turn else max)(map(_history, part)) for part in parts)


def _estimators_in(value):
    """The estimators that an attribute holds: itself, or the items of a list, named or not."""
    if hasattr(value, "fit"):
        return [] if isinstance(value, type) else [value]
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist() if value.dtype == object else []
    # Dictionaries only repeat what lists hold, under names, or list candidates of a search.
    if not isinstance(value, list | tuple):
        return []
    return [estimator for item in value for estimator in _estimators_in(item)]
