"""How fast a fit converged, how fast descent provably does, and what it will do.

The loss is the training loss on standardised targets. For the squared error it is the Phi of
arXiv:2506.05249, ``Phi = s/2 sum_i w_i ||F_i - Y_i||^2``, with the scale s = 2 / (N c): N rows of
mean weight 1 with c outputs each. Step sizes, curvatures and constants belong to that s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from .. import theory

__all__ = ["Convergence"]

_QUANTITIES = (
    *("rate", "contraction", "epochs_to", "final_loss"),
    *("relative_loss", "local_rate", "pl_ratio"),
)


class LocalRate(NamedTuple):
    """A rate, those of both halves, and the epochs meant; see :meth:`Convergence.local_rate`."""

    rate: float
    first_half: float
    second_half: float
    start: int
    stop: int


def check_quantity(quantity, loss):
    """Refuse quantities that :meth:`Convergence.get` does not know."""
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity must be one of {_QUANTITIES}, got {quantity!r}.")
    if (quantity == "epochs_to") != (loss is not None):
        raise ValueError(
            "quantity='epochs_to' needs the loss to reach, and the others take none; got "
            f"quantity={quantity!r}, loss={loss!r}."
        )


class Convergence:
    """Convergence of one fit, as recorded while it ran.

    Parameters
    ----------
    loss : array-like of shape (n_epochs,)
        Weighted mean training loss Phi of each epoch, on standardised targets and without weight
        decay. With "gd", "lbfgs" and "gauss_newton" it is the loss at the weights before the
        epoch's step; with the other solvers it is the mean over the epoch's batches.
    learning_rate : array-like of shape (n_epochs,)
        Step size at the end of each epoch; 1 for "gauss_newton", NaN for "lbfgs", whose line search
        scales a direction that has no size of its own.
    validation_loss : array-like of shape (n_epochs,), default=None
        The same loss on the validation part, if there was one.
    gradients : array-like of shape (n_records, 3), default=None
        Rows (epoch, Phi, ||grad Phi||), with Phi and its gradient at the same weights and on the
        same data. With "gd", "lbfgs" and "gauss_newton" these are all training rows, at the start
        of each epoch. With the other solvers they are the probe set, at the end of the epochs at
        which conditioning is recorded, where epoch 0 is before training.
    scale : float, default=None
        s = 2 / (N c) for the squared error; None for other losses.
    details : mapping of str to array-like of shape (n_epochs,), default=None
        What a descent on all rows measured at its steps, by name; kept as `details`, and columns of
        :meth:`to_frame`. Of "gd" ``kappa`` (the curvature that the step met) and, with
        learning_rate_init="auto", ``largest_curvature`` and ``undone``. Of "gauss_newton" and
        "lbfgs" with weight decay ``penalised_loss``, which is what they minimise and what
        ``n_iter_no_change`` watches: the loss itself may rise. Of "gauss_newton" ``damping``
        (lambda), ``gain`` (the decrease of the penalised loss as a share of the one foretold by
        the quadratic model; 0 if no step lowered it), ``n_evaluations`` (dampings tried),
        ``n_products`` (of conjugate gradients; 0 with Cholesky factors) and, for the squared
        error, ``remainder`` (what the linear model missed of the new residual, as a share of the
        old one). Of "lbfgs" ``step_norm`` (length of the step) and ``n_evaluations`` (of loss and
        gradient).

    Attributes
    ----------
    epochs : ndarray of shape (n_epochs,)
        Epoch numbers, from 1.
    rate : float
        Minus the least-squares slope of log(loss) per epoch over the whole fit, positive when the
        loss fell. NaN with fewer than two epochs or a loss of 0.
    contraction : float
        exp(-rate), the mean factor of the loss per epoch.
    relative_loss : ndarray of shape (n_epochs,)
        Phi / Phi_0, where Phi_0 is the first entry of `loss`. For "gd", "lbfgs" and "gauss_newton"
        that is the loss at the weights training started from, for the other solvers the mean over
        the first epoch.
    gradient_epochs, gradient_loss, gradient_norm : ndarray of shape (n_records,)
        The columns of `gradients`.
    pl_ratio : ndarray of shape (n_records,)
        ||grad Phi||^2 / (2 Phi), the realised Polyak-Lojasiewicz ratio, of which a PL constant is a
        lower bound.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.
    H. Karimi, J. Nutini, M. Schmidt, "Linear convergence of gradient and proximal-gradient methods
    under the Polyak-Lojasiewicz condition", ECML PKDD 2016.

    Examples
    --------
    >>> from sklearn_restrans.convergence import Convergence
    >>> curve = Convergence(loss=[1.0, 0.5, 0.25], learning_rate=[0.1, 0.1, 0.1])
    >>> round(curve.contraction, 6), curve.epochs_to(0.5)
    (0.5, 2.0)
    """

    def __init__(
        self,
        loss,
        learning_rate,
        validation_loss=None,
        *,
        gradients=None,
        scale=None,
        details=None,
    ):
        self.loss = np.asarray(loss, dtype=float)
        self.learning_rate = np.asarray(learning_rate, dtype=float)
        self.validation_loss = (
            None if validation_loss is None else np.asarray(validation_loss, dtype=float)
        )
        self.epochs = np.arange(1, len(self.loss) + 1)
        gradients = np.asarray(() if gradients is None else gradients, dtype=float).reshape(-1, 3)
        # After a warm start the epochs of another solver have no gradient.
        gradients = gradients[~np.isnan(gradients).any(axis=1)]
        self.gradient_epochs = gradients[:, 0].astype(int)
        self.gradient_loss, self.gradient_norm = gradients[:, 1], gradients[:, 2]
        self.scale = scale
        self.details = {name: np.asarray(values) for name, values in (details or {}).items()}

    @property
    def rate(self):
        # A loss of 0 has no logarithm, and one epoch has no slope.
        if len(self.loss) < 2 or (self.loss <= 0).any():
            return float("nan")
        return float(-np.polyfit(self.epochs, np.log(self.loss), 1)[0])

    @property
    def contraction(self):
        return float(np.exp(-self.rate))

    @property
    def relative_loss(self):
        with np.errstate(divide="ignore", invalid="ignore"):  # Phi_0 = 0
            return self.loss / self.loss[:1]

    @property
    def pl_ratio(self):
        with np.errstate(divide="ignore", invalid="ignore"):  # a loss of 0
            return self.gradient_norm**2 / (2 * self.gradient_loss)

    def local_rate(self, start=None, stop=None):
        """Minus the slope of log ||grad Phi||^2 per epoch on a stretch, and on its halves.

        The limit of the loss may be above 0 and need not be known, because ||grad Phi||^2 falls as
        fast as Phi approaches it. The rate is local and should not be extrapolated.

        Parameters
        ----------
        start, stop : int, default=None
            First and last epoch of the stretch; None means the second half of the recorded epochs.

        Returns
        -------
        rate, first_half, second_half : float
            Greater is faster. The rates of the two halves tell how much the rate varies.
        start, stop : int
            The stretch.

        Raises
        ------
        ValueError
            If fewer than 4 gradients at equal distances were recorded on the stretch.
        """
        moving = self.gradient_norm > 0  # a gradient of 0 has no logarithm
        epochs, norm = self.gradient_epochs[moving], self.gradient_norm[moving]
        if start is None and len(epochs):
            # With fewer than 8 records the second half would be too short for a rate.
            start = epochs[len(epochs) // 2 if len(epochs) >= 8 else 0]
        inside = (epochs >= (start or 0)) & (epochs <= (np.inf if stop is None else stop))
        epochs, norm = epochs[inside], norm[inside]
        if len(epochs) > 1:
            # The last record, of the epoch whose weights were kept, may break the equal spacing.
            even = np.logical_and.accumulate(np.diff(epochs) == epochs[1] - epochs[0])
            n_even = 1 + np.count_nonzero(even)
            epochs, norm = epochs[:n_even], norm[:n_even]
        if len(epochs) < 4:
            raise ValueError(
                "a local rate needs the gradient at 4 or more equally spaced epochs, and "
                f"{len(epochs)} were recorded. 'gd', 'lbfgs' and 'gauss_newton' record every "
                "epoch; the other solvers do so with conditioning_interval=1."
            )
        # theory counts by record; divided by their distance it is the rate per epoch.
        rates = np.array(theory.local_rate(norm)) / (epochs[1] - epochs[0])
        return LocalRate(*rates.tolist(), int(epochs[0]), int(epochs[-1]))

    def epochs_to(self, loss):
        """First epoch whose training loss is at most ``loss``; inf if there is none.

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
        quantity : {"rate", "contraction", "epochs_to", "final_loss", "relative_loss", \
                "local_rate", "pl_ratio"}
            Quantity to return. Of a curve it is the last value, and of the local rate the one on
            the second half of the recorded epochs. NaN if too few were recorded.
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
        check_quantity(quantity, loss)
        if quantity == "epochs_to":
            return self.epochs_to(loss)
        if quantity == "local_rate":
            found = self._local_rate_or_none()
            return float("nan") if found is None else found.rate
        value = self.loss if quantity == "final_loss" else getattr(self, quantity)
        return float(np.append(float("nan"), value)[-1])  # NaN where nothing was recorded

    def _local_rate_or_none(self):
        try:
            return self.local_rate()
        except ValueError:
            return None

    def to_frame(self):
        """One row per epoch.

        Returns
        -------
        frame : DataFrame indexed by epoch
            Columns loss, relative_loss and learning_rate, and, if recorded, validation_loss,
            those of `details`, gradient_norm and pl_ratio.
        """
        columns = {
            "loss": self.loss,
            "relative_loss": self.relative_loss,
            "learning_rate": self.learning_rate,
        }
        if self.validation_loss is not None:
            columns["validation_loss"] = self.validation_loss
        columns.update(self.details)
        frame = pd.DataFrame(columns, index=pd.Index(self.epochs, name="epoch"))
        if len(self.gradient_epochs):
            recorded = {"gradient_norm": self.gradient_norm, "pl_ratio": self.pl_ratio}
            recorded = pd.DataFrame(recorded, index=self.gradient_epochs)
            # After a warm start the last record of one fit and the first of the next coincide.
            frame = frame.join(recorded[~recorded.index.duplicated()])
        return frame

    def __repr__(self):
        if not len(self.loss):
            return "Convergence(no epoch)"
        text = (
            f"Convergence: training loss {self.loss[0]:.4g} -> {self.loss[-1]:.4g} in "
            f"{len(self.loss)} epochs, a factor of {self.contraction:.4g} per epoch"
        )
        local = self._local_rate_or_none()
        if local is not None:
            factor, *halves = np.exp([-local.rate, -local.first_half, -local.second_half])
            text += (
                f"; on epochs {local.start} to {local.stop} ||grad Phi||^2 changes by a factor of "
                f"{factor:.4g} per epoch ({halves[0]:.4g} and {halves[1]:.4g} in the halves)"
            )
        return text
