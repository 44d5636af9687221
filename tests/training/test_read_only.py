"""Arrays that may not be written, as joblib maps them from files, are read and copied."""

import io
import warnings

import joblib
import numpy as np
import pytest

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    measure_conditioning,
)

SMALL = {"d_model": 8, "max_iter": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def every_warning_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def problem(kind):
    """An estimator, its X and y."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(40)
    if kind == "table":
        return ResidualTransformerRegressor(**SMALL), rng.standard_normal((40, 3)), y
    if kind == "padded":
        X = rng.standard_normal((40, 6, 2))
        X[::3, 4:] = np.nan
        return ResidualTransformerRegressor(**SMALL), X, y
    if kind == "window":
        return ResidualTransformerRegressor(window=4, **SMALL), rng.standard_normal((40, 2)), y
    ids = rng.integers(2, 9, (40, 5)).astype({"int32 ids": np.int32}.get(kind, np.int64))
    ids[::4, 3:] = 0
    embedding = "token" if kind != "vectors" else rng.standard_normal((9, 8))
    model = ResidualTransformerClassifier(embedding=embedding, **SMALL)
    return model, ids, np.where(y > 0, "up", "down")


KINDS = ["table", "padded", "window", "int32 ids", "int64 ids", "vectors"]


def mapped(value, folder, name):
    """The array as joblib maps it from a file."""
    joblib.dump(value, folder / name)
    array = joblib.load(folder / name, mmap_mode="r")
    assert not array.flags.writeable
    return array


@pytest.mark.parametrize("kind", KINDS)
def test_data_mapped_from_files(kind, tmp_path):
    model, X, y = problem(kind)
    weight = np.linspace(0.0, 2.0, len(y))
    expected = model.fit(X, y, sample_weight=weight, X_val=X, y_val=y).predict(X)
    X, weight = mapped(X, tmp_path, "X"), mapped(weight, tmp_path, "weight")
    y = mapped(y, tmp_path, "y") if y.dtype.kind == "f" else y
    y.flags.writeable = False
    if kind == "vectors":
        model.set_params(embedding=mapped(model.embedding, tmp_path, "vectors"))
    model.fit(X, y, sample_weight=weight, X_val=X, y_val=y)
    np.testing.assert_array_equal(model.predict(X), expected)
    model.set_params(residual_beta=mapped(np.ones((1, 2)), tmp_path, "beta")).fit(X, y)


def test_a_view_of_a_mapped_series(tmp_path):
    rng = np.random.default_rng(0)
    series, ends = rng.standard_normal((60, 2)), np.arange(5, 60)
    expected = None
    for read in (lambda value, name: value, lambda value, name: mapped(value, tmp_path, name)):
        view = SequenceView(read(series, "series"), read(ends, "ends"), 4)
        y = read(series[5:, 0].copy(), "y")
        model = ResidualTransformerRegressor(**SMALL).fit(view, y)
        predictions = model.predict(view[read(np.arange(0, 50), "rows")])
        expected = predictions if expected is None else expected
        np.testing.assert_array_equal(predictions, expected)


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_mapped_from_a_file(kind, warm_start, tmp_path):
    model, X, y = problem(kind)
    model.set_params(warm_start=warm_start).fit(X, y)
    joblib.dump(model, tmp_path / "model")
    loaded = joblib.load(tmp_path / "model", mmap_mode="r")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    if kind != "window":
        measure_conditioning(loaded, X)
    before = (tmp_path / "model").read_bytes()
    loaded.fit(X, y)
    np.testing.assert_array_equal(loaded.predict(X), model.fit(X, y).predict(X))
    assert (tmp_path / "model").read_bytes() == before, "training wrote into the file"
    joblib.dump(loaded, io.BytesIO())


def test_models_that_joblib_maps_for_its_workers():
    """Beyond 1 MB joblib sends arrays as files, which the workers map."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    model = ResidualTransformerRegressor(d_model=512, max_iter=1, random_state=0).fit(X, X[:, 0])
    jobs = [joblib.delayed(predict)(model, X) for _ in range(2)]
    for found in joblib.Parallel(n_jobs=2)(jobs):
        np.testing.assert_allclose(found, model.predict(X), rtol=1e-9)


def predict(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.predict(X)
