"""What belongs to the process stays as it was: random state, threads, warnings, environment.

Fits may run in several threads at once, in a process that has just begun, and in a forked child.
What concerns a whole process is tried in a new one.
"""

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import sklearn_restrans
from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
)
from sklearn_restrans._model.transformer import dropout

ROOT = Path(sklearn_restrans.__file__).parent.parent


def run_script(text, *options, timeout=240):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *options, "-c", text],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


# ---- random numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_is_that_of_torch_from_a_generator_of_its_own(p, dtype):
    x = torch.randn(30, 40, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = torch.get_rng_state()
    got = dropout(x, p, True, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        assert torch.equal(got, F.dropout(x, p, True))


def make_fits():
    """Fits with dropout, as functions without arguments that return predictions."""
    rng = np.random.default_rng(0)
    X, sequences = rng.standard_normal((90, 4)), rng.standard_normal((60, 9, 2))
    ids = rng.integers(2, 20, (70, 8))
    settings = {"dropout": 0.3, "d_model": 8, "max_iter": 4}

    def table(seed):
        model = ResidualTransformerRegressor(random_state=seed, **settings)
        return model.fit(X, X[:, 0]).predict(X)

    def classes(seed):
        model = ResidualTransformerClassifier(random_state=seed, n_layers=2, **settings)
        return model.fit(sequences, sequences[:, -1, 0] > 0).predict_proba(sequences)

    def texts(seed):
        model = ResidualTransformerClassifier(random_state=seed, embedding="token", **settings)
        return model.fit(ids, ids[:, 0] % 2).predict_proba(ids)

    def ensemble(seed):
        base = ResidualTransformerRegressor(**settings)
        return (
            SeedEnsembleRegressor(base, n_estimators=2, random_state=seed)
            .fit(X, X[:, 0])
            .predict(X)
        )

    return [lambda f=f, s=s: f(s) for f in (table, classes, texts, ensemble) for s in range(3)]


def random_states():
    numpys = np.random.get_state()  # noqa: NPY002  the global one on purpose
    return torch.get_rng_state().tolist(), numpys[1].tolist(), numpys[2], random.getstate()


def test_equal_seeds_give_equal_bits_serial_and_in_threads():
    fits, before = make_fits(), random_states()
    alone = [fit() for fit in fits]
    assert random_states() == before
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda fit: fit(), fits * 2))
    assert random_states() == before
    for one, other in zip(alone * 2, together, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(alone[0], alone[1]), "the seed does not matter"


# ---- threads ---------------------------------------------------------------------------------

STRESS = """
import os, sys, threading, time, warnings
import numpy as np, torch
from threadpoolctl import threadpool_info
from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path

torch.set_num_threads(3)

def in_new_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

def settings():
    pools = [(p["user_api"], p["num_threads"]) for p in threadpool_info()]
    return (torch.get_num_threads(), in_new_thread(torch.get_num_threads), pools, sys.stdout,
            sys.stderr, list(warnings.filters), warnings.showwarning, dict(os.environ),
            torch.get_rng_state().tolist(), torch.get_default_dtype(), os.getcwd())

X = np.random.default_rng(0).standard_normal((60, 4))
ResidualTransformerRegressor(max_iter=1).fit(X, X[:, 0])
before, faults = settings(), []

def work(number):
    own = 1 + number % 4
    torch.get_num_threads()  # torch forgets what was set before a thread first asked
    torch.set_num_threads(own)  # a setting of this thread, but also the default of later ones
    for turn, n_threads in enumerate((1, 2, None, 4, 1, 3)):
        time.sleep(0.002 * ((number * 7 + turn * 5) % 6))
        model = ResidualTransformerRegressor(
            d_model=8, max_iter=1 + number % 3, n_threads=n_threads, dropout=0.1, random_state=0
        )
        model.fit(X, X[:, 0]).predict(X)
        if turn == 2:
            residual_beta_path(X, X[:, 0], [0.0, 1.0], estimator=model, cv=2)
        if torch.get_num_threads() != own:
            faults.append((number, turn, own, torch.get_num_threads()))

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
torch.set_num_threads(3)
after = settings()
assert not faults, faults
for one, other in zip(before, after):
    assert one == other, (one, other)
print("as before")
"""


def test_fits_in_eight_threads_leave_every_setting_as_it_was():
    assert run_script(STRESS) == "as before\n"


FRESH = """
import threading, torch
import numpy as np
from sklearn_restrans import ResidualTransformerRegressor
torch.set_num_threads(2)
X = np.random.default_rng(0).standard_normal((60, 4))

def fits():
    # A thread that is new is given the default when it first asks: it must be the caller's.
    for n_threads in (1, 4, 1, 3):
        ResidualTransformerRegressor(d_model=8, max_iter=2, n_threads=n_threads).fit(X, X[:, 0])
        seen.append(torch.get_num_threads())

for _ in range(6):
    seen = []
    threads = [threading.Thread(target=fits) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    new = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert set(seen) == {2}, seen
    assert torch.get_num_threads() == 2
print("as before")
"""


def test_new_threads_that_fit_keep_the_default_of_the_process():
    assert run_script(FRESH) == "as before\n"


# ---- a process that has just begun -----------------------------------------------------------

FIRST = """
import os, sys, warnings
import numpy as np
import pickle
from sklearn.model_selection import GridSearchCV
import sklearn_restrans as package
X = np.random.default_rng(0).standard_normal((40, 3))
y = X[:, 0]
small = dict(d_model=4, max_iter=2)
regressor = package.ResidualTransformerRegressor
descent = regressor(solver="gd", learning_rate_init="auto", **small)
tries = {
    "fit": lambda: regressor(dropout=0.1, **small).fit(X, y).predict(X),
    "classifier": lambda: package.ResidualTransformerClassifier(**small).fit(X, y > 0).predict(X),
    "adam": lambda: regressor(solver="adam", **small).fit(X, y),
    "sgd": lambda: regressor(solver="sgd", learning_rate_init="auto", **small).fit(X, y),
    "gd": lambda: descent.fit(X, y),
    "pickle": lambda: pickle.loads(pickle.dumps(
        regressor(warm_start=True, **small).fit(X, y))).fit(X, y),
    "bfloat16": lambda: regressor(dtype="bfloat16", **small).fit(X, y).predict(X),
    "search": lambda: GridSearchCV(regressor(**small), {"residual_beta": [0, 1]}, cv=2).fit(X, y),
    "path": lambda: package.residual_beta_path(X, y, [0, 1], estimator=regressor(**small), cv=2),
    "certificate": lambda: package.certify_linear_convergence(descent, X, y),
    "certificate, post norm": lambda: package.certify_linear_convergence(
        regressor(solver="gd", learning_rate_init="auto", norm="post", readout="last", **small),
        X, y),
}
name = sys.argv[1]
filters, environment = list(warnings.filters), dict(os.environ)
tries[name]()
assert list(warnings.filters) == filters, set(warnings.filters) - set(filters)
assert dict(os.environ) == environment, dict(os.environ).keys() - environment.keys()
assert "torch._dynamo" not in sys.modules, "torch's compiler takes seconds to import"
print("as before")
"""


@pytest.mark.parametrize(
    "name",
    (
        "fit",
        "classifier",
        "adam",
        "sgd",
        "gd",
        "pickle",
        "bfloat16",
        "search",
        "path",
        "certificate",
        "certificate, post norm",
    ),
)
def test_the_first_call_of_a_process_leaves_filters_and_environment(name):
    assert run_script(FIRST.replace("sys.argv[1]", repr(name)), "-W", "error") == "as before\n"


# ---- forked children -------------------------------------------------------------------------

FORKED = """
import os, pickle, signal, sys, time
import numpy as np, torch
from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path

torch.set_num_threads(2)
big = torch.rand(600, 600)
(big @ big).exp().sum()  # OpenMP now has a second thread, which a child waits for in vain
rng = np.random.default_rng(0)
X = rng.standard_normal((80, 700, 2))
y = X[:, -1, 0]
settings = dict(d_model=64, max_iter=1, random_state=0, dtype="float32")
model = ResidualTransformerRegressor(**settings, n_threads=2, warm_start=True).fit(X, y)
expected, content = model.predict(X), pickle.dumps(model)
single = ResidualTransformerRegressor(**settings, n_threads=1).fit(X, y).predict(X)

def fit(n_threads):
    return ResidualTransformerRegressor(**settings, n_threads=n_threads).fit(X, y).predict(X)

def all_but_equal(a, b):
    return np.allclose(a, b, rtol=1e-3, atol=1e-3)

tries = {
    "fit, 1 thread": lambda: np.array_equal(fit(1), single),
    "fit, 2 threads": lambda: np.array_equal(fit(2), single),
    "fit, the caller's threads": lambda: np.array_equal(fit(None), single),
    "predict": lambda: all_but_equal(model.predict(X), expected),
    "unpickle": lambda: all_but_equal(pickle.loads(content).predict(X), expected),
    "unpickle and fit": lambda: pickle.loads(content).fit(X, y).n_iter_ == 2,
    "path": lambda: len(residual_beta_path(X[:30], y[:30], [0.0, 1.0], cv=2,
        estimator=ResidualTransformerRegressor(**settings)).to_frame()) > 0,
}
for name, function in tries.items():
    child = os.fork()
    if child == 0:
        os._exit(0 if function() else 7)
    until = time.monotonic() + 60
    ended, status = 0, None
    while not ended and time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(name, "->", os.waitstatus_to_exitcode(status) if ended else "hangs")
assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_fits_predicts_and_loads():
    """On one thread, whatever n_threads says: with the same bits as n_threads=1."""
    lines = run_script(FORKED, timeout=550).splitlines()
    assert len(lines) == 7
    assert [line for line in lines if not line.endswith("-> 0")] == []
