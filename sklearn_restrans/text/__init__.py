"""Texts as sequences of token ids, for estimators with ``embedding="token"``."""

from .vectorizer import SequenceVectorizer

__all__ = ["SequenceVectorizer"]
