"""What the parameters of an estimator mean for its model and its training."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from ._core import Architecture
from ._training import StopRule
from ._views import SequenceView


class Settings:
    """Parameters with "auto" and None resolved; mixed into the estimators."""

    def _decay(self, arch):
        """weight_decay as a number."""
        if self.weight_decay != "auto":
            return float(self.weight_decay)
        return 0.3 if arch.embedding == "linear" and self.solver == "adamw" else 0.0

    def _check_step(self):
        """The step size, and what the solver needs beside it."""
        if self.learning_rate_init == "auto" and self.solver not in ("gd", "sgd"):
            raise ValueError(
                "learning_rate_init='auto' is 1 / curvature, a step for solver='gd' or 'sgd'; "
                f"solver={self.solver!r} rescales every weight's step: pass a number."
            )
        if self.solver == "gd":
            for name, allowed in (("weight_decay", (0, "auto")), ("dropout", (0,))):
                if getattr(self, name) not in allowed:
                    raise ValueError(
                        f"solver='gd' is exact gradient descent on the loss: {name} must be 0, got "
                        f"{getattr(self, name)!r}."
                    )
            if self.learning_rate == "one_cycle":
                raise ValueError(
                    "solver='gd' takes one step size, which learning_rate_init='auto' only ever "
                    "lowers; learning_rate='one_cycle' is for the other solvers."
                )
        step = self.learning_rate_init
        return step if step == "auto" else float(step)

    def _stop_rule(self, valid):
        if valid is None:
            monitor, patience = "train_loss", self.n_iter_no_change
        else:
            monitor = "valid_loss"
            patience = self.n_iter_no_change if self.early_stopping else None
        advice = (
            f"Lower learning_rate_init (now {self.learning_rate_init!r}), or residual_beta (now "
            f"{self.residual_beta!r}), which scales the curvature; solver is {self.solver!r}."
        )
        return StopRule(monitor, patience, self.tol, valid is not None, advice)

    def _architecture(self, X):
        """Shapes and formulas of the model for a validated X."""
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model must be a multiple of n_heads, got d_model={self.d_model} and "
                f"n_heads={self.n_heads}."
            )
        readout = self.readout
        if readout == "auto":
            readout = self._default_readout(X)
        if self._input_kind == "tokens":
            embedding, n_tokens, n_features = "token", self._n_tokens, len(self._known_ids)
        else:
            embedding, n_columns = "linear", self._x_scaler.n_columns
            n_tokens, n_features = X.shape[1], n_columns
            if X.ndim == 2:
                embedding, n_tokens, n_features = "feature", n_columns, 1
        positions = self.positions
        if positions == "auto":
            positions = "sinusoidal" if embedding == "linear" else "learned"
        return Architecture(
            n_tokens=n_tokens,
            n_features=n_features,
            n_outputs=self._n_outputs(),
            n_layers=int(self.n_layers),
            d_model=self.d_model,
            n_heads=self.n_heads,
            d_ff=2 * self.d_model if self.d_ff is None else self.d_ff,
            activation=self.activation,
            norm=self.norm,
            dropout=float(self.dropout),
            positions=positions,
            readout=readout,
            embedding=embedding,
            learn_beta=self.learn_beta,
        )

    def _default_readout(self, X):
        if X.ndim == 2:
            return "mean"
        return "mean" if self._stratify and not isinstance(X, SequenceView) else "last"

    def _draw_seed(self):
        if self.random_state is None:
            # Not check_random_state(None): that would advance numpy's global state.
            return int(np.random.default_rng().integers(2**31 - 1))
        return int(check_random_state(self.random_state).randint(2**31 - 1))
