"""The default candidates are those that are documented, and a wrong one is named."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.forecasting import PersistenceRegressor, SeasonalNaiveRegressor
from sklearn_restrans.model_selection.forecast_candidates import (
    check_candidates,
    default_candidates,
    patch_of,
    seeded,
)


def test_the_default_candidates_are_the_documented_ones():
    found = default_candidates([2], [3], 48, freq="h", n_train=1000)
    assert {name: options for name, (_, options) in found.items()} == {
        "persistence": {},
        "seasonal naive (day)": {"window": None},
        "seasonal naive (week)": {"window": None},
        "ridge": {},
        "ridge (relative)": {"relative": "last"},
        "Transformer": {},
        "Transformer (patches, relative)": {"relative": "last", "patch": 6},
        "mean of both (patches, relative)": {"relative": "last", "patch": 6},
    }
    week = found["seasonal naive (week)"][0]
    assert isinstance(week, SeasonalNaiveRegressor)
    assert week.get_params() == {"target": [2], "period": 168, "horizon": [3]}


def test_seasons_that_training_does_not_hold_twice_are_left_out():
    names = default_candidates([0], [1], 48, freq="h", n_train=335)
    assert "seasonal naive (day)" in names
    assert "seasonal naive (week)" not in names
    assert not any("seasonal" in name for name in default_candidates([0], [1], 48, freq=1))


def test_several_targets_are_also_read_one_by_one():
    found = default_candidates([0, 1], [1], 7, estimator=Ridge())
    assert found["ridge (relative, channels apart)"][1] == {
        "relative": "last",
        "channel_independent": True,
    }
    # Seven rows are one patch or seven: there is nothing in between.
    assert not any("patches" in name for name in found)
    model, form = found["Transformer (relative, channels apart)"]
    assert isinstance(model, Ridge)
    assert form == {"relative": "last", "channel_independent": True}


def test_the_patch_is_the_largest_divisor_below_the_root():
    assert [patch_of(window) for window in (1, 2, 13, 24, 48, 49, 96, 336)] == [
        *[1, 1, 1, 4, 6, 7, 8, 16]
    ]


def test_persistence_need_not_be_given():
    ridge = Ridge(), {"window": None}
    with_it = {"ridge": ridge, "persistence": (PersistenceRegressor(), {})}
    assert check_candidates(with_it) == check_candidates({"ridge": ridge}) == {"ridge": ridge}


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ({}, "must be a dict"),
        ([Ridge()], "must be a dict"),
        ({1: (Ridge(), {})}, "name 1, which is no text"),
        ({"a": Ridge()}, r"candidates\['a'\] must be a pair"),
        ({"a": (Ridge, {})}, "must be a pair"),
        ({"a": (Ridge(), "last")}, "must be a pair"),
        ({"a": ("ridge", {})}, "must begin with a regressor"),
        ({"a": (Ridge(), {"known": "T"})}, "one series from its own past"),
        ({"a": (Ridge(), {"group": "station"})}, "one series from its own past"),
        ({"a": (Ridge(), {"horizon": 3})}, "the same for all candidates"),
        ({"a": (Ridge(), {"patches": 3})}, "does not take: choose from .*'patch'"),
        ({"persistence": (Ridge(), {})}, "the name belongs to PersistenceRegressor"),
    ],
)
def test_a_wrong_candidate_is_named(candidates, message):
    with pytest.raises(ValueError, match=message):
        check_candidates(candidates)


def test_a_seed_is_set_where_there_is_none():
    model = make_pipeline(StandardScaler(), ResidualTransformerRegressor())
    assert seeded(model, 3)[1].random_state == 3
    assert model[1].random_state is None
    assert seeded(ResidualTransformerRegressor(random_state=1), 3).random_state == 1
    assert seeded(Ridge(), None).random_state is None
    drawn = [seeded(Ridge(), np.random.RandomState(0)).random_state for _ in range(2)]
    assert drawn[0] == drawn[1]
