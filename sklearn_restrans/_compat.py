"""scikit-learn's private names, in one place, so that a new release breaks one file."""

from inspect import signature

from sklearn.base import _fit_context
from sklearn.model_selection._validation import (
    _insert_error_scores,
    _score,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    _check_y,
    _num_samples,
)


def takes_sample_weight(scorer):
    """Whether a scorer takes sample weights; scikit-learn's say it themselves."""
    own = getattr(scorer, "_accept_sample_weight", None)
    return "sample_weight" in signature(scorer).parameters if own is None else own()


def search_scorers(search):
    """The scorers of a GridSearchCV, and the name of the one it refits by."""
    return search._get_scorers()


def named_scorers(scorers):
    """The dict of scorers behind what scikit-learn makes of several."""
    return getattr(scorers, "_scorers", scorers)


def routed_parameters(search, params):
    """What a GridSearchCV hands to the fits, the splitter and the scorers."""
    return search._get_routed_params_for_fit(params)


def conclude_search(search, candidates, outputs, refit_metric):
    """Results and the best candidate of a GridSearchCV from the outputs of every fit.

    ``outputs`` go by candidate, then by fold, in the form of scikit-learn's ``_fit_and_score``.
    """
    _warn_or_raise_about_fit_failures(outputs, search.error_score)
    _insert_error_scores(outputs, search.error_score)
    search.cv_results_ = search._format_results(candidates, search.n_splits_, outputs)
    first = outputs[0]["test_scores"]
    search.multimetric_ = isinstance(first, dict)
    if callable(search.scoring) and search.multimetric_:
        search._check_refit_for_multimetric(first)
        refit_metric = search.refit
    if search.refit or not search.multimetric_:
        results = search.cv_results_
        search.best_index_ = search._select_best_index(search.refit, refit_metric, results)
        search.best_params_ = candidates[search.best_index_]
        if not callable(search.refit):
            search.best_score_ = results[f"mean_test_{refit_metric}"][search.best_index_]


def validate_params(estimator):
    """Refuse parameters that an estimator's constraints do not allow."""
    estimator._validate_params()


__all__ = [
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
    "named_scorers",
    "routed_parameters",
    "search_scorers",
    "takes_sample_weight",
    "validate_params",
]
