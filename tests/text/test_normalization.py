"""Normalisation: invisible characters make no difference, and visible ones stay."""

import sys
import time
import unicodedata

import numpy as np
import pytest

from sklearn_restrans import SequenceVectorizer

# Unicode 15, DerivedCoreProperties.txt: Default_Ignorable_Code_Point.
IGNORABLE = [
    *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
]
CONTROLS = [
    code
    for code in range(0x110000)
    if unicodedata.category(chr(code)) == "Cc" and not chr(code).isspace()
]


def tokens(text, **settings):
    """Tokens of one text, in its order."""
    vectorizer = SequenceVectorizer(max_length=None, **settings).fit([text])
    return vectorizer.inverse_transform(vectorizer.transform([text]))[0]


def test_the_lists_of_this_file_are_complete():
    assert len(CONTROLS) == 65 - 10  # white space: five of ASCII's, four separators and NEL
    # Format characters that are not in the list are visible.
    formats = {c for c in range(0x110000) if unicodedata.category(chr(c)) == "Cf"}
    seen = [unicodedata.name(chr(c)) for c in sorted(formats - set(IGNORABLE))]
    allowed = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "INTERLINEAR")
    assert all(name.startswith(allowed) for name in seen)


@pytest.mark.parametrize("word", ["film", "été", "фильм", "ταινία", "isn't"])
def test_no_invisible_character_changes_a_word(word):
    """Within it, before it and after it, and by itself."""
    text = " ".join(
        made
        for code in [*CONTROLS, *IGNORABLE]
        for c in [chr(code)]
        for made in (word[:2] + c + word[2:], c + word, word + c, c, word + c + c)
    )
    found = tokens(text)
    assert set(found) == {word}
    assert len(found) == 4 * (len(CONTROLS) + len(IGNORABLE))


@pytest.mark.parametrize("mark", ["\u200b", "\u00ad", "\ufeff", "\0"])
def test_texts_with_and_without_an_invisible_character_have_the_same_ids(mark):
    plain = ["a fine film, isn't it?", "well-made", "日本映画", "सिनेमा"]
    marked = [mark + mark.join(text) + mark for text in plain]
    for subword in (None, "bpe", "wordpiece"):
        vectorizer = SequenceVectorizer(subword=subword).fit(plain)
        np.testing.assert_array_equal(vectorizer.transform(marked), vectorizer.transform(plain))
        again = SequenceVectorizer(subword=subword).fit(marked)
        assert again.vocabulary_ == vectorizer.vocabulary_
    nothing = SequenceVectorizer().fit(plain).transform([mark * 3])
    assert nothing[0].tolist() == [1] + [0] * (nothing.shape[1] - 1)  # as an empty text


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # a joiner between letters that would be joined otherwise
        "ه\u200d",  # the joined form of a letter by itself
        "ക്\u200dഷ",
        "👩\u200d👧",
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e007f",
        "葛\U000e0100",
        "ᠠ\u180b",
    ],
)
def test_what_changes_what_is_seen_stays(text):
    assert "".join(tokens(text)) == unicodedata.normalize("NFC", text)
    plain = "".join(c for c in text if ord(c) not in set(IGNORABLE))
    assert tokens(plain) != tokens(text)


def test_the_text_is_left_to_a_pattern_or_a_tokenizer_of_the_users_own():
    for own in ({"token_pattern": r"\S+"}, {"tokenizer": str.split}):
        assert tokens("fi\u200blm e\u0301t\0", **own) == ["fi\u200blm", "e\u0301t\0"]


def test_ascii_is_what_it_was():
    rng = np.random.default_rng(0)
    printable = [chr(c) for c in range(32, 127)] + list("\t\n\r\v\f")
    texts = ["".join(rng.choice(printable, 60)) for _ in range(300)]
    pattern = r"\w+(?:['’-]\w+)*|['’]\w+|[^\w\s]"
    ours, plain = SequenceVectorizer(), SequenceVectorizer(token_pattern=pattern)
    np.testing.assert_array_equal(ours.fit_transform(texts), plain.fit_transform(texts))
    assert ours.vocabulary_ == plain.vocabulary_


def test_the_dotted_capital_i_is_an_i():
    forms = ["İstanbul", "istanbul", "ISTANBUL", "I\u0307stanbul", "i\u0307stanbul", "İSTANBUL"]
    for own in ({}, {"token_pattern": r"\S+"}, {"tokenizer": str.split}, {"subword": "bpe"}):
        vectorizer = SequenceVectorizer(**own).fit(forms)
        ids = vectorizer.transform(forms)
        np.testing.assert_array_equal(ids, ids[[0] * len(forms)])
        assert (ids != 1).all()
    assert tokens("İstanbul") == ["istanbul"]
    assert tokens("İstanbul", lowercase=False) == ["İstanbul"]
    # A dot below as well, in every order and composition.
    below = ["İ\u0323", "I\u0323\u0307", "I\u0307\u0323", "Ị\u0307", "ị"]
    assert {token for form in below for token in tokens(form)} == {"ị"}


def test_letter_case_makes_no_difference_for_any_letter():
    """Capitals are read as their small letters; ß, whose capital is two letters, stays."""
    capitals = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) == "Lu"]
    assert len(capitals) > 1_700 and "İ" in capitals
    small = [unicodedata.normalize("NFC", c.lower()).replace("i\u0307", "i") for c in capitals]
    assert tokens(" ".join(capitals)) == tokens(" ".join(small))
    assert all(len(token) == 1 for token in tokens(" ".join(capitals)))
    # Lower case, not case folding: the words of a dictionary.
    assert tokens("Straße ΟΔΟΣ ﬁlm") == ["straße", "οδος", "ﬁlm"]


RUNS = ["\u200b", "\u200c", "\u200d", "\ufe0f", "\U000e0041", "\0", "\u0307", "\u0323", "a\u200c"]


@pytest.mark.parametrize("sign", RUNS)
@pytest.mark.parametrize("before", [" ", "i", "अ", "👩"])
def test_long_runs_of_invisible_characters_take_no_time(sign, before):
    begun = time.perf_counter()
    assert tokens("film " + before + sign * 50_000 + "अ film")[0] == "film"
    # Measured 0.02 s; a pattern that looks at every run from each of its places takes a minute.
    assert time.perf_counter() - begun < 2.0
