"""Forecasting as supervised learning: every row and the target some steps later."""

from numbers import Integral

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like, is_numeric_dtype

from .._clock import gaps, longest_step, note_of, rows_at, step_of
from .._views import SequenceView


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
    targets, horizons, known = as_list(target), check_horizons(horizon), as_list(known)
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
        step, tolerance = step_of(part, freq)
        notes.append(note_of(step))
        for k, h in enumerate(horizons):
            nearest = rows_at(part, h * step, tolerance)
            # A calendar step can be shorter than the tolerance (31 January + "MS"): never the row
            # itself.
            later[rows, k] = np.where(nearest > here, nearest + rows.start, -1)
    return later, notes[0] if all(note == notes[0] for note in notes) else None


def as_list(labels):
    return list(labels) if is_list_like(labels) else [labels]


def check_horizons(horizon):
    steps = as_list(horizon)
    valid = [isinstance(h, Integral) and not isinstance(h, bool) and h >= 1 for h in steps]
    if not steps or not all(valid) or len(set(steps)) < len(steps):
        raise ValueError(
            f"horizon={horizon!r} must be an integer >= 1, or a list or range of different ones "
            "(in steps of the index, e.g. 24 for a day of hourly rows)."
        )
    return [int(h) for h in steps]
