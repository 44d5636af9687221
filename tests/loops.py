"""Small problems for the training loop, and the call that fit makes of it."""

import numpy as np
import torch

from sklearn_restrans._data.batches import TrainingSet
from sklearn_restrans._data.sources import DenseSource
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans._training import net
from sklearn_restrans._training.loop import train
from sklearn_restrans._training.settings import TrainingSettings
from sklearn_restrans._training.stopping import StopRule

T, N_FEATURES = 4, 2
# A few dozen steps amplify the rounding of float64 sums by less than a thousand.
EXACT = 1e-12
SETTINGS = {
    "solver": "adamw",
    "learning_rate": 1e-2,
    "batch_size": 32,
    "weight_decay": 0.1,
    "schedule": "constant",
    "autocast": False,
    "device": "cpu",
    "verbose": 0,
    "max_iter": 20,
    "early_stopping": False,
    "n_iter_no_change": 10,
    "tol": 1e-4,
    "init": "depth_scaled",
    "conditioning_interval": None,
    "conditioning_samples": "auto",
}


def make_module(seed=0, **changes):
    # tanh: at a kink of ReLU two orders of one sum may part
    small = dict(n_tokens=T, n_features=N_FEATURES, n_outputs=2, d_model=4, d_ff=6)
    arch = Architecture(**(small | {"activation": "tanh", "norm": "pre"} | changes))
    module = ResidualTransformer(arch)
    reset_parameters(module, "gaussian", torch.Generator().manual_seed(seed))
    return module.double()


def make_data(n=100, seed=0, *, masked=False, weighted=False, n_outputs=2, rows=None):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.standard_normal((n, T, N_FEATURES)))
    mask = np.arange(T) < rng.integers(1, T + 1, n)[:, None] if masked else None
    rows = np.arange(n) if rows is None else rows
    target = torch.tensor(rng.standard_normal((len(rows), n_outputs)))
    weight = torch.tensor(rng.uniform(0.0, 2.0, len(rows))) if weighted else None
    return TrainingSet(DenseSource(x, mask), target, weight, rows)


def make_settings(loss="squared_error", **changes):
    return TrainingSettings(loss=loss, **SETTINGS | changes)


def make_net(module, loss="squared_error", settings=SETTINGS, callbacks=()):
    return net.make_net(module, make_settings(loss, **settings), callbacks)


def no_stop(monitor="train_loss"):
    return StopRule(monitor, None, 0.0, False, "")


def run(fitting, data, epochs, *, valid=None, rule=None, seed=0, hooks=()):
    """What fit does: the caller's rule and hooks, and the generator that shuffles."""
    rule = no_stop() if rule is None else rule
    callbacks = fitting.callbacks_
    fitting.callbacks_ = [*callbacks, *hooks, ("stop_rule", rule)]
    fitting.generator_ = torch.Generator().manual_seed(seed)
    try:
        return train(fitting, data, valid, epochs, rule)
    finally:
        fitting.callbacks_ = callbacks


def fitted(data, epochs, *, module=None, loss="squared_error", seed=0, **settings):
    own = make_net(make_module() if module is None else module, loss, SETTINGS | settings)
    run(own, data, epochs, seed=seed)
    return own


def assert_equal_weights(module, other, tolerance=EXACT):
    for (name, a), b in zip(module.named_parameters(), other.parameters(), strict=True):
        error = (a - b).abs().max()
        assert error <= tolerance * max(1.0, b.abs().max()), f"{name}: {error}"


def bare_loop(module, optimizer, data, epochs, batch_size, *, shuffle_seed=0, scheduler=None):
    """The loop everybody writes; returns the mean loss of every epoch and each step's rate."""
    x, mask = data.source.x[data.rows], data.source.mask
    mask = None if mask is None else mask[data.rows]
    weight = torch.ones(len(x)).double() if data.weight is None else data.weight
    generator = torch.Generator().manual_seed(shuffle_seed)
    losses, rates = [], []
    for _ in range(epochs):
        total = 0.0
        order = torch.arange(len(x))
        if shuffle_seed is not None:
            order = torch.randperm(len(x), generator=generator)
        for batch in order.split(batch_size):
            optimizer.zero_grad()
            output = module(x[batch], None if mask is None else mask[batch])
            error = ((output - data.target[batch]) ** 2).mean(1)
            loss = (weight[batch] * error).mean()
            loss.backward()
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
            if scheduler is not None:
                scheduler.step()
            total += loss.item() * len(batch)
        losses.append(total / len(x))
    return losses, rates


def bare_adamw(module, lr, weight_decay):
    """Only matrices decay: not biases, gains, shifts, positions or a learned beta."""
    decaying = ("W_in", "W_Q", "W_K", "W_V", "W_O", "W_1", "W_2", "W_U")
    groups = {True: [], False: []}
    for name, weight in module.named_parameters():
        groups[name.split(".")[-1] in decaying].append(weight)
    return torch.optim.AdamW(
        [
            {"params": groups[True], "weight_decay": weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=lr,
    )
