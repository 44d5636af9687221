"""Optimisers and schedules are torch's to the bit, without torch's compiler and its warnings."""

import copy
import warnings

import pytest
import torch
from loops import make_module

from sklearn_restrans._training.optimizers import make_optimizer, make_schedule, take_step

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
