"""How a model is trained, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


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
    n_threads : int or None
    """

    loss: str = "squared_error"
    solver: str = "adamw"
    learning_rate: float | str = 5e-3
    schedule: str = "constant"
    batch_size: int = 64
    max_iter: int = 20
    weight_decay: float = 0.0
    early_stopping: bool = False
    n_iter_no_change: int = 10
    tol: float = 1e-4
    init: str = "depth_scaled"
    autocast: bool = False
    device: str = "cpu"
    verbose: int = 0
    conditioning_interval: int | None = None
    conditioning_samples: int | str = "auto"
    n_threads: int | None = 1
