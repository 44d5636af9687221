"""Words: what a text is cut into, and what is taken for a text or a token."""

import sys
import unicodedata

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from sklearn_restrans import SequenceVectorizer
from sklearn_restrans.datasets import fetch_sst2

# The default tokens of texts without combining marks, emoji of several signs, and the like.
WORDS = r"\w+(?:['’-]\w+)*|['’]\w+|[^\w\s]"

TEXTS = [
    "A fine film, a fine cast!",
    "it's a dull film",
    "the cast isn't dull",
    "a well-made film that isn't long",
    "dull",
    "",
]


# -- scripts, marks and signs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("😀😀 great👍", ["😀", "😀", "great", "👍"]),
        ("סרט טוב מאוד!", ["סרט", "טוב", "מאוד", "!"]),
        ("فيلم جميل، نعم", ["فيلم", "جميل", "،", "نعم"]),
        ("don’t — ça va", ["don’t", "—", "ça", "va"]),
        ("\u200f. \n\t ", ["."]),
        ("e\u0301tude\x00!", ["\u00e9tude", "!"]),
        ("q\u0301 q\u0323\u0307y-q", ["q\u0301", "q\u0323\u0307y-q"]),  # no single sign
        ("हिन्दी फ़िल्म।", ["हिन्दी", unicodedata.normalize("NFC", "फ़िल्म"), "।"]),
        ("שָׁלוֹם, עולם", [unicodedata.normalize("NFC", "שָׁלוֹם"), ",", "עולם"]),
        ("مُحَمَّد می\u200cخواهم", [unicodedata.normalize("NFC", "مُحَمَّد"), "می\u200cخواهم"]),
        ("ภาพยนตร์ ที่ดี", ["ภาพยนตร์", "ที่ดี"]),
        ("\U0001e900\U0001e944\U0001e901", ["\U0001e922\U0001e944\U0001e923"]),  # beyond U+FFFF
        ("❤\ufe0fgreat👍🏽👍", ["❤\ufe0f", "great", "👍🏽", "👍"]),
        ("🇩🇪🇫🇷 a🇩", ["🇩🇪", "🇫🇷", "a", "🇩"]),  # flags are two letters
        ("🏴\U000e0067\U000e0062\U000e007f🏴", ["🏴\U000e0067\U000e0062\U000e007f", "🏴"]),
        ("👩\u200d👩\u200d👧👩 🏃\u200d♂\ufe0f", ["👩\u200d👩\u200d👧", "👩", "🏃\u200d♂\ufe0f"]),
    ],
)
def test_any_script_is_text(text, tokens):
    vectorizer = SequenceVectorizer().fit([text])
    assert vectorizer.inverse_transform(vectorizer.transform([text])) == [tokens]


def test_every_combining_mark_stays_with_its_letter():
    marks = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M"]
    assert len(marks) > 2_000
    tokens = SequenceVectorizer(max_length=None).fit([" ".join(f"a{mark}b" for mark in marks)])
    assert tokens.max_length_ == len(marks)


def test_accents_in_one_part_or_two_are_one_token():
    texts = ["Été à Zürich, não?", "Tiếng Việt", "한국어 영화", "Ελλάδα", "हिन्दी क़लम", "שָׁלוֹם"]
    composed, parted = ([unicodedata.normalize(form, t) for t in texts] for form in ("NFC", "NFD"))
    assert composed != parted
    vectorizer = SequenceVectorizer().fit(composed)
    np.testing.assert_array_equal(vectorizer.transform(parted), vectorizer.transform(composed))
    assert (vectorizer.transform(parted) != 1).all()
    # A pattern or a tokenizer of the user's own sees the text as it is.
    for own in ({"token_pattern": r"\S+"}, {"tokenizer": str.split}):
        assert (
            SequenceVectorizer(**own).fit(composed).transform(parted)[[0, 1, 2, 3, 4]] == 1
        ).any()


def test_reviews_have_the_tokens_of_the_plain_pattern(data_dir):
    texts = fetch_sst2(data_dir)[0][::4]
    assert not all(text.isascii() for text in texts)
    ours, plain = SequenceVectorizer(), SequenceVectorizer(token_pattern=WORDS)
    np.testing.assert_array_equal(ours.fit_transform(texts), plain.fit_transform(texts))
    assert ours.vocabulary_ == plain.vocabulary_


BAD_PATTERNS = ["(", "a{99999999999999999999}", "(" * 5_000, "[a", "*", "(?P<a>.)(?P=b)"]


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_what_is_not_a_regular_expression_is_refused_in_a_short_sentence(pattern):
    with pytest.raises(ValueError, match="token_pattern must be a regular expr") as caught:
        SequenceVectorizer(token_pattern=pattern).fit(TEXTS)
    assert len(str(caught.value)) < 400


# -- texts and tokens of any form -----------------------------------------------------------------


FORMS = [
    list,
    tuple,
    iter,
    np.array,
    lambda texts: np.array(texts, dtype=object),
    lambda texts: [np.str_(text) for text in texts],
    pd.Series,
    pd.Index,
    lambda texts: pd.Series(texts, dtype="string"),
    lambda texts: pd.Series(texts, dtype="category"),
    pl.Series,
]


@pytest.mark.parametrize("form", FORMS)
def test_every_column_of_texts_will_do(form):
    expected = SequenceVectorizer().fit_transform(TEXTS)
    np.testing.assert_array_equal(SequenceVectorizer().fit_transform(form(TEXTS)), expected)
    objects = pd.Series(TEXTS, index=range(10, 16), dtype=object)
    np.testing.assert_array_equal(SequenceVectorizer().fit(TEXTS).transform(objects), expected)


BAD_TEXTS = [
    ("a fine film", r"X is a single str, not a list of texts; pass a list"),
    (b"film", "X is a single bytes"),
    (["film", None], r"text 1 of X is missing \(None\): drop it, or write an empty text"),
    (["film", np.nan], r"text 1 of X is missing \(nan\).*fillna"),
    (pd.Series(["film", pd.NA]), "text 1 of X is missing"),
    (pd.Series(["film", pd.NA], dtype="string"), "text 1 of X is missing"),
    (pd.Series(["film", None], dtype="category"), "text 1 of X is missing"),
    (pl.Series(["film", None]), "text 1 of X is missing"),
    (["film", b"film"], r"text 1 of X is bytes \(b'film'\): decode it"),
    (["film", 3.5], "text 1 of X is 3.5, of type float, not a str"),
    ([["a", "film"]], "text 0 of X is .*of type list, not a str"),
    (pd.DataFrame({"text": ["film"]}), r"X has shape \(1, 1\).* pass X\['name'\]"),
    (np.array([["film"]]), r"X has shape \(1, 1\).*ravel"),
    ({"film": 1}, "must be a list, Series or array of texts, got dict"),
    (str, "must be a list, Series or array of texts, got type"),
    (np.array("film"), r"X has shape \(\)"),
    (np.ma.array(["film", "cast"], mask=[False, True], dtype=object), "text 1 of X is .*Masked"),
    (bytearray(b"film"), "X is a single bytearray"),
    (None, "must be a list, Series or array of texts, got NoneType"),
    (["film", "x" * 10**6, 10**400], "text 2 of X is 1000"),
    ([["film" * 10**5]], "text 0 of X is .*of type list, not a str"),
    (7, "must be a list, Series or array of texts, got int"),
    ([], "X holds 0 texts"),
]


@pytest.mark.parametrize(("X", "message"), BAD_TEXTS)
def test_what_is_not_a_text_is_refused(X, message):
    with pytest.raises(ValueError, match=message) as caught:
        SequenceVectorizer().fit(X)
    assert len(str(caught.value)) < 300
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer().fit(TEXTS).transform(X)


@pytest.mark.parametrize("subword", [None, "bpe"])
@pytest.mark.parametrize("form", [list, tuple, iter, np.array, pd.Series])
def test_a_tokenizer_may_give_any_sequence_of_str(form, subword):
    words = SequenceVectorizer(tokenizer=str.split, subword=subword)
    made = SequenceVectorizer(tokenizer=lambda text: form(text.split()), subword=subword)
    texts = TEXTS[:-1]  # an empty array holds numbers
    np.testing.assert_array_equal(made.fit_transform(texts), words.fit_transform(texts))
    np.testing.assert_array_equal(clone(made).fit(texts).transform(TEXTS), words.transform(TEXTS))


BAD_TOKENS = [
    (None, "gave None, of type NoneType"),
    ("dull film", "gave 'dull film', of type str"),
    (b"dull", "gave b'dull', of type bytes"),
    ({"dull"}, r"gave \{'dull'\}, of type set"),
    ({"dull": 1}, "of type dict"),
    ([1, 2], "gave 1, of type int, as token 0"),
    (["dull", None], "gave None, of type NoneType, as token 1"),
    ([["dull"]], r"gave \['dull'\], of type list, as token 0"),
    (np.array("dull"), r"gave array\('dull'.*, of type ndarray"),
    (str, "gave <class 'str'>, of type type"),
    (bytearray(b"dull"), "of type bytearray"),
]


@pytest.mark.parametrize("subword", [None, "bpe"])
@pytest.mark.parametrize(("tokens", "message"), BAD_TOKENS)
def test_what_are_not_tokens_is_refused(tokens, message, subword):
    vectorizer = SequenceVectorizer(
        tokenizer=lambda text: tokens if text == "dull" else text.split(), subword=subword
    )
    wanted = "tokenizer must give a list of str for every text; for text"
    with pytest.raises(ValueError, match=f"{wanted} 4 of X it .*{message}"):
        vectorizer.fit(TEXTS)
    with pytest.raises(ValueError, match=f"{wanted} 1 of X it .*{message}"):
        vectorizer.fit(TEXTS[:4]).transform(["a film", "dull"])
