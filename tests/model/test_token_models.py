"""Token ids in the model: the embedding, every shortcut and stacked candidates.

Token ids are held against one-hot channels, which `test_transformer.py` holds against the formulas
of the paper, and against those formulas once more, one text at a time and without padding.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from test_shortcuts import output_and_gradients, random_model
from test_transformer import reference_sequence

from sklearn_restrans._model import shortcuts, transformer
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.candidates import stack, unstack
from sklearn_restrans._model.transformer import ResidualTransformer

# Relative to the largest entry: re-associated float64 sums of at most 40 terms.
EXACT = 1e-12


V, T, N, K = 7, 6, 4, 3
OPTIONS = {
    "n_layers": (1, 2),
    "n_heads": (1, 2),
    "norm": (None, "pre", "post"),
    "positions": ("learned", "sinusoidal", None),
    "readout": ("last", "mean"),
}
COMBINATIONS = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]
LENGTHS = torch.tensor([6, 4, 1, 3])


def token_architecture(**changes):
    small = dict(n_outputs=2, d_model=4, d_ff=6, activation="gelu", learn_beta=True)
    return Architecture(T, V, **(small | {"embedding": "token"} | changes))


def random_ids(lead=(), seed=0):
    ids = torch.tensor(np.random.default_rng(seed).integers(1, V, (*lead, N, T)))
    return ids * (torch.arange(T) < LENGTHS[:, None])


@pytest.mark.parametrize("lead", [(), (K,)])
def test_outputs_and_gradients_are_those_of_one_hot_channels(lead, seed):
    for number, options in enumerate(COMBINATIONS):
        n_candidates = lead[0] if lead else None
        arch = token_architecture(n_candidates=n_candidates, **options)
        model = random_model(arch, seed + number)
        twin = ResidualTransformer(replace(arch, embedding="linear")).double()
        twin.load_state_dict(model.state_dict())
        data_lead = lead if number % 2 else ()
        ids = random_ids(data_lead, seed + number)
        one_hot = torch.nn.functional.one_hot(ids, V).double()
        mask = ids != 0
        expected = output_and_gradients(twin, twin, one_hot, mask)
        for function in (model, lambda *args, model=model: shortcuts.forward(model, *args)):
            got = output_and_gradients(function, model, ids, mask)
            for name, value in expected.items():
                error = (got[name] - value).abs().max()
                assert error <= EXACT * value.abs().max(), (name, options, float(error))


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_outputs_are_the_formulas_of_each_text_alone(readout, seed):
    """Plain numpy, one text at a time, its real tokens only."""
    model = random_model(token_architecture(readout=readout, n_layers=2), seed)
    ids = random_ids(seed=seed)
    got = shortcuts.forward(model, ids, ids != 0).detach().numpy()
    for row, length, output in zip(ids.numpy(), LENGTHS.tolist(), got, strict=True):
        expected, _ = reference_sequence(model, np.eye(V)[row], range(length))
        assert np.abs(output - expected).max() <= EXACT * np.abs(expected).max()


def test_a_shorter_batch_is_the_same_texts(seed):
    model = random_model(token_architecture(n_layers=2), seed)
    ids = random_ids(seed=seed)[1:]
    long, short = (shortcuts.forward(model, x, x != 0) for x in (ids, ids[:, :4]))
    torch.testing.assert_close(long, short, rtol=EXACT, atol=EXACT)
    with pytest.raises(ValueError, match=r"token ids \(n, t\).* t <= 6"):
        model(torch.ones(2, 7, dtype=torch.int64))
    with pytest.raises(ValueError, match="token ids"):
        model(torch.ones(2, 2, 3, dtype=torch.int64))


def test_gradients_of_the_vectors_equal_finite_differences(seed):
    model = random_model(token_architecture(n_layers=2, norm="pre"), seed)
    ids = random_ids(seed=seed)

    def function(W_in, positions):
        state = {"W_in": W_in, "positions": positions}
        return torch.func.functional_call(model, state, (ids, ids != 0))

    weights = [w.detach().clone().requires_grad_() for w in (model.W_in, model.positions)]
    assert torch.autograd.gradcheck(function, weights)
    assert torch.autograd.gradgradcheck(function, weights)  # solver="gd" measures curvature


@pytest.mark.parametrize("own_data", [False, True])
def test_stacked_candidates_are_the_separate_models(own_data, seed):
    for readout in ("last", "mean"):
        models = [random_model(token_architecture(readout=readout), seed + k) for k in range(K)]
        stacked = stack(models)
        ids = random_ids((K,) if own_data else (), seed)
        together = shortcuts.forward(stacked, ids, ids != 0)
        together.square().sum().backward()
        for k, model in enumerate(models):
            own = ids[k] if own_data else ids
            alone = shortcuts.forward(model, own, own != 0)
            alone.square().sum().backward()
            torch.testing.assert_close(together[k], alone, rtol=EXACT, atol=EXACT)
            gradient = stacked.W_in.grad[k]
            torch.testing.assert_close(gradient, model.W_in.grad, rtol=EXACT, atol=EXACT)
        for model, again in zip(models, unstack(stacked), strict=True):
            assert torch.equal(model.W_in, again.W_in)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_dropout_takes_channels_of_token_vectors(readout, monkeypatch, seed):
    """If it drops everything, every text gives one and the same output."""
    monkeypatch.setattr(transformer, "dropout", lambda x, *_: 0.0 * x)
    model = random_model(token_architecture(readout=readout, positions=None), seed)
    ids = random_ids(seed=seed)
    got = shortcuts.forward(model, ids, ids != 0)
    torch.testing.assert_close(got, got[:1].expand_as(got), rtol=EXACT, atol=EXACT)
