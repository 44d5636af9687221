"""Every result of the diagnostics can be sent to another process, copied and kept."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from descentmodels import gd, sequences
from layertraces import attention_trace, measured

from sklearn_restrans import (
    attention_over_lags,
    certify_linear_convergence,
    channel_importance,
    lambda_skip_bound,
    linearized_prediction,
    suggest_residual_beta,
)
from sklearn_restrans._lanczos import lanczos_largest
from sklearn_restrans.theory import tangent_kernel


def results():
    """One of each kind of result, by name."""
    X, y = sequences(6, 0)
    model = gd(max_iter=8).fit(X, y)
    record = measured(attention_trace())
    J = np.random.default_rng(0).standard_normal((3, 5))
    return {
        "Conditioning": record,
        "MatrixConditioning": record.Z,
        "Convergence": model.convergence_,
        "LocalRate": model.convergence_.local_rate(),
        "LinearConvergenceCertificate": certify_linear_convergence(model, X, y, n_steps=2),
        "LinearizedPrediction": linearized_prediction(model, X, y, n_steps=2),
        "ResidualBetaSuggestion": suggest_residual_beta(model, X, y, [0, 1], n_seeds=1, n_steps=2),
        "channel_importance": channel_importance(model, X, y, n_repeats=1),
        "AttentionOverLags": attention_over_lags(model, X),
        "LambdaSkipBound": lambda_skip_bound(model, X),
        "LayerTrace": attention_trace(lengths=[7, 3, 5, 7, 2, 3]),
        "ObjectiveAt": model.__restrans_objective__(X, y),
        "TangentKernel": tangent_kernel(J),
        "LanczosResult": lanczos_largest(lambda v: 2 * v, 4, rng=0),
    }


def same(first, second):
    """Equal to the bit in everything that is a number or an array."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, pd.DataFrame):
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    elif isinstance(first, (list, tuple)):
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            same(first[key], second[key])
    elif hasattr(first, "__dict__"):
        same(vars(first), vars(second))
    else:
        assert first == second or first != first


def pickled(result):
    return pickle.loads(pickle.dumps(result))


@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_every_result_survives(copied):
    for result in results().values():
        same(result, copied(result))
