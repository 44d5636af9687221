"""Many candidates on one problem: planned, and trained together where that is faster.

The one engine behind paths, searches and ensembles: data are prepared once, and every candidate is
a residual coefficient, a seed and settings.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from .._compat import FitTask, fit_task, metadata_of
from .._model.shortcuts import choose
from .._training.device import own_threads, resolve_device, resolve_dtype
from .._training.settings import SECOND_ORDER, TrainingSettings
from .._training.stack import Failed, attempt, train_stacked
from .fitting import Run, fit_problem
from .parameters import beta_matrix, draw_seed
from .preparation import (
    batch_size,
    check_data,
    check_warm,
    known_epochs,
    lay_out,
    prepare,
    training_settings,
)

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
    task: FitTask | None = None  # whose subtasks its epochs are


def fit_candidates(problem, candidates):
    """Train candidates on one problem, stacked if more than one.

    Returns
    -------
    outcomes : list of Trained or Failed
        In the order of the candidates; one that diverges ends alone.
    """
    if len(candidates) == 1:
        (one,) = candidates
        return [attempt(fit_problem, problem, *_arguments(one))]
    runs = [attempt(Run, problem, *_arguments(one)) for one in candidates]
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


def _arguments(one):
    """A candidate as the arguments of a training after its problem."""
    return one.settings, one.beta, one.seed, one.callbacks, None, one.task


def _finished(run, best):
    return best if isinstance(best, Failed) else attempt(run.finish, best)


def train_estimator(
    estimator, beta, X, y, sample_weight=None, X_val=None, y_val=None, *, task=None, **segments
):
    """Train the model of one estimator, with a residual coefficient as users give it.

    With ``warm_start`` its model, and the codings of its data, go on. The estimator stays as it
    was: :func:`keep` lets it take over what is returned.

    Parameters
    ----------
    estimator : estimator of this package
    beta : float, pair or array-like of shape (n_layers, 2)
    X, y, sample_weight, X_val, y_val
        As for fit.
    task : FitTask or None
        The task whose subtasks the epochs are.
    **segments
        ``segments`` and ``segments_val``, as for fit.

    Returns
    -------
    problem : Problem
    trained : Trained
    """
    previous = fitted = None
    if estimator.warm_start and hasattr(estimator, "net_"):
        previous, fitted = estimator.net_, estimator._preprocessing
        fitted = replace(fitted, inputs=fitted.inputs.meeting(X))
    seed = draw_seed(estimator.random_state)
    with own_threads(estimator.n_threads):
        data = (X, y, sample_weight, X_val, y_val)
        checked = check_data(estimator, *data, seed=seed, fitted=fitted, **segments)
        if previous is not None:
            check_warm(estimator, checked.arch, fitted.inputs, previous)
        problem = lay_out(estimator, checked)
        settings = training_settings(estimator, problem)
        beta, callbacks = beta_matrix(beta, problem.arch.n_layers), tuple(estimator.callbacks or ())
        return problem, fit_problem(problem, settings, beta, seed, callbacks, previous, task)


def keep(estimator, problem, trained):
    """Let an estimator take over what :func:`train_estimator` returned."""
    return estimator._keep(problem, trained)


def fit_estimators(
    estimators, X, y, sample_weight=None, X_val=None, y_val=None, *, tasks=None, **segments
):
    """Fit estimators of one shape in place; they may differ in :data:`STACKABLE` parameters only.

    Parameters
    ----------
    estimators : list of estimators
        One that diverges stays unfitted.
    X, y, sample_weight, X_val, y_val
        As for fit.
    tasks : list of FitTask or None
        For each of them its task in the fit of a meta-estimator; they are begun here, and ended by
        the caller.
    **segments
        ``segments`` and ``segments_val``, as for fit.

    Returns
    -------
    outcomes : list of estimator or Failed
        Each estimator, fitted, or what ended it.
    seconds : float
    """
    started = time.perf_counter()
    first = estimators[0]
    seeds = [draw_seed(estimator.random_state) for estimator in estimators]
    with ExitStack() as open_tasks:
        tasks = tasks or [FitTask() for _ in estimators]
        data = {"X": X, "y": y, "metadata": metadata_of(sample_weight)}
        own_tasks = [
            open_tasks.enter_context(_task_of(estimator, task, data))
            for estimator, task in zip(estimators, tasks, strict=True)
        ]
        open_tasks.enter_context(own_threads(first.n_threads))
        # The split of early stopping is the only thing in the data that a seed decides, and
        # candidates of different seeds are then not stacked (plan_stacks).
        problem = prepare(first, X, y, sample_weight, X_val, y_val, seed=seeds[0], **segments)
        candidates = [
            Candidate(
                beta_matrix(estimator.residual_beta, problem.arch.n_layers),
                seed,
                training_settings(estimator, problem),
                tuple(estimator.callbacks or ()),
                task,
            )
            for estimator, seed, task in zip(estimators, seeds, own_tasks, strict=True)
        ]
        outcomes = [
            outcome if isinstance(outcome, Failed) else keep(estimator, problem, outcome)
            for estimator, outcome in zip(
                estimators, fit_candidates(problem, candidates), strict=True
            )
        ]
    return outcomes, time.perf_counter() - started


@contextmanager
def _task_of(estimator, task, data):
    """The task of an estimator's fit, which is the one that a meta-estimator has for it."""
    with task.handed_to(estimator):
        task.begin(**data)
        with fit_task(estimator, known_epochs(estimator), **data) as own:
            yield own


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
    if estimator.solver in SECOND_ORDER:
        return f"solver={estimator.solver!r} finds every step from one candidate's own curvature"
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
    return batch_size(estimator, arch, len(checked.rows)) * numbers * dtype.itemsize
