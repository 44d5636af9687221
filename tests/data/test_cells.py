"""Cells that are no numbers: read where they can be, and named where they cannot."""

import datetime
import decimal
import fractions
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._data.cells import as_numbers, plain

N = 40
SMALL = {"d_model": 8, "max_iter": 2, "random_state": 0}
X = np.random.default_rng(0).standard_normal((N, 3))
Y = X[:, 0]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
DAYS = pd.date_range("2024-01-01", periods=N)


def regressor(**kwargs):
    return ResidualTransformerRegressor(**{**SMALL, **kwargs})


def with_cell(cell, like=FRAME):
    """The frame as objects, with one cell of another kind in row 7 of column b."""
    frame = like.astype(object)
    column = frame["b"].tolist()
    column[7] = cell
    return frame.assign(b=pd.Series(column, dtype=object))


class OnlyAnArray:
    """As some libraries' containers: it makes an array, and says nothing about its shape."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __len__(self):
        return len(self.values)


class Lazy:
    """What a dask DataFrame has in common with this: a graph, and the frame once computed."""

    columns, shape = ["no", "names"], (None, 3)

    def __init__(self, frame):
        self.frame = frame

    def __dask_graph__(self):
        return {}

    def compute(self):
        return self.frame


DATES = [
    (FRAME.assign(when=DAYS), "column 'when' is of the type datetime64"),
    (FRAME.assign(when=DAYS.tz_localize("UTC")), "column 'when' is of the type datetime64.*UTC"),
    (FRAME.assign(when=DAYS.to_period("D")), "column 'when' is of the type period"),
    (FRAME.assign(when=DAYS.date), r"column 'when', row 0 holds datetime.date\(2024, 1, 1\)"),
    (FRAME.assign(when=[*DAYS[:-1], pd.NaT]), "column 'when' is of the type datetime64"),
    (pd.DataFrame({"when": DAYS}), "column 'when' is of the type datetime64"),
    (np.column_stack([DAYS, DAYS]), "it is of the type datetime64"),
    (
        pl.DataFrame({"a": X[:, 0], "when": DAYS.to_numpy()}),
        "column 'when' is of the type Dat",
    ),
    (with_cell(np.datetime64("2024-01-01")), "column 'b', row 7 holds"),
    (with_cell(pd.Timestamp("2024-01-01")), "column 'b', row 7 holds"),
]


@pytest.mark.parametrize(("wrong", "message"), DATES, ids=range(len(DATES)))
@pytest.mark.parametrize("window", [None, 3])
def test_dates_in_X_are_named_and_sent_to_the_calendar(window, wrong, message):
    with pytest.raises(ValueError, match=f"X holds dates .*{message}.*CalendarFeatures"):
        regressor(window=window).fit(wrong, Y)
    model = regressor(window=window).fit(FRAME, Y)
    with pytest.raises(ValueError, match="X holds dates"):
        model.predict(wrong)


def test_a_view_names_its_column_of_dates():
    view = SequenceView(FRAME.assign(when=DAYS), np.arange(3, N), 3)
    with pytest.raises(ValueError, match=r"X holds dates .*column 'when', row 0"):
        regressor().fit(view, Y[3:])


WRONG = [
    (
        FRAME.assign(t=DAYS - DAYS[0]),
        ValueError,
        "X holds durations .*column 't'.*divide by a unit",
    ),
    (FRAME.assign(t=pd.IntervalIndex.from_breaks(range(N + 1))), ValueError, "intervals .*'t'"),
    (FRAME.assign(city="Rome"), ValueError, "X holds text .*column 'city', row 0; .*OneHotEncoder"),
    (FRAME.assign(city=pd.Categorical(["u", "v"] * 20)), ValueError, "text .*'u' in column 'city'"),
    (
        pl.DataFrame({"a": Y, "city": ["Rome"] * N}),
        ValueError,
        "X holds text .*column 'city', row 0",
    ),
    (with_cell("abc"), ValueError, "could not convert string to float: 'abc' in column 'b', row 7"),
    (with_cell("abc").to_numpy(), ValueError, "'abc' in column 1, row 7"),
    (with_cell("abc").to_numpy().tolist(), ValueError, "'abc' in column 1, row 7"),
    (with_cell(10**400), ValueError, "numbers beyond float64 .*column 'b', row 7 holds 10{59}"),
    (with_cell(10**5000), ValueError, "row 7 holds an integer of thousands of digits"),
    (with_cell(1 + 2j), ValueError, "complex numbers .*column 'b', row 7"),
    (X + 1j, ValueError, "X holds complex numbers"),
    (FRAME + 1j, ValueError, "complex numbers .*column 'a'"),
    (with_cell([1.0, 2.0]), ValueError, "X holds lists .*column 'b', row 7 holds"),
    (with_cell((1.0,)), ValueError, "X holds lists .*column 'b', row 7 holds"),
    (with_cell({"k": 1}), TypeError, "objects of the type dict .*column 'b', row 7"),
    (with_cell(object()), TypeError, "objects of the type object .*column 'b', row 7"),
    (np.zeros(N, dtype=[("a", float), ("b", int)]), ValueError, "X holds several fields"),
    ("abc", ValueError, "X holds text"),
    ({"a": Y}, TypeError, "X must be an array, a list or a DataFrame, got .* dict"),
    ((row for row in X), TypeError, "X must be an array.* generator"),
    (None, ValueError, "X: Expected 2D array"),
    (3.0, ValueError, "X: Expected 2D array"),
    ([[1.0, [2.0, 3.0]]] * N, ValueError, "X cannot be read as an array"),
    (scipy.sparse.csr_matrix(X), TypeError, "passed for X.*toarray"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG, ids=range(len(WRONG)))
def test_what_X_may_not_hold_is_named_with_its_place(wrong, error, message):
    with pytest.raises(error, match=message):
        regressor().fit(wrong, Y)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_cells_of_objects_are_missing_readings(missing):
    expected = FRAME.copy()
    expected.iloc[7, 1] = np.nan
    want = regressor().fit(expected, Y).predict(expected)
    for form in (
        with_cell(missing),
        with_cell(missing).to_numpy(),
        with_cell(missing).values.tolist(),
    ):
        np.testing.assert_array_equal(regressor().fit(form, Y).predict(form), want)


@pytest.mark.parametrize(
    "number", ["2.5", decimal.Decimal("2.5"), fractions.Fraction(5, 2), np.float32(2.5)]
)
def test_objects_that_are_numbers_are_read(number):
    out = as_numbers(with_cell(number))
    assert out["b"].dtype == float and out["b"][7] == 2.5
    np.testing.assert_array_equal(out["a"], FRAME["a"])


def test_numbers_are_passed_on_as_they_are():
    for same in (FRAME, X, FRAME["a"], pl.DataFrame(X), torch.tensor(X).numpy(), np.ma.array(X)):
        assert as_numbers(same) is same


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_of_every_precision(dtype):
    tensor = torch.tensor(X, dtype=dtype, requires_grad=True)
    expected = tensor.detach().to(torch.float64).numpy()
    np.testing.assert_array_equal(np.asarray(plain(tensor), dtype=float), expected)
    weight = torch.ones(N, dtype=dtype)
    model = regressor(dtype="float64").fit(tensor, tensor[:, 0], sample_weight=weight)
    same = regressor(dtype="float64").fit(plain(tensor), plain(tensor[:, 0]))
    np.testing.assert_array_equal(model.predict(tensor), same.predict(plain(tensor)))


def test_containers_that_only_make_an_array():
    expected = regressor().fit(X, Y).predict(X)
    model = regressor().fit(OnlyAnArray(X), OnlyAnArray(Y))
    np.testing.assert_array_equal(model.predict(OnlyAnArray(X)), expected)
    three = np.random.default_rng(1).standard_normal((N, 5, 3))
    assert regressor().fit(OnlyAnArray(three), Y).net_.module_.arch.n_tokens == 5


def test_a_lazy_frame_keeps_its_names():
    model = regressor().fit(Lazy(FRAME), Lazy(FRAME["a"]))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(Lazy(FRAME)), model.predict(FRAME))


WRONG_Y = [
    (DAYS, ValueError, "y holds dates .*a regressor predicts numbers"),
    (pd.DataFrame({"day": DAYS}), ValueError, "y holds dates .*column 'day'"),
    (DAYS.to_period("D"), ValueError, "y holds dates"),
    (DAYS - DAYS[0], ValueError, "y holds durations .*a regressor predicts numbers"),
    (["a", "b"] * 20, ValueError, "y holds text .*ResidualTransformerClassifier"),
    (np.array(["a", "b"] * 20), ValueError, "y holds text .*: 'a' in row 0; Residual"),
    (pd.Series(["a", "b"] * 20, dtype="category"), ValueError, "y holds text"),
    ([1.0] * 39 + [10**400], ValueError, "y holds numbers beyond float64 .*row 39"),
    (Y + 1j, ValueError, "y holds complex numbers"),
    ([[1.0]] * 39 + [[1.0, 2.0]], ValueError, "y cannot be read as an array"),
    (scipy.sparse.csr_matrix(Y[:, None]), TypeError, r"y is a sparse .*y.toarray\(\)"),
    (np.zeros((N, 2, 2)), ValueError, "y: Found array with dim 3"),
    (3.0, TypeError, "y: Input should have at least 1 dimension"),
    ([None] * N, ValueError, "Input y contains NaN"),
    ([pd.NA] * N, ValueError, "Input y contains NaN"),
    ({"a": Y}, TypeError, "y must be an array"),
]


@pytest.mark.parametrize(("wrong", "error", "message"), WRONG_Y, ids=range(len(WRONG_Y)))
def test_what_y_may_not_hold_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        regressor().fit(X, wrong)
    with pytest.raises(error, match=message):
        regressor().fit(X, Y, X_val=X, y_val=wrong)


def test_labels_say_what_they_may_not_be():
    model = ResidualTransformerClassifier(**SMALL)
    with pytest.raises(TypeError, match="y is a sparse"):
        model.fit(X, scipy.sparse.csr_matrix(Y[:, None] > 0))
    with pytest.raises(ValueError, match="y: Unknown label type"):
        model.fit(X, Y)
    assert set(model.fit(X, np.where(Y > 0, "u", "v")).predict(X)) <= {"u", "v"}


WRONG_WEIGHTS = [
    ["a"] * N,
    DAYS,
    [pd.NA] * N,
    [10**400] * N,
    Y + 1j,
    -np.ones(N),
    np.full(N, np.inf),
    X,
    np.ones(N - 1),
    [[1.0], [1.0, 2.0]] * 20,
    {"a": 1},
]


@pytest.mark.parametrize("weight", WRONG_WEIGHTS, ids=range(len(WRONG_WEIGHTS)))
def test_wrong_weights_are_named(weight):
    with pytest.raises((ValueError, TypeError), match=r"(?i)sample.weight"):
        regressor().fit(X, Y, sample_weight=weight)


def test_a_hold_out_without_every_class_names_the_remedy():
    y = np.array([0] * 39 + [1])
    with pytest.raises(ValueError, match="X_val and y_val, or set early_stopping=False"):
        ResidualTransformerClassifier(early_stopping=True, **SMALL).fit(X, y)
    with pytest.raises(ValueError, match=r"validation_fraction=0.1.*4 of 40 rows"):
        ResidualTransformerClassifier(early_stopping=True, **SMALL).fit(X, np.arange(N) // 2)


def test_one_row_is_a_sequence_of_one_token():
    """MAPIE tries ``predict(np.zeros((1, n_features_in_)))`` on every fitted model."""
    three = np.random.default_rng(1).standard_normal((N, 5, 3))
    model = regressor().fit(three, Y)
    padded = np.full((1, 5, 3), np.nan)
    padded[0, 0] = 0.0
    with pytest.warns(UserWarning, match="X is one row of 3 numbers"):
        predicted = model.predict(np.zeros((1, model.n_features_in_)))
    np.testing.assert_array_equal(predicted, model.predict(padded))
    for other in (np.zeros((2, 3)), np.zeros((1, 4))):
        with pytest.raises(ValueError, match="pass the same kind"):
            model.predict(other)


@pytest.mark.parametrize("scale", [1e300, 1e305, 5e307])
def test_huge_numbers_give_finite_predictions_or_a_sentence(scale):
    for window in (None, 4):
        model = regressor(window=window).fit(X * scale, Y * scale)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            predicted = model.predict(X * scale)
        small = regressor(window=window).fit(X * 2.0**-10, Y * 2.0**-10).predict(X * 2.0**-10)
        np.testing.assert_allclose(predicted / scale, small * 2.0**10, rtol=1e-5)
    both_ends = np.where(np.arange(N) % 2, 1.7e308, -1.7e308)
    model = regressor().fit(both_ends[:, None], both_ends)
    try:
        assert np.isfinite(model.predict(both_ends[:, None])).all()
    except ValueError as error:
        assert "a prediction is beyond the largest number" in str(error)


def test_a_prediction_beyond_float64_is_an_error():
    targets = regressor().fit(X, Y * 1e300)._preprocessing.targets
    with pytest.raises(ValueError, match="beyond the largest number of float64"):
        targets.decode(np.full((1, 1), 1e10))


@pytest.mark.parametrize("window", [10**30, 2**62, N + 1])
def test_a_window_longer_than_the_rows_is_refused(window):
    with pytest.raises(ValueError, match=f"window={window}.* longer than the 40 rows of X"):
        regressor(window=window).fit(X, Y)


def test_dates_of_python_are_dates():
    assert issubclass(datetime.datetime, datetime.date)
    with pytest.raises(ValueError, match="X holds dates"):
        as_numbers([[datetime.datetime(2024, 1, 1)]])
