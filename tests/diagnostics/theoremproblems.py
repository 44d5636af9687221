"""Random estimators on random data, and what the package measures on them.

What it measures (A, H, Jacobian of a norm, tangent kernel, loss) is held against plain autograd
through the plain forward pass, in the tests that import this.
"""

from functools import cache

import numpy as np
import torch

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans.diagnostics.constants import (
    kernel,
    two_block_constant,
)

N_PROBLEMS = 204


# Constants are rounded down; what is left is the rounding of a backward pass, a few eps.
ROUNDING = 1e-13


class Problem:
    """A random estimator with data and weights.

    `perturbed` moves biases, shifts and gains away from the 0 and 1 that they start from.
    """

    def __init__(self, seed, perturbed=True):
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
                moved = name.rpartition(".")[2] in ("b_1", "b_2", "b_U", "gain", "shift")
                if perturbed and moved:
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


def blocks_of(problem):
    """Singular values of dF / d(W_U, last W_2), or of dF / dW_U where theory has that alone."""
    names = ["W_U", f"layers.{problem.estimator.n_layers - 1}.W_2"]
    alone = problem.norm == "post" and problem.readout == "mean"
    return problem.weighted(problem.jacobian(*names[: 1 if alone else 2]))


def extreme(matrix):
    """Smallest eigenvalue of M M^T, 0 if there are fewer columns than rows, and the largest."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return values[-1] ** 2 if len(values) == len(matrix) else 0.0, values[0] ** 2


def descent(problem, steps):
    """Phi, ||grad Phi||^2, alpha, lambda_min and lambda_max at each point of a path of descent.

    From the definition of Phi by plain autograd; it moves the weights of the problem.
    """
    parameters = [p for p in problem.module.parameters() if p.requires_grad]
    target, w = problem.objective.data.target, torch.as_tensor(problem.w)[:, None]
    rows = []
    for mu in [*steps, 0.0]:
        phi = problem.scale / 2 * (w * (problem.outputs() - target) ** 2).sum()
        gradient = torch.autograd.grad(phi, parameters, allow_unused=True, materialize_grads=True)
        squared = sum((g**2).sum().item() for g in gradient)
        alpha, _ = extreme(blocks_of(problem))
        rows.append((phi.item(), squared, alpha, *extreme(problem.weighted(problem.jacobian()))))
        with torch.no_grad():
            for parameter, g in zip(parameters, gradient, strict=True):
                parameter -= mu * g
    return np.array(rows).T


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
