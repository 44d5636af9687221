"""Errors and warnings of this package."""

__all__ = ["DivergenceError", "RankCollapseWarning"]


class DivergenceError(FloatingPointError):
    """Training diverged: a loss, a weight or an output is not finite.

    Parameters
    ----------
    message : str
        What became infinite, when, and what to lower.

    Examples
    --------
    >>> from sklearn_restrans import DivergenceError, ResidualTransformerRegressor
    >>> model = ResidualTransformerRegressor(solver="sgd", learning_rate_init=1e6, random_state=0)
    >>> try:
    ...     model.fit([[0.0], [1.0], [3.0]], [0.0, 1.0, 2.0])
    ... except DivergenceError as error:
    ...     print("learning_rate_init" in str(error))
    True
    """

    def __init__(self, message):
        super().__init__(message)


class RankCollapseWarning(UserWarning):
    """A layer has made the tokens of a sequence nearly equal (``on_collapse``).

    Parameters
    ----------
    message : str
        Names the layer, the epoch, the value and what to change.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from sklearn_restrans import RankCollapseWarning, ResidualTransformerRegressor
    >>> X = np.random.default_rng(0).standard_normal((40, 12, 3))
    >>> model = ResidualTransformerRegressor(
    ...     0.0, n_layers=4, max_iter=2, on_collapse="warn", random_state=0
    ... )
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", RankCollapseWarning)
    ...     model = model.fit(X, X[:, -1, 0])
    >>> [w.category.__name__ for w in caught if "residual_beta" in str(w.message)]
    ['RankCollapseWarning']
    """

    def __init__(self, message):
        super().__init__(message)
