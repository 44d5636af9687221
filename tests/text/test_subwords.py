"""Words cut into pieces: what they spell, in which order, how fast, and what is refused."""

import base64
import pickle
import re
import sys
import time

import numpy as np
import pytest

from sklearn_restrans import SequenceVectorizer

TEXTS = ["a fine film", "it's a dull film", "the cast isn't dull", "dull", ""]


@pytest.mark.parametrize("subword", ["bpe", "wordpiece"])
def test_pieces_spell_unseen_words(subword):
    texts = [
        "low lower lowest",
        "new newer newest",
        "slow slower",
        "wide wider widest",
        "new " * 30,
    ] * 3
    vectorizer = SequenceVectorizer(subword=subword, max_features=40).fit(texts)
    assert len(vectorizer.vocabulary_) <= 40
    assert sorted(vectorizer.vocabulary_.values()) == list(
        range(2, 2 + len(vectorizer.vocabulary_))
    )
    text = "slowest newest widest"
    pieces = vectorizer.inverse_transform(vectorizer.transform([text]))[0]
    ends = {"bpe": ("</w>", " "), "wordpiece": ("##", "")}[subword]
    spelled = "".join(pieces).replace(*ends).strip()
    assert spelled.replace(" ", "") == "slowestnewestwidest"
    assert len(pieces) < len(text) / 2, "pieces, not letters"
    word = SequenceVectorizer().fit(texts)
    assert (word.transform([text])[0] == 1).any() and (vectorizer.transform([text]) != 1).all()
    for _ in range(5):
        again = SequenceVectorizer(subword=subword, max_features=40).fit(texts)
        assert again.vocabulary_ == vectorizer.vocabulary_
    assert (vectorizer.transform(["z"])[0] == 1).sum() == 1


@pytest.mark.parametrize("subword", ["bpe", "wordpiece"])
def test_lone_halves_of_a_surrogate_pair_are_one_letter(subword):
    vectorizer = SequenceVectorizer(subword=subword).fit(["a\ud800b film", "film"])
    assert "�" in "".join(vectorizer.vocabulary_) and "\ud800" not in "".join(
        vectorizer.vocabulary_
    )
    ids = vectorizer.transform(["a\ud800b", "a\udfffb", "a�b"])
    np.testing.assert_array_equal(ids, ids[[0, 0, 0]])
    assert (ids[:, 0] > 1).all()
    odd = SequenceVectorizer(subword=subword).fit(TEXTS).transform(["\ud800 film"])
    assert odd[0, 0] == 1


@pytest.mark.parametrize(("subword", "n_pieces"), [("bpe", 6 + 3), ("wordpiece", 6 + 5)])
def test_fewer_pieces_than_letters_are_refused(subword, n_pieces):
    """Letters f, i, l, m, d, o; at an end m, d and o, not at a start i, l, m, o and d."""
    texts = ["film film", "do od"]
    enough = SequenceVectorizer(subword=subword, max_features=n_pieces).fit(texts)
    assert len(enough.vocabulary_) == n_pieces
    message = (
        rf"max_features={n_pieces - 1} is less than the {n_pieces} pieces.*set it to {n_pieces}"
    )
    with pytest.raises(ValueError, match=message):
        enough.set_params(max_features=n_pieces - 1).fit(texts)
    assert len(SequenceVectorizer(max_features=2).fit(texts).vocabulary_) == 2


@pytest.mark.parametrize("subword", ["bpe", "wordpiece"])
def test_counts_of_any_size_are_taken(subword):
    """More pieces than the texts can have, or pairs that occur more often than anything does."""
    texts = ["low lower lowest", "new newer newest"] * 4
    every = SequenceVectorizer(subword=subword, max_features=10**4).fit(texts).vocabulary_
    letters = SequenceVectorizer(subword=subword, min_df=10**6).fit(texts).vocabulary_
    assert len(letters) < len(every) < 60
    for large in (2**31, 2**64, 10**400):
        made = SequenceVectorizer(subword=subword, max_features=large).fit(texts)
        assert made.vocabulary_ == every
        made = SequenceVectorizer(subword=subword, min_df=large).fit(texts)
        assert made.vocabulary_ == letters


@pytest.mark.parametrize("subword", ["bpe", "wordpiece"])
def test_long_words_are_spelled_by_pieces_too(subword):
    word = "".join(np.random.default_rng(0).choice(list("abcdef"), 350))
    vectorizer = SequenceVectorizer(subword=subword, max_length=None)
    # Every letter by itself too, as a part may start or end with any; and room for 600 pieces.
    vectorizer.fit([word, "a bad cafe", "a b c d e f " * 100])
    other = word[200:] + "fed" + word[:200]
    for copied in (vectorizer, pickle.loads(pickle.dumps(vectorizer))):
        for text in (word, other, "fade" * 40, "a" * 100, "a" * 101):
            pieces = copied.inverse_transform(copied.transform([text]))[0]
            assert re.sub("</w>|##", "", "".join(pieces)) == text


@pytest.mark.parametrize("subword", ["bpe", "wordpiece"])
def test_long_texts_without_a_blank_take_seconds(subword):
    blob = base64.b64encode(np.random.default_rng(0).bytes(300_000)).decode()
    vectorizer = SequenceVectorizer(tokenizer=str.split, subword=subword, max_features=300)
    begun = time.perf_counter()
    assert vectorizer.fit([blob, "a" * 1_000_000]).transform([blob]).shape == (1, 256)
    assert time.perf_counter() - begun < 15.0  # measured 0.5 and 2.5 s; in one part, minutes


def test_subwords_without_the_library_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install sklearn_restrans\[text\]"):
        SequenceVectorizer(subword="bpe").fit(TEXTS)
