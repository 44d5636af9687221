"""What users of comparable packages suffer: one test for each row of our list of pains.

Each docstring names the symptom and where it was reported. Rows about seeds, processes and pickles
are in test_pains_state.py; rows about intervals, plots and compiled modules belong to other modules
or to options that do not exist here.
"""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, check_cv, cross_val_score
from sklearn.naive_bayes import GaussianNB
from smallmodels import ESTIMATORS, SMALL, Interrupt, Recorder, option_values, outputs, table

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._model.chunking import predict_chunk
from sklearn_restrans._training import prediction

# -- what goes in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, bool])
def test_number_types(estimator, dtype):
    """skorch #824 #758 #518: float64 X fails with "mat1 and mat2 must have the same dtype"."""
    X, y = table(estimator)
    X = np.round(X * 4) if dtype is not bool else X > 0  # exact in every type
    model = estimator(**SMALL).fit(X.astype(dtype), y)
    assert np.isfinite(outputs(model, X)).all()
    # Asked in another type, the same numbers are the same rows.
    np.testing.assert_array_equal(outputs(model, X.astype(dtype)), outputs(model, X.astype(float)))
    fresh = estimator(**SMALL).fit(X.astype(float), y)
    # float32 input is trained in float32: three epochs amplify 1e-7 by less than a hundred.
    np.testing.assert_allclose(outputs(model, X), outputs(fresh, X), rtol=1e-5, atol=1e-5)


def test_a_column_of_targets_is_no_matrix():
    """skorch #701 #972, sktime #10931, pytorch #16045: (n,) against (n, 1) broadcasts to (n, n)."""
    X, y = table(ResidualTransformerRegressor)
    flat = ResidualTransformerRegressor(**SMALL).fit(X, y)
    with pytest.warns(DataConversionWarning, match=r"Pass y\.ravel\(\)"):
        column = ResidualTransformerRegressor(**SMALL).fit(X, y[:, None])
    assert flat.predict(X).shape == (60,)
    assert column.predict(X).shape == (60, 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], flat.predict(X))
    assert column.loss_curve_ == flat.loss_curve_


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("window", [None, 3])
def test_data_frames(estimator, frame, window):
    """skorch #1043 #494: columns become keyword arguments of forward, also inside a search."""
    X, y = table(estimator)
    names = ["a", "b", "c", "d"]
    rows = frame(dict(zip(names, X.T, strict=True)))
    model = estimator(window=window, **SMALL).fit(rows, y)
    assert model.feature_names_in_.tolist() == names
    plain = estimator(window=window, **SMALL).fit(X, y)
    # Columns and rows in memory are summed in another order; three epochs amplify that little.
    np.testing.assert_allclose(outputs(model, rows), outputs(plain, X), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(rows[names[::-1]])
    with pytest.raises(ValueError, match="yet now missing:\n- d"):
        model.predict(rows[names[:3]])
    search = GridSearchCV(model, {"residual_beta": [0.5, 1.0]}, cv=2).fit(rows, y)
    assert search.best_estimator_.feature_names_in_.tolist() == names


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("window", [None, 3])
def test_missing_and_infinite_values(estimator, value, window):
    """skorch, tried: one NaN in X makes every loss NaN and raises nothing."""
    X, y = table(estimator)
    spoiled = X.copy()
    spoiled[5, 1] = value
    model = estimator(window=window, **SMALL)
    calls = [
        lambda: model.fit(spoiled, y),
        lambda: model.fit(X, y).predict(spoiled),
        lambda: model.fit(X, y, X_val=spoiled, y_val=y),
    ]
    for call in calls:
        if np.isinf(value):
            with pytest.raises(ValueError, match=r"Input X contains infinity"):
                call()
        else:
            call()
            assert np.isfinite(model.loss_curve_).all()
    y = y.astype(float)
    y[5] = value
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        model.fit(X, y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_input(estimator, form):
    """skorch #131, mljar #309: sparse X is accepted and densified batch by batch."""
    X, y = table(estimator)
    model = estimator(**SMALL)
    with pytest.raises(TypeError, match="toarray"):
        model.fit(form(X), y)
    with pytest.raises(TypeError, match="toarray"):
        model.fit(X, y).predict(form(X))


LABELS = {
    "str": np.array(["no", "yes"]),
    "object": np.array(["no", "yes"], dtype=object),
    "bool": np.array([False, True]),
    "from one": np.array([1, 2]),
    "signs": np.array([-1, 1]),
    "int32": np.array([0, 1], dtype=np.int32),
    "uint8": np.array([3, 7], dtype=np.uint8),
    "float": np.array([0.0, 1.0]),
    "three": np.array(["a", "b", "c"]),
}


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("kind", LABELS)
def test_labels(kind, early_stopping):
    """scikit-learn #33760: string labels fail in early stopping; {1, 2}: IndexError; int32."""
    X, code = table(ResidualTransformerClassifier)
    labels = LABELS[kind]
    code = code + (X[:, 2] > 0.7) * (code == 1) * (len(labels) == 3)
    settings = SMALL | {"early_stopping": early_stopping}
    model = ResidualTransformerClassifier(**settings).fit(X, labels[code])
    np.testing.assert_array_equal(model.classes_, labels)
    predicted = model.predict(X)
    assert predicted.dtype == labels.dtype
    plain = ResidualTransformerClassifier(**settings).fit(X, code)
    np.testing.assert_array_equal(predicted, labels[plain.predict(X)])
    series = pd.Series(labels[code], index=np.arange(60)[::-1])
    again = ResidualTransformerClassifier(**settings).fit(pd.DataFrame(X), series)
    np.testing.assert_array_equal(again.predict_proba(pd.DataFrame(X)), plain.predict_proba(X))


# -- training that goes wrong, or stops ------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("solver", "dtype"),
    [
        ("sgd", "float32"),
        ("sgd", "float64"),
        ("gd", "float32"),
        ("gd", "float64"),
        ("adamw", "float32"),  # its steps are bounded: 1e30 each is still finite in float64
    ],
)
def test_divergence_is_an_error(estimator, dtype, solver):
    """skorch #627, autogluon #4508, scikit-learn #29504: NaN losses, and predict returns NaN."""
    X, y = table(estimator)
    model = estimator(
        0.75, solver=solver, dtype=dtype, learning_rate_init=1e30, max_iter=20, d_model=8
    )
    with pytest.raises(
        DivergenceError, match=r"(?=.*learning_rate_init.*1e\+30)(?=.*residual_beta)"
    ):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# They train on labels of chance, or for a few steps.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", [False, True])
def test_the_weights_kept_are_those_of_the_best_score(estimator, dtype, given):
    """skorch #808 #449, aeon #1098, DeepTab #425: early stopping keeps the last weights."""
    X, y = table(estimator, n=80)
    y = np.random.default_rng(0).permutation(y)  # nothing to learn: the first epochs are best
    recorder = Recorder()
    model = estimator(
        early_stopping=not given,
        validation_fraction=0.3,
        learning_rate_init=0.1,
        learning_rate="constant",
        max_iter=40,
        d_model=8,
        dtype=dtype,
        random_state=0,
        callbacks=[recorder],
    )
    if given:
        rows, valid = np.arange(50), np.arange(50, 80)
        model.fit(X[:50], y[:50], X_val=X[50:], y_val=y[50:])
    else:
        model.fit(X, y)
        rows, valid = recorder.split_
        assert sorted([*rows, *valid]) == list(range(80))
    assert 1 <= model.best_iteration_ < model.n_iter_  # so that the last weights are others
    assert model.best_validation_score_ == max(model.validation_scores_)
    if estimator is ResidualTransformerRegressor:
        scale = y[rows].std()
        loss = (((model.predict(X[valid]) - y[valid]) / scale) ** 2).mean()
    else:
        loss = log_loss(y[valid], model.predict_proba(X[valid]))
    # The same mean over the same rows, summed in another order.
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    assert -loss == pytest.approx(model.best_validation_score_, rel=tolerance)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_row_is_held_out_unasked(estimator):
    """skorch #599 #709 #862: a hidden fifth of the rows is held out, also inside a search."""
    X, y = table(estimator)
    recorder = Recorder()
    estimator(callbacks=[recorder], **SMALL).fit(X, y)
    assert (recorder.split_[0].tolist(), len(recorder.split_[1])) == (list(range(60)), 0)
    estimator(callbacks=[recorder], early_stopping=True, **SMALL).fit(X, y)
    assert [len(rows) for rows in recorder.split_] == [54, 6]
    estimator(callbacks=[recorder], **SMALL).fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    assert [len(rows) for rows in recorder.split_] == [40, 20]


def test_a_tail_can_be_held_out():
    """skorch #599 #747: no chronological split. Windows are validated on the last rows."""
    X, y = table(ResidualTransformerRegressor)
    recorder = Recorder()
    settings = SMALL | {"callbacks": [recorder], "early_stopping": True}
    ResidualTransformerRegressor(window=5, **settings).fit(X, y)
    rows, valid = recorder.split_
    assert valid.tolist() == list(range(54, 60))
    assert rows.tolist() == list(range(50))  # 50 to 53 are history of the first one validated


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_a_tiny_validation_part_is_an_error(estimator, n):
    """scikit-learn #24713: one validation row gives a NaN score, then an AttributeError."""
    X, y = table(estimator)
    with pytest.raises(ValueError, match="early_stopping=True"):
        estimator(early_stopping=True, **SMALL).fit(X[:n], y[:n])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ctrl_c_comes_through(estimator):
    """skorch swallows KeyboardInterrupt in fit and returns a half-trained model."""
    X, y = table(estimator)
    model = estimator(callbacks=[Interrupt()], **SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# -- clone, parameters, searches, ensembles --------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_clones_and_parameters(estimator):
    """skorch #521 #328 #271, DeepTab #410: a clone keeps fitted state; get_params is empty."""
    X, y = table(estimator)
    model = estimator(0.5, callbacks=[Recorder()], **SMALL).fit(X, y)
    cloned = clone(model)
    assert set(vars(cloned)) == set(model.get_params())
    with pytest.raises(NotFittedError):
        cloned.predict(X)
    params = model.get_params()
    params.pop("callbacks")
    assert estimator(**params).get_params() == params | {"callbacks": None}
    assert estimator().set_params(**params).get_params() == params | {"callbacks": None}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_search_over_beta_changes_the_model(estimator):
    """skorch #14 #818 #1110: a search that never changes the parameter it searches."""
    X, y = table(estimator)
    betas = [0.0, 0.25, 1.0, 2.0]
    scoring = "r2" if estimator is ResidualTransformerRegressor else "neg_log_loss"
    search = GridSearchCV(estimator(**SMALL), {"residual_beta": betas}, cv=2, scoring=scoring)
    search.fit(X, y)
    assert len(set(search.cv_results_["mean_test_score"])) == len(betas)
    best = search.best_params_["residual_beta"]
    np.testing.assert_array_equal(search.best_estimator_.residual_beta_, [[best, best]])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_set_params_leaves_the_fitted_model_alone(estimator):
    """skorch #349 #784 #376: setting a parameter after fit re-initialises the module."""
    X, y = table(estimator)
    model = estimator(window=3, **SMALL).fit(X, y)
    expected, state = outputs(model, X), {k: v for k, v in vars(model).items() if k[-1] == "_"}
    for name, value in option_values(estimator):
        if name != "n_threads":
            model.set_params(**{name: value})
    model.set_params(d_model=99, window=None, learning_rate_init=1.0, batch_size=1)
    np.testing.assert_array_equal(outputs(model, X), expected)
    assert all(vars(model)[name] is value for name, value in state.items())


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 16}, "cannot change d_model from 8 to 16"),
        ({"n_layers": 2}, "cannot change n_layers from 1 to 2"),
        ({"norm": "pre"}, "cannot change norm from None to 'pre'"),
        ({"readout": "last"}, "cannot change readout from 'mean' to 'last'"),
        ({"window": 3}, "cannot change .*window from None to 3"),
    ],
)
def test_warm_start_refuses_another_shape(estimator, change, message):
    """skorch #349: warm_start with a changed module trains something else than it says."""
    X, y = table(estimator)
    model = estimator(warm_start=True, **SMALL).fit(X, y)
    expected = outputs(model, X)
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y).set_params(**change).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.fit(X[:, :3], y)
    np.testing.assert_array_equal(outputs(model, X), expected)


def test_warm_start_refuses_new_classes_and_targets():
    """skorch #784: new labels under warm_start are silently mapped to old columns."""
    X, y = table(ResidualTransformerClassifier)
    model = ResidualTransformerClassifier(warm_start=True, **SMALL).fit(X, y)
    with pytest.raises(ValueError, match=r"not in the fitted classes: \[2\]"):
        model.fit(X, y + 1)
    model.fit(X, np.zeros(60, int))  # a batch without one of the classes is no new problem
    assert model.classes_.tolist() == [0, 1]
    regressor = ResidualTransformerRegressor(warm_start=True, **SMALL).fit(X, y)
    with pytest.raises(ValueError, match="y has 2 target columns, but 1 are expected"):
        regressor.fit(X, np.c_[y, y])


def test_kinds_are_known_to_scikit_learn():
    """DeepTab #449, TabPFN #95, sktime #11145: is_classifier is False, folds not stratified."""
    regressor, classifier = ResidualTransformerRegressor(), ResidualTransformerClassifier()
    assert is_regressor(regressor) and not is_classifier(regressor)
    assert is_classifier(classifier) and not is_regressor(classifier)
    y = np.repeat([0, 1], 20)
    assert isinstance(check_cv(3, y, classifier=is_classifier(classifier)), StratifiedKFold)
    assert not isinstance(check_cv(3, y, classifier=is_classifier(regressor)), StratifiedKFold)
    sorted_labels = np.repeat(["a", "b"], 30)  # folds in order would each lack a class
    X = np.random.default_rng(0).standard_normal((60, 3)) + (sorted_labels == "a")[:, None] * 3
    classifier.set_params(random_state=0, learning_rate_init=0.02)
    assert cross_val_score(classifier, X, sorted_labels, cv=2).min() > 0.9


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_voting_classifier(voting):
    """DeepTab #449: VotingClassifier refuses the estimator."""
    X, y = table(ResidualTransformerClassifier)
    labels = np.array(["no", "yes"])[y]
    model = ResidualTransformerClassifier(**SMALL)
    vote = VotingClassifier([("a", model), ("b", GaussianNB())], voting=voting, weights=[1, 0])
    single = clone(model).fit(X, labels)
    np.testing.assert_array_equal(vote.fit(X, labels).predict(X), single.predict(X))


def test_regressors_in_other_regressors():
    """DeepTab #449, TabPFN #95: voting, stacking and target transforms need tags and clones."""
    X, y = table(ResidualTransformerRegressor, n=100)
    model = ResidualTransformerRegressor(**SMALL)
    single = clone(model).fit(X, y).predict(X)
    vote = VotingRegressor([("a", model), ("b", Ridge())], weights=[1, 0]).fit(X, y)
    np.testing.assert_allclose(vote.predict(X), single, rtol=1e-12)  # a weighted mean
    stack = StackingRegressor([("a", model)], final_estimator=Ridge(), cv=2).fit(X, y)
    assert np.corrcoef(stack.predict(X), single)[0, 1] ** 2 == pytest.approx(1.0)
    logged = TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp)
    logged.fit(X, np.exp(y))
    np.testing.assert_allclose(np.log(logged.predict(X)), single, rtol=1e-9)  # log of exp rounds


@pytest.mark.parametrize(
    ("boost", "estimator"),
    [
        (AdaBoostClassifier, ResidualTransformerClassifier),
        (AdaBoostRegressor, ResidualTransformerRegressor),
    ],
)
def test_boosting(boost, estimator):
    """skorch #203 #601 #673: fit has no sample_weight, so AdaBoost fails."""
    X, y = table(estimator)
    if estimator is ResidualTransformerClassifier:
        y[::7] = 1 - y[::7]  # a base that fits every row ends the boosting
    base = estimator(d_model=8, learning_rate_init=0.02)
    model = boost(base, n_estimators=3, random_state=0).fit(X, y)
    assert len(model.estimators_) > 1
    assert model.predict(X).shape == (60,)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("early_stopping", [False, True])
def test_sample_weights(estimator, early_stopping):
    """skorch #716, DeepTab #424: weights are lost in the split; all-zero weights are accepted."""
    X, y = table(estimator)
    weight = np.r_[np.zeros(20), np.ones(40)]
    model = estimator(early_stopping=early_stopping, **SMALL)
    weighted, removed = clone(model).fit(X, y, weight), clone(model).fit(X[20:], y[20:])
    np.testing.assert_array_equal(outputs(weighted, X), outputs(removed, X))
    with pytest.raises(ValueError, match="zero"):
        model.fit(X, y, np.zeros(60))
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        model.fit(X, y, -weight)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, y, weight[:5])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities(dtype, loss, n_classes):
    """skorch #637 #136 #519, scikit-learn #28245: logits or doubly logged probabilities."""
    X, y = table(ResidualTransformerClassifier)
    y = y + (X[:, 2] > 0.7) * (y == 1) * (n_classes == 3)
    model = ResidualTransformerClassifier(dtype=dtype, loss=loss, **SMALL).fit(X, y)
    p = model.predict_proba(X)
    assert p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert ((0 <= p) & (p <= 1)).all()
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_sequences_of_unequal_length_in_a_search():
    """skorch #1083, sktime #1984, tslearn #94: they do not survive GridSearchCV."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6, 2))
    length = rng.integers(2, 7, 90)
    X[np.arange(6) >= length[:, None]] = np.nan
    y = X[np.arange(90), length - 1, 0]  # the last real token decides
    model = ResidualTransformerRegressor(d_model=8, max_iter=30, learning_rate_init=0.02)
    search = GridSearchCV(model, {"residual_beta": [0.5, 1.0], "random_state": [0]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.8


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_prediction_is_chunked_and_lack_of_memory_is_an_error(estimator, monkeypatch):
    """TabPFN #850 #536, autogluon #5344: out of memory on many rows, or silently wrong numbers."""
    X, y = table(estimator, n=500)
    model = estimator(**SMALL).fit(X, y)
    sizes, run = [], prediction.run

    def spy(module, x, *rest):
        sizes.append(len(x))
        if len(sizes) > limit:
            raise torch.OutOfMemoryError("no memory left")
        return run(module, x, *rest)

    monkeypatch.setattr(prediction, "run", spy)
    chunk = predict_chunk(model.net_.module_.arch)
    limit = 2 * -(-500 // chunk)
    model.predict(X)
    assert set(sizes) == {chunk}
    assert len(sizes) == -(-500 // chunk)
    with pytest.raises(torch.OutOfMemoryError):
        for _ in range(3):
            model.predict(X)


def test_frames_of_the_history():
    """skore #1815: no loss curve as a table."""
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(early_stopping=True, **SMALL).fit(X, y)
    assert isinstance(model.history_, pd.DataFrame)
    assert {"train_loss", "valid_loss", "learning_rate", "dur"} == set(model.history_.columns)
    assert (-model.history_["valid_loss"]).tolist() == model.validation_scores_


def test_views_are_picklable_arguments():
    """neuralforecast #1217, skorch #93: what goes to a worker process must survive the way."""
    X, y = table(ResidualTransformerRegressor)
    view = SequenceView(X, np.arange(4, 60), 5)
    model = ResidualTransformerRegressor(**SMALL).fit(view, y[4:])
    np.testing.assert_array_equal(
        model.predict(pickle.loads(pickle.dumps(view))), model.predict(view)
    )
