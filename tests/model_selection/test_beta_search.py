"""The ...CV estimators: GridSearchCV's numbers over beta, and the plain fit of the best one."""

import inspect
import pickle

import numpy as np
import pytest
from numpydoc.docscrape import NumpyDocString
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from skorch.callbacks import Callback

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SequenceView,
)

PAIRS = {
    "regressor": (ResidualTransformerRegressorCV, ResidualTransformerRegressor),
    "classifier": (ResidualTransformerClassifierCV, ResidualTransformerClassifier),
}
BETAS = [1.0, 0.0, 0.5]
SETTINGS = {"d_model": 8, "max_iter": 3, "batch_size": 16, "random_state": 0}
N = 60


def sequences(seed=0):
    X = np.random.default_rng(seed).standard_normal((N, 5, 2))
    return X, X[:, -1, 0] + X[:, 1, 1] ** 2


@parametrize_with_checks(
    [search(betas=(0.5, 1.0), cv=3, d_model=16) for search, _ in PAIRS.values()]
)
def test_scikit_learns_check_passes(estimator, check):
    check(estimator)


# ---- the numbers of GridSearchCV ----------------------------------------------------------------

SEARCHES = {
    "default": ("regressor", KFold(3), {}),
    "scoring": ("regressor", KFold(3), {"scoring": "neg_mean_absolute_error"}),
    "time": ("regressor", TimeSeriesSplit(3, gap=2), {}),
    "groups": ("regressor", GroupKFold(3), {}),
    "weights": ("regressor", KFold(3), {}),
    "early stopping": ("regressor", KFold(3), {"early_stopping": True, "n_iter_no_change": 1}),
    "separate": ("regressor", KFold(3), {"solver": "gd", "learning_rate_init": "auto"}),
    "classifier": ("classifier", StratifiedKFold(3), {"scoring": "neg_log_loss"}),
    "accuracy": ("classifier", 3, {"class_weight": "balanced"}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_scores_are_those_of_a_grid_search_over_the_plain_estimator(name):
    kind, cv, settings = SEARCHES[name]
    settings = SETTINGS | settings
    X, y = sequences()
    if kind == "classifier":
        y = np.array(["a", "b", "c"])[np.digitize(y, [0.0, 1.5])]
    groups = np.arange(N) // 4 if name == "groups" else None
    fit = {"sample_weight": np.linspace(0.1, 1, N)} if name == "weights" else {}
    search, plain = PAIRS[kind]
    ours = search(BETAS, cv=cv, **settings).fit(X, y, groups=groups, **fit)
    scoring = settings.pop("scoring", None)
    grid = GridSearchCV(plain(**settings), {"residual_beta": BETAS}, cv=cv, scoring=scoring)
    grid.fit(X, y, groups=groups, **fit)
    expected = grid.cv_results_
    assert set(expected) <= set(ours.cv_results_)
    for key, values in expected.items():
        assert np.shape(ours.cv_results_[key]) == np.shape(values)
        if "test_score" in key and "rank" not in key:
            # The weights agree to 1e-12, see test_beta_path.py; scores are of order 1.
            np.testing.assert_allclose(ours.cv_results_[key], values, rtol=0, atol=1e-10)
    for key in ("params", "param_residual_beta", "rank_test_score"):
        assert list(ours.cv_results_[key]) == list(expected[key])
    assert ours.best_index_ == grid.best_index_
    assert ours.residual_beta_ == grid.best_params_["residual_beta"]
    np.testing.assert_allclose(ours.best_score_, grid.best_score_, rtol=0, atol=1e-10)
    # What both fit again is the plain estimator with that beta.
    np.testing.assert_array_equal(ours.predict(X), grid.predict(X))
    np.testing.assert_array_equal(ours.loss_curve_, grid.best_estimator_.loss_curve_)


def test_a_view_of_windows_goes_through_as_it_is():
    rows = np.random.default_rng(0).standard_normal((N, 2))
    X, y = SequenceView(rows, np.arange(N), 4), rows[:, 0]
    ours = ResidualTransformerRegressorCV([0, 1], cv=TimeSeriesSplit(2, gap=3), **SETTINGS)
    plain = ResidualTransformerRegressor(**SETTINGS)
    grid = GridSearchCV(plain, {"residual_beta": [0, 1]}, cv=ours.cv).fit(X, y)
    scores = ours.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, grid.cv_results_["mean_test_score"], rtol=0, atol=1e-10)


def test_segments_are_those_of_the_view():
    rows = np.random.default_rng(0).standard_normal((N, 2))
    y, labels = rows[:, 0] + np.roll(rows[:, 1], 1), np.arange(N) // 15
    view = SequenceView(rows, np.arange(N), 3, segments=labels)
    search = ResidualTransformerRegressorCV(BETAS, cv=GroupKFold(2), **SETTINGS)
    told = clone(search).set_params(window=3).fit(rows, y, groups=labels, segments=labels)
    viewed = search.fit(view, y, groups=labels)
    assert told.residual_beta_ == viewed.residual_beta_
    scores = [fit.cv_results_["mean_test_score"] for fit in (told, viewed)]
    # As above: float64 sums of other order.
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-12)
    predictions = told.predict(rows, segments=labels), viewed.predict(view)
    np.testing.assert_allclose(*predictions, rtol=0, atol=1e-12)


def test_results_carry_conditioning_convergence_and_seconds():
    X, y = sequences()
    search = ResidualTransformerRegressorCV(BETAS, cv=2, n_seeds=2, **SETTINGS).fit(X, y)
    results, fits = search.cv_results_, search.beta_path_.estimators
    for k, beta in enumerate(BETAS):
        own = [fit for key, fit in fits.items() if key[0] == beta]
        assert len(own) == 4
        for of, name in (("Z", "Z"), ("attention", "attn")):
            for quantity in ("sigma_min", "condition_number"):
                mean = np.mean([fit.conditioning_.get(quantity, of=of) for fit in own])
                np.testing.assert_allclose(results[f"mean_{quantity}_{name}"][k], mean)
        np.testing.assert_allclose(
            results["mean_rate"][k], np.mean([fit.convergence_.rate for fit in own])
        )
        np.testing.assert_allclose(
            results["mean_train_loss"][k], np.mean([fit.loss_curve_[-1] for fit in own])
        )
    frame = search.beta_path_.to_frame().set_index(["beta", "seed", "fold"])
    by_hand = frame.loc[(0.5, slice(None), 1), "score"].mean()
    np.testing.assert_allclose(results["split1_test_score"][2], by_hand)
    assert (results["mean_fit_time"] > 0).all() and (results["mean_score_time"] > 0).all()


# ---- the estimator ------------------------------------------------------------------------------


@pytest.mark.parametrize(("search", "plain"), PAIRS.values(), ids=PAIRS)
def test_the_signature_is_the_plain_ones_and_the_searchs(search, plain):
    own, plain = (inspect.signature(cls).parameters for cls in (search, plain))
    added = ["betas", "cv", "scoring", "refit", "n_seeds", "n_jobs"]
    assert list(own) == added + [name for name in plain if name != "residual_beta"]
    for name in set(own) - set(added):
        assert own[name].default == plain[name].default


@pytest.mark.parametrize(("search", "plain"), PAIRS.values(), ids=PAIRS)
def test_parameters_and_attributes_are_described_as_on_the_plain_estimator(search, plain):
    def described(cls, section):
        entries = NumpyDocString(inspect.cleandoc(cls.__doc__))[section]
        return {entry.name: (entry.type, entry.desc) for entry in entries}

    for section, changed in (("Parameters", "residual_beta"), ("Attributes", "residual_beta_")):
        own, expected = described(search, section), described(plain, section)
        for name in expected.keys() - {changed}:
            assert own[name] == expected[name], name


@pytest.mark.parametrize("kind", PAIRS)
def test_the_fitted_search_is_the_fitted_plain_estimator(kind):
    search, plain = PAIRS[kind]
    X, y = sequences()
    y = y if kind == "regressor" else y > 0
    ours = search(BETAS, cv=3, **SETTINGS).fit(X, y)
    model = plain(ours.residual_beta_, **SETTINGS).fit(X, y)
    assert is_classifier(ours) == is_classifier(model)
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert fitted <= set(vars(ours))
    assert ours.score(X, y) == model.score(X, y)
    if kind == "classifier":
        np.testing.assert_array_equal(ours.predict_proba(X), model.predict_proba(X))
    assert ours.residual_beta_ in BETAS and isinstance(ours.residual_beta_, float)
    there = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(there.predict(X), ours.predict(X))
    assert there.residual_beta_ == ours.residual_beta_ and there.beta_path_.betas.tolist() == BETAS
    with pytest.raises(NotFittedError):
        clone(ours).predict(X)


def test_it_works_behind_a_scaler_and_without_cv():
    X = np.random.default_rng(0).standard_normal((N, 3))
    pipe = make_pipeline(StandardScaler(), ResidualTransformerRegressorCV([0, 1], **SETTINGS))
    scores = [clone(pipe).fit(X, X[:, 0])[-1].cv_results_["mean_test_score"]]
    scores.append(
        clone(pipe).set_params(residualtransformerregressorcv__cv=None).fit(X, X[:, 0])[-1]
    )
    # None is five folds, as everywhere in scikit-learn.
    np.testing.assert_array_equal(scores[0], scores[1].cv_results_["mean_test_score"])
    assert "split4_test_score" in scores[1].cv_results_


def test_without_refit_there_is_a_path_and_no_model():
    X, y = sequences()
    search = ResidualTransformerRegressorCV([0, 1], cv=2, refit=False, **SETTINGS)
    with pytest.raises(NotFittedError):
        search.predict(X)
    search.fit(X, y)
    assert search.residual_beta_ in (0, 1) and len(search.cv_results_["params"]) == 2
    assert not hasattr(search, "net_")
    with pytest.raises(AttributeError, match="fitted with refit=False, which keeps no model"):
        search.predict(X)
    # A model that was fitted stays usable, and a second fit without refit leaves no old one.
    search.set_params(refit=True).fit(X, y)
    assert np.isfinite(search.set_params(refit=False).predict(X)).all()
    assert not hasattr(search.fit(X, y), "net_")


# ---- betas that fail ----------------------------------------------------------------------------


def test_a_beta_that_diverges_ranks_last_and_leaves_the_others():
    X, y = sequences()
    settings = SETTINGS | {"solver": "sgd", "learning_rate_init": 0.05}
    search = ResidualTransformerRegressorCV([20, 0.5, 0], cv=3, **settings).fit(X, y)
    without = ResidualTransformerRegressorCV([0.5, 0], cv=3, **settings).fit(X, y)
    results = search.cv_results_
    assert np.isnan(results["mean_test_score"][0]) and results["rank_test_score"][0] == 3
    np.testing.assert_allclose(
        results["mean_test_score"][1:], without.cv_results_["mean_test_score"], rtol=0, atol=1e-10
    )
    assert search.residual_beta_ == without.residual_beta_
    errors = search.beta_path_.to_frame().set_index("beta")["error"]
    assert errors.loc[20].str.contains("Lower learning_rate_init").all()
    assert (errors.loc[[0.5, 0]] == "").all()


@pytest.mark.parametrize("part", ["fold", "seed"])
def test_a_beta_that_fails_once_is_not_chosen(part):
    X, y = sequences()

    def scorer(model, X, y):
        # The best of all betas, but for one fold, or one seed.
        if model.residual_beta == 1 and (part == "fold" or model.random_state == 1):
            if part == "seed" or len(X) == N // 4:
                raise ValueError("no such score")
            return 10.0
        return 1.0 - model.residual_beta / 10

    splits = [(np.arange(30), np.arange(30, N)), (np.arange(30), np.arange(30, 30 + N // 4))]
    search = ResidualTransformerRegressorCV(
        [1.0, 0.0, 0.5], cv=splits, scoring=scorer, n_seeds=2, **SETTINGS
    ).fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_score"][0])
    assert search.residual_beta_ == 0.0


def test_no_beta_left_is_an_error_that_says_why():
    X, y = sequences()
    settings = SETTINGS | {"solver": "sgd", "learning_rate_init": 1e6}
    search = ResidualTransformerRegressorCV([0.5, 1.0], cv=2, **settings)
    with pytest.raises(ValueError, match=r"no beta of \[0.5, 1.0\] has a finite score; the first"):
        search.fit(X, y)
    with pytest.raises(ValueError, match="Lower learning_rate_init"):
        search.fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"betas": []}, "betas must be a list of different finite numbers"),
        ({"betas": [0.5, -1.0]}, "got -1.0 among them"),
        ({"betas": [0.5, 0.5]}, "twice"),
        ({"betas": [(0.5, 1.0), (1.0, 1.0)]}, "a path takes single numbers, not pairs or matrices"),
        ({"betas": 1.0}, "'betas' parameter .* must be an array-like"),
        ({"cv": "five"}, "'cv' parameter"),
        ({"scoring": "no such"}, "scoring"),
        ({"scoring": {"mae": "neg_mean_absolute_error"}}, "'scoring' parameter"),
        ({"refit": "mae"}, "'refit' parameter"),
        ({"n_seeds": 0}, "'n_seeds' parameter"),
        ({"d_model": 0}, "'d_model' parameter"),
    ],
)
def test_bad_arguments_are_refused_in_words(arguments, said):
    X, y = sequences()
    with pytest.raises(ValueError, match=said):
        ResidualTransformerRegressorCV(**{"betas": [0, 1]} | SETTINGS | arguments).fit(X, y)


def test_a_fold_with_one_class_is_refused_in_words():
    X, _ = sequences()
    search = ResidualTransformerClassifierCV([0, 1], cv=KFold(2), **SETTINGS)
    with pytest.raises(ValueError, match="training part of fold 0 holds one class only"):
        search.fit(X, np.arange(N) // (N // 2))


class Interrupted(Callback):
    """Ctrl-C, or an error, in the fit of so many rows."""

    def __init__(self, error, n_rows):
        self.error, self.n_rows = error, n_rows

    def on_epoch_end(self, net, dataset_train=None, **kwargs):
        if len(dataset_train) == self.n_rows:
            raise self.error


@pytest.mark.parametrize("n_rows", [N // 2, N])  # in a fold; in the last fit of all
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_search_that_fails_leaves_an_earlier_one_or_none(n_rows, error):
    X, y = sequences()
    wrong = {"callbacks": [Interrupted(error, n_rows)]}
    fresh = ResidualTransformerRegressorCV([0, 1], cv=2, **SETTINGS, **wrong)
    with pytest.raises(type(error)):
        fresh.fit(X, y)
    assert not [name for name in vars(fresh) if name.endswith("_")]
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        fresh.predict(X)
    search = ResidualTransformerRegressorCV([0, 1], cv=2, **SETTINGS).fit(X, y)
    before, kept = search.predict(X), dict(vars(search))
    with pytest.raises(type(error)):
        search.set_params(**wrong).fit(X, y)
    fitted = {name for name in kept if name.endswith("_")}
    assert fitted == {name for name in vars(search) if name.endswith("_")}
    assert all(vars(search)[name] is kept[name] for name in fitted)
    np.testing.assert_array_equal(search.predict(X), before)
    without = ResidualTransformerRegressorCV([0, 1], cv=2, refit=False, **SETTINGS).fit(X, y)
    with pytest.raises(type(error)):
        without.set_params(refit=True, **wrong).fit(X, y)
    # What is there is the earlier fit, which kept no model.
    with pytest.raises(NotFittedError, match="was fitted with refit=False"):
        without.predict(X)
