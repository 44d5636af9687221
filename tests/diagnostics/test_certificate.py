"""Theorems on the package's own models: constants hold on every problem, and so do its bounds.

Every problem is a random estimator on random data. What the package measures on it (A, H, Jacobian
of a norm, tangent kernel, loss) is held against plain autograd through the plain forward pass.
"""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    certify_linear_convergence,
)
from sklearn_restrans._descent import GradientDescent
from sklearn_restrans.diagnostics import constants
from sklearn_restrans.diagnostics.certificate import _certificate_of, _measured_path
from sklearn_restrans.diagnostics.constants import (
    kernel,
    output_jacobian,
    read_out,
    two_block_constant,
)
from sklearn_restrans.theory import pl_constant

N_PROBLEMS = 204
# Constants are rounded down; what is left is the rounding of a backward pass, a few eps.
ROUNDING = 1e-13
COLUMNS = (
    "loss gradient_norm step_size kappa alpha alpha_tangent bound contraction margin kappa_error "
    "status"
)


class Problem:
    """A random estimator with data and weights."""

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)

        def pick(*values):
            return values[rng.integers(len(values))]

        d, m, self.c = (int(v) for v in rng.integers([1, 2, 1], [4, 9, 4]))
        d, heads, layers, n_tokens = 2 * d, pick(1, 2), pick(1, 2), pick(1, 2, 4)
        self.kind = pick("sequences", "sequences", "padded", "windows", "view", "table")
        self.classifier = self.c > 1 and rng.random() < 0.4
        # One row alone would be standardised to 0.
        n = max(d + m + 1 if rng.random() < 0.25 else int(rng.integers(2, d + 3)), self.c)
        if self.kind in ("windows", "view"):
            n = max(n, n_tokens)
        self.X = self.inputs(n, n_tokens, rng)
        targets = rng.permutation(np.arange(n) % self.c) if self.classifier else None
        self.y = rng.standard_normal((n, self.c)) if targets is None else targets
        self.y = self.y[:, 0] if not self.classifier and self.c == 1 else self.y
        self.weight = None
        if rng.random() < 0.4:
            self.weight = 10 ** rng.uniform(-1, 1, n) * (rng.random(n) < 0.9)
            self.weight[: max(self.c, 2)] += 0.1
        cls = ResidualTransformerClassifier if self.classifier else ResidualTransformerRegressor
        self.estimator = cls(
            pick(0.0, 0.25, 0.5, 1.0, 2.0, (0.0, 1.0), (1.0, 0.0)),
            learn_beta=bool(rng.random() < 0.2),
            n_layers=layers,
            d_model=d,
            n_heads=heads,
            d_ff=m,
            activation=pick("relu", "gelu", "tanh"),
            norm=pick(None, None, "pre", "post", "post"),
            positions=pick("learned", "sinusoidal", None),
            readout=pick("last", "mean"),
            init=pick("gaussian", "gaussian", "orthogonal"),
            window=n_tokens if self.kind == "windows" else None,
            solver="gd",
            loss="squared_error",
            learning_rate_init="auto",
            random_state=int(seed),
        )
        at = self.estimator.__restrans_objective__(self.X, self.y, self.weight)
        self.objective, self.seed = at.objective, at.seed
        self.module = self.objective.module
        with torch.no_grad():  # biases, shifts and gains start at 0 and 1
            for name, parameter in self.module.named_parameters():
                if name.rpartition(".")[2] in ("b_1", "b_2", "b_U", "gain", "shift"):
                    parameter += 0.3 * torch.tensor(rng.standard_normal(parameter.shape))
        kept = np.arange(n) if self.weight is None else np.flatnonzero(self.weight)
        self.N, self.c = len(kept), self.module.arch.n_outputs
        self.d, self.m, self.norm = d, m, self.estimator.norm
        self.readout = self.module.arch.readout
        # The loss as theory.md has it: s = 2 / (N c), weights of mean 1.
        self.w = np.ones(n) if self.weight is None else self.weight
        self.w = self.w[kept] / self.w[kept].mean()
        self.scale = 2 / (self.N * self.c)

    def inputs(self, n, n_tokens, rng):
        f = int(rng.integers(1, 4))
        if self.kind in ("table", "windows"):
            return rng.standard_normal((n, f + 1))
        if self.kind == "view":
            return SequenceView(rng.standard_normal((n + 1, f)), np.arange(n), n_tokens)
        X = rng.standard_normal((n, n_tokens, f))
        if self.kind == "padded":
            for row, length in enumerate(rng.integers(1, n_tokens + 1, n)):
                X[row, length:] = np.nan
        return X

    def outputs(self):
        """F (N, c) by the plain forward pass."""
        (x, mask), _, _ = self.objective.data.batch(np.arange(self.N))
        return self.module(x, mask)

    def jacobian(self, *names):
        """dF / dweights (N c, P) by one backward pass through everything for each output."""
        weights = [p for k, p in self.module.named_parameters() if not names or k in names]
        F = self.outputs().flatten()
        blocks = torch.autograd.grad(
            F, weights, torch.eye(len(F)).double(), is_grads_batched=True, allow_unused=True
        )
        return np.hstack([b.flatten(1).numpy() for b in blocks if b is not None])

    def weighted(self, J):
        return np.repeat(np.sqrt(self.scale * self.w), self.c)[:, None] * J

    def ratio(self, residual):
        """||grad Phi||^2 / (2 Phi) for this residual F - Y, from the definition of Phi."""
        F = self.outputs()
        target = F.detach() - torch.as_tensor(residual.reshape(self.N, self.c))
        phi = self.scale / 2 * (torch.as_tensor(self.w)[:, None] * (F - target) ** 2).sum()
        gradient = torch.autograd.grad(phi, list(self.module.parameters()), allow_unused=True)
        return sum((g**2).sum().item() for g in gradient if g is not None) / (2 * phi.item())


@cache
def measured():
    """Every problem with alpha, the kernel, and the ratios of a random and the worst residual."""
    rows = []
    for seed in range(N_PROBLEMS):
        problem = Problem(seed)
        found = kernel(problem.objective)
        worst = found.modes[:, -1] / np.repeat(problem.scale * problem.w, problem.c)
        random = problem.rng.standard_normal(problem.N * problem.c)
        ratios = problem.ratio(random), problem.ratio(worst)
        rows.append((problem, two_block_constant(problem.objective), found, ratios))
    return rows


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
        monkeypatch.setattr(constants, "_JACOBIAN_BYTES", 1)
        monkeypatch.setattr(constants, "_CHUNK", 2)
        parts = {block.shape: block for block in output_jacobian(problem.objective)}
        monkeypatch.undo()
        assert parts.keys() == whole.keys()
        for shape, block in parts.items():
            np.testing.assert_allclose(block, whole[shape], rtol=1e-12, atol=1e-14)


def blocks_of(problem):
    """Singular values of dF / d(W_U, last W_2), or of dF / dW_U where theory has that alone."""
    names = ["W_U", f"layers.{problem.estimator.n_layers - 1}.W_2"]
    alone = problem.norm == "post" and problem.readout == "mean"
    return problem.weighted(problem.jacobian(*names[: 1 if alone else 2]))


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


@pytest.mark.parametrize("step", ["auto", 0.3, 1.0, 40.0])
def test_every_step_that_descends_keeps_its_bound_and_every_other_fails(step, seed):
    """Steps of "auto", or of `step` / lambda_max(J J^T), each kind on a quarter of the problems."""
    statuses = Counter()
    for k in range(["auto", 0.3, 1.0, 40.0].index(step), N_PROBLEMS, 4):
        problem, _, found, _ = measured()[k]
        size = step if step == "auto" else step / found.eigenvalues[0]
        estimator = problem.estimator.set_params(learning_rate_init=size)
        certificate = certify_linear_convergence(
            estimator, problem.X, problem.y, problem.weight, n_steps=2, tangent_kernel=True
        )
        frame = certificate.to_frame()
        assert " ".join(frame) == COLUMNS
        statuses.update(frame["status"])
        start = estimator.__restrans_objective__(problem.X, problem.y, problem.weight).objective
        constants = two_block_constant(start), kernel(start).lambda_min
        assert (frame["alpha"][0], frame["alpha_tangent"][0]) == constants
        # The definitions of theory, written out again.
        loss = np.append(frame["loss"], certificate.final_loss)
        before, after = loss[:-1], loss[1:]
        mu, g2 = frame["step_size"].to_numpy(), frame["gradient_norm"].to_numpy() ** 2
        kappa = 2 * (after - before + mu * g2) / (mu**2 * g2)
        best = frame[["alpha", "alpha_tangent"]].to_numpy().max(axis=1)
        bound = before * (1 - 2 * mu * (1 - mu * kappa / 2) * best)
        down = after < before
        assert np.all(after <= bound + ROUNDING * before, where=down), estimator
        np.testing.assert_allclose(frame["bound"], np.where(down, bound, np.nan), rtol=1e-9)
        assert ("failed at step" in certificate.verdict) == (not down.all())
        assert math.isnan(certificate.product) == (not down.all())
        if certificate.certified:
            assert loss[-1] <= certificate.product * loss[0] * (1 + ROUNDING)
        if step == "auto":
            assert down.all() and np.all(np.diff(mu) <= 0)
    assert statuses["failed" if step == 40.0 else "certified"] >= 60, statuses


def planar(n, seed, n_outputs=1):
    """Sequences (n, 3, 2) and targets."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((n, n_outputs))
    return rng.standard_normal((n, 3, 2)), y if n_outputs > 1 else y[:, 0]


def model(**settings):
    settings = {"d_model": 4, "d_ff": 4, "learning_rate_init": "auto", "max_iter": 8} | settings
    return ResidualTransformerRegressor(solver="gd", random_state=0, **settings)


@pytest.mark.parametrize("step", ["auto", 0.01])
def test_the_path_is_that_of_fit_in_float64(step, seed):
    X, y = planar(9, seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 9)
    estimator = model(learning_rate_init=step, activation="gelu", tol=0)
    frame = certify_linear_convergence(estimator, X, y, weight).to_frame()
    history = estimator.set_params(dtype="float64", device="cpu").fit(X, y, weight).history_
    np.testing.assert_array_equal(frame["loss"], history["train_loss"])
    np.testing.assert_array_equal(frame["gradient_norm"], history["gradient_norm"])
    np.testing.assert_array_equal(frame["step_size"], history["learning_rate"])
    # kappa of a step is known once the next was looked at
    np.testing.assert_allclose(frame["kappa"][:-1], history["kappa"].dropna(), rtol=1e-9)


def test_the_path_does_not_depend_on_the_number_type_of_the_estimator(seed):
    X, y = planar(9, seed)
    frames = [
        certify_linear_convergence(model(dtype=dtype), X, y).to_frame()
        for dtype in ("float64", "float32", "bfloat16")
    ]
    for frame in frames[1:]:
        assert frame.equals(frames[0])


def test_steps_that_were_undone_are_not_part_of_the_path():
    """ReLU, beta = 0.25: kinks make 1 / (1.05 L) too long a few times in 30 steps."""
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((6, 3, 2)), rng.standard_normal(6)
    estimator = model(residual_beta=0.25).set_params(random_state=7, positions="learned")
    at = estimator.__restrans_objective__(X, y)
    descent = GradientDescent(at.objective, at.step_size, at.seed)
    undone = sum(descent.step().undone for _ in range(31))
    assert undone >= 3
    certificate = certify_linear_convergence(estimator, X, y, n_steps=30)
    frame = certificate.to_frame()
    assert certificate.certified and len(frame) == 30
    assert np.all(np.diff(np.append(frame["loss"], certificate.final_loss)) < 0)
    assert certificate.final_loss <= certificate.product * frame["loss"][0]


BLOCKS, TANGENT = " (by the blocks of W_U and the last W_2)", " (by the tangent kernel)"
MAY = "; the constant of tangent_kernel=True may be above 0"
TOO_FEW = "vacuous because alpha = 0: the rank of the"


@pytest.mark.parametrize(
    ("n", "settings", "tangent_kernel", "verdict"),
    [
        (6, {}, True, "certified at every step" + TANGENT),
        (6, {}, "auto", "certified at every step" + TANGENT),
        (6, {}, False, "certified at every step" + BLOCKS),
        (12, {}, False, "vacuous because alpha = 0: N = 12 > d + m = 8" + MAY),
        (12, {}, True, "certified at every step" + TANGENT),
        (16, {"norm": "post"}, True, "certified at every step" + TANGENT),
        (
            33,
            {"norm": "post", "d_ff": 1},
            False,
            f"{TOO_FEW} blocks of W_U and the last W_2 is below N c = 33{MAY}",
        ),
        (80, {"d_model": 2, "d_ff": 2}, True, f"{TOO_FEW} tangent kernel is below N c = 80"),
        (
            6,
            {"init": "zero_unembedding"},
            False,
            "certified at 7 of 8 steps from step 1; vacuous at 1 of 8 steps from step 0" + BLOCKS,
        ),
        (3, {"init": "zero_unembedding"}, False, "certified at every step" + BLOCKS),
    ],
)
def test_verdict(n, settings, tangent_kernel, verdict):
    X, y = planar(n, 0)
    estimator = model(activation="gelu", **settings)
    certificate = certify_linear_convergence(estimator, X, y, tangent_kernel=tangent_kernel)
    assert certificate.verdict == verdict
    assert certificate.certified == ("every step" in verdict)
    assert ("alpha_tangent" in certificate.to_frame()) == bool(tangent_kernel)
    assert f"{verdict}. Phi " in repr(certificate)
    assert f"N = {n}, c = 1, s = 2 / (N c) = {2 / n:.4g}" in repr(certificate)


def test_the_kernel_is_measured_at_every_step_where_that_is_cheap():
    for n, measured_too in [(100, True), (101, False)]:
        certificate = certify_linear_convergence(model(), *planar(n, 0, 2), n_steps=1)
        assert ("alpha_tangent" in certificate.to_frame()) == measured_too


@pytest.mark.parametrize("n", [2, 3])
def test_the_certificate_holds_down_to_rounding_and_says_where_it_ends(n):
    X, y = planar(n, 0)
    estimator = model(activation="tanh", d_model=16, d_ff=16, positions="learned")
    certificate = certify_linear_convergence(estimator, X, y, n_steps=420, tangent_kernel=False)
    frame = certificate.to_frame()
    certified = (frame["status"] == "certified").to_numpy()
    end = int(np.argmin(certified))
    assert set(frame["status"]) == {"certified", "below rounding"} and certified[:end].all()
    assert frame["loss"][end] < 1e-25 * frame["loss"][0]
    assert frame["loss"][end] <= certificate.product * frame["loss"][0]
    assert f"below rounding at {sum(~certified)} of 420 steps from step {end}" in repr(certificate)


@pytest.mark.parametrize("size", [6.0, 30.0, 1e8, 1e25])
def test_a_step_that_is_too_long_fails(size):
    X, y = planar(6, 0)
    found = kernel(model(activation="gelu").__restrans_objective__(X, y).objective)
    step = size / found.eigenvalues[0]
    certificate = certify_linear_convergence(model(learning_rate_init=step), X, y)
    assert certificate.verdict.startswith("failed at step "), certificate
    assert math.isnan(certificate.product) and not certificate.certified
    assert "nan certified" in repr(certificate)


def test_a_loss_that_overflows_fails():
    """Rows that are finite but for where the path ends."""

    class Overflowing(GradientDescent):
        def look(self):
            step = super().look()
            return step._replace(loss=np.inf) if len(self.losses) == 4 else step

    descent = Overflowing(model().__restrans_objective__(*planar(6, 0)).objective, 1e-3, 0)
    path = _measured_path(descent, 9, False)
    assert len(path) == 3
    descent.losses[-1] = np.inf
    certificate = _certificate_of(path, descent, False)
    assert certificate.verdict == "failed at step 2: the loss is not finite after it"
    assert math.isnan(certificate.product)


def test_the_estimator_and_the_state_of_torch_stay_as_they_were():
    estimator = model(dtype="float32")
    before, state = dict(vars(estimator)), torch.get_rng_state()
    certify_linear_convergence(estimator, *planar(6, 0), n_steps=1)
    assert vars(estimator) == before
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == 1


def certify(n=6, n_outputs=1, X=None, y=None, options=None, **settings):
    data = planar(n, 0, n_outputs)
    X, y = data[0] if X is None else X, data[1] if y is None else y
    return certify_linear_convergence(model().set_params(**settings), X, y, **options or {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: certify(solver="adamw"), ValueError, "gradient descent, got solver='adamw'"),
        (lambda: certify(loss="huber"), ValueError, "the squared error, got loss='huber'"),
        (lambda: certify(early_stopping=True), ValueError, "early_stopping=True sets some aside"),
        (lambda: certify(dropout=0.1), ValueError, "dropout must be 0, got 0.1"),
        (lambda: certify(weight_decay=0.1), ValueError, "weight_decay must be 0, got 0.1"),
        (lambda: certify(learning_rate="one_cycle"), ValueError, "takes one step size"),
        (lambda: certify(d_model=-3), ValueError, "'d_model' parameter .* must be an int"),
        (lambda: certify(learning_rate_init=1e300), ValueError, "not finite after the first step"),
        (
            lambda: certify(n=1001, n_outputs=2, options={"tangent_kernel": True}),
            ValueError,
            r"N c = 2,002 rows, and 2,000 at most .* pass fewer rows, or tangent_kernel=False",
        ),
        (lambda: certify(y=np.ones(5)), ValueError, "inconsistent numbers of samples: "),
        (lambda: certify(X=np.ones((6, 2, 2, 2))), ValueError, "X has 4 axes"),
        (lambda: certify(y=np.full(6, np.nan)), ValueError, "Input y contains NaN"),
        (lambda: certify(options={"n_steps": 0}), ValueError, "n_steps must be .* got 0"),
        (lambda: certify(options={"n_steps": True}), ValueError, "n_steps must be .* got True"),
        (lambda: certify(options={"tangent_kernel": "no"}), ValueError, "tangent_kernel .* 'no'"),
        (
            lambda: certify_linear_convergence(make_pipeline(model()), *planar(6, 0)),
            TypeError,
            "got Pipeline; of a Pipeline pass the last step",
        ),
        (
            lambda: certify_linear_convergence(
                ResidualTransformerClassifier(solver="gd"), np.eye(4), [0, 1, 0, 1]
            ),
            ValueError,
            "got loss='log_loss': set loss='squared_error' .of a classifier: to one-hot targets",
        ),
    ],
)
def test_what_the_certificate_does_not_cover_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call()
