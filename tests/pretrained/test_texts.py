"""Texts to ids: those of transformers plus 1; what is no text, and tokenizers that do not fit."""

import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import tinycheckpoints as tiny
import tokenizers
from scipy import sparse
from sklearn.base import clone
from tinycheckpoints import FAMILIES, TEXTS, encode

from sklearn_restrans import PretrainedTextClassifier, TextEmbedder
from sklearn_restrans._pretrained.checkpoint import read_checkpoint
from sklearn_restrans._pretrained.texts import learn_texts


def inputs_of(folder, max_length=None):
    return learn_texts("TextEmbedder", read_checkpoint(folder), max_length)


def ids_of(folder, texts, max_length=None):
    return inputs_of(folder, max_length).check(texts)


def expected_ids(folder, texts, max_length=None):
    ids, mask = encode(folder, texts, max_length)
    return np.where(mask == 1, ids + 1, 0)


# ---- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_transformers_plus_1(checkpoints, family):
    folder = checkpoints(family)
    odd = ["naïve ünheard 東京 😀 \t\n x", "A FINE Film", "[SEP] <s> </s> [MASK]", "!" * 30]
    texts = [*TEXTS, *odd]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the odd ones are long in bytes
        np.testing.assert_array_equal(ids_of(folder, texts), expected_ids(folder, texts, 40))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_text_has_a_token(checkpoints, family):
    found = ids_of(checkpoints(family), ["", "good"])
    own = {"bert": [2, 3], "distilbert": [2, 3], "roberta": [0, 2], "gpt2": [0]}[family]
    assert found[0][found[0] != 0].tolist() == [i + 1 for i in own]


@pytest.mark.parametrize("max_length", [3, 5, 9])
@pytest.mark.parametrize("family", FAMILIES)
def test_longer_texts_are_cut_and_counted(checkpoints, family, max_length):
    folder = checkpoints(family)
    whole = ids_of(folder, TEXTS)
    n_tokens = (whole != 0).sum(axis=1)
    n_cut = (n_tokens > max_length).sum()
    message = (
        rf"{n_cut} of {len(TEXTS)} texts are longer than the {max_length} tokens that are read; "
        rf"the first is text {(n_tokens > max_length).argmax()}, the longest has "
        rf"{n_tokens.max()}\. What follows is not seen"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        found = ids_of(folder, TEXTS, max_length)
    assert len(caught) == 1
    np.testing.assert_array_equal(found, expected_ids(folder, TEXTS, max_length))


def test_the_warning_of_cut_texts_points_at_the_call_of_the_user(checkpoints):
    folder, (texts, y) = checkpoints("bert"), tiny.labelled(8)
    model = PretrainedTextClassifier(folder, max_length=30, max_iter=1, random_state=0)
    model.fit(texts, y)
    embedder = TextEmbedder(folder, max_length=30).fit()
    for call in (model.predict, model.predict_proba, embedder.transform):
        with pytest.warns(UserWarning, match="1 of 1 texts are longer than the 30") as caught:
            call(["good " * 40])
        assert [warning.filename for warning in caught] == [__file__]


def test_a_limit_of_the_tokenizer_itself_does_not_hold(checkpoints, tmp_path):
    folder = Path(shutil.copytree(checkpoints("bert"), tmp_path / "own"))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(folder / "tokenizer.json"))
    np.testing.assert_array_equal(ids_of(folder, TEXTS), ids_of(checkpoints("bert"), TEXTS))


FORMS = {
    "tuple": tuple,
    "array": lambda texts: np.array(texts),
    "objects": lambda texts: np.array(texts, dtype=object),
    "numpy's StringDType": lambda texts: np.array(texts, dtype=np.dtypes.StringDType()),
    "Series": lambda texts: pd.Series(texts, index=range(7, 7 + len(texts))),
    "string Series": lambda texts: pd.Series(texts, dtype="string"),
    "categories": lambda texts: pd.Series(texts, dtype="category"),
    "Index": pd.Index,
    "polars": pl.Series,
    "frame": lambda texts: pd.DataFrame({"text": texts}),
    "polars frame": lambda texts: pl.DataFrame({"text": texts}),
    "column": lambda texts: np.array(texts)[:, None],
    "numpy's str": lambda texts: [np.str_(text) for text in texts],
}


@pytest.mark.parametrize("form", FORMS)
def test_texts_come_in_several_forms(checkpoints, form):
    folder = checkpoints("bert")
    np.testing.assert_array_equal(ids_of(folder, FORMS[form](TEXTS)), ids_of(folder, TEXTS))


def test_half_of_a_pair_is_a_question_mark(checkpoints):
    for family in FAMILIES:
        folder = checkpoints(family)
        found = ids_of(folder, ["good \ud800 film", "\udfff"])
        np.testing.assert_array_equal(found, ids_of(folder, ["good ? film", "?"]))


NO_TEXTS = {
    "str": ("a fine film", r"X is a single str, not a list of texts; pass a list: \[X\]"),
    "bytes": (b"film", "X is a single bytes"),
    "none": ([], "X holds 0 texts; at least one is needed"),
    "None": (["good", None], r"text 1 of X is missing \(None\): drop it, or write an empty text"),
    "nan": (["good", np.nan], r"text 1 of X is missing \(nan\)"),
    "NA": (pd.Series(["good", None], dtype="string"), "text 1 of X is missing"),
    "NA frame": (pd.DataFrame({"t": ["good", None]}), "text 1 of X is missing"),
    "number": (["good", 3], "text 1 of X is 3, of type int, not a str"),
    "numbers": (np.arange(4), "text 0 of X is .*, not a str"),
    "bytes within": (["good", b"film"], r"text 1 of X is bytes \(b'film'\): decode it first"),
    "list within": ([["good"]], r"text 0 of X is \['good'\], of type list"),
    "dict": ({"a": "good"}, "X must be a list, Series or array of texts, got dict"),
    "set": ({"good"}, "X must be a list, Series or array of texts, got set"),
    "number alone": (3, "X must be a list, Series or array of texts, got int"),
    "nothing": (None, "X must be a list, Series or array of texts, got NoneType"),
    "two columns": (
        pd.DataFrame({"a": ["x"], "b": ["y"]}),
        r"X has shape \(1, 2\), but texts come",
    ),
    "table": (np.zeros((3, 4)), r"X has shape \(3, 4\), but texts come in one column"),
    "0 rows": (np.empty((0, 1), dtype=object), "X holds 0 texts"),
}


@pytest.fixture(scope="module")
def fitted(checkpoints):
    folder = checkpoints("bert")
    classifier = PretrainedTextClassifier(folder, fine_tune="head", max_iter=1, random_state=0)
    return classifier.fit(*tiny.labelled(8)), TextEmbedder(folder).fit()


@pytest.mark.parametrize("case", NO_TEXTS)
def test_what_are_no_texts_is_refused(fitted, case):
    X, message = NO_TEXTS[case]
    classifier, embedder = fitted
    model = clone(classifier)
    calls = [lambda X: model.fit(X, [0, 1]), classifier.predict, embedder.transform]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(X)
    assert not hasattr(model, "net_")


def test_bad_validation_texts_are_named_as_such(checkpoints):
    texts, y = tiny.labelled(8)
    model = PretrainedTextClassifier(checkpoints("bert"))
    with pytest.raises(ValueError, match="in X_val, y_val: text 0 of X is 3, of type int"):
        model.fit(texts, y, X_val=[3], y_val=["pos"])


# ---- tokenizers ---------------------------------------------------------------------------------


@pytest.fixture
def copied(checkpoints, tmp_path):
    """``copied(family)``: a copy of a checkpoint without its tokenizer.json."""

    def copy(family):
        folder = Path(shutil.copytree(checkpoints(family), tmp_path / family))
        (folder / "tokenizer.json").unlink()
        return folder

    return copy


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_list_of_words_gives_the_ids_of_transformers(copied, family, lower):
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    folder = copied(family)
    (folder / "vocab.txt").write_text("\n".join(tiny.WORD_PIECES) + "\n", encoding="utf-8")
    if not lower:
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    theirs = legacy.BertTokenizerLegacy(str(folder / "vocab.txt"), do_lower_case=lower)
    texts = [*TEXTS, "A Fine FILM", "film-songs", "dulls the ending", "crème!"]
    for text, row in zip(texts, ids_of(folder, texts), strict=True):
        assert row[row != 0].tolist() == [i + 1 for i in theirs(text)["input_ids"]]
    assert (ids_of(folder, ["FILM"]) == ids_of(folder, ["film"])).all() == lower


def test_words_and_merges_of_gpt2_give_the_same_ids(checkpoints, copied):
    folder = copied("gpt2")
    state = json.loads((checkpoints("gpt2") / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(state["vocab"]))
    pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in state["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]) + "\n")
    texts = [*TEXTS, "naïve 😀"]
    np.testing.assert_array_equal(ids_of(folder, texts), ids_of(checkpoints("gpt2"), texts))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_a_tokenizer_is_named(copied, family):
    folder = copied(family)
    message = f"{re.escape(str(folder))} has no tokenizer.json, and no older files .vocab.txt;"
    with pytest.raises(FileNotFoundError, match=message):
        TextEmbedder(folder).fit()


def test_words_and_merges_of_roberta_need_the_whole_tokenizer(copied):
    folder = copied("roberta")
    (folder / "vocab.json").write_text("{}")
    (folder / "merges.txt").write_text("")
    with pytest.raises(
        FileNotFoundError, match=r"no tokenizer.json \(of vocab.json and merges.txt"
    ):
        TextEmbedder(folder).fit()


DAMAGED = {
    "tokenizer.json": ("", "{}", "[1]", '{"version": "1.0", "model": {"type": "Unheard"}}', "\xff"),
    "vocab.txt": ("", "good\nfilm\n"),
    "tokenizer_config.json": ("{", "[]", "3"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tokenizer_is_named(copied, name):
    folder = copied("bert")
    if name == "tokenizer_config.json":
        (folder / "vocab.txt").write_text("\n".join(tiny.WORD_PIECES))
    for content in DAMAGED[name]:
        (folder / name).write_bytes(content.encode("latin-1"))
        with pytest.raises(
            ValueError, match=f"the tokenizer in {folder} cannot be read: "
        ) as caught:
            TextEmbedder(folder).fit()
        assert caught.type is ValueError


def test_a_tokenizer_with_more_tokens_than_vectors_is_refused(checkpoints, tmp_path):
    folder = Path(shutil.copytree(checkpoints("bert"), tmp_path / "own"))
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    n = tokenizer.get_vocab_size()
    tokenizer.add_tokens(["unheard"])
    tokenizer.save(str(folder / "tokenizer.json"))
    message = (
        f"the tokenizer in {folder} numbers tokens up to {n}, but config.json and "
        f"model.safetensors have vectors for the ids below {n} only; take the tokenizer"
    )
    with pytest.raises(ValueError, match=message):
        TextEmbedder(folder).fit()


@pytest.mark.parametrize(("family", "smallest"), [("bert", 3), ("roberta", 3), ("gpt2", 1)])
def test_a_limit_leaves_room_for_a_word(checkpoints, family, smallest):
    folder = checkpoints(family)
    with pytest.warns(UserWarning, match="1 of 1 texts are longer"):
        assert ids_of(folder, ["good film"], smallest).shape == (1, smallest)
    for length in range(1, smallest):
        with pytest.raises(
            ValueError, match=rf"max_length={length} leaves no room for a word besid"
        ):
            inputs_of(folder, length)


def test_a_text_without_a_token_is_named_where_nothing_stands_for_it(checkpoints, tmp_path):
    folder = Path(shutil.copytree(checkpoints("gpt2"), tmp_path / "own"))
    config = json.loads((folder / "config.json").read_text())
    ends = {"eos_token_id": None, "bos_token_id": None}
    (folder / "config.json").write_text(json.dumps(config | ends))
    with pytest.raises(
        ValueError, match="text 1 of X has no token for this checkpoint's tokenizer"
    ):
        ids_of(folder, ["good", ""])


def test_the_spec_goes_on_as_it_is(checkpoints):
    inputs = inputs_of(checkpoints("bert"))
    assert inputs.meeting(TEXTS) is inputs
    with pytest.raises(
        ValueError, match="segments are for rows in time order, which texts are not"
    ):
        inputs.check(TEXTS, segments=np.zeros(len(TEXTS)))


def test_words_are_cut_as_the_config_of_the_tokenizer_says(tmp_path):
    words = [*tiny.SPECIAL, "sch", "##ö", "##n", "schön", "schon", "film"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"model_type": "bert", "vocab_size": len(words), "hidden_size": 8}
            | {"num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        )
    )
    for strips, word in ((False, "schön"), (True, "schon"), (None, "schon")):
        said = {"do_lower_case": True, "strip_accents": strips}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
        inputs = learn_texts("it", read_checkpoint(tmp_path), None)
        expected = [words.index(token) + 1 for token in ("[CLS]", word, "film", "[SEP]")]
        assert inputs.check(["Schön Film"])[0].tolist() == expected


def test_a_tokenizer_of_few_words_is_noticed(checkpoints, tmp_path):
    folder = Path(shutil.copytree(checkpoints("bert"), tmp_path / "own"))
    tiny.tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(tiny.SPECIAL)}).save(
        str(folder / "tokenizer.json")
    )
    with pytest.warns(UserWarning, match=r"knows 5 tokens, but model.safetensors has vectors for"):
        learn_texts("it", read_checkpoint(folder), None)


def test_sparse_texts_are_refused_with_a_sentence(checkpoints):
    column = sparse.csr_array(np.ones((3, 1)))
    with pytest.raises(ValueError, match="texts come in one column"):
        ids_of(checkpoints("bert"), column)
