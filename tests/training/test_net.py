"""The net: how a batch is split into passes, what callbacks see, and what is recorded."""

import copy

import pytest
import torch
from loops import (
    SETTINGS,
    assert_equal_weights,
    bare_adamw,
    bare_loop,
    fitted,
    make_data,
    make_module,
    make_net,
    run,
)
from skorch.callbacks import Callback, EarlyStopping, EpochScoring

from sklearn_restrans._training import net as net_module


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
def test_micro_batches_accumulate_the_gradient_of_the_batch(size, monkeypatch, seed):
    """A batch of 100 in passes of any size: one step on the mean over the batch."""
    data = make_data(100, seed, masked=True, weighted=True)
    monkeypatch.setattr(net_module, "sequences_per_pass", lambda arch, on_cpu=True: size)
    net = fitted(data, 4, module=make_module(seed), batch_size=100)
    bare = make_module(seed)
    bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 4, 100)
    assert_equal_weights(net.module_, bare)


def test_bfloat16_multiplies_short_and_keeps_long_weights(seed):
    data = make_data(64, seed)
    net = make_net(make_module(seed).float(), "squared_error", SETTINGS | {"autocast": True})
    x = data.source.x.float()
    exact, short = net.module_(x), net.infer(x)
    assert short.dtype == net.module_.W_in.dtype == torch.float32
    error = (short - exact).abs().max() / exact.abs().max()
    # bfloat16 has 8 bits: 4e-3 a rounding, a few of them in a row; not one would mean no autocast
    assert 1e-4 < error < 0.05


class Gradients(Callback):
    """A user's callback that sees each gradient, and may change it, before the step."""

    def on_grad_computed(self, net, named_parameters, **_):
        for _, weight in named_parameters:
            weight.grad.zero_()


def test_callbacks_see_the_gradients_before_the_step():
    module = make_module()
    settings = SETTINGS | {"solver": "sgd", "weight_decay": 0.0}
    net = make_net(copy.deepcopy(module), "squared_error", settings, [("zero", Gradients())])
    run(net, make_data(32), 2)
    assert_equal_weights(net.module_, module, 0.0)


def test_early_stopping_of_skorch_ends_training_quietly():
    valid = make_data(30, 1)
    stopping = EarlyStopping(monitor="train_loss", threshold=1e9, threshold_mode="abs", patience=2)
    net = make_net(make_module(), "squared_error", SETTINGS, [("stopping", stopping)])
    assert run(net, make_data(32), 50, valid=valid) == len(net.history) < 5


def test_each_epoch_records_loss_rate_and_time():
    net = fitted(make_data(64), 2)
    row = net.history[-1]
    assert row.keys() >= {"epoch", "train_loss", "learning_rate", "dur"}
    assert row["epoch"] == 2 and row["learning_rate"] == SETTINGS["learning_rate"]


@pytest.mark.parametrize(
    ("callback", "error", "message"),
    [
        (print, TypeError, "callbacks must hold skorch callbacks, got <built-in function print>"),
        ("log", TypeError, "callbacks must hold skorch callbacks, got 'log'"),
        (EpochScoring("r2"), ValueError, r"EpochScoring, which needs .* X_val and y_val"),
        (("mine", EpochScoring), ValueError, r"EpochScoring, which needs .* X_val and y_val"),
    ],
)
def test_callbacks_that_cannot_work_are_refused(callback, error, message):
    with pytest.raises(error, match=message):
        make_net(make_module(), "squared_error", SETTINGS, [callback])
