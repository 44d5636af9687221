"""How the rows of a window become tokens, and what they and the targets are relative to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from .._validation import check_integer


@dataclass(frozen=True)
class WindowForm:
    """How the rows of a window become tokens, and what they and the targets are relative to.

    Attributes
    ----------
    patch : int
        Consecutive rows of a window that make one token.
    stride : int
        Rows from the beginning of one patch to that of the next.
    relative : {"last", "standard"} or None
        What the readings of a window are taken relative to.
    columns : tuple of int
        Columns of the series that are.
    targets : tuple of (int or None), or None
        Per target the column that it is a later value of; None where nothing was said of targets.
    channels : tuple of int
        Columns of which each is a sample of its own; none where all are channels of one sample.
    """

    patch: int = 1
    stride: int = 1
    relative: str | None = None
    columns: tuple[int, ...] = ()
    targets: tuple[int | None, ...] | None = None
    channels: tuple[int, ...] = ()

    @property
    def arguments(self):
        """What makes the same tokens of other series, by the names that users know."""
        return {"patch": self.patch, "patch_stride": self.stride, "relative": self.relative}

    def n_tokens(self, window):
        """Tokens of a window."""
        return (window - self.patch) // self.stride + 1

    def places(self, window):
        """Place in the window of every row of every token, (n_tokens, patch)."""
        starts = np.arange(self.n_tokens(window)) * self.stride
        return starts[:, None] + np.arange(self.patch)


# Every row of a window is a token.
PLAIN = WindowForm()


def learn_form(window, patch, patch_stride):
    """The form of windows that are cut into patches as users ask.

    Raises
    ------
    ValueError
        If rows of a window would be left out.
    """
    patch = check_integer("patch", patch)
    stride = patch if patch_stride is None else check_integer("patch_stride", patch_stride)
    if patch > window:
        raise ValueError(
            f"patch={patch} is longer than window={window}; use a patch of at most {window}, or a "
            "longer window."
        )
    if stride > patch:
        raise ValueError(
            f"patch_stride={stride} is longer than patch={patch}, which leaves rows between two "
            f"patches out; use a stride of at most {patch}."
        )
    left = (window - patch) % stride
    if left:
        near = f"a window of {window - left} or {window - left + stride}"
        if patch_stride is None:
            raise ValueError(
                f"patch={patch} does not divide window={window}: {left} rows would be left over; "
                f"use {near}, a patch that divides {window}, or a patch_stride that divides "
                f"window - patch = {window - patch}."
            )
        raise ValueError(
            f"patch_stride={stride} does not divide window - patch = {window - patch}: {left} rows "
            f"of a window would be left over; use {near}, or another stride."
        )
    return WindowForm(patch, stride)


def filled_window(n_rows, patch, patch_stride=None):
    """The shortest window of at least ``n_rows`` rows that patches fill to the end."""
    patch = check_integer("patch", patch)
    stride = patch if patch_stride is None else check_integer("patch_stride", patch_stride)
    return patch + -(-max(0, n_rows - patch) // stride) * stride


def relative_form(
    form, relative, relative_columns, target_columns, n_columns, names, channel_independent=False
):
    """The form of windows that are relative to their level, or whose channels are samples.

    Parameters
    ----------
    form : WindowForm
    relative : {"last", "standard"} or None
    relative_columns : column, list of columns or None
        None is every column.
    target_columns : column, list of (column or None), or None
    n_columns : int
        Columns of the series.
    names : ndarray of str of shape (n_columns,) or None
        Their names.
    channel_independent : bool

    Raises
    ------
    ValueError
        If an argument is not one of those above, or names something that is not there.
    """
    if not isinstance(channel_independent, bool | np.bool_):
        raise ValueError(f"channel_independent must be True or False, got {channel_independent!r}.")
    given = {"relative_columns": relative_columns}
    if not channel_independent:
        given["target_columns"] = target_columns
    if relative is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} needs relative='last' or 'standard' to act on: set relative."
                )
    elif not isinstance(relative, str) or relative not in ("last", "standard"):
        raise ValueError(f"relative must be 'last', 'standard' or None, got {relative!r}.")
    columns, targets = tuple(range(n_columns)), None
    if relative_columns is not None:
        columns = _places("relative_columns", relative_columns, n_columns, names)
        if not columns or len(set(columns)) < len(columns):
            raise ValueError(
                f"relative_columns={relative_columns!r} must name at least one column, and each "
                "once; None is every column."
            )
    if target_columns is not None:
        gaps = not channel_independent
        targets = _places("target_columns", target_columns, n_columns, names, gaps=gaps)
    channels = ()
    if channel_independent:
        channels = tuple(range(n_columns)) if targets is None else tuple(dict.fromkeys(targets))
        _check_channels(channels, targets, columns if relative else (), names)
    elif targets is not None:
        absolute = [place for place in targets if place is not None and place not in columns]
        if absolute:
            raise ValueError(
                f"target_columns={target_columns!r} has columns that are not among "
                f"relative_columns={relative_columns!r}; name them there too, or write None for "
                "these targets, which leaves them as they are."
            )
    columns = tuple(sorted(columns)) if relative else ()
    return replace(form, relative=relative, columns=columns, targets=targets, channels=channels)


def _check_channels(channels, targets, relative, names):
    """Refuse channels that are not alike: one model serves all of them."""

    def named(places):
        return list(places) if names is None else [str(names[place]) for place in places]

    if targets is not None and len({targets.count(place) for place in channels}) > 1:
        counts = dict(zip(named(channels), map(targets.count, channels), strict=True))
        raise ValueError(
            "channel_independent=True needs as many columns of y for every channel, got "
            f"target_columns with {counts}; name each equally often."
        )
    some = set(channels) & set(relative)
    if some and some != set(channels):
        raise ValueError(
            f"channel_independent=True reads all channels alike, but of {named(channels)} only "
            f"{named(sorted(some))} are among relative_columns; name all of them or none."
        )


def _places(argument, columns, n_columns, names, gaps=False):
    """Numbers of columns that are given by number or by name; with ``gaps`` some may be None."""
    single = isinstance(columns, str | Integral)
    if not single and not isinstance(columns, list | tuple | range | np.ndarray):
        raise ValueError(
            f"{argument} must be a column of series or a list of them, got {columns!r}."
        )
    known = {} if names is None else {name: place for place, name in enumerate(names)}
    places = []
    for column in [columns] if single else columns:
        number = isinstance(column, Integral) and not isinstance(column, bool)
        if column is None and gaps:
            places.append(None)
        elif number and 0 <= column < n_columns:
            places.append(int(column))
        elif isinstance(column, str) and column in known:
            places.append(known[column])
        else:
            allowed = f"a number from 0 to {n_columns - 1}"
            allowed += f", or one of {list(known)}" if known else "; this series has no names"
            raise ValueError(
                f"{argument}={columns!r}: {column!r} is not a column of series; pass {allowed}."
            )
    return tuple(places)


def check_form(fitted, form, owner):
    """Refuse windows of another form than those of fit.

    Parameters
    ----------
    fitted, form : WindowForm
        As fit learnt it, and of a later view.
    owner : str
        Class name of the estimator.
    """
    asked, known = (
        one.arguments
        | {
            "relative_columns": list(one.columns),
            "target_columns": one.targets,
            "channel_independent": bool(one.channels),
        }
        for one in (form, fitted)
    )
    if form.targets is None:  # a view to predict from need not say what is predicted
        known["target_columns"] = None
    other = [name for name in asked if asked[name] != known[name]]
    if other:
        found, needed = (
            ", ".join(f"{n}={values[n]!r}" for n in other) for values in (asked, known)
        )
        raise ValueError(
            f"X is a SequenceView with {found}, but {owner} was fitted on {needed}; pass the same."
        )
