"""Small tables, models and observers, shared by the tests of the two estimators."""

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from skorch.callbacks import Callback

from sklearn_restrans import ResidualTransformerClassifier, ResidualTransformerRegressor

ESTIMATORS = [ResidualTransformerRegressor, ResidualTransformerClassifier]
SMALL = {"d_model": 8, "max_iter": 3, "random_state": 0}

# float64 sums of other order or weights of another scale part by a few eps, which a dozen steps
# of a small model amplify by far less than a million.
SAME = {"rtol": 1e-9, "atol": 1e-9}


def table(estimator, n=60, seed=0):
    """A table and targets for an estimator: a smooth function of it, or its sign as 0 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    y = X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n)
    return X, y if estimator is ResidualTransformerRegressor else (y > y.mean()).astype(int)


def outputs(model, X):
    """Predictions that show any change of the model: numbers, or probabilities."""
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


class Recorder(Callback):
    """Notes what a fit does: epochs, torch threads, rows trained and validated on."""

    def on_train_begin(self, net, **kwargs):
        self.epochs_, self.threads_ = 0, torch.get_num_threads()

    def on_epoch_begin(self, net, dataset_train, dataset_valid, **kwargs):
        self.split_ = dataset_train.rows, [] if dataset_valid is None else dataset_valid.rows

    def on_epoch_end(self, net, **kwargs):
        self.epochs_ += 1


class Interrupt(Callback):
    """Ctrl-C in the middle of a fit."""

    def on_epoch_end(self, net, **kwargs):
        raise KeyboardInterrupt


def option_values(estimator):
    """(name, value) for every value that a parameter may take by name, switch or type."""
    for name, constraints in estimator._parameter_constraints.items():
        for constraint in constraints:
            if isinstance(constraint, StrOptions):
                yield from ((name, option) for option in sorted(constraint.options))
            elif constraint == "boolean":
                yield from ((name, value) for value in (False, True))
            elif constraint is None:
                yield name, None
    yield from [
        ("residual_beta", 0),
        ("residual_beta", (0.5, 2.0)),
        ("residual_beta", np.array([[0.5, 2.0]])),
        ("n_layers", 2),
        ("n_heads", 2),
        ("d_ff", 3),
        ("dropout", 0.5),
        ("window", 3),
        ("conditioning_interval", 1),
        ("n_threads", 1),
        ("random_state", np.random.RandomState(0)),
        ("verbose", 1),
        ("callbacks", [Recorder()]),
    ]
