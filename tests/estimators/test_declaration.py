"""One declaration reaches the signature, the constraints and the docstring of every estimator."""

import inspect
import pickle
from typing import ClassVar

import pytest
from sklearn.base import BaseEstimator, clone

import sklearn_restrans
from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
)
from sklearn_restrans._estimators.declaration import declared, parameter, parameter_names

DECLARED = [
    ResidualTransformerRegressor,
    ResidualTransformerClassifier,
    ResidualTransformerRegressorCV,
    ResidualTransformerClassifierCV,
]

# ---- a toy ---------------------------------------------------------------------------------------


@declared
class Coarse:
    """A part that others inherit."""

    grain: int = parameter(3, "int", ["a constraint"], "Size of a grain.")
    _attributes: ClassVar = {"size_": ("int", "Size found."), "shape_": ("tuple", "Shape found.")}


@declared
class Toy(Coarse, BaseEstimator):
    """Does nothing.

    {parameters}

    {attributes}
    """

    name: str = parameter("a", '{"a", "b"}', [str], "A name. " + 20 * "long ", kw_only=False)
    _attributes: ClassVar = {"shape_": ("tuple", None), "names_": ("list", "Names found.")}


def test_the_signature_is_the_declaration():
    """What may be passed by position comes first, whatever class declared it."""
    parameters = inspect.signature(Toy).parameters.values()
    assert [(p.name, p.default, p.kind.name) for p in parameters] == [
        ("name", "a", "POSITIONAL_OR_KEYWORD"),
        ("grain", 3, "KEYWORD_ONLY"),
    ]
    assert Toy._parameter_constraints == {"name": [str], "grain": ["a constraint"]}


def test_the_docstring_has_sections_of_numpydoc():
    lines = [line.strip() for line in Toy.__doc__.splitlines()]
    start = lines.index("Parameters")
    assert lines[start + 1 : start + 3] == ["-" * 10, 'name : {"a", "b"}, default="a"']
    assert "grain : int, default=3" in lines and "Size of a grain." in lines
    assert max(map(len, Toy.__doc__.splitlines())) <= 100
    attributes = lines[lines.index("Attributes") :]
    assert attributes[2:6] == ["size_ : int", "Size found.", "names_ : list", "Names found."]
    assert "shape_ : tuple" not in attributes, "a text of None leaves out what a base has"


def test_no_default_is_left_on_the_class():
    assert not {"name", "grain"} & {*vars(Toy), *vars(Coarse)}
    assert vars(Toy()) == {"name": "a", "grain": 3}
    assert Toy() != Toy(), "equality stays that of objects"
    assert repr(Toy("b")) == "Toy(name='b')", "scikit-learn's repr"


# ---- the estimators ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", DECLARED)
def test_every_parameter_reaches_signature_constraints_and_docstring(estimator):
    fields = {}
    for base in reversed(estimator.__mro__):
        fields |= vars(base).get("_declared", {})
    parameters = inspect.signature(estimator).parameters
    assert fields.keys() == parameters.keys() == estimator._parameter_constraints.keys()
    assert parameter_names(estimator) == list(parameters)
    section = estimator.__doc__.partition("Attributes\n")[0]
    for name, field in fields.items():
        assert parameters[name].default == field.default
        assert estimator._parameter_constraints[name] == field.metadata["constraint"]
        assert f"\n    {name} : {field.metadata['kind']}, default=" in section
        assert not hasattr(estimator, name), (
            "a class attribute would hide that an instance lacks it"
        )
        assert field.metadata["text"].endswith((".", ")")), name


@pytest.mark.parametrize("estimator", DECLARED)
def test_attributes_of_the_bases_are_documented_too(estimator):
    section = estimator.__doc__.partition("Attributes\n")[2]
    assert "\n    net_ : " in section and section.count("\n    residual_beta_ : ") == 1
    assert ("\n    classes_ : " in section) == hasattr(estimator, "predict_proba")
    assert ("\n    cv_results_ : " in section) == estimator.__name__.endswith("CV")


@pytest.mark.parametrize("estimator", DECLARED)
def test_parameters_are_cloned_pickled_and_set_as_given(estimator):
    names = inspect.signature(estimator).parameters
    values = {name: f"value of {name}" for name in names}  # nothing is checked before fit
    model = estimator(**values)
    for same in (model, clone(model), pickle.loads(pickle.dumps(model))):
        assert same.get_params(deep=False) == values
    assert estimator().set_params(**values).get_params(deep=False) == values


def test_the_parameters_of_a_search_are_those_of_its_estimator_but_for_beta():
    for plain in (ResidualTransformerRegressor, ResidualTransformerClassifier):
        search = getattr(sklearn_restrans, plain.__name__ + "CV")
        own, of_search = (inspect.signature(cls).parameters for cls in (plain, search))
        assert own.keys() - of_search.keys() == {"residual_beta"}
        shared = own.keys() & of_search.keys()
        assert all(own[name].default == of_search[name].default for name in shared)
