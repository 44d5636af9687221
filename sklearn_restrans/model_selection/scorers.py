"""Scorers that carry conditioning and convergence through a search."""

from __future__ import annotations

from numbers import Real

import numpy as np

from ..diagnostics.conditioning import check_quantity as check_conditioning_quantity
from ..diagnostics.convergence import check_quantity as check_convergence_quantity
from ..diagnostics.records import fitted_records

__all__ = ["make_conditioning_scorer", "make_convergence_scorer"]

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
