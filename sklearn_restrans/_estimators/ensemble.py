"""Averages over seeds: one model from several starts, trained together where that is faster."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import ClassVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._compat import (
    CallbackSupportMixin,
    HasMethods,
    Interval,
    _fit_context,
    fit_task,
    metadata_of,
)
from .._data.targets import checked_labels
from .._validation import check_n_jobs
from ..exceptions import DivergenceError
from .base import forget
from .candidates import Failed, fit_estimators, plan_stacks
from .classifier import ResidualTransformerClassifier
from .parameters import check_parameters, draw_seed
from .preparation import check_data
from .regressor import ResidualTransformerRegressor, predicts_quantiles

__all__ = ["SeedEnsembleClassifier", "SeedEnsembleRegressor"]


class _SeedEnsemble(CallbackSupportMixin, MetaEstimatorMixin, BaseEstimator):
    """Fit one estimator from several seeds."""

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods("fit"), None],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(self, estimator=None, *, n_estimators=5, n_jobs=None, random_state=None):
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X,
        y,
        sample_weight=None,
        *,
        X_val=None,
        y_val=None,
        segments=None,
        segments_val=None,
    ):
        """Fit every member on the same data.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        y : array-like
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights.
        X_val, y_val : array-like, default=None
            Validation data, on which every member chooses its own epoch.
        segments, segments_val : array-like of shape (n_rows,), default=None
            As for the estimator's fit.

        Returns
        -------
        self : object

        Raises
        ------
        DivergenceError
            If every member diverged; those that did not are kept otherwise.
        TypeError
            If ``estimator`` is not one of this package, or is of the other kind.
        """
        check_n_jobs(self.n_jobs)
        members = self._members()
        data = (X, y, sample_weight, X_val, y_val)
        told = {"segments": segments, "segments_val": segments_val}
        check_parameters(members[0])
        checked = check_data(members[0], *data, **told)
        # Early stopping gives members of different seeds different training rows.
        n_alike = 1 if members[0].early_stopping and X_val is None else len(members)
        plan = plan_stacks(members[0], checked, n_alike)
        shown = {"X": X, "y": y, "metadata": metadata_of(sample_weight)}
        with fit_task(self, len(members), inner=self.estimator, ordered=False, **shown) as task:
            outcomes = self._fit_in_parts(members, plan["size"], data, told, task.without_data())
            self._keep_those_that_ended(outcomes, plan)
        return self

    def _members(self):
        """An unfitted estimator for every seed."""
        base, seed = self._base(), self.random_state
        # None must not draw from numpy's global generator, as it does in check_random_state.
        rng = check_random_state(draw_seed(None) if seed is None else seed)
        seeds = rng.randint(2**31 - 1, size=int(self.n_estimators))
        return [clone(base).set_params(random_state=int(seed)) for seed in seeds]

    def _base(self):
        base = self._default() if self.estimator is None else self.estimator
        if not isinstance(base, self._default):
            got, remedy = type(base).__name__, "average others with scikit-learn's Voting..."
            if hasattr(base, "steps"):
                remedy = "put preprocessing in a Pipeline around the ensemble"
            if isinstance(base, type):
                got, remedy = f"the class {base.__name__}", "add brackets to make an estimator"
            raise TypeError(
                f"estimator of {type(self).__name__} must be a {self._default.__name__}, got "
                f"{got}; {remedy}."
            )
        return base

    def _fit_in_parts(self, members, size, data, told, task):
        """Each member, fitted, or `Failed`."""
        tasks = [task.subtask("fit-member", number=number) for number in range(len(members))]
        n_parts = max(-(-len(members) // size), check_n_jobs(self.n_jobs))
        parts = np.array_split(range(len(members)), min(n_parts, len(members)))
        done = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_part)([members[k] for k in part], data, told, [tasks[k] for k in part])
            for part in parts
        )
        return [outcome for part in done for outcome in part]

    def _keep_those_that_ended(self, outcomes, plan):
        """Set the fitted attributes, all at once: a fit that fails leaves an earlier one."""
        errors = [str(each.error) for each in outcomes if isinstance(each, Failed)]
        estimators = [each for each in outcomes if not isinstance(each, Failed)]
        if not estimators:
            raise DivergenceError(f"all {len(outcomes)} members diverged: {errors[0]}")
        if errors:
            warnings.warn(
                f"{len(errors)} of {len(outcomes)} members diverged and are left out of the mean; "
                f"the first: {errors[0]}",
                ConvergenceWarning,
                stacklevel=3,
            )
        forget(self)
        self.estimators_, self.errors_, self.plan_ = estimators, errors, plan
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))

    def _mean_of(self, method, X, segments):
        check_is_fitted(self)
        told = {} if segments is None else {"segments": segments}
        return np.mean([getattr(model, method)(X, **told) for model in self.estimators_], axis=0)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Tags are asked of every estimator, also of one that fit is going to refuse.
        known = isinstance(self.estimator, self._default)
        of_member = get_tags(self.estimator if known else self._default())
        tags.input_tags = of_member.input_tags
        tags.target_tags = of_member.target_tags
        return tags


def members_predict_quantiles(ensemble):
    """Whether the members of an ensemble predict quantiles; an AttributeError says why not."""
    return predicts_quantiles(getattr(ensemble, "estimators_", [ensemble._base()])[0])


class SeedEnsembleRegressor(RegressorMixin, _SeedEnsemble):
    """Mean of residual Transformers that differ in their random start and batches.

    Members are trained as one model with a leading candidate dimension where that is faster.

    Parameters
    ----------
    estimator : ResidualTransformerRegressor, default=None
        What to fit; its random_state is replaced. None is the regressor with its defaults.
    n_estimators : int, default=5
        Members.
    n_jobs : int, default=None
        Processes, one thread each.
    random_state : int, RandomState instance or None, default=None
        Seed of the members' seeds.

    Attributes
    ----------
    estimators_ : list of ResidualTransformerRegressor
        The fitted members, without those that diverged.
    errors_ : list of str
        Why the others diverged.
    plan_ : dict
        How they were trained, in groups of how many, and why.
    n_features_in_ : int
        As the members'.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names, if X had string names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> member = ResidualTransformerRegressor(d_model=8, max_iter=3)
    >>> ensemble = SeedEnsembleRegressor(member, n_estimators=3, random_state=0).fit(X, y)
    >>> len(ensemble.estimators_), ensemble.predict(X[:2]).shape
    (3, (2,))
    """

    _default = ResidualTransformerRegressor

    def predict(self, X, *, segments=None):
        """Mean prediction of the members.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._mean_of("predict", X, segments)

    @available_if(members_predict_quantiles)
    def predict_quantiles(self, X, *, segments=None):
        """Mean of the members' quantiles, level by level; of members with ``loss="quantile"``.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        q : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)
            In the order of ``quantiles_``, and never falling along it.
        """
        return self._mean_of("predict_quantiles", X, segments)

    @property
    def quantiles_(self):
        """Levels of ``predict_quantiles``, of fitted members with ``loss="quantile"``."""
        members_predict_quantiles(self)
        check_is_fitted(self)
        return self.estimators_[0].quantiles_

    def score(self, X, y, sample_weight=None, *, segments=None):
        """R^2 of the mean prediction.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            True targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        score : float
        """
        return r2_score(y, self.predict(X, segments=segments), sample_weight=sample_weight)


class SeedEnsembleClassifier(ClassifierMixin, _SeedEnsemble):
    """Residual Transformers that differ in their random start and batches, probabilities averaged.

    Members are trained as one model with a leading candidate dimension where that is faster.

    Parameters
    ----------
    estimator : ResidualTransformerClassifier, default=None
        What to fit; its random_state is replaced. None is the classifier with its defaults.
    n_estimators : int, default=5
        Members.
    n_jobs : int, default=None
        Processes, one thread each.
    random_state : int, RandomState instance or None, default=None
        Seed of the members' seeds.

    Attributes
    ----------
    estimators_ : list of ResidualTransformerClassifier
        The fitted members, without those that diverged.
    errors_ : list of str
        Why the others diverged.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    plan_ : dict
        How they were trained, in groups of how many, and why.
    n_features_in_ : int
        As the members'.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names, if X had string names.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifier, SeedEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> member = ResidualTransformerClassifier(d_model=8, max_iter=3)
    >>> ensemble = SeedEnsembleClassifier(member, n_estimators=3, random_state=0).fit(X, y)
    >>> ensemble.predict_proba(X[:2]).shape
    (2, 3)
    """

    _default = ResidualTransformerClassifier

    def predict_proba(self, X, *, segments=None):
        """Mean of the members' probabilities.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
        """
        return self._mean_of("predict_proba", X, segments)

    def predict_log_proba(self, X, *, segments=None):
        """Logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        log_p : ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, segments=segments))

    def predict(self, X, *, segments=None):
        """The class of the largest mean probability.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        largest = self.predict_proba(X, segments=segments).argmax(axis=1)
        return self.classes_[largest]

    def score(self, X, y, sample_weight=None, *, segments=None):
        """Accuracy of the predictions.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the estimator.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        segments : array-like of shape (n_rows,), default=None
            As for the estimator.

        Returns
        -------
        score : float
        """
        predicted = self.predict(X, segments=segments)
        return accuracy_score(checked_labels(y), predicted, sample_weight=sample_weight)


def _fit_part(members, data, segments, tasks):
    """Each member, fitted, or `Failed`."""
    outcomes, _ = fit_estimators(members, *data, tasks=tasks, **segments)
    for task in tasks:
        task.end()
    return outcomes
