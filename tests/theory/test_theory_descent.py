"""Every step that descends keeps its bound, to rounding, and every other step is told."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from theoryproblems import N_PROBLEMS, ROUNDING, Problem

from sklearn_restrans.theory import (
    certified_contraction,
    descent_step,
    local_rate,
    path_certificate,
    step_curvature,
)

COLUMNS = "loss gradient_norm step_size kappa alpha bound contraction margin kappa_error status"


@pytest.mark.parametrize(("first", "size"), [(0, 0.3), (1, 1.0), (2, 1.5), (3, 40.0)])
def test_every_step_that_descends_keeps_its_bound_and_every_other_fails(first, size):
    """Two steps of `size` / lambda_max(J J^T), each size in a quarter of the problems."""
    n_steps = Counter()
    for seed in range(first, N_PROBLEMS, 4):
        kernel = Problem(seed).kernel()
        if not kernel.rank:  # beta = 0 and every ReLU dead: nothing moves
            continue
        problem, step = Problem(seed), size / kernel.eigenvalues[0]
        residual = problem.rng.standard_normal((problem.n, problem.c))
        losses, norms, alphas, zero_loss = problem.descend(residual, 2, step)
        frame, product, verdict = path_certificate(losses, norms, step, alphas, zero_loss=zero_loss)
        # The definitions of theory, written out again.
        before, after, squared = losses[:-1], losses[1:], norms**2
        kappa = 2 * (after - before + step * squared) / (step**2 * squared)
        bound = before * (1 - 2 * step * (1 - step * kappa / 2) * alphas)
        down = kappa < 2 / step
        assert np.all(after <= bound + ROUNDING * before, where=down), vars(problem)
        np.testing.assert_allclose(frame["kappa"], kappa, rtol=1e-10, atol=1e-10 / step)
        np.testing.assert_allclose(frame["bound"], np.where(down, bound, np.nan), rtol=1e-10)
        margin = np.where(down, bound, before) - after
        np.testing.assert_allclose(frame["margin"], margin, atol=1e-12 * before[0])
        assert (frame["margin"] >= -ROUNDING * before).tolist() == down.tolist()
        assert (frame["status"] == "failed").tolist() == (~down).tolist()
        assert math.isnan(product) == (": the loss rose, kappa = " in verdict) == (not down.all())
        n_steps.update(frame["status"])
    assert n_steps["certified" if size < 40 else "failed"] >= 60


def test_the_certificate_holds_down_to_rounding_and_says_where_it_ends():
    n_tried = 0
    for seed in range(N_PROBLEMS):
        if n_tried == 3:
            break
        kernel = Problem(seed).kernel()
        if not 0.2 < kernel.lambda_min / max(kernel.eigenvalues[0], 1e-9) < 0.9:
            continue
        n_tried += 1
        problem, step = Problem(seed), 1 / kernel.eigenvalues[0]
        residual = 1e-3 * problem.rng.standard_normal((problem.n, problem.c))
        losses, norms, alphas, zero_loss = problem.descend(residual, 160, step)
        frame, _, verdict = path_certificate(losses, norms, step, alphas, zero_loss=zero_loss)
        certified = frame["status"] == "certified"
        end = int(np.argmin(certified))
        assert set(frame["status"]) == {"certified", "below rounding"}
        assert 0 < losses[end] < 1e-20 * zero_loss
        assert losses[end] <= losses[0] * np.prod(frame["contraction"][:end])
        assert f"below rounding at {sum(~certified)} of 160 steps from step {end}" in verdict
    assert n_tried == 3


PARTLY = "certified at 2 of 3 steps from step 0; not measured at 1 of 3 steps from step 1"
TOO_LARGE = "failed at step 1: ||grad||^2 < 2 alpha Phi, so alpha is not a constant of this model"


@pytest.mark.parametrize(
    ("alpha", "dimensions", "product", "verdict"),
    [
        (1.0, None, 0.25**3, "certified at every step"),
        (0.0, (9, 3, 5), 1.0, "vacuous because alpha = 0: N = 9 > d + m = 8"),
        (
            0.0,
            (8, 3, 5),
            1.0,
            "vacuous because alpha = 0: [A, sigma H] has a numerical rank below N",
        ),
        (math.nan, None, 1.0, "not measured at 3 of 3 steps from step 0"),
        ([1.0, math.nan, 1.0], None, 0.25**2, PARTLY),
        ([1.0, 1.01, 2.0], None, math.nan, TOO_LARGE),
    ],
)
def test_verdict_and_product(alpha, dimensions, product, verdict):
    x = 0.5 ** np.arange(4.0)  # gradient descent with step 1/2 on x^2 / 2: alpha = kappa = 1
    frame, *found = path_certificate(x**2 / 2, x[:3], 0.5, alpha, dimensions=dimensions)
    assert found == [pytest.approx(product, rel=1e-14, nan_ok=True), verdict]
    assert " ".join(frame) == COLUMNS
    np.testing.assert_allclose(frame["kappa"], 1.0, rtol=1e-14)


def test_nothing_is_claimed_where_the_theory_is_silent():
    kappa, error = step_curvature([1.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.0, 0.0], 0.5)
    np.testing.assert_array_equal(np.isnan([kappa, error]), [[True, False, True]] * 2)
    assert path_certificate([1.0, 1.0], 0.0, 0.5, 0.0)[2] == "vacuous because alpha = 0"
    assert path_certificate([1.0, 1.0], 0.0, 0.5, 0.1)[2].startswith("failed at step 0: ||grad")
    factor = certified_contraction([[0.5], [0.25]], [0.0, 3.0, 4.0, 7.0, math.nan], 0.5)
    known = [[0.5, 0.875, *[math.nan] * 3], [0.75, 0.9375, *[math.nan] * 3]]
    np.testing.assert_array_equal(factor, known)


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
