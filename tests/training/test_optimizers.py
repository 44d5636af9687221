"""Optimisers and schedules follow the formulas of torch, whatever is done to make them fast."""

import copy
import math
import warnings

import numpy as np
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
from skorch.callbacks import Callback

from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.candidates import stack, unstack
from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans._training.optimizers import (
    PerCandidate,
    make_optimizer,
    make_schedule,
    take_step,
)


def test_a_rare_token_moves_by_a_few_steps():
    """A gradient g once, long after the start: the sum over k of lr m_k / sqrt(v_k), with
    m_k = (1 - b1) b1^k g and v_k = (1 - b2) b2^k g^2; 0.999 would give 31 lr.
    """
    model = ResidualTransformer(
        Architecture(6, 7, n_outputs=2, d_model=4, d_ff=6, embedding="token")
    )
    reset_parameters(model, "gaussian", torch.Generator().manual_seed(0))
    optimizer = make_optimizer(model, "adamw", 1e-3, 0.0)
    before = model.W_in.detach().clone()
    for step in range(500):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        model.W_in.grad[3] = 0.1 * (step == 400)
        take_step(optimizer)
    moved = (before - model.W_in.detach()) / 1e-3
    expected = sum(0.1 * 0.9**k / (0.02 * 0.98**k) ** 0.5 for k in range(100))
    assert expected == pytest.approx(7.8, abs=0.1)
    # eps = 1e-8 of Adam and float32 weights of size 1, which round steps of 1e-3 to 1e-4 of them
    np.testing.assert_allclose(moved[3].numpy(), expected, rtol=1e-2)
    assert not moved[[0, 1, 2, 4, 5, 6]].any()


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


def with_gradients(module, seed):
    """The same random gradients for every call with an equal seed."""
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_step_without_torchs_bookkeeping_is_torchs_step(scheduled, seed):
    """take_step calls the fused kernel itself from the second step on."""
    ours, theirs = make_module(seed), make_module(seed)
    optimizers = [make_optimizer(module, "adamw", 1e-2, 0.3) for module in (ours, theirs)]
    kind = "one_cycle" if scheduled else "constant"
    schedules = [make_schedule(optimizer, kind, 1e-2, 6) for optimizer in optimizers]
    for step in range(6):
        for module in (ours, theirs):
            with_gradients(module, seed + step)
        rate = optimizers[1].param_groups[0]["lr"]
        assert take_step(optimizers[0], schedules[0]) == rate
        optimizers[1].step()
        if scheduled:
            schedules[1].step()
    assert_equal_weights(ours, theirs, 0.0)


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd"])
def test_every_candidate_has_the_step_and_the_decay_of_its_own(solver, seed):
    rates, decays = np.array([1e-2, 1e-3, 0.0]), np.array([0.0, 0.3, 0.1])
    modules = [make_module(seed + k) for k in range(3)]
    stacked = stack(modules)
    together = PerCandidate(stacked, solver, rates, decays)
    alone = [
        make_optimizer(module, solver, lr, decay)
        for module, lr, decay in zip(modules, rates, decays, strict=True)
    ]
    for step in range(5):
        with_gradients(stacked, seed + step)
        for k, (module, optimizer) in enumerate(zip(modules, alone, strict=True)):
            pairs = zip(module.parameters(), stacked.parameters(), strict=True)
            for weight, of_all in pairs:
                weight.grad = of_all.grad[k].clone()
            optimizer.step()
        together.step()
    for module, own in zip(modules, unstack(stacked), strict=True):
        assert_equal_weights(own, module)


def test_matrices_decay_and_nothing_else_does():
    module = make_module(learn_beta=True)
    decaying, still = make_optimizer(module, "adamw", 1e-2, 0.3).param_groups
    names = {weight: name.rpartition(".")[2] for name, weight in module.named_parameters()}
    assert {names[weight][:2] for weight in decaying["params"]} == {"W_"}
    expected = {"beta", "positions", "b_1", "b_2", "b_U", "gain", "shift"}
    assert {names[weight] for weight in still["params"]} == expected
    assert (decaying["weight_decay"], still["weight_decay"]) == (0.3, 0.0)


TORCHS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def torchs_optimizer(module, solver, lr, weight_decay):
    """The same groups in torch's own optimiser: weight matrices decay, the rest does not."""
    groups = {True: [], False: []}
    for name, weight in module.named_parameters():
        groups[name.split(".")[-1].startswith("W_")].append(weight)
    groups = [{"params": groups[True], "weight_decay": weight_decay}, {"params": groups[False]}]
    return TORCHS[solver](groups, lr=lr, weight_decay=0.0, fused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", TORCHS)
def test_steps_are_those_of_torch_to_the_bit(solver, dtype, seed):
    ours = make_module(seed).to(dtype)
    torchs = copy.deepcopy(ours)
    own = make_optimizer(ours, solver, 1e-2, 0.1)
    reference = torchs_optimizer(torchs, solver, 1e-2, 0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(7):
        for a, b in zip(ours.parameters(), torchs.parameters(), strict=True):
            a.grad = torch.randn(a.shape, generator=generator, dtype=dtype)
            b.grad = a.grad.clone()
        take_step(own)
        reference.step()
    for a, b in zip(ours.parameters(), torchs.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("largest", [5e-3, 0.3, 1.0, 7e-5])
@pytest.mark.parametrize("total", [1, 2, 3, 4, 7, 20, 60, 1_000])
def test_one_cycle_is_that_of_torch_to_the_bit(total, largest):
    weight = torch.nn.Parameter(torch.zeros(2))
    reference = torch.optim.SGD([weight], lr=largest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about the order of two steps
        torchs = torch.optim.lr_scheduler.OneCycleLR(
            reference, largest, total_steps=total, cycle_momentum=False
        )
        expected = []
        for _ in range(total):
            expected.append(reference.param_groups[0]["lr"])
            torchs.step()
    own = torch.optim.SGD([weight], lr=largest)
    schedule, sizes = make_schedule(own, "one_cycle", largest, total), []
    for _ in range(total):
        sizes.append(own.param_groups[0]["lr"])
        schedule.step()
    assert sizes == expected
