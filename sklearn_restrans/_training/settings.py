"""How a model is trained, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

# Solvers that take one step an epoch, on all rows, without an optimiser of torch's.
FULL_BATCH = ("gd", "lbfgs", "gauss_newton")

# Those whose steps use curvature; in float32 its rounding would decide.
SECOND_ORDER = ("lbfgs", "gauss_newton")

# What they minimise with weight decay, the loss and its penalty, by its name in the history.
OBJECTIVE = "penalised_loss"

# What they measure at a step, beside loss, gradient norm and step size, by name in the history.
STEP_DETAILS = (
    *("kappa", "largest_curvature", "undone"),
    OBJECTIVE,
    *("damping", "gain", "remainder", "n_products"),
    *("step_norm", "n_evaluations"),
)


@dataclass(frozen=True)
class TrainingSettings:
    """Every setting of a training, with "auto" and None resolved; pickles write them as they are.

    Attributes
    ----------
    loss, solver, schedule, init : str
        Names, as the estimators take them.
    learning_rate : float or "auto"
        Step size; "auto" is measured when training begins.
    batch_size, max_iter, n_iter_no_change : int
    weight_decay, tol : float
    early_stopping : bool
        Whether the validation loss may end the training.
    autocast : bool
        Whether products are computed in bfloat16.
    device : str
    verbose : int
    conditioning_interval : int or None
    conditioning_samples : int or "auto"
    on_collapse : str
        As the estimators take it; pickles of earlier versions lack it.
    quantiles : tuple of float or None
        Levels of loss="quantile", None for other losses; pickles of earlier versions lack it.
    """

    loss: str
    solver: str
    learning_rate: float | str
    schedule: str
    batch_size: int
    max_iter: int
    weight_decay: float
    early_stopping: bool
    n_iter_no_change: int
    tol: float
    init: str
    autocast: bool
    device: str
    verbose: int
    conditioning_interval: int | None
    conditioning_samples: int | str
    on_collapse: str = "ignore"
    quantiles: tuple[float, ...] | None = None
