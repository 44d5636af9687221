"""Outputs and losses without gradients: the plain formulas, and the same bits in every batch."""

import copy

import pytest
import torch
from loops import EXACT, SETTINGS, make_data, make_module, make_net, no_stop, run

from sklearn_restrans._training.stopping import EpochHook


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_validation_loss_is_the_weighted_mean_loss(masked, weighted, seed):
    """Of a part that is no multiple of the chunk, in eval mode, after the epoch's last step."""
    train_part = make_data(40, seed)
    valid = make_data(2 * 256 + 5, seed + 1, masked=masked, weighted=weighted)
    net = make_net(make_module(seed, dropout=0.3), "squared_error", SETTINGS)
    snapshots = []
    hook = EpochHook(lambda epoch: snapshots.append(copy.deepcopy(net.module_)), 1)
    torch.manual_seed(seed)
    run(net, train_part, 3, valid=valid, hooks=[("snapshots", hook)], rule=no_stop("valid_loss"))
    weight = torch.ones(len(valid)).double() if valid.weight is None else valid.weight
    for epoch, module in enumerate(snapshots):
        module.eval()
        error = ((module(valid.source.x, valid.source.mask) - valid.target) ** 2).mean(1)
        expected = (weight @ error / weight.sum()).item()
        assert net.history[epoch, "valid_loss"] == pytest.approx(expected, rel=EXACT)
    net.module_.train()
    assert net.evaluate(valid) == net.history[-1, "valid_loss"], "dropout is off"
