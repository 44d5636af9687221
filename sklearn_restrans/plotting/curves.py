"""Losses against epochs, and a scored quantity of a search against a parameter."""

from __future__ import annotations

import numpy as np

from .axes import (
    axes_of,
    check_labelled,
    check_lengths,
    check_numbers,
    column_of,
    curve_styles,
    log_if_wide,
    parameter_of,
    records_of,
    results_of,
    show_legend,
    whole_numbers_below,
)

_ALONE = "training loss"  # the label of a single estimator's curve


class ConvergenceDisplay:
    """Training loss against epochs, one curve or several.

    Parameters
    ----------
    curves : dict of str to array-like of shape (n_epochs,)
        Loss per epoch under the label of each curve. The curves may differ in length.
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
        self.curves = {
            label: check_numbers(f"curves[{label!r}]", loss, "losses, one per epoch")
            for label, loss in check_labelled("curves", curves, "losses per epoch").items()
        }
        self.relative = relative

    @classmethod
    def from_estimator(cls, estimator, *, relative=False, ax=None):
        """Draw the loss curve of a fitted estimator, or one curve per estimator of a dict.

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
        found = records_of(estimator, "convergence_", _ALONE)
        curves = {label: record.loss for label, record in found.items()}
        return cls(curves, relative=relative).plot(ax=ax)

    @classmethod
    def from_cv_results(cls, cv_results, *, quantity="rate", x="residual_beta", ax=None):
        """Draw a scored quantity of a search against a parameter, with its spread over folds.

        Where the search varied other parameters too, each of their settings has a curve of its own.
        Candidates that failed are left out.

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
            Its curves are the means over folds, in the order of ``x``.

        Raises
        ------
        TypeError, ValueError
            If ``cv_results`` does not come from a search, or lacks the parameter or the scorer.
        """
        cv_results = results_of(cv_results)
        mean = column_of(cv_results, f"mean_test_{quantity}")
        column, values = parameter_of(cv_results, x)
        check_lengths(**{f"mean_test_{quantity}": mean, column: values})
        if not np.isfinite(mean).any():
            raise ValueError(f"quantity={quantity!r} has no finite value: every candidate failed.")
        spread = None
        if f"std_test_{quantity}" in cv_results:
            spread = column_of(cv_results, f"std_test_{quantity}")
        order = np.argsort(values, kind="stable")
        order = order[np.isfinite(mean[order] + values[order])]
        settings = _other_settings(cv_results, column, len(values))
        rows = {label: order[settings[order] == label] for label in dict.fromkeys(settings[order])}
        display = cls({label or quantity: mean[part] for label, part in rows.items()})
        display._draw_points(values, mean, spread, rows, ax)
        of_folds = "" if spread is None else " (± sd over folds)"
        display.ax_.set(xlabel=x, ylabel=f"{quantity}{of_folds}")
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

        Raises
        ------
        ValueError
            If ``relative`` is True and a curve starts at 0.
        """
        drawn = {label: self._drawn(label, loss) for label, loss in self.curves.items()}
        self.ax_, self.lines_ = axes_of(ax), []
        for (label, loss), style in zip(drawn.items(), curve_styles(len(drawn)), strict=True):
            epochs = np.arange(1, len(loss) + 1)
            every = max(1, len(loss) // 10)
            self.lines_ += self.ax_.plot(epochs, loss, label=label, markevery=every, **style)
        self.ax_.set(xlabel="epoch", ylabel="Phi / Phi_0" if self.relative else "training loss")
        whole_numbers_below(self.ax_)
        log_if_wide(self.ax_, np.concatenate(list(drawn.values())))
        if list(drawn) != [_ALONE]:
            show_legend(self.ax_, self.lines_, list(drawn))
        return self

    def _drawn(self, label, loss):
        """The values that are drawn of a curve. A curve is empty where every fit diverged."""
        if not self.relative or not len(loss):
            return loss
        if loss[0] == 0:
            raise ValueError(
                f"relative=True divides by the first loss, which is 0 in curves[{label!r}]: pass "
                "relative=False or leave the curve out."
            )
        return loss / loss[0]

    def _draw_points(self, values, mean, spread, rows, ax):
        """A line with error bars for each label of ``rows``."""
        self.ax_, self.lines_ = axes_of(ax), []
        for (_, part), style in zip(rows.items(), curve_styles(len(rows)), strict=True):
            yerr = None if spread is None else spread[part]
            bars = self.ax_.errorbar(values[part], mean[part], yerr=yerr, capsize=3, **style)
            self.lines_.append(bars.lines[0])
        # Learning rates and penalties are searched over decades.
        if 0 < 50 * np.nanmin(values) < np.nanmax(values):
            self.ax_.set_xscale("log")
        log_if_wide(self.ax_, mean)
        if len(rows) > 1:
            show_legend(self.ax_, self.lines_, list(rows))


def _other_settings(cv_results, column, n):
    """For each candidate the values of the searched parameters other than ``column``, as text."""
    parts = []
    for key in cv_results:
        if key.startswith("param_") and key != column:
            printed = [str(value) for value in cv_results[key]]
            if len(printed) == n and len(set(printed)) > 1:
                name = key.removeprefix("param_").rpartition("__")[2]
                parts.append([f"{name} = {value}" for value in printed])
    return np.array([", ".join(texts) for texts in zip(*parts, strict=True)] or [""] * n)
