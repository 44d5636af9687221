"""What a beta path shows of its fits, how it shares them out, and what it refuses."""

import io
import pickle
import pickletools
import time

import numpy as np
import pandas as pd
import pytest
from pathdata import BETAS, N, classifier, regressor, sequences, series, watch_groups
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold

from sklearn_restrans import residual_beta_path
from sklearn_restrans._estimators import candidates
from sklearn_restrans.model_selection import beta_path


@pytest.fixture
def sizes(monkeypatch):
    return watch_groups(monkeypatch)


@pytest.mark.parametrize(
    ("n_processes", "n_folds", "expected"),
    [(1, 3, [5, 5, 5]), (2, 3, [5, 5, 3, 2]), (2, 2, [5, 5]), (2, 1, [3, 2]), (8, 1, [1] * 5)],
)
def test_every_process_gets_as_many_candidates(monkeypatch, sizes, n_processes, n_folds, expected):
    X, y = sequences()
    monkeypatch.setattr(beta_path, "check_n_jobs", lambda n_jobs: n_processes)
    betas, splits = np.arange(5) / 2, [(np.arange(40), np.arange(40, N))] * n_folds
    path = residual_beta_path(X, y, betas, estimator=regressor(max_iter=1), cv=splits)
    assert sizes == expected
    frame = path.to_frame()
    assert frame["beta"].tolist() == np.repeat(betas, n_folds).tolist()
    assert frame["fold"].tolist() == list(range(n_folds)) * 5


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
    elapsed, train_stacked = [], candidates.train_stacked

    def timed(*args):
        started = time.perf_counter()
        outcomes = train_stacked(*args)
        elapsed.append(time.perf_counter() - started)
        return outcomes

    monkeypatch.setattr(candidates, "train_stacked", timed)
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
        ([0.5, (0.5, 1.0)], r"got \(0.5, 1.0\) among them; a path takes single numbers"),
        ([(0.5, 1.0), (1.0, 1.0)], "a path takes single numbers, not pairs or matrices"),
        (np.ones((2, 1, 2)), "a path takes single numbers, not pairs or matrices"),
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
        ({"cv": [3]}, "cv: fold 0 must be a pair .* got 3"),
        ({"cv": [(range(9), range(70, 90))]}, "test of fold 0 names the rows 70 to 89"),
        ({"cv": 2, "scoring": "nonsense"}, "scoring='nonsense' is not a score of scikit-learn"),
        ({"scoring": "nonsense"}, "scoring='nonsense' is not a score of scikit-learn"),
        (
            {"estimator": regressor(random_state=2**32 - 1), "n_seeds": 2},
            "random_state=4294967295 and the 1 seeds after it .*: pass a smaller random_state",
        ),
        ({"segments": np.zeros(N)}, "segments is used with window=... only"),
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
