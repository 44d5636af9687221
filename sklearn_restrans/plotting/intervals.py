"""Forecasts with their intervals, and what came."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from .axes import axes_of, check_labelled, check_numbers, show_legend

_COLOR = "C0"


class IntervalDisplay:
    """Forecasts of one target as a line, intervals as bands around it, and the truth as dots.

    Parameters
    ----------
    forecast : array-like of shape (n_samples,)
        What is predicted.
    intervals : dict of float to array-like of shape (n_samples, 2)
        Lower and upper ends under the coverage of each. Ends may be infinite: there the band leaves
        the picture.
    truth : array-like of shape (n_samples,), default=None
        What came; missing values (NaN) are left out.
    x : array-like of shape (n_samples,), default=None
        Places on the horizontal axis, such as time stamps; None counts the rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    line_ : matplotlib Line2D
        The forecasts.
    bands_ : dict of float to matplotlib PolyCollection
        The bands, by coverage, the widest first.
    dots_ : matplotlib Line2D or None
        The truth.

    Examples
    --------
    >>> from sklearn_restrans.plotting import IntervalDisplay
    >>> display = IntervalDisplay([1.0, 2.0], {0.9: [[0.0, 2.0], [1.0, 3.0]]}, truth=[1.5, 4.0])
    >>> display.coverages()
    {0.9: 0.5}
    """

    def __init__(self, forecast, intervals, *, truth=None, x=None):
        self.forecast = check_numbers("forecast", forecast, "predictions, one per row")
        n = len(self.forecast)
        check_labelled("intervals", intervals, "lower and upper ends")
        found = {_coverage(label): _ends(label, ends, n) for label, ends in intervals.items()}
        self.intervals = dict(sorted(found.items(), reverse=True))
        self.truth = None if truth is None else _values("truth", truth, n)
        self.x = np.arange(n) if x is None else np.asarray(x)
        if self.x.shape != (n,):
            raise ValueError(
                f"x must hold one place for each of the {n} forecasts, got an array of shape "
                f"{self.x.shape}."
            )

    @classmethod
    def from_estimator(
        cls, estimator, X, y=None, *, coverage=(0.5, 0.8), output=0, x=None, ax=None
    ):
        """Draw the forecasts of a calibrated estimator.

        Parameters
        ----------
        estimator : ConformalIntervals
            Calibrated; or another estimator with ``predict`` and ``predict_interval(X, coverage)``.
        X : array-like or SequenceView
            Rows to forecast, in time order.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Their targets.
        coverage : float or sequence of float, default=(0.5, 0.8)
            A band for each.
        output : int, default=0
            The column of y, a horizon for instance, where there are several.
        x : array-like of shape (n_samples,), default=None
            Places on the horizontal axis; None takes the index of y where it has one, else the row.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : IntervalDisplay

        Raises
        ------
        TypeError
            If the estimator has no ``predict_interval``.
        """
        if isinstance(estimator, type) or not hasattr(estimator, "predict_interval"):
            raise TypeError(
                "estimator must have predict_interval, as ConformalIntervals has after calibrate, "
                f"got {estimator!r:.80}."
            )
        forecast = _column(estimator.predict(X), output)
        levels = np.atleast_1d(coverage).tolist()
        intervals = {
            level: _column(estimator.predict_interval(X, level), output, ndim=2) for level in levels
        }
        if x is None and y is not None:
            x = getattr(y, "index", None)
        truth = None if y is None else _column(y, output)
        return cls(forecast, intervals, truth=truth, x=x).plot(ax=ax)

    def coverages(self):
        """Share of the truth inside each band.

        Returns
        -------
        shares : dict of float to float
            By the coverage that was asked for, the widest band first.

        Raises
        ------
        ValueError
            If there is no truth to compare with.
        """
        if self.truth is None or np.isnan(self.truth).all():
            raise ValueError("truth is needed to count what lies inside: pass it.")
        known = ~np.isnan(self.truth)
        truth = self.truth[known]
        return {
            level: float(np.mean((ends[known, 0] <= truth) & (truth <= ends[known, 1])))
            for level, ends in self.intervals.items()
        }

    def plot(self, ax=None):
        """Draw forecasts, bands and truth.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self : IntervalDisplay
        """
        self.ax_, self.bands_, self.dots_ = axes_of(ax), {}, None
        low, high = self._range()
        shades = np.linspace(0.15, 0.4, len(self.intervals))
        for (level, ends), shade in zip(self.intervals.items(), shades, strict=True):
            # An infinite end would take the whole band out of the picture.
            lower, upper = np.clip(ends, low, high).T
            self.bands_[level] = self.ax_.fill_between(
                self.x, lower, upper, color=_COLOR, alpha=shade, lw=0, label=f"{level:.4g}"
            )
        (self.line_,) = self.ax_.plot(self.x, self.forecast, color=_COLOR, label="forecast")
        shown = [*self.bands_.values(), self.line_]
        if self.truth is not None:
            (self.dots_,) = self.ax_.plot(self.x, self.truth, "k.", ms=4, label="truth")
            shown.append(self.dots_)
        self.ax_.set(xlabel="row" if self.x.dtype.kind in "iu" else "", ylabel="target")
        _shorten_dates(self.ax_)
        show_legend(self.ax_, shown, [str(artist.get_label()) for artist in shown])
        return self

    def _range(self):
        """Finite ends, far enough out that a band that goes on leaves the picture."""
        parts = [self.forecast, *map(np.ravel, self.intervals.values())]
        values = np.concatenate(parts if self.truth is None else [*parts, self.truth])
        values = values[np.isfinite(values)]
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        if all(np.isfinite(ends).all() for ends in self.intervals.values()):
            return low, high
        beyond = 0.1 * (high - low or 1.0)
        return low - beyond, high + beyond


def _shorten_dates(ax):
    """Dates without what the one before has said: whole ones run into each other."""
    from matplotlib.dates import ConciseDateFormatter, DateLocator

    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, DateLocator):
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=locator.tz))


def _coverage(label):
    if isinstance(label, bool) or not isinstance(label, Real) or not 0 < label < 1:
        raise ValueError(
            f"intervals must have coverages between 0 and 1 as its keys, got {label!r:.80}."
        )
    return float(label)


def _ends(label, ends, n):
    found = np.asarray(ends, dtype=float)
    if found.shape != (n, 2):
        raise ValueError(
            f"intervals[{label}] must have shape (n_samples, 2) = ({n}, 2), got {found.shape}: "
            "take the intervals of one output."
        )
    if np.isnan(found).any() or (found[:, 0] > found[:, 1]).any():
        raise ValueError(
            f"intervals[{label}] has a missing end, or a lower end above the upper one: pass "
            "(lower, upper) in this order."
        )
    return found


def _values(name, values, n):
    found = np.asarray(values, dtype=float)
    if found.shape != (n,):
        raise ValueError(
            f"{name} must hold one value for each of the {n} forecasts, got an array of shape "
            f"{found.shape}."
        )
    return found


def _column(values, output, ndim=1):
    """One output of values (n,) or (n, c); with an axis of ends, of (n, 2) or (n, c, 2)."""
    found = np.asarray(values)
    n_outputs = 1 if found.ndim == ndim else found.shape[1]
    if isinstance(output, bool) or not isinstance(output, Integral) or not 0 <= output < n_outputs:
        raise ValueError(
            f"output must be the number of a column, 0 to {n_outputs - 1}, got {output!r:.80}."
        )
    return found if found.ndim == ndim else found[:, output]
