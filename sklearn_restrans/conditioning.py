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
    module_conditioning,
)

__all__ = [
    "Conditioning",
    "LayerTrace",
    "MatrixConditioning",
    "conditioning_from_traces",
    "measure_conditioning",
    "module_conditioning",
]


class _CallableModule(ModuleType):
    """This module, with the function that had its name."""

    def conditioning(self, estimator, X):
        """Old name of :func:`measure_conditioning`."""
        warnings.warn(
            "conditioning(estimator, X) is now measure_conditioning(estimator, X); the old name "
            "will be removed in the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return measure_conditioning(estimator, X)

    __call__ = conditioning


# ``from sklearn_restrans import conditioning`` gave the function; now it gives this module.
sys.modules[__name__].__class__ = _CallableModule
