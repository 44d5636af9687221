"""How weights start, for every kind of input and every candidate."""

import math
from itertools import product

import numpy as np
import pytest
import scipy.stats
import torch
from coremodels import architecture, random_input

from sklearn_restrans._model.initialization import reset_parameters
from sklearn_restrans._model.transformer import ResidualTransformer


def wide_architecture(**changes):
    return architecture(d_model=48, d_ff=96, n_heads=2, n_tokens=64, n_features=40, **changes)


def initialised(arch, init="gaussian", seed=0):
    model = ResidualTransformer(arch)
    reset_parameters(model, init, torch.Generator().manual_seed(seed))
    return model


def matrices(model):
    return {k: v for k, v in model.named_parameters() if k.rpartition(".")[2].startswith("W_")}


@pytest.mark.parametrize("n_candidates", [None, 3])
def test_gaussian_weights_have_variance_one_over_fan_in(n_candidates, seed):
    model = initialised(wide_architecture(n_outputs=40, n_candidates=n_candidates), seed=seed)
    weights = matrices(model)
    for name, weight in {**weights, "positions": model.positions}.items():
        fan_in = 48 if name == "positions" else weight.shape[-2]
        sample = weight.detach().flatten().double().numpy() * math.sqrt(fan_in)
        # A sample of N(0, 1) fails this once in a million draws.
        assert scipy.stats.kstest(sample, "norm").pvalue > 1e-6, name
    assert set(weights) == {"W_in", "W_U"} | {
        f"layers.{k}.{name}"
        for k, name in product((0, 1), ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"))
    }
    for name, vector in model.named_parameters():
        if name.rpartition(".")[2].startswith("b_"):
            assert not vector.any(), name


def test_columns_of_a_table_start_as_vectors_of_length_one(seed):
    model = initialised(architecture(embedding="feature", d_model=256), seed=seed)
    # chi with 256 degrees of freedom: 1 +- 0.044 (one standard deviation)
    assert torch.all((model.W_in.norm(dim=1) - 1).abs() < 0.25)


@pytest.mark.parametrize("n_candidates", [None, 3])
def test_orthogonal_weights_are_orthonormal(n_candidates, seed):
    """In columns, or in rows where they are wide; every candidate's by themselves."""
    arch = wide_architecture(n_outputs=3, n_candidates=n_candidates)
    for name, weight in matrices(initialised(arch, "orthogonal", seed)).items():
        if name == "W_in":
            continue
        each = weight.reshape(-1, *weight.shape[-2:])
        for W in each:
            short = W.T @ W if W.shape[0] >= W.shape[1] else W @ W.T
            # drawn in float32: about 10 eps
            torch.testing.assert_close(short, torch.eye(len(short)), rtol=0, atol=2e-6, msg=name)
        assert len(each.flatten(1).unique(dim=0)) == (n_candidates or 1), name


def test_zero_unembedding_makes_the_start_equal_for_every_beta(seed):
    model = initialised(architecture(), "zero_unembedding", seed)
    x = random_input(model.arch, seed).float()
    for beta in (0.0, 0.5, 2.0):
        model.beta.fill_(beta)
        assert not model(x).any()
    assert all(w.any() for name, w in matrices(model).items() if name != "W_U")


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("n_layers", [1, 4])
def test_depth_scaled_is_gaussian_with_smaller_branches(n_layers, n_heads, seed):
    """Per layer and part s = sqrt(max(1 - beta^2, 1 / L)) on the last matrix; 1 for one layer."""
    arch = architecture(n_layers=n_layers, n_heads=n_heads)
    beta = torch.from_numpy(np.random.default_rng(seed).choice([0, 0.5, 0.8, 1, 2], (n_layers, 2)))
    plain, scaled = ResidualTransformer(arch, beta), ResidualTransformer(arch, beta)
    reset_parameters(plain, "gaussian", torch.Generator().manual_seed(seed))
    reset_parameters(scaled, "depth_scaled", torch.Generator().manual_seed(seed))
    expected = plain.state_dict()
    for k, pair in enumerate(beta.numpy()):
        for b, name in zip(pair, ("W_O" if n_heads > 1 else "W_V", "W_2"), strict=True):
            expected[f"layers.{k}.{name}"] *= math.sqrt(max(1 - b**2, 1 / n_layers))
    for name, value in scaled.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=0, msg=name)  # float32
        if n_layers == 1:
            assert torch.equal(value, plain.state_dict()[name]), name


@pytest.mark.parametrize("beta", [0.9, 1.0])
def test_depth_scaled_tokens_neither_grow_nor_vanish(beta, seed):
    """Extreme singular values of Z through twelve layers without norm, against the first layer's.

    A part multiplies variances by beta^2 + c s^2 with 0 <= c <= 1 or so: between beta^2 and
    1 + 1 / L, over 22 parts between beta^44 and e^2.
    """
    arch = architecture(n_layers=12, d_model=16, d_ff=32, n_tokens=24, n_features=16)
    x, growth = random_input(arch, seed).float(), {}
    for init in ("gaussian", "depth_scaled"):
        model = ResidualTransformer(arch, torch.full((12, 2), beta))
        reset_parameters(model, init, torch.Generator().manual_seed(seed))
        with torch.no_grad():
            Z = [Z.flatten(0, 1) for _, _, Z, _ in model.traces(x)]
        first, last = (np.linalg.svd(z, compute_uv=False) for z in (Z[0], Z[-1]))
        growth[init] = last[[-1, 0]] / first[[-1, 0]]
    assert (growth["depth_scaled"] > beta**22).all(), growth
    assert (growth["depth_scaled"] < math.e).all(), growth
    assert growth["gaussian"][1] > 10, growth  # 26 to 390 for seeds 0 to 9


@pytest.mark.parametrize("init", ["depth_scaled", "gaussian", "orthogonal", "zero_unembedding"])
def test_an_equal_generator_gives_equal_weights(init):
    before = torch.get_rng_state()
    first, again, other = (initialised(architecture(), init, seed) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    for (name, a), b in zip(first.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(first.layers[0].W_Q, other.layers[0].W_Q)
