"""Losses, scores and conditioning against beta."""

from __future__ import annotations

import numpy as np

from .axes import (
    check_axes,
    check_fitted,
    check_lengths,
    column_of,
    log_if_wide,
    parameter_of,
    results_of,
)


class BetaPathDisplay:
    """Losses, scores and conditioning against beta, one panel per quantity.

    Parameters
    ----------
    table : DataFrame indexed by beta, columns (quantity, statistic)
        As :meth:`BetaPath.summary` returns it. Every quantity has the statistic "mean"; those that
        have "low" and "high" too are drawn with that interval.

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
        self.quantities = _check_table(table)
        self.table = table

    @classmethod
    def from_estimator(cls, estimator, *, quantities=None, ax=None):
        """Draw the path of a fitted ...CV estimator, or a path.

        Parameters
        ----------
        estimator : fitted ResidualTransformerRegressorCV or -ClassifierCV, or BetaPath
            The estimator may be inside a Pipeline or a TransformedTargetRegressor.
        quantities : str or sequence of str, default=None
            Columns of ``BetaPath.summary()``; those without a finite value are left out. None
            stands for loss, score, sigma_min_Z and condition_number_Z.
        ax : array-like of matplotlib Axes, default=None
            One per quantity drawn; None makes a figure.

        Returns
        -------
        display : BetaPathDisplay

        Raises
        ------
        ValueError
            If the path lacks a quantity, or none of them has a finite value.
        """
        is_path = hasattr(estimator, "summary")
        table = (estimator if is_path else check_fitted(estimator, "beta_path_")[0]).summary()
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

        A search must have varied beta alone; ``ConvergenceDisplay.from_cv_results`` draws a curve
        for each setting of the other parameters.

        Parameters
        ----------
        cv_results : dict, or the fitted search
            With ``param_residual_beta`` and a column ``mean_<quantity>`` for each quantity.
        quantities : str or sequence of str, default=None
            What to draw; None stands for those of train_loss, test_score and sigma_min_Z that the
            results have.
        ax : array-like of matplotlib Axes, default=None
            One per quantity; None makes a figure.

        Returns
        -------
        display : BetaPathDisplay

        Raises
        ------
        TypeError, ValueError
            If ``cv_results`` does not come from a search over beta alone, or lacks a column.
        """
        import pandas as pd

        cv_results = results_of(cv_results)
        known = [key.removeprefix("mean_") for key in cv_results if key.startswith("mean_")]
        usual = [name for name in ("train_loss", "test_score", "sigma_min_Z") if name in known]
        quantities = _check_quantities(quantities, usual, known)
        column, beta = parameter_of(cv_results, "residual_beta")
        columns = {(name, "mean"): column_of(cv_results, f"mean_{name}") for name in quantities}
        check_lengths(**{column: beta}, **{f"mean_{q}": mean for (q, _), mean in columns.items()})
        table = pd.DataFrame(columns, index=pd.Index(beta, name="beta"))
        table = table[np.isfinite(beta)]
        if table.index.has_duplicates:
            raise ValueError(
                "cv_results comes from a search over other parameters beside residual_beta: draw "
                "it with ConvergenceDisplay.from_cv_results, which has a curve for each setting."
            )
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
        self.axes_, self.lines_ = _panels(ax, len(self.quantities)), []
        table = self.table.sort_index()
        for panel, name in zip(self.axes_, self.quantities, strict=True):
            part = table[name]
            self.lines_ += panel.plot(part.index, part["mean"], "o-", ms=4, label="mean")
            if {"low", "high"} <= set(part) and np.isfinite(part["low"]).any():
                panel.fill_between(
                    part.index, part["low"], part["high"], alpha=0.25, lw=0, label="interval"
                )
                if panel is self.axes_[0]:
                    panel.legend(fontsize="small")
            log_if_wide(panel, part["mean"])
            panel.set(xlabel="beta", ylabel=str(name).replace("_", " "))
        return self


def _panels(ax, n):
    """The given axes, or those of a new figure, one per quantity."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(1, n, figsize=(3.4 * n, 3.4), layout="constrained", squeeze=False)
    panels = np.ravel(ax)
    for panel in panels:
        check_axes(panel)
    if len(panels) != n:
        raise ValueError(f"ax holds {len(panels)} axes for {n} quantities; pass {n}.")
    return panels


def _check_table(table):
    """The quantities of a table with a row per beta and columns (quantity, statistic)."""
    if getattr(getattr(table, "columns", None), "nlevels", 0) != 2:
        raise ValueError(
            "table must be a DataFrame with columns (quantity, statistic), as "
            f"BetaPath.summary() returns it, got {type(table).__name__}."
        )
    if not table.size:
        raise ValueError(f"table must have a row and a column or more, got shape {table.shape}.")
    if table.index.dtype.kind not in "iuf" or table.index.has_duplicates:
        raise ValueError(
            "table must be indexed by beta, each a number and listed once, got "
            f"{list(table.index)!r:.80}."
        )
    quantities = list(dict.fromkeys(name for name, _ in table.columns))
    for name in quantities:
        if "mean" not in table[name]:
            raise ValueError(
                f"table must have a column ({name!r}, 'mean'), got {list(table[name])} for it."
            )
    return quantities


def _check_quantities(quantities, usual, known):
    """A list of quantities, each of them known and listed once."""
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
