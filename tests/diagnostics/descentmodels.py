"""Small models for the tests of descent, in float64."""

import numpy as np

from sklearn_restrans import (
    ResidualTransformerRegressor,
)


def small(cls=ResidualTransformerRegressor, **settings):
    settings = {"d_model": 8, "max_iter": 6, "random_state": 0, "tol": 0} | settings
    return cls(dtype="float64", device="cpu", **settings)


def gd(cls=ResidualTransformerRegressor, **settings):
    return small(
        cls, solver="gd", loss="squared_error", **{"learning_rate_init": "auto"} | settings
    )


def sequences(n, seed, n_outputs=1):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((n, n_outputs))
    return rng.standard_normal((n, 4, 2)), y if n_outputs > 1 else y[:, 0]
