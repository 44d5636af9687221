"""PL constants and the tangent kernel are theorems: they hold on every problem, to rounding."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from theoremproblems import N_PROBLEMS, ROUNDING, blocks_of, measured

from sklearn_restrans._training import jacobian
from sklearn_restrans.diagnostics.constants import (
    output_jacobian,
    read_out,
)
from sklearn_restrans.theory import pl_constant

# Some of the problems have sequences of a single token.
pytestmark = pytest.mark.filterwarnings("ignore:X is read as")


def test_the_problems_cover_every_case():
    positive = [problem for problem, alpha, *_ in measured() if alpha > 0]
    assert N_PROBLEMS - len(positive) >= 30
    for name, number in dict(kind=5, classifier=2, c=3, norm=3, readout=2).items():
        counts = Counter(getattr(problem, name) for problem in positive)
        assert len(counts) == number and min(counts.values()) >= 10, counts
    for name, number in dict(n_layers=2, n_heads=2, activation=3, residual_beta=7).items():
        counts = Counter(getattr(problem.estimator, name) for problem in positive)
        assert len(counts) == number and min(counts.values()) >= 5, counts
    masked = [p for p in positive if p.objective.data.source.partial.any()]
    weighted = [p for p in positive if p.weight is not None]
    assert min(len(masked), len(weighted), sum((p.weight == 0).any() for p in weighted)) >= 10


def test_the_loss_is_that_of_the_theory():
    for problem, *_ in measured()[::5]:
        target = problem.objective.data.target.numpy()
        squares = (problem.outputs().detach().numpy() - target) ** 2
        phi = problem.scale / 2 * np.sum(problem.w[:, None] * squares)
        assert problem.objective.value() == pytest.approx(phi, rel=1e-12)


def test_gradient_is_never_smaller_than_the_constants_say():
    n_clear = 0
    for problem, alpha, found, ratios in measured():
        # A singular value is as exact as the entries of J: to a few eps of the largest.
        error = 8 * np.finfo(float).eps * math.sqrt(found.eigenvalues[0])
        for constant in (alpha, found.lambda_min):
            lowest = math.sqrt(min(ratios)) + error
            assert lowest >= math.sqrt(constant) * (1 - ROUNDING), problem.estimator
        if found.lambda_min > 1e-8 * found.eigenvalues[0]:
            n_clear += 1  # and lambda_min is attained, to eps / sqrt(1e-8) and a constant
            assert ratios[1] == pytest.approx(found.lambda_min, rel=1e-9)
    assert n_clear >= 130


def test_kernel_is_that_of_one_backward_pass_for_every_output():
    for problem, _, found, _ in measured()[::3]:
        J = problem.weighted(problem.jacobian())
        values = np.linalg.eigvalsh(J @ J.T)[::-1]
        np.testing.assert_allclose(found.eigenvalues, values, rtol=0, atol=1e-13 * values[0])


def test_jacobian_is_the_same_in_parts(monkeypatch):
    """Large models: some weights at a time, some samples at a time."""
    for problem, *_ in measured()[:6]:
        whole = {block.shape: block for block in output_jacobian(problem.objective)}
        monkeypatch.setattr(jacobian, "JACOBIAN_BYTES", 1)
        monkeypatch.setattr(jacobian, "_CHUNK", 2)
        parts = {block.shape: block for block in output_jacobian(problem.objective)}
        monkeypatch.undo()
        assert parts.keys() == whole.keys()
        for shape, block in parts.items():
            np.testing.assert_allclose(block, whole[shape], rtol=1e-12, atol=1e-14)


def test_alpha_is_the_smallest_eigenvalue_of_the_blocks_of_W_U_and_the_last_W_2():
    kinds = Counter()
    for problem, alpha, *_ in measured():
        J = blocks_of(problem)
        values = np.linalg.eigvalsh(J @ J.T)
        # what forming J J^T leaves of its smallest eigenvalue
        assert abs(alpha - max(values[0], 0)) <= 1e-13 * values[-1], problem.estimator
        kinds[problem.norm, problem.readout] += alpha > 1e-12 * values[-1]
    assert len(kinds) == 6 and min(kinds.values()) >= 8, kinds


def smallest(matrix):
    return np.linalg.svd(matrix, compute_uv=False)[-1]


def broken_constants(problem):
    """(name, constant) of what one could take for alpha on this problem."""
    with torch.no_grad():
        (x, mask), _, _ = problem.objective.data.batch(np.arange(problem.N))
        A, H, _ = read_out(problem.module, x, mask)
        unmasked = read_out(problem.module, x)
        A, H, W_U, A_all, H_all = (
            v.numpy() for v in (A, H, problem.module.W_U.detach(), unmasked.A, unmasked.H)
        )
    options = {"sample_weight": problem.w, "scale": problem.scale}
    root = np.sqrt(problem.scale * problem.w)[:, None]
    if problem.norm == "post":
        yield f"no Jacobian, {problem.readout}", pl_constant(A, H, W_U, **options)
        return
    if problem.N > problem.d + problem.m:
        yield "svdvals[-1]", smallest(root * np.hstack([A, smallest(W_U) * H])) ** 2
    elif problem.c > problem.d:
        yield "svdvals(W_U)[-1]", smallest(root * np.hstack([A, smallest(W_U) * H])) ** 2
    if problem.weight is not None:
        w = problem.w[:, None]
        yield "no root", pl_constant(w * A, w * H, W_U, scale=problem.scale)
        yield "no weights", pl_constant(A, H, W_U, scale=problem.scale)
    if mask is not None:
        yield f"no mask, {problem.readout}", pl_constant(A_all, H_all, W_U, **options)
    yield "s = 2 / N", pl_constant(A, H, W_U, sample_weight=problem.w, scale=2 / problem.N)


def test_broken_constants_are_seen_to_be_violated():
    """There is a residual whose gradient by W_U and W_2 is smaller than they say."""
    seen, worse = Counter(), Counter()
    for problem, _, _, ratios in measured():
        J = blocks_of(problem)
        values = np.linalg.eigvalsh(J @ J.T)
        for name, constant in broken_constants(problem):
            seen[name] += bool(constant > values[0] + 1e-9 * values[-1])
            worse[name] += bool(constant > min(ratios) * (1 + 1e-6))
    assert len(seen) == 9 and min(seen.values()) >= 1, seen
    # Some are larger than even the gradient by all weights allows.
    assert sum(worse.values()) >= 20, worse
