"""What this package relies on in scikit-learn's private names, tried on scikit-learn itself.

A new release that changes one of them fails here first, by name.
"""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import check_scoring, get_scorer, make_scorer, max_error, r2_score
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_validate

from sklearn_restrans import ResidualTransformerRegressor, _compat

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((30, 3)), RNG.standard_normal(30)
GRID = {"alpha": [0.1, 10.0, 1e5]}


def plain(estimator, X, y):
    return 0.0


def weighted(estimator, X, y, sample_weight=None):
    return 0.0


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (get_scorer("r2"), True),
        (make_scorer(max_error), False),
        (check_scoring(Ridge()), True),  # the estimator's own score
        (plain, False),
        (weighted, True),
    ],
)
def test_a_scorer_says_whether_it_takes_weights(scorer, expected):
    assert _compat.takes_sample_weight(scorer) is expected


def test_scorers_of_a_search_and_their_names():
    search = GridSearchCV(Ridge(), GRID, scoring=["r2", "neg_mean_squared_error"], refit="r2")
    scorers, refit_metric = _compat.search_scorers(search)
    assert (
        set(_compat.named_scorers(scorers)) == {"r2", "neg_mean_squared_error"}
        and refit_metric == "r2"
    )
    one = make_scorer(r2_score)
    assert _compat.named_scorers(one) is one


def test_fit_parameters_are_routed_as_the_search_routes_them():
    search = GridSearchCV(Ridge(), GRID)
    routed = _compat.routed_parameters(search, {"sample_weight": np.ones(30)})
    np.testing.assert_array_equal(routed.estimator.fit["sample_weight"], np.ones(30))


@pytest.mark.parametrize("scoring", [None, ["r2", "neg_mean_squared_error"]])
def test_results_put_together_from_single_fits_are_those_of_the_search(scoring):
    settings = {"scoring": scoring, "refit": False if scoring is None else "r2", "cv": 3}
    expected = GridSearchCV(Ridge(), GRID, **settings).fit(X, Y)
    search = GridSearchCV(Ridge(), GRID, **settings)
    candidates, outputs = list(ParameterGrid(GRID)), []
    for params in candidates:
        scores = cross_validate(Ridge(**params), X, Y, cv=3, scoring=scoring)
        for fold in range(3):
            one = {name[5:]: scores[name][fold] for name in scores if name.startswith("test_")}
            outputs.append(
                {
                    "test_scores": one["score"] if scoring is None else one,
                    "n_test_samples": 10,
                    "fit_time": 0.0,
                    "score_time": 0.0,
                    "fit_error": None,
                }
            )
    metric = "score" if scoring is None else "r2"
    found = _compat.conclude_search(search, candidates, outputs, metric, 3)
    assert found["multimetric_"] == expected.multimetric_
    assert (found["best_index_"], found["best_params_"]) == (
        expected.best_index_,
        expected.best_params_,
    )
    for name, column in expected.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(found["cv_results_"][name], column, err_msg=name)


def test_parameters_are_validated_by_their_constraints():
    _compat.validate_params(ResidualTransformerRegressor())
    with pytest.raises(_compat.InvalidParameterError, match="'d_model' parameter"):
        _compat.validate_params(ResidualTransformerRegressor(d_model=0))


def test_every_name_on_offer_is_there():
    assert _compat.__all__ == sorted(_compat.__all__)
    assert all(hasattr(_compat, name) for name in _compat.__all__)
