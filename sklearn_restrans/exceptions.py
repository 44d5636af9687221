"""Errors and warnings of this package."""

__all__ = ["DivergenceError"]


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
