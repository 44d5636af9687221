"""Torch optimisers and step-size schedules by name, and one step of them."""

from __future__ import annotations

import warnings

import torch

_OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "gd": torch.optim.SGD,
}


def make_optimizer(module, solver, lr, weight_decay):
    """The solver's optimiser; only weight matrices decay, as usual for Transformers."""
    matrices, others = [], []
    for name, parameter in module.named_parameters():
        (matrices if name.rpartition(".")[2].startswith("W_") else others).append(parameter)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others}]
    lr = 1.0 if lr == "auto" else lr  # until the curvature is measured
    return _OPTIMIZERS[solver](groups, lr=lr, weight_decay=0.0, fused=True)


def take_step(optimizer, schedule=None):
    """``optimizer.step()``, then ``schedule.step()`` if there is one; returns the step size taken.

    Fused AdamW goes without torch's bookkeeping, which takes longer than the step of a small net:
    the same kernel on the same state. Torch's own first step makes that state, and tells a new
    schedule that the order of the two is right.
    """
    begun = optimizer.state and (schedule is None or schedule.last_epoch > 0)
    if begun and type(optimizer) is torch.optim.AdamW:
        _fused_adamw(optimizer)
    else:
        optimizer.step()
    step_size = optimizer.param_groups[0]["lr"]
    if schedule is not None:
        schedule.step()
    return step_size


def _fused_adamw(optimizer):
    for group in optimizer.param_groups:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        states = [optimizer.state[weight] for weight in weights]
        counts = [state["step"] for state in states]
        torch._foreach_add_(counts, 1)
        torch._fused_adamw_(
            weights,
            [weight.grad for weight in weights],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            counts,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


def make_schedule(optimizer, kind, lr, steps):
    """The step-size schedule over so many steps; None for a constant step."""
    if kind == "constant":
        return None
    with warnings.catch_warnings():
        # torch warns that the step order cannot be checked for a re-used optimiser
        warnings.simplefilter("ignore", UserWarning)
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, lr, total_steps=steps, cycle_momentum=False
        )
