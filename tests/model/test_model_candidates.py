"""Many models as one: stacking loses no weight, and changes no output, gradient or trace."""

from dataclasses import replace

import pytest
import torch
from coremodels import MASKS, N, T, architecture, random_input, random_model

from sklearn_restrans._model.candidates import copies, copy_to, select, stack, unstack


def candidates(seed, **changes):
    arch = architecture(n_heads=2, norm="pre", **changes)
    return [random_model(arch, 10 * seed + k) for k in range(3)]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", None])
@pytest.mark.parametrize("learn_beta", [False, True])
def test_stack_and_unstack_are_inverse(learn_beta, positions, seed):
    models = candidates(seed, positions=positions, learn_beta=learn_beta)
    stacked = stack(models)
    assert stacked.arch == replace(models[0].arch, n_candidates=3)
    back = unstack(stacked)
    for model, again in zip(models, back, strict=True):
        assert again.arch == model.arch
        assert again.state_dict().keys() == model.state_dict().keys()
        for name, value in model.state_dict().items():
            assert value.dtype == again.state_dict()[name].dtype == torch.float64
            assert torch.equal(value, again.state_dict()[name]), name
    with torch.no_grad():
        back[0].W_U.zero_()
    assert stacked.W_U[0].any(), "unstacked models have their own copy"


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("own_input", [False, True])
def test_candidates_in_one_model_equal_separate_models(own_input, readout, mask, seed):
    """Outputs, gradients and traces of K stacked models are those of the K models."""
    models = candidates(seed, readout=readout)
    stacked = stack(models)
    x = torch.stack([random_input(stacked.arch, seed + k) for k in range(3)])
    inputs = list(x) if own_input else [x[0]] * 3
    outputs = torch.stack([model(one, mask) for model, one in zip(models, inputs, strict=True)])
    together = stacked(x if own_input else x[0], mask)
    # bmm against mm: the same sums in another order
    torch.testing.assert_close(together, outputs, rtol=1e-13, atol=1e-13)

    coefficients = random_input(architecture(n_features=2), seed).sum(1)
    (together * coefficients).sum().backward()
    (outputs * coefficients).sum().backward()
    for name, weight in stacked.named_parameters():
        separate = torch.stack([dict(model.named_parameters())[name].grad for model in models])
        torch.testing.assert_close(weight.grad, separate, rtol=1e-13, atol=1e-12, msg=name)

    traces = stacked.traces(x if own_input else x[0], mask)
    for k, (model, one) in enumerate(zip(models, inputs, strict=True)):
        for trace, single in zip(traces, model.traces(one, mask), strict=True):
            for part, expected in zip(trace, single, strict=True):
                torch.testing.assert_close(part[k], expected, rtol=1e-12, atol=1e-12)


def test_every_candidate_may_have_its_own_mask(seed):
    models = candidates(seed)
    stacked = stack(models)
    x = random_input(stacked.arch, seed)
    masks = [torch.ones(N, T).bool(), MASKS["trailing"], MASKS["leading"]]
    expected = torch.stack([model(x, mask) for model, mask in zip(models, masks, strict=True)])
    output = stacked(x, torch.stack(masks))
    torch.testing.assert_close(output, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_selected_candidates_are_those_models_and_copies(positions, seed):
    models = candidates(seed, positions=positions)
    stacked = stack(models)
    chosen = select(stacked, torch.tensor([2, 0]))
    assert chosen.arch.n_candidates == 2
    for k, own in zip((2, 0), unstack(chosen), strict=True):
        for name, value in models[k].state_dict().items():
            assert torch.equal(own.state_dict()[name], value), name
    with torch.no_grad():
        chosen.W_U.zero_()
    assert stacked.W_U[2].any() and stacked.W_U[0].any()


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_weights_are_copied_back_into_the_models_that_were_stacked(positions, seed):
    models = candidates(seed, positions=positions)
    stacked = stack(models)
    with torch.no_grad():
        for weight in stacked.parameters():
            weight.mul_(2.0)
    before = [model.W_U for model in models]
    copy_to(stacked, models)
    for k, (model, W_U) in enumerate(zip(models, before, strict=True)):
        assert model.W_U is W_U, "in place: an optimiser keeps its parameters"
        for name, weight in model.named_parameters():
            assert torch.equal(weight, dict(stacked.named_parameters())[name][k]), name


@pytest.mark.parametrize("learn_beta", [False, True])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", None])
def test_copies_are_views_whose_derivatives_are_their_own(positions, learn_beta, seed):
    """Each copy sees its own sequence, so its derivatives are those of that sequence."""
    model = candidates(seed, positions=positions, learn_beta=learn_beta)[0]
    many = copies(model, 3)
    assert not many.training
    for name, weight in many.named_parameters():
        own = model.get_parameter(name)
        assert weight.shape == (3, *own.shape) and weight.data_ptr() == own.data_ptr()
    shape = (3, 1, model.arch.n_tokens, model.arch.n_features)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(model.W_in)
    out = many(x)[:, 0]
    weights = list(many.parameters())
    together = torch.autograd.grad(out.sum(), weights)
    for k in range(3):
        alone = torch.autograd.grad(model(x[k]).sum(), list(model.parameters()))
        for a, b in zip(alone, together, strict=True):
            torch.testing.assert_close(b[k], a)
