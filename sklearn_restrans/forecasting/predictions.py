"""Quantiles of a fitted model, wherever a Pipeline or a search keeps it."""

from __future__ import annotations

import numpy as np

from .._data.quantiles import check_levels


def levels_of(model):
    """Levels of the quantiles that a model, or the last step of one, predicts; else the median."""
    last = _steps_of(model)[-1]
    if hasattr(last, "predict_quantiles") and hasattr(last, "quantiles_"):
        return check_levels(last.quantiles_, "quantiles_")
    return (0.5,)


def predictions(model, X, levels):
    """Predictions (n, c, q) at the levels of the model, and whether y has columns."""
    if len(levels) == 1:
        found = np.asarray(model.predict(X), dtype=float)[..., None]
    else:
        *transformers, last = _steps_of(model)
        for step in transformers:
            X = X if step in (None, "passthrough") else step.transform(X)
        found = last.predict_quantiles(X)
    return found.reshape(len(found), -1, len(levels)), found.ndim == 3


def _steps_of(model):
    """A fitted model without searches around it: transformers of a Pipeline, and what predicts."""
    if hasattr(model, "best_estimator_"):
        return _steps_of(model.best_estimator_)
    if hasattr(model, "steps"):
        return [*[step for _, step in model.steps[:-1]], *_steps_of(model.steps[-1][1])]
    return [model]
