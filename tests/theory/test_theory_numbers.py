"""What the numbers of theory may be: any size that float64 has, and a sentence for all others."""

from functools import partial

import numpy as np
import pytest

from sklearn_restrans.theory import (
    descent_step,
    linearized_loss,
    local_rate,
    path_certificate,
    pl_constant,
    step_curvature,
    tangent_kernel,
)


@pytest.mark.parametrize("size", [1e-100, 1e-20, 1e20, 1e100])
def test_constants_scale_with_the_square_of_the_matrices(size):
    rng = np.random.default_rng(5)
    A, H, W_U = (rng.standard_normal(shape) for shape in [(5, 4), (5, 6), (4, 2)])
    jacobians = rng.standard_normal((5, 4, 4))
    close = partial(pytest.approx, rel=1e-10)
    for J in (None, jacobians):
        for method in ("exact", "bound"):
            alpha = pl_constant(A[:4], H[:4], W_U, J if J is None else J[:4], method=method)
            for scaled in (
                pl_constant(
                    size * A[:4], size * H[:4], W_U, J if J is None else J[:4], method=method
                ),
                pl_constant(A[:4], H[:4], W_U, J if J is None else J[:4], method=method, scale=size)
                * size,
            ):
                assert scaled == close(alpha * size**2)
    found, plain = tangent_kernel(size * A), tangent_kernel(A)
    np.testing.assert_allclose(found.eigenvalues, plain.eigenvalues * size**2, rtol=1e-10)
    assert found.rank == plain.rank
    # The losses and the step that belong to it.
    loss = linearized_loss(found.eigenvalues, size * np.ones(5), 0.1 / size**2, 9)
    expected = linearized_loss(plain.eigenvalues, np.ones(5), 0.1, 9) * size**2
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    kappa, error = step_curvature(size**2, size**2 / 2, 2 * size, 0.1)
    expected, expected_error = step_curvature(1.0, 0.5, 2.0, 0.1)
    assert kappa == close(expected) and error == close(expected_error)


HUGE = 1e300 * np.eye(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: pl_constant(HUGE),
        lambda: pl_constant(HUGE, HUGE, HUGE),
        lambda: pl_constant(HUGE, HUGE, HUGE, [HUGE] * 3),
        lambda: pl_constant(HUGE, HUGE, np.eye(3), [np.eye(3)] * 3, method="bound"),
        lambda: pl_constant(HUGE, scale=1e300),
        lambda: tangent_kernel(HUGE),
        lambda: tangent_kernel(HUGE, sample_weight=[1e300, 1, 1]),
        lambda: linearized_loss([1.0], [1e300], 0.1, 3),
    ],
)
def test_what_leaves_the_range_of_float64_is_refused_in_words(call):
    with pytest.raises(ValueError, match=r"above the largest float64 number \(1.8e308\): divide"):
        call()


A3, H3, W3, ONE = np.eye(3), np.ones((3, 2)), np.ones((3, 1)), np.ones(3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pl_constant(A3.astype("f4"), H3, W3), TypeError, "`A` .* float64 copy .* float32"),
        (lambda: pl_constant(A3, H3), TypeError, "`W_U` .* float64 .* got object"),
        (lambda: pl_constant(A3, H3[:2], W3), ValueError, r"got \(3, 3\), \(2, 2\), \(3, 1\)"),
        (lambda: pl_constant(A3, H3, W3, A3[None]), ValueError, r"`jacobians`.* \(1, 3, 3\)"),
        (lambda: pl_constant(A3, H3, W3, method="x"), ValueError, "`method` must be .* got 'x'"),
        (lambda: pl_constant(A3 * np.nan), ValueError, r"`A` must be finite, got nan at .*\[0, 0"),
        (
            lambda: pl_constant(A3, sample_weight=[1, 2]),
            ValueError,
            "got 2 values of sum 3",
        ),
        (lambda: pl_constant(A3, scale=0.0), ValueError, "`scale` must be finite and > 0"),
        (lambda: tangent_kernel([A3, H3[:2]]), ValueError, r"\(3, ...\), got shape \(2, 2\)"),
        (lambda: tangent_kernel([[1.0, 2.0], [3.0, 4.0]]), ValueError, r"got shape \(2,\)"),
        (lambda: linearized_loss([-1e-9], [1.0], 0.1, 3), ValueError, "`eigenvalues` .* -1e-09"),
        (lambda: step_curvature(np.float32(1), 1.0, 1.0, 0.1), TypeError, "`loss` .* got float32"),
        (lambda: path_certificate(ONE, ONE, 0.1, 1.0), ValueError, r"one value more .*\(3,\)"),
        (lambda: local_rate([1.0, 0.5, 0.1]), ValueError, "has 3 steps"),
        (lambda: local_rate([1.0, 0.5, 0.1, 0.0]), ValueError, r"`grad_norm`.*index \[3\]"),
        (lambda: descent_step(0.0), ValueError, "`largest_curvature`"),
    ],
)
def test_a_bad_argument_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
