"""Models of patches and of relative windows: as fitted, in searches, equal to those of arrays."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
    SequenceView,
    channel_importance,
    residual_beta_path,
)
from sklearn_restrans._data.sources import DenseSource
from sklearn_restrans._data.windows import rows_in
from sklearn_restrans._training.prediction import outputs
from sklearn_restrans.forecasting import ConformalIntervals, backtest, make_supervised

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


# ---- relative windows ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["last", "standard"])
@pytest.mark.parametrize("form", [{}, {"patch": 4}], ids=str)
def test_relative_predictions_are_those_of_the_plain_formula(kind, form, seed):
    """The trained net on materialised windows of which the formula was taken off by hand.

    In float64, up to the rounding of a subtraction before or after the scaling, 1e-9.
    """
    X, y = make_supervised(series_of(seed), "walk", [1, 3], window=8, relative=kind, **form)
    X, y = X[7:], y.iloc[7:]
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    codings, window = model._preprocessing, rows_in(X, slice(None))
    location = window[:, -1:] if kind == "last" else window.mean(axis=1, keepdims=True)
    scale = codings.scaler.scale
    deviation = 1.0 if kind == "last" else window.std(axis=1, keepdims=True)
    by_hand = (window - location) / (scale if kind == "last" else deviation) * codings.relative.gain
    by_hand = torch.from_numpy(by_hand.reshape(X.shape))
    relative_y = (y.to_numpy() - location[:, 0, 1:]) / (
        deviation if kind == "last" else deviation[:, 0, 1:]
    )
    targets = codings.targets.scaler
    np.testing.assert_allclose(targets.mean, relative_y.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(targets.scale, relative_y.std(axis=0), rtol=1e-9)
    raw = outputs(model.net_.module_, DenseSource(by_hand)) * targets.scale + targets.mean
    expected = raw * (deviation if kind == "last" else deviation[:, 0, 1:]) + location[:, 0, 1:]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)
    np.testing.assert_allclose(model.predict(np.asarray(X)), expected, rtol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ["last", "standard"])
def test_predictions_follow_the_level_and_with_standard_the_size(kind, seed):
    """Far outside the level of training too: nothing but what is relative is ever cut.

    Readings of size 1e4 round at 1e-12, and a window has a deviation of about 1: 1e-7. The size of
    the one reading that the first window has is not known.
    """
    frame = series_of(seed)
    X, y = make_supervised(frame, "wave", 2, window=8, relative=kind, patch=2)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    form = {"patch": 2, "relative": kind}
    factor = 1.0 if kind == "last" else 3.0
    moved = SequenceView(factor * frame + 1e4, X.ends, 8, **form)
    found, expected = model.predict(moved), factor * model.predict(X) + 1e4
    np.testing.assert_allclose(found[1:], expected[1:], rtol=0, atol=1e-7)


def test_targets_of_columns_that_are_not_relative_stay_as_they_are():
    X, y = make_supervised(
        series_of(0), "wave", 1, window=8, relative="last", relative_columns=["walk"]
    )
    assert X.form.columns == (1,) and X.form.targets == (None,)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    np.testing.assert_allclose(model._preprocessing.targets.scaler.mean, y.mean(), rtol=1e-12)
    other = SequenceView(
        series_of(0) + np.array([0.0, 1e3]), X.ends, 8, relative="last", relative_columns="walk"
    )
    np.testing.assert_allclose(model.predict(other), model.predict(X), atol=1e-9)


@pytest.mark.parametrize("kind", ["last", "standard"])
def test_relative_windows_go_through_searches_backtests_and_paths(kind):
    X, y = make_supervised(series_of(1), ["walk", "wave"], [1, 2], window=8, relative=kind)
    assert X.form.targets == (1, 1, 0, 0)
    model, cv = ResidualTransformerRegressor(**SMALL), TimeSeriesSplit(2, gap=1)
    search = GridSearchCV(model, {"residual_beta": [0.5, 1.0]}, cv=cv).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    scores = backtest(model, X, y, cv)
    assert np.isfinite(scores[["MAE", "skill"]]).all(axis=None)
    assert_stacked_is_separate(model, X, y, cv)
    ensemble = SeedEnsembleRegressor(model, n_estimators=2, random_state=0).fit(X, y)
    assert ensemble.predict(X[:3]).shape == (3, 4)


def test_early_stopping_and_warm_start_read_the_windows_of_the_first_fit():
    X, y = make_supervised(series_of(3), "walk", 1, window=8, relative="last")
    stopped = ResidualTransformerRegressor(**SMALL, early_stopping=True).fit(X[:120], y.iloc[:120])
    given = ResidualTransformerRegressor(**SMALL).fit(
        X[:100], y.iloc[:100], X_val=X[110:], y_val=y.iloc[110:]
    )
    # The walk strays by about 1 a step from a level of 50: relative targets are of that size.
    for model in (stopped, given):
        assert np.sqrt(np.mean((model.predict(X[110:]) - y.iloc[110:]) ** 2)) < 3
        assert max(-score for score in model.validation_scores_) < 10
    warm = ResidualTransformerRegressor(**SMALL, warm_start=True).fit(X[:100], y.iloc[:100])
    before = warm._preprocessing.relative
    warm.fit(X[50:], y.iloc[50:])
    assert warm._preprocessing.relative is before


def test_a_model_of_relative_windows_refuses_others():
    frame = series_of(0)
    X, y = make_supervised(frame, "walk", 1, window=8, relative="last")
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    for form, message in [
        ({}, r"with relative=None, relative_columns=\[\], but .* fitted on relative='last', re"),
        ({"relative": "standard"}, "with relative='standard', but .* fitted on relative='last'"),
        ({"relative": "last", "relative_columns": 1}, r"with relative_columns=\[1\], but"),
        ({"relative": "last", "target_columns": 0}, r"target_columns=\(0,\), but .*=\(1,\); pass"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.predict(SequenceView(frame, [20], 8, **form))
    absolute = ResidualTransformerRegressor(**SMALL).fit(
        make_supervised(frame, "walk", 1, window=8)[0], y
    )
    with pytest.raises(ValueError, match=r"with relative='last', .* fitted on relative=None"):
        absolute.predict(X)
    with pytest.raises(ValueError, match=r"y has 2 column\(s\), but .* given 1 target_columns"):
        ResidualTransformerRegressor(**SMALL).fit(X, np.column_stack([y, y]))


def test_a_classifier_reads_relative_windows_and_keeps_its_labels(seed):
    """Classes by the direction of a walk whose level says nothing."""
    rng = np.random.default_rng(seed)
    y = np.repeat(["down", "up"], 60)
    steps = np.where(y == "up", 0.5, -0.5)[:, None] + rng.standard_normal((120, 16))
    walks = 100 * rng.standard_normal((120, 1)) + steps.cumsum(axis=1)
    ends, labels = np.arange(1, 121) * 16 - 1, np.repeat(np.arange(120), 16)
    X = SequenceView(walks.reshape(-1, 1), ends, 16, segments=labels, patch=4, relative="last")
    order = rng.permutation(120)
    train, test = order[:80], order[80:]
    model = ResidualTransformerClassifier(random_state=0, max_iter=40).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.8
    assert set(model.predict(X)) == {"down", "up"}


@pytest.mark.parametrize("kind", ["last", "standard"])
@pytest.mark.parametrize("horizons", [1, [1, 3]])
def test_quantiles_and_intervals_follow_the_level_of_the_window(kind, horizons, seed):
    """Every level, of every target; moved by 1e4, where float64 keeps 1e-7 of these numbers."""
    frame, shift = series_of(seed), 1e4
    X, y = make_supervised(frame, "walk", horizons, window=8, relative=kind)
    moved, _ = make_supervised(frame + shift, "walk", horizons, window=8, relative=kind)
    model = ResidualTransformerRegressor(loss="quantile", **SMALL).fit(X[:100], y[:100])
    found, later = model.predict_quantiles(X), model.predict_quantiles(moved)
    assert found.shape == (*np.shape(y), 3)
    np.testing.assert_allclose(later, found + shift, rtol=0, atol=1e-7)
    assert (np.diff(found, axis=-1) >= 0).all()
    np.testing.assert_allclose(found[..., 1], model.predict(X), rtol=1e-12)
    intervals = ConformalIntervals(model).calibrate(X[100:], y[100:])
    np.testing.assert_allclose(
        intervals.predict_interval(moved, 0.8),
        intervals.predict_interval(X, 0.8) + shift,
        rtol=0,
        atol=1e-7,
    )


@pytest.mark.parametrize("kind", ["last", "standard"])
def test_a_transformed_target_of_relative_windows_is_refused(kind, seed):
    """As predictions get the level of the raw windows added, they would be far off in silence."""
    X, y = make_supervised(series_of(seed), "walk", 1, window=8, relative=kind)
    model = ResidualTransformerRegressor(**SMALL)
    around = TransformedTargetRegressor(model, transformer=StandardScaler())
    with pytest.raises(
        ValueError, match=r"y is not in the units of column 'walk' .* leave y as it"
    ):
        around.fit(X, y)
    plain, y = make_supervised(series_of(seed), "walk", 1, window=8)
    assert around.fit(plain, y).predict(plain).shape == y.shape


def test_second_order_solvers_read_relative_patches(seed):
    X, y = make_supervised(series_of(seed), "walk", 1, window=8, patch=4, relative="last")
    for solver in ("gauss_newton", "lbfgs"):
        model = ResidualTransformerRegressor(solver=solver, **SMALL | {"max_iter": 8}).fit(X, y)
        assert model.convergence_.relative_loss[-1] < 0.5


# ---- channels as samples -------------------------------------------------------------------------


def by_hand(X, y, n_train):
    """Standardised channels of two columns, one after the other, and their windows and targets."""
    series = np.asarray(X.series, dtype=float)
    seen = series[: X.ends[n_train - 1] + 1]
    mean, scale = seen.mean(axis=0), seen.std(axis=0)
    stacked, n = ((series - mean) / scale).T.reshape(-1, 1), len(series)
    ends = (X.ends[:, None] + np.arange(2) * n).ravel()
    targets = (y.to_numpy().reshape(len(y), 2, -1) - mean[:, None]) / scale[:, None]
    h = targets.shape[2]
    form = X.form.arguments | ({"target_columns": [0] * h} if X.form.relative else {})
    view = SequenceView(stacked, ends, X.window, segments=np.repeat([0, 1], n), **form)

    def wide(predicted):
        predicted = predicted.reshape(len(y), 2, h) * scale[:, None] + mean[:, None]
        return predicted.reshape(len(y), -1)

    return view, targets.reshape(-1, h), wide


@pytest.mark.parametrize("kind", [None, "last", "standard"])
@pytest.mark.parametrize("patch", [1, 4])
def test_channels_as_samples_are_a_fit_on_stacked_standardised_channels(kind, patch, seed):
    """In float64, to the rounding of another order of standardisations."""
    options = {"window": 8, "patch": patch, "relative": kind}
    frame = series_of(seed)
    X, y = make_supervised(frame, ["wave", "walk"], [1, 3], channel_independent=True, **options)
    n_train = 110
    model = ResidualTransformerRegressor(**SMALL).fit(X[:n_train], y[:n_train])
    view, targets, wide = by_hand(X, y, n_train)
    same = ResidualTransformerRegressor(**SMALL).fit(view[: 2 * n_train], targets[: 2 * n_train])
    np.testing.assert_allclose(model.predict(X), wide(same.predict(view)), rtol=1e-9, atol=1e-9)
    assert model.n_features_in_ == 2 and model.predict(X).shape == y.shape
    assert model.net_.module_.W_in.shape[0] == patch, "one channel"
    np.testing.assert_allclose(
        model.conditioning_.sigma_min, same.conditioning_.sigma_min, rtol=1e-6
    )


def test_channels_as_samples_go_through_searches_backtests_paths_and_ensembles():
    frame, options = series_of(0), {"window": 8, "patch": 4, "relative": "last"}
    X, y = make_supervised(frame, ["wave", "walk"], 2, channel_independent=True, **options)
    model, cv = ResidualTransformerRegressor(**SMALL), TimeSeriesSplit(2, gap=1)
    search = GridSearchCV(model, {"residual_beta": [0.5, 1.0]}, cv=cv).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert_stacked_is_separate(model, X, y, cv)
    scores = backtest(model, X, y, cv)
    assert scores["output"].tolist() == ["wave t+2", "walk t+2"] * 2
    ensemble = SeedEnsembleRegressor(model, n_estimators=2, random_state=0).fit(X, y)
    members = [member.predict(X) for member in ensemble.estimators_]
    np.testing.assert_allclose(ensemble.predict(X), np.mean(members, axis=0))
    again = pickle.loads(pickle.dumps(ensemble))
    np.testing.assert_array_equal(again.predict(X), ensemble.predict(X))


def test_channels_as_samples_with_weights_validation_quantiles_and_warm_starts():
    frame, options = series_of(1), {"window": 8, "relative": "last"}
    X, y = make_supervised(frame, ["walk", "wave"], [1, 2], channel_independent=True, **options)
    n = 120
    weight = np.r_[np.zeros(20), np.ones(n - 20)]
    model = ResidualTransformerRegressor(loss="quantile", early_stopping=True, **SMALL)
    model.fit(X[:n], y[:n], weight)
    quantiles = model.predict_quantiles(X)
    assert quantiles.shape == (*y.shape, 3) and (np.diff(quantiles, axis=2) >= 0).all()
    np.testing.assert_array_equal(quantiles[..., 1], model.predict(X))
    # Its order is that of y: the walk stays near 50, the wave near 0.
    assert (model.predict(X)[:, :2] > 20).all() and (np.abs(model.predict(X)[:, 2:]) < 5).all()
    intervals = ConformalIntervals(model).calibrate(X[n:], y[n:])
    assert intervals.predict_interval(X[n:], 0.8).shape == (*y[n:].shape, 2)
    warm = ResidualTransformerRegressor(warm_start=True, **SMALL)
    warm.fit(X[:n], y[:n], X_val=X[n:], y_val=y[n:]).fit(X[:n], y[:n], X_val=X[n:], y_val=y[n:])
    assert warm.n_iter_ == 2 * SMALL["max_iter"]


def test_models_of_channels_refuse_other_views_and_targets():
    frame, options = series_of(0), {"window": 8, "relative": "last"}
    X, y = make_supervised(frame, ["wave", "walk"], 2, channel_independent=True, **options)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    together, _ = make_supervised(frame, ["wave", "walk"], 2, **options)
    with pytest.raises(ValueError, match=r"channel_independent=False, but .* fitted on"):
        model.predict(together)
    with pytest.raises(ValueError, match=r"in X_val, y_val: y has 1 column"):
        ResidualTransformerRegressor(**SMALL).fit(X, y, X_val=X, y_val=y["walk t+2"])
    # What is predicted need not be said.
    view = SequenceView(frame, [100], 8, relative="last", channel_independent=True)
    assert model.predict(view).shape == (1, 2)


def test_models_of_channels_read_arrays_of_whole_windows_and_say_which_channel_matters():
    frame, options = series_of(0), {"window": 8, "patch": 4, "relative": "last"}
    X, y = make_supervised(frame, ["wave", "walk"], 2, channel_independent=True, **options)
    X, y = X[~X.partial], y[~X.partial]
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    np.testing.assert_allclose(model.predict(np.asarray(X)), model.predict(X), rtol=1e-12)
    importance = channel_importance(model, X, y, n_repeats=2, random_state=0)
    assert importance["importances"].shape == (2, 2) and (importance["importances"] > 0.1).all()
