"""The settings of a training are plain values that nothing changes on the way."""

import pickle
from dataclasses import FrozenInstanceError, asdict, fields

import pytest
from loops import make_settings
from smallmodels import SMALL, table

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans._training.settings import TrainingSettings


def test_settings_are_a_value_that_cannot_change():
    settings = make_settings(solver="gd", learning_rate="auto")
    for again in (TrainingSettings(**asdict(settings)), pickle.loads(pickle.dumps(settings))):
        assert again == settings
    with pytest.raises(FrozenInstanceError):
        settings.batch_size = 1


def test_every_setting_of_a_fit_is_a_plain_value():
    """Pickles write them as they are: no torch device, no array, nothing of numpy's."""
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(weight_decay=0, **SMALL).fit(X, y)
    values = asdict(model.net_.settings)
    assert values.keys() == {field.name for field in fields(TrainingSettings)}
    assert {type(value) for value in values.values()} <= {int, float, str, bool, type(None)}
    assert values["device"] in ("cpu", "cuda", "mps") and type(values["weight_decay"]) is float


def test_settings_of_a_pickle_from_before_on_collapse_are_read():
    values = asdict(make_settings())
    del values["on_collapse"]
    assert TrainingSettings(**values).on_collapse == "ignore"


def test_documented_attributes_are_the_fields():
    for field in fields(TrainingSettings):
        assert field.name in TrainingSettings.__doc__, field.name
