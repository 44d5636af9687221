"""The shortcuts give the numbers of the plain formulas, for every combination of options.

The plain formulas are held against the paper in test_transformer.py; here the shortcuts are held
against the plain formulas: outputs and the gradients of every weight.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from coremodels import random_model
from torch.utils.flop_counter import FlopCounterMode

from sklearn_restrans._model import shortcuts, transformer
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.chunking import predict_chunk
from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import Layer, ResidualTransformer
from sklearn_restrans._training import prediction

N, T, K = 3, 5, 3
# Relative to the largest entry of each tensor: re-associated float64 sums of at most 20 terms.
EXACT = 1e-12
OPTIONS = {
    "n_layers": (1, 2),
    "n_heads": (1, 2),
    "norm": (None, "pre", "post"),
    "positions": ("learned", "sinusoidal", None),
    "readout": ("last", "mean"),
    "embedding": ("linear", "feature"),
}
COMBINATIONS = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]
LENGTHS = torch.tensor([5, 3, 1])
MASKS = {
    "none": None,
    "trailing": torch.arange(T) < LENGTHS[:, None],
    "leading": torch.arange(T) >= T - LENGTHS[:, None],
}
# The leading dimension of K candidates, and of the data they see.
CANDIDATES = {"one model": (None, None), "shared data": (K, None), "own data": (K, K)}


def architecture(**changes):
    changes.setdefault("n_features", 1 if changes.get("embedding") == "feature" else 3)
    small = dict(n_tokens=T, n_outputs=2, d_model=4, d_ff=6, activation="gelu", learn_beta=True)
    return Architecture(**(small | changes))


def random_input(arch, lead=None, seed=0):
    shape = (N, arch.n_tokens, arch.n_features)
    shape = shape if lead is None else (lead, *shape)
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))


def output_and_gradients(function, model, x, mask):
    """Output, and d/dw of a random linear function of it for every weight w."""
    model.zero_grad()
    output = function(x, mask)
    factors = torch.tensor(np.random.default_rng(7).standard_normal(output.shape))
    (output * factors).sum().backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {"output": output.detach(), **gradients}


def assert_same(model, x, mask, message=""):
    plain = output_and_gradients(model, model, x, mask)
    fast = output_and_gradients(lambda *args: shortcuts.forward(model, *args), model, x, mask)
    assert plain.keys() == fast.keys()
    for name, value in plain.items():
        error = (fast[name] - value).abs().max()
        assert error <= EXACT * value.abs().max(), f"{name} {message}: {error}"


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_outputs_and_gradients_equal_the_plain_formulas(candidates, mask, seed):
    """Over masks and candidates, every combination also meets every activation."""
    lead, data_lead = CANDIDATES[candidates]
    turn = list(MASKS).index(mask) + list(CANDIDATES).index(candidates)
    for number, options in enumerate(COMBINATIONS):
        activation = ("relu", "gelu", "tanh")[(turn + number) % 3]
        arch = architecture(n_candidates=lead, activation=activation, **options)
        model = random_model(arch, seed + number)
        x = random_input(arch, data_lead, seed + number)
        assert_same(model, x, MASKS[mask], f"with {options}")


@pytest.mark.parametrize(("lead", "data_lead"), list(CANDIDATES.values())[1:])
def test_every_candidate_may_have_its_own_mask(lead, data_lead, seed):
    """As over the folds of a search, which see different histories."""
    masks = torch.stack([torch.ones(N, T).bool(), MASKS["trailing"], MASKS["leading"]])
    for number, options in enumerate(COMBINATIONS):
        model = random_model(architecture(n_candidates=lead, **options), seed + number)
        x = random_input(model.arch, data_lead, seed + number)
        assert_same(model, x, masks, f"with {options}")


def test_gradient_with_respect_to_the_input(seed):
    for options in COMBINATIONS:
        model = random_model(architecture(**options), seed)
        gradients = []
        for function in (model, lambda x, mask, model=model: shortcuts.forward(model, x, mask)):
            x = random_input(model.arch, seed=seed).requires_grad_()
            function(x, MASKS["trailing"]).square().sum().backward()
            gradients.append(x.grad)
        error = (gradients[0] - gradients[1]).abs().max()
        assert error <= EXACT * gradients[0].abs().max(), options


def known_dropout(x, p, training, generator):
    """Keeps a channel of a sequence, for every token of it, by a rule without chance."""
    if p == 0.0 or not training:
        return x
    n, channels = x.shape[-3 if x.shape[-2] == T else -2], x.shape[-1]
    number = torch.arange(n)[:, None] + 3 * torch.arange(channels)
    keep = (torch.sin(12.9898 * number.double()) > 2 * p - 1).double() / (1 - p)
    return x * (keep[:, None, :] if x.shape[-2] == T else keep)


def test_dropout_stands_on_the_same_terms(monkeypatch, seed):
    """With one and the same mask for both routes, the routes agree: dropout commutes with both."""
    monkeypatch.setattr(transformer, "dropout", known_dropout)
    for number, options in enumerate(COMBINATIONS):
        model = random_model(architecture(dropout=0.4, **options), seed + number)
        x = random_input(model.arch, seed=seed + number)
        assert_same(model, x, MASKS["trailing"], f"with {options}")
        trained = shortcuts.forward(model, x)
        model.eval()
        assert not torch.allclose(trained, shortcuts.forward(model, x)), "dropout was not applied"


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_dropout_has_the_same_mean_and_spread_by_both_routes(readout, seed):
    """The routes draw different random masks; over many draws they are the same noise."""
    torch.manual_seed(seed)
    model = random_model(architecture(dropout=0.3, readout=readout, n_outputs=1), seed)
    x = random_input(model.arch, seed=seed)[:1].expand(40_000, T, 3)
    with torch.no_grad():
        plain, fast = model(x), shortcuts.forward(model, x)
    # Standard errors: s / sqrt(n) of a mean, about 1 % of a standard deviation (0.7 % were it
    # Gaussian); five of them.
    assert abs(plain.mean() - fast.mean()) < 5 * 1.42 * plain.std() / 200
    assert abs(fast.std() / plain.std() - 1) < 0.05


# ---- which route, and that it is one ---------------------------------------------------------


def expected_route(n_layers, n_heads, norm, positions, readout, embedding):
    """The module's docstring as a table."""
    if readout == "mean":
        return "plain" if norm == "post" else "mean"
    if n_layers == 1 and embedding == "linear" and norm != "pre":
        return "folded"
    return "single_query"


def test_one_place_chooses_for_every_architecture():
    chosen = {shortcuts.choose(architecture(**options)) for options in COMBINATIONS}
    assert chosen == {"folded", "single_query", "mean", "plain"}
    for options in COMBINATIONS:
        assert shortcuts.choose(architecture(**options)) == expected_route(**options), options


def test_layers_that_the_read_out_never_looks_at_are_not_computed(monkeypatch):
    """A layer read at one token never attends with all its queries."""
    attended = []
    attend = Layer.attend
    monkeypatch.setattr(
        Layer, "attend", lambda layer, x, mask: attended.append(layer) or attend(layer, x, mask)
    )
    for options in COMBINATIONS:
        model = random_model(architecture(**options))
        attended.clear()
        shortcuts.forward(model, random_input(model.arch))
        full = model.layers if options["readout"] == "mean" else model.layers[:-1]
        assert attended == list(full), options


def flops(function, *args):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function(*args)
    return counter.get_total_flops()


def flops_per_token(arch, fast):
    """Growth of the matrix products per sequence for one more token, between T = 60 and 61."""
    counts = []
    for n_tokens in (60, 61):
        model = ResidualTransformer(replace(arch, n_tokens=n_tokens))
        x = torch.zeros(N, n_tokens, arch.n_features)
        counts.append(flops(shortcuts.forward, model, x) if fast else flops(model, x))
    return (counts[1] - counts[0]) / N


d, m, f, h = 32, 48, 5, 2


def wide(**changes):
    return Architecture(60, f, 1, **(dict(d_model=d, d_ff=m, n_heads=h, positions=None) | changes))


def test_the_folded_route_works_in_the_input_channels():
    """Per token: one score and one term of the context for each head, in f channels."""
    assert flops_per_token(wide(), fast=True) == 2 * 2 * h * f
    plain = flops_per_token(wide(), fast=False)
    embedding, projections, feedforward = 2 * f * d, 4 * 2 * d * d, 2 * 2 * d * m
    attention = 2 * 2 * d * (2 * 60 + 1)  # scores and context of T^2 pairs
    assert plain == embedding + projections + feedforward + attention
    assert plain > 700 * flops_per_token(wide(), fast=True)


def test_position_vectors_cost_the_folded_route_d_channels_more():
    assert flops_per_token(wide(positions="learned"), fast=True) == 2 * 2 * h * (f + d)


def test_the_single_query_route_has_no_product_of_two_model_widths_per_token():
    embedding = 2 * f * d
    assert flops_per_token(wide(norm="pre"), fast=True) == embedding + 2 * 2 * h * d


def test_two_layers_pay_for_the_first_alone():
    one_full = flops_per_token(wide(), fast=False)
    assert flops_per_token(wide(n_layers=2), fast=True) == one_full + 2 * 2 * h * d


def test_the_mean_route_averages_before_w_2():
    saved = 2 * m * d
    full = flops_per_token(wide(readout="mean"), fast=False)
    assert flops_per_token(wide(readout="mean"), fast=True) == full - saved


def test_a_wrong_number_of_tokens_is_refused_by_every_route():
    for options in COMBINATIONS:
        model = random_model(architecture(**options))
        for shape in ((N, 1, model.arch.n_features), (N, T, model.arch.n_features + 1)):
            with pytest.raises(ValueError, match="x must have shape"):
                shortcuts.forward(model, torch.zeros(shape).double())


# -- inference: every row alike, wherever it stands ------------------------------------------------

WIDTHS = {
    "n_tokens": (1, 24, 50),
    "n_features": (1, 7),
    "d_model": (8, 15, 32),
    "n_heads": (1, 3),
    "n_layers": (1, 2),
    "readout": ("last", "mean"),
    "n_outputs": (1, 5),
}


def in_inference(model, x, mask):
    with torch.inference_mode():
        return prediction.run(model.evenly(), x, mask)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_place_of_a_row_in_a_chunk_changes_no_bit(dtype, masked):
    """Matrix kernels treat rows differently for odd widths; the padded products do not.

    The folded route at T = 144 with 14 channels (Jena) is among the shapes that did.
    """
    grid = [dict(zip(WIDTHS, v, strict=True)) for v in product(*WIDTHS.values())]
    grid += [{**grid[-1], "n_tokens": 144, "n_features": f, "n_layers": 1} for f in (6, 10, 14)]
    grid += [{**g, "readout": "last", "n_heads": 1} for g in grid[-3:]]
    rng = np.random.default_rng(0)
    for number, sizes in enumerate(grid):
        if sizes["d_model"] % sizes["n_heads"]:
            continue
        activation = ("relu", "gelu", "tanh")[number % 3]
        norm = (None, "pre", "post")[number // 3 % 3]
        arch = Architecture(d_ff=2 * sizes["d_model"], activation=activation, norm=norm, **sizes)
        model = ResidualTransformer(arch)
        reset_parameters(model, "gaussian", torch.Generator().manual_seed(number))
        model.to(dtype).eval()
        n, n_tokens = predict_chunk(arch), arch.n_tokens
        x = torch.tensor(rng.standard_normal((n, n_tokens, arch.n_features))).to(dtype)
        mask = None
        if masked:
            lengths = rng.integers(1, n_tokens + 1, (n, 1))
            mask = torch.tensor(np.arange(n_tokens) >= n_tokens - lengths)
        expected = in_inference(model, x, mask)
        plain = model(x, mask).detach()
        tolerance = 1e-4 if dtype == torch.float32 else 1e-12
        assert (expected - plain).abs().max() <= tolerance * plain.abs().max(), sizes
        orders = [torch.roll(torch.arange(n), shift) for shift in (1, 3, n // 2)]
        for order in (*orders, torch.full((n,), 5)):
            got = in_inference(model, x[order], None if mask is None else mask[order])
            assert torch.equal(got, expected[order]), sizes
