"""Stored float64 predictions of small fits: a change of the code that moves one is seen.

A change that is meant to move them writes them anew, and the difference goes into the commit:

    python tests/test_reference.py --write

Every configuration names its own batch size and epochs, so that other defaults move nothing. None
has dropout, whose masks torch draws in another order with another maths library.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)

STORED = Path(__file__).with_name("reference_predictions.json")
SMALL = {
    "d_model": 8,
    "batch_size": 16,
    "max_iter": 4,
    "dtype": "float64",
    "device": "cpu",
    "random_state": 0,
}
N, SHOWN = 48, slice(0, 48, 16)
# Another machine's kernels round sums in another order, 1e-16 of their terms; a dozen steps amplify
# that by far less than a million.
TOLERANCE = 1e-9


def rows(n_columns=4):
    return np.random.default_rng(0).standard_normal((N, n_columns))


def smooth(X):
    return X[:, 0] + X[:, 1] ** 2


def with_holes(X):
    X = X.copy()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return X


def padded():
    """Sequences (n, 6, 3) with up to three tokens of padding, and targets of their first token."""
    X = rows(18).reshape(N, 6, 3)
    y = smooth(X[:, 0])
    X[np.arange(6) >= 6 - np.arange(N)[:, None] % 4] = np.nan
    return X, y


def tokens():
    ids = np.random.default_rng(2).integers(2, 9, (N, 7))
    ids *= np.arange(7) < 1 + np.arange(N)[:, None] % 7
    return ids, (ids == 3).sum(axis=1) - 0.5 * (ids == 5).sum(axis=1)


def words(y):
    return np.where(y > np.median(y), "high", "low")


VECTORS = np.random.default_rng(3).standard_normal((10, 8))
WEIGHT = np.random.default_rng(4).uniform(0.0, 2.0, N)
STATIONS = np.repeat([0, 1], N // 2)
VIEW = SequenceView(with_holes(rows()), np.arange(N), 4, dilation=2, segments=STATIONS)

# name -> (classifier?, X, y, parameters, further arguments of fit)
CONFIGURATIONS = {
    "table": (False, rows(), smooth(rows()), {}, {}),
    "table, missing readings, weights": (
        False,
        with_holes(rows()),
        smooth(rows()),
        {"loss": "huber", "init": "gaussian"},
        {"sample_weight": WEIGHT},
    ),
    "table, two targets, heads, pre norm, two layers": (
        False,
        rows(),
        np.c_[smooth(rows()), rows()[:, 2]],
        {"n_heads": 2, "norm": "pre", "n_layers": 2, "solver": "adam", "residual_beta": (0.5, 2)},
        {},
    ),
    "table, gradient descent": (
        False,
        rows(),
        smooth(rows()),
        {"solver": "gd", "learning_rate_init": "auto", "activation": "tanh", "max_iter": 8},
        {},
    ),
    "table, early stopping": (
        False,
        rows(),
        smooth(rows()),
        {"early_stopping": True, "validation_fraction": 0.25, "solver": "sgd", "norm": "post"},
        {},
    ),
    "table, classes": (True, rows(), smooth(rows()), {"class_weight": "balanced", "d_ff": 5}, {}),
    "table, classes, squared error": (
        True,
        rows(),
        smooth(rows()),
        {"loss": "squared_error", "positions": None, "init": "zero_unembedding"},
        {},
    ),
    "sequences, padding": (False, *padded(), {"activation": "gelu"}, {}),
    "sequences, classes, mean, learned beta": (
        True,
        *padded(),
        {"learn_beta": True, "readout": "mean", "n_heads": 2, "positions": "learned"},
        {},
    ),
    "windows, segments": (
        False,
        rows(),
        smooth(rows()),
        {"window": 5, "init": "orthogonal", "loss": "absolute_error"},
        {"segments": STATIONS},
    ),
    "windows, dilation, missing readings, two layers": (
        False,
        VIEW,
        smooth(rows()),
        {"n_layers": 2, "norm": "pre", "learning_rate": "constant"},
        {},
    ),
    "tokens": (False, *tokens(), {"embedding": "token", "n_heads": 2}, {}),
    "tokens, classes, pretrained vectors": (
        True,
        *tokens(),
        {"embedding": VECTORS, "n_layers": 2, "readout": "last"},
        {},
    ),
}


def fitted(name):
    """What a configuration predicts for a few rows, its last training loss, and sigma_min(Z)."""
    classes, X, y, settings, arguments = CONFIGURATIONS[name]
    if classes:
        model = ResidualTransformerClassifier(**SMALL | settings).fit(X, words(y), **arguments)
        predicted = model.predict_proba(X)
    else:
        model = ResidualTransformerRegressor(**SMALL | settings).fit(X, y, **arguments)
        predicted = model.predict(X, segments=arguments.get("segments"))
    return {
        "predictions": predicted[SHOWN].tolist(),
        "loss": model.loss_curve_[-1],
        "sigma_min": float(model.conditioning_.sigma_min[-1, -1]),
    }


def random_numbers():
    """Weights start in float32; kernels for other processors draw other last digits."""
    return torch.randn(32, generator=torch.Generator().manual_seed(0)).tolist()


@pytest.fixture(scope="module")
def stored():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    if stored["random_numbers"] != random_numbers():
        pytest.skip("torch draws other random numbers here than where the predictions were stored")
    return stored["fits"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_predictions_are_those_that_were_stored(name, stored):
    found, expected = fitted(name), stored[name]
    for quantity, value in expected.items():
        size = np.abs(value).max()
        np.testing.assert_allclose(
            found[quantity], value, rtol=TOLERANCE, atol=TOLERANCE * size, err_msg=quantity
        )


def test_every_configuration_is_stored(stored):
    assert stored.keys() == CONFIGURATIONS.keys()


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_reference.py --write")
    document = {"random_numbers": random_numbers(), "fits": {n: fitted(n) for n in CONFIGURATIONS}}
    STORED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
