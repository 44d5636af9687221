"""An ensemble over seeds is the mean of its members, each the fit that its seed gives."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch.callbacks import Callback

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SeedEnsembleClassifier,
    SeedEnsembleRegressor,
    SequenceView,
)
from sklearn_restrans._estimators import candidates

SMALL = {"d_model": 8, "max_iter": 4, "batch_size": 16}


def table(n=70):
    X = np.random.default_rng(0).standard_normal((n, 4))
    return X, X[:, 0] + X[:, 1] ** 2


def regressor(**settings):
    return ResidualTransformerRegressor(**SMALL | settings)


# Whole batches and enough of them: scikit-learn wants weights equal to repeated rows, and accuracy.
CHECKED = {"d_model": 16, "batch_size": 200, "max_iter": 60}


# They train on labels of chance, or for a few steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        SeedEnsembleRegressor(regressor(**CHECKED), n_estimators=2, random_state=0),
        SeedEnsembleClassifier(
            ResidualTransformerClassifier(**CHECKED), n_estimators=2, random_state=0
        ),
    ]
)
def test_scikit_learn_takes_it_for_one_of_its_own(estimator, check):
    check(estimator)


def test_members_are_the_fits_of_their_seeds():
    X, y = table()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    ensemble = SeedEnsembleRegressor(regressor(), n_estimators=3, random_state=0)
    ensemble.fit(X, y, weight, X_val=X[:20], y_val=y[:20])
    assert ensemble.plan_["mode"] == "stacked" and ensemble.errors_ == []
    alone = [clone(m).fit(X, y, weight, X_val=X[:20], y_val=y[:20]) for m in ensemble.estimators_]
    assert len({m.random_state for m in alone}) == 3
    for member, expected in zip(ensemble.estimators_, alone, strict=True):
        assert member.best_iteration_ == expected.best_iteration_
        # float64 sums of other order over some twenty steps
        np.testing.assert_allclose(member.predict(X), expected.predict(X), rtol=1e-9, atol=1e-9)
    mean = np.mean([member.predict(X) for member in ensemble.estimators_], axis=0)
    np.testing.assert_array_equal(ensemble.predict(X), mean)


@pytest.mark.parametrize("settings", [{"dropout": 0.2}, {"early_stopping": True}])
def test_what_cannot_be_stacked_is_an_ensemble_too(settings):
    X, y = table()
    ensemble = SeedEnsembleRegressor(regressor(**settings), n_estimators=2, random_state=0)
    assert ensemble.fit(X, y).plan_["mode"] == "separate"
    alone = [clone(member).fit(X, y).predict(X) for member in ensemble.estimators_]
    np.testing.assert_array_equal(ensemble.predict(X), np.mean(alone, axis=0))


def test_probabilities_are_averaged_and_labels_kept():
    X, y = load_iris(return_X_y=True)
    labels = np.array(["a", "b", "c"])[y]
    member = ResidualTransformerClassifier(**SMALL)
    ensemble = SeedEnsembleClassifier(member, n_estimators=3, random_state=0).fit(X, labels)
    mean = np.mean([m.predict_proba(X) for m in ensemble.estimators_], axis=0)
    np.testing.assert_array_equal(ensemble.predict_proba(X), mean)
    np.testing.assert_array_equal(ensemble.predict(X), ensemble.classes_[mean.argmax(axis=1)])
    there = pickle.loads(pickle.dumps(ensemble))
    np.testing.assert_array_equal(there.predict_proba(X), mean)


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_scores_take_weights_and_segments(kind):
    X, y = table()
    labels, weight = np.arange(70) // 35, np.arange(70.0)
    settings = {"window": 3, **SMALL}
    if kind == "regressor":
        ensemble = SeedEnsembleRegressor(ResidualTransformerRegressor(**settings), n_estimators=2)
        metric = r2_score
    else:
        ensemble = SeedEnsembleClassifier(ResidualTransformerClassifier(**settings), n_estimators=2)
        y, metric = (y > 0).astype(int), accuracy_score
    ensemble.fit(X, y, segments=labels)
    prediction = ensemble.predict(X, segments=labels)
    score = ensemble.score(X, y, weight, segments=labels)
    assert score == metric(y, prediction, sample_weight=weight)
    assert ensemble.score(X, y, segments=labels) == metric(y, prediction)
    if kind == "classifier":
        log_p = ensemble.predict_log_proba(X, segments=labels)
        # exp and log part by some eps
        proba = ensemble.predict_proba(X, segments=labels)
        np.testing.assert_allclose(np.exp(log_p), proba, rtol=1e-13)


def test_it_goes_through_pipelines_searches_and_views():
    X, y = table(90)
    ensemble = SeedEnsembleRegressor(regressor(), n_estimators=2, random_state=0)
    grid = {"seedensembleregressor__estimator__residual_beta": [0.0, 1.0]}
    search = GridSearchCV(make_pipeline(StandardScaler(), ensemble), grid, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    view = SequenceView(X, np.arange(3, 90), 4)
    assert np.isfinite(cross_val_score(ensemble, view, y[3:], cv=3)).all()
    one, two = (clone(ensemble).set_params(n_jobs=n).fit(X, y).predict(X) for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_members_that_diverge_are_left_out(monkeypatch):
    X, y = table()
    wild = regressor(solver="sgd", learning_rate_init=1e12)
    with pytest.raises(DivergenceError, match=r"all 2 members diverged: .*learning_rate_init"):
        SeedEnsembleRegressor(wild, n_estimators=2).fit(X, y)
    run, spared = candidates.Run, []

    def one_fails(*args):
        spared.append(args)
        if len(spared) == 2:
            raise DivergenceError("the second of three")
        return run(*args)

    monkeypatch.setattr(candidates, "Run", one_fails)
    ensemble = SeedEnsembleRegressor(regressor(), n_estimators=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="1 of 3 members diverged .* second of three"):
        ensemble.fit(X, y)
    assert len(ensemble.estimators_) == 2 and ensemble.errors_ == ["the second of three"]
    assert np.isfinite(ensemble.predict(X)).all()


def test_bad_input_is_a_sentence():
    X, y = table()
    for wrong in (Ridge(), ResidualTransformerClassifier()):
        with pytest.raises(TypeError, match="must be a ResidualTransformerRegressor, got"):
            SeedEnsembleRegressor(wrong).fit(X, y)
    with pytest.raises(ValueError, match="n_estimators"):
        SeedEnsembleRegressor(n_estimators=0).fit(X, y)


def test_labels_of_any_type_are_scored_as_they_were_fitted():
    X, y = np.random.default_rng(0).standard_normal((20, 2)), np.arange(20) % 2
    member = ResidualTransformerClassifier(**SMALL)
    ensemble = SeedEnsembleClassifier(member, n_estimators=2, random_state=0).fit(X, y)
    assert ensemble.score(X, y.astype(object)) == ensemble.score(X, y)
    with pytest.raises(ValueError, match=r"1 of 20 labels are missing, first in row 3 \(None\)"):
        ensemble.score(X, [None if row == 3 else label for row, label in enumerate(y)])


class Interrupted(Callback):
    """Ctrl-C, or any error, at the end of an epoch."""

    def __init__(self, error):
        self.error = error

    def on_epoch_end(self, net, **kwargs):
        raise self.error


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_a_fit_that_fails_leaves_an_earlier_one_or_none(kind):
    X, y = table()
    of, member = SeedEnsembleRegressor, ResidualTransformerRegressor
    if kind == "classifier":
        of, member, y = SeedEnsembleClassifier, ResidualTransformerClassifier, (y > 0).astype(int)
    good = member(**SMALL)
    bad = {
        DivergenceError: clone(good).set_params(solver="sgd", learning_rate_init=1e30, max_iter=9),
        KeyboardInterrupt: clone(good).set_params(callbacks=[Interrupted(KeyboardInterrupt())]),
        RuntimeError: clone(good).set_params(callbacks=[Interrupted(RuntimeError("a bug"))]),
        ValueError: clone(good).set_params(n_heads=3),
    }
    for error, wrong in bad.items():
        fresh = of(wrong, n_estimators=2, random_state=0)
        with pytest.raises(error):
            fresh.fit(X, y)
        assert not [name for name in vars(fresh) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            fresh.predict(X)
        fitted = of(good, n_estimators=2, random_state=0).fit(X, y)
        before, names = fitted.predict(X), set(vars(fitted))
        with pytest.raises(error):
            fitted.set_params(estimator=wrong).fit(X, y)
        assert set(vars(fitted)) == names
        np.testing.assert_array_equal(fitted.predict(X), before)


def test_a_second_fit_leaves_nothing_of_the_first():
    X, y = table()
    ensemble = SeedEnsembleRegressor(regressor(), n_estimators=2, random_state=0)
    ensemble.fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert ensemble.feature_names_in_.tolist() == list("abcd")
    ensemble.fit(X[:, :3], y)
    assert ensemble.n_features_in_ == 3 and not hasattr(ensemble, "feature_names_in_")


def test_without_a_seed_the_global_generator_stays_where_it_was():
    X, y = table()
    before = repr(np.random.get_state())  # noqa: NPY002  the legacy generator is the global one
    ensemble = SeedEnsembleRegressor(regressor(max_iter=1), n_estimators=3).fit(X, y)
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    again = clone(ensemble).fit(X, y)
    seeds = {m.random_state for each in (ensemble, again) for m in each.estimators_}
    assert len(seeds) == 6


@pytest.mark.parametrize("wrong", [3, "x", Ridge, ResidualTransformerRegressor, None, [1], 2.5])
def test_tags_and_representations_of_any_estimator(wrong):
    X, y = table()
    for of, kind in ((SeedEnsembleRegressor, "regressor"), (SeedEnsembleClassifier, "classifier")):
        ensemble = of(wrong)
        assert get_tags(ensemble).estimator_type == kind
        assert of.__name__ in repr(ensemble) and of.__name__ in ensemble._repr_html_()
        if wrong is not None:
            with pytest.raises((TypeError, ValueError), match="estimator"):
                ensemble.fit(X, y)
    with pytest.raises(TypeError, match="got the class Ridge; add brackets"):
        SeedEnsembleRegressor(Ridge).fit(X, y)
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        SeedEnsembleRegressor(regressor(), n_jobs=0).fit(X, y)
