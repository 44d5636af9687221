"""The training loop is the textbook one: bare torch loops, written out here, give its numbers.

All in float64. The model of a bare loop computes the plain formulas, so that the
shortcuts, the batching and skorch are all held against the same few lines.
"""

import copy

import numpy as np
import pytest
import torch
from loops import (
    EXACT,
    SETTINGS,
    assert_equal_weights,
    bare_adamw,
    bare_loop,
    fitted,
    make_data,
    make_module,
)

from sklearn_restrans._training.descent import GradientDescent, Objective
from sklearn_restrans._training.losses import SampleLoss


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_training_equals_a_bare_torch_loop(readout, masked, weighted, seed):
    """AdamW, shuffled batches with a shorter last one, decay on the matrices alone."""
    module = make_module(seed, readout=readout, n_heads=2, learn_beta=True)
    bare = copy.deepcopy(module)
    data = make_data(100, seed, masked=masked, weighted=weighted)
    net = fitted(data, 5, module=module, seed=seed + 3)
    losses, _ = bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 5, 32, shuffle_seed=seed + 3)
    assert_equal_weights(net.module_, bare)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)
    assert losses[-1] < losses[0]


def test_adam_and_sgd_equal_a_bare_torch_loop(seed):
    data = make_data(100, seed)
    for solver, optimizer in (("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)):
        bare = make_module(seed)
        net = fitted(data, 4, module=make_module(seed), solver=solver, weight_decay=0.0)
        bare_loop(bare, optimizer(bare.parameters(), lr=1e-2), data, 4, 32)
        assert_equal_weights(net.module_, bare)


def test_gd_is_gradient_descent_on_the_whole_set(seed):
    """theta_(t+1) = theta_t - mu grad Phi(theta_t), rows in their order, no shuffling."""
    data = make_data(300, seed, weighted=True)
    bare = make_module(seed)
    net = fitted(
        data,
        4,
        module=make_module(seed),
        solver="gd",
        weight_decay=0.0,
        learning_rate=0.05,
        batch_size=300,
    )
    losses = []
    for _ in range(4):
        error = ((bare(data.source.x) - data.target) ** 2).mean(1)
        phi = (data.weight * error).mean()
        gradients = torch.autograd.grad(phi, list(bare.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(bare.parameters(), gradients, strict=True):
                weight -= 0.05 * gradient
        losses.append(phi.item())
    assert_equal_weights(net.module_, bare)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)


def test_gd_takes_the_rows_in_their_order(seed):
    """No shuffling that would change the last bits: the seed has nothing to say."""
    data = make_data(150, seed)
    settings = {"solver": "gd", "batch_size": 150, "weight_decay": 0.0}
    nets = [fitted(data, 3, seed=number, **settings) for number in range(3)]
    for net in nets[1:]:
        assert_equal_weights(net.module_, nets[0].module_, 0.0)


def test_only_some_rows_are_trained_on(seed):
    """Targets count within ``rows``, the source counts all."""
    rows = np.random.default_rng(seed).permutation(100)[:60]
    data = make_data(100, seed, weighted=True, rows=rows)
    bare = make_module(seed)
    net = fitted(data, 3, module=make_module(seed))
    bare_loop(bare, bare_adamw(bare, 1e-2, 0.1), data, 3, 32)
    assert_equal_weights(net.module_, bare)


@pytest.mark.parametrize("chunk", [1, 30, 1_000])
def test_gd_does_not_depend_on_the_chunks(chunk, seed):
    """The gradient is a sum over chunks of the rows, whatever their size."""
    data = make_data(100, seed, masked=True, weighted=True)
    net = fitted(data, 4, module=make_module(seed), solver="gd", weight_decay=0.0)
    module = make_module(seed)
    objective = Objective(module, SampleLoss("squared_error"), data, chunk=chunk)
    descent = GradientDescent(objective, SETTINGS["learning_rate"], seed)
    losses = [descent.step().loss for _ in range(4)]
    assert_equal_weights(net.module_, module)
    np.testing.assert_allclose(net.history[:, "train_loss"], losses, rtol=EXACT)


def test_the_order_is_that_of_the_generator_alone(seed):
    """Equal seeds give equal bits; the global generator is neither read nor moved."""
    data = make_data(100, seed)
    before = torch.get_rng_state()
    first = fitted(data, 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert_equal_weights(first.module_, fitted(data, 2).module_, 0.0)
    other = fitted(data, 2, seed=1)
    assert not torch.equal(first.module_.W_U, other.module_.W_U)
