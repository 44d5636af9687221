"""Arguments nobody should pass end in a ValueError or TypeError whose text names the argument."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleClassifier,
    SeedEnsembleRegressor,
    StackedGridSearchCV,
    make_conditioning_scorer,
    make_convergence_scorer,
    residual_beta_path,
)

N = 24
TINY = {"d_model": 4, "max_iter": 1}
X = np.random.default_rng(0).standard_normal((N, 3))
Y = X[:, 0] + X[:, 1] ** 2
LABELS = np.where(Y > np.median(Y), "high", "low")

# What could be meant by nothing that follows; every function below refuses each of them.
ODD = {
    "a class": Ridge,
    "an estimator": Ridge(),
    "bytes": b"x",
    "a complex number": 1j,
    "a function": print,
    "an object": object(),
    "NA": pd.NA,
    "a scalar array": np.array("T"),
    "an empty array": np.array([]),
    "a dict of a dict": {"residual_beta": {"nope": 3}},
    "a set": set(),
    "a slice": slice(3),
    "text": "x",
    "a list of None": [None],
    "an empty frame": pd.DataFrame(),
    "minus one half": -0.5,
    "nan": float("nan"),
    "too large a float": 1e300,
    "words": [1, "a"],
    "a generator": (number for number in range(3)),
}


def path(**arguments):
    model = ResidualTransformerRegressor(random_state=0, **TINY)
    return residual_beta_path(**{"X": X, "y": Y, "betas": [0], "estimator": model} | arguments)


def on_folds(**arguments):
    return path(**{"cv": 2} | arguments)


def regressor_cv(groups=None, **arguments):
    search = ResidualTransformerRegressorCV(**{"betas": [0, 1], "cv": 2} | TINY | arguments)
    return search.fit(X, Y, groups=groups)


def classifier_cv(groups=None, **arguments):
    search = ResidualTransformerClassifierCV(**{"betas": [0, 1], "cv": 2} | TINY | arguments)
    return search.fit(X, LABELS, groups=groups)


def stacked_search(groups=None, **arguments):
    defaults = {"estimator": ResidualTransformerRegressor(**TINY), "cv": 2}
    defaults["param_grid"] = {"residual_beta": [0, 1]}
    return StackedGridSearchCV(**defaults | arguments).fit(X, Y, groups=groups)


def regressors(**arguments):
    defaults = {"estimator": ResidualTransformerRegressor(**TINY), "n_estimators": 2}
    return SeedEnsembleRegressor(**defaults | arguments).fit(X, Y)


def classifiers(**arguments):
    defaults = {"estimator": ResidualTransformerClassifier(**TINY), "n_estimators": 2}
    return SeedEnsembleClassifier(**defaults | arguments).fit(X, LABELS)


def conditioning(**arguments):
    return make_conditioning_scorer(**{"quantity": "sigma_min"} | arguments)


def convergence(**arguments):
    return make_convergence_scorer(**{"quantity": "epochs_to", "loss": 1.0} | arguments)


ARGUMENTS = {
    path: ("betas", "estimator", "n_seeds", "stacked", "n_jobs"),
    on_folds: ("cv", "groups", "scoring"),
    regressor_cv: ("betas", "cv", "groups", "scoring", "refit", "n_seeds", "n_jobs"),
    classifier_cv: ("betas", "cv", "groups", "scoring", "n_jobs"),
    stacked_search: ("estimator", "param_grid", "cv", "groups", "n_jobs"),
    regressors: ("estimator", "n_estimators", "n_jobs", "random_state"),
    classifiers: ("estimator", "n_jobs"),
    conditioning: ("quantity", "of", "layer", "stage"),
    convergence: ("quantity", "loss"),
}
# An argument may be meant by one of these after all.
MEANT = {("loss", "minus one half"), ("loss", "too large a float"), ("betas", "a generator")}
# scikit-learn's words for them.
SAID = {"param_grid": r"[Pp]arameter grid|param_grid|parameter"}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("function", ARGUMENTS, ids=lambda function: function.__name__)
def test_an_odd_argument_is_named(function, name):
    for argument in ARGUMENTS[function]:
        if (argument, name) in MEANT:
            continue
        value = (number for number in range(3)) if name == "a generator" else ODD[name]
        if argument == "scoring" and name == "a function":
            continue  # a score that is not a number, below
        with pytest.raises((ValueError, TypeError), match=SAID.get(argument, argument)) as caught:
            function(**{argument: value})
        assert len(str(caught.value)) < 1_500, "a message to read"


def test_numbers_of_processes():
    for function in (path, regressor_cv, stacked_search, regressors, classifiers):
        for wrong in (0, True):
            with pytest.raises(ValueError, match="n_jobs"):
                function(n_jobs=wrong)


def test_folds_that_are_none():
    for function in (on_folds, regressor_cv, classifier_cv, stacked_search):
        for cv in (1, 0, -3, 10**30, True, N + 1):
            with pytest.raises(ValueError, match="cv"):
                function(cv=cv)
        for cv in ([(range(9),)], [(range(9), range(9), 3)], [3], ["ab"], [([[1], [2, 3]], [4])]):
            with pytest.raises(ValueError, match=r"cv: (.* of )?fold 0"):
                function(cv=cv)
        with pytest.raises(TypeError, match="cv must be a splitter, got the class KFold"):
            function(cv=KFold)
        for groups in (3, np.zeros(N - 1), "a" * N, pd.Series(range(N + 1)), {0: 1}, np.array(1)):
            with pytest.raises(ValueError, match=f"groups must hold one label per row, {N} in all"):
                function(groups=groups)


@pytest.mark.parametrize("scoring", ["roc_auc", "neg_log_loss", "roc_auc_ovr"])
def test_a_score_that_needs_what_a_regressor_has_not(scoring):
    for function in (on_folds, regressor_cv):
        with pytest.raises(ValueError, match=f"scoring='{scoring}' is computed from .*predict_pro"):
            function(scoring=scoring)
    found = classifier_cv(scoring=scoring)
    assert np.isfinite(found.best_score_)


@pytest.mark.parametrize(
    "scoring",
    [
        print,
        lambda: 3,
        lambda model, X, y: None,
        lambda model, X, y: model.no_such_method(X),
        lambda model, X, y: float("nan"),
        lambda model, X, y: "good",
        "f1",
    ],
)
def test_a_score_that_fails_is_a_result_of_its_candidate(scoring):
    frame = on_folds(scoring=scoring).to_frame()
    assert frame["score"].isna().all() and frame["error"].str.startswith("no score: ").all()
    with pytest.raises(ValueError, match="has a finite score; the first error was: no score: "):
        regressor_cv(scoring=scoring)


def test_targets_that_are_missing():
    for fit in (
        lambda: residual_beta_path(X, None, [0]),
        lambda: ResidualTransformerRegressorCV([0], cv=2, **TINY).fit(X, None),
        lambda: StackedGridSearchCV(ResidualTransformerRegressor(), {}).fit(X),
        lambda: SeedEnsembleRegressor().fit(X, None),
        lambda: SeedEnsembleClassifier().fit(X, None),
    ):
        with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
            fit()


def test_any_mixture_of_odd_arguments(seed):
    """Drawn at random, several at once: no error but a ValueError or a TypeError."""
    rng = np.random.default_rng(seed)
    pool = [*ODD.values(), None, 0, 3, [], "r2", KFold(2), np.zeros(N), 10**400, {}, ()]
    functions = list(ARGUMENTS)
    for _ in range(300):
        function = functions[rng.integers(len(functions))]
        names = ARGUMENTS[function]
        chosen = rng.choice(len(names), size=min(len(names), 1 + rng.integers(3)), replace=False)
        arguments = {names[k]: pool[rng.integers(len(pool))] for k in chosen}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that failed and have no score
            try:
                function(**arguments)
            except (ValueError, TypeError) as error:
                assert str(error), arguments
