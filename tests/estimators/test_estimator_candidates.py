"""Many candidates on one problem: how they are grouped, and that each is the fit by itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pathdata import assert_path_is_separate_fits, regressor, sequences, watch_groups

from sklearn_restrans import DivergenceError, residual_beta_path
from sklearn_restrans._estimators import candidates
from sklearn_restrans._estimators.fitting import Trained, fit_problem
from sklearn_restrans._estimators.parameters import beta_matrix
from sklearn_restrans._estimators.preparation import prepare, training_settings
from sklearn_restrans._training.stack import Failed


@pytest.fixture
def sizes(monkeypatch):
    return watch_groups(monkeypatch)


@pytest.mark.parametrize(
    ("room", "expected"), [(7.5, [7]), (6.9, [4, 3]), (3.5, [3, 2, 2]), (1.9, [1] * 7)]
)
def test_a_group_is_as_large_as_the_budget_allows(monkeypatch, sizes, room, expected):
    X, y = sequences()
    # Folded read-out of 16 sequences of 6 tokens in float64: T (2 h + f) + 6 d + 2 m numbers each.
    each = 8 * 16 * (6 * (2 + 3) + 6 * 8 + 2 * 16)
    monkeypatch.setattr(candidates, "_GROUP_BYTES", int(room * each))
    path = residual_beta_path(X, y, np.arange(7) / 4, estimator=regressor())
    assert sizes == expected
    assert path.plan["mode"] == ("separate" if room < 2 else "stacked")
    assert path.plan["reason"].startswith(f"a step of one candidate takes {each:,} bytes of")
    assert_path_is_separate_fits(path, regressor(), X, y)


def plan(X, **settings):
    y = X[:, 0] if X.ndim == 2 else X[:, 0, 0]
    return residual_beta_path(X, y, [0, 1, 2, 3], estimator=regressor(max_iter=1, **settings)).plan


def test_stacking_is_for_small_steps():
    X = np.random.default_rng(0).standard_normal((70, 80, 2)).astype(np.float32)
    few = {"batch_size": 64, "d_model": 16, "conditioning_samples": 2}
    # Measured on one core, stacked against separate: 3 times as fast, 1.7 times, and 0.6 times.
    assert plan(X, **few)["size"] == 4
    assert plan(X[:, :24], readout="mean", **few)["size"] == 4
    assert plan(X, readout="mean", **few | {"d_model": 64})["mode"] == "separate"


def test_one_candidate_and_a_wish_are_reasons(sizes):
    X, y = sequences()
    assert residual_beta_path(X, y, [1]).plan["reason"] == "there is only one candidate for a group"
    path = residual_beta_path(X, y, [0, 1], estimator=regressor(max_iter=1), stacked=False)
    assert path.plan == {"mode": "separate", "size": 1, "reason": "stacked=False"}
    assert sizes == [1, 1, 1]


def test_on_cuda_memory_is_the_budget(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80_000, 160_000))
    assert candidates._budget(torch.device("cuda")) == 20_000
    assert candidates._budget(torch.device("cpu")) == candidates._GROUP_BYTES


# ---- trained together ----------------------------------------------------------------------------


def candidate(model, problem, beta, seed, **changes):
    settings = replace(training_settings(model, problem), **changes)
    return candidates.Candidate(beta_matrix(beta, model.n_layers), seed, settings)


def test_candidates_of_one_problem_are_the_fits_of_each():
    X, y = sequences(padded=True)
    model = regressor()
    problem = prepare(model, X, y)
    several = [candidate(model, problem, beta, seed) for beta, seed in ((0, 1), (0.5, 2), (2, 1))]
    outcomes = candidates.fit_candidates(problem, several)
    for one, trained in zip(several, outcomes, strict=True):
        alone = fit_problem(problem, one.settings, one.beta, one.seed)
        assert isinstance(trained, Trained) and trained.best_epoch == alone.best_epoch
        pairs = zip(trained.net.module_.parameters(), alone.net.module_.parameters(), strict=True)
        for weight, expected in pairs:
            torch.testing.assert_close(weight, expected, rtol=0, atol=1e-12)
        assert "stop_rule" not in dict(trained.net.callbacks_)
        assert trained.net.valid_set_ is None, "a net keeps nothing of the data"


@pytest.mark.parametrize("n_good", [0, 1])
def test_a_candidate_that_diverges_is_recorded_as_failed(n_good):
    """At any place: on its own, or beside one that trains to its end."""
    X, y = sequences()
    model = regressor(solver="sgd", learning_rate="constant")
    problem = prepare(model, X, y)
    bad = candidate(model, problem, 1.0, 0, learning_rate=1e200)
    good = [candidate(model, problem, 1.0, 0, learning_rate=1e-3)] * n_good
    failed, *others = candidates.fit_candidates(problem, [bad, *good])
    assert isinstance(failed, Failed) and isinstance(failed.error, DivergenceError)
    assert [type(one) for one in others] == [Trained] * n_good


def test_estimators_that_diverge_stay_unfitted():
    X, y = sequences()
    models = [
        regressor(solver="sgd", learning_rate="constant", learning_rate_init=step)
        for step in (1e-3, 1e200)
    ]
    outcomes, seconds = candidates.fit_estimators(models, X, y)
    assert outcomes[0] is models[0] and isinstance(outcomes[1].error, DivergenceError)
    assert seconds > 0
    assert hasattr(models[0], "net_") and not hasattr(models[1], "net_")


def test_the_parameters_that_may_differ_are_parameters():
    assert set(candidates.STACKABLE) <= regressor().get_params().keys()
