"""What the two ...CV estimators share: score a beta path, choose, refit."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata

from ._compat import _fit_context
from .beta_path import residual_beta_path

_CARRIED = {
    "sigma_min_Z": "mean_sigma_min_Z",
    "sigma_min_attn": "mean_sigma_min_attn",
    "condition_number_Z": "mean_condition_number_Z",
    "condition_number_attn": "mean_condition_number_attn",
    "rate": "mean_rate",
    "loss": "mean_train_loss",
}


class BetaSearch:
    """Choose residual_beta by cross-validation; mixed in before the plain estimator."""

    @property
    def residual_beta(self):
        """The chosen beta, under the name the plain estimator's code knows."""
        if "_chosen" not in vars(self):
            raise AttributeError(
                f"residual_beta of {type(self).__name__} is chosen by fit; there is none before."
            )
        return self._chosen

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, *, groups=None, segments=None):
        """Score every beta by cross-validation and fit the best one on all data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), (n_samples, n_tokens, n_features) or \
                SequenceView
            As for the plain estimator.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights for the fits, and for the scores if the scorer takes any.
        groups : array-like of shape (n_samples,), default=None
            Handed to the splitter.
        segments : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X belongs to.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If an argument does not fit the others, or no beta has a finite score.
        """
        params = self.get_params(deep=False)
        own = {name: params.pop(name) for name in ("betas", "cv", "scoring", "refit", "n_seeds")}
        n_jobs = params.pop("n_jobs")
        self.beta_path_ = residual_beta_path(
            X,
            y,
            own["betas"],
            estimator=self._plain(**params),
            cv=5 if own["cv"] is None else own["cv"],
            groups=groups,
            sample_weight=sample_weight,
            segments=segments,
            scoring=own["scoring"],
            n_seeds=own["n_seeds"],
            n_jobs=n_jobs,
        )
        self.cv_results_ = _results(self.beta_path_)
        means = self.cv_results_["mean_test_score"]
        if not np.isfinite(means).any():
            errors = [error for error in self.beta_path_.to_frame()["error"] if error]
            raise ValueError(
                f"no beta of {self.beta_path_.betas.tolist()} has a finite score"
                + (f"; the first error was: {errors[0]}" if errors else ".")
            )
        self.best_index_ = int(np.nanargmax(means))
        self.best_score_ = float(means[self.best_index_])
        self._chosen = self.residual_beta_ = float(self.beta_path_.betas[self.best_index_])
        if own["refit"]:
            super().fit(X, y, sample_weight, segments=segments)
        else:
            kept = {"beta_path_", "cv_results_", "residual_beta_"}
            for name in list(vars(self)):
                if name.endswith("_") and name not in kept and not name.startswith("best_"):
                    delattr(self, name)
        return self

    def _report(self, *args):
        super()._report(*args)
        self.residual_beta_ = self._chosen

    def _outputs(self, X, segments=None):
        if hasattr(self, "beta_path_") and not hasattr(self, "net_"):
            raise AttributeError(
                "refit=False keeps no fitted model; read cv_results_ and beta_path_, or set "
                "refit=True."
            )
        return super()._outputs(X, segments)


def _results(path):
    """GridSearchCV-shaped table of a path, with conditioning and convergence beside the scores."""
    frame = path.to_frame()
    grouped = frame.groupby("beta", sort=False)
    # Rows go by beta, then seed, then fold. A fit that diverged has no score: its beta is not to be
    # chosen, so no nanmean here.
    shape = len(path.betas), -1, frame["fold"].nunique()
    scores = frame["score"].to_numpy().reshape(shape).mean(axis=1)
    mean = scores.mean(axis=1)
    results = {f"split{k}_test_score": column for k, column in enumerate(scores.T)}
    results |= {
        "params": [{"residual_beta": beta} for beta in path.betas],
        "param_residual_beta": np.ma.array(path.betas),
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(int),
    }
    for column in ("fit_time", "score_time"):
        results[f"mean_{column}"] = grouped[column].mean().to_numpy()
        results[f"std_{column}"] = grouped[column].std(ddof=0).to_numpy()
    for column, name in _CARRIED.items():
        results[name] = grouped[column].mean().to_numpy()
    return results
