"""What a fit records of its convergence, what is predicted of it, and which beta is suggested."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from smallmodels import table

from sklearn_restrans import (
    Convergence,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    certify_linear_convergence,
    linearized_prediction,
    make_convergence_scorer,
    suggest_residual_beta,
)
from sklearn_restrans._descent import smooth_step
from sklearn_restrans.convergence import ResidualBetaSuggestion

EPOCHS = np.arange(1.0, 101.0)


def gradients(norm, epochs=EPOCHS, loss=1.0):
    """Records (epoch, Phi, ||grad Phi||)."""
    return np.column_stack(np.broadcast_arrays(epochs, loss, norm))


# ---- Convergence ------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_rate_and_contraction_of_an_exponential(rate):
    curve = Convergence(3 * np.exp(-rate * EPOCHS), np.full(100, 0.1))
    assert curve.rate == pytest.approx(rate, rel=1e-12)
    assert curve.contraction == pytest.approx(math.exp(-rate), rel=1e-12)
    np.testing.assert_allclose(curve.relative_loss, np.exp(-rate * (EPOCHS - 1)), rtol=1e-12)
    assert curve.epochs_to(curve.loss[40]) == 41.0
    assert curve.epochs_to(0.0) == math.inf


def test_a_curve_without_a_rate():
    assert math.isnan(Convergence([1.0], [0.1]).rate)
    assert math.isnan(Convergence([1.0, 0.0], [0.1, 0.1]).contraction)
    assert np.isnan(Convergence([0.0, 0.0], [0.1, 0.1]).relative_loss).all()
    assert repr(Convergence([], [])) == "Convergence(no epoch)"


@pytest.mark.parametrize("limit", [0.0, 0.7])
@pytest.mark.parametrize("spacing", [1, 5])
def test_the_local_rate_needs_no_limit(limit, spacing):
    """Phi = limit + exp(-r t), of a quadratic, has ||grad Phi||^2 proportional to exp(-r t)."""
    loss, epochs = limit + np.exp(-0.1 * EPOCHS), EPOCHS[::spacing]
    records = gradients(np.exp(-0.05 * epochs), epochs)
    curve = Convergence(loss, loss, gradients=records)
    found = curve.local_rate()
    assert found[:3] == pytest.approx([0.1] * 3, rel=1e-10)
    assert (found.start, found.stop) == (epochs[len(epochs) // 2], epochs[-1])
    assert curve.local_rate(11, 51)[3:] == (11, 51)
    assert curve.get("local_rate") == found.rate
    words = f"on epochs {found.start} to {found.stop} ||grad Phi||^2 changes by a factor of 0.9048"
    assert words in repr(curve) and "(0.9048 and 0.9048 in the halves)" in repr(curve)


def test_the_halves_are_the_range_of_the_local_rate():
    """Two exponentials: the fast one dominates the first half."""
    norm = np.hypot(np.exp(-0.15 * EPOCHS), 0.03 * np.exp(-0.05 * EPOCHS))
    found = Convergence(norm, norm, gradients=gradients(norm)).local_rate(1, 100)
    assert 0.1 <= found.second_half < found.rate < found.first_half <= 0.3


def test_a_last_record_out_of_line_is_left_out():
    """Every fifth epoch, and the one whose weights were kept."""
    epochs = np.array([0, 5, 10, 15, 20, 25, 22])
    curve = Convergence(epochs, epochs, gradients=gradients(np.exp(-0.05 * epochs), epochs))
    found = curve.local_rate()
    assert found.rate == pytest.approx(0.1) and (found.start, found.stop) == (0, 25)


@pytest.mark.parametrize("norm", [[1.0, 0.5, 0.2], [1.0, 0.0, 0.5, 0.0, 0.1]])
def test_a_local_rate_of_three_records_is_refused(norm):
    curve = Convergence([1.0] * 5, [1.0] * 5, gradients=gradients(norm, np.arange(len(norm))))
    with pytest.raises(ValueError, match="the gradient at 4 epochs at least"):
        curve.local_rate()
    assert math.isnan(curve.get("local_rate")) and "||grad" not in repr(curve)


def test_get_returns_the_last_of_a_curve():
    records = gradients([4.0, 2.0], [1, 2], loss=[4.0, 0.5])
    curve = Convergence([4.0, 1.0], [0.1, 0.1], gradients=records)
    expected = {"rate": math.log(4), "contraction": 0.25, "final_loss": 1.0}
    expected |= {"relative_loss": 0.25, "pl_ratio": 2.0**2 / (2 * 0.5)}
    for quantity, value in expected.items():
        assert curve.get(quantity) == pytest.approx(value, rel=1e-12)
    assert curve.get("epochs_to", loss=1.0) == 2.0
    assert math.isnan(Convergence([4.0], [0.1]).get("pl_ratio"))


@pytest.mark.parametrize("args", [("speed",), ("epochs_to",), ("rate", 0.5), ("local_rate", 0.5)])
def test_get_refuses_what_it_does_not_know(args):
    with pytest.raises(ValueError, match=f"quantity.*{args[0]}"):
        Convergence([1.0], [0.1]).get(*args)


# ---- what fit records -------------------------------------------------------------------------


def small(cls=ResidualTransformerRegressor, **settings):
    settings = {"d_model": 8, "max_iter": 6, "random_state": 0, "tol": 0} | settings
    return cls(dtype="float64", device="cpu", **settings)


def gd(cls=ResidualTransformerRegressor, **settings):
    return small(
        cls, solver="gd", loss="squared_error", **{"learning_rate_init": "auto"} | settings
    )


@pytest.mark.parametrize("cls", [ResidualTransformerRegressor, ResidualTransformerClassifier])
def test_gradient_descent_records_loss_and_gradient_at_every_epoch(cls):
    X, y = table(cls)
    model = gd(cls)
    objective = model.__restrans_objective__(X, y).objective
    phi, gradient = objective.gradient()
    curve = model.fit(X, y).convergence_
    square = sum((g**2).sum().item() for g in gradient)
    assert curve.loss[0] == pytest.approx(phi, rel=1e-12), "Phi_0 is at the weights of the start"
    assert curve.gradient_norm[0] == pytest.approx(math.sqrt(square), rel=1e-12)
    assert curve.scale == 2 / (60 * objective.module.arch.n_outputs)
    np.testing.assert_array_equal(curve.gradient_epochs, curve.epochs)
    np.testing.assert_array_equal(curve.gradient_loss, curve.loss)
    np.testing.assert_array_equal(curve.pl_ratio, curve.gradient_norm**2 / (2 * curve.loss))
    frame = curve.to_frame()
    columns = ["loss", "relative_loss", "learning_rate", "gradient_norm", "pl_ratio"]
    assert frame.columns.tolist() == columns and frame.index.name == "epoch"
    assert frame.notna().all(axis=None)


def test_the_realised_pl_ratio_is_above_the_constant():
    X, y = table(ResidualTransformerRegressor, n=25)
    model = gd(max_iter=12)
    certificate = certify_linear_convergence(model, X, y)
    ratio = model.fit(X, y).convergence_.pl_ratio
    assert certificate.certified
    assert np.all(ratio >= certificate.to_frame()["alpha_tangent"])


@pytest.mark.parametrize("settings", [{}, {"dropout": 0.5}, {"solver": "sgd"}])
@pytest.mark.parametrize(("interval", "epochs"), [(None, [0, 6]), (2, [0, 2, 4, 6])])
def test_other_solvers_record_the_gradient_of_the_probe(interval, epochs, settings):
    X, y = table(ResidualTransformerRegressor, n=100)
    plain = small(**settings).fit(X, y)
    model = small(conditioning_interval=interval, conditioning_samples=30, **settings).fit(X, y)
    curve = model.convergence_
    np.testing.assert_array_equal(curve.gradient_epochs, epochs)
    np.testing.assert_array_equal(curve.gradient_epochs, model.conditioning_.epochs)
    # The rows, and the final weights, by hand; dropout is off.
    at = model.__restrans_objective__(X, y)
    start, seed = at.objective, at.seed
    rows = np.sort(np.random.default_rng(seed).permutation(100)[:30])
    (x, mask), target, _ = start.data.batch(rows)
    module = model.net_.module_
    phi = (module(x, mask) - target).square().mean()
    gradient = torch.autograd.grad(phi, list(module.parameters()))
    assert curve.gradient_loss[-1] == pytest.approx(phi.item(), rel=1e-12)
    square = sum((g**2).sum().item() for g in gradient)
    assert curve.gradient_norm[-1] == pytest.approx(math.sqrt(square), rel=1e-12)
    # Looking does not change what is looked at.
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    norms = curve.to_frame()["gradient_norm"]
    assert norms.notna().tolist() == [epoch in epochs for epoch in range(1, 7)]


def test_a_fit_to_classes_has_no_scale_and_a_validation_loss():
    X, y = table(ResidualTransformerClassifier)
    model = small(ResidualTransformerClassifier).fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    curve = model.convergence_
    assert curve.scale is None and np.isfinite(curve.pl_ratio).all()
    expected = (-np.array(model.validation_scores_)).tolist()
    assert curve.to_frame()["validation_loss"].tolist() == expected


def test_warm_start_goes_on_counting():
    X, y = table(ResidualTransformerRegressor)
    model = gd(warm_start=True).fit(X, y).fit(X, y)
    curve = model.convergence_
    np.testing.assert_array_equal(curve.gradient_epochs, np.arange(1, 13))
    mixed = small(warm_start=True).fit(X, y).set_params(solver="gd", learning_rate_init="auto")
    np.testing.assert_array_equal(mixed.fit(X, y).convergence_.gradient_epochs, np.arange(7, 13))


def test_the_record_survives_pickling_and_feeds_scorers():
    X, y = table(ResidualTransformerRegressor)
    model = gd(max_iter=20).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert again.convergence_.to_frame().equals(model.convergence_.to_frame())
    for quantity in ("rate", "local_rate", "relative_loss", "pl_ratio", "final_loss"):
        value = model.convergence_.get(quantity)
        assert make_convergence_scorer(quantity)(model) == value
        assert make_convergence_scorer(f"neg_{quantity}")(model) == -value


# ---- the linearised prediction ----------------------------------------------------------------


def sequences(n, seed, n_outputs=1):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((n, n_outputs))
    return rng.standard_normal((n, 4, 2)), y if n_outputs > 1 else y[:, 0]


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


# ---- choosing beta ----------------------------------------------------------------------------

BETAS = [0.0, 0.5, 2.0]


def seeds_of(model, n_seeds):
    return np.random.default_rng(model._draw_seed()).integers(2**31 - 1, size=n_seeds)


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
    with pytest.raises(ValueError, match="at every beta with step=1000"):
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
