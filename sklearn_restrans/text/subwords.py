"""Words cut into pieces that the `tokenizers` library learns: byte pair encoding and WordPiece."""

from __future__ import annotations

import itertools
import json
import re
from numbers import Integral

from .tokens import SPECIAL, UNKNOWN

# Pieces learnt for `subword` when max_features is None.
_N_PIECES = 8_000
# Learning and encoding take the square of a word's length, and WordPiece by itself knows no longer
# word: a longer one is cut.
_LONGEST_WORD = 100
# Halves of a surrogate pair, which a str may hold one by one and UTF-8 may not.
_HALF = re.compile("[\ud800-\udfff]")


def learn_pieces(words, kind, *, min_df, max_features):
    """A tokenizer of the `tokenizers` library for single words, learnt from these."""
    try:
        from tokenizers import Tokenizer, models, trainers
    except ImportError:
        raise ImportError(
            f"subword={kind!r} needs the tokenizers library: pip install sklearn_restrans[text]."
        ) from None
    if not isinstance(min_df, Integral):
        raise ValueError(
            f"min_df is the count of a merged pair for subword={kind!r}; got the share "
            f"{min_df!r}, pass an integer."
        )
    parts = {word: _parts(word) for word in set().union(*words)}
    distinct = set(itertools.chain.from_iterable(parts.values()))
    # The end of a word is marked, or the start: "un" in "unseen" is not the word "un".
    if kind == "bpe":
        model = models.BPE(unk_token=SPECIAL[UNKNOWN], end_of_word_suffix="</w>")
        learn, mark = trainers.BpeTrainer, {"end_of_word_suffix": "</w>"}
        marked = {word[-1:] + "</w>" for word in distinct}
    else:
        model = models.WordPiece(unk_token=SPECIAL[UNKNOWN])
        learn, mark = trainers.WordPieceTrainer, {}
        marked = {"##" + letter for word in distinct for letter in word[1:]}
    trainer = learn(
        vocab_size=len(SPECIAL) + (max_features or _N_PIECES),
        min_frequency=min_df,
        # The library numbers marked letters by the order of a hash table, which no seed fixes,
        # and breaks ties of counts by number; given here, they have an order.
        special_tokens=[*SPECIAL, *sorted(marked)],
        show_progress=False,
        **mark,
    )
    pieces = Tokenizer(model)
    split = ([part for word in row for part in parts[word]] for row in words)
    pieces.train_from_iterator(split, trainer)
    # Every letter is a piece, marked and unmarked, whatever was asked for.
    n_pieces = pieces.get_vocab_size() - len(SPECIAL)
    if max_features is not None and n_pieces > max_features:
        raise ValueError(
            f"max_features={max_features} is less than the {n_pieces} pieces that "
            f"subword={kind!r} starts from, the letters of the texts; set it to "
            f"{n_pieces} or more."
        )
    state = json.loads(pieces.to_str())
    state["added_tokens"] = []  # from now on they are pieces as others
    return Tokenizer.from_str(json.dumps(state))


def encode_pieces(words, pieces):
    """Lists of the ids of the pieces of every word, by word."""
    return {word: [i for part in _parts(word) for i in pieces.encode(part).ids] for word in words}


def _parts(word):
    """What the `tokenizers` library takes for a word: valid UTF-8, of no great length."""
    word = _HALF.sub("\ufffd", word)
    return [word[i : i + _LONGEST_WORD] for i in range(0, len(word), _LONGEST_WORD)]
