"""The training loop of one net."""

from __future__ import annotations

import contextlib

from ..exceptions import DivergenceError
from .descent import GradientDescent, Objective, smooth_step
from .stopping import StopTraining

# Training rows on which the curvature is measured for the step "auto" of minibatch SGD.
_AUTO_STEP_ROWS = 2_048


def train(net, data, valid, epochs, rule, seed=0):
    """Run the loop to its end or to the stop rule; returns the best epoch (1-based).

    Raises
    ------
    DivergenceError
        If a loss or a weight is not finite.
    """
    net.valid_set_ = valid
    if net.settings.solver == "gd":
        objective = Objective(net.module_, net.criterion_, data)
        net.descent_ = GradientDescent(objective, net.lr, seed)
    else:
        measure_step(net, data, seed)
        net.schedule(len(data), epochs)
    net.notify("on_train_begin", X=data, y=None)
    # skorch would swallow KeyboardInterrupt in partial_fit; fit_loop lets Ctrl-C through.
    with contextlib.suppress(StopTraining):
        net.fit_loop(data, epochs=epochs)
    net.notify("on_train_end", X=data, y=None)
    return finish(net, rule)


def measure_step(net, data, seed=0):
    """Replace the step size "auto" of minibatch SGD by a number."""
    if net.lr == "auto":
        part = data.subset(_AUTO_STEP_ROWS, seed)
        net.set_step(smooth_step(Objective(net.module_, net.criterion_, part), seed))


def finish(net, rule):
    """Put the kept weights in place, check them, and return their epoch (1-based)."""
    net.valid_set_ = net.descent_ = None
    net.module_.eval()
    if rule.best_weights_ is not None:
        net.module_.load_state_dict(rule.best_weights_)
        rule.best_weights_ = None
        return rule.start_ + rule.best_epoch_
    if not all(bool(p.isfinite().all()) for p in net.module_.parameters()):
        raise DivergenceError(f"a weight is not finite after the last step. {rule.advice}")
    return len(net.history)
