"""Conditioning of attention before and after the residual: result object and functions.

Every quantity is measured in float64 on a fixed probe set of sequences, for the input X of each
layer, for Attn(X) ("attention") and for Z = Attn(X) + beta X ("Z"). This module works on arrays
only; an estimator provides them as :class:`LayerTrace` (see `protocol`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._linalg import kth_singular_value
from .matrices import OF_MATRIX, MatrixConditioning
from .measure import COUNTED_IN, MATRICES, QUANTILES, SOFTMAX_QUANTITIES, measure
from .protocol import fitted_traces
from .summary import attention_state, describe
from .traces import LayerTrace

__all__ = ["Conditioning", "MatrixConditioning", "conditioning_from_traces", "measure_conditioning"]


def _of_Z(name: str) -> property:
    doc = f"{name} of Z, shape (n_epochs, n_layers); see :class:`MatrixConditioning`."
    return property(lambda self: getattr(self.Z, name), doc=doc)


def _of_weights(name: str, doc: str) -> property:
    return property(lambda self: self._stack(name), doc=f"{doc}, shape (n_epochs, n_layers).")


class Conditioning:
    """Conditioning of every layer before (X, Attn) and after the residual (Z), epoch by epoch.

    Formula: Z = Attn(X) + beta X. For the sequences of a fixed probe set stacked to one matrix,
    sigma_min is sigma_r with r = `input_rank`, the numerical rank of the layer's input X; the
    condition number is sigma_1 / sigma_r. Singular values grow with sqrt(n_rows), so compare them
    at equal numbers of rows. Of a fitted model, directions of X below n_rows * 1.2e-7 of its
    largest singular value (at most 3.5e-4) do not count as rank: float32 does not resolve them.

    Attributes
    ----------
    X, attention, Z : MatrixConditioning
        The layer's input, and the matrix before and after the residual; arrays of shape
        (n_epochs, n_layers), and `singular_values` of shape (n_epochs, n_layers, d). X is missing
        from records that an earlier version pickled.
    sigma_min_ratio : ndarray
        sigma_min of Z over that of X: what the residual kept of the weakest direction.
        `attention.sigma_min_ratio` is what attention alone left of it.
    sigma_min, sigma_max, condition_number, effective_rank, stable_rank, rank_collapse : ndarray
        Those of Z.
    input_rank : int ndarray of shape (n_epochs, n_layers)
        Numerical rank of the layer's stacked input.
    epochs : int ndarray of shape (n_epochs,)
        Epochs after which the model was measured; 0 means before training.
    n_layers, n_sequences, n_rows, d_model : int
        Size of the model and of the probe set; `n_rows` counts real tokens.
    attention_entropy, score_std, n_argmax_keys : ndarray of shape (n_epochs, n_layers)
        Quantities of the softmax matrices, nan if these were not recorded: the mean row entropy in
        nats; the mean standard deviation of the scores within a row, over keys of positive weight;
        and the mean number, over sequences and heads, of keys that are the largest in at least one
        row. Flat rows have a small standard deviation, saturated rows a small entropy.
    attention_entropy_share : ndarray of shape (n_epochs, n_layers)
        Mean over the rows of their entropy over log T (over the number of keys that a row may
        read, where a model is causal); 1 is uniform attention, 0 one key.
    attention_state : ndarray of str of shape (n_epochs, n_layers)
        "flat" (score_std < 0.1: each token becomes the mean), "saturated" (entropy share < 0.25:
        rows pick a key each), "selective" in between, "" if no softmax matrices were recorded.
    attention_sigma_min, attention_effective_rank : ndarray of shape (n_epochs, n_layers)
        Medians over the T_i x T_i softmax matrices of sigma_{T_i} and of the effective rank. They
        come from the first sequences of the probe, and from no more of them than cost as much as
        8 matrices of T = 144.
    attention_singular_values : ndarray of shape (n_epochs, n_layers, T)
        Medians of the k-th singular values of the same matrices; nan beyond the longest.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.
    Y. Dong, J.-B. Cordonnier, A. Loukas, "Attention is not all you need", ICML 2021.

    Examples
    --------
    Rank-one attention, and what beta = 2 adds to it:

    >>> import numpy as np
    >>> X = np.eye(3)[None]
    >>> attention = np.full((1, 3, 3), 1 / 3)
    >>> result = conditioning_from_traces([[LayerTrace(X, attention, attention + 2 * X)]])
    >>> result.attention.sigma_min.round(12), result.Z.sigma_min.round(12)
    (array([[0.]]), array([[2.]]))
    >>> round(result.get("condition_number"), 12)
    1.5
    """

    sigma_min = _of_Z("sigma_min")
    sigma_min_ratio = _of_Z("sigma_min_ratio")
    sigma_max = _of_Z("sigma_max")
    condition_number = _of_Z("condition_number")
    effective_rank = _of_Z("effective_rank")
    stable_rank = _of_Z("stable_rank")
    rank_collapse = _of_Z("rank_collapse")
    attention_entropy = _of_weights("attention_entropy", "Mean row entropy in nats")
    attention_entropy_share = _of_weights("attention_entropy_share", "Mean entropy over log T")
    attention_sigma_min = _of_weights("attention_sigma_min", "Median smallest singular value")
    attention_effective_rank = _of_weights("attention_effective_rank", "Median effective rank")
    attention_singular_values = _of_weights("attention_singular_values", "Median spectrum")
    score_std = _of_weights("score_std", "Mean standard deviation of the scores in a row")
    n_argmax_keys = _of_weights("n_argmax_keys", "Mean number of distinct arg-max keys")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._records: list[dict[str, np.ndarray]] = []
        self._probe: dict[str, int] = {}

    def record(
        self,
        epoch: int,
        chunks: Iterable[Sequence[LayerTrace]] | None,
        n_spectra: float = np.inf,
        dtype: npt.DTypeLike | None = None,
    ) -> Conditioning:
        """Measure the probe set and append the result.

        Parameters
        ----------
        epoch : int
            Number of finished epochs; 0 means before training.
        chunks : iterable of sequences of LayerTrace
            The probe set in chunks of sequences, each a list with one LayerTrace per layer. It is
            read once, so that a generator keeps memory at one chunk. None appends the last record
            once more: nothing changed since.
        n_spectra : float, default=inf
            Number of sequences that `sequence_sigma_min` is taken from; all other quantities come
            from all sequences. Fit uses 16, as their decompositions take half of a record's time.
        dtype : dtype, default=None
            Type whose eps decides what counts as rounding in a rank; None means the type of the
            arrays. Fit passes float32, whatever type the model was trained in, so that fits in
            float32 and in float64 count the same directions.

        Returns
        -------
        self : Conditioning

        Raises
        ------
        ValueError
            For arrays whose shapes do not match, for NaN or infinity, or if the size of the probe
            set is not that of the records before.
        TypeError
            If a chunk is not a list of LayerTrace.
        """
        # Measured before anything is stored: a refused record leaves the object as it was.
        same = chunks is None
        probe, values = (
            (self._probe, self._records[-1]) if same else measure(chunks, n_spectra, dtype)
        )
        if self._records and probe != self._probe:
            raise ValueError(
                f"the probe set changed: first {self._probe}, now {probe}; singular values grow "
                "with the number of rows, so record every epoch on the same sequences."
            )
        self._probe = probe
        self._epochs.append(int(epoch))
        self._records.append(values)
        return self

    epochs = property(lambda self: np.asarray(self._epochs, dtype=int), doc="Epochs recorded.")
    n_layers = property(lambda self: self._probe.get("n_layers", 0), doc="Number of layers.")
    n_sequences = property(lambda self: self._probe.get("n_sequences", 0), doc="Probe sequences.")
    n_rows = property(lambda self: self._probe.get("n_rows", 0), doc="Rows of the stack.")
    d_model = property(lambda self: self._probe.get("d_model", 0), doc="Columns of the stack.")
    input_rank = property(lambda self: self._stack("input_rank"), doc="Rank of each layer's input.")
    X = property(lambda self: self._view("X"), doc="X, the input of each layer.")
    attention = property(lambda self: self._view("attention"), doc="Attn(X), before the residual.")
    Z = property(lambda self: self._view("Z"), doc="Z = Attn(X) + beta X, after the residual.")

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the matrices that were recorded: "X", "attention" and "Z"."""
        return tuple(
            of for of in MATRICES if self._records and f"{of}.singular_values" in self._records[0]
        )

    @property
    def attention_state(self) -> np.ndarray:
        """Whether attention is "flat", "selective" or "saturated", shape (n_epochs, n_layers)."""
        states: np.ndarray = attention_state(self.score_std, self.attention_entropy_share)
        return states

    def get(self, quantity: str, of: str = "Z", layer: int = -1, stage: str = "final") -> float:
        """One number, for scorers.

        Parameters
        ----------
        quantity : str
            Name of an array of numbers of shape (n_epochs, n_layers) of this object or of its `Z`,
            `attention` and `X`, or "sequence_sigma_min", which stands for its median over
            sequences.
        of : {"Z", "attention", "X"}, default="Z"
            Matrix after or before the residual, or the layer's input. It has no effect on
            quantities of the softmax matrices and on "input_rank".
        layer : int, default=-1
            Layer, counted from 0, or from the end if negative.
        stage : {"final", "initial"}, default="final"
            Last or first record.

        Returns
        -------
        value : float

        Raises
        ------
        ValueError
            For a name, layer or stage that does not exist; the message lists those that do.
        """
        check_quantity(quantity, of, stage)
        if not self._records:
            raise ValueError("nothing was recorded yet; call record, or fit the estimator.")
        if not -self.n_layers <= layer < self.n_layers:
            raise ValueError(f"layer must be below n_layers = {self.n_layers}, got {layer}.")
        # Quantities of the softmax matrices and of the input belong to the layer, not to a matrix.
        source = self if quantity in ("input_rank", *SOFTMAX_QUANTITIES) else self._view(of)
        value = getattr(source, quantity)[-1 if stage == "final" else 0, layer]
        # Index 2 of the five quantiles is the median.
        return float(value[2] if quantity == "sequence_sigma_min" else value)

    def to_frame(self) -> pd.DataFrame:
        """All scalar quantities, one row per (epoch, layer, of).

        Returns
        -------
        frame : DataFrame
            Columns epoch, layer (from 0), of ("X", "attention" or "Z"), n_rows, input_rank, the
            quantities of the matrix, the quantiles sequence_sigma_min_*, and the quantities of
            the softmax matrices, which belong to "attention" and are nan for the others.
        """
        frames = []
        for of in self.matrices or MATRICES:  # of an empty record the view says so
            view = self._view(of)
            columns = {name: getattr(view, name) for name in ("input_rank", *OF_MATRIX)}
            for k, name in enumerate(QUANTILES):
                columns[f"sequence_sigma_min_{name}"] = view.sequence_sigma_min[..., k]
            for name in SOFTMAX_QUANTITIES:
                values = getattr(self, name)
                # X and Z have no softmax matrices of their own.
                columns[name] = values if of == "attention" else np.full_like(values, np.nan)
            # The order of ravel: layers run fastest, within each epoch.
            index = {
                "epoch": np.repeat(self.epochs, self.n_layers),
                "layer": np.tile(np.arange(self.n_layers), len(self.epochs)),
                "of": of,
                "n_rows": self.n_rows,
            }
            frames.append(pd.DataFrame(index | {k: v.ravel() for k, v in columns.items()}))
        # A stable sort by position keeps X, Attn and Z of one record together.
        return pd.concat(frames).sort_index(kind="stable").reset_index(drop=True)

    def __repr__(self) -> str:
        if not self._records:
            return "Conditioning: nothing recorded yet"
        return describe(self)

    def _stack(self, name: str) -> np.ndarray:
        if not self._records:
            raise ValueError("nothing was recorded yet; call record, or fit the estimator.")
        # Of records that an earlier version pickled.
        if name == "attention_entropy_share" and name not in self._records[0]:
            return np.full(self.score_std.shape, np.nan)
        # The probe is the same in every record, so all arrays of one name have one shape.
        return np.stack([record[name] for record in self._records])

    def _view(self, of: str) -> MatrixConditioning:
        if self._records and of not in self.matrices:
            raise ValueError(
                "X was not recorded by the version that made this record; call "
                "measure_conditioning(estimator, X), or fit again."
            )
        # What belongs to the input is one for all matrices and stored once.
        shared = ("input_rank", "input_sigma_min")
        names = [field.name for field in fields(MatrixConditioning) if field.name not in shared]
        arrays = {name: self._stack(f"{of}.{name}") for name in names}
        rank, smallest = self._stack("input_rank"), None
        if "X" in self.matrices:
            smallest = kth_singular_value(np.nan_to_num(self._stack("X.singular_values")), rank)
        return MatrixConditioning(**arrays, input_rank=rank, input_sigma_min=smallest)


def check_quantity(quantity: str, of: str, stage: str) -> None:
    """Refuse names that :meth:`Conditioning.get` does not know."""
    names = (*OF_MATRIX, "sequence_sigma_min", "input_rank", *SOFTMAX_QUANTITIES)
    _check_choice("quantity", quantity, names)
    _check_choice("of", of, tuple(MATRICES))
    _check_choice("stage", stage, ("final", "initial"))


def conditioning_from_traces(
    chunks: Iterable[Sequence[LayerTrace]], epoch: int = 0, dtype: npt.DTypeLike | None = None
) -> Conditioning:
    """Conditioning of layer traces that are at hand as arrays.

    Parameters
    ----------
    chunks : iterable of sequences of LayerTrace
        Sequences in chunks, each a list with one LayerTrace per layer. They are read once.
    epoch : int, default=0
        Epoch of the record.
    dtype : dtype, default=None
        Type whose eps decides what counts as rounding in a rank; None means that of the arrays.

    Returns
    -------
    result : Conditioning
        With one record.

    Raises
    ------
    ValueError, TypeError
        As :meth:`Conditioning.record`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((8, 5, 4))
    >>> result = conditioning_from_traces([[LayerTrace(X, 0 * X, 0.5 * X)]])
    >>> result.n_rows, result.input_rank.tolist(), result.attention.sigma_max.tolist()
    (40, [[4]], [[0.0]])
    """
    return Conditioning().record(epoch, chunks, dtype=dtype)


def measure_conditioning(estimator: Any, X: Any, *, segments: Any = None) -> Conditioning:
    """Conditioning of a fitted estimator on given data.

    Parameters
    ----------
    estimator : estimator
        Fitted ResidualTransformerRegressor or -Classifier, or a fitted Pipeline that ends with
        one, whose earlier steps transform X first.
    X : array-like
        Data as for `estimator.predict`; every sequence is measured.
    segments : array-like of shape (n_rows,), default=None
        As for `estimator.predict`, of an estimator with ``window``.

    Returns
    -------
    result : Conditioning
        With one record, at the epoch whose weights were kept. Its values belong to `X`. Those of
        `estimator.conditioning_` belong to training rows; compare the two only at equal `n_rows`.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is not an estimator of this package (more exactly, does not follow `HasTraces`).

    Examples
    --------
    >>> measure_conditioning("ridge", None)
    Traceback (most recent call last):
        ...
    TypeError: measure_conditioning needs a residual Transformer (ResidualTransformer... or \
PretrainedText...), or a Pipeline that ends with one, got str; for arrays use \
conditioning_from_traces.
    """
    chunks, epoch = fitted_traces(estimator, X, "measure_conditioning", segments)
    return conditioning_from_traces(chunks, epoch, COUNTED_IN)


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")
