"""scikit-learn's private names, in one place, so that a new release breaks one file."""

from sklearn.base import _fit_context
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.validation import _check_sample_weight, _check_y, _num_samples

__all__ = [
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "_check_sample_weight",
    "_check_y",
    "_fit_context",
    "_num_samples",
    "_safe_indexing",
]
