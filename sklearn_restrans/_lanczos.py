"""The largest eigenvalue of a symmetric matrix that is known by its products alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._validation import check_integer

Array = npt.NDArray[Any]


class LanczosResult(NamedTuple):
    """Result of :func:`lanczos_largest`.

    `value` is the largest Ritz value theta, and `trace` its course over the products, which never
    falls but for rounding. `residual_norm` is ||A v - theta v|| for the Ritz vector v: A has an
    eigenvalue within that distance of theta.
    """

    value: float
    trace: Array
    residual_norm: float


def lanczos_largest(
    matvec: Callable[[Array], npt.ArrayLike],
    n: int,
    n_iter: int = 10,
    rng: np.random.Generator | int | None = None,
) -> LanczosResult:
    """Largest algebraic eigenvalue of a symmetric matrix known by its products.

    Formula: after k products, A Q_k = Q_k T_k + b_k q_{k+1} e_k^T with Q_k orthonormal from a
    random start and T_k tridiagonal; the estimate is the largest eigenvalue of T_k, a lower
    bound of A's, with residual b_k |last entry of T_k's eigenvector|. Full
    re-orthogonalisation. Unlike power iteration it cannot return a negative eigenvalue of
    larger modulus.

    Parameters
    ----------
    matvec : callable
        Maps a float64 vector of shape (n,) to A times it; A must be symmetric.
    n : int
        Order of A.
    n_iter : int, default=10
        Largest number of products. There are fewer if the residual reaches the level of rounding.
    rng : numpy Generator, int or None, default=None
        Source of the start vector.

    Returns
    -------
    result : LanczosResult
        Named tuple (value: float, trace: ndarray of shape (n_steps,), residual_norm: float).

    Raises
    ------
    ValueError
        If a product has another shape or is not finite.

    References
    ----------
    B. N. Parlett, "The Symmetric Eigenvalue Problem", SIAM 1998, chapter 13.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.diag([-9.0, 1.0, 2.0, 4.0])
    >>> round(lanczos_largest(lambda v: A @ v, n=4, rng=0).value, 10)
    4.0
    """
    n, n_iter = check_integer("n", n), check_integer("n_iter", n_iter)
    unit = 1.0
    q = np.random.default_rng(rng).standard_normal(n)
    q /= np.linalg.norm(q)
    basis = np.empty((min(n_iter, n), n))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    trace: list[float] = []
    for k in range(len(basis)):
        basis[k] = q
        product = np.array(matvec(q), dtype=np.float64)
        if product.shape != (n,) or not np.isfinite(product).all():
            raise ValueError(
                f"matvec must return {n} finite numbers, got {product} at product {k + 1}."
            )
        if k == 0:
            # Dividing by a power of two near A's size is exact and keeps all squares in range.
            unit = 2.0 ** int(np.clip(np.frexp(np.abs(product).max())[1], -1000, 1000))
        product /= unit
        diagonal.append(float(basis[k] @ product))
        for _ in range(2):  # twice is enough to be orthogonal to rounding (Parlett, 6.9)
            product -= basis[: k + 1].T @ (basis[: k + 1] @ product)
        ritz, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, -1))
        norm = float(np.linalg.norm(product))
        trace.append(float(ritz[-1]) * unit)
        residual = norm * float(abs(vectors[-1, -1]))
        # A product is exact to n eps ||A||. A residual below that is rounding, and the value exact.
        if residual <= n * np.finfo(np.float64).eps * np.abs(ritz).max():
            break
        off_diagonal.append(norm)
        q = product / norm
    return LanczosResult(trace[-1], np.asarray(trace), residual * unit)
