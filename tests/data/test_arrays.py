"""Arrays as users pass them: their axes, and the sentences for what cannot be read."""

import numpy as np
import pandas as pd
import pytest
import torch

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans._data.arrays import n_axes, refuse_masked, refuse_unequal_lengths


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (1.0, 0),
        ([], 0),
        ([1, 2], 1),
        ([[1, 2], [3, 4]], 2),
        ([(1, 2)], 2),
        (np.ones((2, 3, 4)), 3),
        ([np.ones((3, 4))], 3),
        ([[torch.ones(4)]], 3),
        (pd.DataFrame([[1, 2]]), 2),
        ("text", 0),
    ],
)
def test_axes_are_counted_without_a_conversion(X, expected):
    assert n_axes(X) == expected


@pytest.mark.parametrize("to", [list, lambda rows: np.array(rows, dtype=object)])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([np.ones(2), np.ones(3)], "X holds rows of 2 to 3 values; a table has rows of one length"),
        ([np.ones((2, 1)), np.ones((4, 1))], "X holds sequences of 2 to 4 tokens; pad the shorter"),
    ],
)
def test_rows_of_unequal_length_are_named(to, rows, message):
    with pytest.raises(ValueError, match=message):
        refuse_unequal_lengths(to(rows))
    with pytest.raises(ValueError, match=message):
        ResidualTransformerRegressor().fit(to(rows), [0, 1])


@pytest.mark.parametrize("X", [[[1, 2], [3, 4]], [1, 2], np.ones((2, 3)), [], ["a", "bc"]])
def test_rows_of_one_length_and_what_has_no_rows_pass(X):
    refuse_unequal_lengths(X)


def test_a_mask_that_would_be_lost_is_refused_with_the_way_out():
    masked = np.ma.masked_greater(np.arange(6.0), 3)
    with pytest.raises(ValueError, match=r"y is an array with 2 masked .*; pass y.filled\(0\)"):
        refuse_masked(masked, "y", "filled(0)")
    for plain in (np.ma.array([1.0]), np.arange(3), [1, 2]):
        refuse_masked(plain, "y", "filled(0)")
