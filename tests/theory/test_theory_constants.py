"""Constants of the loss are theorems: they must hold on every problem, to rounding.

The problems are random Transformers in plain torch, independent of the package. Each meets a random
target and the worst one, whose residual is the last mode of its tangent kernel: there the ratio
||grad Phi||^2 / (2 Phi) is lambda_min(J J^T) itself, and a constant that is too large is seen.
"""

from collections import Counter
from functools import cache, partial

import numpy as np
import pytest
from theoryproblems import N_PROBLEMS, ROUNDING, Problem

from sklearn_restrans.theory import linearized_loss, pl_constant, tangent_kernel


@cache
def measured():
    """Every problem with alpha, its bound, the kernel, and the ratios of two residuals."""
    rows = []
    for seed in range(N_PROBLEMS):
        problem = Problem(seed)
        kernel, residual = problem.kernel(), problem.rng.standard_normal((problem.n, problem.c))
        worst = kernel.modes[:, -1] / np.repeat(problem.scale * problem.weight, problem.c)
        ratios = problem.ratio(residual), problem.ratio(worst)
        rows.append((problem, problem.alpha(), problem.alpha(method="bound"), kernel, ratios))
    return rows


def test_the_problems_cover_every_case():
    positive = [problem for problem, alpha, *_ in measured() if alpha > 0]
    assert N_PROBLEMS - len(positive) >= 40
    n_values = dict(layers=2, beta=5, activation=3, readout=2, place=4, c=3, weighted=2)
    for attribute, number in n_values.items():
        counts = Counter(getattr(problem, attribute) for problem in positive)
        assert len(counts) == number and min(counts.values()) >= 10, counts


def test_gradient_is_never_smaller_than_the_constants_say():
    n_clear = 0
    for problem, alpha, bound, kernel, ratios in measured():
        for constant in (alpha, bound, kernel.lambda_min):
            assert min(ratios) >= constant * (1 - ROUNDING), vars(problem)
        # Blocks cannot give more than all parameters; the sides are rounded down differently.
        slack = 1e-13 * kernel.eigenvalues[0]
        assert bound <= alpha * (1 + 1e-10) + slack
        assert alpha <= kernel.lambda_min * (1 + 1e-10) + slack
        if kernel.lambda_min > 1e-8 * kernel.eigenvalues[0]:
            n_clear += 1  # and lambda_min is attained, to eps / sqrt(1e-8) and a constant
            assert ratios[1] == pytest.approx(kernel.lambda_min, rel=1e-9)
    assert n_clear >= 150


def test_alpha_is_the_smallest_eigenvalue_of_the_two_blocks():
    n_norms = 0
    for problem, alpha, *_ in measured():
        A, H, W_U = problem.two_blocks()
        root = np.sqrt(problem.scale * problem.weight)[:, None]
        A, H, c = root * A, root * H, problem.c
        K = np.kron(A @ A.T, np.eye(c))
        if not problem.has_norm_after_w2:
            K += np.kron(H @ H.T, W_U.T @ W_U)
        elif problem.readout == "last":
            n_norms += 1
            G = np.einsum("ipq,pc->icq", problem.norm_jacobians(), W_U)
            K += np.einsum("ij,icq,jeq->icje", H @ H.T, G, G).reshape(K.shape)
        values = np.linalg.eigvalsh(K)
        assert abs(alpha - values[0]) <= 1e-13 * values[-1]  # what forming K leaves of lambda_min
    assert n_norms >= 30


def last_singular_value(matrix):
    return np.linalg.svd(matrix, compute_uv=False)[-1]


def test_broken_constants_are_seen_to_be_violated():
    seen = Counter()
    for problem, _, _, _, ratios in measured():
        (A, H, W_U), s, w = problem.two_blocks(), problem.scale, problem.weight
        stacked = np.sqrt(s * w)[:, None] * np.hstack([A, last_singular_value(W_U) * H])
        constants = {}
        if problem.has_norm_after_w2 and problem.readout == "last":
            constants["no Jacobian"] = pl_constant(A, H, W_U, sample_weight=w, scale=s)
        elif not problem.has_norm_after_w2 and problem.n > problem.d + problem.m:
            constants["svdvals([A, sigma H])[-1]"] = last_singular_value(stacked) ** 2
        elif not problem.has_norm_after_w2 and problem.c > problem.d:
            constants["svdvals(W_U)[-1]"] = last_singular_value(stacked) ** 2
        elif not problem.has_norm_after_w2 and problem.weighted:
            constants["no root"] = pl_constant(w[:, None] * A, w[:, None] * H, W_U, scale=s)
        for name, constant in constants.items():
            seen[name] += min(ratios) < constant * (1 - 1e-6)
    assert len(seen) == 4 and min(seen.values()) >= 3, seen


def planted(rng, rows, columns, values):
    """A matrix with these singular values."""
    left, right = (np.linalg.qr(rng.standard_normal((n, len(values))))[0] for n in (rows, columns))
    return left * values @ right.T


@pytest.mark.parametrize("seed", range(3))
def test_alpha_of_planted_singular_values(seed):
    rng = np.random.default_rng(seed)
    both, W_U = planted(rng, 9, 12, np.geomspace(1, 1e-6, 9)), planted(rng, 5, 3, [4, 2, 0.5])
    A, H, identities = both[:, :5], both[:, 5:] / 0.5, np.stack([np.eye(5)] * 9)
    close = partial(pytest.approx, rel=1e-8)  # twice 12 eps times the condition number
    assert pl_constant(A, H, W_U) == close(1e-12)
    assert pl_constant(A, H, W_U, scale=0.25) == close(0.25e-12)
    assert pl_constant(A, H, W_U, identities) == close(1e-12)
    a, h = (last_singular_value(v[:4]) ** 2 for v in (A, H))
    assert pl_constant(A[:4]) == close(a)
    assert pl_constant(A[:4], H[:4], 0 * W_U) == close(a)
    assert pl_constant(A[:4], H[:4], W_U, method="bound") == close(a + 0.25 * h)


def test_alpha_is_exactly_zero_where_theory_says_so():
    rng = np.random.default_rng(0)
    A, H, W_U = rng.standard_normal((9, 4)), rng.standard_normal((9, 4)), np.eye(4)[:, :1]
    twice = np.arange(3).repeat(2)
    for constant in (
        pl_constant(A, H, W_U),  # N > d + m
        pl_constant(A[:5], H[:5], np.ones((4, 5))),  # c > d: sigma = 0, and N > d
        pl_constant(A[:5], H[:5], 0 * W_U),
        pl_constant(A[twice], H[twice], W_U),  # rank 3
        pl_constant(A[:5], H[:5], W_U, np.zeros((5, 4, 4))),
    ):
        assert constant == 0.0


@pytest.mark.parametrize("with_norm", [False, True])
def test_a_weight_of_zero_removes_the_row(with_norm):
    rng, weight = np.random.default_rng(1), np.array([2.0, 0.0, 1.0, 3.0, 0.5])
    *rows, W_U = (rng.standard_normal(s) for s in [(5, 4), (5, 6), (5, 4, 4), (4, 2)])
    A, H, J = (v[weight > 0] for v in rows)
    part = pl_constant(A, H, W_U, J if with_norm else None, sample_weight=weight[weight > 0])
    A, H, J = rows
    whole = pl_constant(A, H, W_U, J if with_norm else None, sample_weight=weight)
    assert whole == part > 0


def test_kernel_of_weighted_blocks_is_that_of_the_whole_jacobian():
    rng, weight, residual = np.random.default_rng(2), np.array([2.0, 0.0, 0.5]), np.arange(6.0)
    parts = [rng.standard_normal((6, *shape)) for shape in [(4, 5), (7,), (3, 1, 2), (2500,)]]
    J = np.hstack([part.reshape(6, -1) for part in parts])
    w = 0.1 * weight.repeat(2)
    values = np.linalg.eigvalsh(np.sqrt(w)[:, None] * (J @ J.T) * np.sqrt(w))[:1:-1]
    for jacobian in (J, parts, (part for part in parts)):
        kernel = tangent_kernel(jacobian, sample_weight=weight, scale=0.1)
        np.testing.assert_allclose(kernel.eigenvalues, values, rtol=1e-12)
        assert (kernel.rank, kernel.lambda_min) == (4, pytest.approx(values[-1], rel=1e-10))
        coefficients = kernel.modes.T @ residual
        assert np.sum(coefficients**2) == pytest.approx(np.sum(w * residual**2), rel=1e-13)
        product = w * (J @ J.T @ (w * residual))
        np.testing.assert_allclose(kernel.modes @ (values * coefficients), product, rtol=1e-10)


def test_kernel_keeps_eigenvalues_that_a_gram_matrix_loses():
    J = planted(np.random.default_rng(3), 8, 40, np.geomspace(1, 1e-10, 8))
    kernel = tangent_kernel(J)
    # eps sigma_1 / sigma_8 is 2e-6; rounded down by 40 eps sigma_1, 2e-4 of lambda.
    assert kernel.eigenvalues[-1] == pytest.approx(1e-20, rel=1e-4)
    assert 0.999e-20 < kernel.lambda_min < kernel.eigenvalues[-1]
    assert abs(np.linalg.eigvalsh(J @ J.T)[0]) > 1e-18


@pytest.mark.parametrize("columns", [3, 8])
def test_rank_of_the_kernel(columns):
    rng = np.random.default_rng(4)
    J = rng.standard_normal((5, 3)) @ rng.standard_normal((3, columns))
    kernel = tangent_kernel(J)
    assert (kernel.rank, kernel.lambda_min) == (3, 0.0)
    np.testing.assert_array_equal(kernel.eigenvalues[3:], 0.0)
    np.testing.assert_allclose(kernel.modes.T @ kernel.modes, np.eye(5), atol=1e-14)
    np.testing.assert_allclose(J.T @ kernel.modes[:, 3:], 0.0, atol=1e-13)


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
