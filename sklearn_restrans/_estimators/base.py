"""What the estimators share: fit, prediction, diagnostics, pickling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._compat import CallbackSupportMixin, _fit_context, fit_task, metadata_of
from .._data.inputs import learn_inputs
from .._data.panels import as_sequences, is_panel
from .._data.targets import ClassTargets, RegressionTargets
from .._data.tokens import pretrained_vectors, takes_ids
from .._training.descent import Objective
from .._training.device import available_device, own_threads
from .._training.losses import SampleLoss
from .._training.net import make_net
from .._training.prediction import outputs
from .._training.settings import FULL_BATCH, STEP_DETAILS, TrainingSettings
from .._training.state import net_state, restore_net, unfilled_module
from ..diagnostics.convergence import Convergence
from ..diagnostics.protocol import ObjectiveAt
from .candidates import keep, train_estimator
from .declaration import declared
from .fitting import new_module
from .parameters import (
    ATTRIBUTES,
    BetaParameter,
    ModelParameters,
    RunParameters,
    TrainingParameters,
    beta_matrix,
    check_step,
    draw_seed,
)
from .preparation import EPOCHS_OF_TEXTS, architecture, known_epochs, n_epochs, prepare
from .probe import exact_copy, layer_traces

_CPU = torch.device("cpu")


def forget(estimator):
    """Remove what an earlier fit left on an estimator.

    Names that scikit-learn keeps there (metadata requests, callbacks) begin with an underscore and
    stay.
    """
    fitted = [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]
    for name in {*fitted, "_preprocessing"} & vars(estimator).keys():
        delattr(estimator, name)


def _table(history):
    """The history of a net as a frame of one row per epoch."""
    return pd.DataFrame(history.to_list()).drop(columns="batches").set_index("epoch")


@declared
class TransformerBase(CallbackSupportMixin, RunParameters, TrainingParameters, BaseEstimator, ABC):
    """Shared body; a kind of estimator adds its model, its losses, its targets and predictions.

    A fit goes one way (`train_estimator`): a problem is made of parameters and data, a model is
    trained on it, and `_keep` assigns what is reported. Before `_keep` nothing of the estimator
    changes, so a fit that fails leaves it as it was.
    """

    # How y is coded, and how the weights start.
    _target_kind: ClassVar[type[RegressionTargets] | type[ClassTargets]]
    _start: str
    _batch_bounds: ClassVar[tuple[int, int]] = (8, 64)  # of batch_size="auto"
    _attributes: ClassVar[dict[str, tuple[str, str | None]]] = ATTRIBUTES

    # -- what the model is made from ---------------------------------------------------------------

    def _as_given(self, X, y):
        """X before anything is checked."""
        return X

    @abstractmethod
    def _learn_inputs(self, X, segments):
        """The spec of X, and X validated."""

    @abstractmethod
    def _inputs_asked(self, inputs):
        """What the parameters ask of X, by name, to be held against the spec of an earlier fit."""

    @abstractmethod
    def _architecture(self, preprocessing):
        """The shapes and formulas of the model."""

    def _given_weights(self, inputs, arch):
        """Weights that the model starts with and that are not drawn: name -> array."""
        return {}

    def _epoch_rule(self):
        """How max_iter="auto" follows from the number of samples; None where it does not."""
        return None

    def _step(self, arch):
        """The step size, or "auto"."""
        return check_step(self)

    def _levels(self):
        """Levels of the quantiles that the model predicts; None where it predicts one number."""
        return None

    def _weigh(self, y, weight):
        """Sample weights with those of the classes."""
        return weight

    # -- fit -----------------------------------------------------------------------------------

    def _keep(self, problem, trained):
        """Take over what was trained; the only place that sets fitted attributes."""
        attributes = self._fitted_attributes(problem, trained)
        forget(self)
        self._preprocessing = problem.preprocessing
        vars(self).update(attributes)
        return self

    def _fitted_attributes(self, problem, trained):
        """What a fit leaves to users, by name."""
        codings, net = problem.preprocessing, trained.net
        history = _table(net.history)
        gradients = trained.gradients
        if net.settings.solver in FULL_BATCH:
            gradients = history[["train_loss", "gradient_norm"]].reset_index().to_numpy(dtype=float)
        convergence = Convergence(
            history["train_loss"],
            history["learning_rate"],
            history.get("valid_loss"),
            gradients=gradients,
            scale=problem.scale if net.settings.loss == "squared_error" else None,
            details={name: history[name] for name in STEP_DETAILS if name in history},
        )
        attributes = {
            "net_": net,
            "conditioning_": trained.conditioning,
            "convergence_": convergence,
            "best_iteration_": trained.best_epoch,
            "device_": str(problem.device),
            "n_iter_": len(history),
            "loss_curve_": history["train_loss"].tolist(),
            "residual_beta_": net.module_.beta.detach().cpu().numpy().astype(float),
        }
        if codings.inputs.n_features is not None:
            attributes["n_features_in_"] = codings.inputs.n_features
        if codings.inputs.names is not None:
            attributes["feature_names_in_"] = codings.inputs.names
        if "valid_loss" in net.history[-1]:
            scores = (-history["valid_loss"]).tolist()
            attributes["validation_scores_"] = scores
            attributes["best_validation_score_"] = scores[trained.best_epoch - 1]
        return attributes

    # -- use -----------------------------------------------------------------------------------

    @property
    def history_(self):
        """One row per epoch: losses, step size, seconds."""
        # Made when asked for: the fitted state holds arrays, numbers and strings only, which
        # every way of storing a model can write.
        if not hasattr(self, "net_"):
            raise AttributeError(f"{type(self).__name__} has no history_ before fit keeps a model.")
        return _table(self.net_.history)

    def _outputs(self, X, segments=None):
        """Raw model outputs (n, c) as float64."""
        check_is_fitted(self)
        codings, module = self._preprocessing, self.net_.module_
        X = codings.view(codings.inputs.check(X, segments))
        device, dtype = module.W_in.device, module.W_in.dtype
        with own_threads(self.n_threads, limit_blas=False):
            source = codings.source(X, dtype, device)
            out = outputs(module, source, self.net_.settings.autocast)
        if not np.isfinite(out).all():
            row = np.flatnonzero(~np.isfinite(out).all(axis=1))[0]
            raise ValueError(
                f"the output for row {row} of X is not finite: its values lie too far from those "
                "the model was fitted on for its number type; check their units."
            )
        return out

    # -- the protocol of diagnostics -------------------------------------------------------------

    def __restrans_traces__(self, X, segments=None):
        """Per chunk of sequences, the LayerTrace of every layer, in float64."""
        check_is_fitted(self)
        codings = self._preprocessing
        X = codings.view(codings.inputs.check(X, segments))
        source = codings.source(X, torch.float64, _CPU)
        with own_threads(self.n_threads):
            yield from layer_traces(self.net_.module_, source, np.arange(len(X)))

    @_fit_context(prefer_skip_nested_validation=True)
    def __restrans_objective__(self, X, y, sample_weight=None, *, fitted=False):
        """The loss, in float64 on the CPU without dropout, and what its descent needs.

        At the weights fit would start from, on data prepared as fit prepares them; or at the fitted
        weights, with the codings of that fit.
        """
        seed, exact = draw_seed(self.random_state), {"dtype": torch.float64, "device": _CPU}
        if fitted:
            # Nothing is read from parameters that may have been set since.
            module, settings = exact_copy(self.net_.module_), self.net_.settings
            codings, step = self._preprocessing, settings.learning_rate
            n_steps = settings.max_iter
            criterion = SampleLoss(settings.loss, settings.quantiles)
            known = {"fitted": codings, "arch": module.arch}
            problem = prepare(self, X, y, sample_weight, seed=seed, **known, **exact)
        else:
            problem = prepare(self, X, y, sample_weight, seed=seed, **exact)
            criterion = SampleLoss(self.loss, self._levels())
            generator = torch.Generator().manual_seed(seed)
            beta = beta_matrix(self.residual_beta, problem.arch.n_layers)
            module = new_module(problem, self._start, beta, generator)
            step = self._step(problem.arch)
            n_steps = n_epochs(self, problem.arch, len(problem.train))
        objective = Objective(module.eval(), criterion, problem.train)
        return ObjectiveAt(objective, seed, step, n_steps)

    # -- scikit-learn's protocols ----------------------------------------------------------------

    def __sklearn_is_fitted__(self):
        return hasattr(self, "net_")

    # -- pickling: plain numpy and builtins, whatever the device was -----------------------------

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "net_" in state:
            net = state.pop("net_")
            state["_net_state"] = {
                "settings": asdict(net.settings),
                **net_state(net, with_optimizer=self.warm_start),
            }
        return state

    def __setstate__(self, state):
        state = dict(state)
        saved = state.pop("_net_state", None)
        super().__setstate__(state)
        if saved is None:
            return
        device = available_device(saved["settings"]["device"])
        settings = TrainingSettings(**saved["settings"] | {"device": str(device)})
        with own_threads(1):
            net = make_net(unfilled_module(saved), settings, self.callbacks or ())
            self.net_ = restore_net(net, saved)
        self.device_ = str(device)


@declared
class ResidualTransformerBase(TransformerBase, ModelParameters):
    """Models whose shape is given by parameters, on numbers or token ids."""

    _readout_of_sequences: ClassVar[str]  # the token that a 3-D array is read out at

    @property
    def _start(self):
        return self.init

    def _as_given(self, X, y):
        # One target for every instance: its rows are points in time.
        return as_sequences(X) if self.window is None and is_panel(X, y) else X

    def _learn_inputs(self, X, segments):
        return learn_inputs(self, X, segments)

    def _inputs_asked(self, inputs):
        asked = {"window": self.window}
        if takes_ids(self.embedding) != (inputs.kind == "tokens"):
            asked["embedding"] = self.embedding if isinstance(self.embedding, str) else "an array"
        return asked

    def _architecture(self, preprocessing):
        return architecture(self, preprocessing)

    def _epoch_rule(self):
        return EPOCHS_OF_TEXTS if takes_ids(self.embedding) else None

    def _given_weights(self, inputs, arch):
        vectors = pretrained_vectors(self.embedding, self.d_model)
        return {} if vectors is None else {"W_in": vectors}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


@declared
class GivenBeta(BetaParameter):
    """The fit of the plain estimators, with the residual coefficient they were given."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X,
        y,
        sample_weight=None,
        *,
        X_val=None,
        y_val=None,
        segments=None,
        segments_val=None,
    ):
        """Fit the model to training data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), (n_samples, n_tokens, n_features) or \
                SequenceView
            A table (every column becomes a token), time-ordered rows if ``window`` is set, token
            ids (n_samples, n_tokens) if ``embedding`` says so, or sequences. Trailing tokens of a
            3-D X that are NaN in every channel, and trailing ids 0, are padding. Any other NaN is a
            missing reading: the mean, and where fit saw one missing in the same column a vector
            learnt for it. A value further outside the training range of its column than that
            range is wide is cut there; a column that was constant has no effect.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets; for windows and views of the row at which the window ends.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. Weight zero removes the target, not the row from the history of
            other rows.
        X_val : array-like, default=None
            Validation input of the same kind as X. If given, the weights of the epoch with the
            lowest validation loss are kept.
        y_val : array-like, default=None
            Validation targets.
        segments, segments_val : array-like of shape (n_rows,), default=None
            With ``window``, the series, station or stretch that each row of X (of X_val) belongs
            to: a window never crosses from one into another.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If an argument does not fit the others; the message names it.
        DivergenceError
            If a loss, a weight or an output is not finite: training diverged.
        """
        told = {"segments": segments, "segments_val": segments_val}
        shown = {"X": X, "y": y, "metadata": metadata_of(sample_weight)}
        with fit_task(self, known_epochs(self), **shown) as task:
            data = (X, y, sample_weight, X_val, y_val)
            keep(self, *train_estimator(self, self.residual_beta, *data, task=task, **told))
        return self
