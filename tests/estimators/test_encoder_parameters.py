"""Parameters of the pretrained estimators: what they are, and what is refused before any file."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_restrans import (
    PretrainedTextClassifier,
    PretrainedTextRegressor,
    ResidualTransformerClassifier,
    TextEmbedder,
)

ALL = [PretrainedTextClassifier, PretrainedTextRegressor, TextEmbedder]
FITTED = ALL[:2]


@pytest.mark.parametrize("estimator", ALL)
def test_only_the_model_and_beta_go_by_position(estimator):
    parameters = inspect.signature(estimator).parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_position == ["model", "residual_beta"]
    assert estimator("folder", 0.5).get_params()["residual_beta"] == 0.5
    assert estimator().model is None


@pytest.mark.parametrize("estimator", ALL)
def test_a_clone_has_the_same_parameters(estimator):
    beta = np.array([[0.5, 1.0]])
    model = estimator("folder", beta, n_layers=1, dtype="float64")
    copy = clone(model)
    assert copy is not model and copy.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(copy.residual_beta, beta)
    assert (copy.model, copy.n_layers, copy.dtype) == ("folder", 1, "float64")
    assert repr(copy).startswith(f"{estimator.__name__}(")


@pytest.mark.parametrize("estimator", FITTED)
def test_the_shape_of_the_model_is_no_parameter(estimator):
    names = set(estimator().get_params())
    assert not names & {"d_model", "n_heads", "d_ff", "norm", "activation", "embedding", "window"}
    shared = {"early_stopping", "warm_start", "callbacks", "random_state", "conditioning_interval"}
    assert (
        shared
        <= names
        <= set(ResidualTransformerClassifier().get_params())
        | {
            "model",
            "max_length",
            "fine_tune",
            "quantiles",
        }
    )


BAD = {
    "model": [3, b"x", ["x"]],
    "residual_beta": [-0.5, "1", None],
    "n_layers": [0, 1.5, "2"],
    "readout": ["auto", "first", None],
    "max_length": [0, -1, 2.5],
    "device": [None, 3],
    "dtype": ["float16", None],
    "n_threads": [0],
}
BAD_TRAINING = {
    "fine_tune": ["none", 0, -1, 1.5, None],
    "dropout": [1.0, -0.1],
    "solver": ["gd", "lbfgs"],
    "learning_rate_init": [0.0, "auto", -1.0],
    "learning_rate": ["auto", "cosine"],
    "batch_size": [0, "all"],
    "max_iter": [0],
    "weight_decay": [-1.0, "auto"],
}


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("name", [*BAD, *BAD_TRAINING])
def test_a_value_that_is_not_allowed_is_named(estimator, name, offline):
    if estimator is TextEmbedder and name in BAD_TRAINING:
        return
    for value in (BAD | BAD_TRAINING)[name]:
        model = estimator("/no/such/folder").set_params(**{name: value})
        with pytest.raises(
            ValueError, match=f"The '{name}' parameter of {estimator.__name__} must"
        ):
            model.fit(["good", "bad"], [0, 1])


@pytest.mark.parametrize("estimator", ALL)
def test_no_model_is_asked_for(estimator, offline):
    with pytest.raises(ValueError, match="model=None: pass the folder of a pretrained encoder"):
        estimator().fit(["good", "bad"], [0, 1])
