"""Texts as sequences of token ids, for estimators with ``embedding="token"``."""

from __future__ import annotations

import json
import re
from collections import Counter
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ._compat import Interval, StrOptions, _fit_context

__all__ = ["SequenceVectorizer"]

PADDING, UNKNOWN = 0, 1
_N_SPECIAL = 2
# What `tokenizers` calls the two; no word of a text is written so after splitting.
_SPECIAL = ["[PAD]", "[UNK]"]
# Pieces learnt for `subword` when max_features is None.
_N_PIECES = 8_000


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
    token_pattern : str, default=r"\\w+(?:['’-]\\w+)*|['’]\\w+|[^\\w\\s]"
        Regular expression of a token, or of its first group if it has one. The default takes words
        (with inner apostrophes and hyphens, such as "n't"), "'s", and every other sign by itself.
    tokenizer : callable, default=None
        From a text to its list of tokens; replaces ``token_pattern``.
    min_df : int or float, default=1
        Texts of ``fit`` a token must stand in: a count, or a share in [0, 1]. Above a count of 1,
        training meets unknown tokens and learns a vector for them. For ``subword`` the count of a
        merged pair.
    max_features : int, default=None
        Keep that many of the most frequent tokens; for ``subword`` the number of pieces, None
        being 8,000.
    max_length : int, default=256
        Keep the first tokens of longer texts. Shorter texts of ``fit`` lower it: rows are as wide
        as the longest of them. None: no other limit.
    subword : {"bpe", "wordpiece"}, default=None
        Cut tokens into pieces learnt in ``fit`` (byte pair encoding [1]_ or WordPiece [2]_), so
        that rare words are known by their parts. Needs the `tokenizers` library.

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
        "token_pattern": [str],
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
        token_pattern=r"\w+(?:['’-]\w+)*|['’]\w+|[^\w\s]",
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
            If X holds anything but texts, or no token is left; the message says where.
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
        words = list(map(self._splitter(), _checked_texts(X)))
        self._pieces = None
        if self.subword is None:
            self.vocabulary_ = self._count(words)
        else:
            self._pieces = self._learn_pieces(words)
            vocabulary = self._pieces.get_vocab()
            ordered = sorted((i, t) for t, i in vocabulary.items() if i >= _N_SPECIAL)
            self.vocabulary_ = {token: i for i, token in ordered}
        if not self.vocabulary_:
            raise ValueError(
                f"no token is left of {len(words)} texts; lower min_df (now {self.min_df!r}), or "
                "check token_pattern and the texts."
            )
        rows = self._number(words)
        longest = max(1, *map(len, rows))
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
            If X holds anything but texts; the message says where.
        """
        check_is_fitted(self)
        return self._padded(self._number(list(map(self._splitter(), _checked_texts(X)))))

    def inverse_transform(self, X):
        """Tokens of rows of ids.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_tokens)
            Ids as :meth:`transform` returns them.

        Returns
        -------
        tokens : list of list of str
            Without padding; unknown tokens are written "[UNK]".
        """
        check_is_fitted(self)
        names = dict(enumerate(_SPECIAL)) | {i: t for t, i in self.vocabulary_.items()}
        return [[names[i] for i in row if i != PADDING] for row in np.asarray(X).tolist()]

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

    def _splitter(self):
        """The function from a text to its tokens."""
        split = self.tokenizer
        if split is None:
            pattern = re.compile(self.token_pattern)
            if pattern.groups > 1:
                raise ValueError(
                    f"token_pattern has {pattern.groups} groups, of which one at most can be the "
                    "token; write (?:...) for the others."
                )
            split = pattern.findall
        return (lambda text: split(text.lower())) if self.lowercase else split

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
        distinct = set().union(*words)
        # The end of a word is marked, or the start: "un" in "unseen" is not the word "un".
        if self.subword == "bpe":
            model = models.BPE(unk_token=_SPECIAL[UNKNOWN], end_of_word_suffix="</w>")
            learn, mark = trainers.BpeTrainer, {"end_of_word_suffix": "</w>"}
            marked = {word[-1:] + "</w>" for word in distinct if word}
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
        pieces.train_from_iterator(words, trainer)
        state = json.loads(pieces.to_str())
        state["added_tokens"] = []  # from now on they are pieces as others
        return Tokenizer.from_str(json.dumps(state))

    def _number(self, words):
        """Lists of ids, not yet cut or padded."""
        if self._pieces is None:
            get = self.vocabulary_.get
            return [[get(token, UNKNOWN) for token in row] for row in words]
        known = {word: self._pieces.encode(word).ids for word in set().union(*words)}
        return [[i for word in row for i in known[word]] for row in words]

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
