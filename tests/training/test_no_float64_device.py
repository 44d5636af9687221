"""A device without float64, as MPS is one, is never asked for it; without the hardware.

Torch's "meta" device stands in: its tensors have shape, type and device, and no values. What is
read back from it is a constant, every float64 tensor on it is an error, and so is a copy that
changes the type on its way, which MPS would do on its own side.
"""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from sklearn_restrans import ResidualTransformerClassifier, ResidualTransformerRegressor
from sklearn_restrans._estimators import candidates, preparation
from sklearn_restrans._training.optimizers import _SGD, PerCandidate, _Adam
from sklearn_restrans.model_selection import StackedGridSearchCV

META = torch.device("meta")


def on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def leaves(value):
    if isinstance(value, list | tuple):
        for part in value:
            yield from leaves(part)
    else:
        yield value


class NoFloat64(TorchFunctionMode):
    """Runs torch's functions, with the rules above for what is on the device."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        first = args[0] if args else None
        if on_device(first):
            if name == "cpu":
                return torch.full(first.shape, 0.5).to(first.dtype)
            if name in ("item", "__float__", "tolist"):
                return 0.5
            if name == "__bool__":
                return True
            if name == "numpy":
                raise AssertionError("numpy reads a tensor of the device")
        if name == "copy_" and first.device.type == "cpu" and on_device(args[1]):
            assert first.dtype == args[1].dtype, "a copy to the CPU changes the type on the device"
            with torch.no_grad():
                return first.fill_(0.5)
        result = function(*args, **kwargs)
        for value in leaves(result):
            if on_device(value):
                self.seen += 1
                assert value.dtype != torch.float64, f"{name} makes a float64 tensor on the device"
        return result


class Generator(torch.Generator):
    """On the CPU whatever the device: there is none for "meta"."""

    def __new__(cls, device=None):
        return super().__new__(cls)


@pytest.fixture
def device(monkeypatch):
    """Pretend that fit finds this device; its kernels for optimisers do nothing."""
    for module in (preparation, candidates):
        monkeypatch.setattr(module, "resolve_device", lambda name: META)
        monkeypatch.setattr(module, "resolve_dtype", lambda *args, **named: torch.float32)
    for optimizer in (PerCandidate, _Adam, _SGD):
        monkeypatch.setattr(optimizer, "advance", lambda self: None)
    monkeypatch.setattr(candidates, "_budget", lambda device: 10**9)
    monkeypatch.setattr(torch, "Generator", Generator)
    with NoFloat64() as mode:
        yield mode


def data(kind):
    rng = np.random.default_rng(0)
    y = rng.standard_normal(30)
    if kind == "table":
        return rng.standard_normal((30, 3)), y
    if kind == "padded":
        X = rng.standard_normal((30, 5, 2))
        X[::3, 3:] = np.nan
        return X, y
    ids = rng.integers(2, 9, (30, 6))
    ids[::4, 3:] = 0
    return ids, y


def estimator(kind, classes=False, **settings):
    settings = {"d_model": 8, "max_iter": 2, "random_state": 0} | settings
    if kind == "tokens":
        settings["embedding"] = "token"
    return (ResidualTransformerClassifier if classes else ResidualTransformerRegressor)(**settings)


@pytest.mark.parametrize("kind", ["table", "padded", "tokens"])
@pytest.mark.parametrize(
    "settings",
    [
        {"conditioning_interval": 1},
        {"early_stopping": True, "n_layers": 2, "norm": "post", "n_heads": 2},
        {"solver": "gd", "learning_rate_init": "auto"},
        {"solver": "gd", "learning_rate_init": 0.01},
        {"solver": "lbfgs", "weight_decay": 0.1},
        {"solver": "gauss_newton", "weight_decay": 0.1},
        {"solver": "sgd", "learning_rate_init": "auto", "batch_size": 8},
        {"learn_beta": True, "readout": "last", "positions": "sinusoidal"},
    ],
    ids=str,
)
def test_fit_predict_and_conditioning(settings, kind, device):
    for classes in (False, True):
        X, y = data(kind)
        weight = np.linspace(0.0, 2.0, len(y))
        model = estimator(kind, classes, **settings)
        model.fit(X, y > 0 if classes else y, sample_weight=weight)
        assert model.net_.module_.W_in.device == META
        assert np.isfinite(model.predict(X)).all()
        assert np.isfinite(model.conditioning_.Z.singular_values).all()
    assert device.seen > 100, "nothing ran on the device"


def test_stacked_candidates(device):
    X, y = data("table")
    grid = {"residual_beta": [0.0, 1.0], "learning_rate_init": [1e-3, 1e-2]}
    search = StackedGridSearchCV(estimator("table"), grid, cv=2).fit(X, y)
    assert {plan["mode"] for plan in search.plans_} == {"stacked"}
    assert device.seen > 100
