"""Windows never cross from one series, station or gap to another."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
    SequenceView,
)
from sklearn_restrans.forecasting import (
    PersistenceRegressor,
    SeasonalNaiveRegressor,
    backtest,
    make_supervised,
)

N, F, WINDOW = 60, 3, 5
SMALL = {"d_model": 8, "max_iter": 3, "batch_size": 16, "random_state": 0}
STATIONS = np.repeat(["b", "a", "c"], N // 3)


def series(seed=0):
    X = np.random.default_rng(seed).standard_normal((N, F))
    return X, X[:, 0] + np.roll(X[:, 1], 1)


def hourly(X, *, gap_before=()):
    """A frame whose clock jumps by a day before some rows."""
    hours = np.arange(len(X)) + 24 * np.isin(np.arange(len(X)), gap_before).cumsum()
    return pd.DataFrame(X, pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, "h"), list("xyz"))


@pytest.mark.parametrize("estimator", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_segments_are_the_view_with_segments_and_each_station_alone(estimator):
    X, y = series()
    y = y if estimator is ResidualTransformerRegressor else y > 0
    rows = estimator(window=WINDOW, **SMALL).fit(X, y, segments=STATIONS)
    view = SequenceView(X, np.arange(N), WINDOW, segments=STATIONS)
    views = estimator(**SMALL).fit(view, y)
    method = "predict" if estimator is ResidualTransformerRegressor else "predict_proba"
    got = getattr(rows, method)(X, segments=STATIONS)
    np.testing.assert_array_equal(got, getattr(views, method)(view))
    for station in "abc":
        own = STATIONS == station
        alone = getattr(rows, method)(X[own], segments=STATIONS[own])
        np.testing.assert_array_equal(got[own], alone)
    with pytest.warns(UserWarning, match="fit was told the segments"):
        crossing = getattr(rows, method)(X)
    assert (crossing != got).any(), "without segments windows do cross"
    assert rows.score(X, y, segments=STATIONS) == views.score(view, y)


def test_a_label_that_comes_back_is_a_new_stretch():
    X, y = series()
    labels = np.r_[["a"] * 20, ["b"] * 20, ["a"] * 20]
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(X, y, segments=labels)
    np.testing.assert_array_equal(
        model.predict(X, segments=labels), model.predict(X, segments=np.arange(N) // 20)
    )


def test_validation_rows_have_segments_of_their_own():
    X, y = series()
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL)
    model.fit(X, y, segments=STATIONS, X_val=X, y_val=y, segments_val=STATIONS)
    with_segments = model.validation_scores_
    view = SequenceView(X, np.arange(N), WINDOW, segments=STATIONS)
    of_view = ResidualTransformerRegressor(**SMALL).fit(view, y, X_val=view, y_val=y)
    assert with_segments == of_view.validation_scores_


def test_segments_are_routed_through_a_search():
    X, y = series()
    with sklearn.config_context(enable_metadata_routing=True):
        model = ResidualTransformerRegressor(window=WINDOW, **SMALL)
        model.set_fit_request(segments=True).set_score_request(segments=True)
        model.set_predict_request(segments=True)
        search = GridSearchCV(model, {"residual_beta": [0.0, 1.0]}, cv=KFold(3))
        search.fit(X, y, segments=STATIONS)
    for fold, (train, test) in enumerate(KFold(3).split(X)):
        fitted = ResidualTransformerRegressor(0.0, window=WINDOW, **SMALL)
        fitted.fit(X[train], y[train], segments=STATIONS[train])
        score = fitted.score(X[test], y[test], segments=STATIONS[test])
        assert search.cv_results_[f"split{fold}_test_score"][0] == score


def test_scaling_knows_no_row_after_the_last_training_window_of_any_station():
    X, y = series()
    ends = np.flatnonzero(np.arange(N) % 20 < 12)
    view = SequenceView(X, ends, WINDOW, segments=STATIONS)
    model = ResidualTransformerRegressor(**SMALL).fit(view, y[ends])
    np.testing.assert_allclose(model._preprocessing.scaler.mean, X[ends].mean(axis=0), rtol=1e-12)
    future = X.copy()
    future[np.arange(N) % 20 >= 12] = np.nan
    later = SequenceView(future, ends, WINDOW, segments=STATIONS)
    other = ResidualTransformerRegressor(**SMALL).fit(later, y[ends])
    np.testing.assert_array_equal(other.predict(view), model.predict(view))


# ---- gaps in time stamps -------------------------------------------------------------------------


def test_a_gap_in_the_time_stamps_starts_a_segment():
    X, y = series()
    frame, labels = hourly(X, gap_before=[20, 33]), np.digitize(np.arange(N), [20, 33])
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(frame, y)
    X = frame.to_numpy()
    by_hand = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(X, y, segments=labels)
    np.testing.assert_array_equal(model.predict(frame), by_hand.predict(X, segments=labels))


def test_no_parameter_set_after_fit_moves_the_gaps():
    """Issue 12: max_gap=None set on a fitted model changed its predictions."""
    X, y = series()
    frame = hourly(X, gap_before=[20, 33])
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(frame, y)
    expected = model.predict(frame)
    assert "max_gap" not in model.get_params()
    model.set_params(window=None, embedding="token")
    np.testing.assert_array_equal(model.predict(frame), expected)


def test_stations_below_each_other_are_named_by_their_segments():
    X, y = series()
    frame = pd.concat([hourly(X[k : k + 20]) for k in (0, 20, 40)])
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL)
    with pytest.raises(ValueError, match=r"go back, or repeat, at row 20 .*segments="):
        model.fit(frame, y)
    model.fit(frame, y, segments=STATIONS)
    X = frame.to_numpy()
    by_hand = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(X, y, segments=STATIONS)
    expected = by_hand.predict(X, segments=STATIONS)
    np.testing.assert_array_equal(model.predict(frame, segments=STATIONS), expected)


def test_windows_of_make_supervised_do_not_cross_a_gap():
    frame = hourly(series()[0], gap_before=[30])
    X, y = make_supervised(frame, "x", 1, window=WINDOW)
    at = np.flatnonzero(X.ends == 31)[0]
    assert np.isnan(np.asarray(X[[at]])[0, :3]).all() and X.partial[at]
    crossing, _ = make_supervised(frame, "x", 1, window=WINDOW, max_gap=None)
    assert np.isfinite(np.asarray(crossing[[at]])).all() and len(crossing) == len(X) == len(y)


def test_the_clock_of_fit_holds_for_every_later_call():
    """A call of two rows across a gap has no median step of its own."""
    X, y = series()
    frame = hourly(X, gap_before=[20, 33])
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(frame, y)
    expected = model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.iloc[19:21])[1], expected[20])
    every_third = model.predict(frame.iloc[::3])
    for k, row in enumerate(range(0, N, 3)):  # no two rows of an hourly model's distance
        np.testing.assert_array_equal(every_third[k], model.predict(frame.iloc[[row]])[0])


def test_repeated_and_unsorted_time_stamps_are_named():
    X, y = series()
    frame = hourly(X)
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL)
    for bad in (frame.iloc[::-1], frame.iloc[np.repeat(np.arange(30), 2)]):
        with pytest.raises(ValueError, match="time stamps of X go back, or repeat, at row 1 "):
            model.fit(bad, y)
    model.fit(frame.iloc[::-1].to_numpy(), y)


def test_a_call_that_forgets_the_segments_is_told():
    X, y = series()
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL).fit(X, y, segments=STATIONS)
    with pytest.warns(UserWarning, match="fit was told the segments of its rows"):
        model.predict(X)
    ensemble = SeedEnsembleRegressor(model, n_estimators=2, random_state=0)
    ensemble.fit(X, y, segments=STATIONS)
    members = [m.predict(X, segments=STATIONS) for m in ensemble.estimators_]
    np.testing.assert_array_equal(ensemble.predict(X, segments=STATIONS), np.mean(members, axis=0))


def test_bad_segments_are_named():
    X, y = series()
    model = ResidualTransformerRegressor(window=WINDOW, **SMALL)
    with pytest.raises(ValueError, match=r"segments must hold one label per row of X, shape \(60,"):
        model.fit(X, y, segments=STATIONS[:5])
    with pytest.raises(ValueError, match="segments holds missing labels"):
        model.fit(X, y, segments=np.r_[np.nan, np.zeros(N - 1)])
    with pytest.raises(ValueError, match="segments is used with window"):
        ResidualTransformerRegressor(**SMALL).fit(X, y, segments=STATIONS)
    for wrong in ("soon", "-3h", 0, 3.5, [1]):
        with pytest.raises(ValueError, match="max_gap must be a length of time"):
            make_supervised(hourly(X), "x", 1, window=WINDOW, max_gap=wrong)


# ---- several series in one frame, and what is known in advance ----------------------------------


def stations():
    """Three stations with hourly rows of their own clock, one of them with a gap."""
    parts = []
    for k, name in enumerate("bac"):
        part = hourly(series(k)[0][:20], gap_before=[7] if name == "a" else [])
        parts.append(part.assign(station=name))
    return pd.concat(parts)


def test_targets_and_windows_of_a_frame_of_stations_stay_within_each():
    frame = stations()
    X, y = make_supervised(frame, "x", 2, window=WINDOW, group="station")
    assert X.columns.tolist() == ["x", "y", "z"]
    with warnings.catch_warnings():
        # Of the 20 rows of one station alone its gap cuts 14 % of the history away.
        warnings.filterwarnings("ignore", message="gaps between the time stamps cut away 14%")
        alone = [
            make_supervised(part.drop(columns="station"), "x", 2, window=WINDOW)
            for _, part in frame.groupby("station", sort=False)
        ]
    np.testing.assert_array_equal(np.asarray(X), np.concatenate([np.asarray(v) for v, _ in alone]))
    pd.testing.assert_series_equal(y, pd.concat([target for _, target in alone]))
    assert y.attrs["dropped"]["no_row"] == sum(t.attrs["dropped"]["no_row"] for _, t in alone)


def test_what_is_known_in_advance_stands_beside_its_target_time():
    frame = hourly(series()[0])
    X, _ = make_supervised(frame, "x", [1, 3], known=["z"])
    assert X.columns.tolist() == ["x", "y", "z", "z t+1", "z t+3"]
    for h in (1, 3):
        np.testing.assert_array_equal(X[f"z t+{h}"], frame["z"].shift(-h)[X.index])
    view, _ = make_supervised(frame, "x", 3, known="z", window=WINDOW)
    np.testing.assert_array_equal(np.asarray(view)[10, :, 3], frame["z"].iloc[9:14])
    # Nothing else of the future: a change of the other columns after the row is not seen.
    later = frame.copy()
    later.iloc[31:, :2] += 100
    changed, _ = make_supervised(later, "x", 3, known="z", window=WINDOW)
    np.testing.assert_array_equal(np.asarray(changed)[:31], np.asarray(view)[:31])


def test_bad_groups_and_known_columns_are_named():
    frame = stations()
    with pytest.raises(ValueError, match="group='shop' not in frame"):
        make_supervised(frame, "x", 1, group="shop")
    with pytest.raises(ValueError, match="comes back after another label: sort the frame by"):
        make_supervised(frame.sort_index(), "x", 1, group="station")
    with pytest.raises(ValueError, match="series 'a' of frame has unsorted time stamps"):
        make_supervised(frame.iloc[::-1].iloc[20:], "x", 1, group="station")
    with pytest.raises(ValueError, match="duplicate time stamps"):
        make_supervised(frame.drop(columns="station"), "x", 1)
    single = hourly(series()[0])
    with pytest.raises(ValueError, match=r"known=\['w'\] not in frame"):
        make_supervised(single, "x", 1, known=["w"])
    with pytest.raises(ValueError, match="target is empty"):
        make_supervised(single, [], 1)
    with pytest.raises(ValueError, match="names a column twice"):
        make_supervised(single, ["x", "x"], 1)
    with pytest.raises(ValueError, match="missing labels"):
        make_supervised(
            frame.assign(station=[np.nan, *frame["station"][1:]]), "x", 1, group="station"
        )


# ---- baselines and backtests of views -----------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, [1, 3]])
def test_baselines_read_a_view_as_they_read_its_rows(horizon):
    frame = hourly(series()[0])
    frame.iloc[[7, 8, 30], 0] = np.nan
    rows, y = make_supervised(frame.ffill(), "x", horizon)
    view, _ = make_supervised(frame.ffill(), "x", horizon, window=WINDOW)
    for baseline in (PersistenceRegressor("x"), SeasonalNaiveRegressor("x", period=6)):
        if isinstance(baseline, SeasonalNaiveRegressor):
            baseline.set_params(horizon=horizon)
        expected = clone(baseline).fit(rows, y).predict(rows)
        got = clone(baseline).fit(view, y).predict(view)
        np.testing.assert_array_equal(got, expected)
        # Any part of a view knows its own past; rows of a frame do not.
        np.testing.assert_array_equal(clone(baseline).fit(view, y).predict(view[20:]), got[20:])


def test_baselines_stay_within_a_segment():
    X = np.arange(10.0)[:, None]
    X[5] = np.nan
    view = SequenceView(X, np.arange(10), 2, segments=np.repeat([0, 1], 5))
    y = np.full(10, -1.0)
    lag = SeasonalNaiveRegressor(period=3, horizon=1).fit(view, y).predict(view)
    # 2 rows back, else the row itself; the missing one has no reading before it in its segment.
    assert lag.tolist() == [0, 1, 0, 1, 2, -1, 6, -1, 6, 7]


def test_a_backtest_of_a_view_is_that_of_its_windows():
    frame = hourly(series()[0])
    X, y = make_supervised(frame, "x", 1)
    view, _ = make_supervised(frame, "x", 1, window=WINDOW)
    cv = TimeSeriesSplit(3)
    model = ResidualTransformerRegressor(**SMALL)
    by_view = backtest(model, view, y, cv)
    by_rows = backtest(clone(model).set_params(window=WINDOW), X, y, cv)
    numbers = by_view.select_dtypes("number").columns
    # The last row of the frame has no target and is in no X: scaling and windows are the same.
    np.testing.assert_allclose(by_view[numbers], by_rows[numbers], rtol=1e-9)
    assert by_view["test_start"].tolist() == by_rows["test_start"].tolist()
    assert by_view["skill"].notna().all()


def test_a_backtest_of_stations_goes_by_their_clock():
    frame = pd.concat([hourly(series(k)[0][:30]).assign(station=k) for k in (0, 1)])
    X, y = make_supervised(frame, "x", 3, window=WINDOW, group="station")
    with pytest.raises(ValueError, match=r"time stamps of X and y go back.*argsort"):
        backtest(ResidualTransformerRegressor(**SMALL), X, y, TimeSeriesSplit(2))
    order = np.argsort(y.index, kind="stable")
    X, y = X[order], y.iloc[order]
    y.attrs = {"horizon": [3], "target": ["x"]}
    with pytest.raises(ValueError, match="before the training targets, 3 steps ahead, are known"):
        backtest(ResidualTransformerRegressor(**SMALL), X, y, TimeSeriesSplit(2, gap=2))
    scores = backtest(ResidualTransformerRegressor(**SMALL), X, y, TimeSeriesSplit(2, gap=6))
    assert (scores["test_start"] - scores["train_end"] >= pd.Timedelta("3h")).all()
    with pytest.raises(ValueError, match=r"horizon=1, but y was made with horizon \[3\]"):
        backtest(ResidualTransformerRegressor(**SMALL), X, y, TimeSeriesSplit(2), horizon=1)
