"""When a training ends, and which of its weights are kept."""

from __future__ import annotations

import copy

import numpy as np

from ..exceptions import DivergenceError
from .skorch_names import Callback


class StopTraining(Exception):
    """Raised by the stop rule at the end of an epoch; ends the loop, never reaches the user."""


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


def make_rule(settings, beta, validated):
    """The rule for a training with or without a validation part; ``beta`` is for its advice."""
    if validated:
        monitor, patience = "valid_loss", settings.n_iter_no_change
        patience = patience if settings.early_stopping else None
    else:
        monitor, patience = "train_loss", settings.n_iter_no_change
    given = beta.ravel()
    in_words = float(given[0]) if (given == given[0]).all() else beta.tolist()
    advice = (
        f"Lower learning_rate_init (now {settings.learning_rate!r}), or residual_beta (now "
        f"{in_words!r}), which scales the curvature; solver is {settings.solver!r}."
    )
    return StopRule(monitor, patience, settings.tol, validated, advice)


class EpochHook(Callback):
    """Calls ``hook(epoch)`` after every ``interval``-th epoch."""

    def __init__(self, hook, interval):
        self.hook, self.interval = hook, interval

    def on_epoch_end(self, net, **_):
        if len(net.history) % self.interval == 0:
            self.hook(len(net.history))


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
