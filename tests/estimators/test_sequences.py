"""The contract for sequences: 3-D X, padding, windows over 2-D rows, and views.

What scikit-learn's checks ask of tables is asked here of sequences, to the bit: a row's prediction
does not depend on which rows come with it, in which order, or how many.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit, cross_val_score
from smallmodels import ESTIMATORS, SMALL, outputs

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans._training import prediction

N, T, F = 150, 6, 3  # more rows than two chunks of prediction


def make(estimator, n=N, seed=0):
    """Sequences (n, T, F) and targets that the last tokens decide."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, T, F))
    y = X[:, 0, 0] - X[:, 1, 1] + 0.1 * rng.standard_normal(n)
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


def pad(X, seed=0):
    """X with the last tokens of about half of its sequences missing, and the lengths."""
    rng = np.random.default_rng(seed)
    length = np.where(rng.random(len(X)) < 0.5, T, rng.integers(1, T + 1, len(X)))
    X = X.copy()
    X[np.arange(T) >= length[:, None]] = np.nan
    return X, length


def series(estimator, n=N, seed=0):
    """Rows in time order (n, F) and targets that need the row two steps before."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, F))
    y = np.r_[0.0, 0.0, X[:-2, 0]] + 0.5 * X[:, 1]
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


# -- shapes and kinds ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_features_are_channels(estimator):
    X, y = make(estimator)
    model = estimator(**SMALL).fit(pd.DataFrame(X[:, 0], columns=["a", "b", "c"]), y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.fit(X, y)
    assert model.n_features_in_ == F
    assert not hasattr(model, "feature_names_in_")
    assert outputs(model, X[:7]).shape[0] == 7
    assert model.fit(X[:, :, :1], y).n_features_in_ == 1


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_lists_and_other_number_types_are_sequences_too(estimator):
    X, y = make(estimator)
    X = np.round(X * 8)  # exact in every type tried
    expected = outputs(estimator(**SMALL).fit(X, y), X)
    for form in (X.tolist(), list(X), X.astype(int), X.astype(np.float16), X.astype(object)):
        model = estimator(**SMALL).fit(form, y)
        np.testing.assert_array_equal(outputs(model, form), expected)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["fit again with warm_start", "predict", "validate"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :, :2], "X has 2 channels .* is expecting 3 channels"),
        (lambda X: X[:, :4], "X has sequences of 4 tokens, but .* was fitted on 6; pad shorter"),
        (lambda X: X[:, 0], "X is a 2-D table, but .* was fitted on a 3-D array"),
        (lambda X: X[..., None], "X has 4 axes; a table has 2, an array of sequences 3"),
        (lambda X: X[:, 0, 0], "Expected 2D array, got 1D array"),
        (lambda X: X[:, :0], "0 tokens or 0 feature"),
        (lambda X: X[:, :, :0], "0 tokens or 0 feature"),
        (lambda X: X + 1j, "Complex data not supported"),
        (lambda X: [X[0], *(x[:4] for x in X[1:])], "sequences of 4 to 6 tokens; pad the shorter"),
    ],
)
def test_input_that_does_not_fit_the_model_is_refused(estimator, method, change, message):
    X, y = make(estimator)
    model = estimator(warm_start=True, **SMALL)
    with pytest.raises(ValueError, match=message):
        if method == "predict":
            model.fit(X, y).predict(change(X))
        elif method == "validate":
            model.fit(X, y, X_val=change(X), y_val=y)
        else:
            model.fit(X, y).fit(change(X), y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_model_of_tables_or_windows_refuses_sequences(estimator):
    X, y = series(estimator)
    S, _ = make(estimator)
    view = SequenceView(X, np.arange(5, N), window=3)
    table, windows = estimator(**SMALL).fit(X, y), estimator(window=3, **SMALL).fit(X, y)
    for other in (S, view):
        with pytest.raises(ValueError, match=r"X is a 3-D array .* was fitted on a 2-D table"):
            table.predict(other)
        with pytest.raises(ValueError, match="was fitted on a 2-D array cut into"):
            windows.predict(other)
        with pytest.raises(ValueError, match="window=3 cuts windows out of 2-D rows, but X is al"):
            estimator(window=3, **SMALL).fit(other, y[: len(other)])
    sequences = estimator(**SMALL).fit(view, y[5:])
    assert len(sequences.predict(make(estimator)[0][:, :3])) == N  # a view or an array: one kind


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_rows_are_refused(estimator):
    X, y = make(estimator)
    view = SequenceView(X[:, 0], np.arange(9, 19), window=3)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        estimator(**SMALL).fit(X, y).predict(X[:0])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        estimator(**SMALL).fit(view, y[:10]).predict(view[:0])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        estimator(**SMALL).fit(view[:0], y[:0])


# -- padding ---------------------------------------------------------------------------------------


def missing_everywhere(X):
    X[3] = np.nan


def infinite(X):
    X[3, -1, 0] = np.inf


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["fit", "predict", "validate"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing_everywhere, r"all padding \(NaN in every token\), first at row 3; remove them"),
        (infinite, "Input X contains infinity"),
    ],
)
def test_sequences_without_a_reading_and_infinite_ones_are_refused(
    estimator, method, spoil, message
):
    X, y = make(estimator)
    X, _ = pad(X)
    X[3] = 1.0
    spoiled = X.copy()
    spoil(spoiled)
    with pytest.raises(ValueError, match=message):
        if method == "fit":
            estimator(**SMALL).fit(spoiled, y)
        elif method == "predict":
            estimator(**SMALL).fit(X, y).predict(spoiled)
        else:
            estimator(**SMALL).fit(X, y, X_val=spoiled, y_val=y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("settings", [{}, {"n_layers": 2, "n_heads": 2, "norm": "pre"}])
def test_padding_is_as_if_the_sequence_ended_there(estimator, readout, settings):
    """Each length against a model of that many tokens with the same weights, plain formulas."""
    X, y = make(estimator)
    X, length = pad(X)
    model = estimator(readout=readout, **SMALL, **settings).fit(X, y)
    module = model.net_.module_
    real = X[~np.isnan(X[..., 0])]
    scaled = (X - real.mean(axis=0)) / real.std(axis=0)
    raw = model._outputs(X)
    for t in range(1, T + 1):
        short = ResidualTransformer(replace(module.arch, n_tokens=t)).double()
        state = module.state_dict()
        short.load_state_dict(state | {"positions": state["positions"][:t]})
        rows = length == t
        with torch.inference_mode():
            expected = short.eval()(torch.as_tensor(scaled[rows, :t])).numpy()
        # float64 and a handful of matrix products: some tens of eps
        expected = (
            expected
            if "predict_proba" in dir(model)
            else model._preprocessing.targets.scaler.inverse(expected)
        )
        got = raw[rows] if "predict_proba" in dir(model) else model.predict(X[rows])[:, None]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_more_padding_changes_no_fit(estimator, readout):
    """Three tokens of padding behind every sequence; no learned positions, so equal weights."""
    X, y = make(estimator)
    X, _ = pad(X)
    longer = np.concatenate([X, np.full((N, 3, F), np.nan)], axis=1)
    model = estimator(positions="sinusoidal", readout=readout, **SMALL)
    expected = outputs(clone(model).fit(X, y), X)
    # Sums over 9 tokens, not 6, round otherwise; nine steps amplify that by far less than 1e4.
    np.testing.assert_allclose(
        outputs(clone(model).fit(longer, y), longer), expected, rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padded_sequences_go_through_a_search(estimator):
    X, y = make(estimator)
    X, _ = pad(X)
    search = GridSearchCV(estimator(**SMALL), {"residual_beta": [0.0, 1.0]}, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# -- a prediction depends on its own row alone ----------------------------------------------------


def of_table(estimator):
    X, y = make(estimator)
    return X[:, 0], y


def of_sequences(estimator):
    return make(estimator)


def of_padded_sequences(estimator):
    X, y = make(estimator)
    return pad(X)[0], y


def of_views(estimator):
    X, y = series(estimator, n=N + 5)
    return SequenceView(X, np.arange(5, N + 5), window=T), y[5:]


def of_views_with_short_history(estimator):
    X, y = series(estimator)
    return SequenceView(X, np.arange(N), 4, dilation=3, segments=np.repeat([0, 1], N // 2)), y


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("d_model", [16, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "data", [of_table, of_sequences, of_padded_sequences, of_views, of_views_with_short_history]
)
def test_rows_are_predicted_alike_in_any_company(data, dtype, d_model, readout):
    """To the bit: one by one, reversed, shuffled, sliced, repeated."""
    X, y = data(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(
        d_model=d_model, readout=readout, dtype=dtype, max_iter=1, random_state=0
    ).fit(X, y)
    expected = model.predict(X)
    rng = np.random.default_rng(0)
    parts = [slice(1), slice(None, None, -1), slice(3, 70), slice(64), slice(65, None, 2)]
    parts += [
        rng.permutation(N),
        rng.integers(0, N, 400),
        *np.arange(N)[rng.permutation(N)[:40, None]],
    ]
    for rows in parts:
        np.testing.assert_array_equal(model.predict(X[rows]), expected[rows])


@pytest.mark.parametrize("settings", [{"n_heads": 2}, {"n_layers": 2, "norm": "post"}])
@pytest.mark.parametrize("data", [of_sequences, of_padded_sequences, of_views_with_short_history])
def test_probabilities_of_deeper_models_are_alike_in_any_company(data, settings):
    X, y = data(ResidualTransformerClassifier)
    model = ResidualTransformerClassifier(
        d_model=16, dtype="float32", max_iter=1, random_state=0, **settings
    ).fit(X, y)
    expected = model.predict_proba(X)
    for rows in (*np.arange(N)[:30, None], slice(None, None, -1)):
        np.testing.assert_array_equal(model.predict_proba(X[rows]), expected[rows])


# -- windows over 2-D rows ------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("window", [1, 6])
def test_full_history_is_all_that_matters(estimator, window):
    """Rows with full history inside X get the same bits whatever is passed before them."""
    X, y = series(estimator)
    model = estimator(window=window, **SMALL).fit(X, y)
    span = window - 1
    expected = outputs(model, X)
    for start in (0, 1, 40, 100):
        np.testing.assert_array_equal(outputs(model, X[start:])[span:], expected[start + span :])
    other = np.random.default_rng(1).standard_normal((25, F)) * 100
    after_other = outputs(model, np.r_[other, X])[25:]
    np.testing.assert_array_equal(after_other[span:], expected[span:])
    np.testing.assert_array_equal(outputs(model, X[:50]), expected[:50])  # nothing of the future


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dilation", [1, 2, 5])
def test_a_window_looks_at_its_rows_and_no_others(estimator, dilation):
    X, y = series(estimator)
    window = 4

    def view(series):
        return SequenceView(series, np.arange(N), window, dilation=dilation)

    model = estimator(**SMALL).fit(view(X), y)
    expected = outputs(model, view(X))
    changed = X.copy()
    changed[70] += 1.0
    differs = (outputs(model, view(changed)) != expected).reshape(N, -1).any(axis=1)
    assert np.flatnonzero(differs).tolist() == [70 + k * dilation for k in range(window)]


def test_dilation_reaches_what_it_should():
    """y needs the row two steps back: a window of two finds it with dilation 2 only."""
    X, y = series(ResidualTransformerRegressor, n=600)
    model = ResidualTransformerRegressor(batch_size=16, random_state=0)
    scores = []
    for dilation in (1, 2):
        view = SequenceView(X, np.arange(600), 2, dilation=dilation)
        scores.append(clone(model).fit(view[:400], y[:400]).score(view[400:], y[400:]))
    linear = LinearRegression().fit(X[:400], y[:400]).score(X[400:], y[400:])
    assert scores[1] > 0.9
    assert scores[0] < linear + 0.1


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_short_history_is_a_shorter_window(readout, dilation):
    """Against the plain formulas on the rows that exist, with the positions of their lags."""
    X, y = series(ResidualTransformerRegressor)
    view = SequenceView(X, np.arange(len(X)), 4, dilation=dilation)
    model = ResidualTransformerRegressor(readout=readout, **SMALL).fit(view, y)
    module = model.net_.module_
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for row in range(4 * dilation):
        history = scaled[row % dilation : row + 1 : dilation][-4:]
        t = len(history)
        short = ResidualTransformer(replace(module.arch, n_tokens=t)).double()
        state = module.state_dict()
        short.load_state_dict(state | {"positions": state["positions"][-t:]})
        with torch.inference_mode():
            expected = short(torch.as_tensor(history)[None]).item() * y.std() + y.mean()
        # float64 and a handful of matrix products: some tens of eps
        assert model.predict(view)[row] == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weight_zero_removes_the_target_and_not_the_row_from_history(estimator):
    X, y = series(estimator)
    weight = np.ones(N)
    weight[20:30] = 0.0
    model = estimator(window=4, **SMALL)
    expected = outputs(clone(model).fit(X, y, weight), X)
    other_y, other_X = y.copy(), X.copy()
    other_y[20:30] = 1 - y[20:30]
    np.testing.assert_array_equal(outputs(clone(model).fit(X, other_y, weight), X), expected)
    other_X[29] += 1.0
    assert (outputs(clone(model).fit(other_X, y, weight), X) != expected).any()


def test_windows_need_no_copy_of_every_row(monkeypatch):
    """Predict meets the windows in chunks: 20,000 windows of 500 rows would take 240 MB."""
    X = np.random.default_rng(0).standard_normal((20_000, F))
    model = ResidualTransformerRegressor(window=500, **SMALL | {"d_model": 2, "max_iter": 1})
    model.set_params(dtype="float32", batch_size=64).fit(X[:600], X[:600, 0])
    sizes, run = [], prediction.run

    def spy(module, x, *rest):
        sizes.append(x.numel() * x.element_size())
        return run(module, x, *rest)

    monkeypatch.setattr(prediction, "run", spy)
    model.predict(X)
    assert max(sizes) < 2e6
    assert sum(sizes) > 1e8


# -- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dilation", [1, 3])
def test_a_view_is_its_array(estimator, dilation):
    """Fitted on either and asked either, full windows get the same bits."""
    X, y = series(estimator)
    ends = np.arange((T - 1) * dilation, N)
    view = SequenceView(X, ends, T, dilation=dilation)
    array = np.asarray(view)
    for fitted_on in (view, array):
        model = estimator(readout="last", **SMALL).fit(fitted_on, y[ends])
        assert model.n_features_in_ == F
        np.testing.assert_array_equal(outputs(model, view), outputs(model, array))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_view_of_every_row_is_the_window_parameter(estimator):
    X, y = series(estimator)
    model = estimator(window=5, **SMALL).fit(X, y)
    view = SequenceView(X, np.arange(N), 5)
    np.testing.assert_array_equal(outputs(estimator(**SMALL).fit(view, y), view), outputs(model, X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_segment_is_a_series_of_its_own(estimator):
    X, y = series(estimator)
    both = SequenceView(X, np.arange(N), 4, segments=np.repeat(["a", "b"], [50, N - 50]))
    model = estimator(**SMALL).fit(both, y)
    alone = SequenceView(X[50:], np.arange(N - 50), 4)
    np.testing.assert_array_equal(outputs(model, alone), outputs(model, both[50:]))
    np.testing.assert_array_equal(
        outputs(model, SequenceView(X[:50], np.arange(50), 4)), outputs(model, both[:50])
    )


@pytest.mark.parametrize("cv", [TimeSeriesSplit(3, gap=4), KFold(3)])
def test_cross_validation_over_a_view_is_the_loop_by_hand(cv):
    """A test fold keeps its true history: windows reach back into the rows before it."""
    X, y = series(ResidualTransformerRegressor)
    view, y = SequenceView(X, np.arange(4, N), 5), y[4:]
    model = ResidualTransformerRegressor(**SMALL)
    scores = cross_val_score(model, view, y, cv=cv)
    by_hand = []
    for train, test in cv.split(np.zeros(len(y))):
        fitted = clone(model).fit(view[train], y[train])
        windows = np.stack([X[end - 4 : end + 1] for end in view.ends[test]])
        by_hand.append(r2_score(y[test], fitted.predict(windows)))
    np.testing.assert_array_equal(scores, by_hand)


def test_a_search_over_a_view_runs_over_parameters():
    X, y = series(ResidualTransformerRegressor)
    view, y = SequenceView(X, np.arange(4, N), 5), y[4:]
    search = GridSearchCV(
        ResidualTransformerRegressor(**SMALL),
        {"residual_beta": [0.0, 0.5, 2.0]},
        cv=TimeSeriesSplit(2, gap=4),
    ).fit(view, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 3
    assert search.best_estimator_.residual_beta_[0, 0] == search.best_params_["residual_beta"]
    assert search.predict(view[-3:]).shape == (3,)


def test_nothing_after_the_last_training_row_scales_the_inputs():
    """A training fold of a view shares the series with the test rows; these must not leak."""
    X, y = series(ResidualTransformerRegressor)
    view = SequenceView(X, np.arange(100), 5)
    later = X.copy()
    later[100:] *= 1e6
    model = ResidualTransformerRegressor(**SMALL).fit(view, y[:100])
    same = clone(model).fit(SequenceView(later, np.arange(100), 5), y[:100])
    np.testing.assert_array_equal(same.predict(view), model.predict(view))


def test_a_view_of_infinite_readings_is_refused():
    X, y = series(ResidualTransformerRegressor)
    X[7, 1] = np.inf
    with pytest.raises(ValueError, match=r"Input X contains infinity"):
        ResidualTransformerRegressor(**SMALL).fit(SequenceView(X, np.arange(N), 5), y)
