"""Scorers that carry conditioning, convergence and quantiles through a search."""

from __future__ import annotations

from numbers import Real

import numpy as np

from ..diagnostics.conditioning import check_quantity as check_conditioning_quantity
from ..diagnostics.convergence import check_quantity as check_convergence_quantity
from ..diagnostics.records import fitted_records
from ..forecasting import crps_of_quantiles
from ..forecasting.predictions import levels_of, predictions

__all__ = ["make_conditioning_scorer", "make_convergence_scorer", "make_crps_scorer"]

_NEGATED = "neg_"


class _RecordScorer:
    """``scorer(estimator, X=None, y=None) -> float`` that reads what fit recorded.

    Of an ensemble it is the mean over the members. X and y are ignored: the quantities belong to
    the training data, on which fit measured them.
    """

    def __init__(self, record, quantity, options):
        self.record, self.quantity, self.options = record, quantity, options

    def __call__(self, estimator, X=None, y=None):
        name = self.quantity.removeprefix(_NEGATED)
        records = fitted_records(estimator, self.record)
        value = float(np.mean([record.get(name, **self.options) for record in records]))
        return -value if self.quantity.startswith(_NEGATED) else value

    def __repr__(self):
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        kind = self.record.removesuffix("_")
        return f"make_{kind}_scorer({self.quantity!r}{options})"


def _without_sign(quantity):
    _check_name("quantity", quantity, "'sigma_min' or 'rate'")
    return quantity.removeprefix(_NEGATED)


def _check_name(argument, value, examples):
    if not isinstance(value, str):
        raise ValueError(f"{argument} must be a name such as {examples}, got {value!r:.80}.")


def make_conditioning_scorer(quantity, *, of="Z", layer=-1, stage="final"):
    """Scorer of how well conditioned a fitted model's attention output is.

    It reads ``conditioning_``, measured by fit on its training probe, and ignores X and y: free,
    and without the edge effects of windows in a test fold. For other data call
    :func:`~sklearn_restrans.measure_conditioning`.

    Parameters
    ----------
    quantity : str
        A quantity of :meth:`Conditioning.get`, such as "sigma_min"; with the prefix "neg_" its
        negative, since scikit-learn prefers greater scores: "neg_condition_number".
    of : {"Z", "attention", "X"}, default="Z"
        After (Z) or before (Attn(X)) the residual connection, or the layer's input X.
    layer : int, default=-1
        Layer; -1 is the last.
    stage : {"final", "initial"}, default="final"
        After or before training.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X=None, y=None) -> float``, picklable; reaches through Pipeline,
        TransformedTargetRegressor and search objects. Of a seed ensemble it is the mean over the
        members.

    Raises
    ------
    ValueError
        If a name is unknown (when the scorer is made), or an estimator has no such record.

    Examples
    --------
    >>> from sklearn_restrans import make_conditioning_scorer
    >>> make_conditioning_scorer("sigma_min", of="attention")
    make_conditioning_scorer('sigma_min', of='attention', layer=-1, stage='final')
    """
    _check_name("of", of, "'Z', 'attention' or 'X'")
    _check_name("stage", stage, "'final' or 'initial'")
    check_conditioning_quantity(_without_sign(quantity), of, stage)
    if isinstance(layer, bool) or not isinstance(layer, (int, np.integer)):
        raise ValueError(f"layer must be an integer, got {layer!r:.80}.")
    options = {"of": of, "layer": layer, "stage": stage}
    return _RecordScorer("conditioning_", quantity, options)


def make_convergence_scorer(quantity, *, loss=None):
    """Scorer of how fast a fitted model's training converged.

    It reads ``convergence_``, recorded by fit, and ignores X and y.

    Parameters
    ----------
    quantity : str
        A quantity of :meth:`Convergence.get`: "rate" (greater is faster), "contraction",
        "epochs_to", "final_loss", "relative_loss", "local_rate", "pl_ratio"; with the
        prefix "neg_" its negative, since scikit-learn prefers greater scores: "neg_epochs_to".
    loss : float, default=None
        The training loss to reach, for "epochs_to".

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X=None, y=None) -> float``, picklable; reaches through Pipeline,
        TransformedTargetRegressor and search objects. Of a seed ensemble it is the mean over the
        members.

    Raises
    ------
    ValueError
        If the quantity is unknown, or "epochs_to" has no ``loss``.

    Examples
    --------
    >>> from sklearn_restrans import make_convergence_scorer
    >>> make_convergence_scorer("rate")
    make_convergence_scorer('rate', loss=None)
    """
    check_convergence_quantity(_without_sign(quantity), loss)
    if loss is not None and not (isinstance(loss, Real) and np.isfinite(loss)):
        raise ValueError(
            f"loss must be a finite number, the training loss to reach, got {loss!r:.80}."
        )
    return _RecordScorer("convergence_", quantity, {"loss": loss})


class _CrpsScorer:
    """``scorer(estimator, X, y) -> float`` of the quantiles that an estimator predicts."""

    def __call__(self, estimator, X, y):
        levels = levels_of(estimator)
        if len(levels) == 1:
            raise ValueError(
                "make_crps_scorer needs two quantiles or more, as a model with loss='quantile' "
                f"predicts them, by itself or at the end of a Pipeline or search; got "
                f"{estimator!r:.80}, which predicts one number: set loss='quantile', or score it "
                "by 'neg_mean_absolute_error', which is the CRPS of one number."
            )
        found, columns = predictions(estimator, X, levels)
        return -crps_of_quantiles(y, found if columns else found[:, 0], levels)

    def __repr__(self):
        return "make_crps_scorer()"


def make_crps_scorer():
    """Scorer of predicted quantiles: minus their continuous ranked probability score.

    It is the negative of :func:`~sklearn_restrans.forecasting.crps_of_quantiles` of what
    ``predict_quantiles`` returns, that is of twice the pinball loss, averaged over levels, rows and
    outputs: the higher, the better. Scores of other levels are not comparable, so do not search
    over ``quantiles`` with it.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y) -> float``, picklable, in the units of y; reaches through Pipeline
        and search objects, and takes ensembles, whose quantiles are the means of their members'. It
        raises a ValueError if the estimator does not predict two quantiles or more.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn_restrans import ResidualTransformerRegressor, make_crps_scorer
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ResidualTransformerRegressor(loss="quantile", max_iter=5, random_state=0)
    >>> score = make_crps_scorer()(model.fit(X, y), X, y)
    >>> -70 < score < -20
    True
    """
    return _CrpsScorer()
