"""How fast gradient descent provably goes: pure functions of float64 arrays.

The loss is ``Phi = s/2 sum_i w_i ||F_i - Y_i||^2``, s the argument `scale` (1 in the paper, 2/(N c)
for a mean squared error) and w the argument `sample_weight`. All formulas are written for rows
multiplied by ``sqrt(s w_i)``, so that ``Phi = 1/2 ||R||^2``; rows of weight 0 are dropped.

The constants hold for the square loss and full-batch gradient descent with one step size for all
parameters, without weight decay and dropout; `gauss_newton` has the bound for steps of that name.
W_U and the last W_2 must be trained and not be used elsewhere. They do not hold for cross-entropy.
float32 input is refused, because its rounding hides every eigenvalue below 6e-8 of the largest
one.

References
----------
Qin, Zhou, Jiang & Zhu (2025), arXiv:2506.05249: the model ``F = A W_U``, ``A = H W_2 + beta Z``.
Joseph, Sieber, Zeilinger & Amo Alonso (2025), arXiv:2410.10609: how large beta must be for
tokens to stay apart (:mod:`.collapse`).
Karimi, Nutini & Schmidt (2016): the Polyak-Lojasiewicz (PL) inequality.
"""

from .collapse import SkipTerms, kept_spread, lambda_skip, skip_terms, sufficient_beta
from .constants import linearized_loss, pl_constant, tangent_kernel
from .descent import (
    certified_contraction,
    descent_step,
    local_rate,
    path_certificate,
    step_curvature,
)
from .gauss_newton import gauss_newton_certificate, gauss_newton_contraction

__all__ = [
    "SkipTerms",
    "certified_contraction",
    "descent_step",
    "gauss_newton_certificate",
    "gauss_newton_contraction",
    "kept_spread",
    "lambda_skip",
    "linearized_loss",
    "local_rate",
    "path_certificate",
    "pl_constant",
    "skip_terms",
    "step_curvature",
    "sufficient_beta",
    "tangent_kernel",
]
