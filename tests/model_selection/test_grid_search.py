"""StackedGridSearchCV is GridSearchCV: same tables, same choice, same errors."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    StackedGridSearchCV,
    make_conditioning_scorer,
    make_convergence_scorer,
)
from sklearn_restrans._compat import FitTask
from sklearn_restrans.model_selection import grid_search

SMALL = {"d_model": 8, "max_iter": 4, "batch_size": 16, "random_state": 0}
GRID = {
    "residual_beta": [0.0, 1.0],
    "learning_rate_init": [1e-3, 1e-2],
    "weight_decay": [0.0, 0.1],
    "random_state": [0, 5],
}
# float64 sums of other order over some twenty steps.
EQUAL = {"rtol": 1e-9, "atol": 1e-9}


def table(n=70):
    X = np.random.default_rng(0).standard_normal((n, 4))
    return X, X[:, 0] + X[:, 1] ** 2


def both(estimator, grid, X, y, *, fit=None, **settings):
    settings = {"cv": 3} | settings
    return [
        search(clone(estimator), grid, **settings).fit(X, y, **(fit or {}))
        for search in (GridSearchCV, StackedGridSearchCV)
    ]


def assert_same_search(plain, stacked):
    expected, got = pd.DataFrame(plain.cv_results_), pd.DataFrame(stacked.cv_results_)
    assert set(expected) == set(got)
    timed = [name for name in expected if name.endswith("_time")]
    scores = [name for name in expected if "_test_" in name or "_train_" in name]
    np.testing.assert_allclose(got[scores], expected[scores], **EQUAL)
    others = [name for name in expected if name not in {*timed, *scores}]
    pd.testing.assert_frame_equal(got[others], expected[others])
    assert (got[timed] >= 0).all(axis=None)
    for name in ("best_index_", "best_params_", "n_splits_", "multimetric_"):
        assert getattr(plain, name, None) == getattr(stacked, name, None)


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd"])
def test_step_sizes_decays_betas_and_seeds_are_one_group(solver):
    X, y = table()
    plain, stacked = both(ResidualTransformerRegressor(solver=solver, **SMALL), GRID, X, y)
    assert_same_search(plain, stacked)
    (plan,) = stacked.plans_
    assert plan["mode"] == "stacked" and plan["size"] == 16 and len(plan["candidates"]) == 16
    np.testing.assert_allclose(stacked.predict(X), plain.predict(X), **EQUAL)
    assert stacked.score(X, y) == pytest.approx(plain.score(X, y), abs=1e-9)


def test_the_steps_of_a_schedule_and_of_measured_curvature():
    X, y = table()
    for settings in (
        {"learning_rate": "one_cycle", "solver": "sgd"},
        {"learning_rate": "constant"},
        {"solver": "sgd", "learning_rate_init": "auto"},
    ):
        model = ResidualTransformerRegressor(**SMALL | settings)
        grid = {"residual_beta": [0.0, 0.5, 2.0], "weight_decay": [0.0, 0.2]}
        assert_same_search(*both(model, grid, X, y))


def test_other_parameters_make_other_groups():
    X, y = table()
    grid = [
        {"residual_beta": [0.0, 1.0], "d_model": [4, 8]},
        {"residual_beta": [0.5], "readout": ["last"]},
        {"dropout": [0.5], "residual_beta": [0.0, 1.0]},
    ]
    plain, stacked = both(ResidualTransformerRegressor(**SMALL), grid, X, y)
    assert_same_search(plain, stacked)
    assert [plan["mode"] for plan in stacked.plans_] == ["stacked"] * 2 + ["separate"] * 2
    assert sorted(k for plan in stacked.plans_ for k in plan["candidates"]) == list(range(7))
    assert "dropout" in stacked.plans_[3]["reason"]


def test_early_stopping_keeps_seeds_apart_and_candidates_stop_alone():
    X, y = table()
    model = ResidualTransformerRegressor(**SMALL | {"max_iter": 30}, early_stopping=True)
    model.set_params(n_iter_no_change=2, tol=0.05)
    plain, stacked = both(model, GRID, X, y, cv=2)
    assert_same_search(plain, stacked)
    assert [len(plan["candidates"]) for plan in stacked.plans_] == [8, 8]


def test_a_pipeline_fits_its_earlier_steps_once_a_fold(monkeypatch):
    X, y = table()
    fitted, fit = [], StandardScaler.fit
    monkeypatch.setattr(
        StandardScaler, "fit", lambda self, *data, **kw: fitted.append(1) or fit(self, *data, **kw)
    )
    pipeline = make_pipeline(StandardScaler(), ResidualTransformerRegressor(**SMALL))
    grid = {f"residualtransformerregressor__{name}": v for name, v in GRID.items()}
    plain, stacked = both(pipeline, grid, 1e3 * X, y)
    assert len(fitted) == (3 * 16 + 1) + (3 + 1)
    assert_same_search(plain, stacked)
    np.testing.assert_allclose(stacked.predict(1e3 * X), plain.predict(1e3 * X), **EQUAL)


def test_several_scores_with_conditioning_and_convergence():
    X, y = table()
    scoring = {
        "r2": "r2",
        "sigma_min": make_conditioning_scorer("sigma_min"),
        "rate": make_convergence_scorer("rate"),
    }
    settings = {"scoring": scoring, "refit": "r2", "return_train_score": True}
    grid = {"residual_beta": [0.0, 1.0]}
    assert_same_search(*both(ResidualTransformerRegressor(**SMALL), grid, X, y, **settings))
    stacked = both(ResidualTransformerRegressor(**SMALL), grid, X, y, scoring=scoring, refit=False)
    assert stacked[1].multimetric_ and not hasattr(stacked[1], "best_estimator_")


def test_weights_groups_views_and_classes():
    X, y = table(90)
    weight = np.random.default_rng(1).uniform(0.5, 2, 90)
    groups = np.arange(90) // 10
    model = ResidualTransformerRegressor(**SMALL)
    grid = {"residual_beta": [0.0, 1.0]}
    fit = {"sample_weight": weight, "groups": groups}
    assert_same_search(*both(model, grid, X, y, fit=fit, cv=GroupKFold(3)))
    view = SequenceView(X, np.arange(3, 90), 4)
    assert_same_search(*both(model, grid, view, y[3:], cv=KFold(3, shuffle=True, random_state=0)))
    labels = np.where(y > 0.5, "high", "low")
    model = ResidualTransformerClassifier(**SMALL)
    searches = both(model, grid, X, labels, cv=StratifiedKFold(3), scoring="roc_auc")
    assert_same_search(*searches)
    assert searches[1].classes_.tolist() == ["high", "low"]


def test_fit_parameters_beyond_weights_are_fitted_apart():
    X, y = table()
    fit = {"X_val": X[:9], "y_val": y[:9]}
    model = ResidualTransformerRegressor(**SMALL)
    plain, stacked = both(model, {"residual_beta": [0.0, 1.0]}, X, y, fit=fit)
    assert_same_search(plain, stacked)
    assert stacked.plans_[0]["reason"] == "fit takes X_val, y_val"


def test_two_processes_give_the_numbers_of_one():
    X, y = table()
    model = ResidualTransformerRegressor(**SMALL)
    one, two = (StackedGridSearchCV(model, GRID, cv=3, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )


def test_a_candidate_that_diverges_ends_alone():
    X, y = table()
    model = ResidualTransformerRegressor(solver="sgd", learning_rate="constant", **SMALL)
    grid = {"learning_rate_init": [1e-3, 1e12]}
    with pytest.warns(FitFailedWarning, match=r"3 fits failed(.|\n)*diverged"):
        with warnings.catch_warnings():
            # scikit-learn's own second warning, of the NaN score that the first one explains
            warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
            search = StackedGridSearchCV(model, grid, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert search.best_params_ == {"learning_rate_init": 1e-3}
    with pytest.raises(FloatingPointError, match="diverged"):
        StackedGridSearchCV(model, grid, cv=3, error_score="raise").fit(X, y)
    with pytest.raises(ValueError, match="All the 3 fits failed"):
        StackedGridSearchCV(model, {"learning_rate_init": [1e12]}, cv=3).fit(X, y)


@pytest.mark.parametrize("scoring", [None, ["r2", "neg_median_absolute_error"]])
@pytest.mark.parametrize("verbose", [0, 1, 2, 3])
def test_it_prints_the_lines_of_a_grid_search_and_one_for_every_group(capsys, verbose, scoring):
    X, y = table()
    grid = {"residual_beta": [0.0, 1.0], "d_model": [4, 8]}
    settings = {"verbose": verbose, "scoring": scoring, "refit": False}
    printed = []
    for search in (GridSearchCV, StackedGridSearchCV):
        model = ResidualTransformerRegressor(**SMALL)
        search(model, grid, cv=2, return_train_score=verbose == 3, **settings).fit(X, y)
        lines = capsys.readouterr().out.splitlines()
        assert {len(line) for line in lines[1:] if " END " in line} <= {80, *range(81, 200)}
        # what a fit takes is measured, and the dots fill up the line
        printed.append([re.sub(r"\.{2,}|total time=.*", " ", line) for line in lines])
    groups = [line for line in printed[1] if "GROUP" in line]
    expected = ["[CV 1/2] GROUP", "[CV 2/2] GROUP"] * 2 if verbose > 1 else []
    assert [line[:14] for line in groups] == expected
    assert all("2 candidates, 2 at a time;" in line for line in groups)
    assert sorted(set(printed[1]) - set(groups)) == sorted(set(printed[0]))
    assert bool(printed[1]) == (verbose > 0)


def test_bad_input_is_a_sentence():
    X, y = table()
    with pytest.raises(TypeError, match="ends with one, got Ridge; use GridSearchCV"):
        StackedGridSearchCV(Ridge(), {"alpha": [1.0]}).fit(X, y)
    wrapped = TransformedTargetRegressor(ResidualTransformerRegressor())
    with pytest.raises(TypeError, match="got TransformedTargetRegressor"):
        StackedGridSearchCV(wrapped, {"regressor__residual_beta": [1.0]}).fit(X, y)
    with pytest.raises(ValueError, match="residual_beta"):
        StackedGridSearchCV(
            ResidualTransformerRegressor(), {"residual_beta": [-1.0, -2.0]}, error_score="raise"
        ).fit(X, y)
    model = ResidualTransformerRegressor(**SMALL)
    with pytest.raises(ValueError, match=r"All the 10 fits failed(.|\n)*infinity"):
        StackedGridSearchCV(model, {"residual_beta": [0.0, 1.0]}).fit(np.where(X > 2, np.inf, X), y)


def test_the_earlier_steps_of_nested_pipelines():
    X, y = table()
    inner = make_pipeline(StandardScaler(), ResidualTransformerRegressor(**SMALL))
    model, prefix = grid_search._last_step(make_pipeline(StandardScaler(), inner))
    assert model is inner[-1] and prefix == "pipeline__residualtransformerregressor__"
    grid = {f"{prefix}residual_beta": [0.0, 1.0]}
    assert_same_search(*both(make_pipeline(StandardScaler(), inner), grid, X, y))


def test_a_candidate_that_is_none_leaves_the_others_alone():
    X, y = table()
    model = ResidualTransformerRegressor(**SMALL)
    bad = {"weight_decay": -1.0, "learning_rate_init": 0, "residual_beta": "x", "random_state": -5}
    for name, value in bad.items():
        with pytest.warns(FitFailedWarning, match="2 fits failed"):
            with warnings.catch_warnings():
                # scikit-learn's second warning, of the NaN score that the first explains
                warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
                grid = {name: [value, 1 if name != "learning_rate_init" else 1e-3]}
                search = StackedGridSearchCV(model, grid, cv=2).fit(X, y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).tolist() == [False, True]


def test_candidates_of_a_replaced_step_and_of_a_random_state_object():
    X, y = table()
    early = ResidualTransformerRegressor(**SMALL | {"max_iter": 6}, early_stopping=True)
    pipe = Pipeline([("m", ResidualTransformerRegressor())])
    assert_same_search(*both(pipe, {"m": [early], "m__random_state": [0, 1]}, X, y))
    drawn = ResidualTransformerRegressor(**SMALL | {"random_state": np.random.RandomState(3)})
    assert_same_search(*both(drawn, {"residual_beta": [1, 0.5]}, X, y))


def test_nothing_to_fit_is_said():
    X, y = table()
    model = ResidualTransformerRegressor(**SMALL)
    with pytest.raises(ValueError, match="cv yields no folds"):
        StackedGridSearchCV(model, {"residual_beta": [0.0]}, cv=[]).fit(X, y)
    with pytest.raises(ValueError, match="0 candidates"):
        StackedGridSearchCV(model, []).fit(X, y)
    with pytest.raises(ValueError, match=r"fold 0 must be a pair \(train, test\)"):
        StackedGridSearchCV(model, {"residual_beta": [0.0]}, cv=[(range(9),)]).fit(X, y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        StackedGridSearchCV(model, {"residual_beta": [0.0]}).fit(X)
    alone = [model.set_params(d_model=-1)], X, y, {}, [FitTask()]
    plan, (outcome,), _ = grid_search._fit_group(*alone)
    assert plan["reason"] == "nothing could be fitted" and "d_model" in str(outcome.error)


class Interrupted(Callback):
    """Ctrl-C, or an error, in the fit of so many rows: all of them are those of the refit."""

    def __init__(self, error, n_rows=70):
        self.error, self.n_rows = error, n_rows

    def on_epoch_end(self, net, dataset_train=None, **kwargs):
        if len(dataset_train) == self.n_rows:
            raise self.error


@pytest.mark.parametrize("n_rows", [35, 70])  # in a fold; in the last fit of all
def test_a_search_that_fails_leaves_an_earlier_one_or_none(n_rows):
    X, y = table()
    good, grid = ResidualTransformerRegressor(**SMALL), {"residual_beta": [0.0, 1.0]}
    for error in (KeyboardInterrupt(), RuntimeError("a bug")):
        wrong = clone(good).set_params(callbacks=[Interrupted(error, n_rows)])
        fresh = StackedGridSearchCV(wrong, grid, cv=2, error_score="raise")
        with pytest.raises(type(error)):
            fresh.fit(X, y)
        assert not [name for name in vars(fresh) if name.endswith("_")]
        search = StackedGridSearchCV(good, grid, cv=2, error_score="raise").fit(X, y)
        before, kept = search.predict(X), dict(vars(search))
        with pytest.raises(type(error)):
            search.set_params(estimator=wrong, cv=2, param_grid={"residual_beta": [0.5]}).fit(X, y)
        fitted = {name for name in kept if name.endswith("_")}
        assert fitted == {name for name in vars(search) if name.endswith("_")}
        assert all(vars(search)[name] is kept[name] for name in fitted)
        np.testing.assert_array_equal(search.predict(X), before)


def test_a_second_search_leaves_nothing_of_the_first():
    X, y = table()
    model = ResidualTransformerRegressor(**SMALL)
    search = StackedGridSearchCV(model, {"residual_beta": [0.0, 1.0]}, cv=2)
    search.fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert search.feature_names_in_.tolist() == list("abcd")
    search.set_params(refit=False).fit(X, y)
    assert not hasattr(search, "best_estimator_") and not hasattr(search, "feature_names_in_")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([1, "a"] * 35, "y holds labels of the types int .*str"),
        ([None, "a"] * 35, "35 of 70 labels are missing, first in row 0"),
        ([1, None] * 35, "35 of 70 labels are missing, first in row 1"),
        (np.array([1, "a"] * 35, dtype=object)[:, None], "y holds labels of the types"),
        ([b"a", 1.5] * 35, "y holds labels of the types"),
        ([float("nan"), "a"] * 35, "35 of 70 labels are missing"),
    ],
)
def test_labels_that_cannot_be_sorted(labels, sentence):
    X, _ = table()
    model = ResidualTransformerClassifier(**SMALL)
    for estimator, prefix in ((model, ""), (make_pipeline(StandardScaler(), model), None)):
        prefix = "residualtransformerclassifier__" if prefix is None else prefix
        search = StackedGridSearchCV(estimator, {f"{prefix}residual_beta": [0.0, 1.0]}, cv=2)
        with pytest.raises(ValueError, match=sentence):
            search.fit(X, labels)
