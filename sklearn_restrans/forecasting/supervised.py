"""Forecasting as supervised learning: every row and the target some steps later."""

from collections.abc import Hashable, Mapping
from numbers import Integral

import numpy as np
import pandas as pd
from pandas.api.types import is_list_like, is_numeric_dtype

from .._data.clock import (
    as_gap,
    learn_clock,
    lost_share,
    warn_of_lost_history,
)
from .._data.forms import learn_form
from .._data.stamps import Stamps, read_index, together
from .._data.steps import note_of, rows_at, step_of
from .._data.windows import SequenceView, of_stations
from .._validation import check_integer


def make_supervised(
    frame,
    target,
    horizon,
    *,
    freq=None,
    window=None,
    dilation=1,
    patch=1,
    patch_stride=None,
    relative=None,
    relative_columns=None,
    channel_independent=False,
    max_gap="auto",
    known=(),
    group=None,
):
    """Pair every row of a time-ordered frame with the target ``horizon`` steps ahead.

    Row t of `y` is the target in the row nearest to ``t + horizon * step``, if that row is later
    than t and at most half a step away from that time. Of two rows that are equally near the later
    one is taken, so the horizon is never shortened. Targets do not reach across a gap, as a plain
    `shift` would, and they are still found if the clock moves by some minutes after a gap.

    Parameters
    ----------
    frame : DataFrame of shape (n_rows, n_features)
        Numeric columns, sorted by time without duplicates. Time is read from a DatetimeIndex,
        PeriodIndex or TimedeltaIndex, from dates and ISO 8601 texts, or from a RangeIndex (equally
        spaced rows). A MultiIndex of series and time names the series as `group` does.
    target : label or list of labels
        Column(s) to forecast; a tuple is one label if it names a column.
    horizon : int, or list or range of int, all >= 1
        Steps ahead; a list or range gives one column of `y` for each.
    freq : str, Timedelta or DateOffset, default=None
        The step of the index. None takes the regular frequency of each series. If rows are missing
        it takes the calendar that the stamps lie on (months, quarters, years, half months, business
        days), or else the most frequent distance between rows if all are multiples of it, or else
        the median distance.
    window : int, default=None
        Lookback window: X becomes a SequenceView of the last ``window`` rows up to each row.
    dilation : int, default=1
        Distance in rows between two rows of a window.
    patch : int, default=1
        Rows of a window that make one token, as in SequenceView.
    patch_stride : int, default=None
        Rows from the beginning of one patch to that of the next; None is ``patch``.
    relative : {"last", "standard"}, default=None
        The estimators read every window relative to its own last value, or to its own mean and
        standard deviation, as in SequenceView, and its targets too where their column is read so.
        `y` and predictions keep their units, which are those of the column: transform `frame`
        rather than `y` (no TransformedTargetRegressor).
    relative_columns : label or list of labels, default=None
        Columns of X that are read so. None is all columns of `frame`, and not the `known` ones,
        whose values ahead would lose what they say.
    channel_independent : bool, default=False
        Whether a regressor reads each target column as a sample of its own, with the columns that
        are no target beside it, so that one model serves all of them; see SequenceView. `y` and
        predictions stay as wide as they are.
    max_gap : str, Timedelta or None, default="auto"
        A step of the index longer than this is a gap, which no window crosses. "auto" is one and a
        half times the median step of the series. Weekends, and holidays of up to a week in a series
        of business days, are not gaps, and neither are the pauses between sessions that begin at
        the same time of the day or week. None ignores the time stamps.
    known : label or list of labels, default=()
        Columns known in advance (a timetable, a forecast bought elsewhere): their values at each
        target time become further columns ``"<label> t+<horizon>"`` of X.
    group : label, default=None
        Column that names the series (a station, a shop) of each row. Rows of one series stand
        together and in time order. Targets and windows stay within a series. X does not contain
        this column.

    Returns
    -------
    X : DataFrame of shape (n_samples, n_features) or SequenceView of shape (n_samples, n_tokens, \
            patch * n_features)
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

    Warns
    -----
    UserWarning
        If gaps cut away a tenth or more of the history of the windows.

    Notes
    -----
    "Half a step" is half the smaller of the step and the median distance between rows. The newest
    rows have no target yet. A model that was fitted on views forecasts from the view of the last
    row, as below; a model with ``window=`` forecasts from ``frame.iloc[-window:]`` in its last
    prediction. A dropped row is also missing from the history that an estimator's ``window=``
    builds over the rows of X; a SequenceView keeps it.

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
    frame, times, stretches, declared = _read_rows(frame, group)
    several = is_list_like(horizon) or not _is_among(target, frame.columns)
    targets, known = _labels_of(frame, "target", target), _labels_of(frame, "known", known)
    if not targets:
        raise ValueError("target is empty: name the column(s) to forecast.")
    horizons = check_horizons(horizon)
    _check_lengths(stretches, max(horizons), window, dilation)
    levels = {
        "relative": relative,
        "relative_columns": relative_columns,
        "channel_independent": channel_independent,
    }
    form = _checked_form(window, patch, patch_stride, levels)
    as_gap(max_gap)  # A wrong max_gap is refused even if there is no window to use it.
    later, step = _rows_ahead(times, stretches, horizons, freq, declared)
    # future[t, (target, horizon)] = target in the row nearest to t + horizon * step
    future = np.hstack([_ahead(frame, label, later) for label in targets])
    has_rows, complete = (later >= 0).all(axis=1), ~np.isnan(future).any(axis=1)
    dropped = {"no_row": int(np.sum(~has_rows)), "missing": int(np.sum(has_rows & ~complete))}
    kept = np.flatnonzero(complete)
    if len(kept) == 0:
        raise ValueError(
            f"no row of frame has a target {horizons} steps ahead: {dropped['no_row']} of "
            f"{len(frame)} have no row there (check freq={step!r} and the gaps of the index), "
            f"{dropped['missing']} a missing value of {targets} (fill it, or choose another)."
        )
    own, frame = list(frame.columns), _with_known(frame, known, horizons, later)
    X = frame.iloc[kept]
    index = X.index
    if window is not None:
        form |= _by_place(frame, own, targets, horizons, levels)
        known_step = declared if freq is None else freq
        X = _view(frame, kept, window, dilation, times, stretches, max_gap, known_step, form)
    names = [f"{label} t+{h}" for label in targets for h in horizons]
    y = pd.DataFrame(future[kept], index=index, columns=names)
    y = y if several else y[names[0]]
    y.attrs = {"target": targets, "horizon": horizons, "freq": step, "dropped": dropped}
    return X, y


def _check_type(frame):
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame must be a pandas DataFrame, got {type(frame).__name__}: convert it "
            "(pd.DataFrame(...), .to_pandas()) and set its time stamps as the index."
        )


def _read_rows(frame, group):
    """The frame without its group column, its times, the rows of each series, a declared step."""
    index = frame.index
    if isinstance(index, pd.RangeIndex):
        stamps = Stamps(index)
    else:
        stamps = together(read_index(index, "frame", warn=False), index, "frame")
    # Of a DatetimeIndex every series has a step of its own.
    step = None if isinstance(index, pd.DatetimeIndex) else stamps.step
    if group is None or _is_among(group, index.names if stamps.series is not None else []):
        if stamps.series is None:
            _check_frame(frame, stamps.times, "frame")
            return frame, stamps.times, [slice(0, len(frame))], step
        series, names = stamps.series, None
    else:
        frame, series, names = _without_group(frame, group, stamps)
    # Labels stand together by now, so every change of the label starts a series.
    starts = np.flatnonzero(np.r_[True, np.diff(series) != 0])
    rows = [slice(a, b) for a, b in zip(starts, [*starts[1:], len(frame)], strict=True)]
    for part in rows:
        name = f"the series of frame that begins in row {part.start}"
        if names is not None:
            name = f"series {names.iloc[part.start]!r} of frame"
        times = None if stamps.times is None else stamps.times[part]
        _check_frame(frame.iloc[part], times, name)
    return frame, stamps.times, rows, step


def _without_group(frame, group, stamps):
    """The frame without the column that names the series, the number of each row's, the names."""
    columns = list(frame.columns)
    if not _is_among(group, columns):
        raise ValueError(f"group={group!r} not in frame: choose one of {columns}.")
    if stamps.series is not None:
        raise ValueError(
            f"group={group!r} and the MultiIndex of frame both name series: leave group out, or "
            "keep only the time in the index."
        )
    if columns.count(group) > 1:
        raise ValueError(f"frame has columns of one name: rename {[group]}.")
    if len(frame) == 0:
        _check_frame(frame, stamps.times, "frame")
    place = columns.index(group)
    names = frame.iloc[:, place]
    if names.isna().any():
        raise ValueError(f"group={group!r} has missing labels: fill them, or drop these rows.")
    series = names.factorize()[0]
    if np.count_nonzero(np.diff(series)) > series.max():
        raise ValueError(
            f"group={group!r} comes back after another label: sort the frame by {group!r}, then by "
            "time."
        )
    others = [k for k in range(len(columns)) if k != place]
    return frame.iloc[:, others], series, names


def _check_frame(frame, times, name):
    columns = frame.columns
    kinds = frame.dtypes.items()
    textual = [name for name, kind in kinds if not is_numeric_dtype(kind) or kind.kind == "c"]
    found = pd.RangeIndex(0) if times is None else times
    repeated = found[found.duplicated()].astype(str).tolist()
    twice = list(columns[columns.duplicated()])
    remedy = "set a DatetimeIndex, or reset_index(drop=True) if equispaced"
    faults = [
        (times is None, f"no time index: {remedy}"),
        (len(frame) < 2, f"{len(frame)} row(s): pass at least horizon + 1, so one has a target"),
        (twice, f"columns of one name: rename {twice}"),
        (textual, f"columns that are not numeric: drop or encode {textual}"),
        (repeated, f"duplicate time stamps: keep one row each of {len(repeated)}, {repeated[:3]}"),
        (not found.is_monotonic_increasing, "unsorted time stamps: call frame.sort_index()"),
    ]
    for is_there, fault in faults:
        if is_there:
            raise ValueError(f"{name} has {fault}.")


def _is_among(label, labels):
    """Whether a label is one of these; a label that cannot be hashed is not."""
    return isinstance(label, Hashable) and label in set(labels)


def as_labels(name, labels, columns):
    """A label, or a list of them, as a list; a tuple that names a column is one label.

    Raises
    ------
    ValueError
        If ``labels`` is a set or a dict, which have no order, or names something twice.
    """
    if _is_among(labels, columns) or not is_list_like(labels):
        return [labels]
    if isinstance(labels, set | frozenset | Mapping):
        raise ValueError(f"{name} must be a label or a list of labels, got {labels!r}.")
    return list(labels)


def _labels_of(frame, name, labels):
    columns = list(frame.columns)
    labels = as_labels(name, labels, columns)
    unknown = [label for label in labels if not _is_among(label, columns)]
    if unknown:
        raise ValueError(f"{name}={unknown} not in frame: choose from {columns}.")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{name}={labels} names a column twice; name each once.")
    return labels


def check_horizons(horizon):
    """Horizons as a list of ints, or a ValueError that says what is allowed."""
    steps = list(horizon) if is_list_like(horizon) else [horizon]
    valid = [isinstance(h, Integral) and not isinstance(h, bool) and h >= 1 for h in steps]
    if not steps or not all(valid) or len(set(steps)) < len(steps):
        raise ValueError(
            f"horizon must be an integer >= 1, or a list or range of different ones, got "
            f"{horizon!r}: it counts steps of the index, e.g. 24 for a day of hourly rows."
        )
    return [int(h) for h in steps]


def _check_lengths(stretches, horizon, window, dilation):
    longest = max(rows.stop - rows.start for rows in stretches)
    if horizon >= longest:
        raise ValueError(
            f"horizon={horizon} reaches past the end of frame from each of its {longest} rows: "
            "pass a shorter horizon or a longer series."
        )
    dilation = check_integer("dilation", dilation)
    if window is None:
        if dilation != 1:
            raise ValueError(f"dilation={dilation} needs a window to act on: set window.")
        return
    series = "frame" if len(stretches) == 1 else "the longest series of frame"
    if dilation > longest:
        raise ValueError(
            f"dilation={dilation} is longer than the {longest} rows of {series}: pass a dilation "
            f"of at most {longest}, or a longer series."
        )
    if check_integer("window", window) > longest:
        raise ValueError(
            f"window={window} is longer than the {longest} rows of {series}: pass a window of at "
            f"most {longest}, or a longer series."
        )


def _checked_form(window, patch, patch_stride, levels):
    """What a SequenceView is told of patches, refused before any work is done."""
    if window is None:
        defaults = {"patch": 1, "channel_independent": False}
        for name, value in {"patch": patch, "patch_stride": patch_stride, **levels}.items():
            if value != defaults.get(name):
                raise ValueError(f"{name}={value!r} needs a window to act on: set window.")
        return {}
    learn_form(window, patch, patch_stride)
    return {"patch": patch, "patch_stride": patch_stride}


def _by_place(frame, own, targets, horizons, levels):
    """What a SequenceView is told of levels and channels, by numbers of columns."""
    relative, chosen = levels["relative"], levels["relative_columns"]
    asked, columns = levels["channel_independent"], list(frame.columns)
    apart = isinstance(asked, bool | np.bool_) and bool(asked)  # the view refuses anything else
    told = {"channel_independent": asked, "relative": relative}
    chosen = _labels_of(frame, "relative_columns", own if chosen is None else chosen)
    if relative is not None or levels["relative_columns"] is not None:
        told["relative_columns"] = [columns.index(label) for label in chosen]
    if relative is not None or apart:
        told_of = targets if apart else chosen
        places = [columns.index(label) if label in told_of else None for label in targets]
        told["target_columns"] = list(np.repeat(places, len(horizons)))
    return told


def _rows_ahead(times, stretches, horizons, freq, declared):
    """For every row and horizon the row of its target, -1 without one; and a note of the step."""
    if freq is not None and not isinstance(times, pd.DatetimeIndex):
        raise ValueError(f"freq={freq!r} needs a DatetimeIndex: leave it out, or set one.")
    freq = declared if freq is None else freq
    later, notes = np.full((len(times), len(horizons)), -1), []
    for rows in stretches:
        part, here = times[rows], np.arange(rows.stop - rows.start)
        step, tolerance = step_of(part, freq)
        notes.append(note_of(step))
        for k, h in enumerate(horizons):
            nearest = rows_at(part, step, h, tolerance)
            # A calendar step can be shorter than the tolerance (31 January + "MS"): never the row
            # itself.
            later[rows, k] = np.where(nearest > here, nearest + rows.start, -1)
    return later, notes[0] if all(note == notes[0] for note in notes) else None


def _ahead(frame, label, later):
    """Values (n, n_horizons) of a column in the rows ``later``, NaN where there is no row."""
    column = frame.iloc[:, list(frame.columns).index(label)]
    column = column.to_numpy(dtype=float, na_value=np.nan)
    return np.where(later >= 0, column[later], np.nan)


def _with_known(frame, known, horizons, later):
    """The frame and, in further columns, the known ones as they are at every target time."""
    names, parts = [], []
    for label in known:
        for h in horizons:
            # A column of a MultiIndex stays one of its level.
            several = isinstance(frame.columns, pd.MultiIndex)
            names.append((*label[:-1], f"{label[-1]} t+{h}") if several else f"{label} t+{h}")
        parts.append(_ahead(frame, label, later))
    if not names:
        return frame
    clash = [name for name in names if name in list(frame.columns)]
    if clash or len(set(names)) < len(names):
        raise ValueError(f"known={known} makes columns that exist: rename {clash or known}.")
    columns = pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else names
    # All at once: pandas warns of frames that grow column by column.
    further = pd.DataFrame(np.hstack(parts), index=frame.index, columns=columns)
    wider = pd.concat([frame, further], axis=1)
    wider.columns.names = frame.columns.names
    wider.attrs = frame.attrs
    return wider


def _view(frame, kept, window, dilation, times, stretches, max_gap, step, form):
    """Windows that end in the kept rows, and stay within a series and its gaps."""
    # Every series has a clock of its own: one may be hourly and another daily.
    clocks = [learn_clock(times[rows], max_gap, freq=step, name="frame") for rows in stretches]
    series, segments = np.zeros((2, len(frame)), dtype=int)
    for number, (rows, clock) in enumerate(zip(stretches, clocks, strict=True)):
        part = clock.segments(times[rows], name="frame")
        series[rows] = number
        # Numbers of segments start at 0 in every clock; one more than the last keeps them apart.
        before = segments[rows.start - 1] + 1 if rows.start else 0
        segments[rows] = before + (0 if part is None else part)
    share = lost_share(segments, series, len(frame), window, dilation)
    warn_of_lost_history(
        share,
        window,
        "pass a longer max_gap, the freq of the index, or a frame without missing rows (asfreq), "
        "or max_gap=None for windows that run across them",
        stacklevel=3,
    )
    # Extension types hold their missing values as NA, which must become NaN.
    values = pd.DataFrame(
        {k: frame.iloc[:, k].to_numpy(dtype=float, na_value=np.nan) for k in range(frame.shape[1])},
        index=frame.index,
    )
    values.columns = frame.columns
    view = SequenceView(values, kept, window, dilation=dilation, segments=segments, **form)
    # Early stopping sets aside the end of every series, and not of every stretch between gaps.
    return of_stations(view, series)
