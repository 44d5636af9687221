"""The certificate: descent on an estimator's loss, with a bound on every step it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import clone

from .. import theory
from .._training.descent import GradientDescent
from .._training.device import own_threads
from .._training.gauss_newton import GaussNewton
from .._validation import check_integer
from . import constants
from .constants import check_estimator, check_kernel_size

# N c up to which the tangent kernel is measured at every step unless the caller says otherwise. At
# this size a step takes 0.1 s with d_model = 32.
_KERNEL_EVERY_STEP = 200


@dataclass(frozen=True, eq=False, repr=False)
class LinearConvergenceCertificate:
    """Descent on one problem with a bound on every step, all in float64.

    The bounds are a posteriori: the curvature kappa_t of a step is known once the loss after it is,
    so they explain steps that were taken and predict none. What they add to the measured losses is
    the part of the decrease that alpha_t, a property of the weights alone, would have forced for
    any targets; `certified_share` says how large that part is.

    Attributes
    ----------
    steps : DataFrame
        A row for each step of the path; see :meth:`to_frame`.
    product : float
        Product of the contractions of the certified steps. If all steps are certified,
        Phi_n <= product Phi_0. NaN if a step failed.
    verdict : str
        Whether every step is certified, one failed, or the bound is vacuous, and why.
    final_loss : float
        Phi_n, after the last step.
    scale : float
        s = 2 / (N c) in ``Phi = s/2 sum_i w_i ||F_i - Y_i||^2``.
    n_rows, n_outputs : int
        N, the rows of weight above 0, and c.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, certify_linear_convergence
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((8, 5, 3)), rng.standard_normal(8)
    >>> model = ResidualTransformerRegressor(
    ...     solver="gd", learning_rate_init="auto", max_iter=5, random_state=0
    ... )
    >>> certificate = certify_linear_convergence(model, X, y)
    >>> certificate.certified, certificate.verdict
    (True, 'certified at every step (by the tangent kernel)')
    """

    steps: pd.DataFrame
    product: float
    verdict: str
    final_loss: float
    scale: float
    n_rows: int
    n_outputs: int

    @property
    def certified(self):
        """Whether every step is certified."""
        return bool((self.steps["status"] == "certified").all())

    @property
    def certified_share(self):
        """Share of a step's measured decrease that its bound certifies, median of the certified.

        ``(Phi_t - bound) / (Phi_t - Phi_{t+1}) = 2 alpha_t Phi_t / ||grad Phi_t||^2``: how near the
        gradient comes to the smallest one that alpha_t allows. NaN if no step is certified.
        """
        steps = self.steps[self.steps["status"] == "certified"]
        if "damping" in steps:
            certified = steps["loss"] - steps["bound"]
            return float((certified / (certified + steps["margin"])).median())
        columns = [name for name in ("alpha", "alpha_tangent") if name in steps]
        # The smallest ||grad Phi||^2 that the constants allow at this loss.
        smallest = 2 * steps[columns].max(axis=1) * steps["loss"]
        return float((smallest / steps["gradient_norm"] ** 2).median())

    def to_frame(self):
        """The path, step by step.

        Returns
        -------
        frame : DataFrame
            Columns loss (Phi_t), gradient_norm, step_size, kappa, alpha (of W_U and the last W_2),
            alpha_tangent (lambda_min of the tangent kernel, where it was measured), bound (on
            Phi_{t+1}, from the greater of the two constants), contraction (bound / Phi_t), margin
            (bound - Phi_{t+1}), kappa_error and status; see
            :func:`~sklearn_restrans.theory.path_certificate`. Of "gauss_newton" those of
            :func:`~sklearn_restrans.theory.gauss_newton_certificate`.
        """
        return self.steps.copy()

    def _kind_of_bound(self):
        if np.isnan(self.certified_share):
            return ""
        known = "remainder" if "damping" in self.steps else "kappa"
        return (
            f"The bound on a step is a posteriori (its {known} contains the next loss) and "
            f"certifies {self.certified_share:.2%} of the measured decrease (median of the steps). "
        )

    def __repr__(self):
        first, last = self.steps["loss"].iloc[0], self.final_loss
        factor = last / first if first > 0 else np.nan
        return (
            f"LinearConvergenceCertificate: {self.verdict}. Phi {first:.4g} -> {last:.4g} in "
            f"{len(self.steps)} steps: a factor of {factor:.4g} measured, {self.product:.4g} "
            f"certified. {self._kind_of_bound()}N = {self.n_rows}, c = {self.n_outputs}, "
            f"s = 2 / (N c) = {self.scale:.4g}, float64."
        )


def certify_linear_convergence(
    estimator, X, y, sample_weight=None, *, n_steps=None, tangent_kernel="auto"
):
    """Run gradient or Gauss-Newton descent and certify every step it takes.

    ``Phi_{t+1} = Phi_t - mu (1 - mu kappa_t / 2) ||grad Phi_t||^2``, kappa_t from three measured
    numbers, and ``||grad Phi_t||^2 >= 2 alpha_t Phi_t``. If kappa_t < 2 / mu, the step therefore
    left at most ``1 - 2 mu (1 - mu kappa_t / 2) alpha_t`` of the loss. No smoothness is assumed.
    The bound is a posteriori, since kappa_t contains the loss after the step: nothing is claimed
    about steps that were not taken.

    A Gauss-Newton step of damping lambda left at most ``(lambda / (lambda + lambda_min(J J^T)) +
    e_t)^2`` of the loss, where e_t, measured after the step, is the part of the residual that the
    linear model of the step missed.

    Parameters
    ----------
    estimator : estimator
        ResidualTransformerRegressor or -Classifier with solver="gd" or "gauss_newton", and
        loss="squared_error"; it is cloned. The path is the one its `fit` takes with
        dtype="float64", device="cpu" and the same `random_state`, without the stop rule and
        callbacks. It is in float64 whatever `dtype` says. Steps that learning_rate_init="auto"
        undoes are not part of it.
    X, y : array-like
        Data as for `fit`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights as for `fit`.
    n_steps : int, default=None
        Number of steps; None means `max_iter` of the estimator.
    tangent_kernel : {"auto", True, False}, default="auto"
        Whether to measure lambda_min(J J^T), the best constant of the model, at each step in
        addition to alpha of W_U and the last W_2. "auto" does so up to N c = 200. Gauss-Newton
        steps are certified by it alone.

    Returns
    -------
    certificate : LinearConvergenceCertificate
        It is vacuous if alpha = 0 at all steps, and it fails if a fixed step is too long.

    Raises
    ------
    TypeError
        If it is not an estimator of this package.
    ValueError
        For another solver or loss, for early stopping, dropout or weight decay, for data that `fit`
        would refuse, for a tangent kernel with N c > 2,000, or if the loss is not finite after the
        first step.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, arXiv:2506.05249; the computable constants are this package's
    own (`theory`).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> certify_linear_convergence(ResidualTransformerClassifier(), X, y)
    Traceback (most recent call last):
        ...
    ValueError: certify_linear_convergence needs the squared error, got loss='log_loss': set \
loss='squared_error' (of a classifier: to one-hot targets, as in the paper).
    """
    check_estimator(estimator, "certify_linear_convergence", solvers=("gd", "gauss_newton"))
    if tangent_kernel not in ("auto", True, False):
        raise ValueError(f"tangent_kernel must be 'auto', True or False, got {tangent_kernel!r}.")
    # The clone is never fitted: the descent below moves the weights of the objective's own model.
    estimator = clone(estimator)
    with own_threads(estimator.n_threads):
        at = estimator.__restrans_objective__(X, y, sample_weight)
        n_steps = check_integer("n_steps", at.n_steps if n_steps is None else n_steps)
        objective = at.objective
        if estimator.solver == "gauss_newton":
            if not tangent_kernel:
                raise ValueError(
                    "solver='gauss_newton' is certified by the tangent kernel alone: set "
                    "tangent_kernel=True or 'auto'."
                )
            check_kernel_size(objective, "pass fewer rows")
            return _certificate_of_gauss_newton(objective, n_steps)
        if tangent_kernel == "auto":
            tangent_kernel = constants.n_residuals(objective) <= _KERNEL_EVERY_STEP
        if tangent_kernel:
            check_kernel_size(objective, "pass fewer rows, or tangent_kernel=False")
        descent = GradientDescent(objective, at.step_size, at.seed)
        path = _measured_path(descent, n_steps, tangent_kernel)
    return _certificate_of(path, descent, tangent_kernel)


def _measured_path(descent, n_steps, tangent_kernel):
    """Rows (Phi, ||grad Phi||, step size, alpha, alpha_tangent) of the weights on the path.

    The last row has no constants: the path ends there, after n_steps or because it diverges.
    """
    path, nothing = [], (np.nan, np.nan)
    while True:
        # To look measures the present weights, and with step "auto" may take the last step back.
        step = descent.look()
        if step.undone:
            path.pop()  # the descent is back at these weights and takes another step from them
        if not np.isfinite(step.loss):
            return path  # a bound on an infinite loss says nothing
        end = descent.diverged or len(path) == n_steps
        # Constants are measured at the weights that the step starts from, before it is taken.
        alphas = nothing if end else _alphas(descent.objective, tangent_kernel)
        path.append((step.loss, step.gradient_norm, step.step_size, *alphas))
        if end:
            return path
        descent.move()


def _alphas(objective, tangent_kernel):
    alpha = constants.two_block_constant(objective)
    return alpha, constants.kernel(objective).lambda_min if tangent_kernel else np.nan


def _certificate_of(path, descent, tangent_kernel):
    """The result for a measured path."""
    if len(path) < 2:
        raise ValueError(
            f"the loss is not finite after the first step of {descent.step_size:.4g}: there is "
            "nothing to certify; use learning_rate_init='auto', and a smaller residual_beta."
        )
    loss, norm, step, alpha, tangent = np.array(path).T
    objective = descent.objective
    arch, n = objective.module.arch, len(objective.data)
    frame, product, verdict = theory.path_certificate(
        loss,
        norm[:-1],
        step[:-1],
        # Both are valid constants, rounded down in different ways: the greater one is the better.
        np.fmax(alpha, tangent)[:-1],
        zero_loss=descent.zero_loss,
        # With dimensions the verdict names [A, sigma H], which is not the matrix for a post norm.
        dimensions=None if tangent_kernel or arch.norm == "post" else (n, arch.d_model, arch.d_ff),
    )
    frame["alpha"] = alpha[:-1]
    if tangent_kernel:
        frame.insert(frame.columns.get_loc("alpha") + 1, "alpha_tangent", tangent[:-1])
    # The last, infinite loss is not in the path, so theory has not seen the step that led to it.
    if not np.isfinite(descent.losses[-1]) and "failed" not in verdict:
        product = np.nan
        verdict = f"failed at step {len(frame)}: the loss is not finite after it"
    if "vacuous because" in verdict:
        verdict += _why_vacuous(objective, tangent_kernel)
    elif "certified" in verdict:
        measured = "tangent kernel" if tangent_kernel else constants.blocks_in_words(objective)
        verdict += f" (by the {measured})"
    scale = constants.scale_of(objective)
    return LinearConvergenceCertificate(
        frame, product, verdict, float(loss[-1]), scale, n, arch.n_outputs
    )


def _certificate_of_gauss_newton(objective, n_steps):
    descent, path = GaussNewton(objective), []
    while len(path) < n_steps:
        spectrum = constants.kernel(objective)
        # Cholesky's rounding changes the eigenvalues of the matrix solved with by this much.
        rounding = len(spectrum.eigenvalues) * np.finfo(float).eps * spectrum.eigenvalues[0]
        loss = descent.loss
        step, _ = descent.measured_step()
        if descent.finished:
            break
        lambda_min = max(0.0, spectrum.lambda_min - rounding)
        path.append((loss, step["damping"], lambda_min, step["remainder"]))
    if not path:
        raise ValueError(
            "no Gauss-Newton step lowers the loss from the weights training starts from: there is "
            "nothing to certify."
        )
    loss, *measured = np.array(path).T
    frame, product, verdict = theory.gauss_newton_certificate(
        np.append(loss, descent.loss), *measured
    )
    n, c = len(objective.data), objective.module.arch.n_outputs
    return LinearConvergenceCertificate(
        frame, product, verdict, descent.loss, constants.scale_of(objective), n, c
    )


def _why_vacuous(objective, tangent_kernel):
    """Why alpha is 0, if theory's verdict did not say it, and what may still be above 0."""
    size = constants.n_residuals(objective)
    if tangent_kernel:
        return f": the numerical rank of the tangent kernel is below N c = {size}"
    reason = f": {constants.why_zero(objective)}" if objective.module.arch.norm == "post" else ""
    if size <= constants.MAX_KERNEL_ROWS:
        reason += "; tangent_kernel=True may give a constant above 0"
    return reason
