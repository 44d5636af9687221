"""The certificate: every step that descends keeps its bound, and what is said of the others."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from theoremproblems import N_PROBLEMS, ROUNDING, Problem, descent, measured

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    certify_linear_convergence,
)
from sklearn_restrans._training.descent import GradientDescent
from sklearn_restrans.diagnostics import constants
from sklearn_restrans.diagnostics.certificate import _certificate_of, _measured_path
from sklearn_restrans.diagnostics.constants import (
    kernel,
)

COLUMNS = (
    "loss gradient_norm step_size kappa alpha alpha_tangent bound contraction margin kappa_error "
    "status"
)

# Some of the problems have sequences of a single token.
pytestmark = pytest.mark.filterwarnings("ignore:X is read as")


@pytest.mark.parametrize("step", ["auto", 0.3, 1.0, 40.0])
def test_every_step_that_descends_keeps_its_bound_and_every_other_fails(step):
    """Steps of "auto", or of `step` / lambda_max(J J^T), each kind on a quarter of the problems.

    The path is descended again from the definition of Phi; of the certificate's own numbers only
    the step sizes enter the bound it is held against.
    """
    statuses = Counter()
    for k in range(["auto", 0.3, 1.0, 40.0].index(step), N_PROBLEMS, 4):
        problem, _, found, _ = measured()[k]
        size = step if step == "auto" else step / found.eigenvalues[0]
        estimator = problem.estimator.set_params(learning_rate_init=size)
        certificate = certify_linear_convergence(
            estimator, problem.X, problem.y, problem.weight, n_steps=2, tangent_kernel=True
        )
        frame = certificate.to_frame()
        assert " ".join(frame) == COLUMNS
        statuses.update(frame["status"])
        mu = frame["step_size"].to_numpy()
        assert step == "auto" or np.all(mu == size)
        loss, g2, alpha, tangent, largest = descent(Problem(k, perturbed=False), mu)
        before, after, g2 = loss[:-1], loss[1:], g2[:-1]
        kappa = 2 * (after - before + mu * g2) / (mu**2 * g2)
        bound = before * (1 - 2 * mu * (1 - mu * kappa / 2) * np.maximum(alpha, tangent)[:-1])
        down = after < before
        assert np.all(after <= bound + ROUNDING * before, where=down), estimator
        # What the certificate says of the path is what was found on it. Errors of a forward pass,
        # times at most 1e3 after a step of 40 / lambda_max.
        np.testing.assert_allclose([*frame["loss"], certificate.final_loss], loss, rtol=1e-11)
        np.testing.assert_allclose(frame["gradient_norm"] ** 2, g2, rtol=1e-10)
        for name, constant in (("alpha", alpha), ("alpha_tangent", tangent)):
            # Singular values are exact to a few eps of the largest, and rounded down.
            error = np.abs(np.sqrt(frame[name]) - np.sqrt(constant[:-1]))
            assert np.all(error <= 1e-11 * np.sqrt(largest[:-1])), (name, error)
        room = bound - after
        np.testing.assert_allclose(
            np.where(down, frame["margin"], 0), np.where(down, room, 0), atol=1e-9 * before[0]
        )
        assert (frame["status"] == "failed").tolist() == (~down).tolist()
        assert ("failed at step" in certificate.verdict) == (not down.all())
        assert math.isnan(certificate.product) == (not down.all())
        if certificate.certified:
            assert loss[-1] <= certificate.product * loss[0] * (1 + ROUNDING)
        if step == "auto":
            assert down.all() and np.all(np.diff(mu) <= 0)
    assert statuses["failed" if step == 40.0 else "certified"] >= 60, statuses


def planar(n, seed, n_outputs=1):
    """Sequences (n, 3, 2) and targets."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((n, n_outputs))
    return rng.standard_normal((n, 3, 2)), y if n_outputs > 1 else y[:, 0]


def model(**settings):
    settings = {"d_model": 4, "d_ff": 4, "learning_rate_init": "auto", "max_iter": 8} | settings
    return ResidualTransformerRegressor(solver="gd", random_state=0, **settings)


@pytest.mark.parametrize("step", ["auto", 0.01])
def test_the_path_is_that_of_fit_in_float64(step, seed):
    X, y = planar(9, seed)
    weight = np.random.default_rng(seed).uniform(0.5, 2, 9)
    estimator = model(learning_rate_init=step, activation="gelu", tol=0)
    frame = certify_linear_convergence(estimator, X, y, weight).to_frame()
    history = estimator.set_params(dtype="float64", device="cpu").fit(X, y, weight).history_
    np.testing.assert_array_equal(frame["loss"], history["train_loss"])
    np.testing.assert_array_equal(frame["gradient_norm"], history["gradient_norm"])
    np.testing.assert_array_equal(frame["step_size"], history["learning_rate"])
    # kappa of a step is known once the next was looked at
    np.testing.assert_allclose(frame["kappa"][:-1], history["kappa"].dropna(), rtol=1e-9)


def test_the_path_has_the_epochs_of_a_fit():
    X, y = planar(6, 0)
    assert len(certify_linear_convergence(model(max_iter="auto"), X, y).to_frame()) == 20
    assert len(certify_linear_convergence(model(), X, y).to_frame()) == 8


def test_the_path_does_not_depend_on_the_number_type_of_the_estimator(seed):
    X, y = planar(9, seed)
    frames = [
        certify_linear_convergence(model(dtype=dtype), X, y).to_frame()
        for dtype in ("float64", "float32", "bfloat16")
    ]
    for frame in frames[1:]:
        assert frame.equals(frames[0])


def test_steps_that_were_undone_are_not_part_of_the_path():
    """ReLU, beta = 0.25: kinks make 1 / (1.05 L) too long a few times in 30 steps."""
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((6, 3, 2)), rng.standard_normal(6)
    estimator = model(residual_beta=0.25).set_params(random_state=7, positions="learned")
    at = estimator.__restrans_objective__(X, y)
    descent = GradientDescent(at.objective, at.step_size, at.seed)
    undone = sum(descent.step().undone for _ in range(31))
    assert undone >= 3
    certificate = certify_linear_convergence(estimator, X, y, n_steps=30)
    frame = certificate.to_frame()
    assert certificate.certified and len(frame) == 30
    assert np.all(np.diff(np.append(frame["loss"], certificate.final_loss)) < 0)
    assert certificate.final_loss <= certificate.product * frame["loss"][0]


BLOCKS, TANGENT = " (by the blocks of W_U and the last W_2)", " (by the tangent kernel)"
W_U_ALONE = "block of W_U, the only one that a norm before a mean read-out leaves"
MAY = "; tangent_kernel=True may give a constant above 0"
VACUOUS = "vacuous because alpha = 0: "
POST, MEAN = {"norm": "post"}, {"norm": "post", "readout": "mean"}


@pytest.mark.parametrize(
    ("n", "settings", "tangent_kernel", "verdict"),
    [
        (6, {}, True, "certified at every step" + TANGENT),
        (6, {}, "auto", "certified at every step" + TANGENT),
        (6, {}, False, "certified at every step" + BLOCKS),
        (12, {}, False, f"{VACUOUS}N = 12 > d + m = 8{MAY}"),
        (12, {}, True, "certified at every step" + TANGENT),
        (6, POST, False, "certified at every step" + BLOCKS),
        (16, POST, True, "certified at every step" + TANGENT),
        (
            33,
            POST | {"d_ff": 1},
            False,
            f"{VACUOUS}the numerical rank of the blocks of W_U and the last W_2 is below N c = 33"
            + MAY,
        ),
        (3, MEAN, False, f"certified at every step (by the {W_U_ALONE})"),
        (  # at the start every normalised row sums to 0
            4,
            MEAN | {"max_iter": 1},
            False,
            f"{VACUOUS}the {W_U_ALONE}, gives none, as A has a numerical rank below N{MAY}",
        ),
        (12, MEAN, False, f"{VACUOUS}the {W_U_ALONE}, gives none, as N = 12 > d = 4{MAY}"),
        (12, MEAN, True, "certified at every step" + TANGENT),
        (
            80,
            {"d_model": 2, "d_ff": 2},
            True,
            f"{VACUOUS}the numerical rank of the tangent kernel is below N c = 80",
        ),
        (
            6,
            {"init": "zero_unembedding"},
            False,
            "certified at 7 of 8 steps from step 1; vacuous at 1 of 8 steps from step 0" + BLOCKS,
        ),
        (3, {"init": "zero_unembedding"}, False, "certified at every step" + BLOCKS),
    ],
)
def test_verdict(n, settings, tangent_kernel, verdict):
    X, y = planar(n, 0)
    estimator = model(activation="gelu", **settings)
    certificate = certify_linear_convergence(estimator, X, y, tangent_kernel=tangent_kernel)
    assert certificate.verdict == verdict
    assert certificate.certified == ("every step" in verdict)
    assert ("alpha_tangent" in certificate.to_frame()) == bool(tangent_kernel)
    assert f"{verdict}. Phi " in repr(certificate)
    assert f"N = {n}, c = 1, s = 2 / (N c) = {2 / n:.4g}" in repr(certificate)


def test_a_verdict_names_no_rank_deficit_that_does_not_exist():
    """With a norm before a mean read-out W_2 is left out, whatever the rank of its block is."""
    X, y = planar(12, 0)
    estimator = model(activation="gelu", norm="post", readout="mean", d_ff=16)
    objective = estimator.__restrans_objective__(X, y).objective
    (x, mask), _, _ = objective.data.batch(np.arange(12))
    weights = [objective.module.W_U, objective.module.layers[-1].W_2]
    outputs = objective.module(x, mask).flatten()
    rows = [torch.autograd.grad(f, weights, retain_graph=True) for f in outputs]
    blocks = np.stack([np.concatenate([g.numpy().ravel() for g in row]) for row in rows])
    assert np.linalg.matrix_rank(blocks) == 12
    verdict = certify_linear_convergence(estimator, X, y, tangent_kernel=False).verdict
    assert "N = 12 > d = 4" in verdict and "W_2" not in verdict and "rank" not in verdict


def test_a_verdict_says_so_where_a_bound_takes_the_place_of_alpha(monkeypatch):
    """Above N c = 2,000 a post norm's blocks are not decomposed together."""
    X, y = planar(6, 0)
    estimator = model(activation="gelu", norm="post")
    assert certify_linear_convergence(estimator, X, y, tangent_kernel=False).certified
    monkeypatch.setattr(constants, "MAX_KERNEL_ROWS", 5)
    verdict = certify_linear_convergence(estimator, X, y, tangent_kernel=False).verdict
    assert verdict == (
        f"{VACUOUS}with N c > 5 it is the bound lambda_min(A A^T) + lambda_min(H H^T) sigma^2, of "
        "matrices of at most d = 4 and m = 4 columns and N = 6 rows"
    )


@pytest.mark.parametrize("tangent_kernel", [True, False])
def test_the_share_of_the_measured_decrease_that_is_certified(tangent_kernel, seed):
    """Each bound against the decrease it bounds, from losses alone."""
    X, y = planar(6, seed)
    certificate = certify_linear_convergence(model(), X, y, tangent_kernel=tangent_kernel)
    loss = np.append(certificate.steps["loss"], certificate.final_loss)
    assert certificate.certified
    shares = (loss[:-1] - certificate.steps["bound"]) / -np.diff(loss)
    assert certificate.certified_share == pytest.approx(np.median(shares), rel=1e-6)
    assert 0 < certificate.certified_share < 1
    said = repr(certificate)
    assert "a posteriori (its kappa contains the next loss)" in said
    assert f"certifies {np.median(shares):.2%} of the measured decrease" in said


def test_without_a_certified_step_there_is_no_share():
    certificate = certify_linear_convergence(model(), *planar(12, 0), tangent_kernel=False)
    assert math.isnan(certificate.certified_share) and "nan%" not in repr(certificate)


def test_the_kernel_is_measured_at_every_step_where_that_is_cheap():
    for n, measured_too in [(100, True), (101, False)]:
        certificate = certify_linear_convergence(model(), *planar(n, 0, 2), n_steps=1)
        assert ("alpha_tangent" in certificate.to_frame()) == measured_too


@pytest.mark.parametrize("n", [2, 3])
def test_the_certificate_holds_down_to_rounding_and_says_where_it_ends(n):
    X, y = planar(n, 0)
    estimator = model(activation="tanh", d_model=16, d_ff=16, positions="learned")
    certificate = certify_linear_convergence(estimator, X, y, n_steps=420, tangent_kernel=False)
    frame = certificate.to_frame()
    certified = (frame["status"] == "certified").to_numpy()
    end = int(np.argmin(certified))
    assert set(frame["status"]) == {"certified", "below rounding"} and certified[:end].all()
    assert frame["loss"][end] < 1e-25 * frame["loss"][0]
    assert frame["loss"][end] <= certificate.product * frame["loss"][0]
    assert f"below rounding at {sum(~certified)} of 420 steps from step {end}" in repr(certificate)


@pytest.mark.parametrize("size", [6.0, 30.0, 1e8, 1e25])
def test_a_step_that_is_too_long_fails(size):
    X, y = planar(6, 0)
    found = kernel(model(activation="gelu").__restrans_objective__(X, y).objective)
    step = size / found.eigenvalues[0]
    certificate = certify_linear_convergence(model(learning_rate_init=step), X, y)
    assert certificate.verdict.startswith("failed at step "), certificate
    assert math.isnan(certificate.product) and not certificate.certified
    assert "nan certified" in repr(certificate)


def test_a_loss_that_overflows_fails():
    """Rows that are finite but for where the path ends."""

    class Overflowing(GradientDescent):
        def look(self):
            step = super().look()
            return step._replace(loss=np.inf) if len(self.losses) == 4 else step

    descent = Overflowing(model().__restrans_objective__(*planar(6, 0)).objective, 1e-3, 0)
    path = _measured_path(descent, 9, False)
    assert len(path) == 3
    descent.losses[-1] = np.inf
    certificate = _certificate_of(path, descent, False)
    assert certificate.verdict == "failed at step 2: the loss is not finite after it"
    assert math.isnan(certificate.product)


def test_the_estimator_and_the_state_of_torch_stay_as_they_were():
    estimator = model(dtype="float32")
    before, state = dict(vars(estimator)), torch.get_rng_state()
    certify_linear_convergence(estimator, *planar(6, 0), n_steps=1)
    assert vars(estimator) == before
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == 1


def certify(n=6, n_outputs=1, X=None, y=None, options=None, **settings):
    data = planar(n, 0, n_outputs)
    X, y = data[0] if X is None else X, data[1] if y is None else y
    return certify_linear_convergence(model().set_params(**settings), X, y, **options or {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: certify(solver="adamw"), ValueError, "gradient descent, got solver='adamw'"),
        (lambda: certify(loss="huber"), ValueError, "the squared error, got loss='huber'"),
        (
            lambda: certify(early_stopping=True),
            ValueError,
            "early_stopping=True sets some of them aside",
        ),
        (lambda: certify(dropout=0.1), ValueError, "dropout must be 0, got 0.1"),
        (lambda: certify(weight_decay=0.1), ValueError, "weight_decay must be 0, got 0.1"),
        (lambda: certify(learning_rate="one_cycle"), ValueError, "takes one step size"),
        (lambda: certify(d_model=-3), ValueError, "'d_model' parameter .* must be an int"),
        (lambda: certify(learning_rate_init=1e300), ValueError, "not finite after the first step"),
        (
            lambda: certify(n=1001, n_outputs=2, options={"tangent_kernel": True}),
            ValueError,
            r"N c = 2,002 rows, but at most 2,000 .* pass fewer rows, or tangent_kernel=False",
        ),
        (lambda: certify(y=np.ones(5)), ValueError, "inconsistent numbers of samples: "),
        (lambda: certify(X=np.ones((6, 2, 2, 2))), ValueError, "X has 4 axes"),
        (lambda: certify(y=np.full(6, np.nan)), ValueError, "Input y contains NaN"),
        (lambda: certify(options={"n_steps": 0}), ValueError, "n_steps must be .* got 0"),
        (lambda: certify(options={"n_steps": True}), ValueError, "n_steps must be .* got True"),
        (lambda: certify(options={"tangent_kernel": "no"}), ValueError, "tangent_kernel .* 'no'"),
        (
            lambda: certify_linear_convergence(make_pipeline(model()), *planar(6, 0)),
            TypeError,
            "got Pipeline; of a Pipeline pass the last step",
        ),
        (
            lambda: certify_linear_convergence(
                ResidualTransformerClassifier(solver="gd"), np.eye(4), [0, 1, 0, 1]
            ),
            ValueError,
            "got loss='log_loss': set loss='squared_error' .of a classifier: to one-hot targets",
        ),
    ],
)
def test_what_the_certificate_does_not_cover_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- Gauss-Newton steps ------------------------------------------------------------------------


def gauss_newton(seed, beta=1.0, **settings):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((15, 5, 3)), rng.standard_normal((15, 2))
    model = ResidualTransformerRegressor(
        beta, solver="gauss_newton", random_state=seed, n_iter_no_change=10**6, **settings
    )
    return model, X, y


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_gauss_newton_steps_keep_their_bound(beta, norm, seed):
    """The bound, from the frame's own columns, and the path that fit takes."""
    model, X, y = gauss_newton(seed, beta, norm=norm, max_iter=12)
    certificate = certify_linear_convergence(model, X, y)
    frame = certificate.to_frame()
    after = np.append(frame["loss"][1:], certificate.final_loss)
    left = frame["damping"] / (frame["damping"] + frame["lambda_min"]) + frame["remainder"]
    np.testing.assert_allclose(frame["bound"], left**2 * frame["loss"], rtol=1e-12)
    assert (after <= frame["bound"] * (1 + 1e-12)).all()
    assert ((left**2 < 1) == (frame["status"] == "certified")).all()
    certified = (frame["status"] == "certified").any()
    assert certified or not beta, "the last steps are nearly exact"
    assert np.isnan(certificate.certified_share) or 0 < certificate.certified_share <= 1
    assert ("its remainder contains the next loss" in repr(certificate)) == certified
    curve = model.fit(X, y).convergence_
    # Two ways to the same Jacobian products differ in their rounding, which steps multiply.
    np.testing.assert_allclose(frame["loss"][:4], curve.loss[:4], rtol=1e-6)


def test_the_smallest_eigenvalue_is_that_of_the_start(seed):
    model, X, y = gauss_newton(seed, max_iter=1)
    found = certify_linear_convergence(model, X, y).to_frame()["lambda_min"][0]
    kernel = constants.kernel(model.__restrans_objective__(X, y, None).objective)
    assert found == pytest.approx(kernel.eigenvalues[-1], rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "named", "message"),
    [
        ({"weight_decay": 0.1}, {}, "weight_decay must be 0, got 0.1"),
        ({}, {"tangent_kernel": False}, "certified by the tangent kernel alone"),
    ],
)
def test_what_has_no_bound_of_gauss_newton_is_refused(settings, named, message):
    model, X, y = gauss_newton(0, **settings)
    with pytest.raises(ValueError, match=message):
        certify_linear_convergence(model, X, y, **named)


def test_nothing_to_descend_is_said():
    model, X, _ = gauss_newton(0)
    with pytest.raises(ValueError, match="no Gauss-Newton step lowers the loss"):
        certify_linear_convergence(model.set_params(init="zero_unembedding"), X, np.zeros(15))
