"""Measures a probe set of sequences, layer by layer, chunk by chunk, in float64.

:func:`measure` turns the :class:`LayerTrace` of every layer into the plain arrays that
`conditioning.Conditioning` stores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .. import _linalg
from .._linalg import StreamingQR, kth_singular_value, numerical_rank, rank_collapse
from .traces import LayerTrace, checked, unpadded

# Matrices measured before and after the residual, with the field of LayerTrace that holds them.
MATRICES = {"X": "inputs", "attention": "attention", "Z": "output"}
# Quantiles over sequences of each sequence's own smallest singular value.
QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
# Scalars of the softmax matrices.
SOFTMAX_QUANTITIES = (
    *("attention_entropy", "attention_entropy_share", "attention_sigma_min"),
    *("attention_effective_rank", "score_std", "n_argmax_keys"),
)
_SUMS = ("attention_entropy", "attention_entropy_share", "score_std", "n_argmax_keys")
# Type in whose precision ranks of a fitted model's matrices are counted. A fit in float32 or
# bfloat16 holds its weights and position tables in float32 (only products are in bfloat16), and
# singular values below the eps of float32 are the rounding of these. A fit in float64 is counted
# in the same way: the spectrum of a smooth table of positions falls off without a gap, so another
# tolerance would give another rank, and sigma_min could not be compared between the types.
COUNTED_IN = np.dtype(np.float32)
# Cost (sum of h T^3) up to which the T x T attention matrices of a probe are decomposed: 8
# matrices of T = 144, 8 ms on one core.
_ATTENTION_SVD_BUDGET = 8 * 144**3


def measure(
    chunks: Iterable[Sequence[LayerTrace]],
    n_spectra: float = np.inf,
    dtype: npt.DTypeLike | None = None,
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Read the chunks once; return the probe's size, and for each quantity an array over layers.

    The quantiles of the sequences' own singular values come from about the first ``n_spectra``
    sequences, everything else from all of them. Ranks are counted in the precision of ``dtype``,
    or of the arrays themselves if it is None.
    """
    layers: list[_LayerMeasurement] = []
    for chunk in chunks:
        traces = list(chunk)
        if not all(isinstance(trace, LayerTrace) for trace in traces):
            raise TypeError("each chunk must be a list of LayerTrace, one for each layer.")
        layers = layers or [_LayerMeasurement(k, t, n_spectra, dtype) for k, t in enumerate(traces)]
        if len(traces) != len(layers):
            raise ValueError(f"a chunk has {len(traces)} layers, the first had {len(layers)}.")
        for layer, trace in zip(layers, traces, strict=True):
            layer.update(trace)
    if not layers or not layers[0].qr["Z"].n_rows:
        raise ValueError("the probe set is empty; pass at least one sequence.")
    qr = layers[0].qr["Z"]
    probe = {"n_layers": len(layers), "n_sequences": layers[0].n_sequences}
    probe |= {"n_rows": qr.n_rows, "d_model": qr.n_columns, "n_tokens": layers[0].n_tokens}
    results = [layer.result() for layer in layers]
    return probe, {name: np.stack([r[name] for r in results]) for name in results[0]}


class _LayerMeasurement:
    """Quantities of one layer, gathered over chunks of sequences."""

    def __init__(
        self, index: int, trace: LayerTrace, n_spectra: float, dtype: npt.DTypeLike | None
    ) -> None:
        self.index, self.n_spectra = index, n_spectra
        if dtype is None:  # integers are exact
            dtype = np.asarray(trace.inputs).dtype
            dtype = dtype if dtype.kind == "f" else np.float64
        self.dtype = np.dtype(dtype)
        self.n_sequences = self.n_tokens = 0
        d = (0, *np.shape(trace.inputs))[-1]
        self.qr = {of: StreamingQR(d) for of in MATRICES}
        self.sigma: dict[str, list[np.ndarray]] = {of: [] for of in MATRICES}
        self.collapse: dict[str, list[np.ndarray]] = {of: [] for of in MATRICES}
        self.softmax = _SoftmaxMeasurement()

    def update(self, trace: LayerTrace) -> None:
        trace = checked(trace, self.qr["Z"].n_columns, self.index)
        self.n_sequences += len(trace.inputs)
        self.n_tokens = max(self.n_tokens, trace.inputs.shape[1])
        # The same share of each group, so that all lengths are represented.
        share = min(1.0, self.n_spectra / max(1, len(trace.inputs)))
        self.n_spectra = max(0.0, self.n_spectra - len(trace.inputs))
        for group in unpadded(trace):
            # X first: the rank of each sequence's input decides which singular value is taken.
            own, rank = slice(math.ceil(share * len(group.inputs))), None
            for of, field in MATRICES.items():
                matrices = self._finite(group, field)
                self.qr[of].update(matrices.reshape(-1, matrices.shape[-1]))
                s = _svd(matrices[own])
                if rank is None:
                    rank = numerical_rank(s, matrices.shape[1:], dtype=self.dtype)
                self.sigma[of].append(kth_singular_value(s, rank))
                self.collapse[of].append(rank_collapse(matrices))
            if group.weights is not None:
                self.softmax.update(self._finite(group, "weights").astype(np.float64, copy=False))

    def _finite(self, group: LayerTrace, field: str) -> np.ndarray:
        ndim = 4 if field == "weights" else 3
        return _linalg.finite_real(getattr(group, field), f"{field} of layer {self.index}", ndim)

    def result(self) -> dict[str, np.ndarray]:
        shape = self.qr["Z"].n_rows, self.qr["Z"].n_columns
        result = {}
        for of in MATRICES:
            s = self.qr[of].singular_values()
            if of == "X":
                result["input_rank"] = numerical_rank(s, shape, dtype=self.dtype)
            result[f"{of}.singular_values"] = _padded(s, shape[1])
            result[f"{of}.numerical_rank"] = numerical_rank(s, shape, dtype=self.dtype)
            result[f"{of}.rank_collapse"] = np.median(np.concatenate(self.collapse[of]))
            result[f"{of}.sequence_sigma_min"] = np.quantile(
                np.concatenate(self.sigma[of]), list(QUANTILES.values())
            )
        return result | self.softmax.result(self.n_tokens)


def keys_of_rows(weights: np.ndarray) -> np.ndarray:
    """Number of keys that each row of unpadded softmax matrices (..., T, T) may read, (T,).

    A causal model gives no weight to later tokens. Weights that are zero elsewhere are the rounding
    of saturated rows, which could have read these keys.
    """
    T = weights.shape[-1]
    causal = T > 1 and not np.triu(weights, 1).any()
    keys: np.ndarray = np.arange(1, T + 1) if causal else np.full(T, T)
    return keys


def _svd(matrices: np.ndarray) -> np.ndarray:
    """Singular values of each matrix of a stack (n, T, d), in float64."""
    return np.linalg.svd(matrices.astype(np.float64, copy=False), compute_uv=False)


class _SoftmaxMeasurement:
    """Quantities of the softmax matrices of one layer, gathered over chunks."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(_SUMS, 0.0)
        self.n_matrices = self.n_rows = self.n_choices = self.cost = 0
        self.spectra: list[np.ndarray] = []

    def update(self, weights: np.ndarray) -> None:
        """Add matrices P of shape (n, h, T, T).

        The entropy of a row is -sum_j p_j log p_j. The scores of a row are log p up to a constant,
        so their standard deviation is that of log p over the keys with p > 0.
        """
        n, n_heads, T, _ = weights.shape
        positive = weights > 0
        log = np.log(weights, out=np.zeros_like(weights), where=positive)
        n_keys = np.maximum(positive.sum(axis=-1), 1)
        deviation = np.where(positive, log - (log.sum(axis=-1) / n_keys)[..., None], 0.0)
        chosen = np.zeros(weights.shape[:3], dtype=bool)
        np.put_along_axis(chosen, weights.argmax(axis=-1), True, axis=-1)
        entropy = -(weights * log).sum(axis=-1)
        keys = keys_of_rows(weights)
        self.totals["attention_entropy"] += float(entropy.sum())
        self.totals["attention_entropy_share"] += float(
            (entropy[..., keys > 1] / np.log(keys[keys > 1])).sum()
        )
        self.n_choices += n * n_heads * int((keys > 1).sum())
        self.totals["score_std"] += float(np.sqrt((deviation**2).sum(axis=-1) / n_keys).sum())
        self.totals["n_argmax_keys"] += int(chosen.sum())
        self.n_matrices += n * n_heads
        self.n_rows += n * n_heads * T
        # The budget is shared by all chunks; one sequence is decomposed whatever it costs.
        affordable = (_ATTENTION_SVD_BUDGET - self.cost) // (n_heads * T**3)
        taken = weights[: max(affordable, 0 if self.spectra else 1)]
        if len(taken):
            self.cost += len(taken) * n_heads * T**3
            s = np.linalg.svd(taken, compute_uv=False)
            self.spectra.append(s.reshape(-1, T))

    def result(self, n_tokens: int) -> dict[str, np.ndarray]:
        if not self.spectra:
            return {name: np.asarray(np.nan) for name in SOFTMAX_QUANTITIES} | {
                "attention_singular_values": np.full(n_tokens, np.nan)
            }
        counts = {"n_argmax_keys": self.n_matrices, "attention_entropy_share": self.n_choices}
        result = {
            # Rows that may read one key only have no share: nan if there are no others.
            name: np.asarray(total / (counts.get(name, self.n_rows) or np.nan))
            for name, total in self.totals.items()
        }
        smallest = np.concatenate([s[:, -1] for s in self.spectra])
        ranks = np.concatenate([_linalg.effective_rank(s) for s in self.spectra])
        longest = max(s.shape[1] for s in self.spectra)
        spectrum = np.nanmedian(np.concatenate([_padded(s, longest) for s in self.spectra]), axis=0)
        return result | {
            "attention_sigma_min": np.median(smallest),
            "attention_effective_rank": np.median(ranks),
            "attention_singular_values": _padded(spectrum, n_tokens),
        }


def _padded(s: np.ndarray, length: int) -> np.ndarray:
    """Append nan along the last axis up to `length`."""
    width = [(0, 0)] * (s.ndim - 1) + [(0, length - s.shape[-1])]
    return np.pad(s, width, constant_values=np.nan)
