"""scikit-learn's callbacks: every epoch of every fit is told, where in the whole fit it is, once.

What a callback is told under GridSearchCV is scikit-learn's doing and the reference for ours.
"""

import pickle
import warnings
from collections import Counter

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from smallmodels import ESTIMATORS, SMALL, Interrupt, outputs, table

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressor,
    ResidualTransformerRegressorCV,
    SeedEnsembleClassifier,
    SeedEnsembleRegressor,
    StackedGridSearchCV,
)

callback = pytest.importorskip("sklearn.callback", reason="new in scikit-learn 1.9")
EPOCHS = SMALL["max_iter"]


def path_of(context):
    """Names of a task and of those it is a part of, from the outermost in."""
    return (*(path_of(context.parent) if context.parent else ()), context.task_name)


class Record:
    """Notes what it is told: what, the names of the tasks, and the class of the estimator."""

    def __init__(self):
        self.events = []

    def note(self, what, estimator, context):
        self.events.append((what, path_of(context), type(estimator).__name__))

    def setup(self, estimator, context):
        self.note("setup", estimator, context)

    def on_fit_task_begin(self, estimator, context):
        self.note("begin", estimator, context)

    def on_fit_task_end(self, estimator, context):
        self.note("end", estimator, context)

    def teardown(self, estimator, context):
        self.note("teardown", estimator, context)

    def count(self, what, task):
        return sum(event[0] == what and event[1][-1] == task for event in self.events)


class Propagated(Record):
    """A record that meta-estimators hand on to what they fit."""

    max_propagation_depth = None


class Lines(Propagated):
    """Writes a line for every finished task to a file, from whichever process fits."""

    def __init__(self, path):
        self.path = path

    def note(self, what, estimator, context):
        if what == "end":
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(" ".join(path_of(context)) + "\n")


def regressor(**settings):
    return ResidualTransformerRegressor(**SMALL | settings)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("settings", [{}, {"conditioning_interval": 1}, {"dtype": "float32"}])
def test_every_epoch_is_told_once(estimator, settings):
    X, y = table(estimator)
    record = Record()
    model = estimator(**SMALL, **settings).set_callbacks(record).fit(X, y)
    epoch = [("begin", ("fit", "epoch")), ("end", ("fit", "epoch"))]
    expected = [("setup", ("fit",)), ("begin", ("fit",)), *epoch * EPOCHS]
    expected += [("end", ("fit",)), ("teardown", ("fit",))]
    assert [event[:2] for event in record.events] == expected
    assert {event[2] for event in record.events} == {estimator.__name__}
    silent = estimator(**SMALL, **settings).fit(X, y)
    np.testing.assert_array_equal(outputs(model, X), outputs(silent, X))


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "gd", "learning_rate_init": 0.01},
        {"early_stopping": True, "max_iter": 40, "n_iter_no_change": 2, "tol": 0.1},
        {"learning_rate": "constant", "max_iter": 40, "n_iter_no_change": 2, "tol": 0.5},
        {"warm_start": True},
    ],
)
def test_a_fit_that_stops_early_tells_the_epochs_it_ran(settings):
    X, y = table(ResidualTransformerRegressor)
    record = Record()
    model = regressor(**settings).set_callbacks(record).fit(X, y)
    told = record.count("begin", "epoch"), record.count("end", "epoch")
    assert told == (model.n_iter_, model.n_iter_)
    if settings.get("warm_start"):
        model.fit(X, y)
        assert record.count("end", "epoch") == model.n_iter_ == 2 * EPOCHS


@pytest.mark.parametrize(
    ("settings", "known", "run"),
    [({}, 20, 20), ({"embedding": "token"}, None, 40), ({"max_iter": 2}, 2, 2)],
)
def test_a_fit_tells_its_epochs_beforehand_where_the_parameters_have_them(settings, known, run):
    class Totals(Record):
        def on_fit_task_begin(self, estimator, context):
            super().on_fit_task_begin(estimator, context)
            self.events.append(("total", path_of(context), context.max_subtasks))

    X, y = table(ResidualTransformerRegressor)
    record, model = Totals(), ResidualTransformerRegressor(d_model=4, **settings)
    model.set_callbacks(record).fit(1 + np.abs(X * 3).astype(int), y)
    assert ("total", ("fit",), known) in record.events
    assert record.count("end", "epoch") == model.n_iter_ == run


def test_a_callback_may_end_the_fit():
    class Second(Record):
        def on_fit_task_end(self, estimator, context):
            super().on_fit_task_end(estimator, context)
            return self.count("end", "epoch") == 2

    X, y = table(ResidualTransformerRegressor)
    model = regressor(max_iter=9, learning_rate="constant").set_callbacks(Second()).fit(X, y)
    assert model.n_iter_ == 2
    expected = regressor(max_iter=2, learning_rate="constant").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_model_shown_after_an_epoch_is_the_fit_of_so_many_epochs(estimator):
    class Shown(Record):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            shown.append(outputs(fitted_estimator, X))

    X, y = table(estimator)
    shown, settings = [], SMALL | {"learning_rate": "constant"}
    model = estimator(**settings).set_callbacks(Shown()).fit(X, y)
    for epoch in range(1, EPOCHS + 1):
        expected = estimator(**settings | {"max_iter": epoch}).fit(X, y)
        np.testing.assert_array_equal(shown[epoch - 1], outputs(expected, X))
    np.testing.assert_array_equal(shown[-1], outputs(model, X))
    score = "r2" if estimator is ResidualTransformerRegressor else "accuracy"
    monitor = callback.ScoringMonitor(scoring=score)
    model = estimator(**settings).set_callbacks(monitor).fit(X, y)
    scores = monitor.get_logs().data_as_pandas[score]
    assert len(scores) == EPOCHS + 1 and scores.iloc[-1] == model.score(X, y)


def whole_fits():
    X, y = table(ResidualTransformerRegressor)
    labels = (y > y.mean()).astype(int)
    grid, classifier = {"residual_beta": [0.0, 1.0]}, ResidualTransformerClassifier(**SMALL)
    unseeded = {name: value for name, value in SMALL.items() if name != "random_state"}
    member = ResidualTransformerRegressor(**unseeded)
    members = ResidualTransformerClassifier(**unseeded)
    piped = make_pipeline(StandardScaler(), regressor())
    # A search over two betas on two folds, then the best one; an ensemble of three.
    yield StackedGridSearchCV(regressor(), grid, cv=2), X, y, 5
    yield StackedGridSearchCV(classifier, grid, cv=2), X, labels, 5
    deep = {"residualtransformerregressor__residual_beta": [0.0, 1.0]}
    yield StackedGridSearchCV(piped, deep, cv=2), X, y, 5
    separate = {"dropout": 0.1}
    yield StackedGridSearchCV(regressor(**separate), grid, cv=2), X, y, 5
    yield GridSearchCV(piped, deep, cv=2), X, y, 5
    yield ResidualTransformerRegressorCV([0, 1], cv=2, **SMALL), X, y, 5
    yield ResidualTransformerClassifierCV([0, 1], cv=2, **SMALL), X, labels, 5
    yield ResidualTransformerRegressorCV([0, 1], cv=2, refit=False, **SMALL), X, y, 4
    yield SeedEnsembleRegressor(member, n_estimators=3, random_state=0), X, y, 3
    yield SeedEnsembleClassifier(members, n_estimators=3, random_state=0), X, labels, 3
    yield piped, X, y, 1


@pytest.mark.parametrize("number", range(11))
def test_whatever_fits_many_tells_the_epochs_of_each(number):
    model, X, y, n_fits = list(whole_fits())[number]
    record = Propagated()
    clone(model).set_callbacks(record).fit(X, y)
    assert record.count("begin", "epoch") == record.count("end", "epoch") == n_fits * EPOCHS
    begun, ended = (Counter(e[1] for e in record.events if e[0] == w) for w in ("begin", "end"))
    assert begun == ended
    # Once for the outermost estimator: it hands the callback on.
    assert [e[0] for e in record.events if e[0] in ("setup", "teardown")] == ["setup", "teardown"]
    alone = Record()
    clone(model).set_callbacks(alone).fit(X, y)
    assert {event[2] for event in alone.events} == {type(model).__name__}
    assert alone.count("end", "fit") == 1


def test_a_stacked_search_tells_what_grid_search_tells():
    X, y = table(ResidualTransformerRegressor)
    grid = {"residual_beta": [0.0, 1.0], "d_model": [4, 8]}
    for kind in (Record, Propagated):
        records = []
        for search in (GridSearchCV, StackedGridSearchCV):
            records.append(kind())
            search(regressor(), grid, cv=3).set_callbacks(records[-1]).fit(X, y)
        expected, told = (
            Counter((what, path, name.removeprefix("Stacked")) for what, path, name in each.events)
            for each in records
        )
        assert told == expected and sum(told.values()) > 20


def test_a_candidate_that_fails_is_told_of_too():
    X, y = table(ResidualTransformerRegressor)
    grid = {"residual_beta": [-1.0, 1.0]}  # the first is refused
    record = Record()
    search = StackedGridSearchCV(regressor(), grid, cv=2).set_callbacks(record)
    with pytest.warns(FitFailedWarning, match="2 fits failed"), warnings.catch_warnings():
        # scikit-learn's second warning, of the NaN score that the first explains
        warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
        search.fit(X, y)
    for what in ("begin", "end"):
        assert record.count(what, "candidate-split-evaluation") == 4


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_fit_that_fails_cleans_up_and_leaves_an_earlier_one(estimator):
    class Failing(Record):
        def on_fit_task_end(self, estimator, context):
            super().on_fit_task_end(estimator, context)
            if self.count("end", "epoch") == 2:
                raise RuntimeError("the second epoch")

    X, y = table(estimator)
    model = estimator(**SMALL).fit(X, y)
    before, names = outputs(model, X), set(vars(model))
    wild = {"solver": "sgd", "learning_rate_init": 1e30, "max_iter": 9}
    for record, settings, error in (
        (Failing(), {}, RuntimeError),
        (Record(), wild, DivergenceError),
        (Record(), {"callbacks": [Interrupt()]}, KeyboardInterrupt),
    ):
        model.set_params(**settings).set_callbacks(record)
        with pytest.raises(error):
            model.fit(X, y)
        assert record.events[-1][0] == "teardown"
        model.set_callbacks()
        assert set(vars(model)) == names  # nothing of scikit-learn's stays either
        np.testing.assert_array_equal(outputs(model, X), before)


def test_callbacks_go_through_clones_and_pickles():
    X, y = table(ResidualTransformerRegressor)
    record = Record()
    model = regressor().set_callbacks(record)
    clone(model).fit(X, y)
    assert record.count("end", "epoch") == EPOCHS
    fitted = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(fitted.predict(X), model.predict(X))
    with pytest.raises(TypeError, match="FitCallback"):
        model.set_callbacks(Record)


def test_inner_estimators_keep_their_own_callbacks():
    """A callback that is not handed on may be set on a member, and sees where it is."""
    X, y = table(ResidualTransformerRegressor)
    record = Record()
    member = ResidualTransformerRegressor(d_model=8, max_iter=2).set_callbacks(record)
    SeedEnsembleRegressor(member, n_estimators=2, random_state=0).fit(X, y)
    assert record.count("end", "epoch") == 4
    paths = {event[1] for event in record.events if event[0] == "end"}
    assert paths == {("fit", "fit"), ("fit", "fit", "epoch")}
    with pytest.raises(TypeError, match="auto-propagated"):
        wrong = clone(member).set_callbacks(Propagated())
        SeedEnsembleRegressor(wrong, n_estimators=2).fit(X, y)


def test_two_processes_tell_as_much_as_one(tmp_path):
    X, y = table(ResidualTransformerRegressor)
    member = ResidualTransformerRegressor(d_model=8, max_iter=2)
    for number, model in enumerate(
        (
            SeedEnsembleRegressor(member, n_estimators=3, random_state=0),
            StackedGridSearchCV(regressor(), {"residual_beta": [0.0, 1.0]}, cv=2),
            ResidualTransformerRegressorCV([0, 1], cv=2, **SMALL),
        )
    ):
        found = []
        for n_jobs in (1, 2):
            file = tmp_path / f"{number} {n_jobs}"
            told = clone(model).set_params(n_jobs=n_jobs).set_callbacks(Lines(str(file)))
            told.fit(X, y)
            found.append(sorted(file.read_text(encoding="utf-8").splitlines()))
        assert found[0] == found[1] and len(found[0]) > 6


def test_where_nobody_listens_nothing_is_told(monkeypatch):
    """A fit without callbacks makes no context and tells no epoch: it costs what it did."""

    def fail(*args, **kwargs):
        raise AssertionError("a context for nobody")

    for model, X, y, _ in list(whole_fits())[:-1]:
        if isinstance(model, GridSearchCV) and not isinstance(model, StackedGridSearchCV):
            continue  # scikit-learn's own always makes one
        monkeypatch.setattr(type(model), "_init_callback_context", fail)
        monkeypatch.setattr(ResidualTransformerRegressor, "_init_callback_context", fail)
        if isinstance(model, StackedGridSearchCV) and hasattr(model.estimator, "steps"):
            continue  # nor can the refit of a Pipeline do without
        assert clone(model).fit(X, y) is not None
