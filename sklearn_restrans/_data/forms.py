"""How the rows of a window become tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._validation import check_integer


@dataclass(frozen=True)
class WindowForm:
    """How the rows of a window become tokens.

    Attributes
    ----------
    patch : int
        Consecutive rows of a window that make one token.
    stride : int
        Rows from the beginning of one patch to that of the next.
    """

    patch: int = 1
    stride: int = 1

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


def check_form(fitted, form, owner):
    """Refuse windows of another form than those of fit.

    Parameters
    ----------
    fitted, form : WindowForm
        As fit learnt it, and of a later view.
    owner : str
        Class name of the estimator.
    """
    asked = {"patch": form.patch, "patch_stride": form.stride}
    known = {"patch": fitted.patch, "patch_stride": fitted.stride}
    other = [name for name in asked if asked[name] != known[name]]
    if other:
        found, needed = (
            ", ".join(f"{n}={values[n]!r}" for n in other) for values in (asked, known)
        )
        raise ValueError(
            f"X is a SequenceView with {found}, but {owner} was fitted on {needed}; pass the same."
        )
