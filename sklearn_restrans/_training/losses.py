"""Losses of single sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SampleLoss(nn.Module):
    """Loss of every sample, (*K, n), a mean over its outputs.

    Shape: output (*K, n, c); target (n, c), or class numbers (n,) for "log_loss".
    """

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if self.kind == "log_loss":
            log_p = output.log_softmax(-1)
            index = target.expand(output.shape[:-1])[..., None]
            return -log_p.gather(-1, index).squeeze(-1)
        difference = output - target
        if self.kind == "squared_error":
            return difference.square().mean(-1)
        if self.kind == "absolute_error":
            return difference.abs().mean(-1)
        zero = torch.zeros_like(difference)
        return F.huber_loss(difference, zero, reduction="none").mean(-1)


def constant_loss(criterion, data, n_outputs):
    """Weighted mean loss over a training set of the best constant: what a model must beat.

    The constant is the share of each class for the log loss, and the weighted mean target for the
    others (which for the absolute error is not quite the best one).
    """
    target, weight = data.target, data.weight
    share = torch.ones(len(target), device=target.device) if weight is None else weight
    share = share / share.sum()
    if criterion.kind == "log_loss":
        shares = share.new_zeros(n_outputs).index_add_(0, target, share)
        output = shares.log()
    else:
        share = share.to(target.dtype)
        output = share @ target
    loss = criterion(output.expand(len(target), -1), target)
    return float((share * loss).sum())
