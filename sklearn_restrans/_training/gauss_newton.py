"""Gauss-Newton descent through the tangent kernel.

With the outputs F linear in the weights near theta, F + J delta, and the loss quadratic in F, with
slope q and Hessian S S^T, the step minimises

    q^T J delta + |S^T J delta|^2 / 2 + lambda |delta|^2 / 2,    A = S^T J, q = S rho:

    delta = -A^T (A A^T + lambda I)^-1 rho.

A A^T, N c x N c, is the tangent kernel: the condition number that limits gradient descent is that
of the matrix solved with, and leaves the number of steps. (Cai et al. 2019, arXiv:1905.11675; Zhang
et al. 2019, arXiv:1905.10961; for the log loss this is the generalised Gauss-Newton step, natural
gradient descent.) The damping lambda follows Levenberg and Marquardt: it falls where the quadratic
model foretold the new loss, and rises where it did not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..exceptions import DivergenceError
from .descent import check_start, gradient_norm
from .jacobian import weight_jacobians
from .losses import OutputCurvature, exact, output_curvature
from .settings import OBJECTIVE

# Rows N c up to which the kernel is formed and factorised. At the limit a step took 8 s on a busy
# core (d_model = 32, benchmarks/bench_solvers.py).
MAX_DENSE_ROWS = 4_000

# Bytes of the derivatives by one weight tensor up to which they are formed.
_MAX_TENSOR_BYTES = 2**30

# The first damping, as a share of the trace of the kernel, which repeated rows do not change.
_FIRST_DAMPING = 1e-4

# The quadratic model is trusted more above, and less below, these shares of the decrease that it
# foretold; a step below the last is not taken.
_GOOD, _POOR, _WORTHLESS = 0.75, 0.25, 1e-3

# Dampings tried in one step, each four times the last, before the descent is at its end.
_TRIES = 20

# Relative residual at which conjugate gradients end, and their largest number of products.
_CG_TOLERANCE, _CG_PRODUCTS = 1e-3, 100


class Here(NamedTuple):
    """The loss at some weights: with the penalty of their decay, and as a function of F."""

    loss: float
    penalised: float
    curvature: OutputCurvature


class Move(NamedTuple):
    """A step of the weights: what it changes, and what the quadratic model says of it."""

    change: list[Tensor]
    linear: Tensor  # S^T J delta, (N, c'), in float64
    decrease: float  # of the penalised loss


class GaussNewton:
    """theta <- theta - A^T (A A^T + lambda I)^-1 rho on all rows, with weight decay if asked.

    Decay adds w / 2 |W|^2 of the weight matrices to what is minimised. Every step is tried with
    rising damping until it lowers that sum; if none does, the descent is ``finished``.

    Parameters
    ----------
    objective : Objective
        With the squared error or the log loss.
    weight_decay : float
    """

    def __init__(self, objective, weight_decay=0.0):
        self.objective, self.finished, self.damping = objective, False, None
        self.decays = objective.decays(weight_decay)
        # The squared error of outputs that are right to a few units in the last place.
        eps = torch.finfo(objective.parameters[0].dtype).eps
        squares = objective.criterion.kind == "squared_error"
        self._floor = (8 * eps) ** 2 * objective.zero_loss() if squares else 0.0
        self._here = self._look()
        check_start(self._here.loss)

    @property
    def loss(self):
        """Phi at the present weights, without the penalty."""
        return self._here.loss

    def _look(self):
        """The loss at the present weights."""
        outputs = self.objective.outputs()
        data = self.objective.data
        curvature = output_curvature(self.objective.criterion, outputs, data.target, data.weight)
        penalised = curvature.loss + self.objective.penalty(self.decays)
        return Here(curvature.loss, penalised, curvature)

    def measured_step(self):
        """One step; what was measured, by name: of this epoch, and of the one before."""
        here = self._here
        gradient = self.objective.pull_back(here.curvature.slope)
        norm = gradient_norm(gradient)
        measured = {"train_loss": here.loss, "gradient_norm": norm, "learning_rate": 1.0}
        if any(self.decays):
            measured[OBJECTIVE] = here.penalised
        system = self._system(here)
        if self.damping is None:
            self.damping = _FIRST_DAMPING * system.scale
        return {**measured, **self._descend(here, system)}, {}

    def _system(self, here):
        dense = here.curvature.residual.numel() <= MAX_DENSE_ROWS and all(
            8 * here.curvature.residual.numel() * p.numel() <= _MAX_TENSOR_BYTES
            for p in self.objective.parameters
        )
        kind = KernelSystem if dense else ImplicitSystem
        return kind(self.objective, here.curvature, self.decays)

    def _descend(self, here, system):
        """Try dampings until one lowers the loss; what the step used, by name."""
        weights = self.objective.parameters
        start = [p.detach().clone() for p in weights]
        rounding = max(np.finfo(float).eps * here.penalised, self._floor)
        for tried in range(1, _TRIES + 1):
            damping, move = self.damping, system.move(self.damping)
            if move is not None:
                if not move.decrease > rounding:
                    break
                with torch.no_grad():
                    torch._foreach_add_(weights, move.change)
                there = self._look()
                gain = (here.penalised - there.penalised) / move.decrease
                if gain > _WORTHLESS:
                    self._here = there
                    self._adapt(gain)
                    remainder = _remainder(here, move, there)
                    return _used(damping, gain, tried, remainder, system)
                # The next try starts from here, with derivatives that hold here.
                with torch.no_grad():
                    torch._foreach_copy_(weights, start)
            self.damping *= 4.0
        self.finished = True
        return _used(damping, 0.0, tried, float("nan"), system)

    def _adapt(self, gain):
        if gain > _GOOD:
            self.damping /= 10.0
        elif gain < _POOR:
            self.damping *= 4.0


def _used(damping, gain, n_evaluations, remainder, system):
    """What a step used, for the history."""
    return {
        "damping": damping,
        "gain": gain,
        "n_evaluations": n_evaluations,
        "remainder": remainder,
        "n_products": system.n_products,
    }


def _remainder(here, move, there):
    """|rho' - (rho + S^T J delta)| / |rho|: what the linear model missed of the new residual.

    NaN where the loss is not quadratic in the outputs, so that rho' has another factor S.
    """
    if not here.curvature.quadratic:
        return float("nan")
    old = here.curvature.residual
    missed = there.curvature.residual - (old + move.linear)
    return float(torch.linalg.vector_norm(missed) / torch.linalg.vector_norm(old))


class _System:
    """(A Lambda^-1 A^T + I) x = rho - A Lambda^-1 W theta, and the step that x stands for.

    Lambda = lambda + w for weights that decay by w, lambda for the others. Solved for x / lambda.
    """

    def __init__(self, objective, curvature, decays):
        self.objective, self.curvature, self.decays = objective, curvature, decays
        self.n_products = 0  # with A A^T, of conjugate gradients

    def shares(self, damping):
        """lambda / Lambda of every weight tensor."""
        return [damping / (damping + w) for w in self.decays]

    def change(self, solved, damping):
        """delta = -Lambda^-1 (A^T x + W theta), x = lambda ``solved``."""
        pulled = self.objective.pull_back(self.curvature.to_outputs(self.curvature.times(solved)))
        return [
            -share * (g + (w / damping) * p.detach())
            for g, share, w, p in zip(
                pulled, self.shares(damping), self.decays, self.objective.parameters, strict=True
            )
        ]

    def foretold(self, change, linear):
        """A step, with the decrease that the quadratic model foretells."""
        decrease = -float((self.curvature.residual * linear).sum() + linear.square().sum() / 2.0)
        for w, p, d in zip(self.decays, self.objective.parameters, change, strict=True):
            if w:
                p, d = exact(p.detach()), exact(d)
                decrease -= w * float((p * d).sum() + d.square().sum() / 2.0)
        return Move(change, linear, decrease)


class KernelSystem(_System):
    """The system by Cholesky factors of the kernel, which is formed once for all dampings."""

    def __init__(self, objective, curvature, decays):
        super().__init__(objective, curvature, decays)
        rho = curvature.residual
        size = rho.numel()
        self.kernels = {w: rho.new_zeros(size, size) for w in set(decays)}
        self.image = torch.zeros_like(rho)  # A W theta / w
        for (weight, block), w in zip(
            weight_jacobians(objective, contrasts=curvature.contrasts), decays, strict=True
        ):
            block = curvature.transposed(exact(block.flatten(2)))
            if w:
                self.image += block @ exact(weight.detach()).flatten()
            add_gram(self.kernels[w], block.flatten(0, 1))
        self.scale = float(sum(k.trace() for k in self.kernels.values())) or 1.0
        if not math.isfinite(self.scale):
            raise DivergenceError(
                "a derivative of an output is not finite, so there is no Gauss-Newton step: lower "
                "residual_beta, and check the units of X."
            )

    def move(self, damping):
        """The step for a damping; None if rounding makes the matrix indefinite."""
        curvature = self.curvature
        matrix = sum(damping / (damping + w) * kernel for w, kernel in self.kernels.items())
        matrix.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            return None
        right = curvature.residual
        for w in self.kernels:
            if w:
                right = right - w / (damping + w) * self.image
        solved = torch.cholesky_solve(right.reshape(-1, 1), factor).view_as(right)
        linear = damping * solved - curvature.residual
        return self.foretold(self.change(solved, damping), linear)


def add_gram(kernel, block):
    """kernel += block block^T."""
    if block.device.type == "cpu":
        block = block.numpy()
        kernel += torch.from_numpy(block @ block.T)  # numpy knows that it is symmetric
    else:
        kernel.addmm_(block, block.T)


class ImplicitSystem(_System):
    """The system by conjugate gradients, for more rows than a kernel is formed of.

    A product with A^T is one backward pass, and one with A a backward pass of that.
    """

    def __init__(self, objective, curvature, decays):
        super().__init__(objective, curvature, decays)
        # The trace of A A^T, from one random sign for every row (Hutchinson).
        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(0, 2, curvature.residual.shape, generator=generator) * 2.0 - 1.0
        pulled = self._pull(signs.to(curvature.residual))
        self.scale = sum(float(exact(g).square().sum()) for g in pulled) or 1.0

    def _pull(self, rows):
        """A^T rows."""
        curvature = self.curvature
        return self.objective.pull_back(curvature.to_outputs(curvature.times(rows)))

    def _push(self, change):
        """A change."""
        curvature = self.curvature
        return curvature.transposed(
            curvature.from_outputs(self.objective.push_forward(change)).unsqueeze(-1)
        ).squeeze(-1)

    def move(self, damping):
        """The step for a damping."""
        shares, rho = self.shares(damping), self.curvature.residual

        def product(rows):
            self.n_products += 1
            pulled = [share * g for share, g in zip(shares, self._pull(rows), strict=True)]
            return self._push(pulled) + damping * rows

        right = rho
        if any(self.decays):
            weights = zip(self.decays, self.objective.parameters, strict=True)
            shrunk = [w / (damping + w) * p.detach() for w, p in weights]
            right = right - self._push(shrunk)
        change = self.change(conjugate_gradients(product, right), damping)
        return self.foretold(change, self._push(change))


def conjugate_gradients(product, right):
    """x with |product(x) - right| <= 1e-3 |right|, or the x after 100 products."""
    x, rest = torch.zeros_like(right), right.clone()
    direction, square = rest.clone(), float(rest.square().sum())
    enough = square * _CG_TOLERANCE**2
    for _ in range(_CG_PRODUCTS):
        if square <= enough:
            break
        image = product(direction)
        length = square / float((direction * image).sum())
        x += length * direction
        rest -= length * image
        before, square = square, float(rest.square().sum())
        direction = rest + square / before * direction
    return x
