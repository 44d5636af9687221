"""The solvers that use curvature, with all that estimators take beside a table of numbers."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_restrans import (
    PretrainedTextClassifier,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleRegressor,
    make_convergence_scorer,
    residual_beta_path,
)
from sklearn_restrans._training.settings import SECOND_ORDER

pytestmark = pytest.mark.parametrize("solver", SECOND_ORDER)


def data(seed=0, n=24, shape=(5, 3)):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, *shape)), rng.standard_normal(n)


def fitted_well(model, X, y, factor=0.1):
    curve = model.fit(X, y).convergence_.relative_loss
    return curve[-1] < factor and np.isfinite(model.predict(X[:3])).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"n_heads": 2, "n_layers": 2, "norm": "pre"},
        {"norm": "post", "readout": "mean", "activation": "gelu"},
        {"learn_beta": True, "residual_beta": (0.5, 0.2)},
        {"window": 4, "positions": "sinusoidal"},
    ],
    ids=str,
)
def test_every_model_is_trained(settings, solver):
    X, y = data(shape=(3,)) if "window" in settings else data()
    model = ResidualTransformerRegressor(solver=solver, max_iter=12, random_state=0, **settings)
    assert fitted_well(model, X, y, 0.5)
    if "learn_beta" in settings:
        assert not np.allclose(model.residual_beta_, [[0.5, 0.2]])


def test_padding_missing_readings_and_several_targets(solver):
    X, y = data()
    X[::3, 3:] = np.nan  # padding
    X[1::4, 1, 0] = np.nan  # a missing reading
    model = ResidualTransformerRegressor(solver=solver, max_iter=12, random_state=0)
    assert fitted_well(model, X, np.stack([y, -y, y**2], 1), 0.5)
    assert model.predict(X).shape == (24, 3)


def test_token_ids_of_different_lengths(solver):
    rng = np.random.default_rng(0)
    ids = rng.integers(2, 30, (24, 12))
    ids[::2, 5:] = 0
    model = ResidualTransformerClassifier(
        solver=solver, embedding="token", max_iter=12, random_state=0
    )
    assert fitted_well(model, ids, ids[:, 0] % 3, 0.3)


def test_class_weights_and_the_squared_error_of_a_classifier(solver):
    X, y = data()
    labels = (y > 0.8).astype(int)
    model = ResidualTransformerClassifier(
        solver=solver, loss="squared_error", class_weight="balanced", max_iter=12, random_state=0
    )
    assert fitted_well(model, X, labels, 0.3)
    assert model.predict_proba(X).shape == (24, 2)


def test_equal_seeds_give_equal_bits_and_pickles_the_same_predictions(solver):
    X, y = data()
    model = ResidualTransformerRegressor(solver=solver, max_iter=4, random_state=3).fit(X, y)
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.history_.equals(model.history_)
    assert model.net_.descent_ is None  # nothing of the training stays


def test_warm_start_goes_on_and_changes_the_solver(solver):
    X, y = data()
    model = ResidualTransformerRegressor(
        solver="adamw", warm_start=True, random_state=0, max_iter=2
    )
    first = model.fit(X, y).__restrans_objective__(X, y, None, fitted=True).objective.value()
    model.set_params(solver=solver, max_iter=3).fit(X, y)
    assert model.n_iter_ == 5
    assert model.loss_curve_[2] == pytest.approx(first, rel=1e-4)  # trained in float32 before
    assert len(model.convergence_.to_frame()) == 5
    assert model.convergence_.gradient_epochs.tolist() == [3, 4, 5]


def test_paths_and_searches_fit_one_by_one_and_say_why(solver):
    X, y = data()
    model = ResidualTransformerRegressor(solver=solver, max_iter=3, random_state=0)
    path = residual_beta_path(X, y, [0.0, 1.0], estimator=model)
    assert path.plan["mode"] == "separate"
    assert f"solver={solver!r} finds every step" in path.plan["reason"]
    alone = clone(model).set_params(residual_beta=1.0).fit(X, y)
    np.testing.assert_array_equal(path.estimators[1.0, 0, 0].predict(X), alone.predict(X))
    search = ResidualTransformerRegressorCV([0.0, 1.0], cv=2, solver=solver, max_iter=2)
    assert search.fit(X, y).residual_beta_ in (0.0, 1.0)
    grid = GridSearchCV(
        model, {"weight_decay": [0.0, 0.1]}, cv=2, scoring=make_convergence_scorer("rate")
    ).fit(X, y)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


def test_ensembles_of_seeds(solver):
    X, y = data()
    model = ResidualTransformerRegressor(solver=solver, max_iter=3)
    ensemble = SeedEnsembleRegressor(model, n_estimators=2, random_state=0).fit(X, y)
    assert np.isfinite(ensemble.predict(X)).all()


def test_conditioning_is_recorded_as_often_as_asked(solver):
    X, y = data()
    model = ResidualTransformerRegressor(
        solver=solver, max_iter=3, conditioning_interval=1, random_state=0
    ).fit(X, y)
    assert model.conditioning_.epochs.tolist() == [0, 1, 2, 3]


def test_float32_is_taken_where_it_is_asked_for(solver):
    X, y = data()
    model = ResidualTransformerRegressor(solver=solver, dtype="float32", max_iter=8, random_state=0)
    assert fitted_well(model, X, y, 0.5)
    assert model.net_.module_.W_U.dtype == torch.float32


def test_nothing_of_the_process_changes(solver):
    X, y = data()
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    ResidualTransformerRegressor(solver=solver, max_iter=3).fit(X, y)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_pretrained_encoders_do_not_take_it(solver):
    with pytest.raises(ValueError, match="'solver' parameter"):
        PretrainedTextClassifier("folder", solver=solver).fit(["a", "b"], [0, 1])
