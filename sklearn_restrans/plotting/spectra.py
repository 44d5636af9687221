"""Singular values of Attn(X) and Z."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from .axes import (
    axes_of,
    check_labelled,
    check_numbers,
    curve_styles,
    records_of,
    show_legend,
    whole_numbers_below,
)
from .curves import ConvergenceDisplay


class SpectrumDisplay:
    """Singular values of Attn(X) and Z, one pair of curves or several.

    Parameters
    ----------
    spectra : dict of str to tuple (attention, Z) of array-like of shape (r,)
        Singular values, largest first, under the label of each pair. A value of 0 has no place on
        the logarithmic axis: the curve ends before it.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    lines_ : list of matplotlib Line2D
        Z (solid) and Attn(X) (dotted) of each pair.

    Examples
    --------
    >>> from sklearn_restrans.plotting import SpectrumDisplay
    >>> display = SpectrumDisplay({"beta = 1": ([1.0, 0.1], [2.0, 1.0])})
    >>> list(display.spectra)
    ['beta = 1']
    """

    def __init__(self, spectra):
        self.spectra = {
            label: _check_pair(label, pair)
            for label, pair in check_labelled("spectra", spectra, "pairs (attention, Z)").items()
        }

    @classmethod
    def from_estimator(cls, estimator, *, layer=-1, stage="final", ax=None):
        """Draw the spectra of a fitted estimator, or of every estimator of a dict.

        Parameters
        ----------
        estimator : estimator, or dict of str to estimator
            Fitted; may be inside a Pipeline, TransformedTargetRegressor or search. A seed ensemble
            has a pair of curves per member.
        layer : int, default=-1
            Layer; -1 is the last.
        stage : {"final", "initial"}, default="final"
            After or before training.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : SpectrumDisplay

        Raises
        ------
        ValueError
            If ``stage`` or ``layer`` is not one of those that were recorded.
        """
        if stage not in ("final", "initial"):
            raise ValueError(f"stage must be 'final' or 'initial', got {stage!r}.")
        record = -1 if stage == "final" else 0
        spectra = {}
        for label, found in records_of(estimator, "conditioning_", "").items():
            n_layers = found.input_rank.shape[1]
            is_integer = isinstance(layer, Integral) and not isinstance(layer, bool)
            if not is_integer or not -n_layers <= layer < n_layers:
                raise ValueError(
                    f"layer must be an integer from {-n_layers} to {n_layers - 1}, got {layer!r}."
                )
            # Singular values beyond the rank of the layer's input are rounding errors.
            rank = int(found.input_rank[record, layer])
            spectra[label] = tuple(
                part.singular_values[record, layer, :rank] for part in (found.attention, found.Z)
            )
        return cls(spectra).plot(ax=ax)

    @classmethod
    def from_cv_results(cls, cv_results, *, quantity="sigma_min", x="residual_beta", ax=None):
        """Draw a scored conditioning quantity of a search against a parameter.

        Parameters
        ----------
        cv_results : dict, or the fitted search
            ``cv_results_`` of a search one of whose scorers is called ``quantity``.
        quantity : str, default="sigma_min"
            Name of the scorer.
        x : str, default="residual_beta"
            Parameter for the horizontal axis; the prefix of a Pipeline step may be left out.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : ConvergenceDisplay
            Its curves are the means over folds. ``cv_results_`` holds no whole spectra.

        Raises
        ------
        TypeError, ValueError
            If ``cv_results`` does not come from a search, or lacks the parameter or the scorer.
        """
        return ConvergenceDisplay.from_cv_results(cv_results, quantity=quantity, x=x, ax=ax)

    def plot(self, ax=None):
        """Draw the spectra on a logarithmic axis.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self : SpectrumDisplay
        """
        self.ax_, self.lines_ = axes_of(ax), []
        styles = curve_styles(len(self.spectra))
        for (label, (attention, Z)), style in zip(self.spectra.items(), styles, strict=True):
            start = f"{label}: " if label else ""
            dotted = {"color": style["color"], "ls": ":", "lw": 1.5}
            for name, values, kind in (("Z", Z, style), ("Attn(X)", attention, dotted)):
                index = np.arange(1, len(values) + 1)
                shown = np.where(values > 0, values, np.nan)
                self.lines_ += self.ax_.semilogy(index, shown, label=f"{start}{name}", **kind)
        self.ax_.set(xlabel="index", ylabel="singular value")
        whole_numbers_below(self.ax_)
        self._draw_legend()
        return self

    def _draw_legend(self):
        """One entry per label, and one per kind of line, instead of two per label."""
        from matplotlib.lines import Line2D

        if list(self.spectra) == [""]:
            show_legend(self.ax_, self.lines_, ["Z", "Attn(X)"])
            return
        kinds = [Line2D([], [], color="0.3", ls=style) for style in ("-", ":")]
        labels = [*self.spectra, "Z", "Attn(X)"]
        show_legend(self.ax_, [*self.lines_[::2], *kinds], labels)


def _check_pair(label, pair):
    """The two lists of singular values under a label, as arrays."""
    try:
        attention, Z = pair
    except (TypeError, ValueError):
        raise ValueError(
            f"spectra[{label!r}] must be a pair (attention, Z) of lists of singular values, got "
            f"{pair!r:.80}."
        ) from None
    parts = []
    for part, values in (("attention", attention), ("Z", Z)):
        name = f"{part} of spectra[{label!r}]"
        values = check_numbers(name, values, "singular values")
        if (values < 0).any():
            raise ValueError(
                f"{name} must hold singular values, which are >= 0, got {values.min()}."
            )
        parts.append(values)
    return tuple(parts)
