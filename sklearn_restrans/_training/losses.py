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
