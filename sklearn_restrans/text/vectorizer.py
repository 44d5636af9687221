"""Texts as sequences of token ids, for estimators with ``embedding="token"``."""

from __future__ import annotations

from collections import Counter
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._compat import Interval, StrOptions, _fit_context
from .._data.tokens import as_ids
from .._validation import check_integer
from .normalization import lower_case
from .subwords import encode_pieces, learn_pieces
from .words import (
    PADDING,
    SPECIAL,
    UNKNOWN,
    checked_texts,
    checked_tokens,
    compiled,
    split_words,
)


class SequenceVectorizer(TransformerMixin, BaseEstimator):
    """Texts to padded sequences of token ids, in the order of the text.

    Row i of the result holds the ids of the tokens of text i, then 0 (padding) up to the common
    width. 1 stands for a token that is not in the vocabulary; a text without any token (an empty
    one) is a single unknown token. Ids from 2 on number the vocabulary, the most frequent first.
    Parameters are named as CountVectorizer's and mean the same.

    Parameters
    ----------
    lowercase : bool, default=True
        Lower-case the texts first, as `str.lower` does, but with "i" for the dotted capital I.
    token_pattern : str, default=None
        Regular expression of a token, or of its first group if it has one. None takes words (with
        inner apostrophes and hyphens, such as "n't"), "'s", and every other sign by itself.
        Combining marks and joiners stay with their letter or emoji, and an accented letter is the
        same one whether written in one part or in two (Unicode's NFC). Invisible characters are
        removed first: control characters, soft hyphens, zero-width spaces, byte-order marks,
        direction marks, and joiners with nothing to join. A pattern or ``tokenizer`` of your own
        sees the text as it is. Empty matches are dropped.
    tokenizer : callable, default=None
        Function from a text to the list of its tokens, str, of which empty ones are dropped. It
        replaces ``token_pattern``. Languages written without spaces need one, or ``subword``.
    min_df : int or float, default=1
        Number of texts of ``fit`` that must contain a token, or their share in [0, 1]. Above a
        count of 1, training meets unknown tokens and learns a vector for them. For ``subword`` the
        count that a pair of pieces needs to be merged.
    max_features : int, default=None
        Keep that many of the most frequent tokens. For ``subword`` the number of pieces; None
        means 8,000, or as many as there are letters if that is more.
    max_length : int, default=256
        Keep that many tokens of longer texts, the first ones. Rows are never wider than the longest
        text of ``fit``, which is the only limit if None.
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
            Ignored.

        Returns
        -------
        self : object
            The fitted vectorizer.

        Raises
        ------
        ValueError
            If X holds anything but texts, ``tokenizer`` gives anything but lists of str (the
            message says where), ``token_pattern`` is not a regular expression, no token is left,
            or ``max_features`` is less than the number of pieces that spell every word.
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
            Ignored.

        Returns
        -------
        ids : int32 ndarray of shape (n_samples, max_length_)
            As :meth:`transform` returns them.
        """
        self._check_counts()
        words = self._split(X)
        if self.subword is None:
            pieces, vocabulary = None, self._count(words)
        else:
            pieces = learn_pieces(
                words, self.subword, min_df=self.min_df, max_features=self.max_features
            )
            ordered = sorted((i, t) for t, i in pieces.get_vocab().items() if i >= len(SPECIAL))
            vocabulary = {token: i for i, token in ordered}
        if not vocabulary:
            raise ValueError(
                f"None of the tokens of {len(words)} texts is left; lower min_df "
                f"(now {self.min_df!r:.40}), or check token_pattern and the texts."
            )
        rows = _number(words, vocabulary, pieces)
        longest = max(1, *map(len, rows))
        # Attributes are set last, so that a fit that fails leaves an earlier one as it was.
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
            Without padding; unknown tokens are written "[UNK]". Pieces carry the marks of their
            library: "bpe" ends the last piece of a word with "</w>", "wordpiece" starts every
            piece but the first with "##".

        Raises
        ------
        ValueError
            If X holds anything but ids of this vocabulary; the message says where.
        """
        check_is_fitted(self)
        names = [*SPECIAL, *self.vocabulary_]
        ids = as_ids(X, type(self).__name__)
        if ids.max() >= len(names):
            row, column = np.argwhere(ids >= len(names))[0]
            raise ValueError(
                f"X[{row}, {column}] is {ids[row, column]}, but the largest id of this vocabulary "
                f"is {len(names) - 1}; pass ids that this vectorizer made."
            )
        return [[names[i] for i in row if i != PADDING] for row in ids.tolist()]

    def get_feature_names_out(self, input_features=None):
        """Names of the columns, which are the positions in the text: "token0", "token1", ...

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (max_length_,)
        """
        check_is_fitted(self)
        return np.asarray([f"token{k}" for k in range(self.max_length_)], dtype=object)

    def _check_counts(self):
        """Refuse bools and counts below 1, which scikit-learn's check takes for numbers."""
        for name in ("max_features", "max_length"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if isinstance(self.min_df, bool) or (isinstance(self.min_df, Integral) and self.min_df < 1):
            raise ValueError(
                "min_df must be an integer >= 1, or a share of the texts as a float in [0, 1], "
                f"got {self.min_df!r:.40}."
            )

    def _split(self, X):
        """Lists of the tokens of some texts."""
        texts = checked_texts(X)
        if self.lowercase:
            texts = map(lower_case, texts)
        if self.tokenizer is not None:
            words = (checked_tokens(self.tokenizer(text), row) for row, text in enumerate(texts))
        else:
            split = (
                split_words if self.token_pattern is None else compiled(self.token_pattern).findall
            )
            words = map(split, texts)
        return [list(filter(None, row)) for row in words]

    def _count(self, words):
        """Ids of the tokens that pass min_df and max_features, the most frequent first."""
        texts = Counter(token for row in words for token in set(row))
        least = self.min_df if isinstance(self.min_df, Integral) else self.min_df * len(words)
        total = Counter(token for row in words for token in row if texts[token] >= least)
        ordered = sorted(total, key=lambda token: (-total[token], token))[: self.max_features]
        return {token: i for i, token in enumerate(ordered, start=len(SPECIAL))}

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


def _number(words, vocabulary, pieces):
    """Lists of ids, not yet cut or padded."""
    if pieces is None:
        get = vocabulary.get
        return [[get(token, UNKNOWN) for token in row] for row in words]
    known = encode_pieces(set().union(*words), pieces)
    return [[i for word in row for i in known[word]] for row in words]
