"""Token ids and pretrained vectors."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.utils import check_array

from .arrays import n_axes, refuse_masked
from .windows import SequenceView

# Ids beyond this were not numbered from 0 (hashes, say), and would need a table of as many rows.
_MOST_IDS = 2_000_000
# Above this, float32 numbers are more than 1 apart, and the small steps of training are lost.
_LARGEST_ENTRY = 2**24


def as_ids(X, owner):
    """X as an array of integers >= 0; a ValueError says what cannot be read as token ids."""
    remedy = "token ids are integers >= 0, as SequenceVectorizer makes them of texts"
    refuse_masked(X, "X", "filled(0), where 0 is padding at the end and 1 an unknown token")
    if isinstance(X, list | tuple):
        lengths = {len(row) for row in X if isinstance(row, list | tuple | np.ndarray)}
        if len(lengths) > 1:
            raise ValueError(
                f"X holds rows of {min(lengths)} to {max(lengths)} token ids; pad the shorter ones "
                "with 0 at the end."
            )
    if isinstance(X, SequenceView) or n_axes(X) != 2:
        shape = f" and shape {tuple(X.shape)}" if hasattr(X, "shape") else ""
        raise ValueError(
            f"X must be 2-D, one row of token ids per text, got {type(X).__name__} with "
            f"{n_axes(X)} axes{shape}; {remedy}."
        )
    try:
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=owner, input_name="X")
        if X.dtype.kind in "bmM":
            raise ValueError(f"its type is {X.dtype}.")
        ids = X if X.dtype.kind in "iu" else X.astype(np.float64)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")  # other lines print X
        raise type(error)(f"X cannot be read as token ids: {reason}; {remedy}.") from None
    wrong = ~(np.isfinite(ids) & (ids >= 0) & (ids == np.floor(ids)) & (ids < _MOST_IDS))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value = ids[row, column].item()
        kind = "is missing; pad with 0" if value != value else f"is {value!r}, not a token id"
        raise ValueError(
            f"X[{row}, {column}] {kind}; {remedy} (0: padding at the end, 1: unknown, at most "
            f"{_MOST_IDS - 1:,})."
        )
    return ids.astype(np.int64)


def takes_ids(embedding):
    """Whether the parameter ``embedding`` asks for token ids."""
    return not isinstance(embedding, str) or embedding == "token"


def padded_length(n_tokens):
    """Tokens a sequence is padded to: the next of 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, ...

    Above 32 the powers of two and the numbers half-way between them. The other sequences of a batch
    do not count: matrix kernels choose by shape, and a row's last bits would depend on them.
    """
    n_tokens = np.maximum(n_tokens, 1)
    power = 1 << np.ceil(np.log2(n_tokens)).astype(np.int64)
    rung = np.where(n_tokens <= 3 * power // 4, 3 * power // 4, power)
    return np.where(n_tokens <= 32, -(-n_tokens // 8) * 8, rung)


def pretrained_vectors(embedding, d_model):
    """Pretrained vectors as an array (V, d_model); None where ``embedding`` is a name."""
    if isinstance(embedding, str):
        return None
    module = isinstance(embedding, torch.nn.Embedding)
    vectors = embedding.weight if module else embedding
    refuse_masked(vectors, "embedding", "filled(0.0)")
    try:
        if hasattr(vectors, "detach"):  # a tensor, such as the weight of a torch module
            vectors = vectors.detach().cpu()
            # numpy has no bfloat16
            vectors = vectors.float() if vectors.element_size() == 2 else vectors
        vectors = np.asarray(vectors)
        if vectors.dtype.kind not in "biufO":
            raise TypeError(f"its type is {vectors.dtype}")
        vectors = vectors.astype(np.float64)  # a copy: a frame hands out its own memory
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"embedding cannot be read as an array of numbers: {str(error).rstrip('.')}; pass "
            "one vector of numbers per token id."
        ) from None
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(
            f"embedding has shape {vectors.shape}; pass an array of shape (n_ids, d_model), "
            "row i for the token id i, with rows for 0 (padding) and 1 (unknown)."
        )
    if vectors.shape[1] != d_model:
        raise ValueError(
            f"embedding has vectors of width {vectors.shape[1]}, but d_model is "
            f"{d_model}; set d_model={vectors.shape[1]}."
        )
    wrong = ~(np.abs(vectors) <= _LARGEST_ENTRY)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"embedding[{row}, {column}] is {vectors[row, column]}; every vector must be "
            "finite, also that of padding (zeros will do), and small enough for training to "
            f"change it: scale them below {_LARGEST_ENTRY:,}, best to a variance of 1."
        )
    return vectors
