"""Each channel of a window a sample of its own: one model for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .forms import WindowForm
from .scaling import Scaler
from .split import scaling_rows
from .windows import SequenceView, as_stacked


@dataclass(frozen=True, eq=False)
class ChannelSamples:
    """What fit learnt about windows whose channels are samples of their own.

    Window i with C channels becomes the samples i C to i C + C - 1. Each holds its own channel,
    standardised by the mean and scale that this channel has in the training rows, and after it the
    columns that are no channel, which all of them share. Its targets are the later values of its
    own channel, in the same units.

    Attributes
    ----------
    form : WindowForm
        Its ``channels`` are the columns that are samples.
    mean, scale : ndarray of shape (C,)
        Of the channels in the training rows. The scale of a channel that stands still there is the
        size of its level, or the smallest of the others.
    order : ndarray of int of shape (C, h)
        Columns of y by channel and step ahead.
    n_axes : int
        Axes of y.
    names : ndarray of str or None
        Names of the columns of a sample.
    """

    form: WindowForm
    mean: np.ndarray
    scale: np.ndarray
    order: np.ndarray
    n_axes: int
    names: np.ndarray | None = None

    @property
    def n_channels(self):
        """Samples that a window becomes."""
        return len(self.mean)

    def view(self, X):
        """The samples of a SequenceView as another one, or of windows (n, T, patch * f)."""
        C = self.n_channels
        if not isinstance(X, SequenceView):
            rows = X.reshape(*X.shape[:2], self.form.patch, -1)
            return self._apart(rows).swapaxes(0, 1).reshape(len(X) * C, X.shape[1], -1)
        stacked = self._apart(np.asarray(X.series))
        own_form = self._own_form(self._shared(X.series.shape[1]))
        return as_stacked(X, stacked.reshape(-1, stacked.shape[2]), C, own_form)

    def _shared(self, n_columns):
        return [k for k in range(n_columns) if k not in self.form.channels]

    def _apart(self, rows):
        """Rows (C, ..., 1 + s) of every channel, standardised, from rows (..., f) of all."""
        shared = self._shared(rows.shape[-1])
        kind = np.result_type(rows.dtype, np.float32)
        apart = np.empty((self.n_channels, *rows.shape[:-1], 1 + len(shared)), dtype=kind)
        # float64 inside: a large offset takes the digits of float32
        own = (rows[..., list(self.form.channels)].astype(np.float64) - self.mean) / self.scale
        apart[..., 0] = np.moveaxis(own, -1, 0)
        apart[..., 1:] = rows[..., shared]
        return apart

    def _own_form(self, shared):
        """The form of the samples, whose first column is their own channel."""
        form = self.form
        own = (0,) if set(form.channels) & set(form.columns) else ()
        columns = own + tuple(1 + shared.index(k) for k in form.columns if k in shared)
        relative = form.relative if columns else None
        targets = (0 if own else None,) * self.order.shape[1] if relative else None
        return replace(form, relative=relative, columns=columns, targets=targets, channels=())

    def repeated(self, weight):
        """Weights of the samples from those of the windows; None stays None."""
        return None if weight is None else np.repeat(weight, self.n_channels)

    def rows(self, rows):
        """Numbers of the samples of these windows."""
        return (np.asarray(rows)[:, None] * self.n_channels + np.arange(self.n_channels)).ravel()

    def encode(self, y):
        """Targets (n C,) or (n C, h) of the samples from those of the windows, (n,) or (n, C h)."""
        y = y.reshape(len(y), -1)
        if y.shape[1] != self.order.size:
            C, h = self.order.shape
            raise ValueError(
                f"y has {y.shape[1]} column(s), but the channels of X are samples, and {C} of them "
                f"with {h} column(s) of y each need {C * h}."
            )
        y = (y[:, self.order] - self.mean[:, None]) / self.scale[:, None]
        return y.reshape(-1, y.shape[2]) if y.shape[2] > 1 else y.ravel()

    def decode(self, y):
        """Predictions (n, q) or (n, C h, q) of the windows, from those of the samples.

        q is the number of quantiles, or 1.
        """
        C, h = self.order.shape
        y = y.reshape(len(y) // C, C, h, -1)
        y = y * self.scale[:, None, None] + self.mean[:, None, None]
        wide = np.empty((len(y), C * h, y.shape[3]))
        wide[:, self.order.ravel()] = y.reshape(len(y), C * h, -1)
        return wide[:, 0] if self.n_axes == 1 else wide


def learn_channels(X, y, rows, names):
    """The samples of a SequenceView, and of its targets, from its training rows.

    Parameters
    ----------
    X : SequenceView
        Whose form names channels.
    y : ndarray of shape (n,) or (n, C h)
    rows : ndarray of int
        Its training windows.
    names : ndarray of str or None
        Names of the columns of the series.
    """
    form, channels = X.form, X.form.channels
    n_columns = y[:1].size
    if form.targets is None:
        if n_columns % len(channels):
            raise ValueError(
                f"y has {n_columns} column(s), which cannot be shared out among the "
                f"{len(channels)} channels of X, each of which is a sample: pass the targets of "
                "one channel after the other, equally many, or say target_columns."
            )
        order = np.arange(n_columns).reshape(len(channels), -1)
    elif len(form.targets) != n_columns:
        raise ValueError(
            f"y has {n_columns} column(s), but the SequenceView X was given {len(form.targets)} "
            "target_columns; name one for every column of y."
        )
    else:
        order = np.array([np.flatnonzero(np.equal(form.targets, k)) for k in channels])
    scaler = Scaler.fit(*scaling_rows(X, rows, None))
    mean, scale = (values[list(channels)] for values in (scaler.mean, scaler.scale))
    least = scale[scale > 0].min(initial=np.inf)
    level = np.where(mean == 0, least if np.isfinite(least) else 1.0, np.abs(mean))
    if names is not None:
        shared = [name for k, name in enumerate(names) if k not in channels]
        names = np.array(["the channel", *shared], dtype=object)
    return ChannelSamples(form, mean, np.where(scale == 0, level, scale), order, y.ndim, names)
