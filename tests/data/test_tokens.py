"""Token ids and pretrained vectors: what they may be, and how far texts are padded.

What the estimators make of them is in `test_token_estimators.py`.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from sklearn_restrans._data.tokens import as_ids, padded_length, pretrained_vectors, takes_ids

IDS = np.array([[3, 1, 4], [1, 5, 0]])


@pytest.mark.parametrize(
    "form",
    [
        IDS,
        IDS.tolist(),
        IDS.astype(np.uint8),
        IDS.astype(np.float16),
        IDS.astype(object),
        pd.DataFrame(IDS).astype("Int64"),
        torch.as_tensor(IDS),
    ],
)
def test_ids_in_any_form_are_the_same_array(form):
    found = as_ids(form, "Model")
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, IDS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (IDS - 4, r"X\[0, 0\] is -1.*token ids are integers >= 0"),
        (IDS + 0.5, r"X\[0, 0\] is 3.5"),
        (np.where(IDS == 5, np.nan, IDS), r"X\[1, 1\] is missing; pad with 0"),
        (IDS * 1_000_000, r"X\[0, 0\] is 3000000.* at most 1,999,999"),
        (IDS[0], r"X must be 2-D, one row of token ids per text, got ndarray with 1 axes"),
        (IDS == 1, "X cannot be read as token ids: its type is bool"),
        ([[1, 2], [1]], "X holds rows of 1 to 2 token ids"),
        (np.ma.masked_equal(IDS, 5), r"X is an array with 1 masked .* pass X.filled\(0\)"),
    ],
)
def test_what_cannot_be_an_id_is_named_with_its_place(X, message):
    with pytest.raises(ValueError, match=message):
        as_ids(X, "Model")


@pytest.mark.parametrize(
    ("embedding", "expected"), [("auto", False), ("token", True), (np.zeros((3, 2)), True)]
)
def test_ids_are_taken_by_name_or_with_their_vectors(embedding, expected):
    assert takes_ids(embedding) is expected


def test_the_ladder_of_padded_lengths():
    ladder = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    expected = [next(step for step in ladder if step >= n) for n in range(1, 513)]
    assert padded_length(np.arange(1, 513)).tolist() == expected
    assert padded_length(0) == 8 and padded_length(10_000) == 12_288


def test_vectors_are_a_float64_copy():
    assert pretrained_vectors("token", 4) is None
    given = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = pretrained_vectors(given, 2)
    assert found.dtype == np.float64
    found[:] = -1
    np.testing.assert_array_equal(given, [[0, 1], [2, 3], [4, 5]])
    module = torch.nn.Embedding.from_pretrained(torch.as_tensor(given))
    np.testing.assert_array_equal(pretrained_vectors(module, 2), given)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -(2.0**25)])
def test_an_entry_that_training_could_not_move_is_named(entry):
    vectors = np.zeros((3, 2))
    vectors[2, 1] = entry
    with pytest.raises(ValueError, match=r"embedding\[2, 1\] is .*scale them below 16,777,216"):
        pretrained_vectors(vectors, 2)
