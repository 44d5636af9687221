"""Outputs and losses without gradients: the plain formulas, and the same bits in every batch."""

import copy

import numpy as np
import pytest
import torch
from loops import EXACT, SETTINGS, make_data, make_module, make_net, no_stop, run

from sklearn_restrans._data.sources import DenseSource
from sklearn_restrans._model.candidates import stack
from sklearn_restrans._training import prediction
from sklearn_restrans._training.losses import SampleLoss
from sklearn_restrans._training.stopping import EpochHook


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_validation_loss_is_the_weighted_mean_loss(masked, weighted, seed):
    """Of a part that chunks do not divide, in eval mode, after the epoch's last step."""
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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_outputs_are_the_plain_formulas_whatever_rows_come_with_a_row(readout, masked, seed):
    module = make_module(seed, readout=readout, n_heads=2, dropout=0.5)
    source = make_data(300, seed, masked=masked).source
    found = prediction.outputs(module, source)
    assert found.dtype == np.float64 and not module.training
    with torch.no_grad():
        expected = module(source.x, source.mask).numpy()
    np.testing.assert_allclose(found, expected, rtol=EXACT, atol=EXACT)
    some = np.random.default_rng(seed).permutation(300)[:37]
    mask = None if source.mask is None else source.mask[some].numpy()
    few = DenseSource(source.x[some], mask)
    np.testing.assert_array_equal(prediction.outputs(module, few), found[some])


def test_a_stack_is_evaluated_as_its_models(seed):
    modules = [make_module(seed + k) for k in range(3)]
    data = make_data(50, seed, masked=True, weighted=True)
    criterion = SampleLoss("huber")
    together = prediction.evaluate(stack(modules), criterion, data)
    alone = [float(prediction.evaluate(module, criterion, data)) for module in modules]
    np.testing.assert_allclose(together, alone, rtol=EXACT)


def test_no_graph_is_kept(seed):
    module = make_module(seed)
    data = make_data(8, seed)
    prediction.evaluate(module, SampleLoss("squared_error"), data)
    prediction.outputs(module, data.source)
    assert all(weight.grad is None for weight in module.parameters())
    assert prediction.run(module, data.source.x).requires_grad, "training goes through run"
