"""scikit-learn's private names, in one place, so that a new release breaks one file."""

import contextlib
from inspect import signature

from sklearn.base import _fit_context
from sklearn.exceptions import NotFittedError
from sklearn.model_selection._validation import (
    _insert_error_scores,
    _score,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    _check_y,
    _num_samples,
    check_is_fitted,
)

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback._callback_support import callback_management_context
except ImportError:  # scikit-learn before 1.9 has no callbacks

    class CallbackSupportMixin:
        """Adds nothing: there is no ``set_callbacks`` whose callbacks could be told."""


class Composition(_BaseComposition):
    """An estimator whose parameter ``estimators`` lists others by name, whose parameters it has."""

    def get_params(self, deep=True):
        """Parameters, and those of every estimator as ``<name>__<parameter>``.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include those of the estimators.

        Returns
        -------
        params : dict
        """
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params):
        """Set parameters, an estimator by its name, or one of its parameters.

        Parameters
        ----------
        **params : dict
            By name.

        Returns
        -------
        self : object
        """
        return self._set_params("estimators", **params)

    def check_names(self):
        """Refuse names that are not unique, hold ``__`` or are those of parameters."""
        self._validate_names([name for name, _ in self.estimators])


class FitTask:
    """A task of a fit, such as an epoch or the fit of a member, that callbacks are told of.

    It wraps scikit-learn's callback context. A task without a context is silent: that of a fit
    without callbacks, where telling them would only take time.
    """

    def __init__(self, estimator=None, context=None, data=None):
        self.estimator, self.context, self.data = estimator, context, data or {}
        self.begun = self.ended = False

    def subtask(self, name, n_subtasks=0, *, number=None, ordered=True):
        """A part of this task; ``number`` is its own where parts do not follow each other."""
        if self.context is None:
            return self
        how = {"max_subtasks": n_subtasks, "sequential_subtasks": ordered}
        context = self.context.subcontext(task_name=name, task_id=number, **how)
        return FitTask(self.estimator, context, self.data)

    def without_data(self):
        """The same task without its X and y, which need not travel to another process."""
        return self if self.context is None else FitTask(self.estimator, self.context)

    def begin(self, **data):
        """Tell callbacks that the task begins; X, y and metadata replace those it had."""
        if self.context is not None and not self.begun:
            self.begun, self.data = True, data or self.data
            self.context.call_on_fit_task_begin(estimator=self.estimator, **self.data)
        return self

    def end(self, attributes=None):
        """Tell callbacks that the task has ended; whether one of them asks to stop here.

        ``attributes`` are the fitted attributes, or a function that makes them, of the model as it
        would be if the fit ended here.
        """
        if self.context is None or self.ended:
            return False
        self.begin().ended = True
        return self.context.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=attributes, **self.data
        )

    @contextlib.contextmanager
    def handed_to(self, estimator):
        """While this lasts, the fit of another estimator is this task, for its callbacks too."""
        if self.context is None:
            yield
            return
        with self.context.propagate_callback_context(estimator):
            yield


@contextlib.contextmanager
def fit_task(estimator, n_subtasks, *, inner=None, ordered=True, **data):
    """The task of an estimator's whole fit; silent if nobody listens.

    Parameters
    ----------
    estimator : estimator
    n_subtasks : int or None
        How many subtasks there are, at most; None if that is not known yet.
    inner : estimator or None
        What a meta-estimator fits: its own callbacks are told where in the whole fit they are.
    ordered : bool
        Whether subtasks follow each other.
    **data
        X, y and metadata, as callbacks are shown them.
    """
    if not (_has_listener(estimator) or _has_listener(inner)):
        yield FitTask()
        return
    with callback_management_context(estimator):
        context = estimator._init_callback_context(
            max_subtasks=n_subtasks, sequential_subtasks=ordered
        )
        task = FitTask(estimator, context, data).begin()
        yield task
        task.end({} if _is_fitted(estimator) else None)


def _has_listener(estimator):
    """Whether callbacks are set on an estimator, or on one inside it."""
    if getattr(estimator, "_skl_callbacks", None):
        return True
    nested = getattr(estimator, "get_params", None)
    if nested is None or isinstance(estimator, type):
        return False
    return any(getattr(value, "_skl_callbacks", None) for value in nested().values())


def _is_fitted(estimator):
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def metadata_of(sample_weight):
    """What callbacks are told beside X and y, as scikit-learn's own estimators do."""
    return None if sample_weight is None else {"sample_weight": sample_weight}


def takes_sample_weight(scorer):
    """Whether a scorer takes sample weights; scikit-learn's say it themselves."""
    own = getattr(scorer, "_accept_sample_weight", None)
    return "sample_weight" in signature(scorer).parameters if own is None else own()


def response_methods(scorer):
    """Names of the methods one of which a scorer calls; empty if it does not say."""
    methods = getattr(scorer, "_response_method", ())
    return (methods,) if isinstance(methods, str) else tuple(methods)


def search_scorers(search):
    """The scorers of a GridSearchCV, and the name of the one it refits by."""
    return search._get_scorers()


def named_scorers(scorers):
    """The dict of scorers behind what scikit-learn makes of several."""
    return getattr(scorers, "_scorers", scorers)


def routed_parameters(search, params):
    """What a GridSearchCV hands to the fits, the splitter and the scorers."""
    return search._get_routed_params_for_fit(params)


def conclude_search(search, candidates, outputs, refit_metric, n_splits):
    """Results and the best candidate of a GridSearchCV from the outputs of every fit.

    ``outputs`` go by candidate, then by fold, in the form of scikit-learn's ``_fit_and_score``.
    They are returned as the fitted attributes they are to be, by name.
    """
    _warn_or_raise_about_fit_failures(outputs, search.error_score)
    _insert_error_scores(outputs, search.error_score)
    results = search._format_results(candidates, n_splits, outputs)
    first = outputs[0]["test_scores"]
    found = {"cv_results_": results, "multimetric_": isinstance(first, dict)}
    if callable(search.scoring) and found["multimetric_"]:
        search._check_refit_for_multimetric(first)
        refit_metric = search.refit
    if search.refit or not found["multimetric_"]:
        best = search._select_best_index(search.refit, refit_metric, results)
        found |= {"best_index_": best, "best_params_": candidates[best]}
        if not callable(search.refit):
            found["best_score_"] = results[f"mean_test_{refit_metric}"][best]
    return found


def validate_params(estimator):
    """Refuse parameters that an estimator's constraints do not allow."""
    estimator._validate_params()


__all__ = [
    "CallbackSupportMixin",
    "Composition",
    "FitTask",
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_method_params",
    "_check_sample_weight",
    "_check_y",
    "_fit_context",
    "_num_samples",
    "_safe_indexing",
    "_score",
    "conclude_search",
    "fit_task",
    "metadata_of",
    "named_scorers",
    "response_methods",
    "routed_parameters",
    "search_scorers",
    "takes_sample_weight",
    "validate_params",
]
