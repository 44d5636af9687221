"""Padding and the texts beside a text change nothing in what a model makes of it."""

import numpy as np
import pytest
import torch
from smallmodels import SAME, SMALL
from tokenrows import lengths_of_rows

from sklearn_restrans import ResidualTransformerClassifier, ResidualTransformerRegressor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 32},
        {"d_model": 15, "n_heads": 3, "n_layers": 2, "readout": "last"},
        {"d_model": 64, "n_heads": 2, "norm": "pre", "activation": "gelu"},
        {"d_model": 8, "readout": "last", "positions": None},
    ],
)
def test_padding_and_company_change_no_bit_of_a_prediction(settings, dtype, seed):
    ids, _ = lengths_of_rows(300, 70, seed)
    y = ids[:, 0] % 3
    model = ResidualTransformerClassifier(
        embedding="token", max_iter=1, dtype=dtype, random_state=seed, **settings
    ).fit(ids, y)
    expected = model.predict_proba(ids)
    for wider in (1, 26, 200):
        np.testing.assert_array_equal(
            model.predict_proba(np.pad(ids, ((0, 0), (0, wider)))), expected
        )
    order = np.random.default_rng(seed).permutation(300)
    for rows in (order, order[:7], [5], np.repeat(order[:40], 5), *([row] for row in order[:12])):
        cut = max(1, int((ids[rows] != 0).sum(axis=1).max()))
        np.testing.assert_array_equal(model.predict_proba(ids[rows][:, :cut]), expected[rows])


def test_predictions_are_those_of_unpadded_texts(seed):
    ids, length = lengths_of_rows(60, 40, seed)
    y = np.random.default_rng(seed).standard_normal(60)
    model = ResidualTransformerRegressor(
        embedding="token", n_layers=2, dtype="float64", **SMALL
    ).fit(ids, y)
    module = model.net_.module_
    for row, n in enumerate(length):
        with torch.no_grad():
            alone = module(torch.as_tensor(ids[row : row + 1, :n])).numpy()
        np.testing.assert_allclose(
            model.predict(ids[row : row + 1]),
            model._preprocessing.targets.scaler.inverse(alone)[:, 0],
            **SAME,
        )


def test_validation_loss_is_the_mean_over_texts(seed):
    """In eval mode each text by itself gives the same loss, in float64 to rounding."""
    ids, _ = lengths_of_rows(120, 40, seed)
    y = ids[:, 0] % 2
    model = ResidualTransformerClassifier(embedding="token", dtype="float64", **SMALL)
    model.fit(ids[:60], y[:60], X_val=ids[60:], y_val=y[60:])
    p = model.predict_proba(ids[60:])[np.arange(60), y[60:]]
    assert -model.best_validation_score_ == pytest.approx(-np.log(p).mean(), rel=1e-9)
