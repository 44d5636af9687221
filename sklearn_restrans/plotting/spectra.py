"""Singular values of Attn(X) and Z."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from .axes import axes_of, check_labelled, curve_styles, records_of
from .curves import ConvergenceDisplay


class SpectrumDisplay:
    """Singular values of Attn(X) and Z, one pair of curves or several.

    Parameters
    ----------
    spectra : dict of str to tuple (attention, Z) of array-like of shape (r,)
        Singular values, largest first, under the label of each pair.

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
        self.spectra = {}
        for label, pair in check_labelled("spectra", spectra):
            pair = [np.asarray(part, dtype=float) for part in pair]
            if [part.ndim for part in pair] != [1, 1]:
                raise ValueError(
                    f"spectra: {label!r} must be a pair (attention, Z) of lists of singular values."
                )
            self.spectra[str(label)] = tuple(pair)

    @classmethod
    def from_estimator(cls, estimator, *, layer=-1, stage="final", ax=None):
        """Draw the spectra of a fitted estimator, or of each estimator of a dict.

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
            For another stage or layer.
        """
        if stage not in ("final", "initial"):
            raise ValueError(f"stage must be 'final' or 'initial', got {stage!r}.")
        record = -1 if stage == "final" else 0
        spectra = {}
        for label, found in records_of(estimator, "conditioning_", "").items():
            n_layers = found.input_rank.shape[1]
            if not isinstance(layer, Integral) or not -n_layers <= layer < n_layers:
                raise ValueError(
                    f"layer must be an integer from {-n_layers} to {n_layers - 1}, got {layer!r}."
                )
            # Beyond the rank of the layer's input every singular value is rounding.
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
            With one curve, the means; cv_results_ holds no whole spectra.

        Raises
        ------
        TypeError, ValueError
            If the results are none, or have no such parameter or scorer.
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
            index = np.arange(1, len(Z) + 1)
            self.lines_ += self.ax_.semilogy(index, Z, label=f"{start}Z", **style)
            dotted = {"color": style["color"], "ls": ":", "lw": 1.5}
            index = np.arange(1, len(attention) + 1)
            self.lines_ += self.ax_.semilogy(index, attention, label=f"{start}Attn(X)", **dotted)
        self.ax_.set(xlabel="index", ylabel="singular value")
        self.ax_.legend(fontsize="small")
        return self
