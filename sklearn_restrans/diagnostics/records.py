"""Find what fit recorded, wherever in a scikit-learn composition the model sits."""

_HOLDERS = {
    "beta_path_": "a fitted ...CV estimator (of another search from_cv_results draws the results)"
}


def fitted_records(estimator, record):
    """The record of the model inside a Pipeline, TransformedTargetRegressor or search, in a list.

    Of an ensemble those of its members.
    """
    inner = estimator
    while not hasattr(inner, record):
        for name in ("best_estimator_", "regressor_", "estimator_"):
            if hasattr(inner, name):
                inner = getattr(inner, name)
                break
        else:
            if isinstance(getattr(inner, "estimators_", None), list):
                return [
                    found for part in inner.estimators_ for found in fitted_records(part, record)
                ]
            if not getattr(inner, "steps", None):
                holder = _HOLDERS.get(record, "a fitted residual Transformer, an ensemble of them")
                raise ValueError(
                    f"estimator has no {record}: {type(estimator).__name__} is not fitted, or is "
                    f"not one of this package; pass {holder}, or a Pipeline that ends in one, a "
                    "TransformedTargetRegressor or a search around one."
                )
            inner = inner.steps[-1][1]
    return [getattr(inner, record)]
