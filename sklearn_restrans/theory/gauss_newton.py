"""What a damped Gauss-Newton step on the square loss provably does."""

import math

import numpy as np
import pandas as pd

from .numbers import EPS, real

# The norms of a bound and of what it bounds are each rounded by a few eps.
_ROUNDING = 64 * EPS


def gauss_newton_contraction(lambda_min, damping, remainder):
    """Factor by which a damped Gauss-Newton step provably shrank the square loss.

    With ``Phi = 1/2 ||rho||^2`` the linear model of the step
    ``delta = -A^T (A A^T + lambda I)^-1 rho`` leaves
    ``rho + A delta = lambda (A A^T + lambda I)^-1 rho``, of norm
    ``lambda / (lambda + lambda_min(A A^T)) ||rho||`` at most. The model of the weights is not
    linear: with the remainder ``e = ||rho' - rho - A delta|| / ||rho||``, measured after the step,
    the triangle inequality gives ``Phi' <= (lambda / (lambda + lambda_min) + e)^2 Phi``.

    Parameters
    ----------
    lambda_min, damping, remainder : float or array
        Smallest eigenvalue of the tangent kernel and lambda, both at the weights before the step,
        and e.

    Returns
    -------
    ndarray or float
        The factor. Where it is 1 or more, nothing is certified.

    References
    ----------
    G. Zhang, J. Martens, R. Grosse, "Fast convergence of natural gradient descent for
    over-parameterized neural networks", arXiv:1905.10961, whose rate assumes a bound on the change
    of the Jacobian where this one measures e.

    Examples
    --------
    >>> gauss_newton_contraction(3.0, [1.0, 0.0], [0.25, 0.0])
    array([0.25, 0.  ])
    """
    alpha, damping = real(lambda_min, "lambda_min", sign=">= 0"), real(damping, "damping")
    remainder = real(remainder, "remainder", sign=">= 0")
    left = np.divide(
        damping, damping + alpha, out=np.ones(np.broadcast(damping, alpha).shape), where=damping > 0
    )
    left = np.where((damping == 0) & (alpha > 0), 0.0, left)
    return (left + remainder)[()] ** 2


def gauss_newton_certificate(loss, damping, lambda_min, remainder):
    """Certificate of a path of Gauss-Newton steps on the square loss, step by step.

    Parameters
    ----------
    loss : array of shape (n_steps + 1,)
        Phi_0 to Phi_n.
    damping, lambda_min, remainder : array of shape (n_steps,)
        As for :func:`gauss_newton_contraction`, of every step.

    Returns
    -------
    frame : DataFrame
        One row per step: loss (Phi_t), damping, lambda_min, remainder, bound (on Phi_{t+1}),
        contraction (bound / Phi_t), margin (bound - Phi_{t+1}) and status: "certified", "vacuous"
        (the factor is 1 or more) or "failed" (the loss is above its bound).
    product : float
        Product of the contractions of the certified steps. NaN if a step failed.
    verdict : str
        The finding in a sentence.

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are negative or not finite, or lengths that do not match.

    Examples
    --------
    >>> gauss_newton_certificate([8.0, 2.0], [1.0], [1.0], [0.0])[1:]
    (0.25, 'certified at every step')
    """
    loss = real(loss, "loss", 1, sign=">= 0")
    columns = {"damping": damping, "lambda_min": lambda_min, "remainder": remainder}
    columns = {name: real(value, name, 1, sign=">= 0") for name, value in columns.items()}
    shapes = {name: value.shape for name, value in columns.items()}
    if len(loss) < 2 or set(shapes.values()) != {(len(loss) - 1,)}:
        raise ValueError(
            "`loss` must hold one value more than `damping`, `lambda_min` and `remainder` do, got "
            f"shapes {loss.shape} and {', '.join(map(str, shapes.values()))}."
        )
    before, after = loss[:-1], loss[1:]
    contraction = gauss_newton_contraction(
        columns["lambda_min"], columns["damping"], columns["remainder"]
    )
    bound = contraction * before
    failed = after > bound + _ROUNDING * before
    status = np.select([failed, contraction >= 1], ["failed", "vacuous"], "certified")
    frame = pd.DataFrame({"loss": before, **columns, "bound": bound, "contraction": contraction})
    frame = frame.assign(margin=bound - after, status=status)
    product = float(np.prod(contraction, where=status == "certified"))
    return frame, math.nan if failed.any() else product, _verdict(status)


def _verdict(status):
    if "failed" in status:
        return f"failed at step {int(np.argmax(status == 'failed'))}: the loss is above its bound"
    certified = status == "certified"
    if certified.all():
        return "certified at every step"
    why = "damping / (damping + lambda_min) + remainder is 1 or more"
    if not certified.any():
        return f"vacuous at every step, as {why}"
    return (
        f"certified at {certified.sum()} of {len(status)} steps from step {certified.argmax()}; "
        f"at the others {why}"
    )
