"""An architecture is a plain value: it can be compared, written down and read back."""

import pickle
from dataclasses import FrozenInstanceError, asdict

import pytest
from coremodels import architecture

from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.transformer import ResidualTransformer


def test_an_architecture_is_a_value_that_cannot_change():
    arch = architecture(norm="pre", n_heads=2)
    for again in (Architecture(**asdict(arch)), pickle.loads(pickle.dumps(arch))):
        assert again == arch and hash(again) == hash(arch)
    with pytest.raises(FrozenInstanceError):
        arch.n_layers = 3
    assert {type(value) for value in asdict(arch).values()} <= {int, float, str, bool, type(None)}


def test_the_defaults_are_one_layer_of_the_paper():
    """No norm, no dropout, one head; positions and biases are departures that the code marks."""
    model = ResidualTransformer(Architecture(n_tokens=4, n_features=2, n_outputs=1))
    (layer,) = model.layers
    assert layer.W_O is None and layer.norm_1 is None and layer.norm_2 is None
    assert model.arch.dropout == 0.0 and model.arch.readout == "last"


def test_a_batch_padded_to_another_length_has_that_many_tokens():
    arch = architecture()
    assert arch.at_length(None) is arch
    assert asdict(arch.at_length(9)) == asdict(arch) | {"n_tokens": 9}
