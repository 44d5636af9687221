"""Torch optimisers and step-size schedules by name, and one step of them."""

from __future__ import annotations

import math

import torch


def _plain(method):
    """A method of torch's optimisers without the wrapper that hides it from torch's compiler.

    The wrapper imports the compiler: 3 seconds at the first fit of a process, an environment
    variable, and a filter of warnings.
    """
    return getattr(method, "__wrapped__", method)


class _Plain(torch.optim.Optimizer):
    """What torch's optimisers share, without the compiler.

    A subclass has :meth:`advance`, a step without the bookkeeping of ``step``, which takes longer
    than the step of a small net.
    """

    add_param_group = _plain(torch.optim.Optimizer.add_param_group)
    state_dict = _plain(torch.optim.Optimizer.state_dict)
    load_state_dict = _plain(torch.optim.Optimizer.load_state_dict)

    def step(self):
        self.advance()


class _Adam(_Plain, torch.optim.Adam):
    """Torch's fused Adam: its kernel, on the state that it makes."""

    _kernel = staticmethod(torch._fused_adam_)

    def advance(self):
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            states = [self.state[weight] or self._begin(weight) for weight in weights]
            counts = [state["step"] for state in states]
            torch._foreach_add_(counts, 1)
            self._kernel(
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

    def _begin(self, weight):
        """The state of a weight before its first step."""
        count = torch.zeros((), dtype=torch.float32, device=weight.device)
        zeros = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
        self.state[weight] = {"step": count, **zeros}
        return self.state[weight]


class _AdamW(_Adam, torch.optim.AdamW):
    """Torch's fused AdamW."""

    _kernel = staticmethod(torch._fused_adamw_)


class _SGD(_Plain, torch.optim.SGD):
    """Torch's fused SGD without momentum."""

    def advance(self):
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            torch._fused_sgd_(
                weights,
                [weight.grad for weight in weights],
                [],
                weight_decay=group["weight_decay"],
                momentum=0.0,
                lr=group["lr"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )


# The solvers of settings.FULL_BATCH take their own steps, and none of an optimiser.
_OPTIMIZERS = {"adamw": _AdamW, "adam": _Adam, "sgd": _SGD}


def make_optimizer(module, solver, lr, weight_decay):
    """The solver's optimiser; only weight matrices decay, as usual for Transformers."""
    matrices, others = matrices_and_others(module)
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others}]
    lr = 1.0 if lr == "auto" else lr  # until the curvature is measured
    betas = {"betas": _betas(module)} if solver.startswith("adam") else {}
    return _OPTIMIZERS.get(solver, _SGD)(groups, lr=lr, weight_decay=0.0, fused=True, **betas)


def _betas(module):
    """How much of its two moments Adam keeps from step to step.

    The vector of a rare token has a gradient g once in many steps; v is then (1 - b2) g^2, and the
    vector moves by about lr / sqrt(1 - b2): 31 usual steps for 0.999, 7 for 0.98, the value of
    Vaswani et al. 2017, section 5.3 (measured on SST-2: 0.826 against 0.823 correct).
    """
    return (0.9, 0.98 if module.arch.embedding == "token" else 0.999)


def matrices_and_others(module):
    """Weight matrices, which decay, and the rest: biases, norms, and the vectors of token ids.

    A vector that no text of the training part holds has no gradient, and would only shrink.
    """
    matrices, others, ids = [], [], module.arch.embedding == "token"
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        decays = name.rpartition(".")[2].startswith("W_") and not (name == "W_in" and ids)
        (matrices if decays else others).append(parameter)
    return matrices, others


class PerCandidate(_Plain):
    """A solver on stacked weights, with a step size and a weight decay for every candidate.

    Torch's formulas, with lr and lambda of shape (K,): AdamW is
    w <- (1 - lr lambda) w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps).
    ``lr`` of a parameter group is a factor on all step sizes, which a schedule changes.
    """

    _EPS = 1e-8

    def __init__(self, module, solver, lr, weight_decay):
        matrices, others = matrices_and_others(module)
        self.solver, self.betas, like = solver, _betas(module), module.W_in
        self.rates = torch.as_tensor(lr).to(like)
        self.decays = torch.as_tensor(weight_decay).to(like)
        groups = [{"params": matrices, "decays": True}, {"params": others, "decays": False}]
        super().__init__(groups, {"lr": 1.0})

    @torch.no_grad()
    def advance(self):
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
    """One step of an optimiser, then one of its schedule; returns the step size taken.

    The first goes through ``step``: a schedule of the user's waits for it.
    """
    if optimizer.state:
        optimizer.advance()
    else:
        optimizer.step()
    step_size = optimizer.param_groups[0]["lr"]
    if schedule is not None:
        schedule.step()
    return step_size


class OneCycle:
    """Step sizes that rise to ``largest`` in 30 % of the steps and then fall to nearly zero.

    The numbers of torch's ``OneCycleLR``, whose warning about an optimiser used before could only
    be silenced for all threads of the process: with s, e the sizes at both ends of a phase and
    p from 0 to 1 in it, e + (s - e) (1 + cos(pi p)) / 2.
    """

    def __init__(self, optimizer, largest, total):
        self.optimizer, self.total, self.taken = optimizer, total, 0
        first = largest / 25.0
        self.sizes = (first, largest, first / 1e4)
        self._set()

    def _set(self):
        (first, largest, final), top = self.sizes, 0.3 * self.total - 1
        if self.taken <= top:
            start, end, part = first, largest, self.taken / top
        else:
            start, end, part = largest, final, (self.taken - top) / (self.total - 1 - top)
        size = end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = size

    def step(self):
        """The size of the next step."""
        self.taken += 1
        self._set()


def make_schedule(optimizer, kind, lr, steps):
    """The step-size schedule over a number of steps; None for a constant step."""
    return None if kind == "constant" else OneCycle(optimizer, lr, steps)
