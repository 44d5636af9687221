"""PLAIN is the formula; EVEN is the same values, and every row in the same bits at any place."""

import numpy as np
import pytest
import torch

from sklearn_restrans._model.products import (
    EVEN,
    PLAIN,
    average_tokens,
    last_token,
    per_candidate,
    read_token,
)

# Two orders of sums over at most 24 terms, in float64.
ROUNDING = {"rtol": 1e-13, "atol": 1e-13}
K = 3


def normal(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("products", [PLAIN, EVEN], ids=["plain", "even"])
@pytest.mark.parametrize("width", [1, 3, 8, 13])
def test_products_are_those_of_numpy(products, width, seed):
    """Of one model, and of K with a weight each; also for widths that eight does not divide."""
    for lead in ((), (K,)):
        x, weight = normal(*lead, 5, 4, 6, seed=seed), normal(*lead, 6, width, seed=seed + 1)
        bias, rows = normal(*lead, width, seed=seed + 2), normal(*lead, 5, 3, 4, seed=seed + 3)
        expected = torch.einsum("...nti,...io->...nto", x, weight)
        torch.testing.assert_close(products.project(x, weight), expected, **ROUNDING)
        with_bias = expected + bias[..., None, None, :]
        torch.testing.assert_close(products.affine(x, weight, bias), with_bias, **ROUNDING)
        expected = torch.einsum("...nrt,...nti->...nri", rows, x)
        torch.testing.assert_close(products.rows_times(rows, x), expected, **ROUNDING)
        x, weight = normal(*lead, 2, 5, 6, seed=seed), normal(*lead, 2, 6, width, seed=seed + 1)
        expected = torch.einsum("...hni,...hio->...hno", x, weight)
        torch.testing.assert_close(products.per_head(x, weight), expected, **ROUNDING)


def test_heads_are_widened_by_zeros_alone(seed):
    x = normal(2, 3, 4, 5, seed=seed)
    wide = EVEN.widen(x)
    assert wide.shape == (2, 3, 4, 8)
    assert torch.equal(wide[..., :5], x) and not wide[..., 5:].any()
    assert PLAIN.widen(x) is x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("width", "out"), [(1, 1), (6, 3), (15, 5), (32, 33)])
def test_a_row_has_the_same_bits_at_any_place_of_a_chunk(width, out, dtype, seed):
    """The claim of EVEN that predictions rest on; PLAIN does not make it."""
    n, T = 16, 7
    x, weight = normal(n, T, width, seed=seed).to(dtype), normal(width, out, seed=seed).to(dtype)
    bias, rows = normal(out, seed=seed).to(dtype), normal(n, 3, T, seed=seed).to(dtype)
    order = torch.as_tensor(np.random.default_rng(seed).permutation(n))
    for transposed in (weight, weight.T.contiguous().T):  # W_K^T of the shortcuts is a view
        for function in (
            lambda x, rows, w=transposed: EVEN.project(x, w),
            lambda x, rows, w=transposed: EVEN.affine(x, w, bias),
            lambda x, rows: EVEN.rows_times(rows, x),
        ):
            here, there = function(x, rows), function(x[order], rows[order])
            assert torch.equal(here[order], there)


def test_a_vector_of_each_candidate_stands_over_its_rows():
    like = torch.zeros(K, 5, 4, 6)
    assert per_candidate(torch.zeros(6), like).shape == (1, 1, 1, 6)
    assert per_candidate(torch.zeros(K, 6), like).shape == (K, 1, 1, 6)
    assert per_candidate(torch.zeros(K), like, trailing=0).shape == (K, 1, 1, 1)
    assert per_candidate(torch.zeros(K, 4, 6), like, trailing=2).shape == (K, 1, 4, 6)


# Padding at the end, and short history at the start, as windows have it.
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0]]).bool()


def test_the_last_real_token_is_read(seed):
    x = normal(4, 4, 3, seed=seed)
    assert last_token(None, 4) is None
    assert last_token(MASK, 4).tolist() == [3, 1, 3, 1]
    assert torch.equal(read_token(x, None), x[:, 3])
    expected = torch.stack([x[0, 3], x[1, 1], x[2, 3], x[3, 1]])
    assert torch.equal(read_token(x, last_token(MASK, 4)), expected)
    of_candidates = normal(K, 4, 4, 3, seed=seed)
    found = read_token(of_candidates, last_token(MASK, 4))
    for k in range(K):
        assert torch.equal(found[k], read_token(of_candidates[k], last_token(MASK, 4)))


@pytest.mark.parametrize("products", [PLAIN, EVEN], ids=["plain", "even"])
def test_the_mean_is_over_real_tokens_alone(products, seed):
    x = normal(4, 4, 3, seed=seed)
    torch.testing.assert_close(average_tokens(x, None, products), x.mean(1), **ROUNDING)
    expected = torch.stack([tokens[real].mean(0) for tokens, real in zip(x, MASK, strict=True)])
    torch.testing.assert_close(average_tokens(x, MASK, products), expected, **ROUNDING)
