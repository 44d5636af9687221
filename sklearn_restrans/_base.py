"""What the two estimators share: validation, fit, prediction, diagnostics, pickling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from ._compat import Interval, StrOptions, _fit_context
from ._core import ACTIVATIONS, Architecture, ResidualTransformer, sinusoidal
from ._data import Scaler, make_source
from ._descent import Objective
from ._device import available_device, resolve_device, resolve_dtype, torch_state
from ._inputs import InputChecks
from ._run import PROBE, Ready, Run, exact_copy, layer_traces
from ._settings import Settings
from ._training import (
    EpochHook,
    SampleLoss,
    TrainingSet,
    continue_net,
    make_net,
    net_state,
    predict_chunks,
    print_log,
    restore_net,
    train,
)
from .diagnostics.convergence import Convergence
from .diagnostics.protocol import ObjectiveAt


class BaseResidualTransformer(Settings, InputChecks, BaseEstimator, ABC):
    """Shared body; a subclass knows its losses and how targets become numbers and back."""

    _parameter_constraints: ClassVar[dict] = {
        "residual_beta": [Interval(Real, 0, None, closed="left"), tuple, list, np.ndarray],
        "learn_beta": ["boolean"],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "d_model": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "d_ff": [Interval(Integral, 1, None, closed="left"), None],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "norm": [StrOptions({"pre", "post"}), None],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "positions": [StrOptions({"auto", "learned", "sinusoidal"}), None],
        "readout": [StrOptions({"auto", "last", "mean"})],
        "init": [StrOptions({"depth_scaled", "gaussian", "orthogonal", "zero_unembedding"})],
        "window": [Interval(Integral, 1, None, closed="left"), None],
        "dilation": [Interval(Integral, 1, None, closed="left")],
        "max_gap": "no_validation",  # `longest_step` says what is wrong
        "embedding": [StrOptions({"auto", "token"}), "array-like", torch.nn.Embedding],
        "solver": [StrOptions({"adamw", "adam", "sgd", "gd"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "learning_rate": [StrOptions({"auto", "constant", "one_cycle"})],
        "warm_start": ["boolean"],
        "callbacks": [list, tuple, None],
        "conditioning_interval": [Interval(Integral, 1, None, closed="left"), None],
        "conditioning_samples": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "device": [str],
        "dtype": [StrOptions({"auto", "float32", "float64", "bfloat16"})],
        # Room for threads that do not exist is taken too, and the process ends where it runs out.
        "n_threads": [Interval(Integral, 1, 1024, closed="both"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # -- what a subclass provides ------------------------------------------------------------

    @abstractmethod
    def _check_targets(self, y, reset):
        """Validated y as an array (n,) or (n, k)."""

    @abstractmethod
    def _encode_targets(self, y, weight):
        """Fit the target coding on the training targets."""

    @abstractmethod
    def _target_tensor(self, y, dtype):
        """Coded targets: (n, c) numbers, or (n,) class numbers."""

    @abstractmethod
    def _n_outputs(self):
        """Number of columns c of the output."""

    def _weigh_classes(self, y, weight):
        return weight

    # -- fit -----------------------------------------------------------------------------------

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
            learnt for it.
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
            If the loss left the finite numbers.
        """
        X, X_val = self._with_segments(X, segments), self._with_segments(X_val, segments_val)
        warm = self.warm_start and hasattr(self, "net_")
        if not warm:
            # A fit that fails must not leave an old net under new statistics.
            self.__dict__.pop("net_", None)
        seed, known = self._draw_seed(), vars(self).get("_known_ids")
        with torch_state(self.n_threads, seed, resolve_device(self.device)):
            try:
                ready = self._load(X, y, sample_weight, X_val, y_val, seed, warm)
                run = self._begin(ready, seed, warm)
                try:
                    best = train(run.net, ready.data, ready.valid, self.max_iter, run.rule, seed)
                finally:
                    run.release()
                self._end(run, best)
            except BaseException:
                if warm and known is not None:
                    self._known_ids = known
                raise
        return self

    def _load(self, X, y, sample_weight=None, X_val=None, y_val=None, seed=0, warm=False):
        """Validate, fit the scalings, and lay the data out as tensors."""
        if (X_val is None) != (y_val is None):
            given, missing = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"{given} was given without {missing}; pass both.")
        if warm and self._input_kind == "tokens":
            self._meet_ids(X)
        X, y, weight, rows, valid_rows = self._prepare(X, y, sample_weight, seed, X_val, warm)
        arch = self._architecture(X)
        if warm:
            self._check_warm(arch)
        device = resolve_device(self.device)
        dtype = resolve_dtype(self.dtype, X.dtype, len(X) * arch.n_tokens * arch.d_model, device)
        source = make_source(X, self._x_scaler, dtype, device)
        valid = None
        if X_val is not None:
            valid = self._given_validation(X_val, y_val, dtype, device)
        elif len(valid_rows):
            valid = self._training_set(source, y, weight, valid_rows, dtype)
        data = self._training_set(source, y, weight, rows, dtype)
        return Ready(arch, dtype, device, data, valid)

    def _prepare(self, X, y, sample_weight, seed, X_val=None, keep=False):
        """Validated data and the rows to train and validate on; fits the scalings unless kept."""
        X = self._check_X(X, reset=not keep)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        y = self._check_targets(y, reset=not keep)
        check_consistent_length(X, y)
        weight = self._weigh_classes(y, self._check_weight(sample_weight, X))
        rows, valid_rows = self._split(X, y, weight, seed, X_val)
        if not keep:
            fit_weight = None if weight is None else weight[rows]
            self._x_scaler = None
            if self._input_kind != "tokens":
                self._x_scaler = Scaler.fit(*self._scaling_rows(X, rows, fit_weight))
            self._encode_targets(y[rows], fit_weight)
        return X, y, weight, rows, valid_rows

    @_fit_context(prefer_skip_nested_validation=True)
    def _check_data(self, X, y, sample_weight):
        """Validate parameters and data as fit does; returns the validated X."""
        return self._prepare(X, y, sample_weight, seed=0)[0]

    @_fit_context(prefer_skip_nested_validation=True)
    def _check_parameters(self):
        """Refuse the parameters that fit would refuse whatever the data are."""
        self._beta(self.n_layers)
        self._check_step()
        check_random_state(self.random_state)

    @_fit_context(prefer_skip_nested_validation=True)
    def __restrans_objective__(self, X, y, sample_weight=None, *, fitted=False):
        """The loss, in float64 on the CPU without dropout, and the seed that goes with its descent.

        At the weights fit would start from, on data prepared as fit prepares them; or at the fitted
        weights, with the scalings of that fit.
        """
        seed = self._draw_seed()
        X, y, weight, rows, _ = self._prepare(X, y, sample_weight, seed, keep=fitted)
        dtype, device = torch.float64, torch.device("cpu")
        if fitted:
            module = exact_copy(self.net_.module_)
        else:
            generator = torch.Generator().manual_seed(seed)
            module = self._new_module(self._architecture(X), dtype, generator)
        source = make_source(X, self._x_scaler, dtype, device)
        data = self._training_set(source, y, weight, rows, dtype)
        objective = Objective(module.eval(), SampleLoss(self.loss), data)
        return ObjectiveAt(objective, seed, self._check_step())

    def _share(self, other):
        """Take over what ``other`` learnt before training: scalings, names, labels."""
        own = self.get_params(deep=False)
        self.__dict__.update({k: v for k, v in vars(other).items() if k not in own})

    def _begin(self, ready, seed, warm=False):
        """A net on ready data with its stop rule and its record of the start."""
        generator = torch.Generator().manual_seed(seed)
        net = self._new_net(ready.arch, ready.dtype, ready.device, len(ready.data), generator)
        if warm:
            # A copy: a fit that fails leaves the model as it was.
            continue_net(net, self.net_)
        auto = self.conditioning_samples == "auto"
        probe = ready.data.subset(PROBE if auto else self.conditioning_samples, seed)
        # The history of gradient descent has the gradient of all rows at every epoch.
        run = Run(net, self._stop_rule(ready.valid), probe, ready, self.solver != "gd", auto)
        run.record(len(net.history))
        hooks = [("stop_rule", run.rule)]
        if self.conditioning_interval is not None:
            hooks.insert(0, ("conditioning", EpochHook(run.record, self.conditioning_interval)))
        net.callbacks_ = [*net.callbacks_, *hooks]
        net.generator = generator
        return run

    def _end(self, run, best):
        """Set what fit reports."""
        run.check_outputs()
        if run.conditioning.epochs[-1] != best:
            run.record(best)
        self.net_, self.conditioning_, self.best_iteration_ = run.net, run.conditioning, best
        self.device_ = str(run.ready.device)
        scale = None
        if self.loss == "squared_error":
            scale = 2.0 / (len(run.ready.data) * run.ready.arch.n_outputs)
        self._report(run.gradients, scale)

    def _report(self, gradients, scale):
        """Fitted attributes that are read off the history, and off the gradients of the probe."""
        history = pd.DataFrame(self.net_.history.to_list()).drop(columns="batches")
        self.history_ = history.set_index("epoch")
        self.n_iter_ = len(history)
        self.loss_curve_ = history["train_loss"].tolist()
        if self.solver == "gd":
            gradients = history[["epoch", "train_loss", "gradient_norm"]].to_numpy(dtype=float)
        self.convergence_ = Convergence(
            history["train_loss"],
            history["learning_rate"],
            history.get("valid_loss"),
            gradients=gradients,
            scale=scale,
        )
        beta = self.net_.module_.beta
        self.residual_beta_ = beta.detach().cpu().numpy().astype(float)
        for name in ("validation_scores_", "best_validation_score_"):
            if hasattr(self, name):
                delattr(self, name)
        if "valid_loss" in self.net_.history[-1]:
            self.validation_scores_ = (-history["valid_loss"]).tolist()
            self.best_validation_score_ = self.validation_scores_[self.best_iteration_ - 1]

    def _new_module(self, arch, dtype, generator):
        beta = torch.as_tensor(self._beta(arch.n_layers))
        module = ResidualTransformer(arch, beta)
        module.reset_parameters(self.init, generator)
        # Again, once the weights have their final type: float32 changes 0.3 in the 8th digit.
        module.to(dtype).beta.data.copy_(beta)
        if arch.positions == "sinusoidal":
            module.positions.copy_(sinusoidal(arch.n_tokens, arch.d_model))
        if arch.embedding == "token" and self._pretrained:
            module.W_in.data.copy_(torch.as_tensor(self._check_vectors()))
        return module

    def _new_net(self, arch, dtype, device, n_samples, generator):
        module = self._new_module(arch, dtype, generator)
        schedule = self.learning_rate
        if schedule == "auto":
            schedule = "one_cycle" if self.solver in ("adamw", "adam") else "constant"
        settings = {
            "solver": self.solver,
            "lr": self._check_step(),
            "batch_size": n_samples if self.solver == "gd" else min(self.batch_size, n_samples),
            "weight_decay": self._decay(arch),
            "learning_rate": schedule,
            "autocast": self.dtype == "bfloat16",
            "device": str(device),
            "verbose": int(self.verbose),
        }
        callbacks = [*(self.callbacks or ())]
        if self.verbose:
            callbacks.append(print_log())
        return make_net(module, self.loss, settings, callbacks)

    def _check_warm(self, arch):
        """Refuse to continue a model whose shape would change."""
        old = {**asdict(self.net_.module_.arch), "(window, dilation)": self._windowing}
        new = {**asdict(arch), "(window, dilation)": (self.window, self.dilation)}
        if self._takes_ids() != (self._input_kind == "tokens"):
            new["embedding"] = self.embedding if isinstance(self.embedding, str) else "an array"
        changes = [f"{k} from {old[k]!r} to {new[k]!r}" for k in new if new[k] != old[k]]
        if changes:
            raise ValueError(
                f"warm_start=True continues the fitted model, which cannot change "
                f"{', '.join(changes)}; set warm_start=False to start anew."
            )

    # -- data -----------------------------------------------------------------------------------

    def _training_set(self, source, y, weight, rows, dtype):
        device = source.series.device if hasattr(source, "series") else source.x.device
        if weight is not None:
            # Mean one over the rows, so that a weighted batch mean estimates the weighted mean.
            weight = torch.as_tensor(weight[rows] / weight[rows].mean()).to(device, dtype)
        return TrainingSet(source, self._target_tensor(y[rows], dtype).to(device), weight, rows)

    def _given_validation(self, X_val, y_val, dtype, device):
        try:
            X = self._check_X(X_val, reset=False)
            y = self._check_targets(y_val, reset=False)
            check_consistent_length(X, y)
        except (TypeError, ValueError) as error:
            raise type(error)(f"in X_val, y_val: {error}") from None
        source = make_source(X, self._x_scaler, dtype, device)
        return self._training_set(source, y, None, np.arange(len(y)), dtype)

    # -- use -----------------------------------------------------------------------------------

    def _outputs(self, X, segments=None):
        """Raw model outputs (n, c) as float64."""
        check_is_fitted(self)
        X = self._with_segments(X, segments)
        X = self._check_X(X, reset=False)
        module = self.net_.module_
        device, dtype = module.W_in.device, module.W_in.dtype
        out = np.empty((len(X), module.arch.n_outputs))
        with torch_state(self.n_threads, None, device), torch.inference_mode():
            source = make_source(X, self._x_scaler, dtype, device)
            for rows, n_real in predict_chunks(module.arch, source):
                batch = self.net_.infer(*source.take(rows))
                out[rows[:n_real]] = batch[:n_real].double().cpu().numpy()
        if not np.isfinite(out).all():
            row = np.flatnonzero(~np.isfinite(out).all(axis=1))[0]
            raise ValueError(
                f"the output for row {row} of X is not finite: its values lie too far from those "
                "the model was fitted on for its number type; check their units."
            )
        return out

    def __restrans_traces__(self, X):
        """Per chunk of sequences, the :class:`LayerTrace` of every layer, in float64."""
        check_is_fitted(self)
        X = self._check_X(X, reset=False)
        source = make_source(X, self._x_scaler, torch.float64, torch.device("cpu"))
        with torch_state(self.n_threads, None, torch.device("cpu")):
            yield from layer_traces(self.net_.module_, source, np.arange(len(X)))

    def __sklearn_is_fitted__(self):
        return hasattr(self, "net_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    # -- pickling: plain numpy and builtins, whatever the device was -----------------------------

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "net_" in state:
            net = state.pop("net_")
            state["_net_state"] = {
                "arch": asdict(net.module_.arch),
                "loss": net.criterion_.kind,
                "dtype": str(net.module_.W_in.dtype).removeprefix("torch."),
                "settings": {
                    name: getattr(net, name)
                    for name in (
                        "solver",
                        "lr",
                        "batch_size",
                        "weight_decay",
                        "learning_rate",
                        "autocast",
                        "device",
                        "verbose",
                    )
                },
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
        module = ResidualTransformer(Architecture(**saved["arch"]))
        settings = {**saved["settings"], "device": str(device)}
        module = module.to(getattr(torch, saved["dtype"]))
        self.net_ = restore_net(
            make_net(module, saved["loss"], settings, self.callbacks or ()), saved
        )
        self.device_ = str(device)
