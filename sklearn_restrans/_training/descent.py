"""Full-batch gradient descent on Phi: loss, gradient, curvature, and the step that descends."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from .._lanczos import lanczos_largest
from .._model.shortcuts import forward
from ..exceptions import DivergenceError
from ..theory import descent_step, step_curvature
from .losses import exact
from .optimizers import matrices_and_others

# Sequences per pass over the training set; sums run over the chunks, so the result does not
# depend on it beyond rounding.
_CHUNK = 256

# Lanczos products for the largest curvature: 5 % accurate after 3 to 4, at most 8 (theory.md 3).
_PRODUCTS = 10


class DescentStep(NamedTuple):
    """What was measured at one step, at the weights before it."""

    loss: float
    gradient_norm: float
    step_size: float
    largest_curvature: float
    kappa_before: float
    undone: bool


class Objective:
    """Phi(theta), the weighted mean loss over a training set, and its derivatives."""

    def __init__(self, module, criterion, data, chunk=_CHUNK):
        self.module, self.criterion, self.data, self.chunk = module, criterion, data, chunk
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    @property
    def size(self):
        """Number of weights."""
        return sum(p.numel() for p in self.parameters)

    def batches(self):
        """The training set in chunks: (x, mask), target and weight of each."""
        n = len(self.data)
        for start in range(0, n, self.chunk):
            yield self.data.batch(np.arange(start, min(start + self.chunk, n)))

    def _part(self, output, target, weight):
        loss = self.criterion(output, target)
        return (loss if weight is None else loss * weight).sum() / len(self.data)

    def parts(self):
        """Phi as a sum of parts over the chunks, each a tensor with its graph."""
        for x, target, weight in self.batches():
            yield self._part(forward(self.module, *x), target, weight)

    def value(self):
        """Phi."""
        with torch.no_grad():
            return sum(map(float, self.parts()))

    def zero_loss(self):
        """Phi of the prediction 0, against which the rounding of Phi is measured."""
        c, like = self.module.arch.n_outputs, self.parameters[0]
        return sum(
            float(self._part(like.new_zeros(len(target), c), target, weight))
            for _, target, weight in self.batches()
        )

    def gradient(self):
        """Phi and its gradient, a list of tensors like the weights."""
        total, gradient = 0.0, [torch.zeros_like(p) for p in self.parameters]
        for part in self.parts():
            for g, d in zip(gradient, torch.autograd.grad(part, self.parameters), strict=True):
                g += d
            total += float(part.detach())
        return total, gradient

    def decays(self, weight_decay):
        """w of every weight tensor: only weight matrices decay."""
        matrices, _ = matrices_and_others(self.module)
        return [
            weight_decay if any(p is matrix for matrix in matrices) else 0.0
            for p in self.parameters
        ]

    def penalty(self, decays):
        """w / 2 |W|^2, summed over the weight tensors."""
        return sum(
            w / 2.0 * float(exact(p.detach()).square().sum())
            for w, p in zip(decays, self.parameters, strict=True)
            if w
        )

    def outputs(self):
        """F of every row, (N, c)."""
        with torch.no_grad():
            return torch.cat([forward(self.module, *x) for x, _, _ in self.batches()])

    def pull_back(self, slope):
        """J^T slope of a slope (N, c) by the outputs, a list of tensors like the weights."""
        total, start = [torch.zeros_like(p) for p in self.parameters], 0
        for x, _, _ in self.batches():
            out = forward(self.module, *x)
            part = slope[start : start + len(out)].to(out)
            for g, d in zip(total, self._pulled(out, part), strict=True):
                g += d
            start += len(out)
        return total

    def push_forward(self, change):
        """J change of a change of the weights, (N, c) in float64.

        The derivative of <J^T v, change> by v.
        """
        parts = []
        for x, _, _ in self.batches():
            out = forward(self.module, *x)
            v = torch.zeros_like(out, requires_grad=True)
            pulled = self._pulled(out, v, create_graph=True)
            along = sum((g * d).sum() for g, d in zip(pulled, change, strict=True))
            parts.append(exact(torch.autograd.grad(along, v)[0]))
        return torch.cat(parts)

    def _pulled(self, out, slope, create_graph=False):
        # Not by `grad_outputs`, with which torch imports its compiler.
        return torch.autograd.grad(
            (out * slope).sum(),
            self.parameters,
            create_graph=create_graph,
            materialize_grads=True,
            allow_unused=True,
        )

    def hessian_product(self, vector):
        """Hessian of Phi times a float64 vector: d/dtheta <gradient, v>.

        Raises
        ------
        DivergenceError
            If it is not finite.
        """
        pieces = torch.as_tensor(vector).split([p.numel() for p in self.parameters])
        direction = [v.to(p).view_as(p) for v, p in zip(pieces, self.parameters, strict=True)]
        product = [torch.zeros_like(p) for p in self.parameters]
        for part in self.parts():
            gradient = torch.autograd.grad(part, self.parameters, create_graph=True)
            slope = sum((g * v).sum() for g, v in zip(gradient, direction, strict=True))
            for h, d in zip(product, torch.autograd.grad(slope, self.parameters), strict=True):
                h += d
        product = np.concatenate([h.cpu().double().numpy().ravel() for h in product])
        if not np.isfinite(product).all():
            beta = float(self.module.beta.detach().abs().max())
            raise DivergenceError(
                "the curvature of the loss is not finite, so there is no step size for it: outputs "
                f"leave the range of {self.parameters[0].dtype}. Lower residual_beta (its largest "
                f"value is now {beta:.4g}), or take a learning_rate_init that is a number."
            )
        return product

    def largest_curvature(self, seed):
        """L, the largest algebraic eigenvalue of the Hessian, by Lanczos from a random start."""
        rng = np.random.default_rng(seed)
        return lanczos_largest(self.hessian_product, self.size, _PRODUCTS, rng).value


def check_start(loss):
    """Refuse weights from which there is no step."""
    if not math.isfinite(loss):
        raise DivergenceError(
            f"the loss is {loss} at the weights training starts from, so there is no step from "
            "them: lower residual_beta, and check the units of X."
        )


def gradient_norm(gradient):
    """||grad Phi||."""
    norm = math.hypot(*(float(torch.linalg.vector_norm(g)) for g in gradient))
    if math.isfinite(norm):
        return norm
    # The squares may overflow where the gradient does not.
    largest = max(float(g.abs().max()) for g in gradient)
    if not math.isfinite(largest):
        return largest
    return largest * math.hypot(*(float(torch.linalg.vector_norm(g / largest)) for g in gradient))


def smooth_step(objective, seed):
    """The step 1 / (1.05 L) for the largest curvature L at the present weights."""
    return _first_step(objective.largest_curvature(seed))


def _first_step(curvature):
    # No positive curvature at all: the loss falls along the gradient for any step; take 1.
    return descent_step(curvature) if curvature > 0 else 1.0


class GradientDescent:
    """theta <- theta - mu gradient, with mu fixed or chosen from the measured curvature.

    step_size "auto" starts from mu = 1 / (1.05 L). After every step the curvature it met,

        kappa = 2 (Phi' - Phi + mu ||g||^2) / (mu^2 ||g||^2),

    is known, and how far rounding may have moved it. If kappa > 1 / mu beyond that, and every 25th,
    later every 100th step, L is measured again; mu is only ever lowered. A step that raised the
    loss is undone and taken again, at most half as long: no L measured at points bounds kappa
    (theory.md 3), so a step of 1 / L, and even of .5 / L, can go up.

    A fixed step is taken as it is, until it is plain that it diverges: the loss is not finite, or
    it rose three times running and stands above where it started.
    """

    def __init__(self, objective, step_size, seed):
        self.objective, self.seed = objective, seed
        self.auto, self.finished = step_size == "auto", False
        self.losses = []
        self.curvature = float("nan")
        self.start = [p.detach().clone() for p in objective.parameters]
        self.zero_loss = objective.zero_loss()
        # theory.step_curvature allows for float64; float32 rounds as much more as its eps is larger
        self._coarser = torch.finfo(self.start[0].dtype).eps / np.finfo(np.float64).eps
        self.step_size = self._safe_step() if self.auto else float(step_size)
        # Loss, gradient and its norm at the present weights; the same, and the weights, before.
        self._here = self._before = None

    def _safe_step(self):
        self.curvature = self.objective.largest_curvature(self.seed)
        return _first_step(self.curvature)

    @property
    def diverged(self):
        """Whether the last losses show that a fixed step is too long."""
        recent = self.losses[-4:]
        if not np.isfinite(recent[-1]):
            return True
        rising = len(recent) == 4 and all(np.diff(recent) > 0)
        return not self.auto and rising and recent[-1] > self.losses[0]

    def step_that_works(self):
        """1 / (1.05 L) at the weights training started from, which are put back."""
        self._restore(self.start)
        return self._safe_step()

    def _restore(self, weights):
        with torch.no_grad():
            for p, w in zip(self.objective.parameters, weights, strict=True):
                p.copy_(w)

    def _curvature_met(self):
        """kappa of the step that led here, and its rounding error; infinite if loss or step is."""
        (loss, norm, *_), now = self._before, self._here[0]
        if not (np.isfinite(now) and np.isfinite(norm)):
            return math.inf, 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # a loss on its way to infinity
            kappa, error = step_curvature(loss, now, norm, self.step_size, zero_loss=self.zero_loss)
        # A curvature beyond all numbers is beyond its rounding error too.
        return float(kappa), float(error) * self._coarser if np.isfinite(kappa) else 0.0

    def look(self):
        """Measure where the descent stands; with "auto" undo the last step if it went up.

        Returns
        -------
        step : DescentStep
            What holds at the present weights; ``kappa_before`` is the curvature met by the step
            that led here, ``undone`` says that it was taken back. ``step_size`` is for the next.
        """
        loss, gradient = self.objective.gradient()
        self._here = (loss, gradient_norm(gradient), gradient)
        kappa, undone, mu = float("nan"), False, self.step_size
        if self._before is not None:
            kappa, error = self._curvature_met()
            undone = self.auto and bool(kappa - error > 2.0 / mu)
            if undone:
                *self._here, weights = self._before
                self._restore(weights)
                # Not at once down to 1 / kappa: at a kink of ReLU kappa can be very large.
                self.step_size = min(self._safe_step(), mu / 2.0)
            elif self.auto and (kappa - error > 1.0 / mu or self._is_due()):
                self.step_size = min(mu, self._safe_step())
        loss, norm, _ = self._here
        self.losses.append(loss)
        return DescentStep(loss, norm, self.step_size, self.curvature, kappa, undone)

    def move(self):
        """Take the step from where :meth:`look` looked."""
        # A fixed step is never undone.
        weights = [p.detach().clone() for p in self.objective.parameters] if self.auto else None
        self._before = (*self._here, weights)
        with torch.no_grad():
            for p, g in zip(self.objective.parameters, self._here[-1], strict=True):
                p.sub_(g, alpha=self.step_size)

    def step(self):
        """Look, then move; what the look measured."""
        looked = self.look()
        self.move()
        return looked

    def measured_step(self):
        """One step; what was measured, by name: of this epoch, and of the one before.

        Raises
        ------
        DivergenceError
            If the steps are too long.
        """
        looked = self.step()
        if self.diverged:
            raise DivergenceError(
                f"gradient descent diverged: the loss went from {self.losses[0]:.4g} to "
                f"{looked.loss:.4g} in {len(self.losses)} steps of "
                f"learning_rate_init={self.step_size:.4g}. At the start a step of "
                f"{self.step_that_works():.4g} would have worked (1 / (1.05 L), L the "
                "largest curvature there; it grows with residual_beta): use "
                "learning_rate_init='auto' or this step."
            )
        measured = {
            "train_loss": looked.loss,
            "gradient_norm": looked.gradient_norm,
            "learning_rate": looked.step_size,
        }
        if self.auto:
            measured["largest_curvature"] = looked.largest_curvature
            measured["undone"] = looked.undone
        return measured, {"kappa": looked.kappa_before}

    def _is_due(self):
        n_steps = len(self.losses)
        return n_steps % (25 if n_steps < 100 else 100) == 0
