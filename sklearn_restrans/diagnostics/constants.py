"""PL constants and tangent kernel of a model on its training set, in float64.

An `objective` is :class:`.._descent.Objective`: a model, the squared error, and a training set. Its
Phi is s/2 sum_i w_i ||F_i - Y_i||^2 with s = 2 / (N c) and weights w of mean 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, jacrev, vmap

from .._core import average_tokens, last_token, project, read_token
from ..theory import pl_constant, tangent_kernel
from .protocol import check_objective

# Rows N c up to which an N c x N c matrix is decomposed: about 10 s on one core at the limit.
MAX_KERNEL_ROWS = 2_000

# Bytes of the part of the Jacobian that is formed at once.
_JACOBIAN_BYTES = 2**28

# Sequences per pass over the Jacobian; bounds the activations that are kept.
_CHUNK = 64


class ReadOut(NamedTuple):
    """The arrays of theory.md 3 on the rows read out.

    A (n, d), the input of W_U; H (n, m), the input of the last W_2; and `inside` (n, d), the input
    of a norm between W_2 and W_U, where one row of it belongs to each row of A.
    """

    A: Tensor
    H: Tensor
    inside: Tensor | None


def read_out(module, x, mask=None):
    """A, H and what a post norm saw, by the plain formulas of ``_core``."""
    X = module.embed(x)
    *earlier, last = module.layers
    for index, layer in enumerate(earlier):
        X = layer(X, mask, module.layer_beta(index))
    beta = module.layer_beta(-1)
    z = last.add_residual(last.attend(X, mask)[0], X, beta)
    if module.arch.readout == "mean":
        h = last.hidden(z)
        a = last.add_feedforward(h, z, beta)
        # W_2 commutes with the mean; a norm after it does not.
        return ReadOut(average_tokens(a, mask), average_tokens(h, mask), None)
    z = read_token(z, last_token(mask, z.shape[-2]))
    h = last.hidden(z)
    inside = project(h, last.W_2) + last.b_2 + beta[1] * z if module.arch.norm == "post" else None
    return ReadOut(last.add_feedforward(h, z, beta), h, inside)


def _weights(objective):
    """What theory's functions need to know of Phi: w_i, and s = 2 / (N c)."""
    weight = objective.data.weight
    weight = None if weight is None else weight.numpy()
    return {"sample_weight": weight, "scale": scale_of(objective)}


def n_residuals(objective):
    """N c, the number of residuals."""
    return len(objective.data) * objective.module.arch.n_outputs


def scale_of(objective):
    """s = 2 / (N c): half of it makes the sum of squares the mean squared error."""
    return 2.0 / n_residuals(objective)


def two_block_constant(objective):
    """alpha of W_U and the last W_2: ``lambda_min(A A^T + sigma_c(W_U)^2 H H^T)``, times s.

    With a post norm the W_2 block holds its Jacobian, ``G_i = J_i^T W_U``; with a post norm and a
    mean read-out no J_i belongs to a row, and A's block stands alone.
    """
    module = objective.module
    with torch.no_grad():
        parts = [read_out(module, *x) for x, _, _ in objective.batches()]
    A, H = (torch.cat([part[k] for part in parts]).numpy() for k in range(2))
    if module.arch.norm != "post":
        return pl_constant(A, H, module.W_U.detach().numpy(), **_weights(objective))
    if not has_row_jacobians(module):
        return pl_constant(A, **_weights(objective))
    inside = torch.cat([part.inside for part in parts])
    J = vmap(jacrev(module.layers[-1].norm_2))(inside).detach().numpy()
    method = "exact" if n_residuals(objective) <= MAX_KERNEL_ROWS else "bound"
    W_U = module.W_U.detach().numpy()
    return pl_constant(A, H, W_U, J, method=method, **_weights(objective))


def has_row_jacobians(module):
    """Whether W_2 has a block of its own in alpha: not where a norm precedes a mean read-out."""
    return module.arch.norm != "post" or module.arch.readout != "mean"


def blocks_in_words(objective):
    """The weights whose derivatives :func:`two_block_constant` uses."""
    if has_row_jacobians(objective.module):
        return "blocks of W_U and the last W_2"
    return "block of W_U, the only one that a norm before a mean read-out leaves"


def why_zero(objective):
    """Why :func:`two_block_constant` is 0 with a post norm, as far as the shapes tell."""
    arch, N = objective.module.arch, len(objective.data)
    d, m = arch.d_model, arch.d_ff
    if not has_row_jacobians(objective.module):
        reason = f"N = {N} > d = {d}" if N > d else "A has a numerical rank below N"
        return f"the {blocks_in_words(objective)}, gives none, as {reason}"
    if n_residuals(objective) <= MAX_KERNEL_ROWS:
        size = n_residuals(objective)
        return f"the numerical rank of the {blocks_in_words(objective)} is below N c = {size}"
    # The bound adds two smallest eigenvalues, which may both be 0 where that of the sum is not.
    return (
        f"with N c > {MAX_KERNEL_ROWS:,} it is the bound lambda_min(A A^T) + lambda_min(H H^T) "
        f"sigma^2, of matrices of at most d = {d} and m = {m} columns and N = {N} rows"
    )


def output_jacobian(objective):
    """Derivatives of all outputs by each weight tensor: arrays (N c, *shape), one after the other.

    A sample's outputs depend on its own input alone, so one backward pass for each output of a
    sample is enough, for all samples side by side.
    """
    module, rows = objective.module, n_residuals(objective)
    weights = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}
    fixed = dict(module.named_buffers())
    (x, mask), _, _ = objective.data.batch(np.arange(len(objective.data)))
    for names in _groups(weights, rows):
        others = fixed | {k: w for k, w in weights.items() if k not in names}

        def outputs(part, x, mask, others=others):
            batch = x[None], None if mask is None else mask[None]
            return functional_call(module, others | part, batch)[0]

        jacobian = vmap(jacrev(outputs), (None, 0, None if mask is None else 0), chunk_size=_CHUNK)(
            {k: weights[k] for k in names}, x, mask
        )
        for block in jacobian.values():
            yield block.flatten(0, 1).numpy()


def _groups(weights, rows):
    """Names of the weights in groups whose Jacobians fit into memory together."""
    group, size = [], 0
    for name, weight in weights.items():
        needed = 8 * rows * weight.numel()
        if group and size + needed > _JACOBIAN_BYTES:
            yield group
            group, size = [], 0
        group.append(name)
        size += needed
    yield group


def kernel(objective):
    """Eigenvalues and modes of the tangent kernel J J^T; see :func:`.theory.tangent_kernel`."""
    return tangent_kernel(output_jacobian(objective), **_weights(objective))


def residuals(objective):
    """F - Y, flattened as the rows of the Jacobian: output k of sample i at i c + k."""
    with torch.no_grad():
        parts = [objective.module(*x) - target for x, target, _ in objective.batches()]
    return torch.cat(parts).flatten().numpy()


def check_estimator(estimator, function, descent=True):
    """Refuse what the square loss and plain gradient descent do not cover."""
    check_objective(estimator, function)
    if estimator.loss != "squared_error":
        raise ValueError(
            f"{function} is about the squared error, got loss={estimator.loss!r}: set "
            "loss='squared_error' (of a classifier: to one-hot targets, as in the paper)."
        )
    if estimator.early_stopping:
        raise ValueError(
            f"{function} is about the loss of all rows passed, and early_stopping=True sets some "
            "aside: set early_stopping=False."
        )
    if descent and estimator.solver != "gd":
        raise ValueError(
            f"{function} is about full-batch gradient descent, got solver={estimator.solver!r}: "
            "set solver='gd' and learning_rate_init='auto' (or a number)."
        )


def check_kernel_size(objective, remedy):
    """Refuse a tangent kernel that is too large; `remedy` says what to do instead."""
    n = n_residuals(objective)
    if n > MAX_KERNEL_ROWS:
        raise ValueError(
            f"the tangent kernel has N c = {n:,} rows, and {MAX_KERNEL_ROWS:,} at most can be "
            f"decomposed: {remedy}."
        )
