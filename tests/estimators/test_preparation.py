"""From parameters and data to a problem: what is learnt, split and resolved before training."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from smallmodels import ESTIMATORS, SMALL, table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SequenceView,
)
from sklearn_restrans._data.split import split_rows
from sklearn_restrans._estimators.preparation import (
    batch_size,
    check_data,
    check_warm,
    lay_out,
    prepare,
    training_settings,
)

CPU = torch.device("cpu")


def sequences(estimator, n=60, seed=0):
    """Sequences (n, 5, 3) with targets read off their last token."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5, 3))
    y = X[:, -1, 0] - X[:, -2, 1]
    return X, y if estimator is ResidualTransformerRegressor else (y > 0).astype(int)


# -- nothing is assigned -------------------------------------------------------------------------


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_estimator_is_read_and_not_written(estimator, fitted):
    X, y = table(estimator)
    model = estimator(early_stopping=True, **SMALL)
    codings = None
    if fitted:
        codings = model.fit(X, y)._preprocessing
    before, saved = dict(vars(model)), pickle.dumps(codings)
    problem = lay_out(model, check_data(model, X, y, np.ones(60), fitted=codings))
    training_settings(model, problem)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items())
    assert pickle.dumps(codings) == saved
    assert (problem.preprocessing is codings) == fitted


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_data_that_cannot_be_used_leave_nothing_behind(estimator):
    X, y = table(estimator)
    model = estimator(**SMALL)
    before = dict(vars(model))
    for bad in [(X[:, :0], y), (X, y[:5]), (X, None), (X, y, np.zeros(60))]:
        with pytest.raises(ValueError):
            check_data(model, *bad)
        assert vars(model) == before


# -- what a problem holds ------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_problem_is_the_standardised_training_rows(weighted, seed):
    """Of the rows that train alone; weights have the mean one over them."""
    X, y = table(ResidualTransformerRegressor, seed=seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, 60) if weighted else None
    model = ResidualTransformerRegressor(early_stopping=True, validation_fraction=0.25, **SMALL)
    problem = prepare(model, X, y, weight, seed=seed)
    rows, valid = split_rows(X, y, weight, 0.25, seed, False)
    np.testing.assert_array_equal(problem.train.rows, rows)
    np.testing.assert_array_equal(problem.valid.rows, valid)

    def standardised(values):
        own = None if weight is None else weight[rows]
        mean = np.average(values[rows], axis=0, weights=own)
        return (values - mean) / np.sqrt(np.average((values[rows] - mean) ** 2, 0, own))

    # sums over 45 rows of numbers near 1
    close = {"rtol": 1e-13, "atol": 1e-13}
    for part, chosen in ((problem.train, rows), (problem.valid, valid)):
        (x, mask), target, own = part.batch(np.arange(len(chosen)))
        assert mask is None and x.shape == (len(chosen), 4, 1)
        np.testing.assert_allclose(x[..., 0], standardised(X)[chosen], **close)
        np.testing.assert_allclose(target[:, 0], standardised(y)[chosen], **close)
        if weighted:
            np.testing.assert_allclose(own, weight[chosen] / weight[chosen].mean(), **close)
        else:
            assert own is None
    assert problem.scale == 2 / 45
    assert problem.given_weights(problem.arch) == {} and problem.arch.embedding == "feature"


def test_given_validation_rows_are_scaled_as_the_training_rows():
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(early_stopping=True, **SMALL)
    problem = prepare(model, X[:40], y[:40], None, X[40:], y[40:])
    assert len(problem.train) == 40, "none of them is set aside"
    (x, _), target, weight = problem.valid.batch(np.arange(20))
    mean, std = X[:40].mean(0), X[:40].std(0)
    np.testing.assert_allclose(x[..., 0], (X[40:] - mean) / std, rtol=1e-12, atol=1e-12)
    expected = (y[40:] - y[:40].mean()) / y[:40].std()
    np.testing.assert_allclose(target[:, 0], expected, rtol=1e-12, atol=1e-12)
    assert weight is None


def test_classes_are_weighed_beside_the_samples():
    X, y = table(ResidualTransformerClassifier)
    weight = np.linspace(0.5, 1.0, 60)
    model = ResidualTransformerClassifier(class_weight={0: 1.0, 1: 3.0}, **SMALL)
    expected = weight * np.where(y == 1, 3.0, 1.0)
    _, target, own = prepare(model, X, y, weight).train.batch(np.arange(60))
    np.testing.assert_allclose(own, expected / expected.mean(), rtol=1e-13)
    assert target.tolist() == y.tolist() and target.dtype == torch.int64


# -- what "auto" means ---------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_reads_the_last_token_of_ordered_input_and_the_mean_of_columns(estimator):
    X, y = table(estimator)
    S, ys = sequences(estimator)
    view = SequenceView(X, np.arange(4, 60), window=3)
    readouts = [
        check_data(estimator(**settings, **SMALL), A, b).arch.readout
        for A, b, settings in [
            (X, y, {}),
            (X, y, {"window": 3}),
            (view, y[4:], {}),
            (S, ys, {}),
            (1 + np.abs(X * 5).astype(int), y, {"embedding": "token"}),
            (X, y, {"readout": "last"}),
        ]
    ]
    of_sequences = "last" if estimator is ResidualTransformerRegressor else "mean"
    assert readouts == ["mean", "last", "last", of_sequences, "mean", "last"]


def texts(n):
    """Token ids (n, 3), and which of them begin with a large one."""
    ids = np.random.default_rng(0).integers(2, 9, (n, 3))
    return ids, (ids[:, 0] > 5).astype(int)


@pytest.mark.parametrize(
    ("n", "settings", "epochs"),
    [
        (4, {}, 40),
        (673, {}, 40),
        (1_600, {}, 40),  # 25 steps an epoch
        (1_601, {}, 39),
        (6_400, {}, 10),
        (6_735, {}, 10),
        (16_000, {}, 4),
        (67_349, {}, 4),
        (6_735, {"batch_size": 128}, 19),
        (6_735, {"batch_size": 16}, 4),
        (6_735, {"early_stopping": True, "validation_fraction": 0.5}, 19),
        (6_735, {"solver": "gd"}, 40),  # one step an epoch
        (6_735, {"max_iter": 7}, 7),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_epochs_of_texts_make_a_thousand_steps_from_4_to_40_epochs(
    estimator, n, settings, epochs
):
    X, y = texts(n)
    model = estimator(embedding="token", d_model=8, **settings)
    problem = prepare(model, X, y)
    found = training_settings(model, problem)
    assert found.max_iter == epochs
    if not settings:
        steps = epochs * -(-n // batch_size(model, problem.arch, n))
        assert steps >= 1_000 or epochs == 40
    vectors = estimator(embedding=np.eye(9, 8), d_model=8, **settings)
    assert training_settings(vectors, prepare(vectors, X, y)).max_iter == epochs


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_epochs_of_all_that_is_no_text_are_20(estimator):
    X, y = texts(6_735)
    for A, settings in [
        (X, {}),
        (X, {"window": 3}),
        (SequenceView(X.astype(float), np.arange(len(X)), window=3), {}),
        (X[:, :, None], {}),
        (X, {"solver": "gd"}),
    ]:
        model = estimator(d_model=8, **settings)
        assert training_settings(model, prepare(model, A, y)).max_iter == 20


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_auto_dtype_is_double_for_double_input_and_little_work(estimator):
    X, y = table(estimator, n=31_251)  # times 4 tokens of width 8: just above 1e6

    def dtype(X, y):
        return prepare(estimator(**SMALL), X, y).dtype

    assert dtype(X[:-1], y[:-1]) == torch.float64
    assert dtype(X, y) == torch.float32
    assert dtype(X[:60].astype(np.float32), y[:60]) == torch.float32
    assert prepare(estimator(**SMALL), X, y, dtype=torch.float64, device=CPU).dtype == torch.float64


@pytest.mark.parametrize(
    ("solver", "window", "decay", "schedule"),
    [
        ("adamw", None, 0.0, "one_cycle"),
        ("adamw", 3, 0.3, "one_cycle"),
        ("adam", 3, 0.0, "one_cycle"),
        ("sgd", 3, 0.0, "constant"),
        ("gd", 3, 0.0, "constant"),
    ],
)
def test_settings_have_no_auto_left_but_a_step_that_is_measured(solver, window, decay, schedule):
    X, y = table(ResidualTransformerRegressor)
    step = "auto" if solver in ("sgd", "gd") else 1e-3
    model = ResidualTransformerRegressor(
        solver=solver, window=window, learning_rate_init=step, batch_size=200, **SMALL
    )
    settings = training_settings(model, prepare(model, X, y))
    assert (settings.weight_decay, settings.schedule) == (decay, schedule)
    assert settings.learning_rate == step
    assert settings.batch_size == 60, "no batch is larger than the training set"
    small = model.set_params(batch_size=7)
    expected = 60 if solver == "gd" else 7
    assert training_settings(small, prepare(small, X, y)).batch_size == expected


# -- going on, and validation parts --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 4}, "cannot change d_model from 8 to 4, d_ff from 16 to 8"),
        ({"n_layers": 2}, "cannot change n_layers from 1 to 2; set warm_start=False"),
        ({"norm": "pre"}, "cannot change norm from None to 'pre'"),
        ({"embedding": "token"}, "embedding from 'feature' to 'token'"),
    ],
)
def test_a_model_of_another_shape_cannot_go_on(change, message):
    X, y = table(ResidualTransformerRegressor)
    model = ResidualTransformerRegressor(**SMALL).fit(X, y)
    codings = model._preprocessing
    same = check_data(model, X, y, fitted=codings).arch
    check_warm(model, same, codings.inputs, model.net_)
    other = copy.deepcopy(model).set_params(**change)
    arch = check_data(other, X, y, fitted=codings).arch
    with pytest.raises(ValueError, match=message):
        check_warm(other, arch, codings.inputs, model.net_)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("given", ["X_val", "y_val"])
def test_half_a_validation_part_is_refused(estimator, given):
    X, y = table(estimator)
    missing = "y_val" if given == "X_val" else "X_val"
    with pytest.raises(ValueError, match=f"{given} was given without {missing}"):
        clone(estimator(**SMALL)).fit(X, y, **{given: X if given == "X_val" else y})


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_validation_input_must_be_like_the_training_input(estimator):
    X, y = table(estimator)
    with pytest.raises(ValueError, match="in X_val, y_val: X has 3 features"):
        estimator(**SMALL).fit(X, y, X_val=X[:, :3], y_val=y)
    with pytest.raises(ValueError, match=r"in X_val, y_val: .*inconsistent numbers of samples"):
        estimator(**SMALL).fit(X, y, X_val=X, y_val=y[:5])
    if estimator is ResidualTransformerClassifier:
        with pytest.raises(ValueError, match=r"not in the fitted classes: \[8\]"):
            estimator(**SMALL).fit(X, y, X_val=X, y_val=y + 7 * y)
