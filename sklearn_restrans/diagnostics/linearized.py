"""What gradient descent will do, before it is run: the linearised loss, and the choice of beta."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from .. import theory
from .._training.descent import GradientDescent, smooth_step
from .._training.device import own_threads
from .._validation import check_integer
from .constants import check_estimator, check_kernel_size, check_loss, kernel, residuals

# Decades of loss within which two betas count as equal (theory.md 2b).
_TIE = 0.1

# Steps of a pilot run. The order of the betas after it had a mean rank correlation of .84 with that
# after 400 steps (theory.md 2b).
_PILOT_STEPS = 100

_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False, repr=False)
class LinearizedPrediction:
    """Loss of gradient descent on the model linearised at its present weights.

    ``Phi_lin(k) = 1/2 sum_j (1 - mu lambda_j)^(2k) c_j^2``, where lambda_j are the eigenvalues of
    the tangent kernel J J^T and c_j the parts of F - Y along its modes.

    Attributes
    ----------
    loss : ndarray of shape (n_steps + 1,)
        Phi_lin at steps 0 to n_steps.
    limit : float
        Phi_lin after infinitely many steps, which is the part of F - Y outside the range of J; inf
        if mu is too long. This holds for the linearised model: descent itself also moves J.
    step_size : float
        mu.
    eigenvalues : ndarray of shape (N c,)
        lambda_j, descending, in units of 1 / step size, and exactly 0 from the rank of J on.
    coefficients : ndarray of shape (N c,)
        c_j.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor
    >>> from sklearn_restrans.convergence import linearized_prediction
    >>> X, y = np.random.default_rng(0).standard_normal((6, 4, 2)), np.arange(6.0)
    >>> model = ResidualTransformerRegressor(random_state=0)
    >>> prediction = linearized_prediction(model, X, y, stage="initial")
    >>> prediction.rank, bool(prediction.limit < 1e-20)
    (6, True)
    """

    loss: np.ndarray
    limit: float
    step_size: float
    eigenvalues: np.ndarray
    coefficients: np.ndarray

    @property
    def rank(self):
        """Rank of J, which is the number of modes that descent changes."""
        return int(np.count_nonzero(self.eigenvalues))

    def at(self, steps):
        """Phi_lin after given numbers of steps.

        Parameters
        ----------
        steps : array-like of shape (n,)
            Numbers of steps >= 0; ``numpy.inf`` is the limit.

        Returns
        -------
        loss : ndarray of shape (n,)
        """
        return theory.linearized_loss(
            self.eigenvalues, self.coefficients, self.step_size, np.atleast_1d(steps)
        )

    def to_frame(self):
        """The predicted curve.

        Returns
        -------
        frame : DataFrame indexed by step
            Column loss.
        """
        return pd.DataFrame({"loss": self.loss}).rename_axis("step")

    def __repr__(self):
        return (
            f"LinearizedPrediction: Phi {self.loss[0]:.4g} -> {self.loss[-1]:.4g} in "
            f"{len(self.loss) - 1} steps of {self.step_size:.4g}, limit {self.limit:.4g} "
            f"(J has rank {self.rank} of N c = {len(self.eigenvalues)})"
        )


def _linearize(objective):
    """Eigenvalues lambda_j of J J^T, and the parts c_j of F - Y along its modes."""
    decomposed = kernel(objective)
    return decomposed.eigenvalues, decomposed.modes.T @ residuals(objective)


def _check_step(step):
    if step != "own" and (isinstance(step, bool) or not isinstance(step, Real) or not step > 0):
        raise ValueError(f"step must be 'own', for 1 / (1.05 L), or a number > 0, got {step!r}.")


def linearized_prediction(
    estimator, X, y, sample_weight=None, *, stage="final", n_steps=100, step="own"
):
    """Predict the loss of gradient descent from the tangent kernel at the present weights.

    Parameters
    ----------
    estimator : estimator
        ResidualTransformerRegressor or -Classifier with loss="squared_error", whatever its solver.
    X, y : array-like
        Data as for `fit`, N c <= 2,000 targets.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights as for `fit`.
    stage : {"final", "initial"}, default="final"
        At the fitted weights, or at the weights that `fit` would start from.
    n_steps : int, default=100
        Length of the curve.
    step : "own" or float, default="own"
        Step size mu; "own" is 1 / (1.05 L), L the largest curvature measured at these weights.

    Returns
    -------
    prediction : LinearizedPrediction
        In units of Phi with s = 2 / (N c).

    Raises
    ------
    TypeError, ValueError
        For another estimator, loss or stage, for early stopping, more than 2,000 targets, or data
        that `fit` would refuse.
    sklearn.exceptions.NotFittedError
        For stage="final" before `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressor(max_iter=2, random_state=0).fit(X, y)
    >>> prediction = linearized_prediction(model, X[:50], y[:50], n_steps=20)
    >>> bool(prediction.loss[0] > prediction.loss[20] > prediction.limit)
    True
    """
    if stage not in ("final", "initial"):
        raise ValueError(f"stage must be 'final' or 'initial', got {stage!r}.")
    # Any solver may have led to the weights: the prediction is for plain descent from them.
    check_estimator(estimator, "linearized_prediction", descent=False, initial=stage == "initial")
    n_steps = check_integer("n_steps", n_steps)
    _check_step(step)
    if stage == "final":
        check_is_fitted(estimator)
    else:
        estimator = clone(estimator)
    with own_threads(estimator.n_threads):
        at = estimator.__restrans_objective__(X, y, sample_weight, fitted=stage == "final")
        objective = at.objective
        check_loss(objective.criterion.kind, "linearized_prediction")
        check_kernel_size(objective, "pass fewer rows")
        eigenvalues, coefficients = _linearize(objective)
        step = smooth_step(objective, at.seed) if step == "own" else float(step)
    # The limit is the last point of the same curve.
    curve = theory.linearized_loss(eigenvalues, coefficients, step, [*range(n_steps + 1), np.inf])
    return LinearizedPrediction(curve[:-1], float(curve[-1]), step, eigenvalues, coefficients)


@dataclass(frozen=True, eq=False, repr=False)
class ResidualBetaSuggestion:
    """Residual coefficients with the loss that each is expected to reach.

    Attributes
    ----------
    scores : DataFrame
        A row for each beta; see :meth:`to_frame`.
    method : str
        "linearized" or "pilot".
    n_steps, n_seeds : int
        Number of steps of gradient descent, and of initialisations that were averaged.
    step : "own" or float
        Each beta's own step 1 / (1.05 L), or the common one.

    Examples
    --------
    >>> import pandas as pd
    >>> scores = pd.DataFrame({"residual_beta": [0.0, 0.5, 1.0], "score": [-0.3, -0.95, -0.9]})
    >>> suggestion = ResidualBetaSuggestion(scores, "pilot", n_steps=100, n_seeds=5, step="own")
    >>> suggestion.best_, suggestion.ties_
    (0.5, [1.0])
    """

    scores: pd.DataFrame
    method: str
    n_steps: int
    n_seeds: int
    step: str | float

    @property
    def best_(self):
        """The beta of the lowest score."""
        return self.scores["residual_beta"].tolist()[self.scores["score"].argmin()]

    @property
    def ties_(self):
        """Other betas within 0.1 decade of the best, which these seeds do not tell apart."""
        # The best itself is left out, and of equal scores argmin takes the first.
        near = self.scores["score"] < self.scores["score"].min() + _TIE
        near.iloc[self.scores["score"].argmin()] = False
        return self.scores["residual_beta"][near].tolist()

    def to_frame(self):
        """The scores.

        Returns
        -------
        frame : DataFrame
            One row per beta, in the order passed. score is the mean over seeds of log10 Phi after
            n_steps (lower is better, inf means that descent diverges) and std its standard
            deviation. relative_score is the mean of log10(Phi / Phi_0), which may order the betas
            differently unless all start from the same Phi_0. step_size is the mean first step.
        """
        return self.scores.copy()

    def __repr__(self):
        ties = ", ".join(map(str, self.ties_))
        steps = "its own step" if self.step == "own" else f"step {self.step:g}"
        how = "linearised" if self.method == "linearized" else "pilot runs"
        return (
            f"ResidualBetaSuggestion: residual_beta = {self.best_} should have the lowest loss Phi "
            f"after {self.n_steps} steps of gradient descent, 10^{self.scores['score'].min():.2f} "
            f"({how}, {steps}, mean of {self.n_seeds} seeds); "
            + (f"within {_TIE} decade of it: {ties}" if ties else f"no other within {_TIE} decade")
        )


def suggest_residual_beta(
    estimator,
    X,
    y,
    betas,
    method="linearized",
    *,
    sample_weight=None,
    n_steps=None,
    n_seeds=5,
    step="own",
    n_rows=None,
):
    """Order residual coefficients by the loss gradient descent should reach with them.

    "linearized" uses the loss of the model linearised at its initial weights, "pilot" that of a
    short run. Bounds, condition numbers and sigma_min were tried and do not order the betas
    (theory.md 2b). The order is one for gradient descent: Adam rescales the step of every weight.

    Parameters
    ----------
    estimator : estimator
        ResidualTransformerRegressor or -Classifier with solver="gd" and loss="squared_error"; it is
        cloned. With init="zero_unembedding" all betas start at the same loss.
    X, y : array-like
        Data as for `fit`.
    betas : sequence
        Values for `residual_beta`, all different.
    method : {"linearized", "pilot"}, default="linearized"
        "linearized" needs N c <= 2,000 targets.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights as for `fit`.
    n_steps : int, default=None
        Number of steps after which the losses are compared; None means `max_iter` of the estimator
        for "linearized" and 100 for "pilot".
    n_seeds : int, default=5
        Number of initialisations, which are the same for every beta.
    step : "own" or float, default="own"
        Each beta's own step 1 / (1.05 L), as with learning_rate_init="auto", or one step for all.
    n_rows : int, default=None
        If there are more rows, use this many, drawn at random anew for each seed.

    Returns
    -------
    suggestion : ResidualBetaSuggestion
        With `best_`, `ties_` and `to_frame()`.

    Raises
    ------
    TypeError, ValueError
        For another estimator, solver or loss, for early stopping, for betas that are not allowed or
        repeated, for too many targets with "linearized", or if every beta diverges.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, suggest_residual_beta
    >>> X, y = np.random.default_rng(0).standard_normal((20, 4, 2)), np.arange(20.0)
    >>> model = ResidualTransformerRegressor(solver="gd", max_iter=50, random_state=0)
    >>> suggest_residual_beta(model, X, y, [0, 0.5, 1], n_seeds=2).to_frame().shape
    (3, 5)
    """
    check_estimator(estimator, "suggest_residual_beta")
    if method not in ("linearized", "pilot"):
        raise ValueError(f"method must be 'linearized' or 'pilot', got {method!r}.")
    betas = _checked_list(betas)
    n_seeds = check_integer("n_seeds", n_seeds)
    n_rows = None if n_rows is None else check_integer("n_rows", n_rows)
    _check_step(step)
    # With "auto" any solver setting of the step is allowed; the step itself comes from `step`.
    estimator = clone(estimator).set_params(learning_rate_init="auto")
    logs = np.empty((len(betas), n_seeds, 3))
    with own_threads(estimator.n_threads):
        usual = _check_betas(estimator, X, y, sample_weight, betas)
        if n_steps is None:
            n_steps = usual.n_steps if method == "linearized" else _PILOT_STEPS
        n_steps = check_integer("n_steps", n_steps)
        seeds = np.random.default_rng(usual.seed).integers(2**31 - 1, size=n_seeds)
        # Every beta starts from the same seeds, so that differences are the betas' own.
        for i, beta in enumerate(betas):
            for j, seed in enumerate(seeds):
                model = clone(estimator).set_params(residual_beta=beta, random_state=int(seed))
                at = model.__restrans_objective__(X, y, sample_weight)
                # The rows belong to the seed too.
                if n_rows is not None:
                    at.objective.data = at.objective.data.subset(n_rows, int(seed))
                logs[i, j] = _expected(at, method, step, n_steps)
    return _suggestion(betas, logs, method, n_steps, n_seeds, step)


def _checked_list(betas):
    betas = list(betas) if np.iterable(betas) else [betas]
    if not betas:
        raise ValueError("betas is empty: pass the residual coefficients to choose from.")
    return betas


def _check_betas(estimator, X, y, sample_weight, betas):
    """Refuse what residual_beta cannot be, and values that repeat; the objective at beta = 1.

    With residual_beta=1.0 only the other parameters and the data can be wrong, so what is refused
    afterwards is refused for its beta.
    """

    def at(beta):
        model = clone(estimator).set_params(residual_beta=beta)
        return model.__restrans_objective__(X, y, sample_weight)

    usual, seen = at(1.0), set()
    for beta in betas:
        wrong = (
            "betas must hold values of residual_beta, each a number >= 0, a pair (attention, ffn) "
            f"or an array of shape (n_layers, 2), got {beta!r} among them."
        )
        if isinstance(beta, bool):  # True would pass as the number 1
            raise ValueError(wrong)
        try:
            matrix = at(beta).objective.module.beta
        except (TypeError, ValueError):
            raise ValueError(wrong) from None
        # (0.5, 0.5) and 0.5 are one and the same model.
        matrix = tuple(matrix.detach().flatten().tolist())
        if matrix in seen:
            raise ValueError(f"betas must differ from each other, got {beta!r} twice in {betas!r}.")
        seen.add(matrix)
    return usual


def _expected(at, method, step, n_steps):
    """log10 of Phi after n_steps and of Phi / Phi_0, and the first step size."""
    objective = at.objective
    if method == "linearized":
        check_kernel_size(objective, "pass n_rows to draw a part of them, or method='pilot'")
        mu = smooth_step(objective, at.seed) if step == "own" else float(step)
        eigenvalues, coefficients = _linearize(objective)
        first, last = theory.linearized_loss(eigenvalues, coefficients, mu, [0, n_steps])
    else:
        descent = GradientDescent(objective, "auto" if step == "own" else step, at.seed)
        # The first look is at the initial weights; n_steps moves later comes the last one.
        mu, first = descent.step_size, descent.step().loss
        for _ in range(n_steps - 1):
            descent.step()
            if descent.diverged:
                break
        last = descent.look().loss
        last = np.inf if descent.diverged else last
    # Neither loss is known below the rounding of F - Y, eps^2 times the loss of the prediction 0.
    floor = np.finfo(float).eps ** 2 * objective.zero_loss()
    first, last = np.log10(np.maximum([first, last], floor))
    return last, last - first, mu


def _suggestion(betas, logs, method, n_steps, n_seeds, step):
    """The result from logs (n_betas, n_seeds, 3) of Phi and of Phi / Phi_0, and step sizes."""
    score, relative, size = np.moveaxis(logs, -1, 0)
    if not np.isfinite(score.mean(axis=1)).any():
        raise ValueError(
            f"with step={step!r} gradient descent diverges at every beta from at least one start: "
            "use step='own', or a shorter step."
        )
    with np.errstate(invalid="ignore"):  # inf - inf for a beta that diverges
        spread = score.std(axis=1)
    columns = {"score": score.mean(axis=1), "std": spread, "relative_score": relative.mean(axis=1)}
    # An object column where a beta is a pair.
    frame = pd.DataFrame({"residual_beta": pd.Series(betas), **columns})
    scores = frame.assign(step_size=size.mean(axis=1))
    return ResidualBetaSuggestion(scores, method, n_steps, n_seeds, step)
