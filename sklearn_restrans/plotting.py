"""Displays of convergence and conditioning. Matplotlib is imported when something is drawn.

Curves differ in colour, marker and place in a sequential colour map whose lightness falls from one
to the next, so that they are told apart in grey print and by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral

import numpy as np

from ._records import fitted_records

__all__ = ["BetaPathDisplay", "ConvergenceDisplay", "SpectrumDisplay"]

_MARKERS = "osD^vP*X<>"


def _styles(n):
    """Colour and marker of n curves."""
    import matplotlib

    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, n)) if n > 1 else ["C0"]
    return [{"color": c, "marker": _MARKERS[k % 10], "ms": 4} for k, c in enumerate(colors)]


def _axes(ax):
    """The given axes, or those of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def _records(estimator, record, label):
    """What fit recorded, under a label for each estimator of a dict and each member of it."""
    several = estimator if isinstance(estimator, Mapping) else {label: estimator}
    if not several:
        raise ValueError("estimator is an empty dict: pass fitted estimators under their labels.")
    found = {}
    for name, model in several.items():
        records = fitted_records(model, record)
        start = f"{name}, " if name else ""
        labels = [f"{start}member {k}" for k in range(1, len(records) + 1)]
        found |= dict(zip(labels if len(records) > 1 else [name], records, strict=True))
    return found


def _filled_dict(name, value):
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{name} must be a dict of labels, not empty, got {value!r}.")
    return value.items()


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
        curves = _filled_dict("curves", curves)
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
        found = _records(estimator, "convergence_", "training loss")
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
        cv_results = _results_of(cv_results)
        display = cls({quantity: _column(cv_results, f"mean_test_{quantity}")})
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
        self.ax_, self.lines_ = _axes(ax), []
        styles = _styles(len(self.curves))
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
        values = _parameter(cv_results, x)
        mean = _column(cv_results, f"mean_test_{quantity}")
        spread = _column(cv_results, f"std_test_{quantity}")
        order = np.argsort(values)
        self.ax_ = _axes(ax)
        bars = self.ax_.errorbar(
            values[order], mean[order], yerr=spread[order], marker="o", ms=4, capsize=3
        )
        self.lines_ = [bars.lines[0]]
        self.ax_.set(xlabel=x, ylabel=quantity)


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
        for label, pair in _filled_dict("spectra", spectra):
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
        for label, found in _records(estimator, "conditioning_", "").items():
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
        self.ax_, self.lines_ = _axes(ax), []
        styles = _styles(len(self.spectra))
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


class BetaPathDisplay:
    """Losses, scores and conditioning against beta, one panel per quantity.

    Parameters
    ----------
    table : DataFrame indexed by beta, columns (quantity, statistic)
        As :meth:`BetaPath.summary` returns it; the statistic "mean", and where there are any "low"
        and "high".

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One per quantity.
    lines_ : list of matplotlib Line2D
        The means.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn_restrans.plotting import BetaPathDisplay
    >>> table = pd.DataFrame({("loss", "mean"): [0.9, 0.5]}, index=[0.0, 1.0])
    >>> BetaPathDisplay(table).quantities
    ['loss']
    """

    def __init__(self, table):
        if getattr(getattr(table, "columns", None), "nlevels", 0) != 2:
            raise ValueError(
                "table must be a DataFrame with columns (quantity, statistic), as "
                f"BetaPath.summary() returns it, got {type(table).__name__}."
            )
        self.table = table
        self.quantities = list(dict.fromkeys(name for name, _ in table.columns))

    @classmethod
    def from_estimator(cls, estimator, *, quantities=None, ax=None):
        """Draw the path of a fitted ...CV estimator, or a path.

        Parameters
        ----------
        estimator : fitted ResidualTransformerRegressorCV or -ClassifierCV, or BetaPath
            The estimator may be inside a Pipeline or a TransformedTargetRegressor.
        quantities : str or sequence of str, default=None
            Columns of ``BetaPath.summary()``; those without a finite value are left out. None is
            loss, score, sigma_min_Z and condition_number_Z.
        ax : array-like of matplotlib Axes, default=None
            One per quantity drawn; None makes a figure.

        Returns
        -------
        display : BetaPathDisplay

        Raises
        ------
        ValueError
            For a quantity the path does not have, or has no finite value of.
        """
        path = estimator if hasattr(estimator, "summary") else None
        table = (path or fitted_records(estimator, "beta_path_")[0]).summary()
        known = list(dict.fromkeys(table.columns.get_level_values(0)))
        usual = ("loss", "score", "sigma_min_Z", "condition_number_Z")
        quantities = _check_quantities(quantities, usual, known)
        kept = [name for name in quantities if np.isfinite(table[name, "mean"]).any()]
        if not kept:
            raise ValueError(f"quantities={quantities} have no finite value in this path.")
        return cls(table[kept]).plot(ax)

    @classmethod
    def from_cv_results(cls, cv_results, *, quantities=None, ax=None):
        """Draw ``cv_results_`` of a ...CV estimator or another search: means without intervals.

        Parameters
        ----------
        cv_results : dict, or the fitted search
            With ``param_residual_beta`` and a column ``mean_<quantity>`` for each quantity.
        quantities : str or sequence of str, default=None
            What to draw; None is what there is of train_loss, test_score and sigma_min_Z.
        ax : array-like of matplotlib Axes, default=None
            One per quantity; None makes a figure.

        Returns
        -------
        display : BetaPathDisplay

        Raises
        ------
        TypeError, ValueError
            If the results are none, or have no such column.
        """
        import pandas as pd

        cv_results = _results_of(cv_results)
        known = [key.removeprefix("mean_") for key in cv_results if key.startswith("mean_")]
        usual = [name for name in ("train_loss", "test_score", "sigma_min_Z") if name in known]
        quantities = _check_quantities(quantities, usual, known)
        beta = _parameter(cv_results, "residual_beta")
        columns = {(q, "mean"): np.asarray(cv_results[f"mean_{q}"], float) for q in quantities}
        table = pd.DataFrame(columns, index=pd.Index(beta, name="beta"))
        return cls(table.sort_index()).plot(ax)

    def plot(self, ax=None):
        """Draw a panel per quantity, with the interval of the mean over seeds where there is one.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One per quantity; None makes a figure.

        Returns
        -------
        self : BetaPathDisplay

        Raises
        ------
        ValueError
            If there are not as many axes as quantities.
        """
        import matplotlib.pyplot as plt

        n = len(self.quantities)
        if ax is None:
            _, ax = plt.subplots(1, n, figsize=(3.4 * n, 3.4), layout="constrained", squeeze=False)
        self.axes_, self.lines_ = np.ravel(ax), []
        if len(self.axes_) != n:
            raise ValueError(f"ax holds {len(self.axes_)} axes for {n} quantities; pass {n}.")
        table = self.table.sort_index()
        for panel, name in zip(self.axes_, self.quantities, strict=True):
            part = table[name]
            self.lines_ += panel.plot(part.index, part["mean"], "o-", ms=4)
            if "low" in part and np.isfinite(part["low"]).any():
                panel.fill_between(part.index, part["low"], part["high"], alpha=0.25)
            mean = part["mean"].to_numpy()
            # Singular values at beta = 0 and above it lie decades apart.
            if (mean > 0).all() and mean.max() > 20 * mean.min():
                panel.set_yscale("log")
            panel.set(xlabel="beta", ylabel=name.replace("_", " "))
        return self


def _results_of(cv_results):
    """``cv_results_``, given as it is or by the search that has it."""
    found = getattr(cv_results, "cv_results_", cv_results)
    if not hasattr(found, "keys"):
        raise TypeError(
            "cv_results must be cv_results_ of a search, or the search after fit, got "
            f"{type(cv_results).__name__}."
        )
    return found


def _check_quantities(quantities, usual, known):
    """A list of quantities, all of them known and none of them twice."""
    if quantities is None:
        quantities = usual
    names = (
        [quantities] if isinstance(quantities, str) or not np.iterable(quantities) else quantities
    )
    names = list(names)
    for name in names:
        if name not in known:
            raise ValueError(f"quantities must be among {known}, got {name!r}.")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"quantities must name one or more of {known}, each once, got {names}.")
    return names


def _column(cv_results, name):
    if name not in cv_results:
        scorers = [key.removeprefix("mean_test_") for key in cv_results if "mean_test_" in key]
        raise ValueError(
            f"cv_results has no column {name!r}; its scorers are {scorers}. Name one of them as "
            "quantity, or add a scorer of that name to the search."
        )
    return np.asarray(cv_results[name], dtype=float)


def _parameter(cv_results, x):
    found = [
        key
        for key in cv_results
        if key.startswith("param_") and key.removeprefix("param_").rpartition("__")[2] == x
    ]
    if len(found) != 1:
        names = [key.removeprefix("param_") for key in cv_results if key.startswith("param_")]
        raise ValueError(f"x={x!r} must name one of the searched parameters {names}.")
    try:
        return np.asarray(cv_results[found[0]], dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"x={x!r} took values that are no numbers: {list(cv_results[found[0]])!r:.80}."
        ) from None
