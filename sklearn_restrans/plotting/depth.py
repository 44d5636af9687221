"""A quantity of X, Attn(X) and Z against the layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..diagnostics.conditioning import Conditioning, check_quantity
from .axes import (
    axes_of,
    check_labelled,
    curve_styles,
    log_if_wide,
    records_of,
    show_legend,
    whole_numbers_below,
)

_NAMES = {"X": "X", "attention": "Attn(X)", "Z": "Z"}
_LINES = {"X": "--", "attention": ":", "Z": "-"}
_ALONE = "layer"  # where the quantity belongs to a layer, not to a matrix
# Layers whose softmax has lost its keys are marked on the line of Attn(X).
_MARKS = {"flat": ("_", "flat attention"), "saturated": ("x", "saturated attention")}


class DepthProfileDisplay:
    """A quantity against the layer, a line for each of X, Attn(X) and Z.

    Parameters
    ----------
    profiles : dict of str to dict
        Under the label of each model a dict from "X", "attention" and "Z" (or "layer", of what
        belongs to no matrix) to an array-like of shape (n_layers,); or (n_layers, 5), the minimum,
        quartiles and maximum over sequences, which are drawn as bands around the median.
    quantity : str, default="sigma_min"
        Its name, for the vertical axis.
    states : dict of str to list of str, default=None
        Under the label of each model whether attention is "flat", "selective" or "saturated" in
        each layer; flat and saturated ones are marked.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    lines_ : list of matplotlib Line2D
        The lines of each model, in the order of its dict.
    bands_ : list of matplotlib PolyCollection
        From minimum to maximum and from quartile to quartile, for each line with bands.

    Examples
    --------
    >>> from sklearn_restrans.plotting import DepthProfileDisplay
    >>> display = DepthProfileDisplay({"beta = 1": {"X": [3.0, 2.0], "Z": [4.0, 3.0]}})
    >>> list(display.profiles["beta = 1"])
    ['X', 'Z']
    """

    def __init__(self, profiles, *, quantity="sigma_min", states=None):
        self.profiles = {
            label: _check_profile(label, profile)
            for label, profile in check_labelled("profiles", profiles, "dicts of lines").items()
        }
        self.quantity = quantity
        self.states = {} if states is None else dict(states)

    @classmethod
    def from_estimator(cls, estimator, *, quantity="sigma_min", stage="final", ax=None):
        """Draw the profile of a fitted estimator, or of every estimator of a dict.

        Parameters
        ----------
        estimator : estimator or Conditioning, or dict of str to them
            Fitted; may be inside a Pipeline, TransformedTargetRegressor or search. A seed ensemble
            has a profile per member. A Conditioning is what
            :func:`~sklearn_restrans.measure_conditioning` returns for other data.
        quantity : str, default="sigma_min"
            A quantity of :meth:`Conditioning.get`. "sequence_sigma_min" is drawn with bands over
            the sequences; where the tokens of X have become equal its rank is 1, and the smallest
            singular value that counts is the largest one. A quantity of the softmax matrices, such
            as "score_std", has one line.
        stage : {"final", "initial"}, default="final"
            After or before training.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : DepthProfileDisplay

        Raises
        ------
        TypeError, ValueError
            If the estimator is not fitted or not one of this package, or a name is unknown.
        """
        check_quantity(quantity, "Z", stage)
        record = -1 if stage == "final" else 0
        profiles, states = {}, {}
        for label, found in _records(estimator).items():
            profiles[label] = _profile(found, quantity, record)
            states[label] = found.attention_state[record].tolist()
        return cls(profiles, quantity=quantity, states=states).plot(ax=ax)

    def plot(self, ax=None):
        """Draw the profiles; the vertical axis is logarithmic if values span a decade.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self : DepthProfileDisplay
        """
        self.ax_, self.lines_, self.bands_, drawn = axes_of(ax), [], [], []
        for (label, profile), style in zip(
            self.profiles.items(), curve_styles(len(self.profiles)), strict=True
        ):
            for of, values in profile.items():
                layers, middle = np.arange(len(values)), values
                if values.ndim == 2:
                    middle = values[:, 2]
                    self._draw_bands(layers, values, style["color"], of)
                kind = style | {"ls": _LINES.get(of, "-")}
                self.lines_ += self.ax_.plot(layers, middle, **kind)
                drawn.append(middle)
                if of in ("attention", _ALONE):
                    self._mark_states(label, layers, middle, style["color"])
        self.ax_.set(xlabel="layer", ylabel=self.quantity.replace("_", " "))
        whole_numbers_below(self.ax_)
        log_if_wide(self.ax_, np.concatenate(drawn))
        self._draw_legend()
        return self

    def _draw_bands(self, layers, values, color, of):
        """All sequences, and the middle half of them; of one matrix, Z, where there are several."""
        if of != "Z":
            return
        for low, high, alpha in ((0, 4, 0.12), (1, 3, 0.25)):
            self.bands_.append(
                self.ax_.fill_between(
                    layers, values[:, low], values[:, high], color=color, alpha=alpha, lw=0
                )
            )

    def _mark_states(self, label, layers, values, color):
        states = np.array(self.states.get(label, [""] * len(layers)))
        for state, (marker, _) in _MARKS.items():
            if (states == state).any():
                self.ax_.plot(
                    layers[states == state],
                    values[states == state],
                    **{"ls": "", "marker": marker, "ms": 12, "mew": 2, "color": color},
                )

    def _draw_legend(self):
        """One entry per label, one per kind of line, and one per mark that was drawn."""
        from matplotlib.lines import Line2D

        handles, labels = [], []
        if list(self.profiles) != [""]:
            first = np.cumsum([0, *(len(profile) for profile in self.profiles.values())])[:-1]
            colors = [self.lines_[k].get_color() for k in first]
            markers = [self.lines_[k].get_marker() for k in first]
            handles = [
                Line2D([], [], color=c, marker=m) for c, m in zip(colors, markers, strict=True)
            ]
            labels = list(self.profiles)
        kinds = [of for of in _LINES if any(of in profile for profile in self.profiles.values())]
        handles += [Line2D([], [], color="0.3", ls=_LINES[of]) for of in kinds]
        labels += [_NAMES[of] for of in kinds]
        used = {state for states in self.states.values() for state in states}
        for state, (marker, words) in _MARKS.items():
            if state in used:
                handles.append(Line2D([], [], color="0.3", ls="", marker=marker, ms=10, mew=2))
                labels.append(words)
        if handles:
            show_legend(self.ax_, handles, labels)


def _records(estimator):
    """Conditionings under their labels, given as they are or by what holds them."""
    if isinstance(estimator, Conditioning):
        return {"": estimator}
    if isinstance(estimator, Mapping) and estimator:
        found = {}
        for label, model in check_labelled("estimator", estimator, "fitted estimators").items():
            own = isinstance(model, Conditioning)
            found |= {label: model} if own else records_of({label: model}, "conditioning_", "")
        return found
    return records_of(estimator, "conditioning_", "")


def _profile(found, quantity, record):
    """Values of each matrix, or of the layer, in one record."""
    if hasattr(found.Z, quantity) and quantity != "input_rank":
        # X over itself is 1.
        matrices = [of for of in found.matrices if (quantity, of) != ("sigma_min_ratio", "X")]
        return {of: getattr(getattr(found, of), quantity)[record] for of in matrices}
    return {_ALONE: getattr(found, quantity)[record]}


def _check_profile(label, profile):
    """The lines under a label as arrays (n_layers,) or (n_layers, 5), equally long."""
    if not isinstance(profile, Mapping) or not profile or not set(profile) <= {*_NAMES, _ALONE}:
        raise ValueError(
            f"profiles[{label!r}] must be a dict from 'X', 'attention', 'Z' or 'layer' to values "
            f"per layer, got {profile!r:.80}."
        )
    lines = {}
    for of, values in profile.items():
        try:
            lines[of] = np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            lines[of] = np.array(0.0)
        if lines[of].ndim not in (1, 2) or lines[of].shape[1:] not in ((), (5,)):
            raise ValueError(
                f"{of} of profiles[{label!r}] must have shape (n_layers,) or (n_layers, 5), got "
                f"{values!r:.80}."
            )
    if len({len(values) for values in lines.values()}) > 1:
        raise ValueError(
            f"profiles[{label!r}] must have as many layers in every line, got "
            f"{ {of: len(values) for of, values in lines.items()} }."
        )
    return lines
