"""Many candidates on one problem: how they are grouped, and why they are trained apart."""

import numpy as np
import pytest
import torch
from pathdata import BETAS, assert_path_is_separate_fits, regressor, sequences, watch_groups

from sklearn_restrans import residual_beta_path
from sklearn_restrans._estimators import candidates


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


@pytest.fixture(scope="module")
def path():
    X, y = sequences()
    return residual_beta_path(X, y, BETAS, estimator=regressor(max_iter=4), n_seeds=2, cv=2)
