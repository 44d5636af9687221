"""Token ids in the model, and texts of like length in batches.

Token ids are held against one-hot channels, which `test_core.py` holds against the formulas of the
paper, and against those formulas once more, one text at a time and without padding.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from smallmodels import SAME, SMALL
from test_shortcuts import output_and_gradients, random_model
from test_transformer import reference_sequence

from sklearn_restrans import ResidualTransformerClassifier, ResidualTransformerRegressor
from sklearn_restrans._data.batches import TrainingSet
from sklearn_restrans._data.sources import TokenSource
from sklearn_restrans._data.tokens import padded_length
from sklearn_restrans._model import shortcuts, transformer
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.candidates import stack, unstack
from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans._training.optimizers import make_optimizer, take_step

CPU = torch.device("cpu")
# Relative to the largest entry: re-associated float64 sums of at most 40 terms.
EXACT = 1e-12

# -- the model: a token id is a one-hot channel ----------------------------------------------------

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


# -- batches by length -----------------------------------------------------------------------------


def test_the_ladder_of_padded_lengths():
    ladder = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    expected = [next(step for step in ladder if step >= n) for n in range(1, 513)]
    assert padded_length(np.arange(1, 513)).tolist() == expected
    assert padded_length(0) == 8 and padded_length(10_000) == 12_288


def lengths_of_rows(n, longest, seed=0):
    """Token ids of n rows of random lengths, few of them long."""
    rng = np.random.default_rng(seed)
    length = np.minimum(rng.geometric(0.1, n), longest)
    length[:2] = longest, 1
    ids = rng.integers(1, 50, (n, longest))
    return ids * (np.arange(longest) < length[:, None]), length


def test_rows_of_like_length_meet_in_a_batch(seed):
    ids, _ = lengths_of_rows(4_000, 60, seed)
    source = TokenSource(ids, CPU)
    rows = np.random.default_rng(seed).permutation(4_000)[:3_333]
    data = TrainingSet(source, torch.zeros(3_333), None, rows)

    def order(seed):
        return data.order(64, torch.Generator().manual_seed(seed))

    first = order(seed)
    assert sorted(first) == list(range(3_333))
    np.testing.assert_array_equal(order(seed), first)
    assert (order(seed + 1) != first).mean() > 0.9
    batches = [source.lengths[rows[first[i : i + 64]]] for i in range(0, 3_333, 64)]
    # All but the few that hold a border between two of the six lengths of this data.
    assert np.mean([len(set(batch)) == 1 for batch in batches]) > 0.8
    computed = sum(batch.max() * len(batch) for batch in batches)
    assert computed < 1.1 * source.lengths[rows].sum()
    means = [batch.mean() for batch in batches[:-1]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5, "not short ones first"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 32},
        {"d_model": 15, "n_heads": 3, "n_layers": 2, "readout": "last"},
        {"d_model": 64, "n_heads": 2, "norm": "pre", "activation": "gelu"},
        {"d_model": 8, "readout": "last", "positions": None},
    ],
)
def test_padding_and_company_change_no_bit_of_a_prediction(settings, dtype, seed):
    ids, _ = lengths_of_rows(300, 70, seed)
    y = ids[:, 0] % 3
    model = ResidualTransformerClassifier(
        embedding="token", max_iter=1, dtype=dtype, random_state=seed, **settings
    ).fit(ids, y)
    expected = model.predict_proba(ids)
    for wider in (1, 26, 200):
        np.testing.assert_array_equal(
            model.predict_proba(np.pad(ids, ((0, 0), (0, wider)))), expected
        )
    order = np.random.default_rng(seed).permutation(300)
    for rows in (order, order[:7], [5], np.repeat(order[:40], 5), *([row] for row in order[:12])):
        cut = max(1, int((ids[rows] != 0).sum(axis=1).max()))
        np.testing.assert_array_equal(model.predict_proba(ids[rows][:, :cut]), expected[rows])


def test_predictions_are_those_of_unpadded_texts(seed):
    ids, length = lengths_of_rows(60, 40, seed)
    y = np.random.default_rng(seed).standard_normal(60)
    model = ResidualTransformerRegressor(
        embedding="token", n_layers=2, dtype="float64", **SMALL
    ).fit(ids, y)
    module = model.net_.module_
    for row, n in enumerate(length):
        with torch.no_grad():
            alone = module(torch.as_tensor(ids[row : row + 1, :n])).numpy()
        np.testing.assert_allclose(
            model.predict(ids[row : row + 1]),
            model._preprocessing.targets.scaler.inverse(alone)[:, 0],
            **SAME,
        )


def test_validation_loss_is_the_mean_over_texts(seed):
    """In eval mode each text by itself gives the same loss, in float64 to rounding."""
    ids, _ = lengths_of_rows(120, 40, seed)
    y = ids[:, 0] % 2
    model = ResidualTransformerClassifier(embedding="token", dtype="float64", **SMALL)
    model.fit(ids[:60], y[:60], X_val=ids[60:], y_val=y[60:])
    p = model.predict_proba(ids[60:])[np.arange(60), y[60:]]
    assert -model.best_validation_score_ == pytest.approx(-np.log(p).mean(), rel=1e-9)


def test_a_rare_token_moves_by_a_few_steps():
    """A gradient g once, long after the start: the sum over k of lr m_k / sqrt(v_k), with
    m_k = (1 - b1) b1^k g and v_k = (1 - b2) b2^k g^2; 0.999 would give 31 lr.
    """
    model = ResidualTransformer(token_architecture())
    reset_parameters(model, "gaussian", torch.Generator().manual_seed(0))
    optimizer = make_optimizer(model, "adamw", 1e-3, 0.0)
    before = model.W_in.detach().clone()
    for step in range(500):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        model.W_in.grad[3] = 0.1 * (step == 400)
        take_step(optimizer)
    moved = (before - model.W_in.detach()) / 1e-3
    expected = sum(0.1 * 0.9**k / (0.02 * 0.98**k) ** 0.5 for k in range(100))
    assert expected == pytest.approx(7.8, abs=0.1)
    # eps = 1e-8 of Adam and float32 weights of size 1, which round steps of 1e-3 to 1e-4 of them
    np.testing.assert_allclose(moved[3].numpy(), expected, rtol=1e-2)
    assert not moved[[0, 1, 2, 4, 5, 6]].any()


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_dropout_takes_channels_of_token_vectors(readout, monkeypatch, seed):
    """If it drops everything, every text gives one and the same output."""
    monkeypatch.setattr(transformer, "dropout", lambda x, *_: 0.0 * x)
    model = random_model(token_architecture(readout=readout, positions=None), seed)
    ids = random_ids(seed=seed)
    got = shortcuts.forward(model, ids, ids != 0)
    torch.testing.assert_close(got, got[:1].expand_as(got), rtol=EXACT, atol=EXACT)
