"""The training loop: skorch's NeuralNet over whole in-memory batches. Only this file knows skorch.

skorch keeps the net, the optimiser, the history and the callbacks; what is replaced is the path a
batch takes: no Dataset, no DataLoader, no host synchronisation between two steps.
"""

from __future__ import annotations

import contextlib
import copy

import numpy as np
import torch
from skorch import NeuralNet
from skorch.callbacks import (
    BatchScoring,
    Callback,
    EarlyStopping,
    EpochScoring,
    EpochTimer,
    PrintLog,
)
from skorch.exceptions import SkorchException
from skorch.history import History
from skorch.utils import TeeGenerator
from torch import Tensor, nn
from torch.nn import functional as F

from ._core import ResidualTransformer
from ._data import TrainingSet, by_length, chunks
from ._descent import GradientDescent, Objective, smooth_step
from ._fast import at_length, fewest_sequences, forward, sequences_per_pass
from ._optimizer import make_optimizer, make_schedule, take_step
from .exceptions import DivergenceError


def predict_chunk(arch):
    """Sequences per forward pass without gradients.

    The same for every call on a model: matrix kernels choose by shape, so rows are equal to the bit
    only when they always travel in chunks of one size; a power of two, as kernels treat the rows
    that are left over differently. Small, as a single row pays for a whole chunk.
    """
    size = min(256, max(fewest_sequences(arch), sequences_per_pass(arch) // 4))
    return 1 << (size.bit_length() - 1)


def predict_chunks(arch, source):
    """Rows of a source in chunks for prediction, as :func:`sklearn_restrans._data.chunks`."""
    for length, rows in by_length(source, np.arange(len(source))):
        yield from chunks(source, predict_chunk(at_length(arch, length)), rows)


# Training rows on which the curvature is measured for the step "auto" of minibatch SGD.
_AUTO_STEP_ROWS = 2_048


class StopTraining(Exception):
    """Raised by the stop rule at the end of an epoch; ends the loop, never reaches the user."""


class SampleLoss(nn.Module):
    """Loss of every sample, (*K, n), a mean over its outputs.

    Shape: output (*K, n, c); target (n, c), or class numbers (n,) for "log_loss".
    """

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if self.kind == "log_loss":
            log_p = output.log_softmax(-1)
            index = target.expand(output.shape[:-1])[..., None]
            return -log_p.gather(-1, index).squeeze(-1)
        difference = output - target
        if self.kind == "squared_error":
            return difference.square().mean(-1)
        if self.kind == "absolute_error":
            return difference.abs().mean(-1)
        zero = torch.zeros_like(difference)
        return F.huber_loss(difference, zero, reduction="none").mean(-1)


class Net(NeuralNet):
    """skorch's net, fed from a :class:`TrainingSet`; its ``module_`` is the fitted model."""

    def __init__(
        self,
        module,
        criterion,
        *,
        solver="adamw",
        weight_decay=0.0,
        learning_rate="constant",
        autocast=False,
        generator=None,
        **kwargs,
    ):
        self.solver = solver
        self.weight_decay = weight_decay
        self.learning_rate = learning_rate
        self.autocast = autocast
        self.generator = generator
        # State of one call to fit: validation part, gradient descent, the last step's size.
        self.valid_set = self.descent = self.step_size = None
        # An epoch timer is all that is taken of skorch's defaults: no printing, no hold-out.
        super().__init__(module, criterion, train_split=None, **kwargs)

    @property
    def _default_callbacks(self):
        return [("epoch_timer", EpochTimer())]

    def initialize_optimizer(self, triggered_directly=None):
        """One optimiser; only weight matrices decay, as usual for Transformers."""
        self.optimizer_ = make_optimizer(self.module_, self.solver, self.lr, self.weight_decay)
        self.scheduler_ = None
        return self

    def on_batch_begin(self, net, batch=None, training=False, **_):
        """Keep no row per batch in the history: the losses of batches stay on the device."""

    def infer(self, x, mask=None, **_):
        if not self.autocast:
            return forward(self.module_, x, mask)
        with torch.autocast(torch.device(self.device).type, torch.bfloat16):
            return forward(self.module_, x, mask).float()

    def get_split_datasets(self, X, y=None, **_):
        return X, self.valid_set

    def get_iterator(self, dataset, training=False):
        return dataset if isinstance(dataset, TrainingSet) else super().get_iterator(dataset)

    def set_step(self, step):
        """Use another step size from now on."""
        self.lr = step
        for group in self.optimizer_.param_groups:
            group["lr"] = step

    def schedule(self, n_samples, epochs):
        """Attach the step-size schedule for a whole call to fit."""
        steps = epochs * -(-n_samples // self.batch_size)
        self.scheduler_ = make_schedule(self.optimizer_, self.learning_rate, self.lr, steps)

    def notify(self, method_name, **kwargs):
        """Call every callback; the end that skorch's EarlyStopping asks for is no Ctrl-C."""
        getattr(self, method_name)(self, **kwargs)
        for _, callback in self.callbacks_:
            try:
                getattr(callback, method_name)(self, **kwargs)
            except KeyboardInterrupt:
                if isinstance(callback, EarlyStopping):
                    raise StopTraining from None
                raise
            except (LookupError, SkorchException) as error:
                name = type(callback).__name__
                raise ValueError(
                    f"callbacks: {name} did not find what it reads ({error}). There is no row per "
                    "batch, and a valid_loss only with X_val and y_val or early_stopping=True: "
                    f"pass validation data, let {name} watch 'train_loss', or leave it out."
                ) from error

    def _is_listened_to(self):
        """Whether a callback does anything at a batch; telling those that do not is slow."""
        return any(
            getattr(type(callback), name) is not getattr(Callback, name)
            for _, callback in self.callbacks_
            for name in ("on_batch_begin", "on_grad_computed", "on_batch_end")
        )

    def run_single_epoch(self, iterator, training, prefix, step_fn, **_):
        """One pass over the data; the mean loss is fetched from the device once."""
        if iterator is None:
            return
        self.module_.train(training)
        if not training:
            self.history.record(prefix + "_loss", self.evaluate(iterator))
            return
        if self.descent is not None:
            self.descend()
            return
        n = len(iterator)
        order = iterator.order(self.batch_size, self.generator)
        self.listened_to = self._is_listened_to()
        total = 0.0
        for start in range(0, n, self.batch_size):
            positions = order[start : start + self.batch_size]
            if self.listened_to:
                self.notify("on_batch_begin", batch=positions, training=True)
            loss = step_fn((iterator, positions))
            if self.listened_to:
                self.notify("on_batch_end", batch=positions, training=True, loss=loss)
            total = total + loss
        self.history.record(prefix + "_loss", float(total) / n)
        self.history.record("learning_rate", self.step_size)

    def descend(self):
        """One step of full-batch gradient descent, and what was measured at it."""
        step = self.descent.step()
        if self.descent.diverged:
            tried = self.descent.step_size
            raise DivergenceError(
                f"gradient descent diverged: the loss went from {self.descent.losses[0]:.4g} to "
                f"{step.loss:.4g} in {len(self.descent.losses)} steps of "
                f"learning_rate_init={tried:.4g}. At the start a step of "
                f"{self.descent.step_that_works():.4g} would have worked (1 / (1.05 L), L the "
                "largest curvature there; it grows with residual_beta): use "
                "learning_rate_init='auto' or that."
            )
        if len(self.history) > 1:
            self.history[-2]["kappa"] = step.kappa_before
        self.history.record("train_loss", step.loss)
        self.history.record("gradient_norm", step.gradient_norm)
        self.history.record("learning_rate", step.step_size)
        if self.descent.auto:
            self.history.record("largest_curvature", step.largest_curvature)
            self.history.record("undone", step.undone)

    def train_step(self, batch, **_):
        """One step of the optimiser on one batch; returns the summed loss, still on the device."""
        data, positions = batch
        for weight in self.module_.parameters():
            weight.grad = None
        size = len(positions)
        if torch.device(self.device).type == "cpu":
            # A large batch is accumulated over equal passes whose activations stay in the cache.
            arch = at_length(self.module_.arch, data.longest(positions))
            size = -(-size // -(-size // sequences_per_pass(arch)))
        total = 0.0
        for start in range(0, len(positions), size):
            x, target, weight = data.batch(positions[start : start + size])
            loss = self.criterion_(self.infer(*x), target)
            loss = (loss if weight is None else loss * weight).sum()
            (loss / len(positions)).backward()
            total = total + loss.detach()
        if self.listened_to:
            parameters = TeeGenerator(self.module_.named_parameters())
            self.notify(
                "on_grad_computed", named_parameters=parameters, batch=positions, training=True
            )
        self.step_size = take_step(self.optimizer_, self.scheduler_)
        return total

    def evaluate(self, data):
        """Weighted mean loss over a set, in eval mode, one forward pass over it."""
        total, weights = 0.0, 0.0
        self.module_.eval()
        with torch.inference_mode():
            for length, alike in by_length(data.source, data.rows):
                size = predict_chunk(at_length(self.module_.arch, length))
                for start in range(0, len(alike), size):
                    positions = alike[start : start + size]
                    x, target, weight = data.batch(positions)
                    loss = self.criterion_(self.infer(*x), target)
                    total = total + (loss if weight is None else loss * weight).sum()
                    weights = weights + (len(positions) if weight is None else weight.sum())
        return float(total) / float(weights)

    def get_params(self, deep=True, **kwargs):
        # The generator is state of one fit, not a parameter; it cannot be copied by repr or clone.
        params = super().get_params(deep, **kwargs)
        params.pop("generator", None)
        return params


class StopRule(Callback):
    """Watches one loss: stops when it no longer falls, and keeps the best weights if asked.

    ``patience`` None never stops. The watched loss is the validation loss where there is one.
    """

    def __init__(self, monitor, patience, tol, keep_best, advice):
        self.monitor, self.patience, self.tol = monitor, patience, tol
        self.keep_best, self.advice = keep_best, advice

    def on_train_begin(self, net, **_):
        self.best_, self.best_epoch_, self.best_weights_ = np.inf, 0, None
        self.reference_, self.since_ = np.inf, 0
        self.start_ = len(net.history)

    def on_epoch_end(self, net, **_):
        row = net.history[-1]
        epoch = len(net.history) - self.start_
        for name in ("train_loss", self.monitor):
            if not np.isfinite(row[name]):
                raise DivergenceError(
                    f"the {name.replace('_', ' ')} became {row[name]} in epoch {epoch}: training "
                    f"diverged. {self.advice}"
                )
        loss = row[self.monitor]
        if loss < self.best_:
            self.best_, self.best_epoch_ = loss, epoch
            if self.keep_best:
                self.best_weights_ = copy.deepcopy(net.module_.state_dict())
        self.since_ = 0 if loss < self.reference_ - self.tol else self.since_ + 1
        self.reference_ = min(self.reference_, loss)
        if self.patience is not None and self.since_ >= self.patience:
            raise StopTraining


class EpochHook(Callback):
    """Calls ``hook(epoch)`` after every ``interval``-th epoch."""

    def __init__(self, hook, interval):
        self.hook, self.interval = hook, interval

    def on_epoch_end(self, net, **_):
        if len(net.history) % self.interval == 0:
            self.hook(len(net.history))


def make_net(module: ResidualTransformer, loss: str, settings: dict, callbacks=()) -> Net:
    """An initialised net; ``settings`` are solver, lr, batch_size, ... as plain values."""
    for callback in callbacks:
        _check_callback(callback)
    net = Net(module, SampleLoss(loss), callbacks=list(callbacks), **settings)
    with contextlib.redirect_stdout(None):
        return net.initialize()


def _check_callback(entry) -> None:
    """Refuse what is no skorch callback, and those that need skorch's own batches."""
    callback = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
    kind = callback if isinstance(callback, type) else type(callback)
    if not issubclass(kind, Callback):
        raise TypeError(f"callbacks must hold skorch callbacks, got {entry!r}.")
    if issubclass(kind, EpochScoring | BatchScoring):
        raise ValueError(
            f"callbacks holds {kind.__name__}, which needs the batches of a skorch data loader; "
            "pass X_val and y_val to fit and read validation_scores_."
        )


def train(net: Net, data: TrainingSet, valid: TrainingSet | None, epochs: int, rule, seed=0):
    """Run the loop to its end or to the stop rule; returns the best epoch (1-based).

    Raises
    ------
    DivergenceError
        If a loss or a weight is not finite.
    """
    net.valid_set = valid
    if net.solver == "gd":
        objective = Objective(net.module_, net.criterion_, data)
        net.descent = GradientDescent(objective, net.lr, seed)
    else:
        measure_step(net, data, seed)
        net.schedule(len(data), epochs)
    net.notify("on_train_begin", X=data, y=None)
    # skorch would swallow KeyboardInterrupt in partial_fit; fit_loop lets Ctrl-C through.
    with contextlib.suppress(StopTraining):
        net.fit_loop(data, epochs=epochs)
    net.notify("on_train_end", X=data, y=None)
    return finish(net, rule)


def measure_step(net: Net, data: TrainingSet, seed=0):
    """Replace the step size "auto" of minibatch SGD by a number."""
    if net.lr == "auto":
        part = data.subset(_AUTO_STEP_ROWS, seed)
        net.set_step(smooth_step(Objective(net.module_, net.criterion_, part), seed))


def finish(net: Net, rule):
    """Put the kept weights in place, check them, and return their epoch (1-based)."""
    net.valid_set = net.descent = None
    net.module_.eval()
    if rule.best_weights_ is not None:
        net.module_.load_state_dict(rule.best_weights_)
        rule.best_weights_ = None
        return rule.start_ + rule.best_epoch_
    if not all(bool(p.isfinite().all()) for p in net.module_.parameters()):
        raise DivergenceError(f"a weight is not finite after the last step. {rule.advice}")
    return len(net.history)


def net_state(net: Net, with_optimizer: bool) -> dict:
    """Weights, and optimiser state if asked, as numpy arrays: no tensor, no device, no skorch.

    Copies: what the net learns later does not change them.
    """
    state = {
        "weights": _to_numpy(net.module_.state_dict()),
        "history": [dict(row) for row in net.history.to_list()],
    }
    if with_optimizer:
        state["optimizer"] = _to_numpy(net.optimizer_.state_dict())
    return state


def restore_net(net: Net, state: dict) -> Net:
    """Fill an initialised net with what :func:`net_state` returned."""
    net.module_.load_state_dict({k: torch.as_tensor(v) for k, v in state["weights"].items()})
    net.module_.eval()
    history = History()
    history.extend(copy.deepcopy(state["history"]))
    net.history_ = history
    if "optimizer" in state:
        net.optimizer_.load_state_dict(_to_torch(state["optimizer"]))
    return net


def continue_net(net: Net, old: Net) -> Net:
    """Give a new net the weights, history and, for the same solver, optimiser state of ``old``.

    The new net's step size, weight decay and fixed beta hold.
    """
    groups = [
        {k: group[k] for k in ("lr", "weight_decay")} for group in net.optimizer_.param_groups
    ]
    beta = net.module_.beta.detach().clone()
    restore_net(net, net_state(old, with_optimizer=net.solver == old.solver))
    for group, settings in zip(net.optimizer_.param_groups, groups, strict=True):
        group.update(settings)
    if not net.module_.arch.learn_beta:
        net.module_.beta.copy_(beta)
    return net


def _to_numpy(value):
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, dict):
        return {k: _to_numpy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_numpy(v) for v in value]
    return value


def _to_torch(value):
    if isinstance(value, np.ndarray | np.generic):
        return torch.tensor(value)  # a copy: the optimiser works in place
    if isinstance(value, dict):
        return {k: _to_torch(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_torch(v) for v in value]
    return value


def print_log():
    """skorch's table of losses, one row an epoch, for ``verbose``."""
    return PrintLog()
