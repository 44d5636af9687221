"""What earlier versions called by another name says where it is now."""

import importlib
import pickle

import pytest

import sklearn_restrans


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("regressor", "ResidualTransformerRegressor"),
        ("classifier_cv", "ResidualTransformerClassifierCV"),
        ("ensemble", "SeedEnsembleRegressor"),
        ("beta_path", "BetaPath"),
        ("inspection", "channel_importance"),
    ],
)
def test_old_imports_and_pickles_end_in_a_sentence(module, name):
    old = f"sklearn_restrans.{module}"
    sentence = rf"{old}.{name} has moved: import it from sklearn_restrans.* or fit again"
    with pytest.raises(ImportError, match=sentence):
        pickle.loads(f"c{old}\n{name}\n.".encode())  # the opcode that names a class
    with pytest.raises(ImportError, match=sentence):
        getattr(importlib.import_module(old), name)
    assert hasattr(sklearn_restrans, name)


def test_the_old_modules_are_no_attributes_of_the_package():
    assert not {"regressor", "beta_path", "ensemble"} & set(dir(sklearn_restrans))
