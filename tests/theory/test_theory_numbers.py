"""theory: curves and steps against formulas written here, rounding, and the ends of the range."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from sklearn_restrans.theory import (
    certified_contraction,
    descent_step,
    linearized_loss,
    local_rate,
    path_certificate,
    pl_constant,
    step_curvature,
    tangent_kernel,
)

to_fractions = np.vectorize(Fraction, otypes=[object])


def read_out_step(A, W, Y, step):
    """Twice the losses before and after a step of the read-out alone, and ||g||^2."""
    R = A.dot(W) - Y
    g = A.T.dot(R)
    return (R**2).sum(), ((A.dot(W - step * g) - Y) ** 2).sum(), (g**2).sum()


@pytest.mark.parametrize("closeness", [1, 1e-4, 1e-7])
@pytest.mark.parametrize("fraction", [1, 1e-4, 1e-8])
def test_the_rounding_error_of_the_curvature_is_bounded(closeness, fraction):
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A, W, noise = (rng.standard_normal(shape) for shape in [(5, 3), (3, 2), (5, 2)])
        Y, step = A @ W + closeness * noise, fraction / np.linalg.norm(A, 2) ** 2
        before, after, squared = read_out_step(A, W, Y, step)
        norm, psi = math.sqrt(squared), np.sum(Y**2) / 2
        kappa, error = step_curvature(before / 2, after / 2, norm, step, zero_loss=psi)
        # In rational arithmetic nothing is rounded.
        step = Fraction(step)
        before, after, squared = read_out_step(*map(to_fractions, (A, W, Y)), step)
        wrong = abs(kappa - float((after - before + 2 * step * squared) / (step**2 * squared)))
        # W - step g is rounded too, by eps |W|: that moves the loss by ||g|| eps ||W||.
        moved = 2 * np.finfo(float).eps * np.linalg.norm(W) / (step**2 * norm)
        assert wrong <= error + moved
        ratios.append(wrong / error)
    assert max(ratios) > 1e-5  # a bound, not a licence


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 1.0, 1.9])
def test_the_error_of_the_curvature_covers_the_rounding_of_its_own_formula(ratio):
    """Losses that are exact, and a step that expects far more than it gets: kappa = 2/mu (1 - q)
    with a small q is then rounded by its last subtraction and products alone.
    """
    for seed in range(200):
        rng = np.random.default_rng(seed)
        before, part, norm, step = rng.uniform(1, 2, 4)
        norm = norm / math.sqrt(ratio)
        after = before * part / 2
        kappa, error = step_curvature(before, after, norm, step)
        exact = [Fraction(v) for v in (before, after, norm, step)]
        phi, phi_next, g, mu = exact
        wrong = abs(Fraction(float(kappa)) - 2 * (phi_next - phi + mu * g**2) / (mu**2 * g**2))
        assert wrong <= error
        # Of relative errors of 64 eps for the losses and of 4 eps for the formula.
        allowed = 2 / step * 400 * (before + after) / (step * norm**2) + 4 * abs(kappa)
        assert 4 * abs(kappa) <= error / np.finfo(float).eps <= allowed


def test_the_contraction_of_a_step_that_expects_far_more_than_it_gets():
    """q = (Phi - Phi') / (mu ||g||^2) = 1e-20 is lost in kappa = 2/mu (1 - q), not in the bound."""
    loss, norm = np.array([1.0, 0.5]), 5.0
    frame, product, verdict = path_certificate(loss, norm, 2e18, 10.0)
    # 1 - 2 mu (1 - mu kappa / 2) alpha = 1 - 2 alpha (Phi - Phi') / ||g||^2
    assert verdict == "certified at every step"
    assert product == frame["contraction"][0] == pytest.approx(1 - 2 * 10 * 0.5 / 25, rel=1e-14)
    assert frame["margin"][0] == pytest.approx(0.6 - 0.5, rel=1e-13)


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


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_nothing_warns_where_a_path_has_numbers_of_the_size_of_the_range(size):
    """kappa may be infinite there; a bound is then NaN or a number, and nothing is certified."""
    x = 0.5 ** np.arange(4.0)
    for loss, norm, step, alpha in [
        (size * x**2 / 2, x[:3] * math.sqrt(size), 0.5, 1.0),
        (x**2 / 2, size * x[:3], 0.5, 1.0),
        (x**2 / 2, x[:3], size, 1.0),
        (x**2 / 2, x[:3], 0.5, size),
        (size * x**2 / 2, size * x[:3], size, size),
    ]:
        frame, product, verdict = path_certificate(loss, norm, step, alpha, zero_loss=size)
        certified = frame["status"] == "certified"
        assert np.isfinite(frame["contraction"][certified]).all()
        assert math.isnan(product) == ("failed" in verdict)
        step_curvature(loss[:-1], loss[1:], norm, step, zero_loss=size)
        certified_contraction(alpha, [size, -size], step)


def test_a_curvature_that_has_no_reciprocal_gives_no_step():
    assert descent_step(5e-324, 0.1) == 0.1
    with pytest.raises(ValueError, match="must be above 0 to give a step"):
        descent_step(5e-324)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("speed", [0.3, 1.0, 1.9, 2.05])
def test_linearised_loss_is_that_of_descent_on_a_linear_model(seed, speed):
    rng = np.random.default_rng(seed)
    J = rng.standard_normal((7, 4)) * [1.0, 0.5, 0.2, 0.1]  # three directions stay
    theta, target = rng.standard_normal(4), rng.standard_normal(7)
    weight, scale = rng.uniform(0.5, 2, 7), 0.3
    kernel = tangent_kernel(J, sample_weight=weight, scale=scale)
    step = speed / kernel.eigenvalues[0]
    start, losses = kernel.modes.T @ (J @ theta - target), []
    for _ in range(81):
        residual = J @ theta - target
        losses.append(scale / 2 * np.sum(weight * residual**2))
        theta = theta - step * scale * J.T @ (weight * residual)
    predicted = linearized_loss(kernel.eigenvalues, start, step, 80)
    np.testing.assert_allclose(predicted, losses, rtol=1e-11)
    best = np.linalg.lstsq(np.sqrt(weight)[:, None] * J, np.sqrt(weight) * target)[1][0]
    limit = linearized_loss(kernel.eigenvalues, start, step, [np.inf])[0]
    assert limit == (np.inf if speed > 2 else pytest.approx(scale / 2 * best, rel=1e-12))


@pytest.mark.parametrize(
    ("eigenvalues", "coefficients", "steps", "losses"),
    [
        ([1e-12], [2.0], [0, 1e12], [2.0, 2 * np.exp(-2.0)]),  # (1 - 1e-12)^k is off by 4e-5
        ([1.0], [2.0], 2, [2.0, 0.0, 0.0]),
        ([2.0], [2.0], [0, 9, np.inf], [2.0, 2.0, 2.0]),
        ([4.0, 1.0], [0.0, 2.0], [0, 1, np.inf], [2.0, 0.0, 0.0]),  # nothing there to diverge
        ([4.0], [2.0], [0, 1, 10_000], [2.0, 18.0, np.inf]),
    ],
)
def test_linearised_loss_in_special_cases(eigenvalues, coefficients, steps, losses):
    found = linearized_loss(eigenvalues, coefficients, 1.0, steps)
    np.testing.assert_allclose(found, losses, rtol=1e-11)


@pytest.mark.parametrize("rate", [1e-6, 0.03, 1.0])
def test_local_rate_of_one_exponential_and_of_two(rate):
    t = np.arange(400.0)
    one, three = np.exp(-rate * t / 2), np.exp(-3 * rate * t / 2)
    np.testing.assert_allclose(local_rate(one), rate, rtol=1e-9)
    found, first, second = local_rate(np.hypot(three, 0.03 * one))
    assert rate * (1 - 1e-9) <= second <= found <= first <= 3 * rate


def test_step_is_only_ever_lowered():
    assert descent_step(2.0) == pytest.approx(1 / 2.1)
    assert descent_step(2.0, 0.1) == 0.1
    assert descent_step(2.0, 3.0, safety=2.0) == 0.25
    assert descent_step(-1.0, 3.0) == 3.0  # negative curvature says nothing about the step
