"""The training loop of one net."""

from __future__ import annotations

import contextlib
import warnings

from sklearn.exceptions import ConvergenceWarning

from ..exceptions import DivergenceError
from .descent import GradientDescent, Objective, smooth_step
from .gauss_newton import GaussNewton
from .losses import constant_loss
from .quasi_newton import QuasiNewton
from .settings import FULL_BATCH
from .stopping import StopTraining

# Training rows on which the curvature is measured for the step "auto" of minibatch SGD.
_AUTO_STEP_ROWS = 2_048

# Training rows on which the weights that training ends with are judged.
_JUDGED_ROWS = 4_096

# The loss of so many rows of pure noise differs by less than this share from that of a constant.
_SLACK = 0.005

# A model that goes on from an earlier fit may lose this share of the loss of a constant unnoticed:
# its last epochs are noise around a minimum.
_LOST = 0.05

# Steps after which a model that is worse than a constant is no longer just at its beginning.
_BEGINNING = 20

# Targets are standardised (or one-hot): a loss beyond this, a thousand standard deviations, is
# divergence, whatever it was before.
_ABSURD = 1e6


def train(net, data, valid, epochs, rule, seed=0):
    """Run the loop to its end or to the stop rule; returns the best epoch (1-based).

    Raises
    ------
    DivergenceError
        If a loss or a weight is not finite.
    """
    net.valid_set_ = valid
    rule.before_ = loss_before(net, data)
    if net.settings.solver in FULL_BATCH:
        net.descent_ = _descent(net, data, seed)
    else:
        measure_step(net, data, seed)
        net.schedule(len(data), epochs)
    net.notify("on_train_begin", X=data, y=None)
    # skorch would swallow KeyboardInterrupt in partial_fit; fit_loop lets Ctrl-C through.
    with contextlib.suppress(StopTraining):
        if net.settings.solver == "lbfgs":
            net.descent_.run(net, data, epochs)
        else:
            net.fit_loop(data, epochs=epochs)
    net.notify("on_train_end", X=data, y=None)
    return finish(net, rule, data)


def _descent(net, data, seed):
    """The descent of a solver that takes steps on all rows."""
    objective, settings = Objective(net.module_, net.criterion_, data), net.settings
    if settings.solver == "gd":
        return GradientDescent(objective, net.lr, seed)
    kind = {"gauss_newton": GaussNewton, "lbfgs": QuasiNewton}[settings.solver]
    return kind(objective, settings.weight_decay)


def measure_step(net, data, seed=0):
    """Replace the step size "auto" of minibatch SGD by a number."""
    if net.lr == "auto":
        part = data.subset(_AUTO_STEP_ROWS, seed)
        net.set_step(smooth_step(Objective(net.module_, net.criterion_, part), seed))


def loss_before(net, data):
    """Loss of a model that goes on from an earlier fit, None of one that is new."""
    return net.evaluate(data.subset(_JUDGED_ROWS, 0)) if len(net.history) else None


def finish(net, rule, data):
    """Put the kept weights in place, check them, and return their epoch (1-based).

    They are those of the best epoch of the validation part; else the last ones, or those of the
    best epoch where the last ones are worse than no model.
    """
    net.valid_set_ = net.descent_ = None
    net.module_.eval()
    best = rule.start_ + rule.best_epoch_
    if rule.keep_best and rule.best_epoch_:
        rule.put_back(rule.best_weights_)
    elif not all(bool(p.isfinite().all()) for p in net.module_.parameters()):
        raise DivergenceError(f"a weight is not finite after the last step. {rule.advice}")
    epoch = _judge(net, rule, data, best if rule.keep_best else len(net.history), best)
    rule.forget()
    return epoch


def _judge(net, rule, data, epoch, best):
    """The epoch that is kept; warns if it is worse than a constant, or than an earlier fit.

    The loss of an epoch is that of the weights before each step and does not see the last one, so
    the kept weights are measured.
    """
    part = data.subset(_JUDGED_ROWS, 0)
    constant = constant_loss(net.criterion_, part, net.module_.arch.n_outputs)
    loss, bar = net.evaluate(part), constant * (1 + _SLACK)
    if not loss < _ABSURD:
        raise DivergenceError(
            f"the loss on {len(part)} training rows is {loss:.4g} after the last step: training "
            f"diverged. {rule.advice}"
        )
    if constant < 1e-12:
        return epoch  # a single class or value: no model is better, and none is far off
    if rule.before_ is not None:
        bar = min(bar, rule.before_ + _LOST * constant)
    if loss > bar and best != epoch:
        last = [weight.clone() for weight in rule.weights_]
        rule.put_back(rule.best_weights_)
        of_best = net.evaluate(part)
        if of_best < loss:
            loss, epoch = of_best, best
        else:
            rule.put_back(last)
    if loss > bar:
        steps = (len(net.history) - rule.start_) * -(-len(data) // net.batch_size)
        _warn(net, rule, part, loss, constant, steps)
    return epoch


def _warn(net, rule, part, loss, constant, steps):
    """Say that the kept weights are worse than no model, unless few steps have only helped."""
    kept = [weight.clone() for weight in rule.weights_]
    rule.put_back(rule.start_weights_)
    start = net.evaluate(part)
    rule.put_back(kept)
    if steps < _BEGINNING and loss <= (1 + _LOST) * start:
        return
    rose = loss > start or max(net.history[rule.start_ :, "train_loss"]) > (1 + _LOST) * start
    hint = "" if rose else "If the loss is still falling, raise max_iter; else: "
    warnings.warn(
        f"training ended worse than {'it began' if loss > start else 'a constant prediction'}: the "
        f"loss on {len(part)} training rows is {loss:.4g}; it was {start:.4g} at the start, and "
        f"that of a constant is {constant:.4g}. {hint}{rule.advice}",
        ConvergenceWarning,
        stacklevel=2,
    )
