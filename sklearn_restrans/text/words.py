"""Texts to tokens: what a token is by default, and what is not a text or a token."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata

import pandas as pd

from .normalization import visible

# Ids that stand for no token of a text, and their names, which are those of the `tokenizers`
# library. Splitting never yields such a name, because it takes brackets apart.
PADDING, UNKNOWN = 0, 1
SPECIAL = ["[PAD]", "[UNK]"]
# Python can go through these, but a str would be read as its letters, bytes as numbers, and a set
# has no order.
_NOT_A_LIST = str | bytes | bytearray | dict | set | frozenset


def _default_pattern(marks=""):
    """A pattern of words, "'s" and single signs, each with the marks that belong to it."""
    word = rf"[\w{marks}]+"
    sign = r"[^\w\s]"
    if marks:  # two regional indicators are one flag
        sign = rf"[\U0001f1e6-\U0001f1ff]{{2}}|{sign}(?:[{marks}]|(?<=\u200d)[^\w\s])*"
    return re.compile(rf"{word}(?:['’-]{word})*|['’]{word}|{sign}")


_ASCII = _default_pattern()


@functools.cache
def _unicode():
    """The default pattern with the marks of Unicode, for which `re` has no class.

    The marks are combining marks and variation selectors (categories Mn, Mc, Me), the zero-width
    joiner and non-joiner, the skin tones of emoji, and the tags that follow a flag.
    """
    marks = [code for code in range(0x110000) if unicodedata.category(chr(code))[0] == "M"]
    marks = sorted([*marks, 0x200C, 0x200D, *range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080)])
    # Written as ranges, since `re` searches single characters beyond U+FFFF one by one.
    groups = itertools.groupby(enumerate(marks), key=lambda pair: pair[1] - pair[0])
    runs = ([chr(code) for _, code in group] for _, group in groups)
    return _default_pattern("".join(f"{run[0]}-{run[-1]}" for run in runs))


def split_words(text):
    """Tokens of a text by the default pattern."""
    text = visible(text)
    # Without marks the tokens are the same, in less than half the time.
    return (_ASCII if text.isascii() else _unicode()).findall(text)


def compiled(token_pattern):
    """The regular expression of a token, or a ValueError that says what is wrong with it."""
    try:
        pattern = re.compile(token_pattern)
    except (re.error, OverflowError, RecursionError) as error:  # the latter: counts, nesting
        raise ValueError(
            f"token_pattern must be a regular expression, got {token_pattern!r:.80}: {error}; "
            "write a backslash before a sign that stands for itself."
        ) from None
    if pattern.groups > 1:
        raise ValueError(
            f"token_pattern must have at most one group, which is the token, got {pattern.groups} "
            "groups; write (?:...) for the others."
        )
    return pattern


def checked_tokens(tokens, row):
    """What ``tokenizer`` made of a text, as a list of str."""
    wanted = f"tokenizer must give a list of str for every text; for text {row} of X it gave"
    if isinstance(tokens, _NOT_A_LIST) or not _is_iterable(tokens):
        raise ValueError(f"{wanted} {tokens!r:.60}, of type {type(tokens).__name__}.")
    tokens = list(tokens)
    for place, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ValueError(
                f"{wanted} {token!r:.60}, of type {type(token).__name__}, as token {place}."
            )
    return list(map(str.__str__, tokens))  # subclasses of str, such as numpy's, become plain ones


def _is_iterable(value):
    """Whether `value` can be gone through, which a class and an array of no axis only promise."""
    return (
        hasattr(value, "__iter__")
        and not isinstance(value, type)
        and getattr(value, "shape", None) != ()
    )


def checked_texts(X):
    """The texts as a list, or a ValueError that names what is not a text."""
    if isinstance(X, str | bytes | bytearray):
        raise ValueError(
            f"X is a single {type(X).__name__}, not a list of texts; pass a list: [X]."
        )
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise ValueError(
            f"X has shape {tuple(shape)}, but texts come in one column: pass X['name'] of a "
            "DataFrame, or X.ravel() of an array."
        )
    if isinstance(X, _NOT_A_LIST) or not _is_iterable(X):
        raise ValueError(f"X must be a list, Series or array of texts, got {type(X).__name__}.")
    texts = list(X)
    if not texts:
        raise ValueError("X holds 0 texts; at least one is needed.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {row} of X is {_named(text)}.")
    return texts


def _named(value):
    """What was found in the place of a text, and what to do about it."""
    if isinstance(value, bytes):
        return f"bytes ({value[:20]!r}): decode it first, for instance with .decode('utf-8')"
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return f"missing ({value!r}): drop it, or write an empty text, as Series.fillna('') does"
    return f"{value!r:.60}, of type {type(value).__name__}, not a str"
