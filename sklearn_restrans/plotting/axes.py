"""What the displays share: styles, axes, legends, and the checks of what they are given.

Curves differ in colour, in marker and in lightness, which rises from the first curve to the last.
They can therefore be told apart in a grey print and by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..diagnostics.records import fitted_records

_MARKERS = "osD^vP*X<>"
# With more entries than this a legend hides the curves and is put beside the axes.
_LEGEND_INSIDE = 10


# ---- drawing -------------------------------------------------------------------------------------


def curve_styles(n):
    """Colour and marker for each of n curves."""
    import matplotlib

    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, n)) if n > 1 else ["C0"]
    return [{"color": c, "marker": _MARKERS[k % 10], "ms": 4} for k, c in enumerate(colors)]


def axes_of(ax):
    """The given axes, or the axes of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1] if ax is None else check_axes(ax)


def check_axes(ax):
    """``ax`` if it is a matplotlib Axes; otherwise a TypeError that says what came."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        several = " Pass one of its elements." if np.ndim(ax) else ""
        raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}.{several}")
    return ax


def show_legend(ax, handles, labels):
    """A legend inside the axes, or to the right of them if it is long."""
    place = {}
    if len(labels) > _LEGEND_INSIDE:
        columns = -(-len(labels) // (2 * _LEGEND_INSIDE))
        place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "ncols": columns}
    ax.legend(handles, labels, fontsize="small", **place)


def whole_numbers_below(ax):
    """Put the ticks of the horizontal axis at whole numbers: there is no half epoch."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def log_if_wide(ax, values):
    """Make the vertical axis logarithmic if the finite values are positive and span a decade.

    A logarithmic axis shows a linear rate as a straight line, but is hard to read below one decade.
    """
    values = np.ravel(values)
    values = values[np.isfinite(values)]
    if values.size and values.min() > 0 and values.max() > 10 * values.min():
        ax.set_yscale("log")


# ---- checks --------------------------------------------------------------------------------------


def check_labelled(name, value, content):
    """``value`` with its labels as strings; it must be a dict that is not empty."""
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{name} must be a dict from labels to {content}, got {type(value).__name__}."
        )
    labelled = {str(label): part for label, part in value.items()}
    if not labelled:
        raise ValueError(f"{name} is an empty dict: pass {content} under one label or more.")
    if len(labelled) < len(value):
        raise ValueError(f"{name} has two labels that print alike: {list(value)}.")
    return labelled


def check_numbers(name, value, content):
    """``value`` as a one-dimensional array of finite floats."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.array(0.0)
    if array.ndim == 0:
        raise ValueError(f"{name} must be a list of {content}, got {value!r:.80}.")
    if array.ndim > 1:
        raise ValueError(
            f"{name} must be a list of {content}, got an array of shape {array.shape}."
        )
    if not np.isfinite(array).all():
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(
            f"{name} must be finite, got {array[where]} at position {where}: leave the curve out "
            "or cut it before that position."
        )
    return array


def check_fitted(estimator, record):
    """What fit recorded, for one estimator a list with one entry, for an ensemble one a member."""
    if isinstance(estimator, type):
        raise TypeError(
            f"estimator must be a fitted estimator, got the class {estimator.__name__}."
        )
    if not (hasattr(estimator, "get_params") or hasattr(estimator, record)):
        raise TypeError(f"estimator must be a fitted estimator, got {type(estimator).__name__}.")
    records = fitted_records(estimator, record)
    if not records:
        raise ValueError(f"estimator, a {type(estimator).__name__}, has no fitted member.")
    return records


def records_of(estimator, record, label):
    """What fit recorded, under a label for each estimator of a dict and each member of it.

    A single estimator goes under ``label``.
    """
    several = isinstance(estimator, Mapping)
    if several:
        estimators = check_labelled("estimator", estimator, "fitted estimators")
    else:
        estimators = {label: estimator}
    found = {}
    for name, model in estimators.items():
        records = check_fitted(model, record)
        start = f"{name}, " if several else ""
        members = [f"{start}member {k}" for k in range(1, len(records) + 1)]
        found |= dict(zip(members if len(records) > 1 else [name], records, strict=True))
    return found


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
    """A column of numbers of ``cv_results_``."""
    if name not in cv_results:
        scorers = [key.removeprefix("mean_test_") for key in cv_results if "mean_test_" in key]
        raise ValueError(
            f"cv_results has no column {name!r}; its scorers are {scorers}. Name one of them as "
            "quantity, or add a scorer of that name to the search."
        )
    try:
        return np.asarray(cv_results[name], dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"cv_results: column {name!r} must hold numbers, got {list(cv_results[name])!r:.80}."
        ) from None


def parameter_of(cv_results, x):
    """The searched parameter ``x``: the name of its column, and its values as numbers.

    NaN stands for a candidate without it, as a search over a list of grids may have.
    """
    found = [
        key
        for key in cv_results
        if key.startswith("param_") and key.removeprefix("param_").rpartition("__")[2] == x
    ]
    if len(found) != 1:
        names = [key.removeprefix("param_") for key in cv_results if key.startswith("param_")]
        raise ValueError(f"x={x!r} must name one of the searched parameters {names}.")
    values = [np.nan if value is np.ma.masked else value for value in cv_results[found[0]]]
    try:
        return found[0], np.array([float(value) for value in values])
    except (TypeError, ValueError):
        raise ValueError(
            f"x={x!r} must be a parameter whose values are numbers, got {values!r:.80}."
        ) from None


def check_lengths(**columns):
    """Columns of one ``cv_results_`` have an entry per candidate each."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"cv_results must have columns of one length, got {lengths}.")
