"""What the displays share: styles, axes, and the checks of what they are given.

Curves differ in colour, marker and place in a sequential colour map whose lightness falls from one
to the next, so that they are told apart in grey print and by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._records import fitted_records

_MARKERS = "osD^vP*X<>"


def curve_styles(n):
    """Colour and marker of n curves."""
    import matplotlib

    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, n)) if n > 1 else ["C0"]
    return [{"color": c, "marker": _MARKERS[k % 10], "ms": 4} for k, c in enumerate(colors)]


def axes_of(ax):
    """The given axes, or those of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else ax


def records_of(estimator, record, label):
    """What fit recorded, under a label for each estimator of a dict and each member of it."""
    several = estimator if isinstance(estimator, Mapping) else {label: estimator}
    if not several:
        raise ValueError("estimator is an empty dict: pass fitted estimators under their labels.")
    found = {}
    for name, model in several.items():
        records = fitted_records(model, record)
        start = f"{name}, " if name else ""
        labels = [f"{start}member {k}" for k in range(1, len(records) + 1)]
        found |= dict(zip(labels if len(records) > 1 else [name], records, strict=True))
    return found


def check_labelled(name, value):
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{name} must be a dict of labels, not empty, got {value!r}.")
    return value.items()


def results_of(cv_results):
    """``cv_results_``, given as it is or by the search that has it."""
    found = getattr(cv_results, "cv_results_", cv_results)
    if not hasattr(found, "keys"):
        raise TypeError(
            "cv_results must be cv_results_ of a search, or the search after fit, got "
            f"{type(cv_results).__name__}."
        )
    return found


def column_of(cv_results, name):
    if name not in cv_results:
        scorers = [key.removeprefix("mean_test_") for key in cv_results if "mean_test_" in key]
        raise ValueError(
            f"cv_results has no column {name!r}; its scorers are {scorers}. Name one of them as "
            "quantity, or add a scorer of that name to the search."
        )
    return np.asarray(cv_results[name], dtype=float)


def parameter_of(cv_results, x):
    found = [
        key
        for key in cv_results
        if key.startswith("param_") and key.removeprefix("param_").rpartition("__")[2] == x
    ]
    if len(found) != 1:
        names = [key.removeprefix("param_") for key in cv_results if key.startswith("param_")]
        raise ValueError(f"x={x!r} must name one of the searched parameters {names}.")
    try:
        return np.asarray(cv_results[found[0]], dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"x={x!r} took values that are no numbers: {list(cv_results[found[0]])!r:.80}."
        ) from None
