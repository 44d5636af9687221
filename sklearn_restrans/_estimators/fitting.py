"""Train one candidate, a residual coefficient and a seed, on a prepared problem."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from .._data.sources import FeatureSource
from .._model.initialization import reset_parameters
from .._model.transformer import ResidualTransformer, sinusoidal
from .._training.loop import train
from .._training.net import Net, make_net
from .._training.prediction import features
from .._training.progress import ProgressBar
from .._training.settings import FULL_BATCH
from .._training.skorch_names import PrintLog
from .._training.state import continue_net, net_state, restore_net
from .._training.stopping import EpochHook, EpochTasks, StopWhen, make_rule
from .._training.vocabulary import met_ids_only
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
        module = new_module(problem, settings.init, beta, generator, fill=previous is None)
        shown = [PrintLog()] if settings.verbose else []
        net = make_net(module, settings, [*callbacks, *shown])
        if previous is not None:
            continue_net(net, previous)
        self.net, self.rule = net, make_rule(settings, beta, problem.valid is not None)
        self.train, self.valid = read_ahead(net, problem)
        self.probe = Probe(net, problem, self.train, settings, seed, self.rule.advice)
        self.probe.record(len(net.history))
        self._user_callbacks = net.callbacks_
        first, hooks = [], [("stop_rule", self.rule)]
        if settings.verbose > 1 and settings.solver not in FULL_BATCH:
            first.append(("progress", ProgressBar()))  # gone before a line is printed
        if settings.conditioning_interval is not None:
            hook = EpochHook(self.probe.record, settings.conditioning_interval)
            hooks.insert(0, ("conditioning", hook))
        if settings.on_collapse == "stop":
            hooks.append(("collapse", StopWhen(lambda: self.probe.collapsed)))
        if task is not None and task.context is not None:
            hooks.append(("epoch_tasks", EpochTasks(task, partial(self._attributes, task))))
        self.watched = bool(callbacks) or not {"conditioning", "epoch_tasks"}.isdisjoint(
            dict(hooks)
        )
        net.callbacks_ = [*first, *net.callbacks_, *hooks]
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
            trained = [weight for weight in module.parameters() if weight.requires_grad]
            for weight, best in zip(trained, self.rule.best_weights_, strict=True):
                weight.data.copy_(best)
            best_epoch = self.rule.start_ + self.rule.best_epoch_
        conditioning = copy.deepcopy(self.probe.conditioning)
        trained = Trained(net, best_epoch, conditioning, list(self.probe.gradients))
        attributes = task.estimator._fitted_attributes(self.problem, trained)
        return attributes | {"_preprocessing": self.problem.preprocessing}

    def only_met_ids(self):
        """A context in which the rows of W_in that no text needs are left alone, if they are many.

        Where somebody looks at the model between epochs it stays whole.
        """
        arch, parts = self.problem.arch, (self.train, self.valid)
        if self.watched or arch.embedding != "token" or arch.n_trained is not None:
            return nullcontext()
        if self.net.optimizer_.state:
            return nullcontext()  # of an earlier fit, whose rows still move
        met = [part.source.x.cpu().numpy()[part.rows] for part in parts if part is not None]
        met = np.unique(np.concatenate([[0], *map(np.ravel, met)]))  # and padding
        return met_ids_only(self.net, met) if 2 * len(met) < arch.n_features else nullcontext()

    def release(self):
        """Take from the net what belongs to this training only: its hooks, generator and data."""
        self.net.callbacks_, self.net.generator_ = self._user_callbacks, None
        self.net.module_.draw_from(None)
        self.net.valid_set_ = self.net.descent_ = None

    def finish(self, best_epoch):
        """The result of the training, once its loop has ended."""
        if self.probe.conditioning.epochs[-1] != best_epoch:
            self.probe.record(best_epoch, over=True)
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
        with run.only_met_ids():
            best = train(run.net, run.train, run.valid, settings.max_iter, run.rule, seed)
    finally:
        run.release()
    return run.finish(best)


def read_ahead(net, problem):
    """Training and validation part; where only the read-out is trained, what it will see of them.

    Frozen layers have no dropout, so that every epoch would compute the same.
    """
    module, parts = net.module_, (problem.train, problem.valid)
    if problem.arch.n_trained != 0:
        return parts
    read = {}
    for source in {part.source for part in parts if part is not None}:
        seen = torch.as_tensor(features(module, source, net.settings.autocast))
        read[source] = FeatureSource(seen.to(problem.dtype).to(problem.device))
    return [part if part is None else part.read_from(read[part.source]) for part in parts]


def new_module(problem, init, beta, generator, fill=True):
    """The model that a training starts from; without ``fill`` one whose weights are yet to come."""
    arch, beta = problem.arch, torch.as_tensor(np.asarray(beta, dtype=float))
    module = ResidualTransformer(arch, beta)
    if init != "given":
        reset_parameters(module, init, generator)
    # Again, once the weights have their final type: float32 changes 0.3 in the 8th digit.
    module.to(problem.dtype).beta.data.copy_(beta)
    if arch.positions == "sinusoidal":
        module.positions.copy_(sinusoidal(arch.n_tokens, arch.d_model))
    for name, value in problem.given_weights(arch).items() if fill else ():
        module.get_parameter(name).data.copy_(torch.as_tensor(value))
    return module
