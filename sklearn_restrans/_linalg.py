"""Numerical linear algebra in float64: streaming QR, singular values, ranks.

Pure functions of arrays, on numpy and scipy alone. Singular values are never taken from a Gram
matrix: its eigenvalues are their squares, so everything below sqrt(eps) sigma_max is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dgeqrf
from scipy.special import xlogy

from ._validation import check_integer

Array = npt.NDArray[Any]

# Rows factored at a time: 1,000 to 8,000 cost the same within 20 %, and 2,000 rows of d = 64
# (1 MB) stay in the second-level cache.
BLOCK_ROWS = 2_000


class StreamingQR:
    """Triangular factor R of a tall matrix that arrives in blocks of rows.

    Formula: A = Q R and A' = Q' R' give [A; A'] = diag(Q, Q') [R; R'], hence the R of [R; A'] is
    that of [A; A'], and the singular values of A are those of R. Rows are collected in a buffer
    below R and factored when it is full. The result therefore does not depend on the sizes of the
    blocks they come in, and memory is limited to one buffer.

    Parameters
    ----------
    n_columns : int
        Number of columns d.
    block_rows : int, default=2000
        Rows factored at a time.

    Attributes
    ----------
    n_rows : int
        Rows seen so far.

    References
    ----------
    J. Demmel, L. Grigori, M. Hoemmen, J. Langou, "Communication-optimal parallel and sequential
    QR and LU factorizations", SIAM J. Sci. Comput. 34 (2012), section 4 (sequential TSQR).

    Examples
    --------
    >>> import numpy as np
    >>> qr = StreamingQR(n_columns=2)
    >>> for block in ([[3.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]):
    ...     qr = qr.update(np.asarray(block))
    >>> qr.singular_values()
    array([3., 2.])
    """

    def __init__(self, n_columns: int, block_rows: int = BLOCK_ROWS) -> None:
        self.n_columns = check_integer("n_columns", n_columns)
        block_rows = check_integer("block_rows", block_rows)
        self.n_rows = 0
        # Rows [0, d) are R, rows [d, _filled) are waiting. Fortran order: LAPACK works in place.
        self._buffer = np.zeros((self.n_columns + block_rows, self.n_columns), order="F")
        self._filled = self.n_columns

    def update(self, block: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> StreamingQR:
        """Add rows.

        Parameters
        ----------
        block : array-like of shape (n_rows, n_columns)
            Rows of the matrix; cast to float64.
        weights : array-like of shape (n_rows,), default=None
            Non-negative row weights w; row i is multiplied by sqrt(w_i), so that A^T A becomes
            sum_i w_i a_i a_i^T.

        Returns
        -------
        self : StreamingQR

        Raises
        ------
        ValueError, TypeError
            For a wrong shape, NaN, infinity or a negative weight, and for all but real numbers.
        """
        rows = finite_real(block, "block", ndim=2)
        if rows.shape[1] != self.n_columns:
            raise ValueError(
                f"block has {rows.shape[1]} columns, expected n_columns = {self.n_columns}; "
                "pass rows of one matrix."
            )
        scale = None if weights is None else _row_scale(weights, len(rows))
        start = 0
        while start < len(rows):
            taken = slice(start, start + len(self._buffer) - self._filled)
            piece = rows[taken] if scale is None else _times(rows[taken], scale[taken])
            self._buffer[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            start += len(piece)
            if self._filled == len(self._buffer):
                self._buffer[: self.n_columns] = self._factor(overwrite=True)
                self._filled = self.n_columns
        self.n_rows += len(rows)
        return self

    @property
    def r(self) -> Array:
        """Upper triangular factor of shape (n_columns, n_columns) of the rows so far."""
        return self._factor(overwrite=False)

    def singular_values(self) -> Array:
        """Singular values of all rows so far, largest first.

        Returns
        -------
        s : ndarray of shape (min(n_rows, n_columns),)
        """
        # With fewer rows than columns R is padded with zero rows, whose values do not belong to A.
        s = np.linalg.svd(self.r, compute_uv=False)[: min(self.n_rows, self.n_columns)]
        if not np.isfinite(s).all():
            raise ValueError(
                "the largest singular value is above the largest float64 number (1.8e308): divide "
                "the rows by a constant."
            )
        return s

    def _factor(self, overwrite: bool) -> Array:
        # lwork = 64 d lets LAPACK work on panels of up to 64 columns; scipy's default is 3 d.
        qr, _, _, _ = dgeqrf(
            self._buffer[: self._filled], lwork=64 * self.n_columns, overwrite_a=overwrite
        )
        # Zeros below R's diagonal stay zero to the bit: the Householder vectors are zero there.
        return qr[: self.n_columns]


def singular_values(matrix: Array | Iterable[Array], block_rows: int = BLOCK_ROWS) -> Array:
    """Singular values of a matrix, or of blocks of rows under each other, in float64.

    Formula: A = Q R, and svd(A) = svd(R), with R from :class:`StreamingQR`. The error of each
    value is a few eps * sigma_max: relative to sigma_min, eps times the condition number.

    Parameters
    ----------
    matrix : ndarray of shape (n_rows, n_columns), or iterable of such arrays
        One array, or any other iterable of arrays with equal numbers of columns, which is read
        once, block by block.
    block_rows : int, default=2000
        Rows factored at a time.

    Returns
    -------
    s : ndarray of shape (min(n_rows, n_columns),)
        Largest first.

    Raises
    ------
    ValueError
        For a wrong shape, NaN, infinity, or no block at all.

    Examples
    --------
    >>> import numpy as np
    >>> singular_values(np.diag([1.0, 2.0, 0.0]))
    array([2., 1., 0.])
    >>> singular_values(np.full((100, 2), 0.1) for _ in range(50)).round(12)
    array([10.,  0.])
    """
    if hasattr(matrix, "__array__"):
        rows = finite_real(matrix, "matrix", ndim=2)
        if 0 in rows.shape:
            return np.empty(0)
        if len(rows) < rows.shape[1]:  # a wide matrix has the values of its transpose
            rows = rows.T
        return StreamingQR(rows.shape[1], block_rows).update(rows).singular_values()
    qr = None
    for block in matrix:
        rows = finite_real(block, "each block", ndim=2)
        qr = (qr or StreamingQR(rows.shape[1], block_rows)).update(rows)
    if qr is None:
        raise ValueError("matrix has no blocks: pass an array or at least one block.")
    return qr.singular_values()


def numerical_rank(
    s: npt.ArrayLike,
    shape: tuple[int, int],
    rtol: float | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> Any:
    """Number of singular values above what rounding leaves of a zero one.

    Formula: #{k : s_k > min(max(shape) eps, sqrt(eps)) s_1}, eps that of the type the *entries*
    were computed in. float32 entries cannot show a condition number above about 1e7, whatever the
    SVD runs in.

    Parameters
    ----------
    s : array-like of shape (..., k)
        Singular values, largest first.
    shape : (int, int)
        Shape of the matrix they belong to.
    rtol : float, default=None
        Tolerance relative to s_1, instead of min(max(shape) * eps, sqrt(eps)).
    dtype : dtype, default=float64
        Type the entries of the matrix were computed in.

    Returns
    -------
    rank : int, or int ndarray of shape (...)

    Examples
    --------
    >>> numerical_rank([1.0, 1e-3, 1e-18], shape=(10, 3))
    2
    """
    s = np.asarray(s, dtype=np.float64)
    if s.shape[-1] == 0:
        return _plain(np.zeros(s.shape[:-1], dtype=int))
    # max(shape) eps is the usual bound on the rounding of an SVD (Golub & Van Loan, 5.5.8). For
    # many rows it is far too large: the errors of the rows are independent, so that their norm
    # grows as sqrt(rows), just as s_1 does. From 2,900 rows on (in float64 from 7e7) sqrt(eps)
    # takes its place. A million rows of float32 would otherwise lose all below a tenth of s_1.
    eps = float(np.finfo(dtype).eps)
    rtol = min(max(shape) * eps, eps**0.5) if rtol is None else rtol
    return _plain((s > rtol * s[..., :1]).sum(axis=-1))


def kth_singular_value(s: npt.ArrayLike, k: npt.ArrayLike) -> Any:
    """sigma_k, which is 0 when the matrix has no k-th singular value.

    Formula: sigma_k = s[k - 1] for 1 <= k <= len(s), else 0. `s[-1]` must not be used instead: for
    a matrix with fewer rows than k it is positive although sigma_k = 0.

    Parameters
    ----------
    s : array-like of shape (..., n)
        Singular values, largest first.
    k : int or int array-like of shape (...)
        Index, counted from 1; 0 (the rank of a zero matrix) gives 0.

    Returns
    -------
    sigma : float or ndarray of shape (...)

    Examples
    --------
    >>> kth_singular_value([3.0, 2.0], 2), kth_singular_value([3.0, 2.0], 3)
    (2.0, 0.0)
    """
    s, k = np.asarray(s, dtype=np.float64), np.asarray(k)
    if k.dtype.kind not in "iu" or (k < 0).any():
        raise ValueError(f"k counts singular values from 1 and must be an integer, got {k}.")
    k = np.broadcast_to(k, s.shape[:-1])
    padded = np.concatenate([np.zeros((*s.shape[:-1], 1)), s], axis=-1)
    index = np.where(k < padded.shape[-1], k, 0)
    return _plain(np.take_along_axis(padded, index[..., None], axis=-1)[..., 0])


def condition_number(s: npt.ArrayLike, rank: npt.ArrayLike) -> Any:
    """Condition number on the leading `rank` directions.

    Formula: sigma_1 / sigma_rank; infinite when sigma_rank is 0 or rank is 0.

    Parameters
    ----------
    s : array-like of shape (..., k)
        Singular values, largest first.
    rank : int or int array-like of shape (...)
        Index of the smallest singular value that counts.

    Returns
    -------
    kappa : float or ndarray of shape (...)

    Examples
    --------
    >>> condition_number([8.0, 2.0, 1e-17], rank=2)
    4.0
    """
    smallest = np.asarray(kth_singular_value(s, rank))
    largest = np.asarray(kth_singular_value(s, 1))
    infinite = np.full(smallest.shape, np.inf)
    with np.errstate(over="ignore"):  # a ratio too large for a float is infinite too
        return _plain(np.divide(largest, smallest, out=infinite, where=smallest > 0))


def effective_rank(s: npt.ArrayLike) -> Any:
    """Effective rank: exponential of the entropy of the normalised spectrum.

    Formula: exp(-sum_k p_k log p_k), p = s / sum(s); 0 for a zero matrix.

    Parameters
    ----------
    s : array-like of shape (..., k)
        Singular values.

    Returns
    -------
    rank : float or ndarray of shape (...)
        Between 1 and the rank.

    References
    ----------
    O. Roy, M. Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO
    2007, definition 1.

    Examples
    --------
    >>> round(effective_rank([2.0, 2.0, 2.0, 0.0]), 12)
    3.0
    """
    p = _relative(s)
    total = p.sum(axis=-1, keepdims=True)
    p = p / np.where(total > 0, total, 1.0)
    return _plain(np.where(total[..., 0] > 0, np.exp(-xlogy(p, p).sum(axis=-1)), 0.0))


def stable_rank(s: npt.ArrayLike) -> Any:
    """Stable rank.

    Formula: ||Z||_F^2 / ||Z||_2^2 = sum_k (s_k / s_1)^2; 0 for a zero matrix.

    Parameters
    ----------
    s : array-like of shape (..., k)
        Singular values.

    Returns
    -------
    rank : float or ndarray of shape (...)
        Between 1 and the rank.

    Examples
    --------
    >>> stable_rank([2.0, 1.0, 1.0])
    1.5
    """
    return _plain((_relative(s) ** 2).sum(axis=-1))


def rank_collapse(Z: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> Array:
    """How far each sequence is from one vector repeated at every token.

    Formula: ||Z_i - 1 z_i^T||_F / ||Z_i||_F, z_i the mean of the tokens of Z_i; 0 for Z_i = 0.
    0 is full collapse (all tokens equal, rank one), 1 is none (tokens of mean zero).

    Parameters
    ----------
    Z : array-like of shape (n_sequences, n_tokens, d)
    mask : bool array-like of shape (n_sequences, n_tokens), default=None
        True for real tokens. The others are left out, whatever their values.

    Returns
    -------
    residual : ndarray of shape (n_sequences,)
        Between 0 and 1.

    References
    ----------
    Y. Dong, J.-B. Cordonnier, A. Loukas, "Attention is not all you need: pure attention loses
    rank doubly exponentially with depth", ICML 2021, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> rank_collapse(np.array([[[1.0], [1.0]], [[1.0], [-1.0]]]))
    array([0., 1.])
    """
    Z = np.asarray(Z)
    keep = np.ones(Z.shape[:2], dtype=bool) if mask is None else np.asarray(mask)
    if keep.dtype != bool or keep.shape != Z.shape[:2]:
        raise ValueError(
            f"mask must be boolean of shape {Z.shape[:2]} (True = real token), "
            f"got {keep.dtype} of shape {keep.shape}."
        )
    Z = Z if keep.all() else np.where(keep[..., None], Z, 0.0)
    Z = finite_real(Z, "Z", ndim=3).astype(np.float64, copy=False)
    # Divided by the largest entry, squares neither overflow nor vanish.
    largest = np.abs(Z).max(axis=(1, 2), keepdims=True, initial=0.0)
    Z = Z / np.where(largest > 0, largest, 1.0)
    mean = Z.sum(axis=1, keepdims=True) / np.maximum(keep.sum(axis=1), 1)[:, None, None]
    centred = np.where(keep[..., None], Z - mean, 0.0)
    norm = np.linalg.norm(Z, axis=(1, 2))
    return np.linalg.norm(centred, axis=(1, 2)) / np.where(norm > 0, norm, 1.0)


def _relative(s: npt.ArrayLike) -> Array:
    """Return s / max(s) along the last axis, zeros where all are zero."""
    s = np.asarray(s, dtype=np.float64)
    largest = s.max(axis=-1, keepdims=True, initial=0.0)
    return s / np.where(largest > 0, largest, 1.0)


def _plain(values: Array) -> Any:
    """Turn a 0-d array into the Python number it holds."""
    return values.item() if values.ndim == 0 else values


def finite_real(values: Any, name: str, ndim: int) -> Array:
    """`values` as an array, checked to hold finite real numbers in `ndim` dimensions."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions, got shape {array.shape}.")
    # Minimum and maximum carry every NaN and infinity and, unlike a mask, need no memory.
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ValueError(f"{name} holds NaN or infinity; singular values need finite numbers.")
    return array


def _times(rows: Array, scale: Array) -> Array:
    """Rows times their scales; a product beyond the range of float64 is refused."""
    with np.errstate(over="ignore"):
        product = rows * scale
    return finite_real(product, "block times the roots of its weights", ndim=2)


def _row_scale(weights: npt.ArrayLike, n_rows: int) -> Array:
    """Square roots of the row weights as a column."""
    w = finite_real(weights, "weights", ndim=1)
    if len(w) != n_rows or (w < 0).any():
        raise ValueError(
            f"weights must be {n_rows} numbers >= 0, one for each row, got {weights!r}."
        )
    return np.sqrt(w, dtype=np.float64)[:, None]
