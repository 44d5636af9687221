"""The estimators that choose their residual coefficient: score a beta path, choose, refit."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import NotFittedError

from .._compat import _fit_context, fit_task, metadata_of
from .._estimators.base import forget
from .._estimators.candidates import keep, train_estimator
from .._estimators.classifier import ResidualClassifier, ResidualTransformerClassifier
from .._estimators.declaration import declared, parameter_names
from .._estimators.parameters import OF_CLASSIFIERS, OF_SEARCHES, SearchParameters
from .._estimators.preparation import known_epochs
from .._estimators.regressor import ResidualRegressor, ResidualTransformerRegressor
from .beta_path import path_of

_CARRIED = {
    "sigma_min_Z": "mean_sigma_min_Z",
    "sigma_min_attn": "mean_sigma_min_attn",
    "condition_number_Z": "mean_condition_number_Z",
    "condition_number_attn": "mean_condition_number_attn",
    "rate": "mean_rate",
    "loss": "mean_train_loss",
}


class BetaSearch:
    """Choose residual_beta by cross-validation; mixed in before a body of the estimators."""

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
        shown = {"X": X, "y": y, "metadata": metadata_of(sample_weight)}
        with fit_task(self, 1 + self.refit, **shown) as task:
            path = self._search(X, y, sample_weight, groups, segments, task)
            best, results = self._choose(path)
            beta, trained = float(path.betas[best]), None
            if self.refit:
                refit = task.subtask("refit-with-best-params", known_epochs(self)).begin()
                data = (X, y, sample_weight)
                trained = train_estimator(self, beta, *data, task=refit, segments=segments)
            # All attributes are set at once, here: a fit that ends before leaves an earlier one.
            if trained is None:
                forget(self)
            else:
                keep(self, *trained)
            self.beta_path_, self.cv_results_ = path, results
            self.best_index_, self.best_score_ = best, float(results["mean_test_score"][best])
            self.residual_beta_ = beta
            if self.refit:
                refit.end({})
        return self

    @staticmethod
    def _choose(path):
        """The place of the best beta of a path, and its table of results."""
        results = _results(path)
        means = results["mean_test_score"]
        if not np.isfinite(means).any():
            errors = [error for error in path.to_frame()["error"] if error]
            raise ValueError(
                f"no beta of {path.betas.tolist()} has a finite score"
                + (f"; the first error was: {errors[0]}" if errors else ".")
            )
        return int(np.nanargmax(means)), results

    def _search(self, X, y, sample_weight, groups, segments, task):
        """The path over all betas and folds, with the plain estimator of the same parameters."""
        # Not get_params: a subclass may have another constructor.
        own = {name: getattr(self, name) for name in parameter_names(SearchParameters)}
        names = [name for name in parameter_names(self._plain) if name != "residual_beta"]
        plain = {name: getattr(self, name) for name in names}
        return path_of(
            X,
            y,
            own["betas"],
            self._plain(**plain),
            5 if own["cv"] is None else own["cv"],
            task,
            groups=groups,
            sample_weight=sample_weight,
            segments=segments,
            scoring=own["scoring"],
            n_seeds=own["n_seeds"],
            n_jobs=own["n_jobs"],
        )

    def __sklearn_is_fitted__(self):
        if hasattr(self, "beta_path_") and not hasattr(self, "net_"):
            raise NotFittedError(
                f"this {type(self).__name__} was fitted with refit=False, which keeps no model: "
                "read cv_results_ and beta_path_, or fit it with refit=True."
            )
        return super().__sklearn_is_fitted__()


@declared
class ResidualTransformerRegressorCV(BetaSearch, ResidualRegressor, SearchParameters):
    """ResidualTransformerRegressor that chooses its residual coefficient by cross-validation.

    As LassoCV does for alpha: candidates are trained together where that is faster
    (:func:`residual_beta_path`), and the best one is fitted again on all data.

    {parameters}

    {attributes}

    See Also
    --------
    ResidualTransformerRegressor : The same with one given beta.
    residual_beta_path : The function behind it.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressorCV([0, 1], cv=3, d_model=8, max_iter=3, random_state=0)
    >>> model.fit(X, y).residual_beta_ in (0.0, 1.0)
    True
    """

    _plain = ResidualTransformerRegressor
    _attributes = OF_SEARCHES


@declared
class ResidualTransformerClassifierCV(BetaSearch, ResidualClassifier, SearchParameters):
    """ResidualTransformerClassifier that chooses its residual coefficient by cross-validation.

    As LassoCV does for alpha: candidates are trained together where that is faster
    (:func:`residual_beta_path`), and the best one is fitted again on all data.

    {parameters}

    {attributes}

    See Also
    --------
    ResidualTransformerClassifier : The same with one given beta.
    residual_beta_path : The function behind it.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ResidualTransformerClassifierCV([0, 1], cv=3, d_model=8, max_iter=3, random_state=0)
    >>> model.fit(X, y).residual_beta_ in (0.0, 1.0)
    True
    """

    _plain = ResidualTransformerClassifier
    _attributes = OF_CLASSIFIERS | OF_SEARCHES


def _results(path):
    """GridSearchCV-shaped table of a path, with conditioning and convergence beside the scores."""
    frame = path.to_frame()
    grouped = frame.groupby("beta", sort=False)
    # Rows are ordered by beta, then seed, then fold. A fit that diverged has the score NaN, and a
    # plain mean keeps it, so that its beta is not chosen.
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
