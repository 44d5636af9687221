"""The probe set: which sequences are measured, in float64, and what is refused as divergence."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from loops import make_data, make_module, make_net, make_settings
from tokenrows import lengths_of_rows

from sklearn_restrans._data.batches import TrainingSet
from sklearn_restrans._data.sources import TokenSource
from sklearn_restrans._estimators import probe
from sklearn_restrans._estimators.probe import Probe, exact_copy, layer_traces
from sklearn_restrans.exceptions import DivergenceError


def make_probe(data, module=None, *, n_tokens=4, seed=0, **settings):
    module = make_module() if module is None else module
    problem = SimpleNamespace(train=data, arch=SimpleNamespace(n_tokens=n_tokens))
    return Probe(
        make_net(module), problem, problem.train, make_settings(**settings), seed, "Lower the step."
    )


# ---- which sequences -----------------------------------------------------------------------------


def test_so_many_sequences_as_asked_for_are_drawn_by_the_seed(seed):
    data = make_data(200, seed)
    chosen = make_probe(data, seed=seed, conditioning_samples=30)
    assert len(chosen.data) == len(chosen.rows) == 30
    np.testing.assert_array_equal(chosen.rows, np.unique(chosen.rows))
    again = make_probe(data, seed=seed, conditioning_samples=30)
    np.testing.assert_array_equal(again.rows, chosen.rows)
    other = make_probe(data, seed=seed + 1, conditioning_samples=30)
    assert not np.array_equal(other.rows, chosen.rows)
    assert len(make_probe(data, conditioning_samples=1_000).rows) == 200


@pytest.mark.parametrize(("n_tokens", "measured"), [(4, 64), (32, 32), (100, 16), (5_000, 16)])
def test_auto_measures_sequences_of_1024_tokens_together_but_sixteen_at_least(n_tokens, measured):
    found = make_probe(make_data(200), n_tokens=n_tokens)
    assert len(found.data) == 64
    assert len(found.rows) == measured and set(found.rows) <= set(found.data.rows)


def test_texts_are_counted_by_the_tokens_they_are_padded_to(seed):
    ids, _ = lengths_of_rows(200, 60, seed)
    source = TokenSource(ids, torch.device("cpu"))
    data = TrainingSet(source, torch.zeros(200, 1), None, np.arange(200))
    found = make_probe(data, n_tokens=5_000)
    mean = source.lengths[found.data.rows].mean()
    assert len(found.rows) == min(64, int(1_024 // mean)) > 16


# ---- what is measured ----------------------------------------------------------------------------


def test_a_copy_is_exact_and_has_no_dropout(seed):
    module = make_module(seed, dropout=0.5).float()
    exact = exact_copy(module)
    assert exact.W_in.dtype == torch.float64 and not exact.training
    for name, value in module.state_dict().items():
        assert torch.equal(exact.state_dict()[name], value.double()), name
    with torch.no_grad():
        exact.W_U.zero_()
    assert module.W_U.any()


@pytest.mark.parametrize("masked", [False, True])
def test_traces_are_those_of_the_model_whatever_the_chunk(masked, monkeypatch, seed):
    module = make_module(seed, n_layers=2, n_heads=2)
    data, rows = make_data(40, seed, masked=masked), np.arange(3, 40, 2)
    x, mask = data.source.take(rows)
    with torch.no_grad():
        expected = module.traces(x, mask)
    monkeypatch.setattr(probe, "_TRACED_NUMBERS", 5 * 4 * (4 + 2 * 4))  # five sequences a chunk
    chunks = list(layer_traces(module, data.source, rows))
    assert [len(chunk[0].output) for chunk in chunks] == [5, 5, 5, 4]
    for k, (_, attention, Z, _) in enumerate(expected):
        for name, whole in (("attention", attention), ("output", Z)):
            parts = np.concatenate([getattr(chunk[k], name) for chunk in chunks])
            np.testing.assert_allclose(parts, whole.numpy(), rtol=1e-13, atol=1e-13)


def test_a_record_holds_the_loss_and_the_gradient_of_the_probe_set(seed):
    module, data = make_module(seed), make_data(50, seed)
    found = make_probe(data, module, conditioning_samples=20)
    found.record(7)
    ((epoch, loss, norm),) = found.gradients
    (x, _), target, _ = found.data.batch(np.arange(20))
    expected = ((module(x) - target) ** 2).mean()
    squares = [g.square().sum() for g in torch.autograd.grad(expected, list(module.parameters()))]
    assert epoch == 7 and found.conditioning.epochs.tolist() == [7]
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    assert norm == pytest.approx(sum(squares).sqrt().item(), rel=1e-12)
    descent = make_probe(data, make_module(seed), solver="gd")
    descent.record(0)
    assert descent.gradients == [], "the history of gradient descent has them for all rows"


# ---- divergence ----------------------------------------------------------------------------------


def test_traces_that_are_not_finite_are_divergence():
    module = make_module(norm=None)
    with torch.no_grad():
        module.W_in.fill_(np.inf)
    with pytest.raises(DivergenceError, match=r"Z is not finite after epoch 3\. Lower the step\."):
        make_probe(make_data(30), module).record(3)


@pytest.mark.parametrize("size", [1e151, 1e152])
def test_traces_whose_squares_overflow_are_divergence(size):
    module = make_module(norm=None).double()
    with torch.no_grad():
        module.W_in.fill_(size)
    with pytest.raises(DivergenceError, match=r"Z has entries of \de\+\d{3} after epoch 3\. Lower"):
        make_probe(make_data(30), module).record(3)
