"""Find what fit recorded, wherever in a scikit-learn composition the model sits."""


def fitted_record(estimator, record):
    """The record of the model inside a Pipeline, TransformedTargetRegressor or search."""
    inner = estimator
    while not hasattr(inner, record):
        for name in ("best_estimator_", "regressor_", "estimator_"):
            if hasattr(inner, name):
                inner = getattr(inner, name)
                break
        else:
            if not getattr(inner, "steps", None):
                raise ValueError(
                    f"no {record} found in {type(estimator).__name__}: pass a fitted residual "
                    "Transformer, or a Pipeline that ends in one, a TransformedTargetRegressor or "
                    "a search around one."
                )
            inner = inner.steps[-1][1]
    return getattr(inner, record)
