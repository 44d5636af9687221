"""Windows, and their targets, relative to the last value or the mean of each window."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from .forms import WindowForm
from .moments import blocks, extremes, moments, readings
from .windows import SequenceView

# A window that varies by less than this part of what the training windows do is divided by that
# much: of a constant, "standard" would make noise of rounding, and targets of any size.
_FLOOR = 0.1
# Windows, evenly chosen, that say how far readings lie from the last one of their window.
_JUDGED_WINDOWS = 4_096
# Mean square of targets relative to the last value of their column, in variances of the targets,
# beyond which they look like other units. Two values of one column are 2 apart where they are
# independent, and 4 at most where their mean and variance stay.
_FAR = 16
# Part of the training windows below the floor from which users are told.
_CONSTANT_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class RelativeWindows:
    """What fit learnt about windows of which a location is taken off, and a deviation divided out.

    (x - location) / deviation, per window and column: the last reading and 1 for "last", the mean
    and standard deviation of the readings for "standard", which is at least a tenth of ``spread``.
    Missing readings do not count. The location of a window without any is the mean of the training
    rows, and the deviation of a window with fewer than two is ``spread``. A target that is a later
    value of a column is taken relative to the same two numbers.

    Attributes
    ----------
    form : WindowForm
        Its ``relative`` is the kind, its ``columns`` the columns.
    targets : tuple of int or None
        Per target the place of its column in ``form.columns``, or None; None for classes.
    mean, scale : ndarray of shape (r,)
        Of the columns in the training rows; a scale of 0 is 1.
    spread : ndarray of shape (r,)
        Root mean square of the standard deviations of the training windows; of a dead column 1.
    gain, bound : ndarray of shape (r,)
        The inputs are multiplied by ``gain``, which makes their mean square 1 in training, and cut
        at ``bound``, three times the largest of training as far as that was looked at.
    """

    form: WindowForm
    targets: tuple[int | None, ...] | None
    mean: np.ndarray
    scale: np.ndarray
    spread: np.ndarray
    gain: np.ndarray
    bound: np.ndarray

    def statistics(self, X, places=None):
        """Location and deviation (n, k) of the columns at these places, in float64."""
        places = np.arange(len(self.mean)) if places is None else np.asarray(places, dtype=int)
        mean, spread = self.mean[places], self.spread[places]
        columns = np.asarray(self.form.columns, dtype=int)[places]
        of_windows = _last if self.form.relative == "last" else _mean_and_deviation
        location, deviation = of_windows(X, columns, self.form)
        location = np.where(np.isnan(location), mean, location)
        few = np.isnan(deviation)
        return location, np.where(few, spread, np.maximum(deviation, _FLOOR * spread))

    def encode(self, y, X):
        """Targets relative to their windows, of the shape of y."""
        if self.targets is None:
            return y
        width = y[:1].size
        if width != len(self.targets):
            raise ValueError(
                f"y has {width} column(s), but the SequenceView X was given {len(self.targets)} "
                "target_columns; name one for every column of y: the column of the series it is a "
                "later value of, or None."
            )
        location, deviation = self._of_targets(X)
        return ((y.reshape(len(y), -1) - location) / deviation).reshape(y.shape)

    def check_targets(self, y, X, names):
        """Refuse training targets in other units than the columns they are later values of.

        They are if they lie far from their windows, and are seldom values of the column: a series
        that has drifted far is far from them too, but these are its values.
        """
        if self.targets is None or y[:1].size != len(self.targets):
            return
        step = -(-len(y) // _JUDGED_WINDOWS)
        judged, values = X[::step], y[::step].reshape(-1, len(self.targets))
        location, _ = self._of_targets(judged)
        for k, place in enumerate(self.targets):
            own, variance = values[:, k].astype(np.float64), np.var(values[:, k])
            far = np.mean((own - location[:, k]) ** 2) > _FAR * variance > 0
            if place is None or not far:
                continue
            column = self.form.columns[place]
            readings = np.asarray(judged.series)[:, column].astype(np.float32)
            if np.isin(own.astype(np.float32), readings).mean() < 0.5:
                name = column if names is None else repr(names[column])
                raise ValueError(
                    f"y is not in the units of column {name} of the SequenceView, whose later "
                    f"values target_columns says it has: its mean is {own.mean():.4g}, that of "
                    f"the column {self.mean[place]:.4g}. A transformed y, as that of a "
                    "TransformedTargetRegressor, cannot be taken relative to the windows: leave y "
                    "as it is (fit standardises it), or transform the series before it is cut into "
                    "windows, or pass relative=None."
                )

    def decode(self, y, X):
        """Predictions in the units of y, of relative ones (n,), (n, c) or quantiles of either."""
        if self.targets is None:
            return y
        location, deviation = self._of_targets(X)
        by_target = y.reshape(len(y), len(self.targets), -1)
        return (by_target * deviation[..., None] + location[..., None]).reshape(y.shape)

    def _of_targets(self, X):
        """Location and deviation (n, c) of every target; 0 and 1 of those that have no column."""
        location, deviation = np.zeros((len(X), len(self.targets))), np.ones((1, 1))
        deviation = np.broadcast_to(deviation, location.shape).copy()
        places = sorted({place for place in self.targets if place is not None})
        if places:
            found = self.statistics(X, places)
            for k, place in enumerate(self.targets):
                if place is not None:
                    location[:, k], deviation[:, k] = (s[:, places.index(place)] for s in found)
        return location, deviation

    def scaled(self, X, scaler):
        """How inputs are scaled, what is then taken off them and divided out, and their bound.

        Returns
        -------
        scaler : Scaler
            The one given, with the gain in it.
        taken : ndarray of shape (n, f)
            Location of every window, in the units of the series.
        factor : ndarray of shape (n, f) or None
            What the differences are multiplied with; None if that is 1 everywhere.
        bound : ndarray of shape (f,)
        """
        columns, f = list(self.form.columns), len(scaler.mean)
        location, deviation = self.statistics(X)
        taken = np.tile(scaler.mean, (len(X), 1))
        taken[:, columns] = location
        factor, bound, gain = None, np.full(f, np.inf), np.ones(f)
        bound[columns], gain[columns] = self.bound, self.gain
        if self.form.relative == "standard":
            factor = np.ones((len(X), f))
            factor[:, columns] = self.scale / deviation
        return scaler.times(gain), taken, factor, bound


def learn_relative(X, rows, weight, scaler, form, names, *, classes):
    """The coding of the windows of a SequenceView, from its training rows.

    Parameters
    ----------
    X : SequenceView
    rows : ndarray of int
        Its training windows.
    weight : ndarray or None
        Their weights.
    scaler : Scaler
        Of the rows of the series.
    form : WindowForm
        Whose ``relative`` is not None.
    names : ndarray of str or None
        Names of the columns, for messages.
    classes : bool
        Whether the targets are labels, which nothing is taken off.
    """
    columns = np.asarray(form.columns, dtype=int)
    targets = None
    if form.targets is not None and not classes:
        targets = tuple(None if c is None else form.columns.index(c) for c in form.targets)
    mean, scale = scaler.mean[columns], scaler.scale[columns]
    scale, ones = np.where(scale == 0, 1.0, scale), np.ones(len(columns))
    step = -(-len(rows) // _JUDGED_WINDOWS)
    judged, weight = X[rows[::step]], None if weight is None else weight[::step]
    spread = ones
    if form.relative == "standard":
        spread = _spread(judged, weight, form, scaler, names)
    blank = RelativeWindows(form, targets, mean, scale, spread, ones, ones)
    location, deviation = blank.statistics(judged)
    if form.relative == "last":
        deviation = np.broadcast_to(scale, location.shape)
    own = np.ones(len(judged)) if weight is None else weight
    count, mean_of, square = moments(judged, columns, form)
    # Sum of (x - l)^2 over a window whose mean is m: that of (x - m)^2, and count (m - l)^2.
    square = (square + count * (mean_of - location) ** 2) / deviation**2
    total, count = own @ square, own @ count
    low, high = extremes(judged, columns, form)
    largest = np.maximum(high - location, location - low) / deviation
    largest = largest.max(axis=0, initial=0.0)
    size = np.sqrt(total / np.maximum(count, np.finfo(float).tiny))
    # Of a column that never leaves the location of its window nothing is learnt: it stays 0.
    _warn_of_rest((size == 0) & (scaler.scale[columns] > 0), form, names)
    gain = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    return RelativeWindows(form, targets, mean, scale, spread, gain, 3 * largest * gain)


def _spread(judged, weight, form, scaler, names):
    """Root mean square of the standard deviations of windows, (r,); 1 of a column that is dead."""
    columns = np.asarray(form.columns, dtype=int)
    _, found = _mean_and_deviation(judged, columns, form)
    own = (np.ones(len(found)) if weight is None else weight)[:, None] * ~np.isnan(found)
    square = (own * np.nan_to_num(found) ** 2).sum(axis=0)
    spread = np.sqrt(square / np.maximum(own.sum(axis=0), np.finfo(float).tiny))
    varies = (spread > 0) & (scaler.scale[columns] > 0)
    _warn_of_constant(varies & (found <= _FLOOR * spread), columns, names)
    return np.where(varies, spread, 1.0)


def _warn_of_constant(constant, columns, names):
    share = constant.mean(axis=0)
    worst = share.argmax()
    if share[worst] < _CONSTANT_SHARE:
        return
    name = columns[worst] if names is None else repr(names[columns[worst]])
    warnings.warn(
        f"relative='standard' divides each window by its standard deviation, and "
        f"{share[worst]:.0%} of the training windows are constant in column {name}, or vary by "
        f"less than {_FLOOR} of what its windows do on average, by which they are divided instead; "
        "use relative='last', a longer window, or relative_columns without it.",
        UserWarning,
        stacklevel=5,
    )


def _warn_of_rest(at_rest, form, names):
    if not at_rest.any():
        return
    shown = [column if names is None else str(names[column]) for column in form.columns]
    shown = [name for name, rests in zip(shown, at_rest, strict=True) if rests]
    warnings.warn(
        f"relative={form.relative!r} leaves nothing of the columns {shown}: they stand still in "
        "every training window, and only their level differs between windows, which is taken off; "
        "use relative=None, relative_columns without them, or a longer window.",
        UserWarning,
        stacklevel=5,
    )


def _last(X, columns, form):
    """The last reading that is not missing, (n, k), and ones; NaN where there is none."""
    if isinstance(X, SequenceView):
        last = np.asarray(X.series)[X.ends][:, columns].astype(np.float64)
        # Only the windows that end in a missing reading are looked through.
        unknown = np.flatnonzero(np.isnan(last).any(axis=1))
    else:
        last, unknown = np.empty((len(X), len(columns))), np.arange(len(X))
    for block in blocks(X, len(columns), form, len(unknown)):
        rows = unknown[block]
        of_rows = readings(X, rows, columns, form)
        real = ~np.isnan(of_rows)
        place = of_rows.shape[1] - 1 - real[:, ::-1].argmax(axis=1)
        last[rows] = np.take_along_axis(of_rows, place[:, None], axis=1)[:, 0]
    return last, np.ones_like(last)


def _mean_and_deviation(X, columns, form):
    """Mean and standard deviation of the readings that are not missing, (n, k).

    NaN where there is none, and for the deviation where there is only one.
    """
    count, mean, square = moments(X, columns, form)
    deviation = np.sqrt(square / np.maximum(count, 1.0))
    return np.where(count < 1, np.nan, mean), np.where(count < 2, np.nan, deviation)
