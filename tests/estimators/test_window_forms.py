"""Models of windows read in patches: as fitted, in every search, and equal to those of arrays."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    channel_importance,
    residual_beta_path,
)
from sklearn_restrans.forecasting import backtest, make_supervised

SMALL = {"d_model": 8, "max_iter": 3, "random_state": 0, "dtype": "float64"}


def series_of(seed, n=160):
    """A wave with noise, and a random walk that strays far from where it began."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(n) / 4) + 0.1 * rng.standard_normal(n)
    return pd.DataFrame({"wave": wave, "walk": 50 + rng.standard_normal(n).cumsum()})


def assert_stacked_is_separate(model, X, y, cv):
    """Stacked products add in another order: 1e-9."""
    scores = [
        residual_beta_path(X, y, [0.5, 1.0], estimator=model, cv=cv, stacked=stacked)
        .to_frame()["score"]
        .to_numpy()
        for stacked in (True, False)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-9)


@pytest.mark.parametrize("form", [{"patch": 4}, {"patch": 6, "patch_stride": 3}], ids=str)
@pytest.mark.parametrize("n_layers", [1, 2])
def test_predictions_of_patches_are_those_of_the_materialised_array(form, n_layers, seed):
    """Up to rounding, 1e-12: rows with a short history meet a kernel with a mask."""
    frame = series_of(seed)
    frame.iloc[40, 1] = np.nan
    X, y = make_supervised(frame, "wave", 2, window=12, **form)
    model = ResidualTransformerRegressor(n_layers=n_layers, **SMALL).fit(X, y)
    whole = np.flatnonzero(~X.partial)
    # Of a window that lacks fewer rows than a patch has, every token exists.
    some = np.flatnonzero(X.ends >= 12 - form.get("patch_stride", form["patch"]))
    assert len(some) > len(whole)
    for rows in (whole, some):
        found, expected = model.predict(X[rows]), model.predict(np.asarray(X[rows]))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert model.n_features_in_ == 2 and model.net_.module_.arch.n_features == form["patch"] * 3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_statistics_of_patches_are_those_of_the_channels():
    X, y = make_supervised(series_of(0), "wave", 1, window=8)
    patched, _ = make_supervised(series_of(0), "wave", 1, window=8, patch=4)
    one, other = (
        ResidualTransformerRegressor(**SMALL).fit(view, y)._preprocessing.scaler
        for view in (X, patched)
    )
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.scale, other.scale)


def test_views_of_patches_go_through_searches_backtests_and_paths():
    X, y = make_supervised(series_of(1), "wave", [1, 2], window=8, patch=4, patch_stride=2)
    model, cv = ResidualTransformerRegressor(**SMALL), TimeSeriesSplit(2, gap=1)
    search = GridSearchCV(model, {"residual_beta": [0.5, 1.0]}, cv=cv).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    scores = backtest(model, X, y, cv)
    assert np.isfinite(scores[["MAE", "skill"]]).all(axis=None)
    assert_stacked_is_separate(model, X, y, cv)


def test_importance_permutes_all_readings_of_a_channel():
    X, y = make_supervised(series_of(2), "wave", 1, window=8, patch=4)
    model = ResidualTransformerRegressor(**SMALL | {"max_iter": 30}).fit(X, y)
    found = channel_importance(model, X[7:], y.iloc[7:], random_state=0)
    assert found.importances_mean.shape == (2,) and found.importances_mean.argmax() == 0


def test_a_model_of_patches_refuses_windows_of_another_form():
    frame = series_of(0)
    X, y = make_supervised(frame, "wave", 1, window=12, patch=4)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    with pytest.raises(ValueError, match=r"with patch=1, patch_stride=1, but .* patch=4, patch_st"):
        model.predict(SequenceView(frame, [20], 12))
    with pytest.raises(ValueError, match=r"with patch_stride=2, but .* patch_stride=4; pass"):
        model.predict(SequenceView(frame, [20], 12, patch=4, patch_stride=2))
    with pytest.raises(ValueError, match=r"X has 2 channels .* is expecting 8 channels"):
        model.predict(np.zeros((3, 3, 2)))


def test_a_classifier_reads_patches(seed):
    """The frequency of a wave is a matter of neighbouring readings."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], 60)
    phase = rng.uniform(0, 6, (120, 1))
    waves = np.sin((0.3 + 0.5 * y[:, None]) * np.arange(32) + phase)
    ends, labels = np.arange(1, 121) * 32 - 1, np.repeat(np.arange(120), 32)
    X = SequenceView(waves.reshape(-1, 1), ends, 32, segments=labels, patch=8)
    order = rng.permutation(120)
    train, test = order[:80], order[80:]
    model = ResidualTransformerClassifier(random_state=0, max_iter=60).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.9
