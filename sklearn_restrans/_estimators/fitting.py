"""Train one candidate, a residual coefficient and a seed, on a prepared problem."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from .._model.initialization import reset_parameters
from .._model.transformer import ResidualTransformer, sinusoidal
from .._training.loop import train
from .._training.net import Net, make_net
from .._training.skorch_names import PrintLog
from .._training.state import continue_net, net_state, restore_net
from .._training.stopping import EpochHook, EpochTasks, make_rule
from ..diagnostics.conditioning import Conditioning
from .probe import Probe


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a training.

    Attributes
    ----------
    net : Net
        With the kept weights and the history.
    best_epoch : int
        Epoch whose weights were kept, from 1.
    conditioning : Conditioning
    gradients : list of (epoch, loss, gradient norm)
        On the probe set; empty for gradient descent, whose history has them for all rows.
    """

    net: Net
    best_epoch: int
    conditioning: Conditioning
    gradients: list


class Run:
    """One training under way: a net, its stop rule, and the record of its probe set."""

    def __init__(self, problem, settings, beta, seed, callbacks=(), previous=None, task=None):
        """Make the net and record its start.

        Parameters
        ----------
        problem : Problem
        settings : TrainingSettings
        beta : ndarray of shape (n_layers, 2)
        seed : int
        callbacks : sequence of skorch callbacks
        previous : Net or None
            A net to continue; it is copied and stays as it is.
        task : FitTask or None
            The task whose subtasks the epochs are.
        """
        self.problem, self.settings, self.seed = problem, settings, seed
        generator = torch.Generator().manual_seed(seed)
        module = new_module(problem, settings.init, beta, generator)
        shown = [PrintLog()] if settings.verbose else []
        net = make_net(module, settings, [*callbacks, *shown])
        if previous is not None:
            continue_net(net, previous)
        self.net, self.rule = net, make_rule(settings, beta, problem.valid is not None)
        self.probe = Probe(net, problem, settings, seed, self.rule.advice)
        self.probe.record(len(net.history))
        self._user_callbacks = net.callbacks_
        hooks = [("stop_rule", self.rule)]
        if settings.conditioning_interval is not None:
            hook = EpochHook(self.probe.record, settings.conditioning_interval)
            hooks.insert(0, ("conditioning", hook))
        if task is not None and task.context is not None:
            hooks.append(("epoch_tasks", EpochTasks(task, partial(self._attributes, task))))
        net.callbacks_ = [*net.callbacks_, *hooks]
        net.generator_ = generator
        # On the device of the activations, whose masks it draws.
        net.module_.draw_from(torch.Generator(problem.device).manual_seed(seed))

    def _attributes(self, task):
        """Fitted attributes of the model as it would be if training ended now.

        The net is a copy, as this one trains on.
        """
        own = self.net.module_
        module = ResidualTransformer(own.arch).to(own.W_in.device, own.W_in.dtype)
        net = make_net(module, self.settings)
        restore_net(net, net_state(self.net, with_optimizer=False))
        best_epoch = len(net.history)
        if self.rule.keep_best and self.rule.best_weights_ is not None:
            for weight, best in zip(module.parameters(), self.rule.best_weights_, strict=True):
                weight.data.copy_(best)
            best_epoch = self.rule.start_ + self.rule.best_epoch_
        conditioning = copy.deepcopy(self.probe.conditioning)
        trained = Trained(net, best_epoch, conditioning, list(self.probe.gradients))
        attributes = task.estimator._fitted_attributes(self.problem, trained)
        return attributes | {"_preprocessing": self.problem.preprocessing}

    def release(self):
        """Take from the net what belongs to this training only: its hooks, generator and data."""
        self.net.callbacks_, self.net.generator_ = self._user_callbacks, None
        self.net.module_.draw_from(None)
        self.net.valid_set_ = self.net.descent_ = None

    def finish(self, best_epoch):
        """The result of the training, once its loop has ended."""
        if self.probe.conditioning.epochs[-1] != best_epoch:
            self.probe.record(best_epoch)
        return Trained(self.net, best_epoch, self.probe.conditioning, self.probe.gradients)


def fit_problem(problem, settings, beta, seed, callbacks=(), previous=None, task=None):
    """Train one candidate; see `Run` for the arguments.

    Raises
    ------
    DivergenceError
        If a loss, a weight or an output leaves the finite numbers.
    """
    run = Run(problem, settings, beta, seed, callbacks, previous, task)
    try:
        best = train(run.net, problem.train, problem.valid, settings.max_iter, run.rule, seed)
    finally:
        run.release()
    return run.finish(best)


def new_module(problem, init, beta, generator):
    """The model that a training starts from."""
    arch, beta = problem.arch, torch.as_tensor(np.asarray(beta, dtype=float))
    module = ResidualTransformer(arch, beta)
    reset_parameters(module, init, generator)
    # Again, once the weights have their final type: float32 changes 0.3 in the 8th digit.
    module.to(problem.dtype).beta.data.copy_(beta)
    if arch.positions == "sinusoidal":
        module.positions.copy_(sinusoidal(arch.n_tokens, arch.d_model))
    if problem.vectors is not None:
        module.W_in.data.copy_(torch.as_tensor(problem.vectors))
    return module
