"""Quantiles are found wherever a model sits; whoever has none predicts one number."""

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor
from sklearn_restrans.forecasting.predictions import levels_of, predictions

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((40, 2)), RNG.standard_normal((40, 2))
MODEL = ResidualTransformerRegressor(
    loss="quantile", quantiles=(0.2, 0.7), d_model=4, max_iter=2, random_state=0
)


@pytest.mark.parametrize("columns", [False, True])
def test_quantiles_are_those_of_the_last_step(columns):
    y, shape = (Y, (40, 2, 2)) if columns else (Y[:, 0], (40, 1, 2))
    Z = StandardScaler().fit_transform(X)
    expected = MODEL.fit(Z, y).predict_quantiles(Z).reshape(shape)
    inner = make_pipeline("passthrough", MODEL)
    nested = make_pipeline(StandardScaler(), GridSearchCV(inner, {}, cv=2))
    outer = GridSearchCV(make_pipeline(StandardScaler(), MODEL), {}, cv=2)
    for model in (nested, outer):
        model.fit(X, y)
        assert levels_of(model) == (0.2, 0.7)
        found, has_columns = predictions(model, X, levels_of(model))
        np.testing.assert_array_equal(found, expected)
        assert has_columns == columns
    members = SeedEnsembleRegressor(MODEL, n_estimators=2, random_state=0).fit(X, y)
    assert predictions(members, X, levels_of(members))[0].shape == shape


@pytest.mark.parametrize("columns", [False, True])
def test_other_models_predict_one_number(columns):
    y = Y if columns else Y[:, 0]
    for model in (Ridge(), TransformedTargetRegressor(MODEL, transformer=StandardScaler())):
        model.fit(X, y)
        assert levels_of(model) == (0.5,)
        found, has_columns = predictions(model, X, (0.5,))
        np.testing.assert_array_equal(found[..., 0].reshape(y.shape), model.predict(X))
        assert has_columns == columns
