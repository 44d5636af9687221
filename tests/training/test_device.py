"""Devices, number types and threads: chosen in words, and given back afterwards.

What a machine has is pretended here, so that every machine tests every case; tests marked ``gpu``
fit and predict on a real one.
"""

import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._training.device import (
    available_device,
    own_threads,
    resolve_device,
    resolve_dtype,
)
from sklearn_restrans.conditioning import Conditioning

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


@pytest.fixture
def machine(monkeypatch):
    """Pretend a machine with so many CUDA devices, with or without MPS."""

    def pretend(n_cuda=0, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: n_cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n_cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


# ---- device ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_cuda", "mps", "expected"),
    [(0, False, CPU), (0, True, MPS), (1, False, CUDA), (2, True, CUDA)],
)
def test_auto_is_cuda_then_mps_then_the_cpu(n_cuda, mps, expected, machine):
    machine(n_cuda, mps)
    assert resolve_device("auto") == expected


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1", "mps"])
def test_a_device_that_is_there_is_taken(name, machine):
    machine(2, True)
    assert resolve_device(name) == available_device(name) == torch.device(name)


@pytest.mark.parametrize(
    ("name", "n_cuda"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("cuda:7", 2), ("mps", 1)]
)
def test_a_device_that_is_not_there_is_refused_in_words(name, n_cuda, machine):
    """A model that was fitted on it still loads: on the CPU."""
    machine(n_cuda)
    with pytest.raises(ValueError) as caught:
        resolve_device(name)
    assert str(caught.value) == (
        f"device='{name}' is not available to this process ({n_cuda} CUDA devices are visible); "
        "use device='auto' or 'cpu'."
    )
    assert available_device(name) == CPU


@pytest.mark.parametrize("name", ["gpu", "", "CUDA", "cuda:", "cuda:x", "cuda:-1", "meta", "xla"])
def test_a_name_that_is_no_device_is_refused_in_words(name, machine):
    machine(2, True)
    with pytest.raises(ValueError) as caught:
        resolve_device(name)
    assert str(caught.value) == (
        f"device must be 'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps', got '{name}'."
    )


# ---- number type -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "x_dtype", "work", "device", "expected"),
    [
        ("auto", np.float64, 1_000_000, CPU, torch.float64),
        ("auto", np.float64, 1_000_001, CPU, torch.float32),  # large: float32 is twice as fast
        ("auto", np.float32, 10, CPU, torch.float32),
        ("auto", np.int64, 10, CPU, torch.float32),
        ("auto", np.float64, 10, CUDA, torch.float64),
        ("auto", np.float64, 10, MPS, torch.float32),  # MPS has no float64
        ("float64", np.float32, 10**9, CPU, torch.float64),
        ("float32", np.float64, 10, CPU, torch.float32),
        ("float32", np.float64, 10, MPS, torch.float32),
        ("bfloat16", np.float64, 10, CPU, torch.float32),  # weights stay float32
    ],
)
def test_number_type(dtype, x_dtype, work, device, expected):
    assert resolve_dtype(dtype, np.dtype(x_dtype), work, device) is expected


def test_float64_on_mps_is_refused_in_words():
    with pytest.raises(ValueError, match=r"dtype='float64' does not exist on MPS; use .*float32"):
        resolve_dtype("float64", np.float64, 1, MPS)


# ---- threads and random state ----------------------------------------------------------------


def blas_threads():
    """Threads of numpy's and scipy's BLAS."""
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {library["num_threads"] for library in blas}


def threads_of_a_new_thread():
    """Torch's default, which a thread is given when it first asks."""
    found = []
    new = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    new.start()
    new.join()
    return found[0]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("n_threads", [None, 1, 2, 3])
def test_threads_are_the_callers_again(n_threads, fails):
    threads, default, blas = torch.get_num_threads(), threads_of_a_new_thread(), blas_threads()
    dtype = torch.get_default_dtype()
    try:
        with own_threads(n_threads):
            assert torch.get_num_threads() == (threads if n_threads is None else n_threads)
            assert threads_of_a_new_thread() == default, "other threads see it"
            assert blas_threads() == {1}
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert torch.get_num_threads() == threads
    assert threads_of_a_new_thread() == default
    assert blas_threads() == blas
    assert torch.get_default_dtype() == dtype


def test_calls_that_overlap_give_back_what_the_first_found():
    """The second begins in the first and ends after it, in another thread, as no stack would."""
    blas, default, seen = blas_threads(), threads_of_a_new_thread(), []
    begun, first_has_ended = threading.Event(), threading.Event()

    def second():
        seen.append(torch.get_num_threads())
        with own_threads(4):
            begun.set()
            first_has_ended.wait()
            seen.append((torch.get_num_threads(), blas_threads()))
        seen.append(torch.get_num_threads())

    other = threading.Thread(target=second)
    with own_threads(3):
        other.start()
        begun.wait()
        assert torch.get_num_threads() == 3
    first_has_ended.set()
    other.join()
    assert seen == [default, (4, {1}), default]
    assert blas_threads() == blas and threads_of_a_new_thread() == default


def test_records_of_a_fit_take_one_blas_thread(monkeypatch):
    """With two they took 0.15 s instead of 0.03 (T = 144, d = 64): their matrices are small."""
    seen, record = [], Conditioning.record

    def watched(*args):
        seen.append(blas_threads())
        return record(*args)

    monkeypatch.setattr(Conditioning, "record", watched)
    before = blas_threads()
    X = np.random.default_rng(0).standard_normal((20, 3))
    ResidualTransformerRegressor(d_model=4, max_iter=1, n_threads=2).fit(X, X[:, 0])
    assert seen == [{1}, {1}]
    assert blas_threads() == before


@pytest.mark.parametrize("n_threads", [None, 2])
def test_fit_and_predict_leave_global_state_alone(n_threads):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 4, 2)), rng.standard_normal(20)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002  global on purpose
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    model = ResidualTransformerRegressor(max_iter=2, dropout=0.2, n_threads=n_threads)
    model.fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002  global on purpose
    assert (torch.get_num_threads(), torch.get_default_dtype()) == (threads, dtype)


# ---- on a real GPU ---------------------------------------------------------------------------


def make_problem(n=300, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 6, 3)).astype(dtype)
    X[: n // 3, 4:] = np.nan  # padded sequences among them
    return X, np.nansum(X[:, :, 0], axis=1) + 0.1 * rng.standard_normal(n)


def regressor(**changes):
    settings = dict(max_iter=5, random_state=0, device="cuda", d_model=16, readout="last")
    return ResidualTransformerRegressor(**(settings | changes))


@pytest.mark.gpu
def test_auto_fits_on_the_gpu():
    X, y = make_problem()
    model = regressor(device="auto").fit(X, y)
    assert model.device_.startswith("cuda")
    assert {weight.device.type for weight in model.net_.module_.parameters()} == {"cuda"}


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{}, {"readout": "mean"}, {"n_layers": 2, "n_heads": 4}])
def test_a_fit_on_the_gpu_is_the_fit_on_the_cpu(changes):
    """The same start, the same order, float64: what differs is the order of sums."""
    X, y = make_problem()
    for settings in ({"solver": "gd", "learning_rate_init": 5e-3}, {"solver": "adamw"}):
        on_gpu = regressor(dtype="float64", **settings, **changes).fit(X, y)
        on_cpu = regressor(dtype="float64", device="cpu", **settings, **changes).fit(X, y)
        # 15 steps at most; Adam divides by the size of small gradients
        np.testing.assert_allclose(on_gpu.predict(X), on_cpu.predict(X), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(on_gpu.loss_curve_, on_cpu.loss_curve_, rtol=1e-6)


@pytest.mark.gpu
def test_windows_and_labels_on_the_gpu():
    series = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    view = SequenceView(series, np.arange(200), 8, dilation=2)
    labels = np.where(series[:, 0] > 0, "up", "down")
    model = ResidualTransformerClassifier(max_iter=15, random_state=0, device="cuda")
    assert model.fit(view, labels).score(view, labels) > 0.9
    np.testing.assert_allclose(model.predict_proba(view).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.gpu
def test_rows_keep_their_bits_in_any_batch_on_the_gpu():
    X, y = make_problem(dtype=np.float32)
    model = regressor().fit(X, y)
    whole, rows = model.predict(X), np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(model.predict(X[rows]), whole[rows])
    np.testing.assert_array_equal(model.predict(X[rows[:7]]), whole[rows[:7]])


@pytest.mark.gpu
def test_the_random_state_of_the_gpu_is_the_callers_again():
    X, y = make_problem()
    torch.cuda.manual_seed_all(11)
    before = torch.cuda.get_rng_state_all()
    model = regressor(dropout=0.3).fit(X, y)
    predictions = model.predict(X)
    for state, now in zip(before, torch.cuda.get_rng_state_all(), strict=True):
        assert torch.equal(state, now)
    torch.cuda.manual_seed_all(12)
    again = regressor(dropout=0.3).fit(X, y).predict(X)
    # The same masks and order; sums that CUDA adds in no fixed order may differ by a few eps.
    np.testing.assert_allclose(again, predictions, rtol=1e-5, atol=1e-5)


LOAD = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    model, X = pickle.load(file)
assert model.device_ == "cpu", model.device_
model.set_params(device="cpu")
np.save(sys.argv[2], model.predict(X))
model.fit(X, np.zeros(len(X)))
"""


@pytest.mark.gpu
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_model_fitted_on_the_gpu_loads_where_there_is_none(warm_start, tmp_path):
    X, y = make_problem()
    model = regressor(warm_start=warm_start).fit(X, y)
    content = pickle.dumps((model, X))
    assert b"torch" not in content.replace(b"sklearn_restrans", b"")
    (tmp_path / "model.pickle").write_bytes(content)
    subprocess.run(
        [sys.executable, "-c", LOAD, "model.pickle", "predictions.npy"],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    expected = model.predict(X)
    np.testing.assert_allclose(np.load(tmp_path / "predictions.npy"), expected, rtol=1e-5)
    here, _ = pickle.loads(content)
    assert here.device_ == model.device_
    np.testing.assert_array_equal(here.predict(X), expected)


@pytest.mark.gpu
def test_bfloat16_on_the_gpu_predicts_nearly_the_same():
    X, y = make_problem(dtype=np.float32)
    exact = regressor(max_iter=20).fit(X, y)
    short = regressor(max_iter=20, dtype="bfloat16").fit(X, y)
    assert {weight.dtype for weight in short.net_.module_.parameters()} == {torch.float32}
    # bfloat16 has 8 bits
    difference = np.abs(short.predict(X) - exact.predict(X)).mean()
    assert 0.0 < difference < 0.1 * y.std()


@pytest.mark.gpu
def test_a_gpu_that_is_not_there_is_refused_by_fit():
    number = torch.cuda.device_count()
    with pytest.raises(ValueError, match=f"device='cuda:{number}' is not available"):
        regressor(device=f"cuda:{number}").fit(*make_problem())
