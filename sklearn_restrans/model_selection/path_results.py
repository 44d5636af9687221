"""The result of a beta path: every fit, as frames and pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import t

_QUANTITIES = ("sigma_min", "condition_number", "effective_rank", "rank_collapse")


class BetaPath:
    """Result of :func:`residual_beta_path`: one fit per beta, seed and fold.

    Parameters
    ----------
    fits : list of dict
        One entry per fit: beta, seed, fold, estimator (None where it diverged), error, score,
        fit_time, score_time.
    plan : dict
        How the candidates were trained ("stacked" or "separate"), in groups of how many, and why.

    Attributes
    ----------
    betas : ndarray of shape (n_betas,)
        The coefficients, in the order given.
    plan : dict
        As passed.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressor(d_model=8, max_iter=3, random_state=0)
    >>> path = residual_beta_path(X, y, [0, 0.5, 1], estimator=model)
    >>> path.losses().shape
    (3, 3)
    """

    def __init__(self, fits, plan):
        self._fits = fits
        self.plan = plan
        self.betas = np.array(list(dict.fromkeys(fit["beta"] for fit in fits)))

    @property
    def estimators(self):
        """Fitted estimators by (beta, seed, fold); None where a fit diverged."""
        return {(f["beta"], f["seed"], f["fold"]): f["estimator"] for f in self._fits}

    def losses(self):
        """Training loss per beta (rows) and epoch (columns), the mean over seeds and folds.

        Returns
        -------
        losses : DataFrame of shape (n_betas, n_epochs)
            NaN where no fit of a beta reached an epoch.
        """
        curves = {}
        for fit in self._fits:
            if fit["estimator"] is not None:
                curve = fit["estimator"].convergence_
                curves[fit["beta"], fit["seed"], fit["fold"]] = pd.Series(curve.loss, curve.epochs)
        table = pd.DataFrame(curves).T
        table.index = pd.MultiIndex.from_tuples(table.index, names=["beta", "seed", "fold"])
        return table.groupby(level="beta").mean().reindex(self.betas).rename_axis(columns="epoch")

    def to_frame(self):
        """One row per fit.

        Returns
        -------
        frame : DataFrame
            beta, seed, fold, score, final loss, rate, epochs, the conditioning of Attn(X) and Z of
            the last layer, seconds (its share of a group's), and the error of a fit that diverged
            or could not be scored.
        """
        return pd.DataFrame([_row(fit) for fit in self._fits])

    def summary(self):
        """One row per beta: means over seeds and folds, with their interval over seeds.

        Returns
        -------
        frame : DataFrame indexed by beta, columns (quantity, statistic)
            mean; low and high, the ends of the 95 % t-interval of the mean over seeds of each
            seed's mean over the folds (NaN for one seed); count, the number of fits.
        """
        frame = self.to_frame().drop(columns=["fold", "error"])
        seeds = frame.groupby(["beta", "seed"], sort=False).mean().groupby("beta", sort=False)
        mean, n = seeds.mean(), seeds.count()
        half = t.ppf(0.975, n - 1) * seeds.std() / np.sqrt(n)
        count = frame.drop(columns="seed").groupby("beta", sort=False).count()
        parts = {"mean": mean, "low": mean - half, "high": mean + half, "count": count}
        table = pd.concat(parts, axis=1).swaplevel(axis=1)
        return table[mean.columns].reindex(self.betas)

    def plot(self, ax=None):
        """Training loss against epoch, a line per beta.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        ax : matplotlib Axes
        """
        from ..plotting import ConvergenceDisplay

        curves = {f"{beta:g}": row.dropna() for beta, row in self.losses().iterrows()}
        ax = ConvergenceDisplay(curves).plot(ax).ax_
        if len(curves) <= 10:  # longer legends stand beside the axes
            ax.legend(title="beta")
        return ax

    def __repr__(self):
        failed = sum(bool(fit["error"]) for fit in self._fits)
        said = f", {failed} of them failed" if failed else ""
        return (
            f"BetaPath of {len(self.betas)} betas, {len(self._fits)} fits{said}; "
            f"{self.plan['mode']} because {self.plan['reason']}"
        )


def _row(fit):
    row = {name: fit[name] for name in ("beta", "seed", "fold", "score")}
    model = fit["estimator"]
    row["loss"] = np.nan if model is None else model.convergence_.loss[-1]
    row["rate"] = np.nan if model is None else model.convergence_.rate
    row["n_epochs"] = np.nan if model is None else model.n_iter_
    for quantity in _QUANTITIES:
        for of, name in (("Z", "Z"), ("attention", "attn")):
            value = np.nan if model is None else model.conditioning_.get(quantity, of=of)
            row[f"{quantity}_{name}"] = value
    return row | {name: fit[name] for name in ("fit_time", "score_time", "error")}
