"""Texts: what the vectorizer makes of them, and what a pipeline learns from them."""

import copy
import pickle
import re
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from sklearn_restrans import ResidualTransformerClassifier, SequenceVectorizer

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


# -- the vectorizer: ids ---------------------------------------------------------------------------


def test_ids_follow_the_text_and_the_most_frequent_token_comes_first():
    vectorizer = SequenceVectorizer().fit(TEXTS)
    # counts 4, 3, 3, then 2s and 1s, each in alphabetical order
    order = ["a", "dull", "film", "cast", "fine", "isn't", "!", ",", "it's", "long", "that", "the"]
    assert vectorizer.vocabulary_ == {t: i for i, t in enumerate([*order, "well-made"], 2)}
    ids = vectorizer.transform(["The DULL well-made   cast?", "'s", ""])
    expected = np.zeros((3, 8), int)  # the first and longest text has eight tokens
    expected[0, :5], expected[1:, 0] = [13, 3, 14, 5, 1], 1
    np.testing.assert_array_equal(ids, expected)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(vectorizer.transform(TEXTS), vectorizer.fit_transform(TEXTS))
    spelled = [["the", "dull", "well-made", "cast", "[UNK]"], ["[UNK]"], ["[UNK]"]]
    assert vectorizer.inverse_transform(ids) == spelled
    assert not SequenceVectorizer(lowercase=False).fit(["A a"]).vocabulary_.keys() ^ {"A", "a"}


@pytest.mark.parametrize(
    "settings",
    [
        {"min_df": 2},
        {"min_df": 0.3},
        {"max_features": 3},
        {"min_df": 2, "max_features": 4, "lowercase": False},
        {"token_pattern": r"(?u)\b\w\w+\b"},
        {"token_pattern": r"(\w)\w*"},
        {"tokenizer": str.split},
        {"tokenizer": lambda text: text.rstrip(",").split(",") if text else []},
    ],
)
def test_the_vocabulary_is_that_of_count_vectorizer(settings):
    texts = [*TEXTS, "film film film film the the the the", "The the A and"]
    ours = SequenceVectorizer(**settings).fit(texts)
    settings = {"token_pattern": WORDS, **settings}
    if "tokenizer" in settings:
        settings["token_pattern"] = None
    theirs = CountVectorizer(**settings).fit(texts)
    counts = theirs.transform(texts).toarray()
    if "max_features" not in settings:
        assert ours.vocabulary_.keys() == theirs.vocabulary_.keys()
    assert len(ours.vocabulary_) == len(theirs.vocabulary_)
    for row, tokens in enumerate(ours.inverse_transform(ours.transform(texts))):
        for token in set(tokens) & theirs.vocabulary_.keys():
            assert tokens.count(token) == counts[row, theirs.vocabulary_[token]]


def test_rows_are_as_wide_as_the_longest_text_of_fit():
    texts = ["a b c", "a b c d e", "a"]
    assert SequenceVectorizer().fit(texts).max_length_ == 5
    assert SequenceVectorizer(max_length=4).fit(texts).max_length_ == 4
    vectorizer = SequenceVectorizer(max_length=4).fit(texts[:1])
    ids = vectorizer.transform(["c b a c b a", "a"])
    assert vectorizer.inverse_transform(ids) == [["c", "b", "a"], ["a"]]
    assert SequenceVectorizer(max_length=None).fit(["a " * 300]).max_length_ == 300
    assert SequenceVectorizer().fit(["a " * 300]).max_length_ == 256


def test_ten_thousand_words_take_no_time():
    vectorizer = SequenceVectorizer().fit(TEXTS)
    begun = time.perf_counter()
    assert vectorizer.transform(["dull film " * 5_000]).shape == (1, 8)
    assert SequenceVectorizer().fit(["dull film " * 5_000]).transform(TEXTS).shape == (6, 256)
    assert time.perf_counter() - begun < 2.0  # measured 0.02 s


@pytest.mark.parametrize("text", ["", "   \n", "unheard of words", "צ 😀"])
def test_texts_without_a_known_token_are_unknown_tokens(text):
    row = SequenceVectorizer().fit(TEXTS).transform([text])[0]
    assert row[0] == 1 and set(row.tolist()) <= {0, 1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_df": 7}, "None of the tokens of 6 texts is left; lower min_df"),
        ({"token_pattern": r"(a)(b)"}, "must have at most one group, .*, got 2 groups"),
        (
            {"token_pattern": "("},
            r"must be a regular expression, got '\(': missing \), unterm.*backslash",
        ),
        ({"token_pattern": b"a"}, "token_pattern"),
        ({"min_df": 0.5, "subword": "bpe"}, "count of a merged pair"),
        ({"max_length": 0}, "max_length"),
        ({"min_df": 1.5}, "min_df"),
        ({"min_df": 0}, "min_df must be an integer >= 1, or a share .*, got 0"),
        ({"min_df": True}, "min_df must be an integer >= 1, or a share .*, got True"),
        ({"max_features": True}, "max_features must be an integer >= 1, got True"),
        ({"max_length": True}, "max_length must be an integer >= 1, got True"),
        ({"subword": "unigram"}, "subword"),
        ({"min_df": 10**400}, "None of the tokens of 6 texts is left; lower min_df"),
        ({"tokenizer": 3}, "tokenizer"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer(**settings).fit(TEXTS)


@pytest.mark.parametrize("subword", [None, "bpe", "wordpiece"])
@pytest.mark.parametrize(
    "settings",
    [
        {"token_pattern": r"\w*"},
        {"token_pattern": r"(\w*)[ !]?"},
        {"tokenizer": lambda text: re.split("[ !]", text)},
    ],
)
def test_empty_tokens_are_none(settings, subword):
    vectorizer = SequenceVectorizer(**settings, subword=subword).fit(["fine  fine film!", "film"])
    plain = SequenceVectorizer(tokenizer=str.split, subword=subword).fit(["fine fine film", "film"])
    assert vectorizer.vocabulary_ == plain.vocabulary_
    expected = plain.transform(["film film", "", "", "fine film"])
    ids = vectorizer.transform(["film  film!", "", "!!", "fine film"])
    np.testing.assert_array_equal(ids, expected)


def test_the_vocabulary_holds_plain_strings():
    class Word(str):
        """A str and more."""

        def __str__(self):
            return "other"

    for kind in (np.str_, Word):
        vectorizer = SequenceVectorizer(tokenizer=lambda text, kind=kind: map(kind, text.split()))
        assert vectorizer.fit(TEXTS).vocabulary_.keys() == set(" ".join(TEXTS).lower().split())
        assert {type(token) for token in vectorizer.vocabulary_} == {str}


# -- and back --------------------------------------------------------------------------------------


def test_every_form_of_ids_is_spelled():
    vectorizer = SequenceVectorizer().fit(TEXTS)
    ids = vectorizer.transform(TEXTS)
    spelled = vectorizer.inverse_transform(ids)
    assert spelled[1:5] == [text.split() for text in TEXTS[1:5]] and spelled[5] == ["[UNK]"]
    for form in (np.asarray, np.ndarray.tolist, pd.DataFrame, pl.DataFrame, np.float64):
        assert vectorizer.inverse_transform(form(ids)) == spelled


BAD_IDS = [
    ([[2, 3], [2, 99]], r"X\[1, 1\] is 99, but the largest id of this vocabulary is 14"),
    ([[2, -1]], r"X\[0, 1\] is -1, not a token id"),
    ([[2.5, 2]], r"X\[0, 0\] is 2.5, not a token id"),
    ([[2, np.nan]], r"X\[0, 1\] is missing"),
    ([[2, 2**63]], r"X\[0, 1\] is .*, not a token id"),
    ([2, 3], "X must be 2-D.* got list with 1 axes"),
    ([[[2]]], "X must be 2-D.* got list with 3 axes"),
    ([[2], [2, 3]], "X holds rows of 1 to 2 token ids; pad the shorter"),
    ([["dull"]], "X cannot be read as token ids"),
    ([[True, False]], "X cannot be read as token ids: its type is bool"),
    (TEXTS, "X must be 2-D, one row of token ids per text"),
    (None, "X must be 2-D.* got NoneType"),
]


@pytest.mark.parametrize(("X", "message"), BAD_IDS)
def test_what_are_not_ids_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer().fit(TEXTS).inverse_transform(X)


# -- fitted state ----------------------------------------------------------------------------------


FAILING = [
    ({"min_df": 50, "subword": None}, TEXTS),
    ({"max_features": 1, "subword": "wordpiece"}, TEXTS),
    ({"min_df": 0.5, "subword": "bpe"}, TEXTS),
    ({"token_pattern": "("}, TEXTS),
    ({}, ["film", None]),
    ({}, [""]),
]


@pytest.mark.parametrize("subword", [None, "bpe", "wordpiece"])
@pytest.mark.parametrize(("settings", "texts"), FAILING)
def test_a_fit_that_fails_changes_nothing(settings, texts, subword):
    vectorizer = SequenceVectorizer(subword=subword).fit(TEXTS)
    expected, before = vectorizer.transform(TEXTS), vectorizer.get_params()
    spelled = vectorizer.inverse_transform(expected)
    with pytest.raises(ValueError):
        vectorizer.set_params(**settings).fit(texts)
    vectorizer.set_params(**before)
    np.testing.assert_array_equal(vectorizer.transform(TEXTS), expected)
    assert vectorizer.inverse_transform(expected) == spelled


@pytest.mark.parametrize("subword", [None, "bpe", "wordpiece"])
def test_copies_give_the_same_ids(subword):
    vectorizer = SequenceVectorizer(subword=subword).fit(TEXTS)
    for copied in (pickle.loads(pickle.dumps(vectorizer)), copy.deepcopy(vectorizer)):
        np.testing.assert_array_equal(copied.transform(TEXTS), vectorizer.transform(TEXTS))
    assert not hasattr(clone(vectorizer), "vocabulary_")


def test_tokenizers_are_copied_with_the_vectorizer():
    vectorizer = SequenceVectorizer(tokenizer=re.compile(r"\S+").findall).fit(TEXTS)
    copied = pickle.loads(pickle.dumps(vectorizer))
    np.testing.assert_array_equal(copied.transform(TEXTS), vectorizer.transform(TEXTS))
    split = SequenceVectorizer(tokenizer=lambda text: text.split()).fit(TEXTS)
    np.testing.assert_array_equal(clone(split).fit_transform(TEXTS), split.transform(TEXTS))
    np.testing.assert_array_equal(split.transform(TEXTS), vectorizer.transform(TEXTS))


def test_columns_are_places_in_the_text():
    vectorizer = SequenceVectorizer().fit(TEXTS)
    names = [f"token{k}" for k in range(8)]
    assert vectorizer.get_feature_names_out().tolist() == names
    frame = vectorizer.set_output(transform="pandas").transform(TEXTS)
    assert frame.columns.tolist() == names and (frame.dtypes == np.int32).all()


# -- in a pipeline ---------------------------------------------------------------------------------


def test_word_order_is_seen():
    """ "not good" and "good" differ by one token, "good not bad" and "bad not good" by order."""
    rng = np.random.default_rng(0)
    fillers = np.array(["the", "film", "was", "very"])
    texts, labels = [], []
    for _ in range(300):
        word, negated = rng.choice(["good", "bad"]), rng.random() < 0.5
        filler = list(rng.choice(fillers, rng.integers(0, 5)))
        texts.append(" ".join([*filler, *["not"] * negated, word]))
        labels.append((word == "good") != negated)
    model = make_pipeline(
        SequenceVectorizer(),
        ResidualTransformerClassifier(
            embedding="token", max_iter=40, learning_rate_init=0.01, random_state=0
        ),
    ).fit(texts, labels)
    assert model.score(texts, labels) == 1.0
    assert model.predict(["the film was not bad", "not good"]).tolist() == [True, False]


def test_texts_go_through_a_pipeline_and_a_search():
    rng = np.random.default_rng(0)
    words = np.array(["fine", "great", "dull", "bad", "film", "cast", "the", "plot"])
    texts = [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(90)]
    y = ["fine" in text for text in texts]
    pipe = make_pipeline(
        SequenceVectorizer(),
        ResidualTransformerClassifier(
            embedding="token", d_model=8, max_iter=30, learning_rate_init=0.03, random_state=0
        ),
    )
    grid = {
        "sequencevectorizer__max_features": [1, 8],
        "residualtransformerclassifier__residual_beta": [0.5, 1.0],
    }
    search = GridSearchCV(pipe, grid, cv=3).fit(pd.Series(texts), y)
    assert search.best_params_["sequencevectorizer__max_features"] == 8
    assert search.score(texts, y) > 0.9
    assert search.predict(["", "unheard of", "fine " * 500]).shape == (3,)
    ids = SequenceVectorizer().fit_transform(texts)
    scores = cross_val_score(pipe[-1], ids, y, cv=3)  # folds that miss ids, or long texts
    assert scores.mean() > 0.8
