"""How fast a fit converged: the loss curve and what follows from it."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["Convergence"]

_QUANTITIES = ("rate", "contraction", "epochs_to", "final_loss")


def _check_quantity(quantity, loss):
    """Refuse what :meth:`Convergence.get` does not know."""
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity must be one of {_QUANTITIES}, got {quantity!r}.")
    if (quantity == "epochs_to") != (loss is not None):
        raise ValueError(
            f"quantity='epochs_to' needs the loss to reach and the others take none; got "
            f"quantity={quantity!r}, loss={loss!r}."
        )


class Convergence:
    """Convergence of one fit, as recorded while it ran.

    Parameters
    ----------
    loss : array-like of shape (n_epochs,)
        Weighted mean training loss of each epoch, on standardised targets. For the squared error
        this is Phi of arXiv:2506.05249 with the scale s = 2 / (N c).
    learning_rate : array-like of shape (n_epochs,)
        Step size at the end of each epoch.
    validation_loss : array-like of shape (n_epochs,), default=None
        The same loss on the validation part, where there was one.

    Attributes
    ----------
    epochs : ndarray of shape (n_epochs,)
        Epoch numbers, from 1.
    rate : float
        Minus the least-squares slope of log(loss) per epoch over the whole fit: positive when the
        loss fell. NaN with fewer than two epochs.
    contraction : float
        exp(-rate), the mean factor of the loss per epoch.

    Examples
    --------
    >>> from sklearn_restrans.convergence import Convergence
    >>> curve = Convergence(loss=[1.0, 0.5, 0.25], learning_rate=[0.1, 0.1, 0.1])
    >>> round(curve.contraction, 6), curve.epochs_to(0.5)
    (0.5, 2.0)
    """

    def __init__(self, loss, learning_rate, validation_loss=None):
        self.loss = np.asarray(loss, dtype=float)
        self.learning_rate = np.asarray(learning_rate, dtype=float)
        self.validation_loss = (
            None if validation_loss is None else np.asarray(validation_loss, dtype=float)
        )
        self.epochs = np.arange(1, len(self.loss) + 1)

    @property
    def rate(self):
        if len(self.loss) < 2 or (self.loss <= 0).any():
            return float("nan")
        return float(-np.polyfit(self.epochs, np.log(self.loss), 1)[0])

    @property
    def contraction(self):
        return float(np.exp(-self.rate))

    def epochs_to(self, loss):
        """First epoch whose training loss is at most ``loss``; inf if none is.

        Parameters
        ----------
        loss : float
            Loss to reach, in the units of ``self.loss``.

        Returns
        -------
        epoch : float
        """
        reached = np.flatnonzero(self.loss <= loss)
        return float(self.epochs[reached[0]]) if len(reached) else float("inf")

    def get(self, quantity, loss=None):
        """One number, for scorers.

        Parameters
        ----------
        quantity : {"rate", "contraction", "epochs_to", "final_loss"}
            What to return.
        loss : float, default=None
            The loss to reach, for "epochs_to".

        Returns
        -------
        value : float

        Raises
        ------
        ValueError
            For another quantity, or "epochs_to" without a loss.
        """
        _check_quantity(quantity, loss)
        if quantity == "epochs_to":
            return self.epochs_to(loss)
        return float(self.loss[-1]) if quantity == "final_loss" else getattr(self, quantity)

    def to_frame(self):
        """One row per epoch: loss, learning_rate and, where recorded, validation_loss.

        Returns
        -------
        frame : DataFrame indexed by epoch
        """
        columns = {"loss": self.loss, "learning_rate": self.learning_rate}
        if self.validation_loss is not None:
            columns["validation_loss"] = self.validation_loss
        return pd.DataFrame(columns, index=pd.Index(self.epochs, name="epoch"))

    def __repr__(self):
        if not len(self.loss):
            return "Convergence(no epoch)"
        return (
            f"Convergence: training loss {self.loss[0]:.4g} -> {self.loss[-1]:.4g} in "
            f"{len(self.loss)} epochs, a factor of {self.contraction:.4g} per epoch"
        )
