"""When a training ends, and which of its weights are kept."""

from __future__ import annotations

import numpy as np
import torch

from ..exceptions import DivergenceError
from .settings import OBJECTIVE, SECOND_ORDER
from .skorch_names import Callback


class StopTraining(Exception):
    """Raised by the stop rule at the end of an epoch; ends the loop, never reaches the user."""


class StopRule(Callback):
    """Watches one loss: stops when it no longer falls, and remembers the best weights.

    ``patience`` None never stops. The watched loss is the validation loss where there is one.
    ``keep_best`` says that the best weights are those of the fit; the last ones are otherwise,
    unless they are worse than no model (:func:`.loop.finish`).
    """

    def __init__(self, monitor, patience, tol, keep_best, advice):
        self.monitor, self.patience, self.tol = monitor, patience, tol
        self.keep_best, self.advice = keep_best, advice

    def on_train_begin(self, net, **_):
        trained = (weight for weight in net.module_.parameters() if weight.requires_grad)
        self.weights_ = [weight.detach() for weight in trained]
        self.start_weights_, self.best_weights_ = self._copy(), None
        self.best_, self.best_epoch_ = np.inf, 0
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
        # Without a validation part what the solver minimises is watched.
        watched = OBJECTIVE if self.monitor == "train_loss" and OBJECTIVE in row else self.monitor
        loss = row[watched]
        if loss < self.best_:
            self.best_, self.best_epoch_ = loss, epoch
            if self.best_weights_ is None:
                self.best_weights_ = self._copy()
            else:  # one call for all of them: small nets have epochs of a millisecond
                torch._foreach_copy_(self.best_weights_, self.weights_)
        self.since_ = 0 if loss < self.reference_ - self.tol else self.since_ + 1
        self.reference_ = min(self.reference_, loss)
        if self.patience is not None and self.since_ >= self.patience:
            raise StopTraining
        if net.descent_ is not None and net.descent_.finished:
            raise StopTraining

    def _copy(self):
        return [weight.clone() for weight in self.weights_]

    def put_back(self, weights):
        """Give the module other weights: of the start, of the best epoch."""
        torch._foreach_copy_(self.weights_, weights)

    def forget(self):
        """Let go of every copy."""
        self.weights_ = self.start_weights_ = self.best_weights_ = None


def make_rule(settings, beta, validated):
    """The rule for a training with or without a validation part; ``beta`` is for its advice."""
    monitor = "valid_loss" if validated else "train_loss"
    # A schedule is one curve over all epochs. In its middle steps are largest and the loss may well
    # rise; whoever stops there never takes the small steps that end it.
    may_stop = settings.schedule == "constant" and (settings.early_stopping or not validated)
    patience = settings.n_iter_no_change if may_stop else None
    given = beta.ravel()
    in_words = float(given[0]) if (given == given[0]).all() else beta.tolist()
    steps = f"Lower learning_rate_init (now {settings.learning_rate!r}), or"
    if settings.solver in SECOND_ORDER:  # these find the length of their steps
        steps = f"Raise weight_decay (now {settings.weight_decay:g}), or lower"
    advice = (
        f"{steps} residual_beta (now {in_words!r}), which scales the curvature; solver is "
        f"{settings.solver!r}."
    )
    return StopRule(monitor, patience, settings.tol, validated, advice)


class EpochHook(Callback):
    """Calls ``hook(epoch)`` after every ``interval``-th epoch."""

    def __init__(self, hook, interval):
        self.hook, self.interval = hook, interval

    def on_epoch_end(self, net, **_):
        if len(net.history) % self.interval == 0:
            self.hook(len(net.history))


class StopWhen(Callback):
    """Ends the training after an epoch for which ``condition()`` is true.

    It comes after the stop rule, which must have seen the epoch whose weights are kept.
    """

    def __init__(self, condition):
        self.condition = condition

    def on_epoch_end(self, net, **_):
        if self.condition():
            raise StopTraining


class EpochTasks(Callback):
    """Tells scikit-learn's callbacks of every epoch, as subtasks of the task of the fit.

    It comes after the stop rule, so that a model shown at the end of an epoch is the one that the
    rule would keep.
    """

    def __init__(self, task, attributes):
        self.task, self.attributes = task, attributes

    def on_train_begin(self, net, **_):
        self.epoch_ = None

    def on_epoch_begin(self, net, **_):
        self.epoch_ = self.task.subtask("epoch").begin()

    def on_epoch_end(self, net, **_):
        if self.epoch_.end(self.attributes):
            raise StopTraining

    def on_train_end(self, net, **_):
        # An epoch that another callback or the rule made the last one is still open.
        if self.epoch_ is not None:
            self.epoch_.end(self.attributes)
