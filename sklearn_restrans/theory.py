"""How fast gradient descent provably goes: pure functions of float64 arrays.

The loss is ``Phi = s/2 sum_i w_i ||F_i - Y_i||^2``, s the argument `scale` (1 in the paper, 2/(N c)
for a mean squared error) and w the argument `sample_weight`. All formulas are written for rows
multiplied by ``sqrt(s w_i)``, where ``Phi = 1/2 ||R||^2``; rows of weight 0 leave.

The constants hold for square loss and full-batch gradient descent with one step for all parameters,
no weight decay, no dropout, W_U and the last W_2 trained and used nowhere else; not for
cross-entropy. float32 input is refused: it hides all below 6e-8 of the largest eigenvalue.

References
----------
Qin, Zhou, Jiang & Zhu (2025), arXiv:2506.05249: the model ``F = A W_U``, ``A = H W_2 + beta Z``.
Karimi, Nutini & Schmidt (2016): the Polyak-Lojasiewicz (PL) inequality.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from ._linalg import StreamingQR, kth_singular_value, numerical_rank

__all__ = [
    "certified_contraction",
    "descent_step",
    "linearized_loss",
    "local_rate",
    "path_certificate",
    "pl_constant",
    "step_curvature",
    "tangent_kernel",
]

_EPS = float(np.finfo(np.float64).eps)
# Error of F relative to ||F||. Against 80-bit arithmetic Phi of 120 random models of 1 to 3 layers
# needed 14 eps at most (saturated scores) and 0.1 in the median.
_ROUNDING = 64 * _EPS


def _real(value, name, ndim=None, sign=""):
    """Return `value` as a float64 array, finite and of this sign, or say what is wrong with it."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.dtype.itemsize < 8):
        raise TypeError(f"`{name}` must come from a float64 copy of the model, got {array.dtype}.")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"`{name}` must have {ndim} dimension(s), got shape {array.shape}.")
    good = np.isfinite(array) & {"": True, ">= 0": array >= 0, "> 0": array > 0}[sign]
    if not good.all():
        at = tuple(np.argwhere(~good)[0].tolist())
        wanted = f"finite and {sign}" if sign else "finite"
        raise ValueError(f"`{name}` must be {wanted}, got {array[at]} at index {list(at)}.")
    return array.astype(np.float64, copy=False)


def _row_factor(sample_weight, scale, n_rows):
    """sqrt(s w_i) for every row; a weight serves n_rows / len(sample_weight) rows."""
    weight = [1.0] if sample_weight is None else sample_weight
    weight = _real(weight, "sample_weight", 1, sign=">= 0")
    if not weight.any() or n_rows % len(weight):
        raise ValueError(
            f"`sample_weight` must be one value a sample, not all 0; got {len(weight)} of sum "
            f"{weight.sum():g} for {n_rows} rows."
        )
    # One root each: the product of a large s and a large w may be no float64 number.
    factor = np.sqrt(_real(scale, "scale", sign="> 0")) * np.sqrt(weight)
    return np.repeat(factor, n_rows // len(weight))


def _in_range(compute, what):
    """`compute()`, refused in words if the result is beyond the range of float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = compute()
    if not np.isfinite(value).all():
        raise ValueError(
            f"{what} is above the largest float64 number (1.8e308): divide the arguments by a "
            "constant. PL constants and eigenvalues scale with its square."
        )
    return value


def _rounded_down(values, k, shape):
    """sigma_k less LAPACK's error bound max(shape) eps sigma_1: a lower bound, 0 if rank < k."""
    error = max(shape) * _EPS * kth_singular_value(values, 1)
    return max(kth_singular_value(values, k) - error, 0.0)


def _squared(sigma):
    return float(_in_range(lambda: np.square(sigma), "alpha"))


def _sigma(matrix, k):
    return _rounded_down(np.linalg.svd(matrix, compute_uv=False), k, matrix.shape)


def pl_constant(
    A, H=None, W_U=None, jacobians=None, *, method="exact", sample_weight=None, scale=1.0
):
    """PL constant that the unembedding and the last W_2 guarantee.

    ``||grad Phi||^2 >= 2 alpha Phi`` for every target, by ``dPhi/dW_U = A^T R`` and
    ``dPhi/dW_2 = H^T R W_U^T``, with ``alpha = lambda_min(A A^T + sigma^2 H H^T)``, computed as
    ``sigma_N([A, sigma H])^2``, and ``sigma = sigma_c(W_U)``. With a norm between W_2 and W_U it is
    lambda_min of ``(A A^T) (x) I_c + [(h_i . h_j) G_i^T G_j]_ij``, ``G_i = J_i^T W_U``.

    Parameters
    ----------
    A : array of shape (N, d)
        Input of W_U (after the norm, if any) on the N rows read out; for a mean read-out, the mean.
    H : array of shape (N, m), default=None
        Input of the last W_2 on these rows. None leaves its block out: right for a mean read-out
        with a norm between W_2 and W_U, where no J_i belongs to a row.
    W_U : array of shape (d, c), default=None
        Unembedding; a torch Linear stores the transpose.
    jacobians : array of shape (N, d, d), default=None
        ``jacobians[i, p, q]``: derivative of output p of that norm by its input q at row i, the
        gain included; of several norms in a row, the product.
    method : {"exact", "bound"}, default="exact"
        "bound": the smaller ``lambda_min(A A^T) + lambda_min(H H^T) min_i sigma_c(G_i)^2``; it
        saves the 2 (N c)^2 m d operations of "exact" with `jacobians`.
    sample_weight : array of shape (N,), default=None
        Weights w in Phi.
    scale : float, default=1.0
        Factor s in Phi.

    Returns
    -------
    float
        alpha in units of 1 / step size, rounded down; 0 if N > d + m, and if N > d with sigma = 0
        (as for c > d and for W_U = 0).

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite, shapes that do not fit.

    Examples
    --------
    >>> A, H, W_U = np.diag([3.0, 1.0]), np.diag([0.0, 2.0]), np.array([[0.6], [0.8]])
    >>> round(pl_constant(A, H, W_U), 12)  # the smaller of 3^2 and 1^2 + 2^2
    5.0
    >>> round(pl_constant(A, H, W_U, [0.5 * np.eye(2)] * 2), 12)  # 1^2 + (2 / 2)^2
    2.0
    """
    if method not in ("exact", "bound"):
        raise ValueError(f"`method` must be 'exact' or 'bound', got {method!r}.")
    A_rows = _real(A, "A", 2)
    factor = _row_factor(sample_weight, scale, len(A_rows))
    kept = factor > 0
    n = np.count_nonzero(kept)
    A = _in_range(lambda: (A_rows * factor[:, None])[kept], "`A` times the roots of its weights")
    if H is None and W_U is None and jacobians is None:
        return _squared(_sigma(A, n))
    H_rows, W_U = _real(H, "H", 2), _real(W_U, "W_U", 2)
    N, (d, c) = len(kept), W_U.shape
    jacobians = jacobians if jacobians is None else _real(jacobians, "jacobians", 3)
    shapes = H_rows.shape[:1], A.shape[1:], (N, d, d) if jacobians is None else jacobians.shape
    if shapes != ((N,), (d,), (N, d, d)):
        raise ValueError(
            "`A`, `H`, `W_U`, `jacobians` must have shapes (N, d), (N, m), (d, c), (N, d, d); got "
            f"{(N, *A.shape[1:])}, {H_rows.shape}, {W_U.shape}, {np.shape(jacobians)}."
        )
    H = _in_range(lambda: (H_rows * factor[:, None])[kept], "`H` times the roots of its weights")
    if jacobians is None:
        sigma = _sigma(W_U, c)
        if method == "exact":
            scaled = _in_range(lambda: sigma * H, "sigma_c(W_U) times `H`")
            return _squared(_sigma(np.hstack([A, scaled]), n))
    else:
        G = _in_range(
            lambda: np.einsum("npq,pc->ncq", jacobians[kept], W_U), "`jacobians` times `W_U`"
        )
        if method == "exact":
            return tangent_kernel(_two_blocks(A, H, G)).lambda_min
        sigma = min(_sigma(G_i, c) for G_i in G)
    return _squared(np.hypot(_sigma(A, n), _sigma(H, n) * sigma))


def _two_blocks(A, H, G):
    """Derivatives of F by W_U, a_i (x) I_c, and by W_2, h_i (x) G_i, in pieces of bounded width."""
    n, c, d = G.shape
    yield np.einsum("nd,ce->ncde", A, np.eye(c)).reshape(n * c, -1)
    for columns in np.array_split(H, 1 + H.shape[1] * d // 2000, axis=1):
        block = _in_range(partial(np.einsum, "nm,ncq->ncmq", columns, G), "`H` times J^T W_U")
        yield block.reshape(n * c, -1)


class TangentKernel(NamedTuple):
    """Eigenvalues, modes, rank and lambda_min of J J^T; see :func:`tangent_kernel`."""

    eigenvalues: np.ndarray
    modes: np.ndarray
    rank: int
    lambda_min: float


def tangent_kernel(jacobian, *, sample_weight=None, scale=1.0):
    """Decompose ``J J^T``; its smallest eigenvalue is the best PL constant of the whole model.

    ``J^T = Q R`` by streaming QR, then ``R^T = U S V^T`` gives ``J J^T = U S^2 U^T``. Forming J J^T
    would lose what is below 1e-16 of the largest eigenvalue instead of 1e-32.

    Parameters
    ----------
    jacobian : array of shape (N c, P), or iterable of arrays (N c, ...)
        Derivatives of the outputs, output k of sample i in row i c + k. An iterable (one array for
        each parameter tensor) is read once and not kept.
    sample_weight : array of shape (N,), default=None
        Weights w in Phi; each serves the c rows of its sample.
    scale : float, default=1.0
        Factor s in Phi.

    Returns
    -------
    eigenvalues : ndarray of shape (n_rows,)
        Descending, in units of 1 / step size, exactly 0 from index `rank` on. n_rows counts the
        rows with a weight above 0.
    modes : ndarray of shape (N c, n_rows)
        Columns ``sqrt(s w_i) u_j``: ``c = modes.T @ (F - Y).ravel()`` has ``Phi = 1/2 ||c||^2``.
    rank : int
        Number of singular values of J above max(shape) eps sigma_1; other modes are not learned.
    lambda_min : float
        Smallest eigenvalue, rounded down: ``||grad Phi||^2 >= 2 lambda_min Phi`` for every target.

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite, blocks that differ in rows, no block.

    Examples
    --------
    >>> tangent_kernel(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0]])).eigenvalues
    array([9., 4.])
    """
    qr = None
    for block in [jacobian] if isinstance(jacobian, np.ndarray) else jacobian:
        block = _real(block, "jacobian")
        if qr is None:
            factor = _row_factor(sample_weight, scale, len(block))
            kept, n_rows = factor > 0, np.count_nonzero(factor)
            qr = StreamingQR(n_rows, max(2000, 2 * n_rows))
        if block.ndim < 2 or len(block) != len(factor):
            raise ValueError(f"`jacobian` must be ({len(factor)}, ...), got shape {block.shape}.")
        rows = block.reshape(len(block), -1)[kept]
        scaled = partial(np.multiply, rows, factor[kept, None])
        qr.update(_in_range(scaled, "`jacobian` times the roots of its weights").T)
    if qr is None or not qr.n_rows:
        raise ValueError("`jacobian` has no columns: pass the array of at least one parameter.")
    vectors, values, _ = np.linalg.svd(qr.r.T)
    shape = (n_rows, qr.n_rows)
    rank = numerical_rank(values, shape)
    eigenvalues = _in_range(partial(np.square, values), "the largest eigenvalue of J J^T")
    eigenvalues[rank:] = 0.0
    modes = np.zeros((len(factor), n_rows))
    modes[kept] = vectors * factor[kept, None]
    return TangentKernel(eigenvalues, modes, rank, _rounded_down(values, n_rows, shape) ** 2)


def linearized_loss(eigenvalues, coefficients, step, steps):
    """Loss of gradient descent on the model linearised at its present weights.

    ``Phi_lin(k) = 1/2 sum_j (1 - mu lambda_j)^(2k) c_j^2``.

    Parameters
    ----------
    eigenvalues, coefficients : array of shape (n_rows,)
        All lambda_j and ``c = modes.T @ (F - Y).ravel()`` of :func:`tangent_kernel`.
    step : float
        Step size mu.
    steps : int or array of numbers >= 0
        An int k gives steps 0 to k; in an array ``numpy.inf`` asks for the limit.

    Returns
    -------
    ndarray
        Phi_lin; it grows, to inf in the end, if a mode present has mu lambda > 2.

    Raises
    ------
    TypeError, ValueError
        For float32 input, shapes that differ, negative eigenvalues, a step that is not above 0.

    Examples
    --------
    >>> linearized_loss([1.0, 0.0], [2.0, 1.0], 0.5, [0, 1, np.inf])
    array([2.5, 1. , 0.5])
    """
    eigenvalues = _real(eigenvalues, "eigenvalues", 1, sign=">= 0")
    coefficients = _real(coefficients, "coefficients", 1)
    if coefficients.shape != eigenvalues.shape:
        raise ValueError(
            "`eigenvalues` and `coefficients` must have the same length, got "
            f"{len(eigenvalues)} and {len(coefficients)}."
        )
    energy = _in_range(lambda: coefficients**2 / 2, "the square of `coefficients`")
    steps = np.arange(steps + 1) if np.ndim(steps) == 0 else np.asarray(steps)
    step = _real(step, "step", sign="> 0")
    with np.errstate(divide="ignore", over="ignore"):  # what grows beyond all numbers is inf
        x = step * eigenvalues
        # log|1 - x| with the digits of x that 1 - x drops; -inf at x = 1: gone in one step
        logs = np.log1p(np.where(x <= 1, -x, x - 2))
        moving = (logs != 0) & (energy > 0)  # |1 - x| = 1 stays, and what is 0 stays 0
        still, energy, logs = energy[~moving].sum(), energy[moving], logs[moving]
        powers = (2 * k * logs if k else np.zeros_like(logs) for k in steps)  # 0 * -inf is NaN
        return np.array([still + energy @ np.exp(power) for power in powers])


def _loss_error(loss, zero_loss):
    p = np.sqrt(loss) + math.sqrt(zero_loss)  # >= ||F|| / sqrt(2)
    return _ROUNDING * (loss + 2 * np.sqrt(loss) * p + _ROUNDING * p**2)


def step_curvature(loss, loss_next, grad_norm, step, *, zero_loss=0.0):
    """Curvature of the gradient step taken, from measured numbers, and its rounding error.

    ``kappa = 2 (Phi' - Phi + mu ||g||^2) / (mu^2 ||g||^2) = 2/mu (1 - q)`` with
    ``q = (Phi - Phi') / (mu ||g||^2)``: for a smooth model a weighted mean of
    ``g^T Hess g / ||g||^2`` on the segment, for ReLU with the kinks. Phi - Phi' cancels:
    ``|error| <= 2/mu ((e + e') / (mu ||g||^2) + (e / Phi + 4 eps) |q|) + 4 eps |kappa|`` with
    ``e = k (Phi + 2 sqrt(Phi) p + k p^2)``, ``p = sqrt(Phi) + sqrt(Psi)``, k = 64 eps.

    Parameters
    ----------
    loss, loss_next, grad_norm, step : float or array
        Phi before and after the step, ||grad Phi|| before it, step size mu.
    zero_loss : float, default=0.0
        Psi, the loss of the prediction 0. Far below it a loss has the error of F - Y, which
        cancels; with 0 only errors relative to Phi are allowed for.

    Returns
    -------
    kappa, error : ndarray or float
        NaN where the gradient is 0, infinite beyond the range of float64. The loss rose if
        kappa - error > 2 / mu and fell if kappa + error < 2 / mu; in between rounding decides.

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite, negative, or a step of 0.

    Examples
    --------
    >>> kappa, error = step_curvature(8.0, 2.0, 4.0, 0.5)  # Phi = x^2 / 2 from x = 4 to 2
    >>> float(kappa), bool(error < 1e-12)
    (1.0, True)
    """
    loss, loss_next = _real(loss, "loss", sign=">= 0"), _real(loss_next, "loss_next", sign=">= 0")
    norm, step = _real(grad_norm, "grad_norm", sign=">= 0"), _real(step, "step", sign="> 0")
    norm = np.where(norm > 0, norm, np.nan)
    # A loss of 0 divides by 0; what lies beyond the float64 range is infinite, as documented.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        e, e_next = (_loss_error(phi, zero_loss) for phi in (loss, loss_next))
        q, rounding = ((v / norm / step / norm) for v in (loss - loss_next, e + e_next))
        rounding = rounding + abs(q) * (e / loss + 4 * _EPS)
        kappa = 2 / step * (1 - q)
        return kappa, 2 / step * rounding + 4 * _EPS * abs(kappa)


def certified_contraction(alpha, kappa, step):
    """Factor by which a gradient step provably shrank the loss.

    ``Phi' <= (1 - 2 mu (1 - mu kappa / 2) alpha) Phi`` if kappa < 2 / mu.

    Parameters
    ----------
    alpha, kappa, step : float or array
        PL constant and curvature at the same step, step size mu.

    Returns
    -------
    ndarray or float
        The factor; NaN where kappa >= 2 / mu: nothing is certified.

    Examples
    --------
    >>> certified_contraction(1.0, [1.0, 5.0], 0.5)  # step 0.5 on x^2 / 2 halves x: exact
    array([0.25,  nan])
    """
    kappa, step = np.asarray(kappa), np.asarray(step)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is not certified
        factor = 1 - 2 * step * (1 - step * kappa / 2) * alpha
        return np.where(kappa < 2 / step, factor, np.nan)[()]


def path_certificate(loss, grad_norm, step, alpha, *, zero_loss=0.0, dimensions=None):
    """Certificate of a path of gradient descent, step by step.

    If ``kappa_t < 2 / mu`` and ``||g_t||^2 >= 2 alpha_t Phi_t`` then
    ``Phi_{t+1} = Phi_t - mu (1 - mu kappa_t / 2) ||g_t||^2 <= contraction_t Phi_t``, exactly.

    Parameters
    ----------
    loss : array of shape (n_steps + 1,)
        Phi_0 to Phi_n; of a run that diverged, the finite ones.
    grad_norm, step, alpha : array of shape (n_steps,), or float
        ||grad Phi_t||, step size, and PL constant measured at that t (NaN where it was not).
    zero_loss : float, default=0.0
        As in :func:`step_curvature`; decides what is below rounding.
    dimensions : tuple (N, d, m), default=None
        Rows and widths of A and H, for the verdict where alpha is 0.

    Returns
    -------
    frame : DataFrame
        A row for each step: loss (Phi_t), gradient_norm, step_size, kappa, alpha, bound (on
        Phi_{t+1}), contraction (bound / Phi_t), margin (bound - Phi_{t+1}; where the loss rose, its
        change), kappa_error, and status: "certified", "failed", "vacuous" (alpha = 0), "below
        rounding" (the change of the loss) or "not measured" (alpha).
    product : float
        Of the contractions of the certified steps: bounds the fall over these. NaN if one failed.
    verdict : str
        The finding in a sentence.

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite or negative, lengths that do not fit.

    Examples
    --------
    >>> x = 0.5 ** np.arange(4.0)  # x^2 / 2 with step 0.5
    >>> path_certificate(x**2 / 2, x[:3], 0.5, alpha=1.0)[2]
    'certified at every step'
    """
    loss, alpha = _real(loss, "loss", 1, sign=">= 0"), np.asarray(alpha)
    _real(alpha[~np.isnan(alpha)], "alpha", sign=">= 0")
    phi, phi_next, n = loss[:-1], loss[1:], len(loss) - 1
    norm, step = _real(grad_norm, "grad_norm", sign=">= 0"), _real(step, "step", sign="> 0")
    if n < 1 or not {norm.shape, step.shape, alpha.shape} <= {(), (n,)}:
        raise ValueError(
            "`loss` must hold one value more than `grad_norm`, `step` and `alpha`; got shapes "
            f"{loss.shape}, {norm.shape}, {step.shape} and {alpha.shape}."
        )
    norm, step, alpha = (np.broadcast_to(value, n) for value in (norm, step, alpha))
    kappa, kappa_error = step_curvature(phi, phi_next, norm, step, zero_loss=zero_loss)
    with np.errstate(over="ignore"):  # a loss above 1e290 has an infinite error: nothing is certain
        e, e_next = (_loss_error(value, zero_loss) for value in (phi, phi_next))
    fall, root = phi - phi_next, np.sqrt(2 * alpha)
    too_flat = norm * (1 + _ROUNDING) < root * np.sqrt(np.maximum(phi - e, 0))
    # 2 alpha Phi_t / ||g||^2, the share of the fall that alpha explains. By it both the contraction
    # 1 - share (Phi_t - Phi_{t+1}) / Phi_t and the margin are free of the cancellation in kappa.
    with np.errstate(over="ignore"):
        share = np.divide(root * np.sqrt(phi), norm, out=np.ones(n), where=norm > 0) ** 2
    relative_fall = np.divide(fall, phi, out=np.zeros(n), where=phi > 0)
    contraction = np.where((fall > 0) & (norm > 0), 1 - share * relative_fall, np.nan)
    status = np.select(
        [np.isnan(alpha), too_flat | (-fall > e + e_next), alpha == 0, fall <= e + e_next],
        ["not measured", "failed", "vacuous", "below rounding"],
        "certified",
    )
    frame = pd.DataFrame({"loss": phi, "gradient_norm": norm, "step_size": step, "kappa": kappa})
    frame = frame.assign(alpha=alpha, bound=contraction * phi, contraction=contraction)
    frame["margin"] = np.where(fall > 0, fall * (1 - share), fall)
    frame = frame.assign(kappa_error=kappa_error, status=status)
    product = np.prod(contraction, where=status == "certified")
    return frame, math.nan if "failed" in status else float(product), _verdict(frame, dimensions)


def _verdict(frame, dimensions):
    status = frame["status"].to_numpy()
    kinds, first, counts = np.unique(status, return_index=True, return_counts=True)
    if "failed" in kinds:
        t = int(np.argmax(status == "failed"))
        kappa, limit = frame["kappa"][t], 2 / frame["step_size"][t]
        why = "||grad||^2 < 2 alpha Phi, alpha is no constant of this model"
        if kappa > limit:
            why = f"the loss rose, kappa = {kappa:.3g} > 2 / mu = {limit:.3g}"
        return f"failed at step {t}: {why}"
    if "vacuous" in kinds and "certified" not in kinds:
        n, d, m = dimensions or (0, 0, 0)
        why = (
            f": N = {n} > d + m = {d + m}"
            if n > d + m
            else ": [A, sigma H] has a numerical rank below N"
        )
        return "vacuous because alpha = 0" + why * (dimensions is not None)
    if list(kinds) == ["certified"]:
        return "certified at every step"
    parts = zip(kinds, counts, first, strict=True)
    return "; ".join(f"{kind} at {k} of {len(status)} steps from step {t}" for kind, k, t in parts)


def local_rate(grad_norm):
    """Local rate of convergence: minus the least-squares slope of ``log ||grad Phi_t||^2``.

    It needs no limit of the loss: ``||grad Phi||^2`` falls as fast as Phi does towards its limit.

    Parameters
    ----------
    grad_norm : array of shape (n_steps,)
        ||grad Phi_t|| above 0 on the steps meant, at least 4 (a slice of the whole run).

    Returns
    -------
    rate, first_half, second_half : float
        Per step, greater is faster; the rates of the halves are its range.

    Raises
    ------
    ValueError
        For fewer than 4 steps, or a norm that is 0 or not finite.

    Examples
    --------
    >>> [round(rate, 12) for rate in local_rate(np.exp(-0.1 * np.arange(10)))]
    [0.2, 0.2, 0.2]
    """
    logs = 2 * np.log(_real(grad_norm, "grad_norm", sign="> 0"))
    if len(logs) < 4:
        raise ValueError(f"`grad_norm` has {len(logs)} steps: each half of the stretch needs two.")
    parts = logs, logs[: len(logs) // 2], logs[len(logs) // 2 :]
    return tuple(-float(np.polyfit(np.arange(len(part)), part, 1)[0]) for part in parts)


def descent_step(largest_curvature, current=math.inf, *, safety=1.05):
    """Step size "auto": ``mu = min(current, 1 / (safety L))``, so it is never raised.

    Parameters
    ----------
    largest_curvature : float
        L, the largest (signed) eigenvalue of the Hessian measured now; L <= 0 keeps `current`.
    current : float, default=inf
        Step in use. Re-measuring L is due once kappa - error > 1 / current (`step_curvature`).
    safety : float, default=1.05
        For 10 Lanczos products, which leave L up to 5 % too small.

    Returns
    -------
    float
        The step size.

    Raises
    ------
    TypeError, ValueError
        If L is float32, not finite, or not above 0 without a `current` step.

    Examples
    --------
    >>> descent_step(4.0, safety=1.0), descent_step(4.0, 0.1, safety=1.0)
    (0.25, 0.1)
    """
    curvature = float(_real(largest_curvature, "largest_curvature", 0))
    # The reciprocal of what is below the smallest normal number is no number.
    gives_step = safety * curvature >= np.finfo(np.float64).tiny
    if not gives_step and current == math.inf:
        raise ValueError(f"`largest_curvature` must be above 0 to give a step, got {curvature}.")
    return min(current, 1 / (safety * curvature)) if gives_step else current
