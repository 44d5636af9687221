"""The fitted net: skorch's NeuralNet over whole in-memory batches.

skorch keeps the model, the optimiser, the history and the callbacks; what is replaced is the path a
batch takes: no Dataset, no DataLoader, no host synchronisation between two steps.
"""

from __future__ import annotations

import torch

from .._data.batches import TrainingSet
from .._model.chunking import sequences_per_pass
from .losses import SampleLoss
from .optimizers import make_optimizer, make_schedule, take_step
from .prediction import evaluate, run
from .skorch_names import (
    BatchScoring,
    Callback,
    EarlyStopping,
    EpochScoring,
    EpochTimer,
    NeuralNet,
    SkorchException,
    TeeGenerator,
)
from .stopping import StopTraining


class Net(NeuralNet):
    """skorch's net, fed from a :class:`TrainingSet`; its ``module_`` is the fitted model."""

    def __init__(self, module, settings, callbacks=()):
        self.settings = settings
        # State of one training, not parameters: the generator of the batches, the validation part,
        # the descent on all rows, and the size of the last step.
        self.generator_ = self.valid_set_ = self.descent_ = self.step_size_ = None
        super().__init__(
            module,
            SampleLoss(settings.loss, settings.quantiles),
            lr=settings.learning_rate,
            batch_size=settings.batch_size,
            device=settings.device,
            verbose=settings.verbose,
            callbacks=list(callbacks),
            # skorch would hold rows out; which rows validate is decided before training.
            train_split=None,
        )

    @property
    def _default_callbacks(self):
        return [("epoch_timer", EpochTimer())]

    def initialize_optimizer(self, triggered_directly=None):
        """One optimiser; only weight matrices decay, as usual for Transformers."""
        self.optimizer_ = make_optimizer(
            self.module_, self.settings.solver, self.lr, self.settings.weight_decay
        )
        self.scheduler_ = None
        return self

    def on_batch_begin(self, net, batch=None, training=False, **_):
        """Keep no row per batch in the history: the losses of batches stay on the device."""

    def infer(self, x, mask=None, **_):
        return run(self.module_, x, mask, self.settings.autocast)

    def get_split_datasets(self, X, y=None, **_):
        return X, self.valid_set_

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
        self.scheduler_ = make_schedule(self.optimizer_, self.settings.schedule, self.lr, steps)

    def notify(self, method_name, **kwargs):
        """Call every callback, and tell skorch's EarlyStopping from Ctrl-C.

        Both raise KeyboardInterrupt; the one ends training, the other goes to the caller.
        """
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
                    f"callbacks: {name} reads an entry that the history lacks ({error}). It has no "
                    "row per batch, and valid_loss only with X_val, y_val or early_stopping=True: "
                    f"pass validation data, let {name} watch 'train_loss', or leave it out."
                ) from error

    def _is_listened_to(self):
        """Whether any callback acts on batches; calling all of them for nothing is slow."""
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
        if self.descent_ is not None:
            self.descend()
            return
        n = len(iterator)
        order = iterator.order(self.batch_size, self.generator_)
        self.listened_to_ = self._is_listened_to()
        total = 0.0
        for start in range(0, n, self.batch_size):
            positions = order[start : start + self.batch_size]
            if self.listened_to_:
                self.notify("on_batch_begin", batch=positions, training=True)
            loss = step_fn((iterator, positions))
            if self.listened_to_:
                self.notify("on_batch_end", batch=positions, training=True, loss=loss)
            total = total + loss
        self.history.record(prefix + "_loss", float(total) / n)
        self.history.record("learning_rate", self.step_size_)

    def descend(self):
        """One step of a descent on all rows, and what was measured at it."""
        here, before = self.descent_.measured_step()
        for name, value in before.items() if len(self.history) > 1 else ():
            self.history[-2][name] = value
        for name, value in here.items():
            self.history.record(name, value)

    def train_step(self, batch, **_):
        """One step of the optimiser on one batch; returns the summed loss, still on the device."""
        data, positions = batch
        for weight in self.module_.parameters():
            weight.grad = None
        # A large batch is accumulated over equal passes, whose activations stay in the cache of a
        # CPU and in the memory of a GPU.
        arch, on_cpu = self.module_.arch, torch.device(self.device).type == "cpu"
        at_once = sequences_per_pass(arch.at_length(data.longest(positions)), on_cpu)
        size = -(-len(positions) // -(-len(positions) // at_once))
        total = 0.0
        for start in range(0, len(positions), size):
            x, target, weight = data.batch(positions[start : start + size])
            loss = self.criterion_(self.infer(*x), target)
            loss = (loss if weight is None else loss * weight).sum()
            (loss / len(positions)).backward()
            total = total + loss.detach()
        if self.listened_to_:
            parameters = TeeGenerator(self.module_.named_parameters())
            self.notify(
                "on_grad_computed", named_parameters=parameters, batch=positions, training=True
            )
        self.step_size_ = take_step(self.optimizer_, self.scheduler_)
        return total

    def evaluate(self, data):
        """Weighted mean loss over a set, in eval mode."""
        return float(evaluate(self.module_, self.criterion_, data, self.settings.autocast))


def make_net(module, settings, callbacks=()):
    """An initialised net; ``callbacks`` are the user's."""
    for callback in callbacks:
        _check_callback(callback)
    return Net(module, settings, callbacks).initialize()


def _check_callback(entry) -> None:
    """Refuse other objects than skorch callbacks, and callbacks that need skorch's own batches."""
    callback = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
    kind = callback if isinstance(callback, type) else type(callback)
    if not issubclass(kind, Callback):
        raise TypeError(f"callbacks must hold skorch callbacks, got {entry!r}.")
    if issubclass(kind, EpochScoring | BatchScoring):
        raise ValueError(
            f"callbacks holds {kind.__name__}, which needs the batches of a skorch data loader; "
            "pass X_val and y_val to fit and read validation_scores_."
        )
