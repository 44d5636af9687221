"""Softmax weight against the lag behind the token that reads."""

from __future__ import annotations

from collections import Counter
from numbers import Integral

from ..diagnostics.attention import AttentionOverLags, attention_over_lags
from .axes import axes_of, curve_styles, log_if_wide, show_legend, whole_numbers_below


class AttentionDisplay:
    """Mean softmax weight against the lag, a line per layer or per head of one layer.

    Parameters
    ----------
    attention : AttentionOverLags
        What :func:`~sklearn_restrans.attention_over_lags` returns.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    lines_ : list of matplotlib Line2D
        The layers or heads, and last the weight of a uniform softmax (grey).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, attention_over_lags
    >>> from sklearn_restrans.plotting import AttentionDisplay
    >>> X = np.random.default_rng(0).standard_normal((20, 5, 3))
    >>> model = ResidualTransformerRegressor(max_iter=1, random_state=0).fit(X, X[:, 0, 0])
    >>> AttentionDisplay(attention_over_lags(model, X)).attention.weights.shape
    (1, 1, 9)
    """

    def __init__(self, attention):
        if not isinstance(attention, AttentionOverLags):
            raise TypeError(
                "attention must be an AttentionOverLags, as attention_over_lags returns it, got "
                f"{type(attention).__name__}."
            )
        self.attention = attention

    @classmethod
    def from_estimator(cls, estimator, X, *, layer=None, reading="all", segments=None, ax=None):
        """Measure a fitted estimator on data and draw where it looks.

        Parameters
        ----------
        estimator : estimator
            Fitted, or a fitted Pipeline that ends with one.
        X : array-like
            Data as for `estimator.predict`.
        layer : int, default=None
            Layer whose heads are drawn, counted from the end if negative; None draws the mean over
            the heads of every layer.
        reading : {"all", "last"}, default="all"
            The tokens that read: all of a sequence, or its last one.
        segments : array-like of shape (n_rows,), default=None
            As for `estimator.predict`, of an estimator with ``window``.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : AttentionDisplay

        Raises
        ------
        TypeError, ValueError
            As :func:`~sklearn_restrans.attention_over_lags`, or for a layer that does not exist.
        """
        found = attention_over_lags(estimator, X, reading=reading, segments=segments)
        return cls(found).plot(layer=layer, ax=ax)

    def plot(self, layer=None, ax=None):
        """Draw the weights; labels say whether attention is flat, selective or saturated.

        Parameters
        ----------
        layer : int, default=None
            Layer whose heads are drawn; None draws the mean over the heads of every layer.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self : AttentionDisplay

        Raises
        ------
        ValueError
            For a layer that does not exist.
        """
        found, n_layers = self.attention, len(self.attention.weights)
        if layer is None:
            lines = {
                f"layer {k} ({_in_words(found.state[k])})": found.weights[k].mean(axis=0)
                for k in range(n_layers)
            }
        else:
            is_integer = isinstance(layer, Integral) and not isinstance(layer, bool)
            if not is_integer or not -n_layers <= layer < n_layers:
                raise ValueError(
                    f"layer must be None or an integer from {-n_layers} to {n_layers - 1}, got "
                    f"{layer!r}."
                )
            lines = {
                f"head {k} ({found.state[layer, k]})": weights
                for k, weights in enumerate(found.weights[layer])
            }
        self.ax_, self.lines_ = axes_of(ax), []
        every = max(1, len(found.lags) // 10)
        for values, style in zip(lines.values(), curve_styles(len(lines)), strict=True):
            self.lines_ += self.ax_.plot(found.lags, values, markevery=every, **style)
        self.lines_ += self.ax_.plot(found.lags, found.uniform, color="0.6", lw=1, ls="--")
        self.ax_.set(xlabel="lag behind the reading token", ylabel="mean softmax weight")
        whole_numbers_below(self.ax_)
        log_if_wide(self.ax_, [line.get_ydata() for line in self.lines_])
        show_legend(self.ax_, self.lines_, [*lines, "uniform"])
        return self


def _in_words(states):
    """One word if all heads agree, otherwise how many heads are in which state."""
    counts = Counter(states.tolist())
    if len(counts) == 1:
        return states[0]
    return ", ".join(f"{n} {state}" for state, n in counts.most_common())
