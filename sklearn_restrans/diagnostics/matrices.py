"""Conditioning of one matrix of every layer: X, Attn(X) or Z, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import _linalg
from .._linalg import kth_singular_value

__all__ = ["MatrixConditioning"]

# Quantities of one matrix that are arrays of shape (n_epochs, n_layers), by their names.
OF_MATRIX = (
    *("sigma_min", "sigma_min_ratio", "sigma_last", "sigma_max", "condition_number"),
    *("effective_rank", "stable_rank", "numerical_rank", "rank_collapse"),
)


@dataclass(frozen=True, eq=False)
class MatrixConditioning:
    """Conditioning of one matrix, X, Attn(X) or Z, at E epochs in L layers.

    Singular values are those of the sequences stacked to one matrix of `n_rows` rows.

    Attributes
    ----------
    singular_values : ndarray of shape (E, L, d)
        In descending order; nan from index min(n_rows, d) on.
    numerical_rank : int ndarray of shape (E, L)
        Number of singular values above min(max(n_rows, d) * eps, sqrt(eps)) * sigma_max, with the
        eps of the type in which ranks are counted: float32 for a fitted model, otherwise the type
        of the arrays.
    rank_collapse : ndarray of shape (E, L)
        Median over sequences of ||Z_i - 1 z_i^T||_F / ||Z_i||_F; 0 is full collapse.
    sequence_sigma_min : ndarray of shape (E, L, 5)
        Minimum, quartiles and maximum over sequences of the r_i-th singular value of the
        sequence's own matrix (T_i, d), where r_i is the numerical rank of its input X_i.
    input_rank : int ndarray of shape (E, L)
        Numerical rank r of the layer's stacked input X, counted in the same way.
    input_sigma_min : ndarray of shape (E, L) or None
        sigma_r of X; None in records of versions that did not keep the spectrum of X.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((8, 5, 4))
    >>> from sklearn_restrans.conditioning import LayerTrace, conditioning_from_traces
    >>> Z = conditioning_from_traces([[LayerTrace(X, 0 * X, 2 * X)]]).Z
    >>> Z.singular_values.shape, Z.sigma_min.shape, Z.sigma_min_ratio.round(12)
    ((1, 1, 4), (1, 1), array([[2.]]))
    """

    singular_values: np.ndarray
    numerical_rank: np.ndarray
    rank_collapse: np.ndarray
    sequence_sigma_min: np.ndarray
    input_rank: np.ndarray
    input_sigma_min: np.ndarray | None = None

    @property
    def _spectrum(self) -> np.ndarray:
        return np.nan_to_num(self.singular_values)  # a missing value counts as zero

    @property
    def sigma_max(self) -> np.ndarray:
        """Largest singular value, shape (E, L)."""
        return self._spectrum[..., 0]

    @property
    def sigma_min(self) -> np.ndarray:
        """Singular value sigma_r with r = `input_rank`, shape (E, L).

        It is rounding where `numerical_rank` is below r.
        """
        return kth_singular_value(self._spectrum, self.input_rank)

    @property
    def sigma_min_ratio(self) -> np.ndarray:
        """sigma_r of this matrix over sigma_r of X, shape (E, L).

        Of Z it is what the residual kept of the weakest direction of X, of Attn(X) what attention
        alone left of it; nan where sigma_r of X is 0 or unknown.
        """
        if self.input_sigma_min is None:
            return np.full(self.sigma_min.shape, np.nan)
        own = np.where(self.input_sigma_min > 0, self.input_sigma_min, np.nan)
        return self.sigma_min / own

    @property
    def sigma_last(self) -> np.ndarray:
        """Singular value at index min(n_rows, d), shape (E, L).

        It is rounding where `numerical_rank` is below that index.
        """
        return kth_singular_value(self._spectrum, (~np.isnan(self.singular_values)).sum(axis=-1))

    @property
    def condition_number(self) -> np.ndarray:
        """sigma_max / sigma_r, shape (E, L); infinite if sigma_r is not resolved.

        A value below d eps sigma_max, with the eps of float64, is rounding of the decomposition:
        the matrix has less than rank r, and a ratio to it would be a number without a meaning.
        """
        s, rank = self._spectrum, self.input_rank
        rounding = s.shape[-1] * np.finfo(np.float64).eps * self.sigma_max
        kappa = np.asarray(_linalg.condition_number(s, rank))
        return np.where(self.sigma_min > rounding, kappa, np.inf)

    @property
    def effective_rank(self) -> np.ndarray:
        """exp(entropy of s / sum s), shape (E, L) (Roy & Vetterli 2007)."""
        return _linalg.effective_rank(self._spectrum)

    @property
    def stable_rank(self) -> np.ndarray:
        """||.||_F^2 / ||.||_2^2, shape (E, L)."""
        return _linalg.stable_rank(self._spectrum)
