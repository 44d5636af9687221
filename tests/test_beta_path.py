"""The beta path: a stacked fit is the separate fit, and one that fails leaves the others alone."""

import io
import pickle
import pickletools
import time

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import check_scoring
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit
from skorch.callbacks import GradientNormClipping

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
    _stacked,
    beta_path,
    residual_beta_path,
)

N, STEPS_PER_EPOCH, EPOCHS = 80, 5, 10  # 50 steps
BETAS = [0.0, 0.5, 2.0]

# Sums of other order part by a few eps (2e-16) a step; 50 such steps leave at most 1e-13.
EQUAL = {"rtol": 0, "atol": 1e-12}


def series(n=N, seed=0):
    """Rows in time order, and a smooth function of each and the one before it."""
    rows = np.random.default_rng(seed).standard_normal((n, 3))
    return rows, rows[:, 0] + np.roll(rows[:, 1], 1) ** 2


def sequences(padded=False):
    """Sequences of 6 tokens, if asked with 0 to 4 tokens of padding, and their target."""
    X = np.random.default_rng(1).standard_normal((N, 6, 3))
    y = X[:, 0, 0] + X[:, 1, 1] ** 2
    if padded:
        X[np.arange(6) >= 6 - np.arange(N)[:, None] % 5] = np.nan
    return X, y


def view():
    """Windows of two stations, the first of each with a short history."""
    rows, y = series()
    return SequenceView(rows, np.arange(N), 4, segments=np.arange(N) // (N // 2)), y


def tokens():
    """Token ids of texts of 2 to 11 words."""
    rng = np.random.default_rng(4)
    ids = rng.integers(1, 9, (N, 11))
    ids[np.arange(11) >= rng.integers(2, 12, (N, 1))] = 0
    return ids, (ids == 3).sum(axis=1) - 0.5 * (ids == 5).sum(axis=1)


def with_holes():
    """Windows of rows some of whose readings are missing."""
    rows, y = series()
    rows[np.random.default_rng(5).random(rows.shape) < 0.1] = np.nan
    return SequenceView(rows, np.arange(N), 4), y


def regressor(**settings):
    defaults = {"d_model": 8, "batch_size": 16, "max_iter": EPOCHS, "random_state": 3}
    return ResidualTransformerRegressor(**(defaults | settings))


def classifier(**settings):
    return ResidualTransformerClassifier(
        **regressor(**settings).get_params() | {"loss": "log_loss"}
    )


def separate(estimator, beta, seed, X, y, sample_weight=None):
    """The fit that the path stands for."""
    model = clone(estimator).set_params(residual_beta=beta, random_state=seed)
    return model.fit(X, y, sample_weight)


def weights(model):
    return {name: value.numpy() for name, value in model.net_.module_.state_dict().items()}


def assert_same_fit(model, expected, **tolerance):
    tolerance = tolerance or EQUAL
    assert model is not None, "diverged"
    assert model.best_iteration_ == expected.best_iteration_
    assert model.n_iter_ == expected.n_iter_
    for name, value in weights(expected).items():
        assert value.dtype == np.float64
        np.testing.assert_allclose(weights(model)[name], value, **tolerance, err_msg=name)
    numbers = [column for column in expected.history_ if column != "dur"]
    assert numbers == [column for column in model.history_ if column != "dur"]
    tables = [fit.history_[numbers].astype(float) for fit in (model, expected)]
    np.testing.assert_allclose(*tables, **tolerance)
    spectra = [fit.conditioning_.Z.singular_values for fit in (model, expected)]
    np.testing.assert_allclose(*spectra, rtol=1e-10, atol=1e-10)  # a sum over some 400 rows
    curves = [fit.convergence_.gradient_norm for fit in (model, expected)]
    np.testing.assert_allclose(*curves, rtol=1e-10, atol=1e-10)


def assert_path_is_separate_fits(path, estimator, X, y, sample_weight=None, **tolerance):
    for (beta, seed, _), model in path.estimators.items():
        expected = separate(estimator, beta, seed, X, y, sample_weight)
        assert_same_fit(model, expected, **tolerance)


@pytest.fixture
def sizes(monkeypatch):
    """Sizes of the groups that are fitted."""
    seen, fit_candidates = [], beta_path.fit_candidates

    def spy(candidates, *data):
        seen.append(len(candidates))
        return fit_candidates(candidates, *data)

    monkeypatch.setattr(beta_path, "fit_candidates", spy)
    return seen


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
    "window": (*series(), {"window": 4, "dilation": 2}),
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
    step = {"sgd": 0.005, "adam": 0.02, "adamw": 0.02}[solver]
    model = regressor(
        solver=solver,
        learning_rate_init=step,
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


# ---- the plan -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "expected"), [(7.5, [7]), (6.9, [4, 3]), (3.5, [3, 2, 2]), (1.9, [1] * 7)]
)
def test_a_group_is_as_large_as_the_budget_allows(monkeypatch, sizes, room, expected):
    X, y = sequences()
    # Folded read-out of 16 sequences of 6 tokens in float64: T (2 h + f) + 6 d + 2 m numbers each.
    each = 8 * 16 * (6 * (2 + 3) + 6 * 8 + 2 * 16)
    monkeypatch.setattr(_stacked, "_GROUP_BYTES", int(room * each))
    path = residual_beta_path(X, y, np.arange(7) / 4, estimator=regressor())
    assert sizes == expected
    assert path.plan["mode"] == ("separate" if room < 2 else "stacked")
    assert path.plan["reason"].startswith(f"a step of one candidate takes {each:,} bytes of")
    assert_path_is_separate_fits(path, regressor(), X, y)


@pytest.mark.parametrize(
    ("n_processes", "n_folds", "expected"),
    [(1, 3, [5, 5, 5]), (2, 3, [5, 5, 3, 2]), (2, 2, [5, 5]), (2, 1, [3, 2]), (8, 1, [1] * 5)],
)
def test_every_process_gets_as_many_candidates(monkeypatch, sizes, n_processes, n_folds, expected):
    X, y = sequences()
    monkeypatch.setattr(beta_path, "effective_n_jobs", lambda n_jobs: n_processes)
    betas, splits = np.arange(5) / 2, [(np.arange(40), np.arange(40, N))] * n_folds
    path = residual_beta_path(X, y, betas, estimator=regressor(max_iter=1), cv=splits)
    assert sizes == expected
    frame = path.to_frame()
    assert frame["beta"].tolist() == np.repeat(betas, n_folds).tolist()
    assert frame["fold"].tolist() == list(range(n_folds)) * 5


def plan(X, **settings):
    y = X[:, 0] if X.ndim == 2 else X[:, 0, 0]
    return residual_beta_path(X, y, [0, 1, 2, 3], estimator=regressor(max_iter=1, **settings)).plan


def test_stacking_is_for_small_steps():
    X = np.random.default_rng(0).standard_normal((70, 80, 2)).astype(np.float32)
    few = {"batch_size": 64, "d_model": 16, "conditioning_samples": 2}
    # Measured on one core, stacked against separate: 3 times as fast, 1.7 times, and 0.6 times.
    assert plan(X, **few)["size"] == 4
    assert plan(X[:, :24], readout="mean", **few)["size"] == 4
    assert plan(X, readout="mean", **few | {"d_model": 64})["mode"] == "separate"


def test_one_candidate_and_a_wish_are_reasons(sizes):
    X, y = sequences()
    assert residual_beta_path(X, y, [1]).plan["reason"] == "there is only one candidate for a group"
    path = residual_beta_path(X, y, [0, 1], estimator=regressor(max_iter=1), stacked=False)
    assert path.plan == {"mode": "separate", "size": 1, "reason": "stacked=False"}
    assert sizes == [1, 1, 1]


def test_on_cuda_memory_is_the_budget(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80_000, 160_000))
    assert _stacked._budget(torch.device("cuda")) == 20_000
    assert _stacked._budget(torch.device("cpu")) == _stacked._GROUP_BYTES


# ---- what the path shows ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path():
    X, y = sequences()
    return residual_beta_path(X, y, BETAS, estimator=regressor(max_iter=4), n_seeds=2, cv=2)


def test_to_frame_has_what_every_fit_reports(path):
    frame = path.to_frame()
    assert frame[["beta", "seed", "fold"]].drop_duplicates().shape == (12, 3)
    for row in frame.itertuples():
        model = path.estimators[row.beta, row.seed, row.fold]
        assert row.loss == model.loss_curve_[-1] and row.rate == model.convergence_.rate
        assert row.n_epochs == 4 and row.error == ""
        spectrum = model.conditioning_
        assert row.sigma_min_Z == spectrum.get("sigma_min", of="Z")
        assert row.condition_number_attn == spectrum.get("condition_number", of="attention")
        assert row.effective_rank_Z == spectrum.get("effective_rank", of="Z")
        assert row.rank_collapse_attn == spectrum.get("rank_collapse", of="attention")
        assert row.fit_time > 0 and row.score_time > 0
        assert model.residual_beta_.tolist() == [[row.beta, row.beta]]


def test_seconds_of_a_stacked_epoch_are_its_share(monkeypatch):
    elapsed, train_stacked = [], _stacked.train_stacked

    def timed(*args):
        started = time.perf_counter()
        outcomes = train_stacked(*args)
        elapsed.append(time.perf_counter() - started)
        return outcomes

    monkeypatch.setattr(_stacked, "train_stacked", timed)
    path = residual_beta_path(*sequences(), BETAS, estimator=regressor(), n_seeds=3, stacked=True)
    epochs = [fit.history_["dur"].sum() for fit in path.estimators.values()]
    # Every net times the whole group; nine whole groups would be nine times as long.
    assert min(epochs) > 0 and sum(epochs) < elapsed[0]


def test_losses_are_means_over_seeds_and_folds(path):
    losses = path.losses()
    assert losses.index.tolist() == BETAS and losses.columns.tolist() == [1, 2, 3, 4]
    curves = [fit.loss_curve_ for key, fit in path.estimators.items() if key[0] == 0.5]
    np.testing.assert_allclose(losses.loc[0.5], np.mean(curves, axis=0), rtol=1e-15)


def test_summary_has_the_t_interval_over_seeds(path):
    frame, summary = path.to_frame(), path.summary()
    assert summary.index.tolist() == BETAS
    seeds = frame[frame["beta"] == 2.0].groupby("seed")["score"].mean()
    row = summary.loc[2.0, "score"]
    # Two seeds: t(0.975, 1 degree of freedom) = 12.7062, times half their distance.
    assert row["count"] == 4
    np.testing.assert_allclose(row["mean"], seeds.mean(), rtol=1e-14)
    half = 12.706204736432095 * abs(seeds.iloc[0] - seeds.iloc[1]) / 2
    np.testing.assert_allclose([row["low"], row["high"]], row["mean"] + half * np.array([-1, 1]))
    single = residual_beta_path(*sequences(), [0, 1], estimator=regressor(max_iter=1)).summary()
    assert single["loss"][["low", "high"]].isna().all(axis=None) and single["loss"]["mean"].all()


def test_plot_draws_a_line_per_beta(path):
    ax = path.plot()
    assert [line.get_label() for line in ax.get_lines()] == ["0", "0.5", "2"]
    for line, (_, row) in zip(ax.get_lines(), path.losses().iterrows(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), row)
    assert len({line.get_marker() for line in ax.get_lines()}) == 3
    assert path.plot(ax) is ax and len(ax.get_lines()) == 6


def test_a_pickled_path_is_the_path_and_holds_no_torch(path):
    pickled = pickle.dumps(path)
    there = pickle.loads(pickled)
    pd.testing.assert_frame_equal(there.to_frame(), path.to_frame())
    assert there.plan == path.plan and repr(there) == repr(path)
    X, _ = sequences()
    for key, model in path.estimators.items():
        np.testing.assert_array_equal(there.estimators[key].predict(X), model.predict(X))
    strings = [arg for _, arg, _ in pickletools.genops(io.BytesIO(pickled)) if isinstance(arg, str)]
    assert not [text for text in strings if text.split(".")[0].split(" ")[0] in ("torch", "skorch")]


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("betas", "said"),
    [
        ([], r"got \[\]"),
        (1.0, "got 1.0"),
        (None, "got None"),
        ([0.5, -1], "got -1 among them"),
        ([0.5, np.nan], "got nan among them"),
        ([0.5, np.inf], "got inf among them"),
        ([0.5, "1"], "got '1' among them"),
        ([0.5, True], "got True among them"),
        ([0.5, 1 + 0j], "among them"),
        ([0.5, (0.5, 1.0)], r"got \(0.5, 1.0\) among them; a pair or a matrix is no point"),
        ([(0.5, 1.0), (1.0, 1.0)], "a pair or a matrix is no point of a path"),
        (np.ones((2, 1, 2)), "a pair or a matrix is no point of a path"),
        ([0.5, 1, 0.5], r"one of them twice: \[0.5, 1.0, 0.5\]"),
        ([0, -0.0], "twice"),
    ],
)
def test_betas_that_are_no_path_are_refused_in_words(betas, said):
    X, y = sequences()
    with pytest.raises(ValueError, match="betas must be a list of different finite numbers >= 0"):
        residual_beta_path(X, y, betas, estimator=regressor())
    with pytest.raises(ValueError, match=said):
        residual_beta_path(X, y, betas, estimator=regressor())


@pytest.mark.parametrize(
    "betas", [np.array([0, 2]), pd.Series([0, 2]), (0, np.float32(2)), iter([0, 2]), range(0, 4, 2)]
)
def test_betas_may_come_in_any_list(betas):
    path = residual_beta_path(*sequences(), betas, estimator=regressor(max_iter=1))
    assert path.betas.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n_seeds": 0}, "n_seeds must be an integer >= 1, got 0"),
        ({"n_seeds": True}, "n_seeds must be an integer >= 1, got True"),
        ({"stacked": "yes"}, "stacked must be 'auto', True or False, got 'yes'"),
        ({"estimator": regressor(d_model=-1)}, "'d_model' parameter .* must be an int"),
        ({"estimator": regressor(n_heads=3)}, "d_model must be a multiple of n_heads"),
        ({"estimator": regressor(learning_rate_init="auto")}, "learning_rate_init='auto'"),
        ({"sample_weight": np.zeros(N)}, "zero"),
        ({"cv": GroupKFold(2)}, "groups"),
    ],
)
def test_other_bad_arguments_are_refused_in_words(arguments, said):
    with pytest.raises(ValueError, match=said):
        residual_beta_path(*sequences(), [0, 1], **({"estimator": regressor()} | arguments))


def test_other_estimators_are_refused_in_words():
    with pytest.raises(TypeError, match="got Ridge; put preprocessing before the call"):
        residual_beta_path(*series(), [0, 1], estimator=Ridge())


def test_a_fold_with_one_class_is_refused_in_words():
    X, _ = sequences()
    y = np.arange(N) // (N // 2)
    with pytest.raises(ValueError, match="training part of fold 0 holds one class only"):
        residual_beta_path(X, y, [0, 1], estimator=classifier(), cv=KFold(2))


def test_bad_data_are_refused_once_with_the_sentence_of_fit():
    X, y = sequences()
    X[3, 0, 0] = np.inf
    with pytest.raises(ValueError, match="Input X contains infinity"):
        residual_beta_path(X, y, [0, 1], cv=2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        residual_beta_path(*sequences(padded=True)[:1], y[1:], [0, 1])
