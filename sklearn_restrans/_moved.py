"""Old module names, which pickles and imports of earlier versions ask for: a sentence for each."""

import sys
from types import ModuleType

# Module that is no longer there -> the public names it had.
_OLD_MODULES = {
    "regressor": ("ResidualTransformerRegressor",),
    "classifier": ("ResidualTransformerClassifier",),
    "regressor_cv": ("ResidualTransformerRegressorCV",),
    "classifier_cv": ("ResidualTransformerClassifierCV",),
    "ensemble": ("SeedEnsembleClassifier", "SeedEnsembleRegressor"),
    "beta_path": ("BetaPath", "residual_beta_path"),
    "inspection": ("channel_importance",),
    "_views": ("SequenceView",),
    "_grid_search": ("StackedGridSearchCV",),
    "_certificate": ("LinearConvergenceCertificate", "certify_linear_convergence"),
    "_linearized": (
        "LinearizedPrediction",
        "ResidualBetaSuggestion",
        "linearized_prediction",
        "suggest_residual_beta",
    ),
    "_calendar": ("CalendarFeatures",),
    "_naive": ("PersistenceRegressor", "SeasonalNaiveRegressor"),
}
_PLACES = {"_calendar": "sklearn_restrans.forecasting", "_naive": "sklearn_restrans.forecasting"}


class _MovedModule(ModuleType):
    """Stands in for a module that is no longer there, and says where its names are."""

    def __init__(self, name, names, place):
        super().__init__(name)
        self._names, self._place = names, place

    def __getattr__(self, name):
        if name not in self._names:  # code that scans all modules expects this error
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise ImportError(
            f"{self.__name__}.{name} has moved: import it from {self._place}. A pickle that asks "
            "for it was made by an earlier version, whose objects this one cannot read: load it "
            "with that version, or make it again."
        )


def _register_old_names(package):
    for module, names in _OLD_MODULES.items():
        full = f"{package}.{module}"
        place = _PLACES.get(module, package)
        sys.modules.setdefault(full, _MovedModule(full, names, place))


_register_old_names(__name__.rpartition(".")[0])
