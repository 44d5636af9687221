"""Losses against epochs, and a scored quantity of a search against a parameter."""

from __future__ import annotations

import numpy as np

from .axes import (
    axes_of,
    check_labelled,
    column_of,
    curve_styles,
    parameter_of,
    records_of,
    results_of,
)


class ConvergenceDisplay:
    """Training loss against epochs, one curve or several.

    Parameters
    ----------
    curves : dict of str to array-like of shape (n_epochs,)
        Loss per epoch under the label of each curve.
    relative : bool, default=False
        Draw Phi / Phi_0, each curve divided by its first value.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    lines_ : list of matplotlib Line2D
        The curves.

    Examples
    --------
    >>> from sklearn_restrans.plotting import ConvergenceDisplay
    >>> display = ConvergenceDisplay({"beta = 0": [1.0, 0.9], "beta = 1": [1.0, 0.5]})
    >>> sorted(display.curves)
    ['beta = 0', 'beta = 1']
    """

    def __init__(self, curves, *, relative=False):
        curves = check_labelled("curves", curves)
        self.curves = {str(label): np.asarray(loss, dtype=float) for label, loss in curves}
        self.relative = relative

    @classmethod
    def from_estimator(cls, estimator, *, relative=False, ax=None):
        """Draw the loss curve of a fitted estimator, or one per estimator of a dict.

        Parameters
        ----------
        estimator : estimator, or dict of str to estimator
            Fitted; may be inside a Pipeline, TransformedTargetRegressor or search. A seed ensemble
            has a curve per member.
        relative : bool, default=False
            Draw Phi / Phi_0.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : ConvergenceDisplay
        """
        found = records_of(estimator, "convergence_", "training loss")
        curves = {label: record.loss for label, record in found.items()}
        return cls(curves, relative=relative).plot(ax=ax)

    @classmethod
    def from_cv_results(cls, cv_results, *, quantity="rate", x="residual_beta", ax=None):
        """Draw a scored quantity of a search against a parameter, with its spread over folds.

        Parameters
        ----------
        cv_results : dict, or the fitted search
            ``cv_results_`` of a search one of whose scorers is called ``quantity``.
        quantity : str, default="rate"
            Name of the scorer.
        x : str, default="residual_beta"
            Parameter for the horizontal axis; the prefix of a Pipeline step may be left out.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : ConvergenceDisplay
            With one curve, the means.

        Raises
        ------
        TypeError, ValueError
            If the results are none, or have no such parameter or scorer.
        """
        cv_results = results_of(cv_results)
        display = cls({quantity: column_of(cv_results, f"mean_test_{quantity}")})
        display._draw_points(cv_results, quantity, x, ax)
        return display

    def plot(self, ax=None):
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self : ConvergenceDisplay
        """
        self.ax_, self.lines_ = axes_of(ax), []
        styles = curve_styles(len(self.curves))
        for (label, loss), style in zip(self.curves.items(), styles, strict=True):
            values = loss / loss[:1] if self.relative else loss
            epochs = np.arange(1, len(loss) + 1)
            every = max(1, len(loss) // 10)
            self.lines_ += self.ax_.plot(epochs, values, label=label, markevery=every, **style)
        self.ax_.set(xlabel="epoch", ylabel="Phi / Phi_0" if self.relative else "training loss")
        positive = all((loss > 0).all() for loss in self.curves.values())
        # A curve is empty where every fit diverged.
        drawn = [loss for loss in self.curves.values() if len(loss) and positive]
        span = [loss.max() / loss.min() for loss in drawn]
        # A logarithmic axis shows a linear rate as a line, but reads badly under one decade.
        if positive and max(span, default=1) > 10:
            self.ax_.set_yscale("log")
        self.ax_.legend()
        return self

    def _draw_points(self, cv_results, quantity, x, ax):
        values = parameter_of(cv_results, x)
        mean = column_of(cv_results, f"mean_test_{quantity}")
        spread = column_of(cv_results, f"std_test_{quantity}")
        order = np.argsort(values)
        self.ax_ = axes_of(ax)
        bars = self.ax_.errorbar(
            values[order], mean[order], yerr=spread[order], marker="o", ms=4, capsize=3
        )
        self.lines_ = [bars.lines[0]]
        self.ax_.set(xlabel=x, ylabel=quantity)
