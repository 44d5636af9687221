"""Words cut into pieces that the `tokenizers` library learns: byte pair encoding and WordPiece."""

from __future__ import annotations

import itertools
import json
import re
from numbers import Integral

from .words import SPECIAL, UNKNOWN

# Pieces learnt for `subword` when max_features is None.
_N_PIECES = 8_000
# Larger counts of a pair are as good as infinite, and the library has no room for them.
_MOST_COUNTED = 2**62
# Longer words are cut into parts, because learning and encoding take time that grows as the square
# of a word's length, and WordPiece treats longer words as unknown.
_LONGEST_WORD = 100
# Halves of a surrogate pair: a str may hold a single one, UTF-8 may not.
_HALF = re.compile("[\ud800-\udfff]")


def learn_pieces(words, kind, *, min_df, max_features):
    """A tokenizer of the `tokenizers` library for single words, learnt from the given ones."""
    try:
        from tokenizers import Tokenizer, models, trainers
    except ImportError:
        raise ImportError(
            f"subword={kind!r} needs the tokenizers library: pip install sklearn_restrans[text]."
        ) from None
    if not isinstance(min_df, Integral):
        raise ValueError(
            f"min_df must be an integer for subword={kind!r}, the count of a merged pair, got the "
            f"share {min_df!r}."
        )
    parts = {word: _parts(word) for word in set().union(*words)}
    distinct = set(itertools.chain.from_iterable(parts.values()))
    # The end or the start of a word is marked, because "un" in "unseen" is not the word "un".
    if kind == "bpe":
        model = models.BPE(unk_token=SPECIAL[UNKNOWN], end_of_word_suffix="</w>")
        learn, mark = trainers.BpeTrainer, {"end_of_word_suffix": "</w>"}
        marked = {word[-1:] + "</w>" for word in distinct}
    else:
        model = models.WordPiece(unk_token=SPECIAL[UNKNOWN])
        learn, mark = trainers.WordPieceTrainer, {}
        marked = {"##" + letter for word in distinct for letter in word[1:]}
    # The library takes no integer of any size and makes room for all pieces at once. There are no
    # more than letters, marked letters and merges, and of each no more than characters.
    most = 3 * sum(map(len, distinct))
    trainer = learn(
        vocab_size=len(SPECIAL) + min(max_features or _N_PIECES, most),
        min_frequency=min(min_df, _MOST_COUNTED),
        # The library numbers marked letters in the order of a hash table, which no seed fixes, and
        # breaks ties between counts by number. Passed here, they get an order of their own.
        special_tokens=[*SPECIAL, *sorted(marked)],
        show_progress=False,
        **mark,
    )
    pieces = Tokenizer(model)
    split = ([part for word in row for part in parts[word]] for row in words)
    pieces.train_from_iterator(split, trainer)
    # The library makes every letter a piece, marked and unmarked, whatever size was asked for.
    n_pieces = pieces.get_vocab_size() - len(SPECIAL)
    if max_features is not None and n_pieces > max_features:
        raise ValueError(
            f"max_features={max_features} is less than the {n_pieces} pieces that "
            f"subword={kind!r} starts from, which are the letters of the texts; set it to "
            f"{n_pieces} or more."
        )
    state = json.loads(pieces.to_str())
    state["added_tokens"] = []  # from now on they are ordinary pieces
    return Tokenizer.from_str(json.dumps(state))


def encode_pieces(words, pieces):
    """Lists of the ids of the pieces of every word, by word."""
    return {word: [i for part in _parts(word) for i in pieces.encode(part).ids] for word in words}


def _parts(word):
    """A word as the `tokenizers` library can take it: valid UTF-8 in parts of bounded length."""
    word = _HALF.sub("\ufffd", word)
    return [word[i : i + _LONGEST_WORD] for i in range(0, len(word), _LONGEST_WORD)]
