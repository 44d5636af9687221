"""What earlier versions called by another name says where it is now."""

import importlib
import pickle

import numpy as np
import pytest

import sklearn_restrans
from sklearn_restrans._moved import _OLD_MODULES

OLD = [(module, name) for module, names in _OLD_MODULES.items() for name in names]


@pytest.mark.parametrize(("module", "name"), OLD)
def test_old_imports_and_pickles_end_in_a_sentence(module, name):
    old = f"sklearn_restrans.{module}"
    sentence = rf"{old}.{name} has moved: import it from sklearn_restrans.* or make it again"
    with pytest.raises(ImportError, match=sentence) as caught:
        pickle.loads(f"c{old}\n{name}\n.".encode())  # the opcode that names a class
    with pytest.raises(ImportError, match=sentence):
        getattr(importlib.import_module(old), name)
    place = str(caught.value).split("import it from ")[1].split(". ")[0]
    assert hasattr(importlib.import_module(place), name)


def test_other_names_are_missing_as_in_any_module():
    """joblib and pickle look through every module for a function whose module they do not know."""
    module = importlib.import_module("sklearn_restrans.regressor")
    assert not hasattr(module, "anything") and not hasattr(module, "BaseResidualTransformer")
    assert pickle.whichmodule(np.frompyfunc(len, 1, 1), "len (vectorized)") == "__main__"
    assert not {"regressor", "beta_path", "ensemble"} & set(dir(sklearn_restrans))
