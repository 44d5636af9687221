"""Every example is a lesson of the course: numbered, titled, and written with public names only.

The files are read, not run.
"""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LESSONS = {path.stem: path for path in sorted(EXAMPLES.glob("*.py")) if path.stem != "_shared"}
PACKAGE = "sklearn_restrans"


def imported(tree):
    """Pairs (module, name) of everything that is imported; the name is None for a whole module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)


def of_the_package(tree):
    """Pairs (module, name) that are imported from this package."""
    return [
        (module, name)
        for module, name in imported(tree)
        if module is not None and module.split(".")[0] == PACKAGE
    ]


def faults_of(number, text):
    """What keeps a file from being lesson ``number`` of the course."""
    tree = ast.parse(text)
    faults = []
    lines = (ast.get_docstring(tree) or "").splitlines() or [""]
    if not lines[0].startswith(f"{number}. "):
        faults.append(f"the docstring must begin with '{number}. ' and a title, got {lines[0]!r}")
    elif lines[1:2] != ["=" * len(lines[0])]:
        faults.append("the title must be underlined over its whole length")
    for module, name in of_the_package(tree):
        private = any(part.startswith("_") for part in [*module.split("."), name or ""])
        listed = name in public_names(module)
        if private or not listed:
            faults.append(f"imports {name} from {module}, which is not public")
    used = {name for module, name in imported(tree) if module == "_shared"}
    if not {"command_line", "save", "finish"} <= used:
        faults.append(f"must import command_line, save and finish from _shared, got {sorted(used)}")
    last = tree.body[-1] if tree.body else None
    ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    if not ends or getattr(last.value.func, "id", "") != "finish":
        faults.append("must end with finish(...), which prints what was found")
    return faults + [f"uses the private name {name}" for name in private_attributes(tree)]


def public_names(module):
    return getattr(importlib.import_module(module), "__all__", ())


def private_attributes(tree):
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return [name for name in names if name.startswith("_") and not name.startswith("__")]


def unknown_keywords(text):
    """Keywords in calls of this package's public names that their signatures do not have."""
    tree = ast.parse(text)
    things = {
        name: getattr(importlib.import_module(module), name)
        for module, name in of_the_package(tree)
        if name is not None
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in things:
            known = inspect.signature(things[node.func.id]).parameters
            given = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
            found += [f"{node.func.id}({name}=...)" for name in given if name not in known]
    return found


def test_the_course_is_numbered_without_a_hole():
    numbers = [int(stem.split("_")[1]) for stem in LESSONS]
    assert numbers == list(range(1, len(LESSONS) + 1)) and len(LESSONS) >= 9
    assert all(stem.startswith("plot_") for stem in LESSONS)


@pytest.mark.parametrize("stem", LESSONS)
def test_an_example_is_a_lesson_written_with_public_names(stem):
    text = LESSONS[stem].read_text(encoding="utf-8")
    assert faults_of(int(stem.split("_")[1]), text) == []


@pytest.mark.parametrize("stem", [*LESSONS, "_shared"])
def test_an_example_passes_only_parameters_that_exist(stem):
    assert unknown_keywords((EXAMPLES / f"{stem}.py").read_text(encoding="utf-8")) == []


GOOD = '''"""
1. A title
==========
"""
from _shared import command_line, finish, save
from sklearn_restrans import ResidualTransformerRegressor
finish(None, None, "3")
'''


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("1. A title", "A title", "must begin with '1. '"),
        ("==========", "====", "underlined"),
        ("import ResidualTransformerRegressor", "import _core", "imports _core from"),
        (
            "from sklearn_restrans",
            "from sklearn_restrans._model.transformer",
            "which is not public",
        ),
        ("import ResidualTransformerRegressor", "import clone", "imports clone from"),
        ("from _shared import command_line, finish, save\n", "", "must import command_line"),
        ('finish(None, None, "3")', "print(3)", "must end with finish"),
        ("finish(None", "finish(None._fits", "uses the private name _fits"),
    ],
)
def test_a_file_outside_the_course_is_found(old, new, fault):
    assert faults_of(1, GOOD) == []
    assert old in GOOD
    assert any(fault in found for found in faults_of(1, GOOD.replace(old, new)))


def test_a_keyword_that_an_estimator_lacks_is_found():
    call = "ResidualTransformerRegressor(max_iter=3, epochs=3)"
    assert unknown_keywords(GOOD + call) == ["ResidualTransformerRegressor(epochs=...)"]
