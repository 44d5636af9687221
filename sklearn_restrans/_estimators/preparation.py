"""From an estimator's parameters and data to a problem that can be trained on, one way down.

`check_data` validates and splits, and learns the codings; `lay_out` makes tensors of the result.
Both are functions of their arguments: nothing is assigned to the estimator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils import check_consistent_length

from .._data.batches import TrainingSet
from .._data.preprocessing import Preprocessing, Samples, learn_preprocessing
from .._data.sources import make_source
from .._data.split import check_weight, split_rows
from .._model.architecture import Architecture
from .._training.device import resolve_device, resolve_dtype
from .._training.settings import FULL_BATCH, SECOND_ORDER, TrainingSettings

# batch_size="auto": this many steps per epoch, as far as the estimator's bounds allow it.
_STEPS_PER_EPOCH = 8
# max_iter="auto" where the number of samples does not count.
_EPOCHS = 20
# Steps of max_iter="auto"; those of L-BFGS are scikit-learn's.
_EPOCHS_OF_SECOND_ORDER = {"gauss_newton": 20, "lbfgs": 200}


# From this width of the tokens on, batches of token ids are padded to their longest row only.
_WIDE = 256


class EpochRule(NamedTuple):
    """max_iter="auto": as many epochs as make so many steps, within bounds."""

    steps: int
    fewest: int
    most: int


# On sentences held out of SST-2's training part 6,735 phrases do best with 850 steps (.762; 2,100:
# .750), 400 gain from 20 to 40 epochs (.599, .606), and many lose nothing at 4.
EPOCHS_OF_TEXTS = EpochRule(steps=1_000, fewest=4, most=40)


@dataclass(frozen=True, eq=False)
class CheckedData:
    """Validated data, the rows to train and to validate on, and the model for them."""

    preprocessing: Preprocessing
    arch: Architecture
    X: object
    y: np.ndarray  # relative to its windows, where they are read so
    weight: np.ndarray | None
    rows: np.ndarray
    valid_rows: np.ndarray
    given_valid: tuple | None  # validated X_val and y_val


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a training needs to know of the data, as tensors on the device."""

    preprocessing: Preprocessing
    arch: Architecture
    dtype: torch.dtype
    device: torch.device
    train: TrainingSet
    valid: TrainingSet | None
    given_weights: Callable  # of arch: name -> the weights that are given, and not drawn

    @property
    def scale(self):
        """s = 2 / (N c) of the squared error Phi (theory.md 3)."""
        return 2.0 / (len(self.train) * self.arch.n_outputs)


def check_data(
    estimator,
    X,
    y,
    sample_weight=None,
    X_val=None,
    y_val=None,
    *,
    segments=None,
    segments_val=None,
    seed=0,
    fitted=None,
    arch=None,
):
    """Validate data and learn their codings, or use those of an earlier fit.

    Parameters
    ----------
    estimator : estimator of this package
        Its parameters are read.
    X, y, sample_weight, X_val, y_val, segments, segments_val
        As for fit.
    seed : int
        Seed of the rows that early stopping sets aside.
    fitted : Preprocessing or None
        The codings to use; None learns them.
    arch : Architecture or None
        The model they are for; None reads it from the parameters.

    Returns
    -------
    checked : CheckedData
    """
    owner, kind = type(estimator).__name__, estimator._target_kind
    if (X_val is None) != (y_val is None):
        given, missing = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
        raise ValueError(f"{given} was given without {missing}; pass both.")
    X = estimator._as_given(X, y)
    if fitted is None:
        inputs, X = estimator._learn_inputs(X, segments)
    else:
        inputs, X = fitted.inputs, fitted.inputs.check(X, segments)
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
    y = kind.read(y, owner) if fitted is None else fitted.check_targets(y, owner)
    check_consistent_length(X, y)
    weight = estimator._weigh(y, check_weight(sample_weight, X))
    sets_aside = estimator.early_stopping and X_val is None
    fraction = estimator.validation_fraction if sets_aside else None
    rows, valid_rows = split_rows(X, y, weight, fraction, seed, kind.stratified)
    samples = Samples(X, y, weight, rows, valid_rows)
    if fitted is None:
        asked = (estimator.loss, estimator._levels())
        fitted, samples = learn_preprocessing(inputs, kind, samples, *asked)
    else:
        samples = fitted.samples(samples)
    given_valid = None
    if X_val is not None:
        given_valid = _check_validation(fitted, X_val, y_val, segments_val, owner)
    if arch is None:
        arch = estimator._architecture(fitted)
    return CheckedData(fitted, arch, *samples, given_valid)


def _check_validation(fitted, X_val, y_val, segments_val, owner):
    try:
        X, y = fitted.inputs.check(X_val, segments_val), fitted.check_targets(y_val, owner)
        check_consistent_length(X, y)
        samples = fitted.samples(Samples(X, y))
    except (TypeError, ValueError) as error:
        raise type(error)(f"in X_val, y_val: {error}") from None
    return samples.X, samples.y


def lay_out(estimator, checked, dtype=None, device=None):
    """The problem of validated data, as tensors.

    ``dtype`` and ``device`` replace those that the estimator's parameters ask for.
    """
    arch, X = checked.arch, checked.X
    if device is None:
        device = resolve_device(estimator.device)
    if dtype is None:
        work = len(X) * arch.n_tokens * arch.d_model
        second_order = estimator.solver in SECOND_ORDER
        dtype = resolve_dtype(estimator.dtype, X.dtype, work, device, exact=second_order)
    codings = checked.preprocessing
    # Without a word about columns that vary in rows of weight zero, or set aside.
    tight = arch.d_model >= _WIDE and arch.n_trained != 0  # a frozen encoder reads them only once
    source = make_source(X, codings.scaler, dtype, device, tight, codings.relative)

    def training_set(source, y, weight, rows):
        if weight is not None:
            # Mean one over the rows, so that a weighted batch mean estimates the weighted mean.
            weight = torch.as_tensor(weight[rows] / weight[rows].mean()).to(device, dtype)
        target = codings.targets.encode(y[rows], dtype).to(device)
        return TrainingSet(source, target, weight, rows)

    valid = None
    if checked.given_valid is not None:
        X_val, y_val = checked.given_valid
        own = codings.source(X_val, dtype, device)
        valid = training_set(own, y_val, None, np.arange(len(y_val)))
    elif len(checked.valid_rows):
        valid = training_set(source, checked.y, checked.weight, checked.valid_rows)
    train = training_set(source, checked.y, checked.weight, checked.rows)
    given = partial(estimator._given_weights, codings.inputs)
    return Problem(codings, arch, dtype, device, train, valid, given)


def prepare(estimator, *data, dtype=None, device=None, **named):
    """`check_data`, then `lay_out`."""
    return lay_out(estimator, check_data(estimator, *data, **named), dtype, device)


def architecture(estimator, preprocessing):
    """Shapes and formulas of the model for inputs and targets as they were learnt."""
    if estimator.d_model % estimator.n_heads:
        raise ValueError(
            f"d_model must be a multiple of n_heads, got d_model={estimator.d_model} and "
            f"n_heads={estimator.n_heads}."
        )
    inputs, scaler = preprocessing.inputs, preprocessing.scaler
    if inputs.kind == "tokens":
        embedding, n_tokens, n_features = "token", inputs.n_tokens, len(inputs.known_ids)
    elif inputs.kind == "table":
        embedding, n_tokens, n_features = "feature", scaler.n_columns, 1
    else:
        embedding, n_tokens = "linear", inputs.n_tokens
        n_features = scaler.n_columns * inputs.form.patch
    positions, readout = estimator.positions, estimator.readout
    if positions == "auto":
        positions = "sinusoidal" if embedding == "linear" else "learned"
    if readout == "auto":
        readout = _default_readout(inputs, estimator._readout_of_sequences)
    return Architecture(
        n_tokens=n_tokens,
        n_features=n_features,
        n_outputs=preprocessing.targets.n_outputs,
        n_layers=int(estimator.n_layers),
        d_model=estimator.d_model,
        n_heads=estimator.n_heads,
        d_ff=2 * estimator.d_model if estimator.d_ff is None else estimator.d_ff,
        activation=estimator.activation,
        norm=estimator.norm,
        dropout=float(estimator.dropout),
        positions=positions,
        readout=readout,
        embedding=embedding,
        learn_beta=estimator.learn_beta,
    )


def _default_readout(inputs, of_sequences):
    if inputs.kind in ("table", "tokens"):
        return "mean"
    windows = inputs.kind == "window" or inputs.spacing is not None
    return "last" if windows and not inputs.apart else of_sequences


def check_warm(estimator, arch, inputs, net):
    """Refuse to continue a net whose shape would change."""
    old, new = asdict(net.module_.arch), asdict(arch)
    old["quantiles"], new["quantiles"] = net.settings.quantiles, estimator._levels()
    for name, value in estimator._inputs_asked(inputs).items():
        old[name], new[name] = old.get(name, getattr(inputs, name, None)), value
    changes = [f"{k} from {old[k]!r} to {new[k]!r}" for k in new if new[k] != old[k]]
    if changes:
        raise ValueError(
            f"warm_start=True continues the fitted model, which cannot change "
            f"{', '.join(changes)}; set warm_start=False to start anew."
        )


def batch_size(estimator, arch, n_samples):
    """Samples per step of a training on ``n_samples`` of them."""
    size = estimator.batch_size
    if estimator.solver in FULL_BATCH:
        return n_samples
    if size == "auto":
        smallest, size = estimator._batch_bounds
        # With batches of 64 some twenty sequences make one step an epoch and stay undertrained.
        # Tables of a few hundred rows gain nothing from more steps, noisy ones lose accuracy
        # (benchmarks/bench_small.py, "rule"); and where one batch holds a small table, a weight
        # of two is two equal rows, as scikit-learn's checks have it.
        if arch.embedding != "feature":
            size = min(size, max(smallest, n_samples // _STEPS_PER_EPOCH))
    return min(size, n_samples)


def known_epochs(estimator):
    """Epochs of a training as its parameters have them; None where the number of texts decides."""
    if estimator.max_iter != "auto":
        return estimator.max_iter
    if estimator.solver in SECOND_ORDER:
        return _EPOCHS_OF_SECOND_ORDER[estimator.solver]
    return _EPOCHS if estimator._epoch_rule() is None else None


def n_epochs(estimator, arch, n_samples):
    """Epochs of a training on ``n_samples`` of them."""
    known = known_epochs(estimator)
    if known is not None:
        return known
    rule = estimator._epoch_rule()
    steps = -(-n_samples // batch_size(estimator, arch, n_samples))
    return min(rule.most, max(rule.fewest, -(-rule.steps // steps)))


def training_settings(estimator, problem):
    """The settings of a training, with "auto" and None resolved for a problem."""
    decay, schedule = estimator.weight_decay, estimator.learning_rate
    if decay == "auto":
        decays = problem.arch.embedding == "linear" and estimator.solver == "adamw"
        decay = 0.3 if decays else 0.0
    if schedule == "auto":
        schedule = "one_cycle" if estimator.solver in ("adamw", "adam") else "constant"
    return TrainingSettings(
        loss=estimator.loss,
        solver=estimator.solver,
        learning_rate=estimator._step(problem.arch),
        schedule=schedule,
        batch_size=batch_size(estimator, problem.arch, len(problem.train)),
        max_iter=n_epochs(estimator, problem.arch, len(problem.train)),
        weight_decay=float(decay),
        early_stopping=estimator.early_stopping,
        n_iter_no_change=estimator.n_iter_no_change,
        tol=estimator.tol,
        init=estimator._start,
        autocast=estimator.dtype == "bfloat16",
        device=str(problem.device),
        verbose=int(estimator.verbose),
        conditioning_interval=estimator.conditioning_interval,
        conditioning_samples=estimator.conditioning_samples,
        on_collapse=estimator.on_collapse,
        quantiles=estimator._levels(),
    )
