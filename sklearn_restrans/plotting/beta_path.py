"""Losses, scores and conditioning against beta."""

from __future__ import annotations

import numpy as np

from .._records import fitted_records
from .axes import parameter_of, results_of


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

        cv_results = results_of(cv_results)
        known = [key.removeprefix("mean_") for key in cv_results if key.startswith("mean_")]
        usual = [name for name in ("train_loss", "test_score", "sigma_min_Z") if name in known]
        quantities = _check_quantities(quantities, usual, known)
        beta = parameter_of(cv_results, "residual_beta")
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
