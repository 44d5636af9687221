"""A net as plain arrays, and the net made of them again."""

import pickle

import numpy as np
import pytest
import torch
from loops import SETTINGS, assert_equal_weights, fitted, make_data, make_module, make_net, run

from sklearn_restrans._training.state import continue_net, net_state, restore_net


def plain_leaves(value):
    """Every value inside nested dicts and lists."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from plain_leaves(part)
    else:
        yield value


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd", "gd"])
@pytest.mark.parametrize("learning_rate", ["constant", "one_cycle"])
def test_a_restored_net_goes_on_to_the_bit(learning_rate, solver, seed):
    """Weights, history and the optimiser's moments; through pickle, without a tensor in it."""
    data = make_data(64, seed)
    settings = {"solver": solver, "schedule": learning_rate, "weight_decay": 0.0}
    net = fitted(data, 3, module=make_module(seed, learn_beta=True), **settings)
    state = pickle.loads(pickle.dumps(net_state(net, with_optimizer=True)))
    types = {type(leaf) for leaf in plain_leaves(state)}
    assert types <= {np.ndarray, np.float64, float, int, bool, str, type(None)}

    other = make_net(make_module(seed + 1, learn_beta=True), "squared_error", SETTINGS | settings)
    restore_net(other, state)
    assert other.history.to_list() == net.history.to_list()
    x = data.source.x
    assert torch.equal(other.infer(x), net.infer(x))
    run(net, data, 3, seed=5)
    run(other, data, 3, seed=5)
    assert_equal_weights(other.module_, net.module_, 0.0)
    assert other.history[:, "train_loss"] == net.history[:, "train_loss"]


def test_without_the_optimiser_only_weights_are_kept(seed):
    net = fitted(make_data(64, seed), 3)
    state = net_state(net, with_optimizer=False)
    assert state.keys() == {"arch", "dtype", "weights", "history"}
    assert state["weights"].keys() == net.module_.state_dict().keys()


def test_a_saved_state_is_a_copy_in_both_directions(seed):
    """Neither the net it comes from nor one restored from it changes it by training on."""
    data = make_data(64, seed)
    net = fitted(data, 2)
    state = net_state(net, with_optimizer=True)
    before = pickle.dumps(state)
    other = restore_net(make_net(make_module(), "squared_error", SETTINGS), state)
    run(net, data, 2)
    assert pickle.dumps(state) == before, "the net still writes into the saved state"
    run(other, data, 2)
    assert pickle.dumps(state) == before, "the restored net writes into the saved state"


@pytest.mark.parametrize("solver", ["adamw", "sgd"])
def test_a_net_that_goes_on_takes_weights_and_moments_and_keeps_its_own_settings(solver, seed):
    """Moments belong to a solver: another one starts without them."""
    data = make_data(64, seed)
    old = fitted(data, 3)
    own = SETTINGS | {"solver": solver, "learning_rate": 1e-3, "weight_decay": 0.0}
    module = make_module(seed + 1)
    module.beta.fill_(0.25)
    net = continue_net(make_net(module, "squared_error", own), old)
    for name, value in old.module_.state_dict().items():
        expected = torch.full_like(value, 0.25) if name == "beta" else value
        assert torch.equal(net.module_.state_dict()[name], expected), name
    assert [group["lr"] for group in net.optimizer_.param_groups] == [1e-3, 1e-3]
    assert net.optimizer_.param_groups[0]["weight_decay"] == 0.0
    assert bool(net.optimizer_.state) == (solver == "adamw")
    assert net.history.to_list() == old.history.to_list()
    run(net, data, 1)
    assert (len(net.history), len(old.history)) == (4, 3)
