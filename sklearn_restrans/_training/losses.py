"""Losses of single sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._data.quantiles import spread


class SampleLoss(nn.Module):
    """Loss of every sample, (*K, n), a mean over its outputs.

    Shape: output (*K, n, c); target (n, c), or class numbers (n,) for "log_loss". For "quantile"
    with q levels output is (*K, n, c q), the levels of one target side by side.
    """

    def __init__(self, kind: str, levels: tuple[float, ...] | None = None):
        super().__init__()
        self.kind, self.levels = kind, levels

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if self.kind == "log_loss":
            log_p = output.log_softmax(-1)
            index = target.expand(output.shape[:-1])[..., None]
            return -log_p.gather(-1, index).squeeze(-1)
        if self.kind == "quantile":
            by_level = output.unflatten(-1, (-1, len(self.levels)))
            return self.pinball(spread(by_level, self.levels), target)
        difference = output - target
        if self.kind == "squared_error":
            return difference.square().mean(-1)
        if self.kind == "absolute_error":
            return difference.abs().mean(-1)
        zero = torch.zeros_like(difference)
        return F.huber_loss(difference, zero, reduction="none").mean(-1)

    def pinball(self, quantiles: Tensor, target: Tensor) -> Tensor:
        """Mean over targets and levels tau of max(tau e, (tau - 1) e), e = y - q_tau.

        Shape: quantiles (*K, n, c, q); target (n, c).
        """
        tau = quantiles.new_tensor(self.levels)
        error = target[..., None] - quantiles
        return torch.maximum(tau * error, (tau - 1.0) * error).mean((-2, -1))


def constant_loss(criterion, data, n_outputs):
    """Weighted mean loss over a training set of the best constant: what a model must beat.

    The constant is the share of each class for the log loss, the weighted quantiles for the
    quantile loss, and the weighted mean target for the others (which for the absolute error is not
    quite the best one).
    """
    target, weight = data.target, data.weight
    share = torch.ones(len(target), device=target.device) if weight is None else weight
    share = share / share.sum()
    if criterion.kind == "quantile":
        share = share.to(target.dtype)
        constant = weighted_quantiles(target, share, criterion.levels)
        loss = criterion.pinball(constant.expand(len(target), -1, -1), target)
        return float((share * loss).sum())
    if criterion.kind == "log_loss":
        shares = share.new_zeros(n_outputs).index_add_(0, target, share)
        output = shares.log()
    else:
        share = share.to(target.dtype)
        output = share @ target
    loss = criterion(output.expand(len(target), -1), target)
    return float((share * loss).sum())


def weighted_quantiles(target, share, levels):
    """Quantiles (c, q) of target (n, c) whose rows have shares (n,): the least pinball losses.

    That of level tau is the smallest value up to which the shares reach tau.
    """
    value, order = target.sort(0)
    reached = share[order].cumsum(0)
    # The shares sum to one up to rounding, so that the last one may fall short of a level near 1.
    place = (reached[..., None] < reached.new_tensor(levels)).sum(0).clamp_max(len(target) - 1)
    return value.gather(0, place.T).T


def exact(tensor):
    """In float64, where that exists: a device without it (MPS) hands the values to the CPU."""
    has_it = tensor.device.type in ("cpu", "cuda")
    return (tensor if has_it else tensor.cpu()).double()


# Loss of a probability that is 0 in the arithmetic of the log loss; its factor S stays invertible.
_LEAST = 1e-30


@dataclass(frozen=True, eq=False)
class OutputCurvature:
    """A weighted mean loss as a function of all outputs F (N, c), to second order at some F.

    The slope is q = S rho and the Hessian S S^T, in float64, with S a block (c', c') for each row:
    ``S = diag(scale) (I - shrink u u^T)``, u a unit vector. For the squared error
    ``S = sqrt(2 w / (N c)) I``. For the log loss, whose value does not change when all outputs of a
    row rise alike, S acts on the c' = c - 1 contrasts F_k - F_c: with the probabilities p of the
    first c - 1 classes the Hessian is w / N (diag(p) - p p^T), and S has the factor of it for which
    S^-1 is known too.

    Attributes
    ----------
    loss : float
    slope : Tensor of shape (N, c)
        dPhi / dF.
    residual : Tensor of shape (N, c')
        rho. For the squared error Phi = |rho|^2 / 2.
    scale, unit : Tensor of shape (N, c')
    shrink : Tensor of shape (N, 1)
    contrasts : bool
        Whether c' = c - 1.
    """

    loss: float
    slope: torch.Tensor
    residual: torch.Tensor
    scale: torch.Tensor
    unit: torch.Tensor
    shrink: torch.Tensor
    contrasts: bool

    @property
    def quadratic(self):
        """Whether the loss is quadratic in the outputs."""
        return not self.contrasts

    def _shrunk(self, x):
        """(I - shrink u u^T) x for x (N, c', p)."""
        if not self.contrasts:
            return x
        unit = self.unit[..., None]
        return x - self.shrink[..., None] * unit * (unit * x).sum(1, keepdim=True)

    def times(self, x):
        """S x, (N, c')."""
        return self.scale * self._shrunk(x[..., None])[..., 0]

    def transposed(self, x):
        """S^T x for x (N, c', p)."""
        return self._shrunk(self.scale[..., None] * x)

    def to_outputs(self, slope):
        """Slopes by the contrasts (N, c') as slopes by the outputs (N, c)."""
        if not self.contrasts:
            return slope
        return torch.cat([slope, -slope.sum(1, keepdim=True)], 1)

    def from_outputs(self, outputs):
        """Contrasts (N, c') of outputs (N, c)."""
        return outputs[:, :-1] - outputs[:, -1:] if self.contrasts else outputs


def output_curvature(criterion, outputs, target, weight):
    """:class:`OutputCurvature` of the squared error or the log loss at outputs (N, c)."""
    outputs = exact(outputs)
    n, c = outputs.shape
    weight = outputs.new_ones(n) if weight is None else exact(weight)
    target = exact(target).long() if criterion.kind == "log_loss" else exact(target)
    losses = criterion(outputs, target)
    loss, root = float((weight * losses).sum()) / n, (weight / n).sqrt()[:, None]
    if criterion.kind == "squared_error":
        scale = root * (2.0 / c) ** 0.5
        difference = outputs - target
        none = torch.zeros_like(scale)
        rho = scale * difference
        return OutputCurvature(
            loss, scale * rho, rho, scale.expand_as(rho), torch.zeros_like(rho), none, False
        )
    p = outputs.softmax(1)
    hit = torch.nn.functional.one_hot(target, c).to(p)
    slope = root.square() * (p - hit)
    # Of a probability that is 0 in floating point, a number with a root and an inverse.
    first, last = p[:, :-1].clamp_min(_LEAST), p[:, -1:].clamp_min(_LEAST)
    roots = first.sqrt()
    unit = roots / torch.linalg.vector_norm(roots, dim=1, keepdim=True)
    shrink = 1.0 - last.sqrt()
    rest = (p[:, :-1] - hit[:, :-1]) / roots
    along = (unit * rest).sum(1, keepdim=True)
    rho = root * (rest + (1.0 / last.sqrt() - 1.0) * unit * along)
    return OutputCurvature(loss, slope, rho, root * roots, unit, shrink, True)
