"""The constants of theory.py are theorems: they must hold on every problem, to rounding.

The problems are random Transformers in plain torch, independent of the package. Each meets a random
target and the worst one, whose residual is the last mode of its tangent kernel: there the ratio
||grad Phi||^2 / (2 Phi) is lambda_min(J J^T) itself, and a constant that is too large is seen.
"""

import math
from collections import Counter
from functools import cache, partial

import numpy as np
import pytest
import torch

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

N_PROBLEMS = 240
# Constants are rounded down; what is left is the rounding of a backward pass, a few eps.
ROUNDING = 1e-13
COLUMNS = "loss gradient_norm step_size kappa alpha bound contraction margin kappa_error status"
ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "tanh": torch.tanh}


def normalise(kind, gain, x):
    """Layer norm or root-mean-square norm; 1e-2 keeps that of two channels from being constant."""
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    return gain * x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-2)


class Problem:
    """A random model with data and weights; `place` says where it has norms."""

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.layers, self.tokens, self.d, self.m, self.c = map(
            int, rng.integers([1, 1, 2, 2, 1], [3, 5, 6, 9, 4])
        )
        many_rows = self.d + self.m + 1  # alpha = 0 from there on
        self.n = many_rows if rng.random() < 0.25 else int(rng.integers(1, self.d + 3))
        self.beta = float(rng.choice([0.0, 0.25, 0.5, 1.0, 2.0]))
        self.activation = str(rng.choice(list(ACTIVATIONS)))
        self.readout = str(rng.choice(["last", "mean"]))
        self.place = str(rng.choice(["none", "pre", "post", "final"], p=[0.4, 0.2, 0.2, 0.2]))
        self.has_norm_after_w2 = self.place in ("post", "final")
        self.norm = partial(normalise, str(rng.choice(["layer", "rms"])))
        self.scale = float(rng.choice([1.0, 1 / self.n, 2 / (self.n * self.c)]))
        self.weighted = rng.random() < 0.4
        self.weight = 10 ** rng.uniform(-1, 1, self.n) if self.weighted else np.ones(self.n)
        self.x = torch.tensor(rng.standard_normal((self.n, self.tokens, self.d)))
        d, m = self.d, self.m
        shapes = {"W_U": (d, self.c), "gain": (d,)}
        for k in range(self.layers):
            shapes |= {f"W_Q{k}": (d, d), f"W_K{k}": (d, d), f"W_V{k}": (d, d), f"W_1{k}": (d, m)}
            shapes |= {f"b_1{k}": (m,), f"W_2{k}": (m, d), f"gain_a{k}": (d,), f"gain_f{k}": (d,)}
        self.theta = {}
        for name, shape in shapes.items():
            value = rng.standard_normal(shape) / math.sqrt(shape[0]) + name.startswith("gain")
            self.theta[name] = torch.tensor(value, requires_grad=True)

    def forward(self):
        """Return F (N, c), A (N, d), H (N, m), and (input, gain) of a norm between W_2 and W_U."""
        p, x = self.theta, self.x

        def norm_if(place, name, x):
            return self.norm(p[name], x) if self.place == place else x

        for k in range(self.layers):
            inner = norm_if("pre", f"gain_a{k}", x)
            scores = inner @ p[f"W_Q{k}"] @ (inner @ p[f"W_K{k}"]).mT / math.sqrt(self.d)
            z = torch.softmax(scores, -1) @ inner @ p[f"W_V{k}"] + self.beta * x
            z = norm_if("post", f"gain_a{k}", z)
            u = norm_if("pre", f"gain_f{k}", z) @ p[f"W_1{k}"] + p[f"b_1{k}"]
            h = ACTIVATIONS[self.activation](u)
            x = h @ p[f"W_2{k}"] + self.beta * z
            last = x, p["gain" if self.place == "final" else f"gain_f{k}"]
            x = norm_if("post", f"gain_f{k}", x)
        x = norm_if("final", "gain", x)
        a, h = (v[:, -1] if self.readout == "last" else v.mean(1) for v in (x, h))
        return a @ p["W_U"], a, h, last

    def two_blocks(self):
        return tuple(v.detach().numpy() for v in (*self.forward()[1:3], self.theta["W_U"]))

    def norm_jacobians(self):
        rows, gain = self.forward()[3]
        jacobian = torch.func.jacrev(partial(self.norm, gain))
        return torch.func.vmap(jacobian)(rows[:, -1]).detach().numpy()

    def alpha(self, **options):
        """The constant, asked for as its documentation says."""
        A, H, W_U = self.two_blocks()
        options = {"sample_weight": self.weight, "scale": self.scale} | options
        if self.has_norm_after_w2 and self.readout == "mean":
            return pl_constant(A, **options)
        jacobians = self.norm_jacobians() if self.has_norm_after_w2 else None
        return pl_constant(A, H, W_U, jacobians, **options)

    def kernel(self):
        F, parameters = self.forward()[0].reshape(-1), list(self.theta.values())
        blocks = torch.autograd.grad(
            F, parameters, torch.eye(len(F)).double(), is_grads_batched=True, allow_unused=True
        )
        blocks = (block.numpy() for block in blocks if block is not None)
        return tangent_kernel(blocks, sample_weight=self.weight, scale=self.scale)

    def target(self, residual):
        """The target that leaves this residual F - Y."""
        return self.forward()[0].detach().numpy() - residual.reshape(self.n, self.c)

    def loss_and_gradient(self, target):
        squares = (self.forward()[0] - torch.as_tensor(target)) ** 2
        phi = self.scale / 2 * (torch.as_tensor(self.weight)[:, None] * squares).sum()
        parameters = list(self.theta.values())
        gradient = torch.autograd.grad(phi, parameters, allow_unused=True, materialize_grads=True)
        return phi.item(), gradient, math.sqrt(sum((g**2).sum().item() for g in gradient))

    def ratio(self, residual):
        """||grad Phi||^2 / (2 Phi) for this residual."""
        phi, _, norm = self.loss_and_gradient(self.target(residual))
        return norm**2 / (2 * phi)

    def descend(self, residual, n_steps, step):
        """Gradient descent; what path_certificate asks for, with alpha measured at every step."""
        target = self.target(residual)
        rows = []
        for _ in range(n_steps + 1):
            phi, gradient, norm = self.loss_and_gradient(target)
            rows.append((phi, norm, self.alpha()))
            with torch.no_grad():
                for parameter, g in zip(self.theta.values(), gradient, strict=True):
                    parameter -= step * g
        losses, norms, alphas = np.array(rows).T
        zero_loss = self.scale / 2 * np.sum(self.weight[:, None] * target**2)
        return losses, norms[:-1], alphas[:-1], zero_loss


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


@pytest.mark.parametrize(("first", "size"), [(0, 0.3), (1, 1.0), (2, 1.5), (3, 40.0)])
def test_every_step_that_descends_keeps_its_bound_and_every_other_fails(first, size):
    """Two steps of `size` / lambda_max(J J^T), each size in a quarter of the problems."""
    n_steps = Counter()
    for seed in range(first, N_PROBLEMS, 4):
        kernel = measured()[seed][3]
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
    for seed, (_, _, _, kernel, _) in enumerate(measured()):
        if n_tried == 3 or not 0.2 < kernel.lambda_min / max(kernel.eigenvalues[0], 1e-9) < 0.9:
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
