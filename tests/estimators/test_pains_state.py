"""Pains of users of comparable packages, second part: seeds, the process, parallel runs, copies.

Each docstring names the symptom and where it was reported.
"""

import copy
import io
import json
import os
import pickle
import pickletools
import random
import subprocess
import sys
from pathlib import Path

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from smallmodels import ESTIMATORS, SMALL, Interrupt, option_values, outputs, table

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerRegressor,
)

ROOT = Path(__file__).resolve().parents[2]


# -- chance and the caller's state -----------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("settings", [{}, {"dropout": 0.3, "early_stopping": True}])
def test_equal_seeds_give_equal_bits(estimator, settings):
    """skorch #33 #280 #522, sktime #10056: no random_state, so two fits differ."""
    X, y = table(estimator)
    model = estimator(**SMALL, **settings)
    expected = outputs(clone(model).fit(X, y), X)
    torch.rand(3), np.random.random(), random.random()  # noqa: NPY002  the legacy global generator
    np.testing.assert_array_equal(outputs(clone(model).fit(X, y), X), expected)
    instance = clone(model).set_params(random_state=np.random.RandomState(0))
    assert np.isfinite(outputs(instance.fit(X, y), X)).all()
    unseeded = clone(model).set_params(random_state=None)
    first, second = (outputs(unseeded.fit(X, y), X) for _ in range(2))
    assert (first != second).any()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("settings", [{}, {"dropout": 0.3, "early_stopping": True}])
def test_a_second_fit_is_a_fresh_fit(estimator, settings):
    """darts #1889 #2033, neuralforecast #570 #1217: random state stays on the object."""
    X, y = table(estimator)
    other_X, other_y = table(estimator, n=40, seed=1)
    model = estimator(**SMALL, **settings)
    again = clone(model).fit(other_X[:, :3], other_y).fit(X, y)
    fresh = clone(model).fit(X, y)
    np.testing.assert_array_equal(outputs(again, X), outputs(fresh, X))
    assert again.loss_curve_ == fresh.loss_curve_
    np.testing.assert_array_equal(again.conditioning_.sigma_min, fresh.conditioning_.sigma_min)


def state_of_the_process():
    """All that a call to fit or predict could change behind the caller's back."""
    return (
        torch.get_rng_state().tolist(),
        repr(np.random.get_state()),  # noqa: NPY002  the legacy global generator
        random.getstate(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        np.geterr(),
        os.getcwd(),
        dict(os.environ),
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_process_is_as_it_was(estimator):
    """pytorch #39716, DeepTab #452: fit advances or seeds the global generators."""
    X, y = table(estimator)
    before = state_of_the_process()
    threads = torch.get_num_threads()
    for random_state in (0, None):
        model = estimator(
            dropout=0.3,
            early_stopping=True,
            n_threads=threads + 1,
            conditioning_interval=1,
            **SMALL | {"random_state": random_state, "max_iter": 1},
        )
        assert state_of_the_process() == before
        model.fit(X, y)
        assert state_of_the_process() == before
        outputs(model, X)
        model.score(X, y)
        assert state_of_the_process() == before
        outputs(pickle.loads(pickle.dumps(copy.deepcopy(model))), X)
        assert state_of_the_process() == before
        for settings, error in (
            ({"learning_rate_init": 1e30, "solver": "sgd", "max_iter": 9}, DivergenceError),
            ({"callbacks": [Interrupt()]}, KeyboardInterrupt),
        ):
            with pytest.raises(error):
                clone(model).set_params(**settings).fit(X, y)
            assert state_of_the_process() == before


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_file_is_written(estimator, tmp_path, monkeypatch):
    """aeon #3595 #321, pytabkit: checkpoints litter the folder and clash in parallel runs."""
    X, y = table(estimator)
    monkeypatch.chdir(tmp_path)
    opened = []
    builtin_open = io.open

    def spy(file, mode="r", *args, **kwargs):
        opened.append((file, mode))
        return builtin_open(file, mode, *args, **kwargs)

    monkeypatch.setattr("builtins.open", spy)
    model = estimator(early_stopping=True, warm_start=True, verbose=1, **SMALL)
    outputs(model.fit(X, y).fit(X, y), X)
    assert [file for file, mode in opened if set(mode) & set("wax+")] == []
    assert list(tmp_path.iterdir()) == []


# -- in parallel -----------------------------------------------------------------------------------

SCRIPT = """
import json
import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback
from sklearn_restrans import ResidualTransformerRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((120, 4))
y = 1000 * X[:, 0] + 100 * X[:, 1]
found = {}
for n_jobs in (1, 2):
    search = GridSearchCV(
        ResidualTransformerRegressor(d_model=8, max_iter=5, random_state=0),
        {"residual_beta": [0.0, 0.5, 1.0]}, cv=2, n_jobs=n_jobs, error_score="raise",
        scoring="neg_mean_absolute_error",
    ).fit(X, y)
    found[n_jobs] = [search.cv_results_[f"split{i}_test_score"].tolist() for i in range(2)]
print(json.dumps([found[1], found[2], torch.get_num_threads()]))
"""


def test_a_search_with_two_processes_from_a_plain_script(tmp_path):
    """skorch #93 #714, keras #7553, joblib #940: forked workers die, or score otherwise.

    The script has no ``if __name__ == "__main__"``.
    """
    (tmp_path / "search.py").write_text(SCRIPT)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "error", "search.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    alone, together, _ = json.loads(done.stdout)
    # Kernels for one and for several threads sum in other orders; float64, five epochs.
    np.testing.assert_allclose(together, alone, rtol=1e-8)
    assert len({round(score, 6) for fold in alone for score in fold}) == 6


# -- copies on disk and elsewhere ------------------------------------------------------------------


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "pickle, protocol 2": lambda model: pickle.loads(pickle.dumps(model, protocol=2)),
    "joblib": through_joblib,
    "cloudpickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_copies_of_every_option(estimator, capsys):
    """pytabkit #11, aeon #1158, DeepTab #449 #424: an option is not picklable, or state is lost."""
    X, y = table(estimator)
    for name, value in option_values(estimator):
        settings = SMALL | {"max_iter": 1, name: value}
        if name == "learning_rate_init":  # "auto"
            settings["solver"] = "sgd"
        is_token = name == "embedding" and value == "token"
        data = 1 + np.abs(X).astype(int) if is_token else X
        model = estimator(**settings).fit(data, y)
        for how, through in COPIES.items():
            copied = through(model)
            message = f"{name}={value!r} through {how}"
            assert np.array_equal(outputs(copied, data), outputs(model, data)), message
            assert vars(copied).keys() == vars(model).keys(), message
            assert copied.loss_curve_ == model.loss_curve_, message
            assert copied.history_.equals(model.history_), message
            assert copied.get_params().keys() == model.get_params().keys(), message
            rows = [pd.DataFrame(each.net_.history.to_list()) for each in (copied, model)]
            assert rows[0].equals(rows[1]), message


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_unfitted_copy_is_unfitted(estimator):
    """DeepTab #424: pickling before fit fails."""
    for how, through in COPIES.items():
        copied = through(estimator(0.5, d_model=4))
        assert (copied.residual_beta, copied.d_model, hasattr(copied, "net_")) == (0.5, 4, False), (
            how
        )


def pickled_names(data):
    """Module and name of everything that loading a pickle imports, from its opcodes alone."""
    strings, memo, names, last = [], {}, [], None
    for opcode, arg, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            names.append(tuple(arg.split(" ")))
        elif opcode.name == "STACK_GLOBAL":
            names.append((strings[-2], strings[-1]))
        elif opcode.name == "MEMOIZE":
            memo[len(memo)] = last
        elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(memo.get(arg), str):
            strings.append(memo[arg])
        last = arg if isinstance(arg, str) else None
        if "UNICODE" in opcode.name:
            strings.append(arg)
    return names, strings


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_pickle_holds_arrays_and_no_torch(estimator, warm_start):
    """skorch #70 #426 #1096, darts #2687 #2751: a model fitted on CUDA does not load without."""
    X, y = table(estimator)
    model = estimator(warm_start=warm_start, early_stopping=True, **SMALL).fit(X, y)
    names, strings = pickled_names(pickle.dumps(model))
    modules = {module.split(".")[0] for module, _ in names}
    assert {"sklearn_restrans", "numpy"} <= modules
    assert modules <= {"sklearn_restrans", "numpy", "pandas", "builtins", "copyreg", "_codecs"}
    assert not [text for text in strings if "cuda" in text or "torch" in text or "skorch" in text]
    # the walk itself sees torch where there is torch
    assert any(
        module.startswith("torch") for module, _ in pickled_names(pickle.dumps(model.net_))[0]
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_model_from_cuda_loads_where_there_is_none(estimator, monkeypatch):
    """skorch #354, neural_prophet #1406: unpickling asks for the device of the fit."""
    X, y = table(estimator)
    model = estimator(device="auto", **SMALL).fit(X, y)
    state = copy.deepcopy(model.__getstate__())
    state["_net_state"]["settings"]["device"] = state["device_"] = "cuda:3"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loaded = estimator()
    loaded.__setstate__(state)
    assert loaded.device_ == "cpu"
    np.testing.assert_array_equal(outputs(loaded, X), outputs(model, X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("solver", "learning_rate"),
    [(solver, rate) for solver in ("adamw", "adam", "sgd") for rate in ("constant", "one_cycle")]
    + [("gd", "constant")],
)
def test_training_goes_on_after_loading(estimator, solver, learning_rate):
    """aeon #1158: saving loses the state of the optimiser, so that training restarts cold."""
    X, y = table(estimator)
    model = estimator(warm_start=True, solver=solver, learning_rate=learning_rate, **SMALL)
    model.fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(loaded.fit(X, y), X), outputs(model.fit(X, y), X))
    assert loaded.loss_curve_ == model.loss_curve_
    assert len(loaded.loss_curve_) == 6


def test_verbose_survives_loading(capsys):
    """sktime #9612 #8659: verbose works in one estimator, or one state, only."""
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(verbose=1, warm_start=True, **SMALL).fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    capsys.readouterr()
    loaded.fit(X, y)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["4", "5", "6"]
