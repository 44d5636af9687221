"""The protocol of an estimator that can be diagnosed, and how to find one inside a Pipeline.

An estimator takes part by defining the methods below; it need not inherit from anything here. The
names carry double underscores, as scikit-learn's own protocol methods do, so that they stay out of
the way of users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from sklearn.utils.validation import check_is_fitted

from .traces import LayerTrace

if TYPE_CHECKING:  # torch stays out of the modules that know arrays only
    from .._training.descent import Objective

_OURS = "a residual Transformer (ResidualTransformer... or PretrainedText...)"


@dataclass(frozen=True, eq=False)
class ObjectiveAt:
    """A loss at certain weights, with what gradient descent from these weights needs.

    Attributes
    ----------
    objective : Objective
        Phi in float64 on the CPU, without dropout, on data prepared as `fit` prepares them.
    seed : int
        The seed `fit` would draw: of the initial weights and of the curvature's start vector.
    step_size : float or "auto"
        The estimator's `learning_rate_init`, checked against its solver.
    n_steps : int
        Steps of full-batch descent that `fit` would make.
    """

    objective: Objective
    seed: int
    step_size: float | str
    n_steps: int


@runtime_checkable
class HasObjective(Protocol):
    """An estimator whose training loss can be evaluated and differentiated."""

    def __restrans_objective__(
        self, X: Any, y: Any, sample_weight: Any = None, *, fitted: bool = False
    ) -> ObjectiveAt:
        """Training loss on these data.

        It must refuse, as `fit` does, parameters that are not allowed and data that do not fit.

        Parameters
        ----------
        X, y, sample_weight
            Data as for `fit`.
        fitted : bool, default=False
            At the fitted weights and with the scalings of that fit, or at the weights that `fit`
            would start from.

        Returns
        -------
        at : ObjectiveAt
        """
        ...


@runtime_checkable
class HasTraces(Protocol):
    """A fitted estimator that shows what each of its layers computes.

    It must also have `best_iteration_`, the epoch whose weights it kept.
    """

    def __restrans_traces__(self, X: Any, segments: Any = None) -> Iterator[list[LayerTrace]]:
        """Layer traces of X, chunk by chunk, so that memory stays at one chunk.

        Parameters
        ----------
        X, segments
            Data as for `predict`.

        Yields
        ------
        chunk : list of LayerTrace
            One LayerTrace per layer, all of the same sequences, in float64.
        """
        ...


def check_objective(estimator: Any, function: str) -> None:
    """Refuse an estimator without an objective, in the name of the function that needs one."""
    if isinstance(estimator, type) or not isinstance(estimator, HasObjective):
        raise TypeError(
            f"{function} needs {_OURS}, got {_named(estimator)}; of a Pipeline pass the last step, "
            "and X as the steps before it transform it."
        )


def fitted_traces(
    estimator: Any, X: Any, function: str, segments: Any = None
) -> tuple[Iterator[list[LayerTrace]], int]:
    """Traces of the estimator, or of the one at the end of a Pipeline, and its kept epoch.

    The steps of a Pipeline before the estimator transform X first; Pipelines may be nested.
    """
    # First the model alone: an unfitted one is refused before any step transforms X.
    model = estimator
    while hasattr(model, "steps"):
        model = model.steps[-1][1]
    if isinstance(model, type) or not isinstance(model, HasTraces):
        raise TypeError(
            f"{function} needs {_OURS}, or a Pipeline that ends with one, got {_named(model)}; for "
            "arrays use conditioning_from_traces."
        )
    check_is_fitted(model)
    while hasattr(estimator, "steps"):
        if len(estimator.steps) > 1:  # a Pipeline without its last step must not be empty
            X = estimator[:-1].transform(X)
        estimator = estimator.steps[-1][1]
    told = () if segments is None else (segments,)
    return model.__restrans_traces__(X, *told), model.best_iteration_


def _named(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
