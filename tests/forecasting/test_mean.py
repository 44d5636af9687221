"""The mean of forecasts."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.forecasting import (
    MeanForecaster,
    PersistenceRegressor,
    RidgeForecaster,
    make_supervised,
)


def made(seed, horizon=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((80, 2)).cumsum(axis=0), columns=["a", "b"])
    return make_supervised(frame, ["a", "b"], horizon, window=4, relative="last")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("horizon", [1, [1, 2]])
def test_it_is_the_mean_and_errs_no_more_than_its_parts_do_on_average(seed, horizon):
    X, y = made(seed, horizon)
    parts = [("ridge", RidgeForecaster()), ("stiff", RidgeForecaster(alpha=1e3))]
    mean = MeanForecaster(parts).fit(X, y)
    alone = [clone(model).fit(X, y).predict(X) for _, model in parts]
    np.testing.assert_allclose(mean.predict(X), np.mean(alone, axis=0), rtol=1e-12)
    truth = y.to_numpy()
    errors = [np.mean((one - truth) ** 2) for one in alone]
    assert np.mean((mean.predict(X) - truth) ** 2) <= np.mean(errors)
    assert mean.n_features_in_ == 2 and list(mean.feature_names_in_) == ["a", "b"]


def test_a_y_of_one_column_stays_one_whatever_the_parts_return():
    X, y = np.random.default_rng(0).standard_normal((2, 20, 1))
    mean = MeanForecaster([("theirs", Ridge()), ("ours", RidgeForecaster())])
    with pytest.warns(DataConversionWarning):
        assert mean.fit(X, y).predict(X).shape == (20, 1)
    assert mean.fit(X, y.ravel()).predict(X).shape == (20,)


@parametrize_with_checks([MeanForecaster([("a", RidgeForecaster()), ("b", Ridge())])])
def test_it_keeps_to_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def test_parameters_of_the_parts_are_searched_by_name():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    model = MeanForecaster([("a", Ridge()), ("b", LinearRegression())])
    search = GridSearchCV(model, {"a__alpha": [0.1, 10.0]}, cv=2).fit(X, y)
    assert search.best_estimator_.estimators_[0].alpha == search.best_params_["a__alpha"]
    assert clone(model).set_params(b=Ridge(3.0)).get_params()["b__alpha"] == 3.0


def test_weights_go_to_all_and_validation_data_to_those_that_take_them():
    X, y = made(0)
    net = ResidualTransformerRegressor(d_model=8, max_iter=2, random_state=0)
    model = MeanForecaster([("ridge", RidgeForecaster()), ("net", net)])
    weight = np.r_[np.zeros(10), np.ones(len(y) - 10)]
    model.fit(X, y, weight, X_val=X[:10], y_val=y[:10])
    ridge, fitted = model.estimators_
    expected = RidgeForecaster().fit(X, y, weight).predict(X)
    np.testing.assert_array_equal(ridge.predict(X), expected)
    assert len(fitted.validation_scores_) == 2


@pytest.mark.parametrize(
    ("estimators", "message"),
    [
        ([], "must be a list of pairs"),
        (Ridge(), "must be a list of pairs"),
        ([("a", Ridge), ("b", Ridge())], "for 'a', which is no regressor"),
        ([("a", Ridge()), ("a", PersistenceRegressor())], "not unique"),
    ],
)
def test_what_is_no_list_of_regressors_is_refused(estimators, message):
    with pytest.raises(ValueError, match=message):
        MeanForecaster(estimators).fit(np.zeros((3, 1)), [0, 1, 2])
