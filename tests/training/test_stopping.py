"""When training stops, which weights it keeps, and which errors end it."""

import math

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
    no_stop,
    run,
)

from sklearn_restrans._training import stopping
from sklearn_restrans._training.loop import train
from sklearn_restrans._training.stopping import EpochHook, StopRule, StopWhen
from sklearn_restrans.exceptions import DivergenceError


class Losses:
    """As much of a net as the rule looks at: a history, and weights that tell the epoch."""

    def __init__(self, losses, monitor):
        self.module_ = torch.nn.Linear(1, 1, bias=False)
        self.losses, self.monitor, self.history = losses, monitor, []
        self.descent_ = None

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
        # a step smaller than tol does not count, though its weights are the better ones
        ([1.0, 0.9, 0.8, 0.7, 0.6], 2, 0.25, 3, 3),
        # tol is measured against the best loss so far: two small steps do not add up to one
        ([1.0, 0.9, 0.8, 0.1], 3, 0.25, 4, 4),
        # exactly tol is not more than tol
        ([1.0, 0.75, 0.5], 1, 0.25, 2, 2),
        # nor does falling back from a rise
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


def test_a_condition_ends_training_after_the_rule_has_seen_the_epoch():
    net, rule = make_net(make_module(), "squared_error", SETTINGS), no_stop()
    net.callbacks_ = [("stop_rule", rule), ("end", StopWhen(lambda: len(net.history) == 3))]
    net.generator_ = torch.Generator().manual_seed(0)
    assert train(net, make_data(32), None, 7, rule) == 3
    assert len(net.history) == 3 and rule.best_epoch_ > 0
