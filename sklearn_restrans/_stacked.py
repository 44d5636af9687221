"""Many candidates of one shape trained at once, along a leading dimension of every weight.

Each candidate keeps its own batches, optimiser state, history, stop rule and fate: the numbers are
those of separate fits up to rounding, the matrix products are shared batched ones.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch

from ._core import ResidualTransformer
from ._device import resolve_device, resolve_dtype, torch_state
from ._fast import choose, forward
from ._optimizer import PerCandidate, make_optimizer, make_schedule, take_step
from ._training import (
    StopTraining,
    finish,
    measure_step,
    predict_chunk,
)
from .exceptions import DivergenceError

# Parameters in which the candidates of a group may differ.
STACKABLE = ("residual_beta", "random_state", "learning_rate_init", "weight_decay")

# Bytes of activations up to which a group trains faster than one fit after the other; more of them
# leave the cache (benchmarks/bench_beta_path.py, "cost model").
_GROUP_BYTES = 8_000_000


class _Stack:
    """The stacked model of the candidates still training, with its optimiser."""

    def __init__(self, nets, n_samples, epochs):
        net = nets[0]
        self.nets, self.criterion = list(nets), net.criterion_
        self.batch_size, self.autocast, self.device = net.batch_size, net.autocast, net.device
        self.module = ResidualTransformer.stack([net.module_ for net in nets])
        self.rates = np.array([net.lr for net in nets])
        self.decays = np.array([net.weight_decay for net in nets])
        self.alike = len({(net.lr, net.weight_decay) for net in nets}) == 1
        self.optimizer = self.make_optimizer()
        steps = epochs * -(-n_samples // self.batch_size)
        largest = net.lr if self.alike else 1.0
        self.schedule = make_schedule(self.optimizer, net.learning_rate, largest, steps)

    def make_optimizer(self):
        solver = self.nets[0].solver
        if self.alike:
            return make_optimizer(self.module, solver, self.rates[0], self.decays[0])
        return PerCandidate(self.module, solver, self.rates, self.decays)

    def step_size(self, k):
        """The last step size of the k-th candidate."""
        return self.step_taken if self.alike else float(self.rates[k]) * self.step_taken

    def infer(self, x, mask):
        if not self.autocast:
            return forward(self.module, x, mask)
        with torch.autocast(torch.device(self.device).type, torch.bfloat16):
            return forward(self.module, x, mask).float()

    def train_epoch(self, data):
        """One pass; returns the mean training loss of every candidate, (K,)."""
        n = len(data)
        orders = np.stack([data.order(self.batch_size, net.generator) for net in self.nets])
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
        return (total / n).double().cpu().numpy()

    def _batch_loss(self, data, positions):
        """Summed weighted loss of one batch, (K,); positions (B,) for all, or (K, B)."""
        (x, mask), target, weight = data.batch(positions.ravel())
        if positions.ndim == 2:
            x, target = (t.unflatten(0, positions.shape) for t in (x, target))
            mask = None if mask is None else mask.unflatten(0, positions.shape)
            weight = None if weight is None else weight.unflatten(0, positions.shape)
        loss = self.criterion(self.infer(x, mask), target)
        return (loss if weight is None else loss * weight).sum(-1)

    def evaluate(self, data):
        """Weighted mean loss of every candidate on a set, (K,)."""
        self.module.eval()
        total, weights = 0.0, 0.0
        with torch.inference_mode():
            size = predict_chunk(self.module.arch)
            for start in range(0, len(data), size):
                positions = np.arange(start, min(start + size, len(data)))
                total = total + self._batch_loss(data, positions)
                weights += (
                    len(positions)
                    if data.weight is None
                    else float(data.weight[positions[0] : positions[-1] + 1].sum())
                )
        return (total / weights).double().cpu().numpy()

    def write_back(self):
        """Copy every candidate's weights into its own net."""
        state = self.module.state_dict()
        with torch.no_grad():
            for k, net in enumerate(self.nets):
                own = net.module_.state_dict()
                for name, value in own.items():
                    stacked = state[name]
                    value.copy_(stacked[k] if stacked.ndim > value.ndim else stacked)

    def keep(self, chosen):
        """Go on with some of the candidates: slice weights and optimiser state."""
        index = torch.as_tensor(chosen, device=self.module.W_in.device)
        old, old_optimizer = self.module, self.optimizer
        arch = replace(old.arch, n_candidates=len(chosen))
        self.module = ResidualTransformer(arch).to(old.W_in)
        self.nets = [self.nets[k] for k in chosen]
        self.rates, self.decays = self.rates[chosen], self.decays[chosen]
        # All but the sinusoidal table, which the candidates share, has the leading dimension.
        shared = {"positions"} if arch.positions == "sinusoidal" else set()
        before = old.state_dict()
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                value.copy_(before[name] if name in shared else before[name][index])
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


def train_stacked(nets, data, valid, epochs, rules, seeds):
    """As :func:`sklearn_restrans._training.train`, for many nets of one shape and setting.

    Returns
    -------
    outcomes : list
        Per net the best epoch (1-based), or the DivergenceError that ended it; the others go on.
    """
    outcomes = [None] * len(nets)
    place = {id(net): k for k, net in enumerate(nets)}
    for net, seed in zip(nets, seeds, strict=True):
        net.valid_set = valid
        measure_step(net, data, seed)
        net.notify("on_train_begin", X=data, y=None)
    if not nets:
        return outcomes
    stack = _Stack(nets, len(data), epochs)
    for _ in range(epochs):
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
                outcomes[place[id(net)]] = error
                continue
            going_on.append(k)
        for net in stack.nets:  # every net timed the whole group
            net.history.record("dur", net.history[-1, "dur"] / len(stack.nets))
        if not going_on:
            break
        if len(going_on) < len(stack.nets):
            stack.keep(going_on)
    for k, (net, rule) in enumerate(zip(nets, rules, strict=True)):
        net.notify("on_train_end", X=data, y=None)
        if outcomes[k] is None:
            outcomes[k] = _attempt(finish, net, rule)
    return outcomes


def fit_candidates(candidates, X, y, sample_weight=None, X_val=None, y_val=None):
    """Fit estimators of one shape, stacked if more than one.

    They may differ in :data:`STACKABLE` parameters only.

    Returns
    -------
    outcomes : list
        Per candidate its best epoch, or the DivergenceError that left it unfitted.
    seconds : float
    """
    started = time.perf_counter()
    if len(candidates) == 1:
        fitted = _attempt(candidates[0].fit, X, y, sample_weight, X_val=X_val, y_val=y_val)
        failed = isinstance(fitted, DivergenceError)
        return [fitted if failed else fitted.best_iteration_], time.perf_counter() - started
    first = candidates[0]
    seeds = [candidate._draw_seed() for candidate in candidates]
    with torch_state(first.n_threads, seeds[0], resolve_device(first.device)):
        # The split of early stopping is the only thing in the data that a seed decides, and
        # candidates of different seeds are then not stacked (plan_stacks).
        ready = first._load(X, y, sample_weight, X_val, y_val, seed=seeds[0])
        for candidate in candidates[1:]:
            candidate._share(first)
        runs = [
            _attempt(candidate._begin, ready, seed)
            for candidate, seed in zip(candidates, seeds, strict=True)
        ]
        begun = [k for k, run in enumerate(runs) if not isinstance(run, DivergenceError)]
        outcomes = list(runs)
        try:
            nets, rules = [runs[k].net for k in begun], [runs[k].rule for k in begun]
            begun_seeds = [seeds[k] for k in begun]
            trained = train_stacked(
                nets, ready.data, ready.valid, first.max_iter, rules, begun_seeds
            )
        finally:
            for k in begun:
                runs[k].release()
        for k, best in zip(begun, trained, strict=True):
            failed = isinstance(best, DivergenceError)
            outcomes[k] = best if failed else _attempt(_end, candidates[k], runs[k], best)
    return outcomes, time.perf_counter() - started


def _attempt(function, *args, **kwargs):
    """What the function returns, or the DivergenceError it raised."""
    try:
        return function(*args, **kwargs)
    except DivergenceError as error:
        return error


def _end(candidate, run, best):
    candidate._end(run, best)
    return best


def plan_stacks(estimator, X, n_candidates, stacked="auto"):
    """Whether and in groups of how many candidates are stacked, and the reason in words.

    Separate training is needed where candidates do not share batches of one shape or one random
    stream. Otherwise stacking pays as long as a group's activations stay in the cache: groups are
    as large as the budget measured by benchmarks/bench_beta_path.py allows, and where it allows no
    second candidate, one step is so long that there is no overhead left to share. On CUDA memory
    is the only limit.

    Parameters
    ----------
    X : ndarray or SequenceView
        As the estimator prepares it.
    n_candidates : int
        How many differ in STACKABLE parameters only, and see the same data: with early stopping
        the seed decides the split.
    """
    reason = _why_separate(estimator)
    if reason is None and n_candidates == 1:
        reason = "there is only one candidate for a group"
    if reason is None and not stacked:
        reason = "stacked=False"
    if reason is not None:
        return {"mode": "separate", "size": 1, "reason": reason}
    if stacked is True:
        return {"mode": "stacked", "size": n_candidates, "reason": "stacked=True"}
    device = resolve_device(estimator.device)
    each, budget = _bytes_per_candidate(estimator, X, device), _budget(device)
    reason = f"a step of one candidate takes {each:,} bytes of the {budget:,} a group may take"
    size = min(n_candidates, max(1, budget // each))
    return {"mode": "separate" if size == 1 else "stacked", "size": size, "reason": reason}


def _why_separate(estimator):
    if estimator.solver == "gd":
        return "every candidate of gradient descent measures its own step size, when it needs to"
    if estimator.dropout > 0:
        return "dropout draws its own random numbers in every fit"
    if estimator.callbacks:
        return "callbacks belong to one net"
    if estimator.warm_start:
        return "warm_start continues one net"
    return None


def _budget(device):
    """Bytes of activations that a group may have."""
    if device.type != "cuda":
        return _GROUP_BYTES
    # The backward pass takes as much again, and half of the memory stays free.
    return torch.cuda.mem_get_info(device)[0] // 4


def _bytes_per_candidate(estimator, X, device):
    """Activations that one step of one candidate keeps for its backward pass."""
    arch = estimator._architecture(X)
    T, h = arch.n_tokens, arch.n_heads
    # X, query, key, value, Attn(X), Z, and phi before and after; then scores and weights.
    token = 6 * arch.d_model + 2 * arch.d_ff
    if choose(arch) == "folded":  # one token, and the candidate's own copy of the batch
        numbers = token + T * (2 * h + arch.n_features)
    else:
        numbers = arch.n_layers * T * (token + 2 * h * T)
    dtype = resolve_dtype(estimator.dtype, X.dtype, len(X) * T * arch.d_model, device)
    return min(estimator.batch_size, len(X)) * numbers * dtype.itemsize
