"""The beta path: a stacked fit is the separate fit, and one that fails leaves the others alone."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from pathdata import (
    BETAS,
    EQUAL,
    N,
    assert_path_is_separate_fits,
    assert_same_fit,
    classifier,
    regressor,
    separate,
    sequences,
    series,
    tokens,
    view,
    watch_groups,
    with_holes,
)
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import check_scoring, log_loss, make_scorer, r2_score, roc_auc_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit
from sklearn.utils import get_tags
from skorch.callbacks import GradientNormClipping

from sklearn_restrans import DivergenceError, SequenceView, residual_beta_path
from sklearn_restrans.model_selection import beta_path


@pytest.fixture
def sizes(monkeypatch):
    return watch_groups(monkeypatch)


# ---- stacked fits are the separate fits ---------------------------------------------------------

MODELS = {
    "adamw": {"weight_decay": 0.1},
    "adam": {"solver": "adam", "weight_decay": 0.1},
    "sgd": {"solver": "sgd", "learning_rate_init": 0.005, "weight_decay": 0.1},
    "sgd one_cycle": {"solver": "sgd", "learning_rate": "one_cycle", "learning_rate_init": 0.005},
    "sgd auto": {"solver": "sgd", "learning_rate_init": "auto"},
    "constant step": {"learning_rate": "constant"},
    "mean": {"readout": "mean"},
    "two layers": {"n_layers": 2},
    "pre norm": {"norm": "pre"},
    "post norm, mean": {"norm": "post", "readout": "mean"},
    "heads": {"n_heads": 2},
    "sinusoidal": {"positions": "sinusoidal"},
    "no positions": {"positions": None},
    "learnt beta": {"learn_beta": True},
    "orthogonal, gelu": {"init": "orthogonal", "activation": "gelu"},
    "zero start, tanh": {"init": "zero_unembedding", "activation": "tanh"},
    "absolute": {"loss": "absolute_error"},
    "huber": {"loss": "huber"},
    "conditioning": {"conditioning_interval": 3, "conditioning_samples": 10},
    "last batch smaller": {"batch_size": 24},
    "micro-batches": {"batch_size": 72},
}


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_stacked_fits_are_the_separate_fits_of_every_model(settings):
    X, y = sequences()
    model = regressor(**settings)
    path = residual_beta_path(X, y, [0, 2], estimator=model, n_seeds=2, stacked=True)
    assert path.plan == {"mode": "stacked", "size": 4, "reason": "stacked=True"}
    assert len(path.estimators) == 4
    assert_path_is_separate_fits(path, model, X, y)


INPUTS = {
    "table": (*series(), {}),
    "window": (*series(), {"window": 4}),
    "view": (*view(), {}),
    "view, mean": (*view(), {"readout": "mean"}),
    "padded": (*sequences(padded=True), {}),
    "padded, mean": (*sequences(padded=True), {"readout": "mean"}),
    "two targets": (*sequences(), {}),
    "tokens": (*tokens(), {"embedding": "token", "dtype": "float64"}),
    "tokens, mean": (*tokens(), {"embedding": "token", "dtype": "float64", "readout": "mean"}),
    "missing readings": (*with_holes(), {}),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_stacked_fits_are_the_separate_fits_on_every_input(kind, weighted):
    X, y, settings = INPUTS[kind]
    if kind == "two targets":
        y = np.column_stack([y, y**2])
    # Zeros too: their rows are not trained on.
    weight = np.arange(N) % 4.0 if weighted else None
    model = regressor(**settings)
    path = residual_beta_path(
        X, y, [0, 1], estimator=model, n_seeds=2, sample_weight=weight, stacked=True
    )
    assert_path_is_separate_fits(path, model, X, y, weight)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 1.0, "b": 5.0, "c": 0.5}])
def test_stacked_classifiers_are_the_separate_ones(loss, class_weight):
    X, y = sequences(padded=True)
    y = np.array(list("abc"))[np.digitize(y, [0.0, 1.5])]
    model = classifier().set_params(loss=loss, class_weight=class_weight)
    path = residual_beta_path(X, y, [0, 1], estimator=model, n_seeds=2, stacked=True)
    assert_path_is_separate_fits(path, model, X, y)
    expected = separate(model, 1.0, 4, X, y).predict_proba(X)
    np.testing.assert_allclose(path.estimators[1.0, 4, 0].predict_proba(X), expected, **EQUAL)


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize(
    ("X", "y", "settings"),
    [(*sequences(), {}), (*series(), {"window": 4}), (*view(), {})],
    ids=["sequences", "window", "view"],
)
def test_candidates_that_stop_early_at_different_epochs_are_the_separate_fits(
    monkeypatch, sizes, solver, X, y, settings
):
    slow = 0.005 if settings else 0.02  # windows with a short history stop all at once otherwise
    step = {"sgd": 0.005, "adam": slow, "adamw": slow}[solver]
    model = regressor(
        solver=solver,
        learning_rate_init=step,
        learning_rate="constant",  # patience ends no schedule
        early_stopping=True,
        validation_fraction=0.2,
        n_iter_no_change=2,
        max_iter=25,
        **settings,
    )
    betas, weight = [0.0, 2.0, 0.5, 0.25, 1.0], np.arange(N) % 4 + 1.0
    # Two seeds split the data differently, so that groups are those of one seed: 3, 2, 3, 2.
    monkeypatch.setattr(beta_path, "plan_stacks", lambda *_: {"mode": "stacked", "size": 3})
    path = residual_beta_path(X, y, betas, estimator=model, n_seeds=2, sample_weight=weight)
    assert sizes == [3, 2, 3, 2]
    for seed in (3, 4):
        fits = [path.estimators[beta, seed, 0] for beta in betas[:3]]
        assert len({fit.n_iter_ for fit in fits}) > 1
    assert any(fit.best_iteration_ < fit.n_iter_ for fit in path.estimators.values())
    assert_path_is_separate_fits(path, model, X, y, weight)


def test_candidates_without_progress_stop_alone():
    # Without a validation part the training loss is watched.
    X, y = sequences()
    model = regressor(solver="sgd", learning_rate_init=0.005, tol=0.02, n_iter_no_change=2)
    path = residual_beta_path(X, y, BETAS, estimator=model, stacked=True)
    assert len({fit.n_iter_ for fit in path.estimators.values()}) > 1
    assert_path_is_separate_fits(path, model, X, y)


SEPARATE = {
    "gd": ({"solver": "gd", "learning_rate_init": 0.01}, "measures its own step"),
    "gd auto": ({"solver": "gd", "learning_rate_init": "auto"}, "measures its own step"),
    "dropout": ({"dropout": 0.2}, "dropout draws"),
    "callbacks": ({"callbacks": [GradientNormClipping(1.0)]}, "callbacks belong"),
    "warm start": ({"warm_start": True}, "warm_start continues"),
}


@pytest.mark.parametrize(("settings", "reason"), SEPARATE.values(), ids=SEPARATE)
def test_what_cannot_be_stacked_is_fitted_separately_and_says_why(settings, reason):
    X, y = sequences()
    model = regressor(**settings)
    path = residual_beta_path(X, y, [0, 1], estimator=model, n_seeds=2, stacked=True)
    assert path.plan["mode"] == "separate" and path.plan["size"] == 1
    assert reason in path.plan["reason"] and reason in repr(path)
    # The same code on the same numbers: equal to the bit.
    assert_path_is_separate_fits(path, model, X, y, rtol=0, atol=0)


# ---- candidates that fail -----------------------------------------------------------------------


def test_a_candidate_that_diverges_stops_alone_and_is_reported():
    X, y = sequences()
    model = regressor(solver="sgd", learning_rate_init=0.05)
    path = residual_beta_path(X, y, [0, 4, 0.5, 1e308], estimator=model, n_seeds=2, stacked=True)
    frame = path.to_frame().set_index(["beta", "seed"])
    for beta in (4, 1e308):  # during training, and before it
        for seed in (3, 4):
            assert path.estimators[beta, seed, 0] is None
            with pytest.raises(DivergenceError) as expected:
                separate(model, float(beta), seed, X, y)
            assert frame.loc[(beta, seed), "error"] == str(expected.value)
    assert (
        "epoch" in frame.loc[(4, 3), "error"] and "after epoch 0" in frame.loc[(1e308, 3), "error"]
    )
    numbers = frame.drop(columns=["fold", "error", "fit_time"])
    assert numbers.loc[[4, 1e308]].isna().all(axis=None)
    assert repr(path).startswith("BetaPath of 4 betas, 8 fits, 4 of them failed; stacked because")
    for (beta, seed, _), fit in path.estimators.items():
        if fit is not None:
            assert frame.loc[(beta, seed), "error"] == ""
            assert_same_fit(fit, separate(model, beta, seed, X, y))


def test_a_candidate_that_diverges_in_its_last_step_is_reported():
    # One step an epoch: the loss of an epoch is that of the weights before its step.
    X, y = sequences()
    model = regressor(solver="sgd", learning_rate_init=0.2, batch_size=N, max_iter=2)
    path = residual_beta_path(X, y, [0, 0.5, 20], estimator=model, stacked=True)
    assert path.estimators[20, 3, 0] is None
    assert "after the last step" in path.to_frame()["error"].iloc[2]
    for beta in (0, 0.5):
        assert_same_fit(path.estimators[beta, 3, 0], separate(model, beta, 3, X, y))


def test_a_path_of_failures_only_is_a_path():
    X, y = sequences()
    model = regressor(solver="sgd", learning_rate_init=1e6)
    path = residual_beta_path(X, y, [0.5, 1], estimator=model, cv=2)
    assert path.to_frame()["error"].str.contains("diverged").all()
    losses = path.losses()
    assert losses.index.tolist() == [0.5, 1.0] and losses.isna().all(axis=None)
    assert path.summary()[("score", "count")].tolist() == [0, 0]
    path.plot()


def test_a_candidate_that_cannot_be_scored_is_reported():
    X, y = sequences()

    def scorer(model, X, y):
        if model.residual_beta == 0.5:
            raise ValueError("no such score")
        return -np.abs(model.predict(X) - y).mean()

    path = residual_beta_path(X, y, BETAS, estimator=regressor(), cv=2, scoring=scorer)
    frame = path.to_frame().set_index("beta")
    assert (frame.loc[0.5, "error"] == "no score: no such score").all()
    assert frame.loc[0.5, "loss"].notna().all() and frame.loc[0.5, "score"].isna().all()
    assert frame.loc[[0.0, 2.0], "score"].notna().all()


# ---- folds, seeds, groups of candidates ---------------------------------------------------------

GROUPS = np.arange(N) // 8
CLASSES = np.arange(N) % 3 // 2  # two zeros to a one
SPLITTERS = {
    "int": (3, {}, [53, 53, 54]),
    "KFold": (KFold(3, shuffle=True, random_state=0), {}, [53, 53, 54]),
    "TimeSeriesSplit": (TimeSeriesSplit(3, gap=2), {}, [18, 38, 58]),
    "GroupKFold": (GroupKFold(4), {"groups": GROUPS}, [56, 56, 64, 64]),
    "StratifiedKFold": (StratifiedKFold(3), {}, [53, 53, 54]),
    "list": ([(np.arange(30), np.arange(30, 60)), (np.arange(60), np.arange(60, N))], {}, [30, 60]),
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_every_fold_is_fitted_on_its_training_part_and_scored_on_its_test_part(name):
    cv, arguments, sizes = SPLITTERS[name]
    X, y = view()
    model, scoring = regressor(), "neg_mean_absolute_error"
    if name == "StratifiedKFold":
        y, model, scoring = CLASSES, classifier(), "neg_log_loss"
    weight = np.linspace(0.1, 1, N)
    path = residual_beta_path(
        X, y, [0, 1], estimator=model, cv=cv, scoring=scoring, sample_weight=weight, **arguments
    )
    assert path.plan["mode"] == "stacked"
    if isinstance(cv, int):
        cv = KFold(cv)
    splits = cv if name == "list" else list(cv.split(X, y, **arguments))
    assert sorted(len(train) for train, _ in splits) == sizes
    frame = path.to_frame().set_index(["beta", "fold"])
    assert len(frame) == 2 * len(splits)
    for fold, (train, test) in enumerate(splits):
        expected = separate(model, 1.0, 3, X[train], y[train], weight[train])
        assert_same_fit(path.estimators[1.0, 3, fold], expected)
        score = check_scoring(expected, scoring)(
            expected, X[test], y[test], sample_weight=weight[test]
        )
        # Predictions of standardised targets that part by 1e-12 part by little more in y's unit.
        np.testing.assert_allclose(frame.loc[(1.0, fold), "score"], score, rtol=1e-11)


@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
def test_a_test_part_of_one_row_has_a_reason_for_its_missing_score():
    X, y = sequences()
    folds = [(np.arange(60), np.arange(60, 80)), (np.arange(60), [70])]
    frame = residual_beta_path(X, y, [0, 1], estimator=regressor(max_iter=1), cv=folds).to_frame()
    assert np.isnan(frame["score"]).tolist() == [False, True] * 2
    reason = "no score: it is nan on the 1 row(s) of the test part; R^2 and similar scores need"
    assert [text[: len(reason)] for text in frame["error"]] == ["", reason] * 2


def test_segments_of_windows_are_those_of_the_view():
    rows, y = series()
    labels = np.arange(N) // 20
    windows = SequenceView(rows, np.arange(N), 4, segments=labels)
    for arguments in ({}, {"cv": GroupKFold(2), "groups": labels}):
        model, told = regressor(window=4, max_iter=2), {"segments": labels, **arguments}
        path = residual_beta_path(rows, y, BETAS, estimator=model, **told)
        expected = residual_beta_path(
            windows, y, BETAS, estimator=regressor(max_iter=2), **arguments
        )
        columns = ["score", "loss", "sigma_min_Z"]
        found, wanted = path.to_frame(), expected.to_frame()
        assert not found["error"].any()
        np.testing.assert_allclose(found[columns], wanted[columns], **EQUAL)
        untold = residual_beta_path(rows, y, BETAS, estimator=model, **arguments).to_frame()
        assert (untold["loss"] != found["loss"]).all()


def test_a_scorer_without_weights_is_said_to_leave_them_out():
    X, y = sequences()
    arguments = {"estimator": regressor(max_iter=1), "cv": 2}

    def scorer(model, X, y):
        return -np.abs(model.predict(X) - y).mean()

    with pytest.warns(UserWarning, match="takes no sample_weight: fits are weighted, scores are"):
        residual_beta_path(X, y, [0], scoring=scorer, sample_weight=np.ones(N), **arguments)
    residual_beta_path(X, y, [0], scoring=scorer, **arguments)


def test_without_folds_there_is_no_score():
    path = residual_beta_path(*sequences(), [0, 1], estimator=regressor())
    assert path.to_frame()[["score", "score_time"]].isna().all(axis=None)
    assert path.to_frame()["fold"].tolist() == [0, 0]


def test_seeds_follow_random_state():
    X, y = sequences()
    model = regressor(max_iter=1)

    def seeds(random_state):
        estimator = clone(model).set_params(random_state=random_state)
        frame = residual_beta_path(X, y, [0, 1], estimator=estimator, n_seeds=3).to_frame()
        assert frame["beta"].tolist() == [0, 0, 0, 1, 1, 1]
        # Every beta has the same seeds, so that betas are compared on equal starts.
        assert frame["seed"].tolist()[:3] == frame["seed"].tolist()[3:]
        return frame["seed"].tolist()[:3]

    assert seeds(7) == [7, 8, 9]
    assert seeds(np.random.RandomState(0)) == seeds(np.random.RandomState(0))
    assert len({*seeds(None), *seeds(None)}) == 6


def test_the_order_of_betas_does_not_matter_and_is_kept():
    X, y = sequences()
    there = residual_beta_path(X, y, [0.5, 0.0, 2.0], estimator=regressor(), n_seeds=2, cv=2)
    back = residual_beta_path(X, y, [2.0, 0.0, 0.5], estimator=regressor(), n_seeds=2, cv=2)
    assert there.betas.tolist() == [0.5, 0.0, 2.0]
    assert there.losses().index.tolist() == there.summary().index.tolist() == [0.5, 0.0, 2.0]
    keys = ["beta", "seed", "fold"]
    pd.testing.assert_frame_equal(*(_numbers(path).sort_values(keys) for path in (there, back)))


def _numbers(path):
    """to_frame() without seconds; with the default index."""
    return path.to_frame().drop(columns=["fit_time", "score_time"]).set_index(["beta", "seed"])


def test_two_processes_give_the_numbers_of_one():
    X, y = view()
    paths = [
        residual_beta_path(X, y, BETAS, estimator=regressor(), cv=2, n_seeds=2, n_jobs=n_jobs)
        for n_jobs in (None, 2)
    ]
    # The same groups on one thread each: equal to the bit.
    pd.testing.assert_frame_equal(*map(_numbers, paths), check_exact=True)
    predictions = [path.estimators[2.0, 4, 1].predict(X) for path in paths]
    np.testing.assert_array_equal(*predictions)


def test_a_stacked_path_leaves_data_threads_and_generators_alone():
    X, y = sequences()
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002  the global one
    torch.set_num_threads(2)
    try:
        residual_beta_path(X, y, BETAS, estimator=regressor(n_threads=1, max_iter=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002  the same
    np.testing.assert_array_equal(X, sequences()[0])
    np.testing.assert_array_equal(y, sequences()[1])


def test_the_estimator_passed_stays_unfitted():
    model = regressor(max_iter=1)
    before = model.get_params()
    residual_beta_path(*sequences(), BETAS, estimator=model)
    assert model.get_params() == before and not hasattr(model, "n_features_in_")


SCORES = {
    "regressor": [None, "r2", "neg_mean_absolute_error", make_scorer(r2_score)],
    "classifier": [
        None,
        "accuracy",
        "roc_auc",
        "neg_log_loss",
        "f1_macro",
        make_scorer(log_loss, response_method="predict_proba", greater_is_better=False),
        make_scorer(roc_auc_score, response_method=["decision_function", "predict_proba"]),
    ],
}


def asked(model, X, y):
    """A score that asks a model what scorers may ask it."""
    assert is_classifier(model) == hasattr(model, "classes_") == hasattr(model, "predict_proba")
    assert get_tags(model).target_tags.required and isinstance(model, BaseEstimator)
    assert model.predict.__name__ == "predict" and len(model.predict(X)) == len(y)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(X), model.predict(X))
    assert clone(model).get_params().keys() == model.get_params().keys()
    return model.score(X, y)


@pytest.mark.parametrize(
    ("kind", "scoring"),
    [(kind, scoring) for kind, scores in SCORES.items() for scoring in [*scores, asked]],
)
def test_scorers_of_any_kind_are_told_the_segments(kind, scoring):
    """The scores are those that the same scorer gives the windows themselves, as a view."""
    rows, y = series()
    labels = np.arange(N) // 20
    windows = SequenceView(rows, np.arange(N), 4, segments=labels)
    model, viewed = (
        (regressor if kind == "regressor" else classifier)(max_iter=1, **settings)
        for settings in ({"window": 4}, {"readout": "last"})
    )
    if kind == "classifier":
        y = np.where(y > np.median(y), "high", "low")
    folds = [(np.flatnonzero(labels != k), np.flatnonzero(labels == k)) for k in (0, 3)]
    arguments = {"cv": folds, "scoring": scoring}
    told = residual_beta_path(rows, y, [1], estimator=model, segments=labels, **arguments)
    seen = residual_beta_path(windows, y, [1], estimator=viewed, **arguments)
    scores = [each.to_frame()["score"].to_numpy() for each in (told, seen)]
    assert np.isfinite(scores[0]).all(), told.to_frame()["error"].tolist()
    np.testing.assert_allclose(*scores, rtol=1e-9)
    assert told.to_frame()["error"].tolist() == ["", ""]
