"""What a fit learns of its data before any training: how X and y become what is learnt.

`learn_preprocessing` makes a `Preprocessing` of the training rows; it serves every later X and y.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .channels import ChannelSamples, learn_channels
from .forms import PLAIN
from .inputs import InputSpec
from .relative import RelativeWindows, learn_relative
from .scaling import Scaler
from .sources import make_source, rows_of
from .split import scaling_rows
from .targets import ClassTargets, RegressionTargets

_NONE = np.arange(0)


class Samples(NamedTuple):
    """Validated inputs, targets and weights, and which rows of them train and validate."""

    X: object
    y: np.ndarray
    weight: np.ndarray | None = None
    rows: np.ndarray = _NONE
    valid_rows: np.ndarray = _NONE


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """What fit learnt before training: what X is, how it is scaled, and how y is coded."""

    inputs: InputSpec
    scaler: Scaler | None  # None: X holds token ids
    targets: RegressionTargets | ClassTargets
    relative: RelativeWindows | None = None  # of windows that are read relative to their own level
    channels: ChannelSamples | None = None  # of windows whose channels are samples

    @property
    def names(self):
        """Names of the columns of a sample; None where they have none."""
        return self.inputs.names if self.channels is None else self.channels.names

    def view(self, X):
        """A validated X, as the samples that are learnt."""
        return X if self.channels is None else self.channels.view(X)

    def check_targets(self, y, owner):
        """A later y validated, of windows whose channels are samples as it was given."""
        targets = self.targets
        return targets.check(y, owner) if self.channels is None else targets.read(y, owner)

    def samples(self, given):
        """Validated windows and targets as the samples that are learnt."""
        given = _apart(self.channels, given)
        if self.relative is None:
            return given
        return given._replace(y=self.relative.encode(given.y, given.X))

    def predictions(self, outputs, X):
        """Predictions in the units and shape of y, for X as predict was given it."""
        y = self._in_units(self.targets.decode(outputs), X)
        return y if self.channels is None else self.channels.decode(y)[..., 0]

    def quantiles(self, outputs, X):
        """The same for every level of a model of quantiles."""
        y = self._in_units(self.targets.decode_quantiles(outputs), X)
        return y if self.channels is None else self.channels.decode(y)

    def _in_units(self, y, X):
        if self.relative is None:
            return y
        return self.relative.decode(y, self.view(self.inputs.check(X)))

    def source(self, X, dtype, device):
        """Scaled batches of a validated X, of samples."""
        if self.scaler is not None:
            self._warn_of_moved(X)
        return make_source(X, self.scaler, dtype, device, relative=self.relative)

    def _warn_of_moved(self, X):
        rows = rows_of(X, len(self.scaler.mean))
        moved, names = self.scaler.moved(rows), self.names
        if not len(moved):
            return
        shown = ", ".join(str(k) if names is None else repr(names[k]) for k in moved[:5])
        more = f" and {len(moved) - 5} more" if len(moved) > 5 else ""
        warnings.warn(
            f"X varies in columns that held one value, or none, in the training rows: {shown}"
            f"{more}. Nothing was learnt from them, so they have no effect on the predictions; "
            "leave them out, or fit on rows in which they vary.",
            UserWarning,
            stacklevel=5,
        )


def _apart(channels, given):
    """Windows as samples, where their channels are samples."""
    if channels is None:
        return given
    rows, valid_rows = channels.rows(given.rows), channels.rows(given.valid_rows)
    weight = channels.repeated(given.weight)
    return Samples(channels.view(given.X), channels.encode(given.y), weight, rows, valid_rows)


def learn_preprocessing(inputs, kind, given, loss, levels=None):
    """The codings of validated data, and the data as they are learnt.

    Parameters
    ----------
    inputs : InputSpec
    kind : RegressionTargets or ClassTargets, the class
    given : Samples
        As users gave them; the training rows count, and their weights.
    loss : str
    levels : tuple of float or None
        Of quantiles.

    Returns
    -------
    preprocessing : Preprocessing
    samples : Samples
    """
    form, classes = getattr(given.X, "form", PLAIN), issubclass(kind, ClassTargets)
    channels = scaler = relative = None
    if form.channels:
        if classes:
            raise ValueError(
                f"X has channel_independent=True, and {inputs.owner} has one label for all "
                "channels of a window: make the view without it; a regressor has targets for each."
            )
        channels = learn_channels(given.X, given.y, given.rows, inputs.names)
    samples = _apart(channels, given)
    X, rows = samples.X, samples.rows
    weight = None if samples.weight is None else samples.weight[rows]
    names = inputs.names if channels is None else channels.names
    if inputs.kind != "tokens":
        scaler = Scaler.fit(*scaling_rows(X, rows, weight))
    form = getattr(X, "form", PLAIN)  # of the samples
    if form.relative is not None:
        relative = learn_relative(X, rows, weight, scaler, form, names, classes=classes)
        # The level of these columns may drift as far as it will: only what is left of them is cut.
        scaler = scaler.unbounded(form.columns)
        relative.check_targets(samples.y, X, names)
        samples = samples._replace(y=relative.encode(samples.y, X))
    targets = kind.learn(samples.y, rows, samples.weight, loss, levels)
    return Preprocessing(inputs, scaler, targets, relative, channels), samples
