"""Who can be diagnosed: whoever has the declared methods, wherever it stands in a Pipeline."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    certify_linear_convergence,
    linearized_prediction,
    measure_conditioning,
    suggest_residual_beta,
)
from sklearn_restrans.diagnostics.protocol import HasObjective, HasTraces, ObjectiveAt
from sklearn_restrans.diagnostics.traces import LayerTrace


def small(**settings):
    return ResidualTransformerRegressor(d_model=4, max_iter=1, random_state=0, **settings)


@pytest.mark.parametrize("cls", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_the_estimators_follow_both_protocols_and_others_neither(cls):
    assert isinstance(cls(), HasObjective) and isinstance(cls(), HasTraces)
    assert not isinstance(Ridge(), HasObjective) and not isinstance(Ridge(), HasTraces)


@pytest.mark.parametrize("step", ["auto", 0.25])
def test_the_objective_carries_what_descent_needs(step):
    X, y = np.eye(6), np.arange(6.0)
    model = small(solver="gd", learning_rate_init=step)
    first, second = (model.__restrans_objective__(X, y) for _ in range(2))
    assert isinstance(first, ObjectiveAt)
    assert first.step_size == step and first.seed == second.seed
    assert first.n_steps == 1
    assert first.objective.value() == second.objective.value()


class Stranger(BaseEstimator):
    """An estimator of somebody else that follows the protocol of traces."""

    def fit(self, X, y=None):
        self.best_iteration_ = 12
        return self

    def __restrans_traces__(self, X):
        rows = np.asarray(X, dtype=float)[:, :, None]
        yield [LayerTrace(rows, 0 * rows, 2 * rows)]


def test_an_estimator_of_somebody_else_can_be_measured():
    X = np.random.default_rng(0).standard_normal((7, 5))
    found = measure_conditioning(make_pipeline(StandardScaler(), Stranger()).fit(X), X)
    # Columns of variance one: the only singular value of 35 numbers, doubled.
    np.testing.assert_allclose(found.sigma_max, [[2 * np.sqrt(35)]], rtol=1e-14)
    assert found.epochs.tolist() == [12]


FUNCTIONS = {
    "certify_linear_convergence": certify_linear_convergence,
    "linearized_prediction": linearized_prediction,
    "suggest_residual_beta": lambda model, X, y: suggest_residual_beta(model, X, y, [0, 1]),
    "measure_conditioning": lambda model, X, y: measure_conditioning(model, X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Ridge(), "Ridge"),
        ("ridge", "str"),
        (ResidualTransformerRegressor, "the class ResidualTransformerRegressor"),
        (None, "NoneType"),
    ],
)
def test_others_are_refused_by_the_name_of_the_function(name, other, named):
    said = rf"^{name} needs a residual Transformer \(.*\).*, got {named}; "
    with pytest.raises(TypeError, match=said):
        FUNCTIONS[name](other, np.eye(4), np.arange(4.0))


@pytest.mark.parametrize("name", ["certify_linear_convergence", "suggest_residual_beta"])
def test_a_search_has_no_initial_weights(name):
    search = ResidualTransformerRegressorCV([0.0, 1.0], solver="gd", learning_rate_init="auto")
    said = f"^{name} needs the initial weights of one residual_beta, and ResidualTransformerRegr"
    with pytest.raises(TypeError, match=said):
        FUNCTIONS[name](search, np.eye(4), np.arange(4.0))
    with pytest.raises(TypeError, match="chooses it in fit: pass a ResidualTransformerRegressor"):
        linearized_prediction(search, np.eye(4), np.arange(4.0), stage="initial")
    with pytest.raises(NotFittedError):
        linearized_prediction(search, np.eye(4), np.arange(4.0))


def test_an_unfitted_estimator_is_refused_before_its_data_are_read():
    with pytest.raises(NotFittedError):
        measure_conditioning(make_pipeline(StandardScaler(), small()), "no data")
