"""When training stops, which weights it keeps, and how it goes on."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from loops import (
    EXACT,
    SETTINGS,
    assert_equal_weights,
    bare_adamw,
    bare_loop,
    fitted,
    make_data,
    make_module,
    make_net,
    no_stop,
    run,
)
from skorch.callbacks import Callback, EarlyStopping, EpochScoring

from sklearn_restrans._training import stopping
from sklearn_restrans._training.skorch_names import PrintLog
from sklearn_restrans._training.state import net_state, restore_net
from sklearn_restrans._training.stopping import EpochHook, StopRule
from sklearn_restrans.exceptions import DivergenceError

# ---- validation, stopping, best weights ------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_validation_loss_is_the_weighted_mean_loss(masked, weighted, seed):
    """Of a part that is no multiple of the chunk, in eval mode, after the epoch's last step."""
    train_part = make_data(40, seed)
    valid = make_data(2 * 256 + 5, seed + 1, masked=masked, weighted=weighted)
    net = make_net(make_module(seed, dropout=0.3), "squared_error", SETTINGS)
    snapshots = []
    hook = EpochHook(lambda epoch: snapshots.append(copy.deepcopy(net.module_)), 1)
    torch.manual_seed(seed)
    run(net, train_part, 3, valid=valid, hooks=[("snapshots", hook)], rule=no_stop("valid_loss"))
    weight = torch.ones(len(valid)).double() if valid.weight is None else valid.weight
    for epoch, module in enumerate(snapshots):
        module.eval()
        error = ((module(valid.source.x, valid.source.mask) - valid.target) ** 2).mean(1)
        expected = (weight @ error / weight.sum()).item()
        assert net.history[epoch, "valid_loss"] == pytest.approx(expected, rel=EXACT)
    net.module_.train()
    assert net.evaluate(valid) == net.history[-1, "valid_loss"], "dropout is off"


class Losses:
    """As much of a net as the rule looks at: a history, and weights that tell the epoch."""

    def __init__(self, losses, monitor):
        self.module_ = torch.nn.Linear(1, 1, bias=False)
        self.losses, self.monitor, self.history = losses, monitor, []

    def run(self, rule):
        """Number of epochs until the rule stops the training."""
        rule.on_train_begin(self)
        for epoch, loss in enumerate(self.losses, start=1):
            with torch.no_grad():
                self.module_.weight.fill_(epoch)
            self.history.append({"train_loss": 0.0, self.monitor: loss})
            try:
                rule.on_epoch_end(self)
            except stopping.StopTraining:
                return epoch
        return len(self.losses)


@pytest.mark.parametrize(
    ("losses", "patience", "tol", "stops", "best"),
    [
        # falls by at least tol for ever
        ([5, 4, 3, 2, 1, 0], 1, 0.5, 6, 6),
        # the third epoch in a row without a new minimum
        ([3, 2, 2, 2, 2, 2], 3, 0.0, 5, 2),
        # a rise counts, a new minimum starts the count again
        ([3, 2, 4, 1, 4, 4, 4], 2, 0.0, 6, 4),
        # progress smaller than tol is no progress, though its weights are the better ones
        ([1.0, 0.9, 0.8, 0.7, 0.6], 2, 0.25, 3, 3),
        # tol is measured against the best loss so far: two small steps do not add up to one
        ([1.0, 0.9, 0.8, 0.1], 3, 0.25, 4, 4),
        # exactly tol is not more than tol
        ([1.0, 0.75, 0.5], 1, 0.25, 2, 2),
        # falling back from a rise is no progress either
        ([1, 5, 4, 3, 2], 3, 0.0, 4, 1),
        # no patience, no stop
        ([1, 2, 3, 4, 5, 6], None, 0.0, 6, 1),
        ([1, 1, 1], 2, 0.0, 3, 1),
    ],
)
def test_when_the_rule_stops_and_which_epoch_is_best(losses, patience, tol, stops, best):
    for monitor in ("train_loss", "valid_loss"):
        net = Losses(losses, monitor)
        rule = StopRule(monitor, patience, tol, True, "")
        assert net.run(rule) == stops
        assert (rule.best_epoch_, rule.best_) == (best, losses[best - 1])
        assert rule.best_weights_[0].item() == best
        assert net.run(rule) == stops, "the rule starts anew with every training"


def test_the_weights_kept_are_those_that_scored_best(seed):
    """Validation targets of pure noise: the loss rises sooner or later, the best epoch stays."""
    data, valid = make_data(60, seed), make_data(30, seed + 1)
    net = make_net(make_module(seed), "squared_error", SETTINGS | {"learning_rate": 0.05})
    rule = StopRule("valid_loss", 5, 0.0, True, "")
    best = run(net, data, 200, valid=valid, rule=rule)
    losses = net.history[:, "valid_loss"]
    assert len(losses) == best + 5 < 200
    assert losses[best - 1] == min(losses)
    assert net.evaluate(valid) == losses[best - 1], "not the last weights"
    assert not net.module_.training

    again = run(net, data, 200, valid=valid, rule=rule)
    assert again > best + 5, "epochs are counted over all trainings"
    assert net.evaluate(valid) == min(net.history[best + 5 :, "valid_loss"])


def test_without_validation_the_last_weights_stay(seed):
    data = make_data(64, seed)
    net = fitted(data, 6)
    bare = make_module()
    bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 6, 32)
    assert_equal_weights(net.module_, bare)
    assert not net.module_.training


@pytest.mark.parametrize(
    ("n_epochs", "lr", "where"),
    [
        (5, 1e200, "the train loss became (inf|nan) in epoch 2: training diverged"),
        (1, 1e308, "a weight is not finite after the last step"),
    ],
)
def test_divergence_is_an_error_that_says_what_to_do(n_epochs, lr, where, seed):
    """The loss of an epoch may be finite and its last step not."""
    net = make_net(
        make_module(seed), "squared_error", SETTINGS | {"solver": "sgd", "learning_rate": lr}
    )
    data = make_data(32, seed)
    data.target *= 1e3
    rule = StopRule("train_loss", None, 0.0, False, "Lower the step.")
    with pytest.raises(DivergenceError, match=rf"{where}.* Lower the step\.$") as caught:
        run(net, data, n_epochs, rule=rule)
    assert isinstance(caught.value, FloatingPointError)


def test_a_validation_loss_that_is_not_finite_is_an_error(seed):
    valid = make_data(8, seed)
    valid.target[3] = math.inf
    net = make_net(make_module(seed), "squared_error", SETTINGS)
    with pytest.raises(DivergenceError, match="the valid loss became inf in epoch 1"):
        run(net, make_data(32), 3, valid=valid, rule=no_stop("valid_loss"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_errors_and_ctrl_c_come_through(error):
    def fail(epoch):
        raise error

    net = make_net(make_module(), "squared_error", SETTINGS)
    with pytest.raises(error):
        run(net, make_data(32), 3, hooks=[("fail", EpochHook(fail, 1))])


def test_a_hook_is_called_after_every_so_many_epochs():
    seen = []
    net = make_net(make_module(), "squared_error", SETTINGS)
    run(net, make_data(32), 7, hooks=[("hook", EpochHook(seen.append, 3))])
    assert seen == [3, 6]


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


def test_callbacks_that_need_the_batches_of_skorch_are_refused():
    with pytest.raises(ValueError, match=r"EpochScoring, which needs .* X_val and y_val"):
        make_net(make_module(), "squared_error", SETTINGS, [EpochScoring("r2")])
    with pytest.raises(TypeError, match="callbacks must hold skorch callbacks, got 'log'"):
        make_net(make_module(), "squared_error", SETTINGS, ["log"])


# ---- saving and going on ---------------------------------------------------------------------


def plain_leaves(value):
    """Every value inside nested dicts and lists."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from plain_leaves(part)
    else:
        yield value


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd", "gd"])
@pytest.mark.parametrize("learning_rate", ["constant", "one_cycle"])
def test_a_restored_net_goes_on_to_the_bit(learning_rate, solver, seed):
    """Weights, history and the optimiser's moments; through pickle, without a tensor in it."""
    data = make_data(64, seed)
    settings = {"solver": solver, "schedule": learning_rate, "weight_decay": 0.0}
    net = fitted(data, 3, module=make_module(seed, learn_beta=True), **settings)
    state = pickle.loads(pickle.dumps(net_state(net, with_optimizer=True)))
    types = {type(leaf) for leaf in plain_leaves(state)}
    assert types <= {np.ndarray, np.float64, float, int, bool, str, type(None)}

    other = make_net(make_module(seed + 1, learn_beta=True), "squared_error", SETTINGS | settings)
    restore_net(other, state)
    assert other.history.to_list() == net.history.to_list()
    x = data.source.x
    assert torch.equal(other.infer(x), net.infer(x))
    run(net, data, 3, seed=5)
    run(other, data, 3, seed=5)
    assert_equal_weights(other.module_, net.module_, 0.0)
    assert other.history[:, "train_loss"] == net.history[:, "train_loss"]


def test_without_the_optimiser_only_weights_are_kept(seed):
    net = fitted(make_data(64, seed), 3)
    state = net_state(net, with_optimizer=False)
    assert state.keys() == {"weights", "history"}
    assert state["weights"].keys() == net.module_.state_dict().keys()


def test_a_saved_state_is_a_copy_in_both_directions(seed):
    """Neither the net it comes from nor one restored from it changes it by training on."""
    data = make_data(64, seed)
    net = fitted(data, 2)
    state = net_state(net, with_optimizer=True)
    before = pickle.dumps(state)
    other = restore_net(make_net(make_module(), "squared_error", SETTINGS), state)
    run(net, data, 2)
    assert pickle.dumps(state) == before, "the net still writes into the saved state"
    run(other, data, 2)
    assert pickle.dumps(state) == before, "the restored net writes into the saved state"


# ---- what is seen ----------------------------------------------------------------------------


def test_verbose_prints_one_line_an_epoch_and_silence_is_the_default(capsys, tmp_path):
    data = make_data(32)
    fitted(data, 3)
    assert capsys.readouterr() == ("", "")
    net = make_net(make_module(), "squared_error", SETTINGS | {"verbose": 1}, [("log", PrintLog())])
    assert capsys.readouterr() == ("", "")
    run(net, data, 3, valid=make_data(8, 1))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 3, "a head of two lines, then a line an epoch"
    assert {"epoch", "train_loss", "valid_loss", "dur"} <= set(lines[0].split())
    assert [int(line.split()[0]) for line in lines[2:]] == [1, 2, 3]


def test_each_epoch_records_loss_rate_and_time():
    net = fitted(make_data(64), 2)
    row = net.history[-1]
    assert row.keys() >= {"epoch", "train_loss", "learning_rate", "dur"}
    assert row["epoch"] == 2 and row["learning_rate"] == SETTINGS["learning_rate"]
