"""The training loop is the textbook one: bare torch loops, written out here, give its numbers.

All in float64. The model of a bare loop computes the plain formulas of `_core`, so that the
shortcuts, the batching and skorch are all held against the same few lines.
"""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback, EarlyStopping, EpochScoring
from torch.nn import functional as F

from sklearn_restrans import _training
from sklearn_restrans._core import Architecture, ResidualTransformer
from sklearn_restrans._data import DenseSource
from sklearn_restrans._descent import GradientDescent, Objective
from sklearn_restrans._training import (
    DivergenceError,
    EpochHook,
    SampleLoss,
    StopRule,
    TrainingSet,
    make_net,
    net_state,
    print_log,
    restore_net,
    train,
)

T, N_FEATURES = 4, 2
# A few dozen steps amplify the rounding of float64 sums by less than a thousand.
EXACT = 1e-12
SETTINGS = {
    "solver": "adamw",
    "lr": 1e-2,
    "batch_size": 32,
    "weight_decay": 0.1,
    "learning_rate": "constant",
    "autocast": False,
    "device": "cpu",
    "verbose": 0,
}


def make_module(seed=0, **changes):
    # tanh: at a kink of ReLU two orders of one sum may part
    small = dict(n_tokens=T, n_features=N_FEATURES, n_outputs=2, d_model=4, d_ff=6)
    arch = Architecture(**(small | {"activation": "tanh", "norm": "pre"} | changes))
    module = ResidualTransformer(arch)
    module.reset_parameters("gaussian", torch.Generator().manual_seed(seed))
    return module.double()


def make_data(n=100, seed=0, *, masked=False, weighted=False, n_outputs=2, rows=None):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.standard_normal((n, T, N_FEATURES)))
    mask = np.arange(T) < rng.integers(1, T + 1, n)[:, None] if masked else None
    rows = np.arange(n) if rows is None else rows
    target = torch.tensor(rng.standard_normal((len(rows), n_outputs)))
    weight = torch.tensor(rng.uniform(0.0, 2.0, len(rows))) if weighted else None
    return TrainingSet(DenseSource(x, mask), target, weight, rows)


def no_stop(monitor="train_loss"):
    return StopRule(monitor, None, 0.0, False, "")


def run(net, data, epochs, *, valid=None, rule=None, seed=0, hooks=()):
    """What fit does: the caller's rule and hooks, and the generator that shuffles."""
    rule = no_stop() if rule is None else rule
    callbacks = net.callbacks_
    net.callbacks_ = [*callbacks, *hooks, ("stop_rule", rule)]
    net.generator = torch.Generator().manual_seed(seed)
    try:
        return train(net, data, valid, epochs, rule)
    finally:
        net.callbacks_ = callbacks


def fitted(data, epochs, *, module=None, loss="squared_error", seed=0, **settings):
    net = make_net(make_module() if module is None else module, loss, SETTINGS | settings)
    run(net, data, epochs, seed=seed)
    return net


def assert_equal_weights(module, other, tolerance=EXACT):
    for (name, a), b in zip(module.named_parameters(), other.parameters(), strict=True):
        error = (a - b).abs().max()
        assert error <= tolerance * max(1.0, b.abs().max()), f"{name}: {error}"


# ---- losses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("squared_error", F.mse_loss),
        ("absolute_error", F.l1_loss),
        ("huber", F.huber_loss),
    ],
)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_regression_losses_are_those_of_torch(n_outputs, kind, reference, seed):
    """One number a sample, the mean over its outputs; candidates share the targets."""
    rng = np.random.default_rng(seed)
    output = torch.tensor(3 * rng.standard_normal((2, 7, n_outputs)))
    target = torch.tensor(rng.standard_normal((7, n_outputs)))
    expected = reference(output, target.expand_as(output), reduction="none").mean(-1)
    torch.testing.assert_close(SampleLoss(kind)(output, target), expected)
    assert SampleLoss(kind)(output[0], target).shape == (7,)
    mean = reference(output[0], target)
    torch.testing.assert_close(SampleLoss(kind)(output[0], target).mean(), mean)


def test_log_loss_is_the_cross_entropy_of_torch(seed):
    rng = np.random.default_rng(seed)
    output = torch.tensor(3 * rng.standard_normal((2, 7, 4)))
    target = torch.tensor(rng.integers(0, 4, 7))
    loss = SampleLoss("log_loss")
    for k in range(2):
        expected = F.cross_entropy(output[k], target, reduction="none")
        torch.testing.assert_close(loss(output[k], target), expected)
        torch.testing.assert_close(loss(output, target)[k], expected)
    far = torch.tensor([[1e4, -1e4]]).double()
    assert loss(far, torch.tensor([1])).item() == 2e4, "stays finite where softmax is 0"


# ---- the loop --------------------------------------------------------------------------------


def bare_adamw(module, lr, weight_decay):
    """Only matrices decay: not biases, gains, shifts, positions or a learned beta."""
    decaying = ("W_in", "W_Q", "W_K", "W_V", "W_O", "W_1", "W_2", "W_U")
    groups = {True: [], False: []}
    for name, weight in module.named_parameters():
        groups[name.split(".")[-1] in decaying].append(weight)
    return torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=lr,
    )


def bare_loop(module, optimizer, data, epochs, batch_size, *, shuffle_seed=0, scheduler=None):
    """The loop everybody writes; returns the mean loss of every epoch and each step's rate."""
    x, mask = data.source.x[data.rows], data.source.mask
    mask = None if mask is None else mask[data.rows]
    weight = torch.ones(len(x)).double() if data.weight is None else data.weight
    generator = torch.Generator().manual_seed(shuffle_seed)
    losses, rates = [], []
    for _ in range(epochs):
        total = 0.0
        order = torch.arange(len(x))
        if shuffle_seed is not None:
            order = torch.randperm(len(x), generator=generator)
        for batch in order.split(batch_size):
            optimizer.zero_grad()
            output = module(x[batch], None if mask is None else mask[batch])
            error = ((output - data.target[batch]) ** 2).mean(1)
            loss = (weight[batch] * error).mean()
            loss.backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            if scheduler is not None:
                scheduler.step()
            total += loss.item() * len(batch)
        losses.append(total / len(x))
    return losses, rates


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_training_equals_a_bare_torch_loop(readout, masked, weighted, seed):
    """AdamW, shuffled batches with a shorter last one, decay on the matrices alone."""
    module = make_module(seed, readout=readout, n_heads=2, learn_beta=True)
    bare = copy.deepcopy(module)
    data = make_data(100, seed, masked=masked, weighted=weighted)
    net = fitted(data, 5, module=module, seed=seed + 3)
    losses, _ = bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 5, 32, shuffle_seed=seed + 3)
    assert_equal_weights(net.module_, bare)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)
    assert losses[-1] < losses[0]


def test_adam_and_sgd_equal_a_bare_torch_loop(seed):
    data = make_data(100, seed)
    for solver, optimizer in (("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)):
        bare = make_module(seed)
        net = fitted(data, 4, module=make_module(seed), solver=solver, weight_decay=0.0)
        bare_loop(bare, optimizer(bare.parameters(), lr=1e-2), data, 4, 32)
        assert_equal_weights(net.module_, bare)


def test_gd_is_gradient_descent_on_the_whole_set(seed):
    """theta_(t+1) = theta_t - mu grad Phi(theta_t), rows in their order, no shuffling."""
    data = make_data(300, seed, weighted=True)
    bare = make_module(seed)
    net = fitted(
        data, 4, module=make_module(seed), solver="gd", weight_decay=0.0, lr=0.05, batch_size=300
    )
    losses = []
    for _ in range(4):
        error = ((bare(data.source.x) - data.target) ** 2).mean(1)
        phi = (data.weight * error).mean()
        gradients = torch.autograd.grad(phi, list(bare.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(bare.parameters(), gradients, strict=True):
                weight -= 0.05 * gradient
        losses.append(phi.item())
    assert_equal_weights(net.module_, bare)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)


def test_gd_takes_the_rows_in_their_order(seed):
    """No shuffling that would change the last bits: the seed has nothing to say."""
    data = make_data(150, seed)
    settings = {"solver": "gd", "batch_size": 150, "weight_decay": 0.0}
    nets = [fitted(data, 3, seed=number, **settings) for number in range(3)]
    for net in nets[1:]:
        assert_equal_weights(net.module_, nets[0].module_, 0.0)


def test_only_some_rows_are_trained_on(seed):
    """Targets count within ``rows``, the source counts all."""
    rows = np.random.default_rng(seed).permutation(100)[:60]
    data = make_data(100, seed, weighted=True, rows=rows)
    bare = make_module(seed)
    net = fitted(data, 3, module=make_module(seed))
    bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 3, 32)
    assert_equal_weights(net.module_, bare)


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
def test_micro_batches_accumulate_the_gradient_of_the_batch(size, monkeypatch, seed):
    """A batch of 100 in passes of any size: one step on the mean over the batch."""
    data = make_data(100, seed, masked=True, weighted=True)
    monkeypatch.setattr(_training, "sequences_per_pass", lambda arch: size)
    net = fitted(data, 4, module=make_module(seed), batch_size=100)
    bare = make_module(seed)
    bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 4, 100)
    assert_equal_weights(net.module_, bare)


@pytest.mark.parametrize("chunk", [1, 30, 1_000])
def test_gd_does_not_depend_on_the_chunks(chunk, seed):
    """The gradient is a sum over chunks of the rows, whatever their size."""
    data = make_data(100, seed, masked=True, weighted=True)
    net = fitted(data, 4, module=make_module(seed), solver="gd", weight_decay=0.0)
    module = make_module(seed)
    objective = Objective(module, SampleLoss("squared_error"), data, chunk=chunk)
    descent = GradientDescent(objective, SETTINGS["lr"], seed)
    losses = [descent.step().loss for _ in range(4)]
    assert_equal_weights(net.module_, module)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)


@pytest.mark.parametrize(("epochs", "n", "batch_size"), [(5, 100, 32), (1, 90, 30), (12, 20, 20)])
def test_one_cycle_is_the_schedule_of_torch(epochs, n, batch_size, seed):
    """One cycle over all steps of the fit, last short batches counted."""
    data = make_data(n, seed)
    used = []
    net = make_net(
        make_module(seed),
        "squared_error",
        SETTINGS | {"learning_rate": "one_cycle", "batch_size": batch_size},
        [("rates", BatchHook(lambda net: used.append(net.optimizer_.param_groups[0]["lr"])))],
    )
    run(net, data, epochs)
    bare = make_module(seed)
    optimizer = bare_adamw(bare, 1e-2, 0.1)
    steps = epochs * math.ceil(n / batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1e-2, total_steps=steps, cycle_momentum=False
    )
    _, rates = bare_loop(bare, optimizer, data, epochs, batch_size, scheduler=schedule)
    assert len(used) == steps
    np.testing.assert_allclose(used, rates, rtol=1e-15)
    assert_equal_weights(net.module_, bare)


class BatchHook(Callback):
    """Calls ``hook(net)`` before every step."""

    def __init__(self, hook):
        self.hook = hook

    def on_batch_begin(self, net, **_):
        self.hook(net)


def test_one_cycle_starts_anew_when_training_goes_on(seed):
    data = make_data(64, seed)
    net = fitted(data, 3, learning_rate="one_cycle")
    first = net.history[:, "learning_rate"]
    run(net, data, 3)
    np.testing.assert_allclose(net.history[3:, "learning_rate"], first, rtol=1e-15)
    assert first[-1] != SETTINGS["lr"]


def test_the_order_is_that_of_the_generator_alone(seed):
    """Equal seeds give equal bits; the global generator is neither read nor moved."""
    data = make_data(100, seed)
    before = torch.get_rng_state()
    first = fitted(data, 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert_equal_weights(first.module_, fitted(data, 2).module_, 0.0)
    other = fitted(data, 2, seed=1)
    assert not torch.equal(first.module_.W_U, other.module_.W_U)


def test_bfloat16_multiplies_short_and_keeps_long_weights(seed):
    data = make_data(64, seed)
    net = make_net(make_module(seed).float(), "squared_error", SETTINGS | {"autocast": True})
    x = data.source.x.float()
    exact, short = net.module_(x), net.infer(x)
    assert short.dtype == net.module_.W_in.dtype == torch.float32
    error = (short - exact).abs().max() / exact.abs().max()
    # bfloat16 has 8 bits: 4e-3 a rounding, a few of them in a row; not one would mean no autocast
    assert 1e-4 < error < 0.05


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
            except _training.StopTraining:
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
        assert rule.best_weights_["weight"].item() == best
        assert net.run(rule) == stops, "the rule starts anew with every training"
    rule = StopRule("valid_loss", patience, tol, False, "")
    Losses(losses, "valid_loss").run(rule)
    assert rule.best_weights_ is None


def test_the_weights_kept_are_those_that_scored_best(seed):
    """Validation targets of pure noise: the loss rises sooner or later, the best epoch stays."""
    data, valid = make_data(60, seed), make_data(30, seed + 1)
    net = make_net(make_module(seed), "squared_error", SETTINGS | {"lr": 0.05})
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
    net = make_net(make_module(seed), "squared_error", SETTINGS | {"solver": "sgd", "lr": lr})
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
    settings = {"solver": solver, "learning_rate": learning_rate, "weight_decay": 0.0}
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
    net = make_net(
        make_module(), "squared_error", SETTINGS | {"verbose": 1}, [("log", print_log())]
    )
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
    assert row["epoch"] == 2 and row["learning_rate"] == SETTINGS["lr"]
