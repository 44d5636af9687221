"""scikit-learn's private names, in one place, so that a new release breaks one file."""

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

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_method_params",
    "_check_sample_weight",
    "_check_y",
    "_fit_context",
    "_insert_error_scores",
    "_num_samples",
    "_safe_indexing",
    "_score",
    "_warn_or_raise_about_fit_failures",
]
