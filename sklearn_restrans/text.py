"""Texts as sequences of token ids, for estimators with ``embedding="token"``."""

from __future__ import annotations

import functools
import itertools
import json
import re
import unicodedata
from collections import Counter
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ._compat import Interval, StrOptions, _fit_context
from ._data.tokens import as_ids

__all__ = ["SequenceVectorizer"]

PADDING, UNKNOWN = 0, 1
_N_SPECIAL = 2
# What `tokenizers` calls the two; no word of a text is written so after splitting.
_SPECIAL = ["[PAD]", "[UNK]"]
# Pieces learnt for `subword` when max_features is None.
_N_PIECES = 8_000
# Learning and encoding take the square of a word's length, and WordPiece by itself knows no longer
# word: a longer one is cut.
_LONGEST_WORD = 100
# Halves of a surrogate pair, which a str may hold one by one and UTF-8 may not.
_HALF = re.compile("[\ud800-\udfff]")


class SequenceVectorizer(TransformerMixin, BaseEstimator):
    """Texts to padded sequences of token ids, in the order of the text.

    Row i of the result holds the ids of the tokens of text i, then 0 (padding) up to the common
    width. 1 stands for a token that is not in the vocabulary; a text without any token (an empty
    one) is a single unknown token. Ids from 2 on number the vocabulary, the most frequent first.
    Parameters are named as CountVectorizer's and mean the same.

    Parameters
    ----------
    lowercase : bool, default=True
        Lower-case the texts first.
    token_pattern : str, default=None
        Regular expression of a token, or of its first group if it has one. None takes words (with
        inner apostrophes and hyphens, such as "n't"), "'s", and every other sign by itself.
        Combining marks and joiners stay with their letter or emoji, and an accented letter is the
        same one whether written in one part or in two (Unicode's NFC); a pattern or ``tokenizer``
        of one's own sees the text as it is. Empty matches are no tokens.
    tokenizer : callable, default=None
        From a text to its tokens, a list of str, of which empty ones are left out; replaces
        ``token_pattern``. Languages written without spaces need one, or ``subword``.
    min_df : int or float, default=1
        Texts of ``fit`` a token must stand in: a count, or a share in [0, 1]. Above a count of 1,
        training meets unknown tokens and learns a vector for them. For ``subword`` the count of a
        merged pair.
    max_features : int, default=None
        Keep that many of the most frequent tokens; for ``subword`` the number of pieces, None
        being 8,000, or every letter where there are more.
    max_length : int, default=256
        Keep the first tokens of longer texts. Shorter texts of ``fit`` lower it: rows are as wide
        as the longest of them. None: no other limit.
    subword : {"bpe", "wordpiece"}, default=None
        Cut tokens into pieces learnt in ``fit`` (byte pair encoding [1]_ or WordPiece [2]_), so
        that rare words are known by their parts. Needs the `tokenizers` library. A lone half of a
        surrogate pair is read as U+FFFD, and a token of more than 100 characters as several.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Id of every token: 2, 3, ...
    max_length_ : int
        Width T of the rows.

    References
    ----------
    .. [1] R. Sennrich, B. Haddow, A. Birch, "Neural Machine Translation of Rare Words with Subword
       Units", ACL 2016.
    .. [2] M. Schuster, K. Nakajima, "Japanese and Korean Voice Search", ICASSP 2012.

    Examples
    --------
    >>> from sklearn_restrans import SequenceVectorizer
    >>> vectorizer = SequenceVectorizer().fit(["a fine film", "a dull, dull film"])
    >>> vectorizer.transform(["a fine day", ""])
    array([[2, 6, 1, 0, 0],
           [1, 0, 0, 0, 0]], dtype=int32)
    >>> vectorizer.inverse_transform([[2, 6, 1, 0, 0]])
    [['a', 'fine', '[UNK]']]
    """

    _parameter_constraints: ClassVar[dict] = {
        "lowercase": ["boolean"],
        "token_pattern": [str, None],
        "tokenizer": [callable, None],
        "min_df": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="both"),
        ],
        "max_features": [Interval(Integral, 1, None, closed="left"), None],
        "max_length": [Interval(Integral, 1, None, closed="left"), None],
        "subword": [StrOptions({"bpe", "wordpiece"}), None],
    }

    def __init__(
        self,
        *,
        lowercase=True,
        token_pattern=None,
        tokenizer=None,
        min_df=1,
        max_features=None,
        max_length=256,
        subword=None,
    ):
        self.lowercase = lowercase
        self.token_pattern = token_pattern
        self.tokenizer = tokenizer
        self.min_df = min_df
        self.max_features = max_features
        self.max_length = max_length
        self.subword = subword

    def fit(self, X, y=None):
        """Learn the vocabulary of some texts.

        Parameters
        ----------
        X : list, Series or array of str of shape (n_samples,)
            Texts.
        y : object, default=None
            Not looked at.

        Returns
        -------
        self : object
            The fitted vectorizer.

        Raises
        ------
        ValueError
            If X holds anything but texts, ``tokenizer`` gives anything but lists of str (the
            message says where), ``token_pattern`` is no regular expression, no token is left, or
            ``max_features`` is less than the pieces that spell every word.
        ImportError
            If ``subword`` needs the `tokenizers` library and it is not installed.
        """
        self.fit_transform(X)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X, y=None):
        """Learn the vocabulary of some texts and return their ids.

        Parameters
        ----------
        X : list, Series or array of str of shape (n_samples,)
            Texts.
        y : object, default=None
            Not looked at.

        Returns
        -------
        ids : int32 ndarray of shape (n_samples, max_length_)
            As :meth:`transform` returns them.
        """
        for name in ("min_df", "max_features", "max_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or (isinstance(value, Integral) and value < 1):
                raise ValueError(
                    f"{name}={value!r} is no count; pass an integer >= 1"
                    f"{', or a share of the texts as a float' if name == 'min_df' else ''}."
                )
        words = self._split(X)
        if self.subword is None:
            pieces, vocabulary = None, self._count(words)
        else:
            pieces = self._learn_pieces(words)
            ordered = sorted((i, t) for t, i in pieces.get_vocab().items() if i >= _N_SPECIAL)
            vocabulary = {token: i for i, token in ordered}
        if not vocabulary:
            raise ValueError(
                f"no token is left of {len(words)} texts; lower min_df (now {self.min_df!r}), or "
                "check token_pattern and the texts."
            )
        rows = _number(words, vocabulary, pieces)
        longest = max(1, *map(len, rows))
        # Nothing is kept of a fit that fails.
        self.vocabulary_, self._pieces = vocabulary, pieces
        self.max_length_ = longest if self.max_length is None else min(longest, self.max_length)
        return self._padded(rows)

    def transform(self, X):
        """Ids of the tokens of some texts.

        Parameters
        ----------
        X : list, Series or array of str of shape (n_samples,)
            Texts.

        Returns
        -------
        ids : int32 ndarray of shape (n_samples, max_length_)
            0 after the last token, 1 for unknown tokens.

        Raises
        ------
        ValueError
            If X holds anything but texts, or ``tokenizer`` gives anything but lists of str; the
            message says where.
        """
        check_is_fitted(self)
        return self._padded(_number(self._split(X), self.vocabulary_, self._pieces))

    def inverse_transform(self, X):
        """Tokens of rows of ids.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_tokens)
            Ids as :meth:`transform` returns them.

        Returns
        -------
        tokens : list of list of str
            Without padding; unknown tokens are written "[UNK]". Pieces have the marks of their
            library: "bpe" ends the last piece of a word with "</w>", "wordpiece" starts all but the
            first with "##".

        Raises
        ------
        ValueError
            If X holds anything but ids of this vocabulary; the message says where.
        """
        check_is_fitted(self)
        names = [*_SPECIAL, *self.vocabulary_]
        ids = as_ids(X, type(self).__name__)
        if ids.max() >= len(names):
            row, column = np.argwhere(ids >= len(names))[0]
            raise ValueError(
                f"X[{row}, {column}] is {ids[row, column]}, but the ids of this vocabulary end at "
                f"{len(names) - 1}; pass ids that this vectorizer made."
            )
        return [[names[i] for i in row if i != PADDING] for row in ids.tolist()]

    def get_feature_names_out(self, input_features=None):
        """Names of the columns: places in the text, "token0", "token1", ...

        Parameters
        ----------
        input_features : object, default=None
            Not looked at.

        Returns
        -------
        names : ndarray of str of shape (max_length_,)
        """
        check_is_fitted(self)
        return np.asarray([f"token{k}" for k in range(self.max_length_)], dtype=object)

    def _split(self, X):
        """Lists of the tokens of some texts."""
        texts = _checked_texts(X)
        if self.lowercase:
            texts = map(str.lower, texts)
        if self.tokenizer is not None:
            words = (_checked_tokens(self.tokenizer(text), row) for row, text in enumerate(texts))
        else:
            split = _split if self.token_pattern is None else _compiled(self.token_pattern).findall
            words = map(split, texts)
        return [list(filter(None, row)) for row in words]

    def _count(self, words):
        """Ids of the tokens that min_df and max_features leave, the most frequent first."""
        texts = Counter(token for row in words for token in set(row))
        least = self.min_df if isinstance(self.min_df, Integral) else self.min_df * len(words)
        total = Counter(token for row in words for token in row if texts[token] >= least)
        ordered = sorted(total, key=lambda token: (-total[token], token))[: self.max_features]
        return {token: i for i, token in enumerate(ordered, start=_N_SPECIAL)}

    def _learn_pieces(self, words):
        """A tokenizer of the `tokenizers` library for single words, learnt from these."""
        try:
            from tokenizers import Tokenizer, models, trainers
        except ImportError:
            raise ImportError(
                f"subword={self.subword!r} needs the tokenizers library: "
                "pip install sklearn_restrans[text]."
            ) from None
        if not isinstance(self.min_df, Integral):
            raise ValueError(
                f"min_df is the count of a merged pair for subword={self.subword!r}; got the share "
                f"{self.min_df!r}, pass an integer."
            )
        parts = {word: _parts(word) for word in set().union(*words)}
        distinct = set(itertools.chain.from_iterable(parts.values()))
        # The end of a word is marked, or the start: "un" in "unseen" is not the word "un".
        if self.subword == "bpe":
            model = models.BPE(unk_token=_SPECIAL[UNKNOWN], end_of_word_suffix="</w>")
            learn, mark = trainers.BpeTrainer, {"end_of_word_suffix": "</w>"}
            marked = {word[-1:] + "</w>" for word in distinct}
        else:
            model = models.WordPiece(unk_token=_SPECIAL[UNKNOWN])
            learn, mark = trainers.WordPieceTrainer, {}
            marked = {"##" + letter for word in distinct for letter in word[1:]}
        trainer = learn(
            vocab_size=_N_SPECIAL + (self.max_features or _N_PIECES),
            min_frequency=self.min_df,
            # The library numbers marked letters by the order of a hash table, which no seed fixes,
            # and breaks ties of counts by number; given here, they have an order.
            special_tokens=[*_SPECIAL, *sorted(marked)],
            show_progress=False,
            **mark,
        )
        pieces = Tokenizer(model)
        split = ([part for word in row for part in parts[word]] for row in words)
        pieces.train_from_iterator(split, trainer)
        # Every letter is a piece, marked and unmarked, whatever was asked for.
        n_pieces = pieces.get_vocab_size() - _N_SPECIAL
        if self.max_features is not None and n_pieces > self.max_features:
            raise ValueError(
                f"max_features={self.max_features} is less than the {n_pieces} pieces that "
                f"subword={self.subword!r} starts from, the letters of the texts; set it to "
                f"{n_pieces} or more."
            )
        state = json.loads(pieces.to_str())
        state["added_tokens"] = []  # from now on they are pieces as others
        return Tokenizer.from_str(json.dumps(state))

    def _padded(self, rows):
        ids = np.zeros((len(rows), self.max_length_), dtype=np.int32)
        for out, row in zip(ids, rows, strict=True):
            row = row[: self.max_length_] or [UNKNOWN]
            out[: len(row)] = row
        return ids

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _parts(word):
    """What the `tokenizers` library takes for a word: valid UTF-8, of no great length."""
    word = _HALF.sub("\ufffd", word)
    return [word[i : i + _LONGEST_WORD] for i in range(0, len(word), _LONGEST_WORD)]


def _number(words, vocabulary, pieces):
    """Lists of ids, not yet cut or padded."""
    if pieces is None:
        get = vocabulary.get
        return [[get(token, UNKNOWN) for token in row] for row in words]
    known = {
        word: [i for part in _parts(word) for i in pieces.encode(part).ids]
        for word in set().union(*words)
    }
    return [[i for word in row for i in known[word]] for row in words]


def _default_pattern(marks=""):
    """Words, "'s", and every other sign, each with the marks that belong to it."""
    word = rf"[\w{marks}]+"
    sign = r"[^\w\s]"
    if marks:  # two regional indicators are a flag
        sign = rf"[\U0001f1e6-\U0001f1ff]{{2}}|{sign}(?:[{marks}]|(?<=\u200d)[^\w\s])*"
    return re.compile(rf"{word}(?:['’-]{word})*|['’]{word}|{sign}")


_ASCII = _default_pattern()


@functools.cache
def _unicode():
    """The default pattern with the marks of Unicode, which `re` has no name for.

    They are combining marks and variation selectors (categories Mn, Mc, Me), the zero-width joiner
    and non-joiner, the skin tones of emoji, and the tags that follow a flag.
    """
    marks = [code for code in range(0x110000) if unicodedata.category(chr(code))[0] == "M"]
    marks = sorted([*marks, 0x200C, 0x200D, *range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080)])
    # Ranges, since `re` looks through characters beyond U+FFFF one after the other.
    groups = itertools.groupby(enumerate(marks), key=lambda pair: pair[1] - pair[0])
    runs = ([chr(code) for _, code in group] for _, group in groups)
    return _default_pattern("".join(f"{run[0]}-{run[-1]}" for run in runs))


def _split(text):
    """Tokens of a text where neither token_pattern nor tokenizer says what they are."""
    if text.isascii():  # no marks: the same tokens, in less than half the time
        return _ASCII.findall(text)
    return _unicode().findall(unicodedata.normalize("NFC", text))


def _compiled(token_pattern):
    """The regular expression of a token, or a sentence about what is wrong with it."""
    try:
        pattern = re.compile(token_pattern)
    except re.error as error:
        raise ValueError(
            f"token_pattern={token_pattern!r} is no regular expression: {error}; write a backslash "
            "before a sign that stands for itself."
        ) from None
    if pattern.groups > 1:
        raise ValueError(
            f"token_pattern has {pattern.groups} groups, of which one at most can be the token; "
            "write (?:...) for the others."
        )
    return pattern


def _checked_tokens(tokens, row):
    """What ``tokenizer`` made of a text, as a list of str."""
    wanted = f"tokenizer must give a list of str for every text; for text {row} of X it gave"
    # A str is its letters, and the order of a set is no order of the text.
    if isinstance(tokens, str | bytes | dict | set | frozenset) or not hasattr(tokens, "__iter__"):
        raise ValueError(f"{wanted} {tokens!r:.60}, of type {type(tokens).__name__}.")
    tokens = list(tokens)
    for place, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ValueError(
                f"{wanted} {token!r:.60}, of type {type(token).__name__}, as token {place}."
            )
    return list(map(str.__str__, tokens))  # what is a str and more, such as numpy's, as a plain one


def _checked_texts(X):
    """The texts as a list, or a sentence about what is no text."""
    if isinstance(X, str | bytes):
        raise ValueError(
            f"X is a single {type(X).__name__}, not a list of texts; pass a list: [X]."
        )
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 1:
        raise ValueError(
            f"X has shape {tuple(shape)}, but texts come in one column: pass X['name'] of a "
            "DataFrame, or X.ravel() of an array."
        )
    if isinstance(X, dict | set | frozenset) or not hasattr(X, "__iter__"):
        raise ValueError(f"X must be a list, Series or array of texts, got {type(X).__name__}.")
    texts = list(X)
    if not texts:
        raise ValueError("X holds 0 texts; at least one is needed.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {row} of X is {_named(text)}.")
    return texts


def _named(value):
    """What stands where a text should, and what to do about it."""
    if isinstance(value, bytes):
        return f"bytes ({value[:20]!r}): decode it first, for instance with .decode('utf-8')"
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return f"missing ({value!r}): drop it, or write an empty text, as Series.fillna('') does"
    return f"{value!r:.60}, of type {type(value).__name__}, not a str"
