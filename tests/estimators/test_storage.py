"""A fitted model is arrays, numbers and strings: skops stores it and asks to trust our classes.

skops refuses what it cannot write without running code, and lists every class that loading makes.
"""

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from smallmodels import ESTIMATORS, SMALL, outputs, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleClassifier,
    SeedEnsembleRegressor,
    SequenceView,
    StackedGridSearchCV,
    make_conditioning_scorer,
)
from sklearn_restrans.forecasting import SeasonalNaiveRegressor

# What else a file may ask to trust: the clock of windows holds sets of numbers.
PLAIN = set()


def fits():
    """Name -> (model, X, y) of every kind of estimator and of input."""
    X, y = table(ResidualTransformerRegressor)
    labels = np.where(y > y.mean(), "high", "low")
    frame = pd.DataFrame(X, pd.date_range("2024-01-01", periods=len(X), freq="h"), list("abcd"))
    days = frame.set_axis(pd.bdate_range("2024-01-01", periods=len(X)))
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    ids = np.random.default_rng(2).integers(1, 9, (len(X), 5))
    vectors = np.random.default_rng(3).standard_normal((9, 8))
    regressor, classifier = ResidualTransformerRegressor, ResidualTransformerClassifier
    member, small = {"d_model": 8, "max_iter": 2}, SMALL
    scoring = {"r2": "r2", "sigma": make_conditioning_scorer("sigma_min")}
    grid = {"residual_beta": [0.0, 1.0]}
    return {
        "regressor": (regressor(**small), X, y),
        "two targets": (regressor(**small), X, np.c_[y, X[:, 0]]),
        "classifier": (classifier(**small), X, labels),
        "numbers as labels": (classifier(class_weight={0: 1.0, 1: 2.0}, **small), X, y > 0),
        "objects as labels": (classifier(**small), X, labels.astype(object)),
        "rows in time": (regressor(window=4, **small), frame, y),
        "business days": (regressor(window=4, **small), days, y),
        "missing readings": (regressor(**small), holes, y),
        "views": (regressor(**small), SequenceView(X, np.arange(len(X)), 4), y),
        "token ids": (classifier(embedding="token", **small), ids, labels),
        "given vectors": (classifier(embedding=vectors, **small), ids, labels),
        "warm start": (regressor(warm_start=True, **small), X, y),
        "descent": (regressor(solver="gd", learning_rate_init="auto", **small), X, y),
        "learnt beta": (regressor(np.array([[0.5, 2.0]]), learn_beta=True, **small), X, y),
        "random state": (regressor(**small | {"random_state": np.random.RandomState(0)}), X, y),
        "early stopping": (classifier(early_stopping=True, **small), X, labels),
        "regressor CV": (ResidualTransformerRegressorCV([0, 1], cv=2, **small), X, y),
        "classifier CV": (ResidualTransformerClassifierCV([0, 1], cv=2, **small), X, labels),
        "regressors": (SeedEnsembleRegressor(regressor(**member), n_estimators=2), X, y),
        "classifiers": (SeedEnsembleClassifier(classifier(**member), n_estimators=2), X, labels),
        "stacked search": (StackedGridSearchCV(classifier(**small), grid, cv=2), X, labels),
        "two scores": (
            StackedGridSearchCV(regressor(**small), grid, cv=2, scoring=scoring, refit="r2"),
            X,
            y,
        ),
        "grid search": (GridSearchCV(regressor(**small), grid, cv=2), X, y),
        "pipeline": (make_pipeline(StandardScaler(), classifier(**small)), X, labels),
    }


@pytest.mark.parametrize("freq", ["h", "MS", "B"])
def test_skops_stores_a_naive_forecast_with_its_calendar(freq):
    X = pd.DataFrame({"a": np.arange(40.0)}, index=pd.date_range("1990", periods=40, freq=freq))
    X = X.drop(X.index[20])
    data = skops.io.dumps(SeasonalNaiveRegressor("a", period=3).fit(X, X["a"]))
    loaded = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    # Row 20 is missing: counted in rows, the value two steps before row 21 would be 18.
    assert loaded.predict(X)[20] == 19.0


@pytest.mark.parametrize("name", fits())
def test_skops_stores_a_model_to_the_bit_and_trusts_our_classes_alone(name):
    model, X, y = fits()[name]
    data = skops.io.dumps(model.fit(X, y))
    unknown = set(skops.io.get_untrusted_types(data=data))
    foreign = {kind for kind in unknown if not kind.startswith("sklearn_restrans.")} - PLAIN
    if isinstance(model, GridSearchCV):  # stores its scorers, and splitter, of scikit-learn too
        foreign = {kind for kind in foreign if not kind.startswith("sklearn.")}
    assert not foreign
    assert len(unknown) <= 13
    loaded = skops.io.loads(data, trusted=sorted(unknown))
    np.testing.assert_array_equal(outputs(loaded, X), outputs(model, X))
    if hasattr(model, "history_"):
        assert loaded.history_.equals(model.history_)
        assert repr(loaded.conditioning_) == repr(model.conditioning_)


def test_a_search_that_keeps_no_model_is_stored_too():
    X, y = table(ResidualTransformerRegressor)
    search = ResidualTransformerRegressorCV([0, 1], cv=2, refit=False, **SMALL).fit(X, y)
    data = skops.io.dumps(search)
    loaded = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    assert loaded.beta_path_.to_frame().equals(search.beta_path_.to_frame())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_model_goes_on_training_after_skops(estimator):
    X, y = table(estimator)
    model = estimator(warm_start=True, **SMALL).fit(X, y)
    data = skops.io.dumps(model)
    loaded = skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))
    np.testing.assert_array_equal(outputs(loaded.fit(X, y), X), outputs(model.fit(X, y), X))


def of_plain_types(value):
    """Whether a value is arrays, numbers and strings, or built of our classes and containers."""
    if isinstance(value, dict):
        return all(of_plain_types(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | frozenset):
        return all(map(of_plain_types, value))
    if isinstance(value, np.ndarray):
        return value.dtype != object or all(isinstance(part, str) for part in value)
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return True
    ours = type(value).__module__.startswith("sklearn_restrans.")
    state = value.__getstate__() if hasattr(value, "__getstate__") else vars(value)
    return ours and of_plain_types(state)


@pytest.mark.parametrize("name", ["regressor", "classifier", "rows in time", "warm start"])
def test_the_fitted_state_is_arrays_numbers_and_strings(name):
    model, X, y = fits()[name]
    assert of_plain_types(model.fit(X, y).__getstate__())
    assert not of_plain_types({"history": model.history_})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_history_is_made_when_asked_for(estimator):
    X, y = table(estimator)
    model = estimator(**SMALL)
    assert not hasattr(model, "history_")
    with pytest.raises(AttributeError, match=f"{estimator.__name__} has no history_ before fit"):
        getattr(model, "history" + "_")
    model.fit(X, y)
    assert "history_" not in vars(model)
    assert model.history_["train_loss"].tolist() == model.loss_curve_
    frame = model.history_
    frame["train_loss"] = 0.0  # the caller's own
    assert model.history_["train_loss"].tolist() == model.loss_curve_
