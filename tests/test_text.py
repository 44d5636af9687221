"""Texts: what the vectorizer makes of them, and what the estimators make of its token ids.

Token ids are held against one-hot channels, which `test_core.py` holds against the formulas of the
paper, and against those formulas once more, one text at a time and without padding.
"""

import copy
import pickle
import sys
import time
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from smallmodels import ESTIMATORS, SAME, SMALL, outputs
from test_core import reference_sequence
from test_fast import output_and_gradients, random_model

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    SequenceVectorizer,
    _core,
    _fast,
    conditioning,
)
from sklearn_restrans._core import Architecture, ResidualTransformer
from sklearn_restrans._data import TokenSource, TrainingSet, padded_length
from sklearn_restrans._optimizer import make_optimizer, take_step

CPU = torch.device("cpu")
# Relative to the largest entry: re-associated float64 sums of at most 40 terms.
EXACT = 1e-12

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
        {"tokenizer": lambda text: text.split(",")},
    ],
)
def test_the_vocabulary_is_that_of_count_vectorizer(settings):
    texts = [*TEXTS, "film film film film the the the the", "The the A and"]
    ours = SequenceVectorizer(**settings).fit(texts)
    settings = {"token_pattern": SequenceVectorizer().token_pattern, **settings}
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


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("😀😀 great👍", ["😀", "😀", "great", "👍"]),
        ("סרט טוב מאוד!", ["סרט", "טוב", "מאוד", "!"]),
        ("فيلم جميل، نعم", ["فيلم", "جميل", "،", "نعم"]),
        ("don’t — ça va", ["don’t", "—", "ça", "va"]),
        ("\u200f \n\t ", ["\u200f"]),
        ("e\u0301tude\x00", ["e", "\u0301", "tude", "\x00"]),
    ],
)
def test_any_script_is_text(text, tokens):
    vectorizer = SequenceVectorizer().fit([text])
    assert vectorizer.inverse_transform(vectorizer.transform([text])) == [tokens]


@pytest.mark.parametrize("text", ["", "   \n", "unheard of words", "צ 😀"])
def test_texts_without_a_known_token_are_unknown_tokens(text):
    row = SequenceVectorizer().fit(TEXTS).transform([text])[0]
    assert row[0] == 1 and set(row.tolist()) <= {0, 1}


@pytest.mark.parametrize("form", [list, tuple, np.array, pd.Series, iter])
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
    (["film", b"film"], r"text 1 of X is bytes \(b'film'\): decode it"),
    (["film", 3.5], "text 1 of X is 3.5, of type float, not a str"),
    ([["a", "film"]], "text 0 of X is .*of type list, not a str"),
    (pd.DataFrame({"text": ["film"]}), r"X has shape \(1, 1\).* pass X\['name'\]"),
    (np.array([["film"]]), r"X has shape \(1, 1\).*ravel"),
    ({"film": 1}, "must be a list, Series or array of texts, got dict"),
    (7, "must be a list, Series or array of texts, got int"),
    ([], "X holds 0 texts"),
]


@pytest.mark.parametrize(("X", "message"), BAD_TEXTS)
def test_what_is_no_text_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer().fit(X)
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer().fit(TEXTS).transform(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_df": 7}, "no token is left of 6 texts; lower min_df"),
        ({"token_pattern": r"(a)(b)"}, "token_pattern has 2 groups"),
        ({"min_df": 0.5, "subword": "bpe"}, "count of a merged pair"),
        ({"max_length": 0}, "max_length"),
        ({"min_df": 1.5}, "min_df"),
        ({"subword": "unigram"}, "subword"),
        ({"tokenizer": 3}, "tokenizer"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer(**settings).fit(TEXTS)


# -- subwords --------------------------------------------------------------------------------------


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


def test_subwords_without_the_library_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install sklearn_restrans\[text\]"):
        SequenceVectorizer(subword="bpe").fit(TEXTS)


@pytest.mark.parametrize("subword", [None, "bpe", "wordpiece"])
def test_copies_give_the_same_ids(subword):
    vectorizer = SequenceVectorizer(subword=subword).fit(TEXTS)
    for copied in (pickle.loads(pickle.dumps(vectorizer)), copy.deepcopy(vectorizer)):
        np.testing.assert_array_equal(copied.transform(TEXTS), vectorizer.transform(TEXTS))
    assert not hasattr(clone(vectorizer), "vocabulary_")


def test_columns_are_places_in_the_text():
    vectorizer = SequenceVectorizer().fit(TEXTS)
    names = [f"token{k}" for k in range(8)]
    assert vectorizer.get_feature_names_out().tolist() == names
    frame = vectorizer.set_output(transform="pandas").transform(TEXTS)
    assert frame.columns.tolist() == names and (frame.dtypes == np.int32).all()


# -- the model: a token id is a one-hot channel ----------------------------------------------------

V, T, N, K = 7, 6, 4, 3
OPTIONS = {
    "n_layers": (1, 2),
    "n_heads": (1, 2),
    "norm": (None, "pre", "post"),
    "positions": ("learned", "sinusoidal", None),
    "readout": ("last", "mean"),
}
COMBINATIONS = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]
LENGTHS = torch.tensor([6, 4, 1, 3])


def token_architecture(**changes):
    small = dict(n_outputs=2, d_model=4, d_ff=6, activation="gelu", learn_beta=True)
    return Architecture(T, V, **(small | {"embedding": "token"} | changes))


def random_ids(lead=(), seed=0):
    ids = torch.tensor(np.random.default_rng(seed).integers(1, V, (*lead, N, T)))
    return ids * (torch.arange(T) < LENGTHS[:, None])


@pytest.mark.parametrize("lead", [(), (K,)])
def test_outputs_and_gradients_are_those_of_one_hot_channels(lead, seed):
    for number, options in enumerate(COMBINATIONS):
        n_candidates = lead[0] if lead else None
        arch = token_architecture(n_candidates=n_candidates, **options)
        model = random_model(arch, seed + number)
        twin = ResidualTransformer(_fast.replace(arch, embedding="linear")).double()
        twin.load_state_dict(model.state_dict())
        data_lead = lead if number % 2 else ()
        ids = random_ids(data_lead, seed + number)
        one_hot = torch.nn.functional.one_hot(ids, V).double()
        mask = ids != 0
        expected = output_and_gradients(twin, twin, one_hot, mask)
        for function in (model, lambda *args, model=model: _fast.forward(model, *args)):
            got = output_and_gradients(function, model, ids, mask)
            for name, value in expected.items():
                error = (got[name] - value).abs().max()
                assert error <= EXACT * value.abs().max(), (name, options, float(error))


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_outputs_are_the_formulas_of_each_text_alone(readout, seed):
    """Plain numpy, one text at a time, its real tokens only."""
    model = random_model(token_architecture(readout=readout, n_layers=2), seed)
    ids = random_ids(seed=seed)
    got = _fast.forward(model, ids, ids != 0).detach().numpy()
    for row, length, output in zip(ids.numpy(), LENGTHS.tolist(), got, strict=True):
        expected, _ = reference_sequence(model, np.eye(V)[row], range(length))
        assert np.abs(output - expected).max() <= EXACT * np.abs(expected).max()


def test_a_shorter_batch_is_the_same_texts(seed):
    model = random_model(token_architecture(n_layers=2), seed)
    ids = random_ids(seed=seed)[1:]
    long, short = (_fast.forward(model, x, x != 0) for x in (ids, ids[:, :4]))
    torch.testing.assert_close(long, short, rtol=EXACT, atol=EXACT)
    with pytest.raises(ValueError, match=r"token ids \(n, t\).* t <= 6"):
        model(torch.ones(2, 7, dtype=torch.int64))
    with pytest.raises(ValueError, match="token ids"):
        model(torch.ones(2, 2, 3, dtype=torch.int64))


def test_gradients_of_the_vectors_equal_finite_differences(seed):
    model = random_model(token_architecture(n_layers=2, norm="pre"), seed)
    ids = random_ids(seed=seed)

    def function(W_in, positions):
        state = {"W_in": W_in, "positions": positions}
        return torch.func.functional_call(model, state, (ids, ids != 0))

    weights = [w.detach().clone().requires_grad_() for w in (model.W_in, model.positions)]
    assert torch.autograd.gradcheck(function, weights)
    assert torch.autograd.gradgradcheck(function, weights)  # solver="gd" measures curvature


@pytest.mark.parametrize("own_data", [False, True])
def test_stacked_candidates_are_the_separate_models(own_data, seed):
    for readout in ("last", "mean"):
        models = [random_model(token_architecture(readout=readout), seed + k) for k in range(K)]
        stacked = ResidualTransformer.stack(models)
        ids = random_ids((K,) if own_data else (), seed)
        together = _fast.forward(stacked, ids, ids != 0)
        together.square().sum().backward()
        for k, model in enumerate(models):
            own = ids[k] if own_data else ids
            alone = _fast.forward(model, own, own != 0)
            alone.square().sum().backward()
            torch.testing.assert_close(together[k], alone, rtol=EXACT, atol=EXACT)
            gradient = stacked.W_in.grad[k]
            torch.testing.assert_close(gradient, model.W_in.grad, rtol=EXACT, atol=EXACT)
        for model, again in zip(models, stacked.unstack(), strict=True):
            assert torch.equal(model.W_in, again.W_in)


# -- batches by length -----------------------------------------------------------------------------


def test_the_ladder_of_padded_lengths():
    ladder = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    expected = [next(step for step in ladder if step >= n) for n in range(1, 513)]
    assert padded_length(np.arange(1, 513)).tolist() == expected
    assert padded_length(0) == 8 and padded_length(10_000) == 12_288


def lengths_of_rows(n, longest, seed=0):
    """Token ids of n rows of random lengths, few of them long."""
    rng = np.random.default_rng(seed)
    length = np.minimum(rng.geometric(0.1, n), longest)
    length[:2] = longest, 1
    ids = rng.integers(1, 50, (n, longest))
    return ids * (np.arange(longest) < length[:, None]), length


def test_rows_of_like_length_meet_in_a_batch(seed):
    ids, _ = lengths_of_rows(4_000, 60, seed)
    source = TokenSource(ids, CPU)
    rows = np.random.default_rng(seed).permutation(4_000)[:3_333]
    data = TrainingSet(source, torch.zeros(3_333), None, rows)

    def order(seed):
        return data.order(64, torch.Generator().manual_seed(seed))

    first = order(seed)
    assert sorted(first) == list(range(3_333))
    np.testing.assert_array_equal(order(seed), first)
    assert (order(seed + 1) != first).mean() > 0.9
    batches = [source.lengths[rows[first[i : i + 64]]] for i in range(0, 3_333, 64)]
    # All but the few that hold a border between two of the six lengths of this data.
    assert np.mean([len(set(batch)) == 1 for batch in batches]) > 0.8
    computed = sum(batch.max() * len(batch) for batch in batches)
    assert computed < 1.1 * source.lengths[rows].sum()
    means = [batch.mean() for batch in batches[:-1]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5, "not short ones first"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 32},
        {"d_model": 15, "n_heads": 3, "n_layers": 2, "readout": "last"},
        {"d_model": 64, "n_heads": 2, "norm": "pre", "activation": "gelu"},
        {"d_model": 8, "readout": "last", "positions": None},
    ],
)
def test_padding_and_company_change_no_bit_of_a_prediction(settings, dtype, seed):
    ids, _ = lengths_of_rows(300, 70, seed)
    y = ids[:, 0] % 3
    model = ResidualTransformerClassifier(
        embedding="token", max_iter=1, dtype=dtype, random_state=seed, **settings
    ).fit(ids, y)
    expected = model.predict_proba(ids)
    for wider in (1, 26, 200):
        np.testing.assert_array_equal(
            model.predict_proba(np.pad(ids, ((0, 0), (0, wider)))), expected
        )
    order = np.random.default_rng(seed).permutation(300)
    for rows in (order, order[:7], [5], np.repeat(order[:40], 5), *([row] for row in order[:12])):
        cut = max(1, int((ids[rows] != 0).sum(axis=1).max()))
        np.testing.assert_array_equal(model.predict_proba(ids[rows][:, :cut]), expected[rows])


def test_predictions_are_those_of_unpadded_texts(seed):
    ids, length = lengths_of_rows(60, 40, seed)
    y = np.random.default_rng(seed).standard_normal(60)
    model = ResidualTransformerRegressor(
        embedding="token", n_layers=2, dtype="float64", **SMALL
    ).fit(ids, y)
    module = model.net_.module_
    for row, n in enumerate(length):
        with torch.no_grad():
            alone = module(torch.as_tensor(ids[row : row + 1, :n])).numpy()
        np.testing.assert_allclose(
            model.predict(ids[row : row + 1]), model._y_scaler.inverse(alone)[:, 0], **SAME
        )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_width_of_x_in_fit_changes_no_bit_either(estimator, seed):
    ids, y = toy(estimator, seed=seed)
    settings = SMALL | {"embedding": "token"}
    narrow = estimator(**settings).fit(ids, y)
    wide = estimator(**settings).fit(np.pad(ids, ((0, 0), (0, 13))), y)
    np.testing.assert_array_equal(outputs(narrow, ids), outputs(wide, ids))


def test_validation_loss_is_the_mean_over_texts(seed):
    """In eval mode each text by itself gives the same loss, in float64 to rounding."""
    ids, _ = lengths_of_rows(120, 40, seed)
    y = ids[:, 0] % 2
    model = ResidualTransformerClassifier(embedding="token", dtype="float64", **SMALL)
    model.fit(ids[:60], y[:60], X_val=ids[60:], y_val=y[60:])
    p = model.predict_proba(ids[60:])[np.arange(60), y[60:]]
    assert -model.best_validation_score_ == pytest.approx(-np.log(p).mean(), rel=1e-9)


def test_a_rare_token_moves_by_a_few_steps():
    """A gradient g once, long after the start: the sum over k of lr m_k / sqrt(v_k), with
    m_k = (1 - b1) b1^k g and v_k = (1 - b2) b2^k g^2; 0.999 would give 31 lr.
    """
    model = ResidualTransformer(token_architecture())
    model.reset_parameters("gaussian", torch.Generator().manual_seed(0))
    optimizer = make_optimizer(model, "adamw", 1e-3, 0.0)
    before = model.W_in.detach().clone()
    for step in range(500):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        model.W_in.grad[3] = 0.1 * (step == 400)
        take_step(optimizer)
    moved = (before - model.W_in.detach()) / 1e-3
    expected = sum(0.1 * 0.9**k / (0.02 * 0.98**k) ** 0.5 for k in range(100))
    assert expected == pytest.approx(7.8, abs=0.1)
    # eps = 1e-8 of Adam and float32 weights of size 1, which round steps of 1e-3 to 1e-4 of them
    np.testing.assert_allclose(moved[3].numpy(), expected, rtol=1e-2)
    assert not moved[[0, 1, 2, 4, 5, 6]].any()


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_dropout_takes_channels_of_token_vectors(readout, monkeypatch, seed):
    """If it drops everything, every text gives one and the same output."""
    monkeypatch.setattr(_core, "dropout", lambda x, p, training: 0.0 * x)
    model = random_model(token_architecture(readout=readout, positions=None), seed)
    ids = random_ids(seed=seed)
    got = _fast.forward(model, ids, ids != 0)
    torch.testing.assert_close(got, got[:1].expand_as(got), rtol=EXACT, atol=EXACT)


# -- the estimators --------------------------------------------------------------------------------


def toy(estimator, n=90, seed=0):
    """Token ids of unequal lengths up to 7, and targets that the token 2 decides."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(2, 9, (n, 7)) * (np.arange(7) < rng.integers(1, 8, (n, 1)))
    share = (ids == 2).sum(axis=1) / (ids != 0).sum(axis=1)
    return ids, share if estimator is ResidualTransformerRegressor else (share > 0).astype(int)


def fitted(estimator, seed=0, **settings):
    ids, y = toy(estimator, seed=seed)
    return estimator(**(SMALL | {"embedding": "token"} | settings)).fit(ids, y), ids, y


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_model_learns_from_tokens(estimator):
    model, ids, y = fitted(estimator, max_iter=40, learning_rate_init=0.02)
    assert model.score(ids, y) > 0.9
    assert model.net_.module_.arch.embedding == "token" and model.n_features_in_ == 7
    assert model.net_.module_.arch.readout == "mean"
    assert np.isfinite(model.conditioning_.sigma_min).all()
    assert conditioning(model, ids).n_sequences == len(ids)


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


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_other_forms_of_ids_are_the_same_ids(estimator):
    model, ids, _ = fitted(estimator)
    expected = outputs(model, ids)
    forms = [ids.tolist(), ids.astype(float), ids.astype(np.int8), ids.astype(np.uint16)]
    forms += [pd.DataFrame(ids), ids.astype(object), np.asfortranarray(ids), list(ids)]
    for form in forms:
        np.testing.assert_array_equal(outputs(model, form), expected)
        again = clone(model).fit(form, toy(estimator)[1])
        np.testing.assert_array_equal(outputs(again, ids), expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_token_and_unseen_tokens_count_as_unknown(estimator):
    model, _, _ = fitted(estimator)
    one = outputs(model, [[1, 0, 0], [3, 1, 4]])
    np.testing.assert_array_equal(outputs(model, [[0, 0, 0], [3, 9, 4]]), one)
    np.testing.assert_array_equal(outputs(model, [[999, 0, 0], [3, 10**6, 4]]), one)
    ids, y = toy(estimator)
    gap = np.where(ids == 5, 6, ids)  # 5 lies within the table, but fit never saw it
    model = clone(model).fit(gap, y)
    np.testing.assert_array_equal(outputs(model, [[3, 5]]), outputs(model, [[3, 1]]))
    assert not np.array_equal(outputs(model, [[3, 6]]), outputs(model, [[3, 1]]))


def at(ids, row, column, value, dtype=None):
    ids = ids.astype(dtype or ids.dtype)
    ids[row, column] = value
    return ids


BAD_IDS = [
    (lambda ids: at(ids, 3, 0, -2), r"X\[3, 0\] is -2, no token id; .*SequenceVectorizer"),
    (lambda ids: at(ids, 3, 0, 2.5, float), r"X\[3, 0\] is 2.5, no token id"),
    (lambda ids: at(ids, 3, 0, np.nan, float), r"X\[3, 0\] is missing; pad with 0"),
    (lambda ids: at(ids, 3, 0, np.inf, float), r"X\[3, 0\] is inf, no token id"),
    (lambda ids: at(ids, 3, 0, 10**12), r"X\[3, 0\] is 1000000000000, no token id.*at most"),
    (lambda ids: ids[:, ::-1], r"row \d+ of X has id 0, which is padding, before its last token"),
    (lambda ids: ids[:, 0], r"X must be 2-D, one row of token ids per text.*1 axes"),
    (lambda ids: ids[:, :, None], r"X must be 2-D.*3 axes and shape \(90, 7, 1\)"),
    (lambda ids: ["a fine film"] * 90, "X must be 2-D.*got list with 1 axes.*SequenceVectorizer"),
    (lambda ids: np.full((90, 1), "film"), "X cannot be read as token ids"),
    (lambda ids: [[2, 3], *([2],) * 89], "X holds rows of 1 to 2 token ids; pad the shorter"),
    (lambda ids: ids[:0], r"0 sample"),
    (lambda ids: ids[:, :0], r"0 feature"),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("change", "message"), BAD_IDS)
def test_what_are_no_ids_is_refused(estimator, change, message):
    model, ids, y = fitted(estimator)
    bad = change(ids)
    with pytest.raises(ValueError, match=message):
        model.predict(bad)
    with pytest.raises(ValueError, match=message):
        clone(model).fit(bad, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_longer_texts_than_fit_saw_are_refused(estimator):
    model, _, _ = fitted(estimator)
    assert len(model.predict(np.full((1, 8), 3))) == 1  # up to the next padded length
    with pytest.raises(ValueError, match=r"row 1 of X has 9 tokens, but .* rows of 7 .* up to 8;"):
        model.predict(np.pad(np.full((2, 9), 3), ((0, 0), (0, 5))) * [[0], [1]])
    with pytest.raises(ValueError, match="window=3 is for 2-D rows in time order"):
        clone(model).set_params(window=3).fit(*toy(estimator))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_pretrained_vectors_are_where_training_starts(estimator, seed):
    ids, y = toy(estimator, seed=seed)
    vectors = np.random.default_rng(seed).standard_normal((12, 8))
    settings = SMALL | {"embedding": vectors, "dtype": "float64", "weight_decay": 0.0}
    still = estimator(**(settings | {"learning_rate_init": 1e-12})).fit(ids, y)
    # three epochs of two steps of at most 1e-12 each
    assert np.abs(still.net_.module_.W_in.detach().numpy() - vectors).max() < 1e-10
    model = estimator(**settings).fit(ids, y)
    table = model.net_.module_.W_in.detach().numpy()
    moved = np.abs(table - vectors).max(axis=1) > 1e-4
    assert moved[2:9].all() and not moved[[0, 1, 9, 10, 11]].any(), "fine-tuned where seen"
    # 9 was not in fit, but has its vector; 12 has none
    assert not np.array_equal(outputs(model, [[9, 3]]), outputs(model, [[1, 3]]))
    with pytest.raises(ValueError, match=r"token id 12 in row 1, but .* ids 0 to 11 only"):
        model.predict([[2, 3], [2, 12]])
    with pytest.raises(ValueError, match=r"token id 12 in row 1"):
        clone(model).fit(at(ids, 1, 0, 12), y)
    np.testing.assert_array_equal(outputs(clone(model).fit(ids, y), ids), outputs(model, ids))
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(copied, ids), outputs(model, ids))
    np.testing.assert_array_equal(vectors, settings["embedding"])


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (np.zeros((12, 5)), "embedding has vectors of width 5, but d_model is 8; set d_model=5"),
        (np.zeros(12), "Expected 2D array"),
        (np.full((12, 8), np.nan), "Input embedding contains NaN"),
        ("tokens", "embedding"),
        (None, "embedding"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(embedding, message):
    ids, y = toy(ResidualTransformerRegressor)
    with pytest.raises(ValueError, match=message):
        ResidualTransformerRegressor(**SMALL, embedding=embedding).fit(ids, y)


SETTINGS = [
    {"learn_beta": True, "residual_beta": (0.5, 2.0)},
    {"norm": "pre", "n_layers": 2, "n_heads": 2, "dropout": 0.3},
    {"readout": "last", "positions": "sinusoidal", "init": "orthogonal"},
    {"solver": "gd", "learning_rate_init": "auto", "max_iter": 3},
    {"solver": "sgd", "learning_rate_init": "auto", "norm": "post", "positions": None},
    {"early_stopping": True, "conditioning_interval": 1, "init": "zero_unembedding"},
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_option_works_on_tokens(estimator, settings):
    model, ids, y = fitted(estimator, **settings)
    expected = outputs(model, ids)
    assert np.isfinite(expected).all()
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(outputs(copied, ids), expected)
    again = clone(model).fit(ids, y)
    np.testing.assert_array_equal(outputs(again, ids), expected)
    weighted = clone(model).fit(ids, y, sample_weight=np.full(len(y), 2.0))
    np.testing.assert_allclose(outputs(weighted, ids), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_goes_on_with_the_vocabulary_it_has(estimator):
    model, ids, y = fitted(estimator, warm_start=True)
    before = model.net_.module_.W_in.detach().clone()
    model.fit(np.where(ids == 8, 20, ids)[:40, :3], y[:40])
    after = model.net_.module_.W_in.detach()
    assert model.n_iter_ == 6 and after.shape == before.shape
    assert not torch.equal(after[1], before[1]), "20 is unknown, and was trained as such"
    with pytest.raises(ValueError, match="cannot change embedding from 'token' to 'auto'"):
        model.set_params(embedding="auto").fit(ids, y)


def test_beta_is_chosen_on_tokens_too():
    ids, y = toy(ResidualTransformerClassifier)
    search = ResidualTransformerClassifierCV(
        [0.0, 1.0], cv=2, embedding="token", d_model=8, max_iter=3, random_state=0
    ).fit(ids, y)
    assert search.residual_beta_ in (0.0, 1.0)
    assert search.predict(ids).shape == (90,)


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
