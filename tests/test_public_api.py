"""What a user can import, and the form every estimator's constructor has."""

import importlib
import inspect
import pkgutil
from types import FunctionType, ModuleType
from typing import Any

import pytest
from packaging.version import Version
from sklearn.base import BaseEstimator

import sklearn_restrans

MAX_PARAMETERS = 36  # design.md: more, and nobody reads them
SEARCH_PARAMETERS = 5  # cv, scoring, refit, n_seeds, n_jobs; betas stands for residual_beta


def public_modules() -> list[ModuleType]:
    """The package and its modules whose names have no leading underscore."""
    names = [info.name for info in pkgutil.iter_modules(sklearn_restrans.__path__)]
    public = [name for name in names if not name.startswith("_")]
    return [sklearn_restrans] + [
        importlib.import_module(f"sklearn_restrans.{name}") for name in public
    ]


def public_objects() -> dict[str, Any]:
    """Every class and function in an ``__all__``, once, by the first name it is found under."""
    found: dict[str, Any] = {}
    for module in public_modules():
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if isinstance(thing, type | FunctionType) and thing not in found.values():
                found[f"{module.__name__.removeprefix('sklearn_restrans.')}.{name}"] = thing
    return found


PUBLIC = public_objects()
ESTIMATORS = {
    name: thing
    for name, thing in PUBLIC.items()
    if isinstance(thing, type) and issubclass(thing, BaseEstimator)
}
NETWORKS = {
    name: thing
    for name, thing in ESTIMATORS.items()
    if "residual_beta" in inspect.signature(thing).parameters
}


def parameters_of(thing: Any) -> list[inspect.Parameter]:
    """Parameters of a call, without self."""
    return list(inspect.signature(thing).parameters.values())


def constructor_faults(estimator: type[BaseEstimator]) -> list[str]:
    """What the constructor does beside storing its arguments, or how it could be misread."""
    parameters = parameters_of(estimator)
    inherited = estimator.__init__.__module__.startswith("sklearn.")  # its signature is theirs
    faults = [
        f"{parameter.name} is not keyword-only"
        for parameter in parameters[1:]
        if parameter.name != "residual_beta"
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and not inherited
    ]
    allowed = MAX_PARAMETERS + SEARCH_PARAMETERS * estimator.__name__.endswith("CV")
    if len(parameters) > allowed:
        faults.append(f"{len(parameters)} parameters, at most {allowed} are allowed")
    given = {parameter.name: object() for parameter in parameters}
    try:
        stored = vars(estimator(**given))
    except Exception as error:
        return [*faults, f"the constructor works on its arguments: {error!r}"]
    faults += [
        f"{name} is not stored as given" for name in given if stored.get(name) != given[name]
    ]
    faults += [
        f"{name} is stored but is not a parameter" for name in sorted(set(stored) - set(given))
    ]
    return faults


def test_the_two_estimators_are_public():
    assert {"ResidualTransformerRegressor", "ResidualTransformerClassifier"} <= {
        thing.__name__ for thing in NETWORKS.values()
    }


def test_the_version_is_one():
    assert str(Version(sklearn_restrans.__version__)) == sklearn_restrans.__version__


@pytest.mark.parametrize("module", public_modules(), ids=lambda module: module.__name__)
def test_all_is_sorted_complete_and_importable(module):
    names = getattr(module, "__all__", ())
    assert names, "__all__ is missing or empty"
    assert list(names) == sorted(set(names))
    for name in names:
        assert hasattr(module, name), f"{name} is in __all__ but does not exist"
    own = {
        name
        for name, thing in vars(module).items()
        if isinstance(thing, type | FunctionType)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert own <= set(names), f"neither private nor in __all__: {sorted(own - set(names))}"


@pytest.mark.parametrize("name", PUBLIC)
def test_no_open_ended_signatures(name):
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    assert [p.name for p in parameters_of(PUBLIC[name]) if p.kind in open_ended] == []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_constructor_only_stores_keyword_arguments(name):
    assert constructor_faults(ESTIMATORS[name]) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_residual_beta_comes_first(name):
    names = list(inspect.signature(NETWORKS[name]).parameters)
    assert names[names[0] == "model"] == "residual_beta"  # after the checkpoint where one is named


class Good(BaseEstimator):
    def __init__(self, residual_beta=1.0, *, n_layers=1):
        self.residual_beta = residual_beta
        self.n_layers = n_layers


class Positional(BaseEstimator):
    def __init__(self, residual_beta=1.0, n_layers=1):
        self.residual_beta = residual_beta
        self.n_layers = n_layers


class Converting(BaseEstimator):
    def __init__(self, residual_beta=1.0):
        self.residual_beta = float(residual_beta)


class Copying(BaseEstimator):
    def __init__(self, residual_beta=1.0):
        self.residual_beta = [residual_beta]


class Storing(BaseEstimator):
    def __init__(self, residual_beta=1.0):
        self.residual_beta = residual_beta
        self.cache = {}


@pytest.mark.parametrize(
    ("estimator", "fault"),
    [
        (Positional, "n_layers is not keyword-only"),
        (Converting, "works on its arguments"),
        (Copying, "residual_beta is not stored as given"),
        (Storing, "cache is stored but is not a parameter"),
    ],
)
def test_a_bad_constructor_is_seen(estimator, fault):
    assert constructor_faults(Good) == []
    assert any(fault in sentence for sentence in constructor_faults(estimator))
