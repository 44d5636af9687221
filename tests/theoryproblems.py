"""Random Transformers in plain torch, independent of the package, for the constants of theory."""

import math
from functools import partial

import numpy as np
import torch

from sklearn_restrans.theory import pl_constant, tangent_kernel

N_PROBLEMS = 240
# Constants are rounded down; what is left is the rounding of a backward pass, a few eps.
ROUNDING = 1e-13
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
