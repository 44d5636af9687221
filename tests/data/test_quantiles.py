"""Levels of quantiles, and outputs as quantiles that never cross."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from sklearn_restrans._data.quantiles import at_level, check_levels, middle_of, spread

LEVELS = [(0.5,), (0.1, 0.9), (0.1, 0.5, 0.9), (0.6, 0.7, 0.99), (0.01, 0.2), (0.05, 0.3, 0.5, 0.8)]


@pytest.mark.parametrize("levels", LEVELS)
def test_outputs_of_zero_are_the_quantiles_of_a_standard_normal_target(levels):
    found = spread(np.zeros((2, 3, len(levels))), levels)
    # sums of up to four gaps between numbers below 3
    np.testing.assert_allclose(found, np.broadcast_to(norm.ppf(levels), found.shape), atol=1e-14)


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_never_cross(levels, dtype, seed):
    """Also where a gap underflows: then two quantiles are equal."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-3, 4, (500, 1))
    outputs = scale * rng.standard_normal((500, len(levels)))
    assert (np.diff(spread(outputs, levels)) >= 0).all()
    assert (np.diff(spread(torch.as_tensor(outputs, dtype=dtype), levels)) >= 0).all()


@pytest.mark.parametrize("levels", LEVELS)
def test_quantiles_are_sums_of_gaps_from_the_middle(levels, seed):
    """Written out, one level after the other; tensors and arrays alike."""
    outputs = np.random.default_rng(seed).standard_normal((7, len(levels)))
    z, m = norm.ppf(levels), middle_of(levels)
    expected = np.empty_like(outputs)
    expected[:, m] = z[m] + outputs[:, m]
    for k in range(m + 1, len(levels)):
        gap = np.log1p(np.exp(outputs[:, k])) / np.log(2) * (z[k] - z[k - 1])
        expected[:, k] = expected[:, k - 1] + gap
    for k in range(m - 1, -1, -1):
        gap = np.log1p(np.exp(outputs[:, k])) / np.log(2) * (z[k + 1] - z[k])
        expected[:, k] = expected[:, k + 1] - gap
    np.testing.assert_allclose(spread(outputs, levels), expected, rtol=1e-13, atol=1e-13)
    of_tensors = spread(torch.as_tensor(outputs), levels).numpy()
    np.testing.assert_allclose(of_tensors, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("levels", LEVELS)
def test_every_output_has_a_gradient(levels, seed):
    outputs = torch.tensor(np.random.default_rng(seed).standard_normal((4, len(levels))))
    outputs.requires_grad_()
    assert torch.autograd.gradcheck(lambda o: spread(o, levels), outputs)


def test_a_row_has_the_same_bits_in_any_company(seed):
    outputs = 3 * np.random.default_rng(seed).standard_normal((101, 3))
    together = spread(outputs, LEVELS[2])
    for row in range(0, 101, 7):
        np.testing.assert_array_equal(spread(outputs[row : row + 1], LEVELS[2])[0], together[row])


def test_the_middle_is_the_level_nearest_to_the_median():
    assert [middle_of(levels) for levels in LEVELS] == [0, 0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.5, 2.0), (0.2, 1.0), (0.35, 1.5), (0.9, 6.0), (0.7, 4.0), (0.01, 1.0), (0.99, 6.0)],
)
def test_between_levels_quantiles_are_linear_and_beyond_them_constant(level, expected):
    found = at_level(np.array([[1.0, 2.0, 6.0]]), (0.2, 0.5, 0.9), level)
    assert found[0] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((0.9, 0.1), r"quantiles must be rising .* got \[0.9, 0.1\]: sort them"),
        ((0.1, 0.5, 0.5), "0.5 stands there twice: drop one"),
        ((0.0, 0.5), "got 0.0: leave it out"),
        ((0.5, 1.0), "got 1.0: leave it out"),
        ((10, 50, 90), "numbers between 0 and 1, such as .* got 10.0"),
        ((0.5, np.nan), "got nan"),
        ((), "of shape"),
        (0.5, "got 0.5, of shape"),
        ([[0.1, 0.9]], "of shape"),
        (["low", "high"], r"got \['low', 'high'\]"),
    ],
)
def test_levels_that_are_none_are_named(levels, message):
    with pytest.raises(ValueError, match=message):
        check_levels(levels)


def test_levels_of_any_form_are_a_tuple_of_floats():
    for form in ([0.1, 0.9], (0.1, 0.9), np.array([0.1, 0.9])):
        found = check_levels(form)
        assert found == (0.1, 0.9) and {type(level) for level in found} == {float}
