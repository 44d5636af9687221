"""Many candidates of one shape trained at once, along a leading dimension of every weight.

Each candidate keeps its own batches, optimiser state, history and end: the numbers are
those of separate fits up to rounding, the matrix products are shared batched ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .._model import candidates
from .._model.shortcuts import choose
from ..exceptions import DivergenceError
from .loop import finish, loss_before, measure_step
from .optimizers import PerCandidate, make_optimizer, make_schedule, take_step
from .prediction import evaluate, run
from .stopping import StopTraining


class _Stack:
    """The stacked model of the candidates still training, with its optimiser."""

    def __init__(self, nets, n_samples, epochs):
        net = nets[0]
        self.nets, self.criterion = list(nets), net.criterion_
        self.batch_size, self.autocast = net.batch_size, net.settings.autocast
        self.module = candidates.stack([net.module_ for net in nets])
        self.rates = np.array([net.lr for net in nets])
        self.decays = np.array([net.settings.weight_decay for net in nets])
        self.alike = len(set(self.rates)) == len(set(self.decays)) == 1
        self.optimizer = self.make_optimizer()
        steps = epochs * -(-n_samples // self.batch_size)
        largest = net.lr if self.alike else 1.0
        self.schedule = make_schedule(self.optimizer, net.settings.schedule, largest, steps)

    def make_optimizer(self):
        solver = self.nets[0].settings.solver
        if self.alike:
            return make_optimizer(self.module, solver, self.rates[0], self.decays[0])
        return PerCandidate(self.module, solver, self.rates, self.decays)

    def step_size(self, k):
        """The last step size of the k-th candidate."""
        return self.step_taken if self.alike else float(self.rates[k]) * self.step_taken

    def train_epoch(self, data):
        """One pass; returns the mean training loss of every candidate, (K,)."""
        n = len(data)
        orders = np.stack([data.order(self.batch_size, net.generator_) for net in self.nets])
        if choose(self.module.arch) == "folded" and (orders == orders[0]).all():
            # Candidates of one seed share their batches. Other routes copy x K times anyway.
            orders = orders[0]
        self.module.train()
        total = 0.0
        for start in range(0, n, self.batch_size):
            positions = orders[..., start : start + self.batch_size]
            for weight in self.module.parameters():
                weight.grad = None
            loss = self._batch_loss(data, positions)
            (loss / positions.shape[-1]).sum().backward()
            self.step_taken = take_step(self.optimizer, self.schedule)
            total = total + loss.detach()
        return (total / n).cpu().double().numpy()

    def _batch_loss(self, data, positions):
        """Summed weighted loss of one batch, (K,); positions (B,) for all, or (K, B)."""
        (x, mask), target, weight = data.batch(positions.ravel())
        if positions.ndim == 2:
            x, target = (t.unflatten(0, positions.shape) for t in (x, target))
            mask = None if mask is None else mask.unflatten(0, positions.shape)
            weight = None if weight is None else weight.unflatten(0, positions.shape)
        loss = self.criterion(run(self.module, x, mask, self.autocast), target)
        return (loss if weight is None else loss * weight).sum(-1)

    def evaluate(self, data):
        """Weighted mean loss of every candidate on a set, (K,)."""
        return evaluate(self.module, self.criterion, data, self.autocast)

    def write_back(self):
        """Copy every candidate's weights into its own net."""
        candidates.copy_to(self.module, [net.module_ for net in self.nets])

    def keep(self, chosen):
        """Go on with some of the candidates: slice weights and optimiser state."""
        index = torch.as_tensor(chosen, device=self.module.W_in.device)
        self.module, old_optimizer = candidates.select(self.module, index), self.optimizer
        self.nets = [self.nets[k] for k in chosen]
        self.rates, self.decays = self.rates[chosen], self.decays[chosen]
        self.optimizer = self.make_optimizer()
        for new, group in zip(self.optimizer.param_groups, old_optimizer.param_groups, strict=True):
            new.update({key: value for key, value in group.items() if key != "params"})
            for p, q in zip(new["params"], group["params"], strict=True):
                # "step" is one number for all candidates, the moments have their shape
                self.optimizer.state[p] = {
                    key: value[index] if value.shape == q.shape else value
                    for key, value in old_optimizer.state[q].items()
                }
        if self.schedule is not None:
            self.schedule.optimizer = self.optimizer


@dataclass(frozen=True)
class Failed:
    """The outcome of a training that diverged, or of an estimator that could not be fitted."""

    error: Exception


def attempt(function, *args, **kwargs):
    """What the function returns, or `Failed` where it diverged: the others must go on."""
    try:
        return function(*args, **kwargs)
    except DivergenceError as error:
        return Failed(error)


def train_stacked(nets, data, valid, epochs, rules, seeds):
    """As :func:`.loop.train`, for many nets of one shape and setting.

    Returns
    -------
    outcomes : list of int or Failed
        Per net the best epoch (1-based), or what ended it; the others go on.
    """
    outcomes = [None] * len(nets)
    if not nets:
        return outcomes
    place = {id(net): k for k, net in enumerate(nets)}
    for net, rule, seed in zip(nets, rules, seeds, strict=True):
        net.valid_set_, rule.before_ = valid, loss_before(net, data)
        measure_step(net, data, seed)
        net.notify("on_train_begin", X=data, y=None)
    stack = _Stack(nets, len(data), epochs)
    for _ in range(epochs):
        going_on = _epoch(stack, data, valid, place, outcomes)
        if not going_on:
            break
        if len(going_on) < len(stack.nets):
            stack.keep(going_on)
    for k, (net, rule) in enumerate(zip(nets, rules, strict=True)):
        net.notify("on_train_end", X=data, y=None)
        if outcomes[k] is None:
            outcomes[k] = attempt(finish, net, rule, data)
    return outcomes


def _epoch(stack, data, valid, place, outcomes):
    """Train, record and judge one epoch; the places in the stack of the nets that go on."""
    for net in stack.nets:
        net.notify("on_epoch_begin", dataset_train=data, dataset_valid=valid)
    losses = stack.train_epoch(data)
    valid_losses = None if valid is None else stack.evaluate(valid)
    stack.write_back()
    going_on = []
    for k, net in enumerate(stack.nets):
        net.history.record("train_loss", float(losses[k]))
        net.history.record("learning_rate", stack.step_size(k))
        if valid is not None:
            net.history.record("valid_loss", float(valid_losses[k]))
        try:
            net.notify("on_epoch_end", dataset_train=data, dataset_valid=valid)
        except StopTraining:
            continue
        except DivergenceError as error:
            outcomes[place[id(net)]] = Failed(error)
            continue
        going_on.append(k)
    for net in stack.nets:  # every net timed the whole group
        net.history.record("dur", net.history[-1, "dur"] / len(stack.nets))
    return going_on
