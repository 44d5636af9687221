"""One test file a module, and no module or function that does not fit on a few screens."""

import ast
from pathlib import Path

import sklearn_restrans

PACKAGE = Path(sklearn_restrans.__file__).parent
TESTS = Path(__file__).parent

# Modules whose name another room has too, and the module that gives old names: test files share one
# namespace, so that their names must differ.
OTHER_NAMES = {
    "_estimators.candidates": "test_estimator_candidates",
    "_model.candidates": "test_model_candidates",
    "conditioning": "test_old_names",
    "plotting.attention": "test_plot_attention",
    "plotting.beta_path": "test_plot_beta_path",
    "plotting.intervals": "test_plot_intervals",
    "theory.collapse": "test_theory_collapse",
    "theory.constants": "test_theory_constants",
    "theory.descent": "test_theory_descent",
    "theory.gauss_newton": "test_theory_gauss_newton",
    "theory.numbers": "test_theory_numbers",
}
LONGEST_MODULE = 450
LONGEST_FUNCTION = 60


def code_of_modules():
    """Dotted name and text of every module but the ``__init__`` files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.stem != "__init__":
            name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            yield name, path.read_text(encoding="utf-8")


SOURCES = dict(code_of_modules())
TEST_FILES = [path.relative_to(TESTS) for path in sorted(TESTS.rglob("test_*.py"))]


def defines_something(source):
    """Whether there is anything to test: a module of imports alone has no behaviour of its own."""
    defined = ast.FunctionDef | ast.ClassDef
    return any(isinstance(node, defined) for node in ast.parse(source).body)


def expected_test(module):
    """Path of the test file of a module, in the folder of its room."""
    room, _, name = module.rpartition(".")
    stem = OTHER_NAMES.get(module, f"test_{name.strip('_')}")
    return Path(room.strip("_")) / f"{stem}.py"


def lines_of_code(function, source):
    """Lines of a function without its docstring, comments and empty lines."""
    first = function.body[0]
    skipped = set()
    if ast.get_docstring(function) is not None:
        skipped = set(range(first.lineno, first.end_lineno + 1))
    lines = source.splitlines()
    return sum(
        bool(lines[number - 1].strip()) and not lines[number - 1].strip().startswith("#")
        for number in range(function.lineno, function.end_lineno + 1)
        if number not in skipped
    )


def test_every_module_has_its_test_file():
    modules = [name for name, source in SOURCES.items() if defines_something(source)]
    assert "_model.transformer" in modules, f"this is not the package: {PACKAGE}"
    expected = {name: expected_test(name) for name in modules}
    assert {name: path for name, path in expected.items() if path not in TEST_FILES} == {}


def test_no_two_test_files_share_a_name():
    names = [path.name for path in TEST_FILES]
    assert sorted(names) == sorted(set(names))


def test_a_module_fits_on_a_few_screens():
    lengths = {name: len(source.splitlines()) for name, source in SOURCES.items()}
    assert {name: n for name, n in lengths.items() if n > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_a_screen():
    lengths = {
        f"{name}.{node.name}": lines_of_code(node, source)
        for name, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def test_lines_of_code_are_those_that_say_something():
    source = 'def f():\n    """Doc.\n\n    More.\n    """\n    # why\n\n    return 1\n'
    assert lines_of_code(ast.parse(source).body[0], source) == 2
    assert not defines_something("from os import path\n\n__all__ = ['path']\n")
