"""Many candidates on one problem: planned, and trained together where that is faster.

The one engine behind paths, searches and ensembles: data are prepared once, and every candidate is
a residual coefficient, a seed and settings.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from .._model.shortcuts import choose
from .._training.device import own_threads, resolve_device, resolve_dtype
from .._training.settings import TrainingSettings
from .._training.stack import Failed, attempt, train_stacked
from .fitting import Run, fit_problem
from .parameters import beta_matrix, draw_seed
from .preparation import check_data, check_warm, lay_out, prepare, training_settings

# Parameters in which the candidates of a group may differ.
STACKABLE = ("residual_beta", "random_state", "learning_rate_init", "weight_decay")

# Bytes of activations up to which a group trains faster than one fit after the other; more of them
# leave the cache (benchmarks/bench_beta_path.py, "cost model").
_GROUP_BYTES = 8_000_000


@dataclass(frozen=True, eq=False)
class Candidate:
    """What the candidates of one problem differ in."""

    beta: np.ndarray
    seed: int
    settings: TrainingSettings
    callbacks: tuple = ()


def fit_candidates(problem, candidates):
    """Train candidates on one problem, stacked if more than one.

    Returns
    -------
    outcomes : list of Trained or Failed
        In the order of the candidates; one that diverges ends alone.
    """
    if len(candidates) == 1:
        (one,) = candidates
        return [attempt(fit_problem, problem, one.settings, one.beta, one.seed, one.callbacks)]
    runs = [
        attempt(Run, problem, one.settings, one.beta, one.seed, one.callbacks) for one in candidates
    ]
    begun = [run for run in runs if not isinstance(run, Failed)]
    try:
        trained = train_stacked(
            [run.net for run in begun],
            problem.train,
            problem.valid,
            candidates[0].settings.max_iter,
            [run.rule for run in begun],
            [run.seed for run in begun],
        )
    finally:
        for run in begun:
            run.release()
    ends = iter(trained)
    return [run if isinstance(run, Failed) else _finished(run, next(ends)) for run in runs]


def _finished(run, best):
    return best if isinstance(best, Failed) else attempt(run.finish, best)


def fit_estimator(estimator, beta, X, y, sample_weight=None, X_val=None, y_val=None, **segments):
    """Fit one estimator with a residual coefficient as users give it; returns the estimator.

    With ``warm_start`` its model, and the codings of its data, go on.

    Parameters
    ----------
    estimator : estimator of this package
    beta : float, pair or array-like of shape (n_layers, 2)
    X, y, sample_weight, X_val, y_val
        As for fit.
    **segments
        ``segments`` and ``segments_val``, as for fit.
    """
    previous = fitted = None
    if estimator.warm_start and hasattr(estimator, "net_"):
        previous, fitted = estimator.net_, estimator._preprocessing
        if fitted.inputs.kind == "tokens":
            fitted = replace(fitted, inputs=fitted.inputs.meeting(X))
    seed = draw_seed(estimator.random_state)
    with own_threads(estimator.n_threads):
        data = (X, y, sample_weight, X_val, y_val)
        checked = check_data(estimator, *data, seed=seed, fitted=fitted, **segments)
        if previous is not None:
            check_warm(estimator, checked.arch, fitted.inputs, previous)
        problem = lay_out(estimator, checked)
        settings = training_settings(estimator, problem)
        beta, callbacks = beta_matrix(beta, estimator.n_layers), tuple(estimator.callbacks or ())
        trained = fit_problem(problem, settings, beta, seed, callbacks, previous)
    return estimator._keep(problem, trained)


def fit_estimators(estimators, X, y, sample_weight=None, X_val=None, y_val=None, **segments):
    """Fit estimators of one shape in place; they may differ in :data:`STACKABLE` parameters only.

    Parameters
    ----------
    estimators : list of estimators
        One that diverges stays unfitted.
    X, y, sample_weight, X_val, y_val
        As for fit.
    **segments
        ``segments`` and ``segments_val``, as for fit.

    Returns
    -------
    errors : list of DivergenceError or None
        What ended each of them.
    seconds : float
    """
    started = time.perf_counter()
    first = estimators[0]
    seeds = [draw_seed(estimator.random_state) for estimator in estimators]
    with own_threads(first.n_threads):
        # The split of early stopping is the only thing in the data that a seed decides, and
        # candidates of different seeds are then not stacked (plan_stacks).
        problem = prepare(first, X, y, sample_weight, X_val, y_val, seed=seeds[0], **segments)
        candidates = [
            Candidate(
                beta_matrix(estimator.residual_beta, estimator.n_layers),
                seed,
                training_settings(estimator, problem),
                tuple(estimator.callbacks or ()),
            )
            for estimator, seed in zip(estimators, seeds, strict=True)
        ]
        outcomes = fit_candidates(problem, candidates)
    errors = []
    for estimator, outcome in zip(estimators, outcomes, strict=True):
        failed = isinstance(outcome, Failed)
        errors.append(outcome.error if failed else None)
        if not failed:
            estimator._keep(problem, outcome)
    return errors, time.perf_counter() - started


def plan_stacks(estimator, checked, n_candidates, stacked="auto"):
    """Whether and in groups of how many candidates are stacked, and the reason in words.

    Separate training is needed where candidates do not share batches of one shape or one random
    stream. Otherwise stacking pays as long as a group's activations stay in the cache: groups are
    as large as the budget measured by benchmarks/bench_beta_path.py allows, and where it allows no
    second candidate, one step is so long that there is no overhead left to share. On CUDA memory
    is the only limit.

    Parameters
    ----------
    checked : CheckedData
        The data, as `check_data` returns them for the estimator.
    n_candidates : int
        How many differ in STACKABLE parameters only, and see the same data: with early stopping
        the seed decides the split.
    """
    reason = _why_separate(estimator)
    if reason is None and n_candidates == 1:
        reason = "there is only one candidate for a group"
    if reason is None and not stacked:
        reason = "stacked=False"
    if reason is not None:
        return {"mode": "separate", "size": 1, "reason": reason}
    if stacked is True:
        return {"mode": "stacked", "size": n_candidates, "reason": "stacked=True"}
    device = resolve_device(estimator.device)
    each, budget = _bytes_per_candidate(estimator, checked, device), _budget(device)
    reason = f"a step of one candidate takes {each:,} bytes of the {budget:,} a group may take"
    size = min(n_candidates, max(1, budget // each))
    return {"mode": "separate" if size == 1 else "stacked", "size": size, "reason": reason}


def _why_separate(estimator):
    if estimator.solver == "gd":
        return "every candidate of gradient descent measures its own step size, when it needs to"
    if estimator.dropout > 0:
        return "dropout draws its own random numbers in every fit"
    if estimator.callbacks:
        return "callbacks belong to one net"
    if estimator.warm_start:
        return "warm_start continues one net"
    return None


def _budget(device):
    """Bytes of activations that a group may have."""
    if device.type != "cuda":
        return _GROUP_BYTES
    # The backward pass takes as much again, and half of the memory stays free.
    return torch.cuda.mem_get_info(device)[0] // 4


def _bytes_per_candidate(estimator, checked, device):
    """Activations that one step of one candidate keeps for its backward pass."""
    arch, X = checked.arch, checked.X
    T, h = arch.n_tokens, arch.n_heads
    # X, query, key, value, Attn(X), Z, and phi before and after; then scores and weights.
    token = 6 * arch.d_model + 2 * arch.d_ff
    if choose(arch) == "folded":  # one token, and the candidate's own copy of the batch
        numbers = token + T * (2 * h + arch.n_features)
    else:
        numbers = arch.n_layers * T * (token + 2 * h * T)
    dtype = resolve_dtype(estimator.dtype, X.dtype, len(X) * T * arch.d_model, device)
    return min(estimator.batch_size, len(X)) * numbers * dtype.itemsize
