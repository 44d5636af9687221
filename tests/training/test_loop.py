"""The training loop is the textbook one: bare torch loops, written out here, give its numbers.

All in float64. The model of a bare loop computes the plain formulas of `_core`, so that the
shortcuts, the batching and skorch are all held against the same few lines.
"""

import copy
import math

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
    run,
)
from skorch.callbacks import Callback
from torch.nn import functional as F

from sklearn_restrans._training import net as net_module
from sklearn_restrans._training.descent import GradientDescent, Objective
from sklearn_restrans._training.losses import SampleLoss

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
        data,
        4,
        module=make_module(seed),
        solver="gd",
        weight_decay=0.0,
        learning_rate=0.05,
        batch_size=300,
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
    monkeypatch.setattr(net_module, "sequences_per_pass", lambda arch: size)
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
    descent = GradientDescent(objective, SETTINGS["learning_rate"], seed)
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
        SETTINGS | {"schedule": "one_cycle", "batch_size": batch_size},
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
    net = fitted(data, 3, schedule="one_cycle")
    first = net.history[:, "learning_rate"]
    run(net, data, 3)
    np.testing.assert_allclose(net.history[3:, "learning_rate"], first, rtol=1e-15)
    assert first[-1] != SETTINGS["learning_rate"]


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
