"""PL constants and tangent kernel of a model on its training set, in float64.

An `objective` (:class:`._training.descent.Objective`) holds a model, the squared error, and a
training set. Its Phi is s/2 sum_i w_i ||F_i - Y_i||^2 with s = 2 / (N c) and weights w of mean 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._model.products import average_tokens, last_token, read_token
from .._training.jacobian import weight_jacobians
from ..theory import pl_constant, tangent_kernel
from .protocol import check_objective

# Rows N c up to which an N c x N c matrix is decomposed: about 10 s on one core at the limit.
MAX_KERNEL_ROWS = 2_000


class ReadOut(NamedTuple):
    """The arrays of theory.md 3 on the rows read out.

    A (n, d) is the input of W_U and H (n, m) that of the last W_2. `inside` (n, d) is the input of
    a norm between W_2 and W_U, if there is one and each row of A belongs to one row of it.
    """

    A: Tensor
    H: Tensor
    inside: Tensor | None


def read_out(module, x, mask=None):
    """A, H and the input of a post norm, by the plain formulas of the model."""
    X = module.embed(x)
    *earlier, last = module.layers
    for index, layer in enumerate(earlier):
        X = layer(X, mask, module.layer_beta(index))
    beta = module.layer_beta(-1)
    z = last.add_residual(last.attend(X, mask)[0], X, beta)
    if module.arch.readout == "mean":
        h = last.hidden(z)
        a = last.add_feedforward(h, z, beta)
        # The mean over tokens may be taken before W_2, but not before a norm that follows it.
        return ReadOut(average_tokens(a, mask), average_tokens(h, mask), None)
    z = read_token(z, last_token(mask, z.shape[-2]))
    h = last.hidden(z)
    inside = h @ last.W_2 + last.b_2 + beta[1] * z if module.arch.norm == "post" else None
    return ReadOut(last.add_feedforward(h, z, beta), h, inside)


def _weights(objective):
    """w_i and s = 2 / (N c), as arguments for the functions of `theory`."""
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

    With a post norm the block of W_2 contains the norm's Jacobian, ``G_i = J_i^T W_U``. With a post
    norm and a mean read-out there is no single J_i for a row, and only the block of W_U is used.
    """
    module = objective.module
    with torch.no_grad():
        parts = [read_out(module, *x) for x, _, _ in objective.batches()]
    # In chunks as the objective has them, without a graph: only the values are needed.
    A, H = (torch.cat([part[k] for part in parts]).numpy() for k in range(2))
    if module.arch.norm != "post":
        return pl_constant(A, H, module.W_U.detach().numpy(), **_weights(objective))
    if not has_row_jacobians(module):
        return pl_constant(A, **_weights(objective))
    inside = torch.cat([part.inside for part in parts])
    # The norm acts on each row alone, so its Jacobian is one small matrix per row.
    J = _row_jacobians(module.layers[-1].norm_2, inside).numpy()
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
    # The bound adds two smallest eigenvalues, which can both be 0 while that of the sum is not.
    return (
        f"with N c > {MAX_KERNEL_ROWS:,} it is the bound lambda_min(A A^T) + lambda_min(H H^T) "
        f"sigma^2, of matrices of at most d = {d} and m = {m} columns and N = {N} rows"
    )


def output_jacobian(objective):
    """Derivatives of all outputs by each weight tensor, as arrays (N c, *shape) one by one."""
    for _, block in weight_jacobians(objective):
        yield block.flatten(0, 1).numpy()


def _row_jacobians(function, rows):
    """Derivatives of every row's outputs by the row itself, (n, d, d)."""
    rows = rows.detach().clone().requires_grad_()
    out = function(rows)
    by_output = [torch.autograd.grad(o, rows, retain_graph=True)[0] for o in out.sum(0)]
    return torch.stack(by_output, 1)


def kernel(objective):
    """Eigenvalues and modes of the tangent kernel J J^T; see :func:`.theory.tangent_kernel`."""
    return tangent_kernel(output_jacobian(objective), **_weights(objective))


def residuals(objective):
    """F - Y in the order of the Jacobian's rows: output k of sample i at index i c + k."""
    with torch.no_grad():
        parts = [objective.module(*x) - target for x, target, _ in objective.batches()]
    return torch.cat(parts).flatten().numpy()


def check_estimator(estimator, function, descent=True, initial=True, solvers=("gd",)):
    """Refuse an estimator whose loss is not the square loss, or that takes other steps.

    With `initial` it must also have one residual_beta from the start, as a search has not.
    """
    check_objective(estimator, function)
    if initial and "residual_beta" not in estimator.get_params(deep=False):
        raise TypeError(
            f"{function} needs the initial weights of one residual_beta, and "
            f"{type(estimator).__name__} chooses it in fit: pass a ResidualTransformerRegressor or "
            "-Classifier with residual_beta set."
        )
    if initial:
        check_loss(estimator.loss, function)
    if estimator.early_stopping:
        raise ValueError(
            f"{function} needs the loss of all rows that are passed, and early_stopping=True sets "
            "some of them aside: set early_stopping=False."
        )
    if descent and estimator.solver not in solvers:
        other = "; or solver='gauss_newton'" if "gauss_newton" in solvers else ""
        raise ValueError(
            f"{function} needs full-batch gradient descent, got solver={estimator.solver!r}: "
            f"set solver='gd' and learning_rate_init='auto' (or a number){other}."
        )
    if estimator.solver == "gauss_newton" and estimator.weight_decay not in (0, "auto"):
        raise ValueError(
            f"{function} needs the loss alone: weight_decay must be 0, got "
            f"{estimator.weight_decay!r}."
        )


def check_loss(loss, function):
    """Refuse another loss than the square loss."""
    if loss != "squared_error":
        raise ValueError(
            f"{function} needs the squared error, got loss={loss!r}: set loss='squared_error' (of "
            "a classifier: to one-hot targets, as in the paper)."
        )


def check_kernel_size(objective, remedy):
    """Refuse a tangent kernel that is too large, and say with `remedy` what to do instead."""
    n = n_residuals(objective)
    if n > MAX_KERNEL_ROWS:
        raise ValueError(
            f"the tangent kernel has N c = {n:,} rows, but at most {MAX_KERNEL_ROWS:,} can be "
            f"decomposed: {remedy}."
        )
