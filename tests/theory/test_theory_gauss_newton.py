"""The bound of a damped Gauss-Newton step holds for every model, and is sharp for a linear one."""

import math

import numpy as np
import pytest

from sklearn_restrans.theory import gauss_newton_certificate, gauss_newton_contraction


def step(A, rho, damping):
    """delta = -A^T (A A^T + lambda I)^-1 rho."""
    return -A.T @ np.linalg.solve(A @ A.T + damping * np.eye(len(A)), rho)


def test_the_bound_holds_on_a_model_that_is_not_linear(seed):
    """rho(theta) = tanh(A theta) - y, with the remainder measured as the definition has it."""
    rng = np.random.default_rng(seed)
    for _ in range(50):
        n = rng.integers(2, 8)
        W, y, theta = rng.standard_normal((n, 12)) / 3, rng.uniform(-0.9, 0.9, n), np.zeros(12)
        damping = 10 ** rng.uniform(-8, 1)
        rho = np.tanh(W @ theta) - y
        A = (1 - np.tanh(W @ theta) ** 2)[:, None] * W
        delta = step(A, rho, damping)
        after = np.tanh(W @ (theta + delta)) - y
        remainder = np.linalg.norm(after - rho - A @ delta) / np.linalg.norm(rho)
        smallest = np.linalg.eigvalsh(A @ A.T)[0]
        factor = gauss_newton_contraction(smallest, damping, remainder)
        assert after @ after <= factor * (rho @ rho) * (1 + 1e-12)


def test_it_is_reached_by_the_slowest_mode_of_a_linear_model(seed):
    rng = np.random.default_rng(seed)
    U, _, Vt = np.linalg.svd(rng.standard_normal((4, 9)), full_matrices=False)
    s = np.array([3.0, 2.0, 1.0, 0.5])
    A, rho = U * s @ Vt, U[:, 3]
    after = rho + A @ step(A, rho, 0.1)
    assert after @ after == pytest.approx(gauss_newton_contraction(0.25, 0.1, 0.0), rel=1e-12)


def test_without_damping_all_or_nothing_is_left():
    assert gauss_newton_contraction(1.0, 0.0, 0.0) == 0.0
    assert gauss_newton_contraction(0.0, 0.0, 0.0) == 1.0  # a singular kernel certifies nothing
    assert gauss_newton_contraction(0.0, 2.0, 0.0) == 1.0


def test_a_path_says_which_of_its_steps_are_certified():
    frame, product, _ = gauss_newton_certificate(
        [1.0, 0.5, 0.004], [1.0, 0.1], [1.0, 0.9], [0.6, 0.0]
    )
    assert frame["status"].tolist() == ["vacuous", "certified"]
    np.testing.assert_allclose(frame["contraction"], [1.1**2, 0.1**2])
    np.testing.assert_allclose(frame["margin"], [1.21 - 0.5, 0.005 - 0.004], atol=1e-15)
    assert product == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (([4.0, 1.0], [1.0], [1.0], [0.0]), "certified at every step"),
        (([4.0, 1.0], [1.0], [0.0], [0.0]), "vacuous at every step"),
        (([4.0, 3.9], [1.0], [1.0], [0.0]), "failed at step 0"),
        (([4.0, 1.0, 0.9], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0]), "certified at 1 of 2 steps"),
    ],
)
def test_verdicts(arguments, verdict):
    _, product, found = gauss_newton_certificate(*arguments)
    assert found.startswith(verdict)
    assert math.isnan(product) == ("failed" in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([4.0, 1.0], [1.0, 1.0], [1.0], [0.0]), "must hold one value more"),
        (([4.0], [], [], []), "must hold one value more"),
        (([4.0, 1.0], [-1.0], [1.0], [0.0]), "damping"),
        (([4.0, np.nan], [1.0], [1.0], [0.0]), "loss"),
    ],
)
def test_bad_paths_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gauss_newton_certificate(*arguments)
