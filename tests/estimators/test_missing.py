"""Missing readings: the mean, and a learnt vector where fit saw the column miss one."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    residual_beta_path,
)

N, T, F = 90, 5, 3
SMALL = {"d_model": 8, "max_iter": 4, "batch_size": 32, "random_state": 0}


def rows(seed=0, share=0.2):
    """Rows with readings missing in columns 0 and 2, and a target that tells where."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, F))
    y = X[:, 1] + 2.0 * rng.standard_normal(N)
    gone = rng.random((N, F)) < share
    gone[:, 1] = False
    y[gone[:, 0]] += 5.0
    return np.where(gone, np.nan, X), y


def three_d():
    X, y = rows()
    return np.stack([np.roll(X, T - 1 - k, axis=0) for k in range(T)], axis=1), y


def view():
    X, y = rows()
    return SequenceView(X, np.arange(N), T), y


KINDS = {"table": rows, "sequences": three_d, "view": view}


def prepared(model, X):
    """Scaled readings, and where they are missing, as fit is said to prepare them."""
    filled = (X - model._preprocessing.scaler.mean) / model._preprocessing.scaler.scale
    gone = np.isnan(X[..., [0, 2]])
    return np.concatenate([np.nan_to_num(filled), gone], axis=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_sees_the_mean_and_where_a_reading_is_missing(kind):
    X, y = KINDS[kind]()
    model = ResidualTransformerRegressor(**SMALL, dtype="float64").fit(X, y)
    inputs = prepared(model, np.asarray(X))
    full = slice(T - 1, None) if kind == "view" else slice(None)
    x = torch.tensor(inputs[full])
    with torch.no_grad():
        outputs = model.net_.module_(x[..., None] if kind == "table" else x)
    expected = model._preprocessing.targets.scaler.inverse(outputs.numpy())[:, 0]
    np.testing.assert_allclose(model.predict(X)[full], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_that_a_reading_is_missing_is_learnt(kind):
    """The target says where one is missing; with the mean filled in nothing tells it."""
    X, _ = KINDS[kind]()
    gone = np.isnan(rows()[0][:, 0])
    y = gone.astype(float)
    if kind == "view":
        filled = SequenceView(np.nan_to_num(X.series), X.ends, X.window)
    else:
        filled = np.nan_to_num(X)
    model = ResidualTransformerRegressor(d_model=16, max_iter=40, weight_decay=0.0, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.9
    assert model.fit(filled, y).score(filled, y) < 0.8


def test_columns_that_never_missed_a_reading_take_their_mean():
    X, y = rows()
    complete = np.nan_to_num(X)
    model = ResidualTransformerRegressor(**SMALL).fit(complete, y)
    assert model.net_.module_.arch.n_tokens == F
    holes = complete.copy()
    holes[3, 1] = np.nan
    mean = complete.copy()
    mean[3, 1] = complete[:, 1].mean()
    np.testing.assert_allclose(model.predict(holes), model.predict(mean), rtol=1e-6)


def test_statistics_are_those_of_the_readings():
    X, y = three_d()
    X[:20, -2:] = np.nan  # padding is no missing reading
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    np.testing.assert_allclose(
        model._preprocessing.scaler.mean, np.nanmean(X, axis=(0, 1)), rtol=1e-12
    )
    assert model._preprocessing.scaler.missing.tolist() == [0, 2]
    only_padding = np.nan_to_num(three_d()[0])
    only_padding[:20, -2:] = np.nan
    assert not len(clone(model).fit(only_padding, y)._preprocessing.scaler.missing)


def test_a_prediction_depends_on_its_own_row_alone():
    for kind in KINDS:
        X, y = KINDS[kind]()
        model = ResidualTransformerRegressor(**SMALL, dtype="float32").fit(X, y)
        expected = model.predict(X)
        for part in (slice(3, 40), slice(None, None, -1), [7]):
            np.testing.assert_array_equal(model.predict(X[part]), expected[part])


def test_windows_of_rows_views_and_arrays_are_one_thing():
    X, y = rows()
    by_window = ResidualTransformerRegressor(**SMALL, window=T).fit(X, y)
    by_view = ResidualTransformerRegressor(**SMALL).fit(SequenceView(X, np.arange(N), T), y)
    np.testing.assert_array_equal(
        by_window.predict(X), by_view.predict(SequenceView(X, np.arange(N), T))
    )


def test_a_column_without_any_reading_and_a_constant_one():
    X, y = rows()
    X[:, 1], X[:, 2] = np.nan, 7.0
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_missing_readings_go_through_searches_and_paths():
    X, y = rows()
    search = GridSearchCV(
        ResidualTransformerClassifier(**SMALL), {"residual_beta": [0.0, 1.0]}, cv=3
    ).fit(X, y > np.median(y))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    path = residual_beta_path(X, y, [0, 1], estimator=ResidualTransformerRegressor(**SMALL), cv=3)
    assert np.isfinite(path.to_frame()["score"]).all() and path.plan["mode"] == "stacked"
    assert get_tags(search.estimator).input_tags.allow_nan


def test_the_target_may_not_be_missing():
    X, y = rows()
    for missing in (np.nan, None):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            ResidualTransformerRegressor(**SMALL).fit(X, [missing, *y[1:]])
