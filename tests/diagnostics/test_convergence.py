"""What a fit records of its convergence."""

import math
import pickle

import numpy as np
import pytest
import torch
from descentmodels import gd, small
from smallmodels import table

from sklearn_restrans import (
    Convergence,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    certify_linear_convergence,
    make_convergence_scorer,
)

EPOCHS = np.arange(1.0, 101.0)


def gradients(norm, epochs=EPOCHS, loss=1.0):
    """Records (epoch, Phi, ||grad Phi||)."""
    return np.column_stack(np.broadcast_arrays(epochs, loss, norm))


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
    with pytest.raises(ValueError, match="the gradient at 4 or more equally spaced epochs, and"):
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
    columns = ["loss", "relative_loss", "learning_rate", "kappa", "largest_curvature", "undone"]
    columns += ["gradient_norm", "pl_ratio"]
    assert frame.columns.tolist() == columns and frame.index.name == "epoch"
    assert frame.drop(columns="kappa").notna().all(axis=None)
    assert frame["kappa"].isna().tolist() == [False] * (len(frame) - 1) + [True]


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
