"""The linearised loss, and the beta it suggests."""

import numpy as np
import pandas as pd
import pytest
import torch
from descentmodels import gd, sequences, small
from sklearn.exceptions import NotFittedError
from smallmodels import table

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    linearized_prediction,
    suggest_residual_beta,
)
from sklearn_restrans._estimators.parameters import draw_seed
from sklearn_restrans._training.descent import smooth_step
from sklearn_restrans.convergence import ResidualBetaSuggestion


def dense(objective):
    """J and F - Y of an objective, row by row."""
    (x, mask), target, _ = objective.data.batch(np.arange(len(objective.data)))
    F = objective.module(x, mask)
    rows = [torch.autograd.grad(f, objective.parameters, retain_graph=True) for f in F.flatten()]
    J = np.stack([np.concatenate([g.numpy().ravel() for g in row]) for row in rows])
    return J, (F.detach() - target).numpy().ravel()


@pytest.mark.parametrize("step", ["own", 0.02])
def test_the_prediction_is_descent_on_the_linear_model(step, seed):
    X, y = sequences(8, seed, n_outputs=2)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 8)
    model = gd(activation="gelu")
    prediction = linearized_prediction(model, X, y, weight, stage="initial", n_steps=50, step=step)
    at = model.__restrans_objective__(X, y, weight)
    objective, start = at.objective, at.seed
    own = smooth_step(objective, start)
    assert prediction.step_size == (own if step == "own" else step)
    J, residual = dense(objective)
    w, losses = np.repeat(weight / weight.mean(), 2) / 8, []  # s w_i, s = 2 / (8 * 2)
    for _ in range(51):
        losses.append(w @ residual**2 / 2)
        residual = residual - prediction.step_size * J @ (J.T @ (w * residual))
    np.testing.assert_allclose(prediction.loss, losses, rtol=1e-8)
    np.testing.assert_array_equal(prediction.at([0, 50]), prediction.loss[[0, 50]])
    assert prediction.at(np.inf) == prediction.limit
    assert prediction.to_frame()["loss"].tolist() == prediction.loss.tolist()


def test_the_prediction_holds_to_first_order(seed):
    """One step of descent: the error falls with the square of the step."""
    X, y = sequences(10, seed)
    model, errors = gd(activation="tanh", max_iter=2), []
    for step in (1e-3, 1e-4):
        predicted = linearized_prediction(model, X, y, stage="initial", n_steps=1, step=step).loss
        loss = model.set_params(learning_rate_init=step).fit(X, y).loss_curve_
        assert predicted[0] == pytest.approx(loss[0], rel=1e-12)
        errors.append(abs(predicted[1] - loss[1]))
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.1)


def test_the_limit_is_what_no_weights_can_explain(seed):
    """The same sequences twice with other targets: half the difference stays."""
    X, y = sequences(6, seed)
    _, other = sequences(6, seed + 1)
    model = gd(d_model=16)
    twice = np.concatenate([y, other])
    prediction = linearized_prediction(model, np.concatenate([X, X]), twice, stage="initial")
    stays = np.mean(((y - other) / 2) ** 2) / twice.var()
    assert prediction.rank == 6
    assert prediction.limit == pytest.approx(stays, rel=1e-9)
    assert "limit" in repr(prediction) and "J has rank 6 of N c = 12" in repr(prediction)


@pytest.mark.parametrize("solver", ["adamw", "gd", "dropout"])
@pytest.mark.parametrize("cls", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_the_prediction_goes_on_from_the_fitted_weights(cls, solver):
    X, y = table(cls, n=40)
    model = small(cls, solver="adamw", loss="squared_error", learning_rate_init=0.02)
    model.set_params(**{"dropout": 0.5} if solver == "dropout" else {"solver": solver}).fit(X, y)
    prediction = linearized_prediction(model, X, y)
    targets = np.eye(2)[y] if cls is ResidualTransformerClassifier else (y - y.mean()) / y.std()
    outputs = model._outputs(X).reshape(targets.shape)
    assert prediction.loss[0] == pytest.approx(np.mean((outputs - targets) ** 2), rel=1e-12)
    assert np.all(np.diff(prediction.loss) < 0) and prediction.limit < prediction.loss[-1]


BETAS = [0.0, 0.5, 2.0]


def seeds_of(model, n_seeds):
    return np.random.default_rng(draw_seed(model.random_state)).integers(2**31 - 1, size=n_seeds)


@pytest.mark.parametrize("step", ["own", 1e-3])
def test_the_pilot_score_is_the_loss_of_a_fit(step):
    X, y = sequences(20, 0)
    model = gd(max_iter=9, learning_rate_init="auto" if step == "own" else step)
    suggestion = suggest_residual_beta(model, X, y, BETAS, "pilot", n_steps=8, n_seeds=2, step=step)
    frame, logs, seeds = suggestion.to_frame(), np.empty((3, 2, 2)), seeds_of(model, 2)
    for i, beta in enumerate(BETAS):
        for j, random_state in enumerate(seeds):
            model.set_params(residual_beta=beta, random_state=int(random_state))
            loss = model.fit(X, y).loss_curve_
            logs[i, j] = np.log10([loss[8], loss[8] / loss[0]])
    expected = logs.mean(axis=1)
    np.testing.assert_allclose(frame[["score", "relative_score"]], expected, rtol=1e-9)
    np.testing.assert_allclose(frame["std"], logs[..., 0].std(axis=1), rtol=1e-7)
    assert suggestion.best_ == BETAS[int(np.argmin(expected[:, 0]))]


def test_the_linearized_score_is_the_prediction_at_the_start():
    X, y = sequences(12, 0)
    model = gd(max_iter=30)
    frame = suggest_residual_beta(model, X, y, BETAS, n_seeds=2).to_frame()
    for beta, row in zip(BETAS, frame.itertuples(), strict=True):
        predictions = [
            linearized_prediction(
                gd(residual_beta=beta, random_state=int(random_state)),
                X,
                y,
                stage="initial",
                n_steps=30,
            )
            for random_state in seeds_of(model, 2)
        ]
        logs = [np.log10(p.loss[30]) for p in predictions]
        assert row.score == pytest.approx(np.mean(logs), rel=1e-12)
        assert row.step_size == pytest.approx(np.mean([p.step_size for p in predictions]))


@pytest.mark.parametrize(("epochs", "n_steps"), [("auto", 20), (7, 7)])
def test_the_linearized_score_is_taken_after_the_epochs_of_a_fit(epochs, n_steps):
    model = gd(max_iter=epochs)
    assert suggest_residual_beta(model, *sequences(12, 0), BETAS, n_seeds=1).n_steps == n_steps


def test_equal_starts_give_equal_orders_of_the_two_scores():
    X, y = sequences(12, 0)
    model = gd(init="zero_unembedding")
    frame = suggest_residual_beta(model, X, y, BETAS, n_steps=40, n_seeds=2).to_frame()
    # log10 Phi_0 = 0: targets have variance 1
    np.testing.assert_allclose(frame["score"], frame["relative_score"], atol=1e-12)


@pytest.mark.parametrize("method", ["linearized", "pilot"])
def test_a_beta_that_diverges_is_not_suggested(method):
    X, y = sequences(12, 0)
    options = {"n_steps": 300, "n_seeds": 2, "step": 0.03}
    suggestion = suggest_residual_beta(gd(), X, y, [0.25, 30.0], method, **options)
    assert suggestion.best_ == 0.25 and suggestion.ties_ == []
    assert suggestion.to_frame()["score"].iloc[1] > 2
    with pytest.raises(
        ValueError, match=r"with step=1000\.0 gradient descent diverges at every beta"
    ):
        suggest_residual_beta(gd(), X, y, [0.25, 30.0], method, **options | {"step": 1000.0})


def test_a_loss_of_zero_has_a_finite_score():
    """log10 of the rounding of the outputs: eps^2, and targets have variance 1."""
    X, y = sequences(6, 0)
    frame = suggest_residual_beta(gd(), X, y, BETAS, n_steps=10**9, n_seeds=1).to_frame()
    np.testing.assert_allclose(frame["score"], 2 * np.log10(np.finfo(float).eps), rtol=1e-12)


def test_any_value_of_residual_beta_can_be_compared():
    X, y = sequences(12, 0)
    betas = [(0.0, 1.0), (1.0, 1.0), np.array([[0.5, 0.5]])]
    suggestion = suggest_residual_beta(gd(), X, y, betas, n_seeds=1)
    assert [suggestion.to_frame()["residual_beta"][i] is betas[i] for i in range(3)] == [True] * 3
    assert f"residual_beta = {suggestion.best_} should" in repr(suggestion)


def test_a_part_of_the_rows_can_be_drawn():
    X, y = sequences(2001, 0)
    with pytest.raises(ValueError, match=r"N c = 2,001 rows.* pass n_rows .* or method='pilot'"):
        suggest_residual_beta(gd(), X, y, BETAS)
    whole = suggest_residual_beta(gd(), X[:30], y[:30], BETAS, n_seeds=1).to_frame()
    assert suggest_residual_beta(gd(), X, y, BETAS, n_seeds=1, n_rows=30).scores.shape == (3, 5)
    # as many as there are
    same = suggest_residual_beta(gd(), X[:30], y[:30], BETAS, n_seeds=1, n_rows=99).to_frame()
    assert same.equals(whole)


def test_ties_are_stated():
    scores = {"residual_beta": BETAS, "score": [-1.0, -1.05, -0.9]}
    frame = linear_scores(scores)
    said = repr(frame)
    assert (frame.best_, frame.ties_) == (0.5, [0.0])
    assert "residual_beta = 0.5 should" in said and "within 0.1 decade of it: 0.0" in said
    alone = linear_scores(scores | {"score": [-1.0, -2.0, -1.0]})
    assert alone.ties_ == [] and "no other within 0.1 decade" in repr(alone)


def linear_scores(scores):
    frame = pd.DataFrame(scores)
    return ResidualBetaSuggestion(frame, "linearized", n_steps=9, n_seeds=2, step="own")


def test_the_estimator_stays_as_it_was():
    X, y = sequences(12, 0)
    model = gd()
    before, state = dict(vars(model)), torch.get_rng_state()
    suggest_residual_beta(model, X, y, BETAS, n_seeds=1)
    linearized_prediction(model, X, y, stage="initial")
    assert vars(model) == before and torch.equal(torch.get_rng_state(), state)


X6, Y6 = sequences(6, 0)


def predict(X=X6, y=Y6, estimator=None, **options):
    estimator = gd() if estimator is None else estimator
    return linearized_prediction(estimator, X, y, **{"stage": "initial"} | options)


def suggest(betas=BETAS, estimator=None, **options):
    return suggest_residual_beta(gd() if estimator is None else estimator, X6, Y6, betas, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: predict(stage="final"), NotFittedError, "not fitted"),
        (lambda: predict(stage="middle"), ValueError, "'final' or 'initial', got 'middle'"),
        (lambda: predict(step=0.0), ValueError, "step must be 'own', .* got 0.0"),
        (lambda: predict(step="auto"), ValueError, "step must be 'own', .* got 'auto'"),
        (lambda: predict(n_steps=-1), ValueError, "n_steps must be .* got -1"),
        (lambda: predict(estimator="ridge"), TypeError, "got str"),
        (lambda: predict(estimator=small(loss="huber")), ValueError, "got loss='huber'"),
        (lambda: predict(*sequences(2001, 0)), ValueError, "N c = 2,001 rows"),
        (lambda: predict(y=Y6[:5]), ValueError, "inconsistent numbers of samples"),
        (lambda: suggest(estimator=small()), ValueError, "got solver='adamw'"),
        (lambda: suggest(estimator=gd(early_stopping=True)), ValueError, "early_stopping=True"),
        (lambda: suggest(method="guess"), ValueError, "'linearized' or 'pilot', got 'guess'"),
        (lambda: suggest([]), ValueError, "betas is empty"),
        (
            lambda: suggest([0.5, 0.5]),
            ValueError,
            "betas must differ from each other, got 0.5 twice",
        ),
        (lambda: suggest([0, -0.0]), ValueError, "betas must differ from each other"),
        (lambda: suggest([0.5, (0.5, 0.5)]), ValueError, "betas must differ from each other"),
        (
            lambda: suggest([-1]),
            ValueError,
            "betas must hold values of residual_beta.*got -1 among",
        ),
        (lambda: suggest(["a"]), ValueError, "betas must hold values of .*got 'a' among them"),
        (lambda: suggest(None), ValueError, "betas must hold values of .*got None among them"),
        (lambda: suggest([1, [0.5]]), ValueError, "betas must hold values of .*got .0.5. among"),
        (lambda: suggest([True]), ValueError, "betas must hold values of .*got True among them"),
        (lambda: suggest([-1.0]), ValueError, "residual_beta"),
        (lambda: suggest(n_seeds=0), ValueError, "n_seeds must be .* got 0"),
        (lambda: suggest(n_rows=0.5), ValueError, "n_rows must be .* got 0.5"),
        (lambda: suggest(estimator=gd(dropout=0.5)), ValueError, "dropout must be 0"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call()
