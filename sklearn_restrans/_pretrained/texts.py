"""Texts as token ids of a pretrained encoder, in the words of its own tokenizer."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ..text.words import checked_texts
from .checkpoint import CONFIG, WEIGHTS, Checkpoint

# Tables are padded to round numbers of rows; a tokenizer of fewer tokens is that of another model.
_SMALLEST_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class TextInputs:
    """What fit learnt about X: how its texts become token ids.

    Ids are those of the checkpoint plus 1; 0 is padding.

    Attributes
    ----------
    owner : str
        Class name of the estimator, for messages.
    checkpoint : Checkpoint
        What its folder says.
    tokenizer : str
        The tokenizer, as JSON of the `tokenizers` library.
    max_length : int
        The most tokens of a text; longer ones are cut.
    empty : int or None
        The checkpoint's id that stands for a text without any token.
    """

    owner: str
    checkpoint: Checkpoint
    tokenizer: str
    max_length: int
    empty: int | None
    kind: ClassVar[str] = "tokens"
    n_features: ClassVar[None] = None
    names: ClassVar[None] = None

    @property
    def model(self):
        """The parameter ``model`` of the fit."""
        return self.checkpoint.named

    def check(self, X, segments=None):
        """Token ids (n, T) of the texts X, 0 after the last token of each.

        Raises
        ------
        ValueError
            If X holds anything but texts; the message says where.
        """
        if segments is not None:
            raise ValueError("segments are for rows in time order, which texts are not.")
        texts = checked_texts(_one_column(X))
        encode = _tokenizer(self.tokenizer, self.max_length).encode_batch
        found = encode([text.encode("utf-8", "replace").decode("utf-8") for text in texts])
        self._warn_of_cut(found)
        rows = [encoding.ids for encoding in found]
        for row, ids in enumerate(rows):
            if ids:
                continue
            if self.empty is None:
                raise ValueError(
                    f"text {row} of X has no token for this checkpoint's tokenizer; leave it out."
                )
            rows[row] = [self.empty]
        padded = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = np.asarray(ids) + 1
        return padded

    def meeting(self, X):
        """The spec of a fit that goes on."""
        return self

    def _warn_of_cut(self, encodings):
        rows = [row for row, encoding in enumerate(encodings) if encoding.overflowing]
        if rows:
            longest = max(_length(encodings[row]) for row in rows)
            warnings.warn(
                f"{len(rows)} of {len(encodings)} texts are longer than the {self.max_length} "
                f"tokens that are read; the first is text {rows[0]}, the longest has {longest}. "
                "What follows is not seen: raise max_length if the checkpoint has more positions, "
                "or cut texts in parts.",
                UserWarning,
                stacklevel=5,
            )


def _length(encoding):
    """Tokens of a text with those that were cut off; special ones, which every part has, once."""
    beyond = (len(part.ids) - sum(part.special_tokens_mask) for part in encoding.overflowing)
    return len(encoding.ids) + sum(beyond)


def _one_column(X):
    """A frame or array of one column as that column, which is how ColumnTransformer hands it on."""
    shape = getattr(X, "shape", ())
    if len(shape) != 2 or shape[1] != 1 or hasattr(X, "toarray"):
        return X
    return np.asarray(X, dtype=object)[:, 0]


@lru_cache(maxsize=8)
def _tokenizer(state, max_length):
    """The tokenizer of a JSON string; a checkpoint's own padding and limit do not hold."""
    tokenizer = _library().Tokenizer.from_str(state)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def _library():
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "the texts of a pretrained encoder need the tokenizers library: pip install "
            "sklearn_restrans[text]."
        ) from None
    return tokenizers


def learn_texts(owner, checkpoint, max_length):
    """How a checkpoint's tokenizer reads texts.

    Raises
    ------
    FileNotFoundError, ValueError
        If the tokenizer is missing, damaged, or numbers more tokens than there are vectors.
    """
    tokenizer = _read_tokenizer(checkpoint)
    largest, n_ids = max(tokenizer.get_vocab().values(), default=-1), checkpoint.sizes["n_ids"]
    if largest >= n_ids:
        raise ValueError(
            f"the tokenizer in {checkpoint.folder} numbers tokens up to {largest}, but {CONFIG} "
            f"and {WEIGHTS} have vectors for the ids below {n_ids} only; take the tokenizer that "
            "the weights were trained with."
        )
    if len(tokenizer.get_vocab()) < _SMALLEST_SHARE * n_ids:
        warnings.warn(
            f"the tokenizer in {checkpoint.folder} knows {len(tokenizer.get_vocab())} tokens, but "
            f"{WEIGHTS} has vectors for {n_ids}; if it is that of another model, the vectors mean "
            "other tokens.",
            UserWarning,
            stacklevel=5,
        )
    ends = (checkpoint.config.get(name) for name in ("eos_token_id", "bos_token_id"))
    empty = next((end for end in ends if isinstance(end, int) and 0 <= end < n_ids), None)
    length = checkpoint.n_positions if max_length is None else int(max_length)
    special = tokenizer.num_special_tokens_to_add(False)
    if length <= special:
        raise ValueError(
            f"max_length={max_length} leaves no room for a word beside the {special} special "
            "tokens of each text; raise it."
        )
    return TextInputs(owner, checkpoint, tokenizer.to_str(), length, empty)


def _read_tokenizer(checkpoint):
    """A tokenizer from tokenizer.json, or from the older files of words and merges."""
    folder, tokenizers = checkpoint.folder, _library()
    whole, words = folder / "tokenizer.json", folder / "vocab.txt"
    pieces, merges = folder / "vocab.json", folder / "merges.txt"
    try:
        if whole.is_file():
            return tokenizers.Tokenizer.from_file(str(whole))
        if words.is_file():
            made = tokenizers.BertWordPieceTokenizer(str(words), **_word_options(folder))
            return tokenizers.Tokenizer.from_str(made.to_str())
        if pieces.is_file() and merges.is_file() and checkpoint.layout.reads_merges:
            made = tokenizers.ByteLevelBPETokenizer(str(pieces), str(merges))
            return tokenizers.Tokenizer.from_str(made.to_str())
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(f"the tokenizer in {folder} cannot be read: {error}.") from None
    hint = " (of vocab.json and merges.txt, save tokenizer.json with the library that wrote them)"
    raise FileNotFoundError(
        f"{folder} has no tokenizer.json{hint if pieces.is_file() else ''}, and no older files "
        "(vocab.txt; vocab.json and merges.txt of GPT-2) to make it of."
    )


def _word_options(folder):
    """How texts are cut into the words of vocab.txt, as tokenizer_config.json says."""
    path, said = folder / "tokenizer_config.json", {}
    if path.is_file():
        said = json.loads(path.read_text(encoding="utf-8-sig"))
    return {
        "lowercase": said.get("do_lower_case", True),
        "strip_accents": said.get("strip_accents"),
        "handle_chinese_chars": said.get("tokenize_chinese_chars", True),
    }
