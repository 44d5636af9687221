"""PL constants from singular values, the tangent kernel, and the loss it predicts."""

from functools import partial
from typing import NamedTuple

import numpy as np

from .._linalg import StreamingQR, kth_singular_value, numerical_rank
from .numbers import EPS, in_range, real, row_factor


def rounded_down(values, k, shape):
    """A lower bound of sigma_k: the computed one minus LAPACK's error max(shape) eps sigma_1.

    It is 0 if the matrix has fewer than k singular values or a numerical rank below k.
    """
    error = max(shape) * EPS * kth_singular_value(values, 1)
    return max(kth_singular_value(values, k) - error, 0.0)


def _squared(sigma):
    return float(in_range(lambda: np.square(sigma), "alpha"))


def _sigma(matrix, k):
    return rounded_down(np.linalg.svd(matrix, compute_uv=False), k, matrix.shape)


def pl_constant(
    A, H=None, W_U=None, jacobians=None, *, method="exact", sample_weight=None, scale=1.0
):
    """PL constant that follows from the unembedding W_U and the last W_2.

    ``||grad Phi||^2 >= 2 alpha Phi`` for every target, by ``dPhi/dW_U = A^T R`` and
    ``dPhi/dW_2 = H^T R W_U^T``, with ``alpha = lambda_min(A A^T + sigma^2 H H^T)``, computed as
    ``sigma_N([A, sigma H])^2``, and ``sigma = sigma_c(W_U)``. With a norm between W_2 and W_U it is
    lambda_min of ``(A A^T) (x) I_c + [(h_i . h_j) G_i^T G_j]_ij``, ``G_i = J_i^T W_U``.

    Parameters
    ----------
    A : array of shape (N, d)
        Input of W_U (after the norm, if any) on the N rows read out; for a mean read-out, the mean.
    H : array of shape (N, m), default=None
        Input of the last W_2 on these rows. None leaves the block of W_2 out, as must be done for a
        mean read-out with a norm between W_2 and W_U: there is then no single J_i for a row.
    W_U : array of shape (d, c), default=None
        Unembedding; a torch Linear stores the transpose.
    jacobians : array of shape (N, d, d), default=None
        ``jacobians[i, p, q]`` is the derivative of output p of that norm by its input q at row i,
        its gain included. For several norms in succession pass the product.
    method : {"exact", "bound"}, default="exact"
        "bound" returns ``lambda_min(A A^T) + lambda_min(H H^T) min_i sigma_c(G_i)^2``, which is
        smaller, but saves the 2 (N c)^2 m d operations that "exact" takes with `jacobians`.
    sample_weight : array of shape (N,), default=None
        Weights w in Phi.
    scale : float, default=1.0
        Factor s in Phi.

    Returns
    -------
    float
        alpha in units of 1 / step size, rounded down. It is 0 if N > d + m, and also if N > d and
        sigma = 0 (that is, if c > d or W_U = 0).

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite, shapes that do not match, or a result beyond
        the range of float64.

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
    A_rows = real(A, "A", 2)
    factor = row_factor(sample_weight, scale, len(A_rows))
    kept = factor > 0
    n = np.count_nonzero(kept)  # rows of weight 0 are not part of Phi
    A = in_range(lambda: (A_rows * factor[:, None])[kept], "`A` times the roots of its weights")
    if H is None and W_U is None and jacobians is None:
        return _squared(_sigma(A, n))
    H_rows, W_U = real(H, "H", 2), real(W_U, "W_U", 2)
    N, (d, c) = len(kept), W_U.shape
    jacobians = jacobians if jacobians is None else real(jacobians, "jacobians", 3)
    shapes = H_rows.shape[:1], A.shape[1:], (N, d, d) if jacobians is None else jacobians.shape
    if shapes != ((N,), (d,), (N, d, d)):
        raise ValueError(
            "`A`, `H`, `W_U`, `jacobians` must have shapes (N, d), (N, m), (d, c), (N, d, d); got "
            f"{(N, *A.shape[1:])}, {H_rows.shape}, {W_U.shape}, {np.shape(jacobians)}."
        )
    H = in_range(lambda: (H_rows * factor[:, None])[kept], "`H` times the roots of its weights")
    if jacobians is None:
        sigma = _sigma(W_U, c)
        if method == "exact":
            scaled = in_range(lambda: sigma * H, "sigma_c(W_U) times `H`")
            return _squared(_sigma(np.hstack([A, scaled]), n))
    else:
        G = in_range(
            lambda: np.einsum("npq,pc->ncq", jacobians[kept], W_U), "`jacobians` times `W_U`"
        )
        if method == "exact":
            return tangent_kernel(_two_blocks(A, H, G)).lambda_min
        sigma = min(_sigma(G_i, c) for G_i in G)
    return _squared(np.hypot(_sigma(A, n), _sigma(H, n) * sigma))


def _two_blocks(A, H, G):
    """Derivatives of F by W_U, a_i (x) I_c, and by W_2, h_i (x) G_i.

    They come in pieces of bounded width, so that memory does not grow with m d.
    """
    n, c, d = G.shape
    yield np.einsum("nd,ce->ncde", A, np.eye(c)).reshape(n * c, -1)
    for columns in np.array_split(H, 1 + H.shape[1] * d // 2000, axis=1):
        block = in_range(partial(np.einsum, "nm,ncq->ncmq", columns, G), "`H` times J^T W_U")
        yield block.reshape(n * c, -1)


class TangentKernel(NamedTuple):
    """Eigenvalues, modes, rank and lambda_min of J J^T; see :func:`tangent_kernel`."""

    eigenvalues: np.ndarray
    modes: np.ndarray
    rank: int
    lambda_min: float


def tangent_kernel(jacobian, *, sample_weight=None, scale=1.0):
    """Decompose ``J J^T``, whose smallest eigenvalue is the best PL constant of the whole model.

    ``J^T = Q R`` by streaming QR and ``R^T = U S V^T`` give ``J J^T = U S^2 U^T``. Without forming
    J J^T, eigenvalues are lost below 1e-32 of the largest one; with it below 1e-16.

    Parameters
    ----------
    jacobian : array of shape (N c, P), or iterable of arrays (N c, ...)
        Derivatives of the outputs; row i c + k holds output k of sample i. An iterable of one array
        per parameter tensor is read once and not kept.
    sample_weight : array of shape (N,), default=None
        Weights w in Phi; each belongs to the c rows of its sample.
    scale : float, default=1.0
        Factor s in Phi.

    Returns
    -------
    eigenvalues : ndarray of shape (n_rows,)
        In descending order, in units of 1 / step size, and exactly 0 from index `rank` on. n_rows
        is the number of rows with a weight above 0.
    modes : ndarray of shape (N c, n_rows)
        Columns ``sqrt(s w_i) u_j``, so that ``c = modes.T @ (F - Y).ravel()`` gives
        ``Phi = 1/2 ||c||^2``.
    rank : int
        Number of singular values of J above max(shape) eps sigma_1. Descent does not change the
        other modes.
    lambda_min : float
        Smallest eigenvalue, rounded down, with ``||grad Phi||^2 >= 2 lambda_min Phi`` for every
        target.

    Raises
    ------
    TypeError, ValueError
        For float32 input, values that are not finite, blocks with different numbers of rows, no
        block at all, or eigenvalues beyond the range of float64.

    Examples
    --------
    >>> tangent_kernel(np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0]])).eigenvalues
    array([9., 4.])
    """
    qr = None
    # J^T grows by the rows of each parameter; the QR is as wide as there are residuals.
    for block in [jacobian] if isinstance(jacobian, np.ndarray) else jacobian:
        block = real(block, "jacobian")
        if qr is None:
            factor = row_factor(sample_weight, scale, len(block))
            kept, n_rows = factor > 0, np.count_nonzero(factor)
            qr = StreamingQR(n_rows, max(2000, 2 * n_rows))
        if block.ndim < 2 or len(block) != len(factor):
            raise ValueError(f"`jacobian` must be ({len(factor)}, ...), got shape {block.shape}.")
        rows = block.reshape(len(block), -1)[kept]
        scaled = partial(np.multiply, rows, factor[kept, None])
        qr.update(in_range(scaled, "`jacobian` times the roots of its weights").T)
    if qr is None or not qr.n_rows:
        raise ValueError("`jacobian` has no columns: pass the derivatives by at least one weight.")
    # The left singular vectors of R^T are those of J, the eigenvectors of J J^T.
    vectors, values, _ = np.linalg.svd(qr.r.T)
    shape = (n_rows, qr.n_rows)
    rank = numerical_rank(values, shape)
    eigenvalues = in_range(partial(np.square, values), "the largest eigenvalue of J J^T")
    eigenvalues[rank:] = 0.0
    modes = np.zeros((len(factor), n_rows))
    modes[kept] = vectors * factor[kept, None]
    return TangentKernel(eigenvalues, modes, rank, rounded_down(values, n_rows, shape) ** 2)


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
        An int k means the steps 0 to k. In an array ``numpy.inf`` stands for the limit.

    Returns
    -------
    ndarray
        Phi_lin. It grows without limit, up to inf, if a mode that is present has mu lambda > 2.

    Raises
    ------
    TypeError, ValueError
        For float32 input, different lengths, negative eigenvalues, or a step that is not above 0.

    Examples
    --------
    >>> linearized_loss([1.0, 0.0], [2.0, 1.0], 0.5, [0, 1, np.inf])
    array([2.5, 1. , 0.5])
    """
    eigenvalues = real(eigenvalues, "eigenvalues", 1, sign=">= 0")
    coefficients = real(coefficients, "coefficients", 1)
    if coefficients.shape != eigenvalues.shape:
        raise ValueError(
            "`eigenvalues` and `coefficients` must have the same length, got "
            f"{len(eigenvalues)} and {len(coefficients)}."
        )
    energy = in_range(lambda: coefficients**2 / 2, "the square of `coefficients`")
    steps = np.arange(steps + 1) if np.ndim(steps) == 0 else np.asarray(steps)
    step = real(step, "step", sign="> 0")
    with np.errstate(divide="ignore", over="ignore"):  # what grows beyond all numbers is inf
        x = step * eigenvalues
        # log|1 - x|, keeping the digits of x that 1 - x would drop. It is -inf at x = 1, where one
        # step removes the mode.
        logs = np.log1p(np.where(x <= 1, -x, x - 2))
        moving = (logs != 0) & (energy > 0)  # modes with |1 - x| = 1, or without energy, stay
        still, energy, logs = energy[~moving].sum(), energy[moving], logs[moving]
        powers = (2 * k * logs if k else np.zeros_like(logs) for k in steps)  # 0 * -inf is NaN
        return np.array([still + energy @ np.exp(power) for power in powers])
