"""The record of a fitted model is found wherever in a composition the model sits."""

from types import SimpleNamespace

import pytest
from sklearn.pipeline import Pipeline

from sklearn_restrans.diagnostics.records import fitted_records


def model(record):
    return SimpleNamespace(conditioning_=record)


def test_of_a_model_itself_and_inside_what_was_fitted_around_it():
    inner = model("found")
    pipeline = Pipeline([("scale", "passthrough"), ("model", inner)])
    for outer in (
        inner,
        pipeline,
        SimpleNamespace(best_estimator_=inner),
        SimpleNamespace(regressor_=pipeline),
        SimpleNamespace(best_estimator_=SimpleNamespace(estimator_=pipeline)),
    ):
        assert fitted_records(outer, "conditioning_") == ["found"]


def test_of_an_ensemble_those_of_its_members_in_their_order():
    ensemble = SimpleNamespace(estimators_=[model(1), SimpleNamespace(regressor_=model(2))])
    assert fitted_records(ensemble, "conditioning_") == [1, 2]
    assert fitted_records(Pipeline([("last", ensemble)]), "conditioning_") == [1, 2]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("conditioning_", "pass a fitted residual Transformer, an ensemble of them, or a Pipeline"),
        ("beta_path_", "pass a fitted ...CV estimator"),
    ],
)
def test_what_holds_none_is_named_with_what_would(record, said):
    for other in (SimpleNamespace(), Pipeline([("last", SimpleNamespace())])):
        name = type(other).__name__
        with pytest.raises(ValueError, match=f"estimator has no {record}: {name} is not fitted"):
            fitted_records(other, record)
        with pytest.raises(ValueError, match=said):
            fitted_records(other, record)
