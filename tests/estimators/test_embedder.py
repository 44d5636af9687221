"""Vectors of texts: in pipelines and columns, stored and restored, and to the bit for each text."""

import copy
import os
import pickle
import shutil
import threading
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import tinycheckpoints as tiny
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from tinycheckpoints import FAMILIES, TEXTS

from sklearn_restrans import TextEmbedder


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_of_a_text_do_not_depend_on_the_others(checkpoints, family):
    embedder = TextEmbedder(checkpoints(family), residual_beta=0.7).fit()
    whole = embedder.transform(TEXTS * 30)
    np.testing.assert_array_equal(whole, np.tile(embedder.transform(TEXTS), (30, 1)))
    alone = np.vstack([embedder.transform([text]) for text in TEXTS])
    np.testing.assert_array_equal(alone, embedder.transform(TEXTS))
    order = np.random.default_rng(0).permutation(len(TEXTS))
    shuffled = embedder.transform([TEXTS[k] for k in order])
    np.testing.assert_array_equal(shuffled, embedder.transform(TEXTS)[order])


def test_types_of_the_vectors(checkpoints):
    folder = checkpoints("bert")
    found = {
        dtype: TextEmbedder(folder, dtype=dtype).fit().transform(TEXTS)
        for dtype in ("auto", "float32", "float64", "bfloat16")
    }
    assert {k: v.dtype.name for k, v in found.items()} == {
        "auto": "float32",
        "float32": "float32",
        "float64": "float64",
        "bfloat16": "float32",
    }
    np.testing.assert_array_equal(found["auto"], found["float32"])
    # products of 8 bits of mantissa; vectors have size 1
    error = np.abs(found["bfloat16"] - found["float64"]).max()
    assert 1e-4 < error < 0.2


def stored(embedder, way, tmp_path):
    if way == "pickle":
        return pickle.loads(pickle.dumps(embedder))
    if way == "deepcopy":
        return copy.deepcopy(embedder)
    joblib.dump(embedder, tmp_path / "embedder.joblib")
    return joblib.load(tmp_path / "embedder.joblib")


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_a_copy_needs_the_folder_no_more(checkpoints, tmp_path, way, offline):
    folder = Path(shutil.copytree(checkpoints("gpt2"), tmp_path / "own"))
    embedder = TextEmbedder(folder, residual_beta=[0.3, 0.9], n_layers=2).fit()
    expected = embedder.transform(TEXTS)
    again = stored(embedder, way, tmp_path)
    shutil.rmtree(folder)
    for one in (again, stored(again, way, tmp_path), embedder):
        np.testing.assert_array_equal(one.transform(TEXTS), expected)
    assert again.encoder_.W_in.data_ptr() != embedder.encoder_.W_in.data_ptr()
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        clone(embedder).fit()
    unfitted = stored(TextEmbedder(folder), way, tmp_path)
    with pytest.raises(NotFittedError):
        unfitted.transform(TEXTS)


def test_a_fit_that_fails_leaves_the_last_one(checkpoints):
    embedder = TextEmbedder(checkpoints("bert")).fit()
    expected = embedder.transform(TEXTS)
    with pytest.raises(ValueError, match="n_layers=9"):
        embedder.set_params(n_layers=9).fit()
    with pytest.raises(ValueError, match="residual_beta must be"):
        embedder.set_params(n_layers=None, residual_beta=np.ones((2, 2))).fit()
    np.testing.assert_array_equal(embedder.transform(TEXTS), expected)


def test_a_linear_model_on_vectors_learns(checkpoints):
    texts, y = tiny.labelled(100)
    model = make_pipeline(TextEmbedder(checkpoints("bert")), LogisticRegression())
    assert model.fit(texts, y).score(texts, y) > 0.7  # by chance: 0.5 +- 0.05
    grid = {"textembedder__n_layers": [1, 3], "textembedder__residual_beta": [0.5, 1.0]}
    search = GridSearchCV(model, grid, cv=2).fit(texts, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("column", ["text", ["text"]])
def test_a_column_of_a_frame_among_numbers(checkpoints, column):
    texts, y = tiny.labelled(40)
    frame = pd.DataFrame({"stars": np.arange(40.0), "text": texts})
    embedder = TextEmbedder(checkpoints("bert"))
    columns = make_column_transformer((embedder, column), ("passthrough", ["stars"]))
    made = columns.fit_transform(frame)
    np.testing.assert_array_equal(made[:, :-1], clone(embedder).fit().transform(texts))
    np.testing.assert_array_equal(made[:, -1], frame["stars"])
    names = [f"textembedder__textembedder{k}" for k in range(16)]
    assert columns.get_feature_names_out().tolist() == [*names, "passthrough__stars"]
    assert (
        make_pipeline(columns, LogisticRegression(max_iter=2000)).fit(frame, y).score(frame, y)
        > 0.5
    )
    as_frame = clone(embedder).set_output(transform="pandas").fit(frame["text"])
    assert as_frame.transform(frame["text"]).shape == (40, 16)


def test_before_fit_there_are_no_vectors(checkpoints):
    with pytest.raises(NotFittedError, match="This TextEmbedder instance is not fitted yet"):
        TextEmbedder(checkpoints("bert")).transform(TEXTS)


def test_fit_learns_nothing_of_x(checkpoints):
    folder = checkpoints("roberta")
    expected = TextEmbedder(folder).fit().transform(TEXTS)
    for X in (["x"], None, [3]):
        np.testing.assert_array_equal(TextEmbedder(folder).fit(X).transform(TEXTS), expected)
    embedder = TextEmbedder(folder)
    np.testing.assert_array_equal(embedder.fit_transform(TEXTS), expected)
    assert not embedder.encoder_.training
    assert not any(
        weight.requires_grad
        for name, weight in embedder.encoder_.named_parameters()
        if name not in ("W_U", "b_U")
    )


def test_threads_may_share_a_fitted_embedder(checkpoints):
    embedder = TextEmbedder(checkpoints("bert")).fit()
    expected, found = embedder.transform(TEXTS), {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: embedder.transform(TEXTS)}))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        np.testing.assert_array_equal(found[k], expected)


def test_nothing_of_the_process_changes(checkpoints):
    def state():
        return (
            torch.get_num_threads(),
            torch.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
            list(warnings.filters),
            dict(os.environ),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
        )

    before = state()
    TextEmbedder(checkpoints("gpt2"), n_threads=2, dtype="float64").fit().transform(TEXTS)
    assert state() == before
