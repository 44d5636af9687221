"""Old module names, which pickles and imports of earlier versions ask for: a sentence for each."""

import sys
from types import ModuleType

_OLD = ("regressor", "classifier", "regressor_cv", "classifier_cv", "ensemble", "beta_path")
_OLD_ELSEWHERE = {"inspection": "sklearn_restrans.diagnostics"}


class _MovedModule(ModuleType):
    """Stands in for a module that is no longer there, and says where its names are."""

    def __getattr__(self, name):
        if name.startswith("__"):  # what Python itself looks for
            raise AttributeError(name)
        place = _OLD_ELSEWHERE.get(self.__name__.rpartition(".")[2], "sklearn_restrans")
        raise ImportError(
            f"{self.__name__}.{name} has moved: import it from {place}. A pickle that asks for it "
            "was made by an earlier version, whose fitted models this one cannot read: load it "
            "with that version, or fit again."
        )


def register_old_names(package):
    """Make the old modules of a package importable, each as a sentence."""
    for name in (*_OLD, *_OLD_ELSEWHERE):
        sys.modules.setdefault(f"{package}.{name}", _MovedModule(f"{package}.{name}"))
