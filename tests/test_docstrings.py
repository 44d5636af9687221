"""Docstrings say what the code does: parameters, their order and defaults, results, examples."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpydoc.docscrape import NumpyDocString
from sklearn.base import BaseEstimator, is_classifier
from test_public_api import ESTIMATORS, NETWORKS, PUBLIC

import sklearn_restrans

PREFIX = "sklearn_restrans"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# ---- reading docstrings and code ------------------------------------------------------------


def entries(sections: NumpyDocString, title: str) -> Iterator[tuple[str, str, str]]:
    """(name, type, description) of a section; ``X, y : array`` counts as two."""
    for entry in sections[title]:
        for name in entry.name.split(","):
            yield name.strip().lstrip("*"), entry.type, " ".join(entry.desc)


def same_default(written: str, actual: Any) -> bool:
    """Whether the text after ``default=`` means `actual`, type included (1 is not 1.0)."""
    try:
        value = ast.literal_eval(written)
    except (SyntaxError, ValueError):
        return written in (repr(actual), getattr(actual, "__name__", None))
    return type(value) is type(actual) and value == actual


def returned(function: FunctionType) -> str | None:
    """The section that a function's result needs: "Returns", "Yields" or None."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    results, left = [], list(ast.iter_child_nodes(tree))
    while left:  # every node but those of functions and classes defined inside
        node = left.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return "Yields"
        if isinstance(node, ast.Return) and node.value is not None:
            results.append(ast.unparse(node.value))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return "Returns" if set(results) - {"None"} else None


def own_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class that this package defines, inherited ones too."""
    seen = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith(("sklearn_restrans", __name__)):
            continue
        for name, member in vars(owner).items():
            plain = getattr(member, "__func__", member)  # of a class or static method
            if isinstance(plain, property | FunctionType) and not name.startswith("_"):
                if name not in seen:
                    yield name, plain
                seen.add(name)


# ---- rules ----------------------------------------------------------------------------------


def parameter_faults(thing: Any, sections: NumpyDocString, title: str) -> Iterator[str]:
    """Differences between the signature and one section of the docstring."""
    actual = {
        name: parameter
        for name, parameter in inspect.signature(thing).parameters.items()
        if name not in ("self", "cls")
    }
    documented = {name: rest for name, *rest in entries(sections, title)}
    if title == "Attributes":  # of a result object: its fields, and more
        documented = {name: rest for name, rest in documented.items() if name in actual}
    if list(documented) != list(actual):
        yield f"documents the parameters {list(documented)}, takes {list(actual)}"
    for name in actual.keys() & documented.keys():
        kind, description = documented[name]
        default = actual[name].default
        written = re.search(r"default\s*=\s*(.+)$", kind)
        if not kind or not description:
            yield f"{name}: type or description is missing"
        elif title == "Attributes":
            continue
        elif (written is None) != (default is inspect.Parameter.empty):
            yield f"{name}: the signature and the docstring differ in whether it has a default"
        elif written and not same_default(written.group(1), default):
            yield f"{name}: documented default {written.group(1)}, actual {default!r}"


def function_faults(function: FunctionType) -> Iterator[str]:
    """Faults in the docstring of a function or method."""
    text = inspect.getdoc(function)
    if not text:
        yield "has no docstring"
        return
    sections = NumpyDocString(text)
    yield from parameter_faults(function, sections, "Parameters")
    needed = returned(function)
    for section in ("Returns", "Yields"):
        if bool(sections[section]) != (section == needed):
            yield f"section {section} is {'missing' if section == needed else 'wrong'}"


def class_faults(cls: type) -> Iterator[str]:
    """Faults in the docstring of a class and of its methods and properties."""
    text = vars(cls).get("__doc__")
    if not text or text.startswith(f"{cls.__name__}("):  # the second is made by dataclass
        yield "has no docstring"
        return
    sections = NumpyDocString(inspect.cleandoc(text))
    is_estimator = issubclass(cls, BaseEstimator)
    in_parameters = is_estimator or sections["Parameters"]
    yield from parameter_faults(cls, sections, "Parameters" if in_parameters else "Attributes")
    if is_estimator and not sections["Attributes"]:
        yield "section Attributes is missing"
    named = {
        name for title in ("Parameters", "Attributes") for name, *_ in entries(sections, title)
    }
    for name, member in own_members(cls):
        if isinstance(member, property):
            if name not in named and not inspect.getdoc(member):
                yield f"{name} has no docstring"
        else:
            yield from (f"{name}: {fault}" for fault in function_faults(member))


def faults(thing: Any) -> list[str]:
    """Everything wrong with the docstring of a public class or function."""
    found = list(class_faults(thing) if isinstance(thing, type) else function_faults(thing))
    if not doctest.DocTestParser().get_examples(inspect.getdoc(thing) or ""):
        found.append("has no runnable example")
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_agrees_with_the_code(name):
    found = faults(PUBLIC[name])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NETWORKS)
def test_documented_attributes_are_the_fitted_ones(name, seed, checkpoints):
    cls = NETWORKS[name]
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    y = X["a"] > 0 if is_classifier(cls()) else X["a"]
    settings = {"max_iter": 2, "random_state": seed, "early_stopping": False}
    if "model" in cls().get_params():
        settings["model"], X = checkpoints("bert"), ["good film", "bad film", "a song", "film"] * 10
    settings = {key: value for key, value in settings.items() if key in cls().get_params()}
    attributes = entries(NumpyDocString(inspect.cleandoc(cls.__doc__)), "Attributes")
    documented = {attribute for attribute, *_ in attributes}
    plain = stopped = cls(**settings).fit(X, y)
    if "early_stopping" in settings:
        stopped = cls(**settings | {"early_stopping": True}).fit(X, y)
    fitted = {key for model in (plain, stopped) for key in vars(model) if not key.startswith("_")}
    assert fitted - set(plain.get_params()) <= documented
    assert {
        key for key in documented if not (hasattr(plain, key) or hasattr(stopped, key))
    } == set()


# ---- examples -------------------------------------------------------------------------------


def all_examples() -> dict[str, doctest.DocTest]:
    """Every docstring with an example, private modules included."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    names = [info.name for info in pkgutil.walk_packages(sklearn_restrans.__path__, f"{PREFIX}.")]
    for name in [PREFIX, *names]:
        module = importlib.import_module(name)
        found.update({test.name: test for test in finder.find(module) if test.examples})
    return found


EXAMPLES = all_examples()


def test_examples_were_found():
    assert len(EXAMPLES) >= len(ESTIMATORS) >= 2


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_as_printed(name):
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(EXAMPLES[name], out=printed.append)
    assert result.attempted
    assert not result.failed, "".join(printed)


# ---- the rules themselves -------------------------------------------------------------------


def good(X, scale=1.0, *, kind="a"):
    """Scale X.

    Parameters
    ----------
    X : array-like
        Values.
    scale : float, default=1.0
        Factor.
    kind : {'a', 'b'}, default='a'
        Way.

    Returns
    -------
    ndarray
        The scaled values.

    Examples
    --------
    >>> 1 + 1
    2
    """
    return scale * X


@dataclasses.dataclass
class GoodResult:
    """A result.

    Attributes
    ----------
    rank : int
        The rank.

    Examples
    --------
    >>> 1 + 1
    2
    """

    rank: int

    @property
    def twice(self):
        """Twice the rank."""
        return 2 * self.rank

    def to_list(self):
        """The result as a list.

        Returns
        -------
        list
            The rank alone.
        """
        return [self.rank]


class GoodTuple(NamedTuple):
    """A pair.

    Attributes
    ----------
    rank, size : int
        Numbers.

    Examples
    --------
    >>> 1 + 1
    2
    """

    rank: int
    size: int


class GoodEstimator(BaseEstimator):
    """An estimator.

    Parameters
    ----------
    residual_beta : float, default=1.0
        Coefficient.

    Attributes
    ----------
    n_iter_ : int
        Epochs.

    Examples
    --------
    >>> 1 + 1
    2
    """

    def __init__(self, residual_beta=1.0):
        self.residual_beta = residual_beta


@pytest.mark.parametrize("thing", [good, GoodResult, GoodTuple, GoodEstimator])
def test_a_good_docstring_passes(thing):
    assert faults(thing) == []


def redocumented(thing: Any, old: str, new: str) -> Any:
    """A copy of `thing` with another docstring, its source still to be found."""
    assert old in thing.__doc__, "the change changes nothing"
    text = thing.__doc__.replace(old, new)
    if isinstance(thing, type):
        copy = type(thing.__name__, thing.__bases__, dict(vars(thing)))
    else:
        copy = FunctionType(thing.__code__, globals(), thing.__name__, thing.__defaults__)
        copy.__kwdefaults__ = thing.__kwdefaults__
    copy.__doc__ = text
    return copy


@pytest.mark.parametrize(
    ("thing", "old", "new", "fault"),
    [
        (good, good.__doc__, "", "has no docstring"),
        (good, "scale : float, default=1.0\n        Factor.\n", "", "documents the parameters"),
        (good, "kind :", "sort :", "documents the parameters"),
        (good, "X :", "kind :", "documents the parameters"),
        (good, "default=1.0", "default=2.0", "documented default 2.0, actual 1.0"),
        (good, "default=1.0", "default=1", "documented default 1, actual 1.0"),
        (good, "default='a'", "default='b'", "documented default 'b'"),
        (good, ", default='a'", ", optional", "whether it has a default"),
        (good, "array-like", "array-like, default=None", "whether it has a default"),
        (good, "        Factor.\n", "", "type or description is missing"),
        (good, "Returns\n    -------", "Yields\n    ------", "section Returns is missing"),
        (good, ">>> 1 + 1\n    2", "Call it.", "no runnable example"),
        (
            GoodResult,
            "rank : int\n        The rank.",
            "size : int\n        S.",
            "documents the parameters",
        ),
        (GoodEstimator, "residual_beta :", "beta :", "documents the parameters"),
        (GoodEstimator, "default=1.0", "default=0.5", "documented default 0.5, actual 1.0"),
        (GoodEstimator, "Attributes\n    ----------", "Notes\n    -----", "Attributes is missing"),
    ],
)
def test_a_bad_docstring_is_seen(thing, old, new, fault):
    assert any(fault in sentence for sentence in faults(redocumented(thing, old, new)))


def test_a_wrong_example_is_seen():
    example = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner(optionflags=FLAGS).run(example, out=lambda text: None).failed == 1
