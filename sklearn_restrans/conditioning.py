"""Public names about conditioning; the code is in :mod:`sklearn_restrans.diagnostics`.

:func:`measure_conditioning` was called ``conditioning`` in the first releases. Both old spellings,
``sklearn_restrans.conditioning(model, X)`` and the function of that name in this module, work for
one more release and warn.
"""

import sys
import warnings
from types import ModuleType

from .diagnostics import (
    Conditioning,
    LayerTrace,
    MatrixConditioning,
    conditioning_from_traces,
    measure_conditioning,
)

__all__ = [
    "Conditioning",
    "LayerTrace",
    "MatrixConditioning",
    "conditioning_from_traces",
    "measure_conditioning",
]


def conditioning(estimator, X):
    """Old name of :func:`measure_conditioning`, which it warns of.

    Parameters
    ----------
    estimator, X
        As for :func:`measure_conditioning`.

    Returns
    -------
    result : Conditioning
    """
    _warn_of_old_name()
    return measure_conditioning(estimator, X)


def _warn_of_old_name():
    warnings.warn(
        "conditioning(estimator, X) is now measure_conditioning(estimator, X); the old name will "
        "be removed in the next release.",
        FutureWarning,
        stacklevel=3,
    )


class _CallableModule(ModuleType):
    """This module, which can be called as the function whose name it had."""

    def __call__(self, estimator, X):
        _warn_of_old_name()
        return measure_conditioning(estimator, X)


# ``from sklearn_restrans import conditioning`` gave the function; now it gives this module.
sys.modules[__name__].__class__ = _CallableModule
