"""L-BFGS on all rows, by SciPy's minimiser."""

from __future__ import annotations

import time

import numpy as np
import torch
from scipy.optimize import minimize

from .descent import check_start, gradient_norm
from .losses import exact
from .settings import OBJECTIVE

# Pairs of steps and gradients kept, as in scikit-learn's MLP.
_PAIRS = 10


class QuasiNewton:
    """L-BFGS, one iteration an epoch, with weight decay if asked.

    Decay adds w / 2 |W|^2 of the weight matrices to what is minimised. SciPy runs the iterations
    and its own line search; the stop rule of training ends them, or SciPy's floor of rounding.

    Parameters
    ----------
    objective : Objective
    weight_decay : float
    """

    def __init__(self, objective, weight_decay=0.0):
        self.objective, self.finished = objective, False
        self.decays = objective.decays(weight_decay)
        # Loss, gradient norm and penalised loss where they were last measured, and these weights.
        self._seen = self._seen_at = None
        self._evaluations = 0

    def run(self, net, data, epochs):
        """Minimise, with one epoch of the net's loop for every iteration."""
        start = self._flat(self.objective.parameters)
        value, _ = self._value_and_slope(start)
        check_start(value)
        self._before, self._at = self._seen, start
        self._evaluations, self._clock = 0, time.perf_counter()
        first = len(net.history)

        def iteration(intermediate_result):
            self._take(net, data, intermediate_result.x)

        minimize(
            self._value_and_slope,
            start,
            jac=True,
            method="L-BFGS-B",
            callback=iteration,
            # The stop rule of training decides; SciPy ends where rounding leaves nothing to gain.
            options={
                "maxiter": epochs,
                "maxfun": 20 * epochs,
                "maxcor": _PAIRS,
                "ftol": np.finfo(float).eps,
                "gtol": 0.0,
            },
        )
        if len(net.history) == first:  # not one step lowers the loss
            self._take(net, data, start)

    def _take(self, net, data, weights):
        """One epoch: the iteration that led to these weights, which the model is given."""
        self._set(weights)
        now, self._clock = time.perf_counter() - self._clock, time.perf_counter()
        try:
            net.fit_loop(data, epochs=1)
        finally:
            net.history.record("dur", now)
            self._clock = time.perf_counter()

    def measured_step(self):
        """What was measured, by name: of the iteration that led here, and of the one before."""
        here = self._flat(self.objective.parameters)
        loss, norm, penalised = self._before
        moved = float(np.linalg.norm(here - self._at))
        measured = {
            "train_loss": loss,
            "gradient_norm": norm,
            "learning_rate": float("nan"),  # the line search scales a step that has no one size
            "step_norm": moved,
            "n_evaluations": self._evaluations,
        }
        if any(self.decays):
            measured[OBJECTIVE] = penalised
        # SciPy accepts the point that it measured last, but one.
        if self._seen_at is None or not np.array_equal(self._seen_at, here):
            self._value_and_slope(here)
        self._before, self._at, self._evaluations = self._seen, here, 0
        return measured, {}

    def _value_and_slope(self, weights):
        """The penalised loss and its gradient at some weights."""
        self._set(weights)
        loss, gradient = self.objective.gradient()
        penalised = loss + self.objective.penalty(self.decays)
        self._seen = (loss, gradient_norm(gradient), penalised)
        self._seen_at = weights.copy()
        self._evaluations += 1
        for w, p, g in zip(self.decays, self.objective.parameters, gradient, strict=True):
            g.add_(p.detach(), alpha=w)
        return penalised, self._flat(gradient)

    @staticmethod
    def _flat(tensors):
        return np.concatenate([exact(t.detach()).cpu().numpy().ravel() for t in tensors])

    def _set(self, weights):
        pieces = torch.as_tensor(weights).split([p.numel() for p in self.objective.parameters])
        with torch.no_grad():
            for p, piece in zip(self.objective.parameters, pieces, strict=True):
                p.copy_(piece.to(p.dtype).view_as(p))
