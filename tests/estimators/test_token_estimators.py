"""Token ids in the estimators: what they learn, which forms of ids they take, what they refuse."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from smallmodels import ESTIMATORS, SMALL, outputs

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    SeedEnsembleClassifier,
    SequenceView,
    StackedGridSearchCV,
    measure_conditioning,
    residual_beta_path,
)
from sklearn_restrans._estimators import base
from sklearn_restrans._estimators.preparation import EpochRule

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
    assert measure_conditioning(model, ids).n_sequences == len(ids)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_other_forms_of_ids_are_the_same_ids(estimator):
    model, ids, _ = fitted(estimator)
    expected = outputs(model, ids)
    forms = [ids.tolist(), ids.astype(float), ids.astype(np.int8), ids.astype(np.uint16)]
    forms += [pd.DataFrame(ids), ids.astype(object), np.asfortranarray(ids), list(ids)]
    forms += [pd.DataFrame(ids).astype("Int64"), pl.DataFrame(ids), torch.as_tensor(ids)]
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
    (lambda ids: at(ids, 3, 0, -2), r"X\[3, 0\] is -2, not a token id; .*SequenceVectorizer"),
    (lambda ids: at(ids, 3, 0, 2.5, float), r"X\[3, 0\] is 2.5, not a token id"),
    (lambda ids: at(ids, 3, 0, np.nan, float), r"X\[3, 0\] is missing; pad with 0"),
    (lambda ids: at(ids, 3, 0, np.inf, float), r"X\[3, 0\] is inf, not a token id"),
    (lambda ids: at(ids, 3, 0, 10**12), r"X\[3, 0\] is 1000000000000, not a token id.*at most"),
    (lambda ids: ids[:, ::-1], r"row \d+ of X has id 0, which is padding, before its last token"),
    (lambda ids: ids[:, 0], r"X must be 2-D, one row of token ids per text.*1 axes"),
    (lambda ids: ids[:, :, None], r"X must be 2-D.*3 axes and shape \(90, 7, 1\)"),
    (lambda ids: ["a fine film"] * 90, "X must be 2-D.*got list with 1 axes.*SequenceVectorizer"),
    (lambda ids: np.full((90, 1), "film"), "X cannot be read as token ids"),
    (lambda ids: [[2, 3], *([2],) * 89], "X holds rows of 1 to 2 token ids; pad the shorter"),
    (lambda ids: ids > 3, "X cannot be read as token ids: its type is bool; token ids are int"),
    (lambda ids: ids + 1j, "X cannot be read as token ids: Complex data not supported; token ids"),
    (lambda ids: ids.astype("M8[s]"), "X cannot be read as token ids: its type is datetime64"),
    (lambda ids: pd.DataFrame(ids).astype("Int64").where(ids != 2), r"X\[\d+, \d\] is missing"),
    (lambda ids: pd.Series(list(ids)), r"X must be 2-D.*got Series with 1 axes and shape \(90,\)"),
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


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_token_ids_are_no_rows_in_time_order(estimator):
    ids, y = toy(estimator)
    model = estimator(**SMALL, embedding="token")
    remedy = "are for 2-D rows in time order, which token ids are not: set window=None"
    with pytest.raises(ValueError, match=rf"window=3 .*{remedy}"):
        clone(model).set_params(window=3).fit(ids, y)
    with pytest.raises(ValueError, match=rf"{remedy}, and pass no segments"):
        clone(model).fit(ids, y, segments=np.arange(90))
    with pytest.raises(ValueError, match=rf"{remedy}, and pass no segments"):
        model.fit(ids, y).predict(ids, segments=np.arange(90))


TEXTS = [
    ["a fine film"] * 90,
    "a fine film",
    np.array(["a fine film"] * 90),
    pd.Series(["a fine film"] * 90),
    pd.Series(["a fine film"] * 90, dtype="string"),
    pd.DataFrame({"text": ["a fine film"] * 90, "stars": 3.0}),
    pd.DataFrame({"text": ["a fine film"] * 90}, dtype="category"),
    pl.Series(["a fine film"] * 90),
    pl.DataFrame({"text": ["a fine film"] * 90}),
    np.full((90, 4), "film", dtype=object),
    np.full((90, 4, 2), "film"),
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("X", TEXTS)
def test_texts_are_sent_through_the_vectorizer(estimator, X):
    message = (
        "X holds text where numbers are expected: could not convert string to float: .*; "
        "texts go through SequenceVectorizer to an estimator with embedding='token'"
    )
    y = toy(estimator)[1]
    model = estimator(**SMALL)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(window=2).fit(X, y)
    names = getattr(X, "columns", ["text"])
    numbers = {name: np.random.default_rng(0).standard_normal(90) for name in names}
    model.fit(pd.DataFrame(numbers) if hasattr(X, "columns") else numbers["text"][:, None], y)
    with pytest.raises(ValueError, match=message):
        model.predict(X)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_mask_is_not_lost(estimator):
    ids, y = toy(estimator)
    masked = np.ma.masked_equal(ids, 2)
    model = estimator(**SMALL, embedding="token")
    n = masked.mask.sum()
    with pytest.raises(ValueError, match=rf"X is an array with {n} masked .* pass X.filled\(0\)"):
        model.fit(masked, y)
    plain = np.ma.array(ids)
    expected = outputs(model.fit(plain, y), ids)  # nothing is masked
    np.testing.assert_array_equal(outputs(model, plain), expected)
    with pytest.raises(ValueError, match=r"pass X.filled\(0\), where 0 is padding"):
        model.predict(masked)
    vectors = np.random.default_rng(0).standard_normal((12, 8))
    with pytest.raises(ValueError, match=r"embedding is an array with \d+ masked entries"):
        clone(model).set_params(embedding=np.ma.masked_greater(vectors, 1)).fit(ids, y)
    model = estimator(**SMALL)
    table = masked.astype(float)
    cubes = np.ma.stack([table, table], axis=2)
    for X in (table, cubes, SequenceView(table, np.arange(90), 3)):
        with pytest.raises(ValueError, match=r"masked .* X.astype\(float\).filled\(np.nan\)"):
            model.fit(X, y)
    assert np.isfinite(outputs(model.fit(masked.astype(float).filled(np.nan), y), ids)).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_frame_keep_their_names_and_order(estimator, frame):
    ids, y = toy(estimator)
    named = pd.DataFrame(ids, columns=list("abcdefg"))
    X = frame(named if frame is pd.DataFrame else {name: named[name] for name in named})
    model = estimator(**SMALL, embedding="token").fit(X, y)
    assert model.feature_names_in_.tolist() == list("abcdefg") and model.n_features_in_ == 7
    expected = outputs(model, ids)  # without names
    np.testing.assert_array_equal(outputs(model, X), expected)
    np.testing.assert_array_equal(outputs(model, named.assign(h=0)), expected)
    np.testing.assert_array_equal(
        outputs(model, X[["a", "b", "c"]]), outputs(model, ids[:, :3]), err_msg="fewer columns"
    )
    message = r"column 1 of X is 'c', but .* was fitted on 'b' there; pass the same columns"
    with pytest.raises(ValueError, match=message):
        model.predict(X[["a", "c", "b"]])
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y, X_val=X[["a", "c"]], y_val=y)
    assert not hasattr(model.fit(ids, y), "feature_names_in_")


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_ids_may_be_floats_of_any_width(estimator, dtype):
    model, ids, _ = fitted(estimator)
    np.testing.assert_array_equal(outputs(model, ids.astype(dtype)), outputs(model, ids))


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
    "form",
    [
        pd.DataFrame,
        lambda vectors: pd.DataFrame(vectors, [f"w{i}" for i in range(12)], list("abcdefgh")),
        pl.DataFrame,
        np.ndarray.tolist,
        lambda vectors: vectors.astype(object),
        lambda vectors: torch.nn.Parameter(torch.as_tensor(vectors)),
        lambda vectors: torch.as_tensor(vectors, dtype=torch.bfloat16),
        lambda vectors: torch.nn.Embedding.from_pretrained(torch.as_tensor(vectors)),
        lambda vectors: vectors.astype(np.float16),
    ],
)
def test_pretrained_vectors_come_in_any_form(form):
    ids, y = toy(ResidualTransformerClassifier)
    vectors = np.random.default_rng(0).integers(-9, 10, (12, 8)) / 8  # exact in 8 bits too
    model = ResidualTransformerClassifier(**SMALL, embedding=vectors).fit(ids, y)
    again = clone(model).set_params(embedding=form(vectors)).fit(ids, y)
    np.testing.assert_array_equal(outputs(again, ids), outputs(model, ids))
    copied = pickle.loads(pickle.dumps(clone(again).fit(ids, y)))
    np.testing.assert_array_equal(outputs(copied, ids), outputs(model, ids))


NO_NUMBERS = "embedding cannot be read as an array of numbers: "


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (np.zeros((12, 5)), "embedding has vectors of width 5, but d_model is 8; set d_model=5"),
        (np.zeros(12), r"embedding has shape \(12,\); pass an array of shape \(n_ids, d_model\)"),
        (pd.Series(np.zeros(8)), r"embedding has shape \(8,\)"),
        (np.zeros((1, 12, 8)), r"embedding has shape \(1, 12, 8\)"),
        (np.zeros((1, 8)), r"embedding has shape \(1, 8\).* rows for 0 \(padding\) and 1"),
        (np.full((12, 8), np.nan), r"embedding\[0, 0\] is nan; every vector must be finite"),
        ([[0.0] * 8, [0.0] * 7 + [np.inf]], r"embedding\[1, 7\] is inf"),
        (np.full((12, 8), -1e30), r"embedding\[0, 0\] is -1e\+30; .*scale them below 16,777,216"),
        (np.zeros((12, 8), complex), NO_NUMBERS + "its type is complex128"),
        (np.full((12, 8), "0.5"), NO_NUMBERS + "its type is <U3"),
        (pd.DataFrame(np.zeros((12, 7))).assign(word="a"), NO_NUMBERS + "could not convert string"),
        ([[0.0] * 8, [0.0] * 7], NO_NUMBERS + "setting an array element with a sequence"),
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


# -- epochs of their own ---------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_more_steps_an_epoch_make_fewer_epochs_and_a_number_stays(estimator):
    ids, y = toy(estimator, n=250)
    settings = {"embedding": "token", "d_model": 4, "random_state": 0, "conditioning_samples": 4}
    model = estimator(batch_size=1, **settings).fit(ids, y)
    assert model.max_iter == "auto" and model.n_iter_ == 4, "4 x 250 steps"
    named = estimator(batch_size=1, max_iter=4, **settings).fit(ids, y)
    np.testing.assert_array_equal(outputs(named, ids), outputs(model, ids))
    assert estimator(**settings).fit(ids[:4], y[:4]).n_iter_ == 40
    again = estimator(warm_start=True, **settings).fit(ids[:4], y[:4]).fit(ids[:4], y[:4])
    assert again.n_iter_ == 80


@pytest.mark.parametrize("embedding", ["auto", "token"])
def test_many_fits_in_one_take_the_epochs_of_one_fit(embedding, monkeypatch):
    """Folds of 60 rows, 8 steps an epoch; all 90 rows, 9 steps an epoch."""
    monkeypatch.setattr(base, "EPOCHS_OF_TEXTS", EpochRule(64, 4, 40))
    on_all, on_a_fold = (8, 8) if embedding == "token" else (20, 20)
    ids, y = toy(ResidualTransformerClassifier)
    settings = {"embedding": embedding, "d_model": 4, "random_state": 0}
    plain = ResidualTransformerClassifier(**settings)
    assert plain.fit(ids, y).n_iter_ == on_all
    path = residual_beta_path(ids, y, [0.0, 1.0], estimator=plain, cv=3)
    assert {fitted.n_iter_ for fitted in path.estimators.values()} == {on_a_fold}
    search = ResidualTransformerClassifierCV([0.0, 1.0], cv=3, **settings).fit(ids, y)
    assert search.n_iter_ == on_all
    grid = StackedGridSearchCV(plain, {"learning_rate_init": [1e-3, 5e-3]}, cv=3).fit(ids, y)
    assert grid.best_estimator_.n_iter_ == on_all
    ensemble = SeedEnsembleClassifier(plain, n_estimators=2, random_state=0).fit(ids, y)
    assert {member.n_iter_ for member in ensemble.estimators_} == {on_all}
    early = clone(plain).set_params(early_stopping=True).fit(ids, y)
    assert early.n_iter_ == (8 if embedding == "token" else 20), "81 rows, 9 steps an epoch"


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_goes_on_with_the_vocabulary_it_has(estimator):
    model, ids, y = fitted(estimator, warm_start=True)
    before = model.net_.module_.W_in.detach().clone()
    with pytest.warns(UserWarning, match="below 9: 1 ids of X, such as 20, are treated as unknown"):
        model.fit(np.where(ids == 8, 20, ids)[:40, :3], y[:40])
    after = model.net_.module_.W_in.detach()
    assert model.n_iter_ == 6 and after.shape == before.shape
    assert not torch.equal(after[1], before[1]), "20 is unknown, and was trained as such"
    with pytest.raises(ValueError, match="cannot change embedding from 'token' to 'auto'"):
        model.set_params(embedding="auto").fit(ids, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_warm_start_learns_ids_that_only_the_second_fit_sees(estimator):
    first, second = np.tile([[2], [9]], (10, 1)), np.tile([[5], [6]], (10, 1))
    y = [1, 0] * 10
    settings = {"embedding": "token", "d_model": 8, "max_iter": 30, "random_state": 0}
    model = estimator(warm_start=True, **settings).fit(first, y)
    kept = outputs(model, second)
    with pytest.raises(ValueError, match="None"):
        model.fit(second, None)
    np.testing.assert_array_equal(outputs(model, second), kept)  # a fit that fails teaches none
    assert model.fit(second, y).score(second, y) > 0.9


def test_beta_is_chosen_on_tokens_too():
    ids, y = toy(ResidualTransformerClassifier)
    search = ResidualTransformerClassifierCV(
        [0.0, 1.0], cv=2, embedding="token", d_model=8, max_iter=3, random_state=0
    ).fit(ids, y)
    assert search.residual_beta_ in (0.0, 1.0)
    assert search.predict(ids).shape == (90,)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_width_of_x_in_fit_changes_no_bit_either(estimator, seed):
    ids, y = toy(estimator, seed=seed)
    settings = SMALL | {"embedding": "token"}
    narrow = estimator(**settings).fit(ids, y)
    wide = estimator(**settings).fit(np.pad(ids, ((0, 0), (0, 13))), y)
    np.testing.assert_array_equal(outputs(narrow, ids), outputs(wide, ids))
    # Measured on the same sequences: how many is told by their tokens, not by their padding.
    wider = estimator(**settings).fit(np.pad(ids, ((0, 0), (0, 300))), y)
    expected = narrow.conditioning_.to_frame()
    pd.testing.assert_frame_equal(wider.conditioning_.to_frame(), expected, rtol=1e-6)
