"""A few hundred odd arguments: each is read, or refused by a sentence that names the argument."""

import datetime
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)

N = 12
SMALL = {"d_model": 4, "max_iter": 1, "conditioning_samples": 4, "random_state": 0}
ODD_CELLS = [
    None, np.nan, pd.NA, pd.NaT, np.inf, -np.inf, 1e308, -1e308, 1e-308, 10**400, -(10**5000), 1j,
    "", "7", "seven", b"7", True, [1], (1, 2), {}, {1}, np.array([1, 2]), np.array(3.0),
    object(), datetime.date(2024, 1, 1), datetime.timedelta(1), np.datetime64("NaT"),
    pd.Period("2024"), int, pd.Timestamp("2024-01-01", tz="UTC"), np.float16(2.0), 2**63, -(2**64),
]  # fmt: skip
# Words of numpy, pandas and Python that say nothing to somebody who passed an argument.
INTERNALS = re.compile(
    r"ufunc|inhomogeneous|broadcast|object is not|has no (attribute|len)|unsupported operand|"
    r"not iterable|NAType|C long|out of bounds|subscript|unhashable|Traceback|dtype\('O'\)"
)


def odd_array(rng, shape):
    """An array, list or frame with one odd cell, of an odd type, or of an odd shape."""
    values = rng.standard_normal(shape)
    choice = rng.integers(14)
    if choice < 7:
        cells = values.astype(object)
        flat = np.empty(cells.size, dtype=object)
        flat[:] = cells.ravel()
        flat[rng.integers(cells.size)] = ODD_CELLS[rng.integers(len(ODD_CELLS))]
        cells = flat.reshape(shape)
        form = rng.integers(3)
        if form == 1:
            return cells.tolist()
        return pd.DataFrame(cells) if form == 2 and len(shape) == 2 else cells
    if choice == 7:
        kind = ["M8[s]", "m8[s]", complex, bool, "U4", "S4", np.float16, np.int8, np.uint64]
        kind = kind[rng.integers(len(kind))]
        return np.abs(values * 9).astype(np.int64).astype(kind)
    if choice == 8:
        return values[: rng.integers(shape[0])]
    if choice == 9:
        return values.reshape(*shape, 1) if rng.random() < 0.5 else values.ravel()
    if choice == 10:
        others = ["abc", 3, None, {}, {1, 2}, [], [[]], np.array(None), object(), int, iter([1])]
        return others[rng.integers(len(others))]
    if choice == 11:
        return scipy.sparse.csr_matrix(values.reshape(shape[0], -1))
    if choice == 12:
        tensor = torch.tensor(values)
        return [tensor.bfloat16(), tensor.to_sparse(), tensor.cfloat(), tensor.int()][
            rng.integers(4)
        ]
    return np.ma.masked_greater(values, 0.5)


def good(kind, rng):
    """X, y and the settings of a fit that goes well."""
    X = rng.standard_normal((N, 3))
    if kind == "sequence":
        X = rng.standard_normal((N, 4, 3))
    y = rng.standard_normal(N)
    return X, y, {"window": 3} if kind == "window" else {}


def attempt(seed):
    """One call with an odd argument: its name, and the error or None."""
    rng = np.random.default_rng(seed)
    kind = ["table", "window", "sequence"][rng.integers(3)]
    X, y, settings = good(kind, rng)
    estimator = [ResidualTransformerRegressor, ResidualTransformerClassifier][rng.integers(2)]
    if estimator is ResidualTransformerClassifier:
        y = rng.permutation(np.arange(N) % 2)
    model = estimator(**SMALL, **settings)
    names = ["X", "y", "sample_weight", "predict"] + ["segments"] * (kind == "window")
    name = names[rng.integers(len(names))]
    if name in ("X", "predict"):
        odd = odd_array(rng, X.shape)
    elif name == "segments":
        odd = odd_array(rng, (N,))
    else:
        odd = odd_array(rng, (N,) if rng.random() < 0.7 else (N, 2))
    try:
        if name == "predict":
            out = model.fit(X, y).predict(odd)
            name = "X"
        else:
            data = {"X": X, "y": y} | {name: odd}
            out = model.fit(**data).predict(X, **({"segments": odd} if name == "segments" else {}))
        assert out.dtype.kind != "f" or np.isfinite(out).all()
    except (ValueError, TypeError, DivergenceError) as error:
        return "X" if name == "predict" else name, odd, error
    return name, odd, None


@pytest.mark.parametrize("part", range(10))
def test_an_odd_argument_is_read_or_named(part, seed):
    refused = 0
    for number in range(40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            name, odd, error = attempt((seed, part, number))
        if error is None:
            continue
        refused += 1
        said, case = str(error), f"{(seed, part, number)}: {name}, {type(odd)}"
        # "Input variables" are all of them; a sequence of that length is counted, not misread.
        named = rf"\b({name}|{name.replace('_', ' ')}|labels|numbers of samples)\b"
        assert re.search(named, said, re.IGNORECASE), f"{case}\n{said}"
        assert not INTERNALS.search(said), f"{case}\n{said}"
        assert len(said) < 1_000, case
    assert refused >= 10, "most of these cannot be read"


VIEWS = [
    ({"window": 2**62}, "window=.* reaches back further|longer"),
    ({"window": 3, "dilation": 2**62}, "dilation=.* reaches back further"),
    ({"window": 10**30}, "window=.* reaches back further"),
    ({"window": 3, "dilation": 10**30}, "dilation=.* reaches back further"),
    ({"window": 2.0}, "window must be an integer"),
    ({"window": 0}, "window must be an integer"),
    ({"window": 2, "dilation": -1}, "dilation must be an integer"),
    ({"window": 2, "ends": [12]}, "ends must lie between"),
    ({"window": 2, "ends": [2**70]}, "ends must"),
    ({"window": 2, "ends": ["a"]}, "ends must"),
    ({"window": 2, "ends": [[1]]}, "ends must"),
    ({"window": 2, "ends": [[1], [1, 2]]}, "ends cannot be read as an array"),
    ({"window": 2, "segments": [1]}, "segments must hold one label per row"),
    ({"window": 2, "segments": [[1], [1, 2]] * 6}, "segments"),
    ({"window": 2, "series": [[1], [1, 2]]}, "series"),
    ({"window": 2, "series": 3.0}, "series must be 2-D"),
]


@pytest.mark.parametrize(("options", "message"), VIEWS, ids=range(len(VIEWS)))
def test_odd_views_are_named(options, message):
    options = {"series": np.zeros((N, 1)), "ends": [10, 11], **options}
    with pytest.raises(ValueError, match=message):
        ResidualTransformerRegressor(**SMALL).fit(SequenceView(**options), [0.0, 1.0])
