"""Nets trained as one stack are the nets trained one after the other, each with its own end.

Through the estimators the same is claimed of every option in `test_beta_path.py`.
"""

import copy

import numpy as np
import pytest
import torch
from loops import (
    EXACT,
    SETTINGS,
    assert_equal_weights,
    make_data,
    make_module,
    make_net,
    no_stop,
    run,
)

from sklearn_restrans._training.stack import Failed, attempt, train_stacked
from sklearn_restrans._training.stopping import StopRule
from sklearn_restrans.exceptions import DivergenceError


def trained_together(nets, data, valid, epochs, rules):
    """Every net with its rule and a generator of its own, as fit gives them."""
    for seed, (net, rule) in enumerate(zip(nets, rules, strict=True)):
        net.callbacks_ = [*net.callbacks_, ("stop_rule", rule)]
        net.generator_ = torch.Generator().manual_seed(seed)
    return train_stacked(nets, data, valid, epochs, rules, range(len(nets)))


def nets_of(changes, seed):
    modules = [make_module(seed + k) for k in range(len(changes))]
    return [
        make_net(module, "squared_error", SETTINGS | change)
        for module, change in zip(modules, changes, strict=True)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        [{}] * 3,
        [{"learning_rate": lr} for lr in (1e-2, 1e-3, 3e-2)],
        [{"weight_decay": decay, "schedule": "one_cycle"} for decay in (0.0, 0.3, 0.1)],
        [{"solver": "sgd", "learning_rate": lr, "weight_decay": 0.0} for lr in (0.1, 0.01, 0.0)],
    ],
)
def test_stacked_training_is_separate_training(changes, seed):
    data, valid = make_data(100, seed, masked=True, weighted=True), make_data(30, seed + 1)
    nets = nets_of(changes, seed)
    alone = nets_of(changes, seed)
    rules = [no_stop("valid_loss") for _ in nets]
    best = trained_together(nets, data, valid, 4, rules)
    for k, (net, other) in enumerate(zip(nets, alone, strict=True)):
        assert run(other, data, 4, valid=valid, rule=no_stop("valid_loss"), seed=k) == best[k]
        assert_equal_weights(net.module_, other.module_)
        for column in ("train_loss", "valid_loss", "learning_rate"):
            np.testing.assert_allclose(net.history[:, column], other.history[:, column], rtol=EXACT)


def test_each_net_stops_by_its_own_rule(seed):
    """A rule that nothing satisfies ends its net after its patience; the others train on."""
    data, valid = make_data(60, seed), make_data(30, seed + 1)
    nets = nets_of([{}] * 3, seed)
    rules = [StopRule("valid_loss", patience, 1e9, True, "") for patience in (2, 6, 4)]
    trained_together(nets, data, valid, 5, rules)
    # The first loss of all is an improvement on infinity.
    assert [len(net.history) for net in nets] == [3, 5, 5]
    for net in nets:
        losses = net.history[:, "valid_loss"]
        assert net.evaluate(valid) == pytest.approx(min(losses), rel=EXACT), "its best weights"


def test_a_net_that_diverges_ends_alone(seed):
    data = make_data(32, seed)
    changes = [{"solver": "sgd", "weight_decay": 0.0, "learning_rate": lr} for lr in (1e-2, 1e200)]
    nets, alone = nets_of(changes, seed), nets_of(changes, seed)
    best, failed = trained_together(nets, data, None, 4, [no_stop(), no_stop()])
    assert best == 4
    assert isinstance(failed, Failed) and isinstance(failed.error, DivergenceError)
    run(alone[0], data, 4)
    assert_equal_weights(nets[0].module_, alone[0].module_)


def test_no_nets_are_no_outcomes():
    assert train_stacked([], make_data(8), None, 3, [], []) == []


def test_divergence_is_recorded_and_every_other_error_raised():
    def diverge():
        raise DivergenceError("inf")

    outcome = attempt(diverge)
    assert isinstance(outcome, Failed) and str(outcome.error) == "inf"
    assert attempt(max, 3, 4) == 4
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 / 0)
    assert copy.copy(outcome) == outcome
