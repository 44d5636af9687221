"""Every parameter of the estimators: name, default, constraint and text, in one place each."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_random_state

from .._compat import Interval, StrOptions, validate_params
from .._model.transformer import ACTIVATIONS
from .._training.settings import FULL_BATCH, SECOND_ORDER
from .declaration import declared, parameter

_AT_LEAST_1 = Interval(Integral, 1, None, closed="left")
_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")


@declared
class BetaParameter:
    """The coefficient of the residual connections, of an estimator that is given one."""

    residual_beta: object = parameter(
        1.0,
        "float, pair of float or array-like of shape (n_layers, 2)",
        [_NOT_NEGATIVE, tuple, list, np.ndarray],
        "Residual coefficient beta >= 0 of Z = Attn(X) + beta X: a number for every residual, a "
        "pair (attention, ffn) for every layer, or each value. 1 is the usual residual "
        "connection, 0 none.",
        kw_only=False,
    )


@declared
class SearchParameters:
    """What a ...CV estimator takes in place of ``residual_beta``."""

    betas: object = parameter(
        (0.0, 0.25, 0.5, 1.0, 2.0),
        "array-like of float of shape (n_betas,)",
        ["array-like"],
        "Residual coefficients to choose from, >= 0 and different from each other.",
        kw_only=False,
    )
    cv: object = parameter(
        5,
        "int, splitter or iterable of splits",
        ["cv_object"],
        "Folds that score each beta.",
    )
    scoring: object = parameter(
        None,
        "str or callable",
        [str, callable, None],
        "Score, greater is better; None is that of the estimator's ``score``: R2 of a regressor, "
        "accuracy of a classifier.",
    )
    refit: bool = parameter(
        True,
        "bool",
        ["boolean"],
        "Fit the best beta on all data, as the plain estimator does. False leaves "
        "``cv_results_`` and ``beta_path_`` only.",
    )
    n_seeds: int = parameter(
        1, "int", [_AT_LEAST_1], "Fits per beta and fold, whose scores are averaged."
    )
    n_jobs: int | None = parameter(
        None,
        "int",
        [Integral, None],
        "Processes over groups of candidates, one thread each.",
    )


@declared
class ModelParameters:
    """What the model computes."""

    learn_beta: bool = parameter(
        False,
        "bool",
        ["boolean"],
        "Train beta too, starting from the coefficient given.",
    )
    n_layers: int = parameter(1, "int", [_AT_LEAST_1], "Number of layers L.")
    d_model: int = parameter(32, "int", [_AT_LEAST_1], "Width d of a token.")
    n_heads: int = parameter(
        1,
        "int",
        [_AT_LEAST_1],
        "Attention heads; a divisor of ``d_model``. One head is the paper's layer.",
    )
    d_ff: int | None = parameter(
        None,
        "int",
        [_AT_LEAST_1, None],
        "Width m of the feed-forward part; None is ``2 * d_model``.",
    )
    activation: str = parameter(
        "relu",
        '{"relu", "gelu", "tanh"}',
        [StrOptions(set(ACTIVATIONS))],
        "Activation phi of the feed-forward part.",
    )
    norm: str | None = parameter(
        None,
        '{"pre", "post"} or None',
        [StrOptions({"pre", "post"}), None],
        "Layer normalisation before or after each part; None, the paper's model, has none.",
    )
    dropout: float = parameter(
        0.0,
        "float",
        [Interval(Real, 0, 1, closed="left")],
        "Dropout on Attn(X), phi(Z W_1) and the vectors of token ids while training, in [0, 1).",
    )
    positions: str | None = parameter(
        "auto",
        '{"auto", "learned", "sinusoidal"} or None',
        [StrOptions({"auto", "learned", "sinusoidal"}), None],
        "Position vectors added to the tokens. In a table they tell the columns apart. "
        '"auto" is sinusoidal for sequences and windows, learned for tables and texts.',
    )
    readout: str = parameter(
        "auto",
        '{"auto", "last", "mean"}',
        [StrOptions({"auto", "last", "mean"})],
        'Token read out. "auto" is the mean for tables and token ids, the last for windows; of 3-D '
        "arrays, and series of a window each, a regressor reads the last, a classifier the mean.",
    )
    init: str = parameter(
        "depth_scaled",
        '{"depth_scaled", "gaussian", "orthogonal", "zero_unembedding"}',
        [StrOptions({"depth_scaled", "gaussian", "orthogonal", "zero_unembedding"})],
        'Start of the weights. "gaussian": N(0, 1 / fan_in), as in the paper. "depth_scaled": the '
        "same for one layer; in deeper models the last matrix of Attn and of the feed-forward part "
        "is multiplied by sqrt(max(1 - beta^2, 1 / n_layers)), so that at beta near 1 tokens "
        "neither grow nor vanish from layer to layer (Noci et al. 2022, arXiv:2206.03126, for "
        "beta = 1; a beta above 1 multiplies them whatever the start). It depends on beta: take "
        'another for comparisons of beta in deep models. "orthogonal": orthonormal. '
        '"zero_unembedding": Gaussian with W_U = 0, so that the loss starts equal for every beta.',
    )
    window: int | None = parameter(
        None,
        "int",
        [_AT_LEAST_1, None],
        "Lookback window over the time-ordered rows of a 2-D X; None takes a 2-D X as a table. "
        "Where X has an index of time stamps no window crosses a gap in it. For rows further "
        "apart, or gaps told in another way, pass a SequenceView.",
    )
    embedding: object = parameter(
        "auto",
        '"auto", "token" or array-like of shape (n_ids, d_model)',
        [StrOptions({"auto", "token"}), "array-like", torch.nn.Embedding],
        '"auto" embeds numbers: a table, a window or a 3-D X. "token": X holds token ids '
        "(n_samples, n_tokens), integers with 0 as padding at the end, 1 for an unknown token; a "
        "row of zeros is one unknown token, and so is an id that ``fit`` did not see. An array "
        "holds pretrained vectors, row i for id i, from which training starts; every id must have "
        "one.",
    )


@declared
class TrainingParameters:
    """How the model is trained; a kind of estimator declares its own ``loss``."""

    solver: str = parameter(
        "adamw",
        '{"adamw", "adam", "sgd", "gd", "lbfgs", "gauss_newton"}',
        [StrOptions({"adamw", "adam", "sgd", *FULL_BATCH})],
        'Optimiser; "sgd" has no momentum. The last three take one step an epoch, on all rows: '
        '"gd" is gradient descent; "lbfgs" is SciPy\'s, as in scikit-learn\'s MLP; "gauss_newton" '
        "solves for the step with the tangent kernel of all n c outputs, so that the conditioning "
        "of the model does not slow it: for squared error and log loss, and n c up to 4,000, or "
        "beyond (or with derivatives by one matrix above 1 GiB) by conjugate gradients. Paths and "
        "searches fit the last three one by one.",
    )
    learning_rate_init: float | str = parameter(
        5e-3,
        'float or "auto"',
        [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        'Step size, for the loss as ``loss_curve_`` has it. "auto", for "gd" and "sgd", is '
        '1 / (1.05 L) with L the measured largest curvature; for "gd" only ever lowered. '
        '"lbfgs" and "gauss_newton" find their own steps, whatever it is.',
    )
    batch_size: int | str = parameter(
        "auto",
        'int or "auto"',
        [_AT_LEAST_1, StrOptions({"auto"})],
        'Samples per step; "gd", "lbfgs" and "gauss_newton" take all. "auto" is 64 for tables, and '
        "min(64, max(8, n // 8)) "
        "for n training sequences, windows or texts: fewer than 64 below n = 512, so that small "
        "data get enough steps.",
    )
    max_iter: int | str = parameter(
        "auto",
        'int or "auto"',
        [_AT_LEAST_1, StrOptions({"auto"})],
        'Number of epochs. "auto" is 20, and 200 for "lbfgs". For token ids it is, unless the '
        'solver is "lbfgs" or "gauss_newton", as many as make 1,000 steps, but 4 to 40, '
        "so that few texts get enough steps and many do not take long.",
    )
    weight_decay: float | str = parameter(
        "auto",
        'float or "auto"',
        [_NOT_NEGATIVE, StrOptions({"auto"})],
        'Decay of the weight matrices (decoupled for "adamw", else L2: w / 2 |W|^2 added to the '
        'loss that is descended; none for "gd"). "auto" is '
        '0.3 for "adamw" on sequences and windows, else 0.',
    )
    loss: str = parameter(
        "squared_error",
        '{"squared_error", "absolute_error", "huber"}',
        [StrOptions({"squared_error", "absolute_error", "huber"})],
        "Loss on standardised targets.",
    )
    early_stopping: bool = parameter(
        False,
        "bool",
        ["boolean"],
        "Set aside ``validation_fraction`` of the rows (the last ones of every station for "
        "windows; of short stations whole ones), and keep the "
        "epoch with the lowest loss on them. With a constant step size training stops when that "
        "loss no longer falls; a schedule always runs to its end. False trains on every row.",
    )
    validation_fraction: float = parameter(
        0.1,
        "float",
        [Interval(Real, 0, 1, closed="neither")],
        "Part set aside by ``early_stopping``, in (0, 1).",
    )
    n_iter_no_change: int = parameter(
        10,
        "int",
        [_AT_LEAST_1],
        "Epochs without an improvement by ``tol`` after which training with a constant step size "
        "stops: of the validation loss with ``early_stopping``, else of the training loss. "
        'Without effect under ``learning_rate="one_cycle"``, whose small last steps would be lost.',
    )
    tol: float = parameter(
        1e-4,
        "float",
        [_NOT_NEGATIVE],
        "Improvement of the loss that counts for ``n_iter_no_change``.",
    )
    learning_rate: str = parameter(
        "auto",
        '{"auto", "constant", "one_cycle"}',
        [StrOptions({"auto", "constant", "one_cycle"})],
        'Schedule of the step size; "auto" is "one_cycle" for "adamw" and "adam", and "constant", '
        "the only one for steps on all rows, for the others.",
    )
    warm_start: bool = parameter(
        False,
        "bool",
        ["boolean"],
        "Continue from the weights and the optimiser state of the last fit.",
    )
    callbacks: object = parameter(
        None, "list of skorch callbacks", [list, tuple, None], "Called during training."
    )


@declared
class RunParameters:
    """What is recorded, and where and how torch runs."""

    conditioning_interval: int | None = parameter(
        None,
        "int",
        [_AT_LEAST_1, None],
        "Epochs from one record of the conditioning to the next; None records it before the first "
        "and after the last epoch only.",
    )
    conditioning_samples: int | str = parameter(
        "auto",
        'int or "auto"',
        [_AT_LEAST_1, StrOptions({"auto"})],
        "Training sequences in the fixed probe set of ``conditioning_`` and of the gradients of "
        '``convergence_``. "auto" draws 64 sequences for the gradients, and measures the '
        "conditioning on part of them: 1,024 tokens in total, but at least 16 sequences.",
    )
    on_collapse: str = parameter(
        "ignore",
        '{"ignore", "warn", "stop"}',
        [StrOptions({"ignore", "warn", "stop"})],
        "What to do when a record of the conditioning shows rank collapse: a layer whose tokens "
        "differ from their mean by less than 1e-3 of their norm, though those of the model's input "
        'do not. "warn" issues a RankCollapseWarning, once a fit; "stop" also ends the training '
        "with that epoch, or with the first one if the start has collapsed. Records are taken "
        "before and after training, and in between with ``conditioning_interval``.",
    )
    device: str = parameter(
        "auto",
        "str",
        [str],
        '"cpu", "cuda", "cuda:<number>", "mps"; "auto" takes CUDA, then MPS, then the CPU.',
    )
    dtype: str = parameter(
        "auto",
        '{"auto", "float32", "float64", "bfloat16"}',
        [StrOptions({"auto", "float32", "float64", "bfloat16"})],
        '"auto" is float64 for float64 input and a small training set (n T d <= 1e6), and for '
        '"lbfgs" and "gauss_newton"; else float32. "bfloat16" keeps float32 weights and multiplies '
        "in bfloat16.",
    )
    n_threads: int | None = parameter(
        1,
        "int",
        # Each thread takes memory, whether a core runs it or not; without it the process is killed.
        [Interval(Integral, 1, 1024, closed="both"), None],
        "Torch threads during fit and predict; None leaves the caller's setting. Models of this "
        "size gain little from a second thread, and two that share a core with another process "
        "wait for each other. A forked child takes one, as threads do not survive a fork.",
    )
    random_state: object = parameter(
        None,
        "int, RandomState instance or None",
        ["random_state"],
        "Seed of weights, batches, dropout, validation split and probe set.",
    )
    verbose: int = parameter(
        0,
        "int",
        ["verbose"],
        "1 prints one line per epoch; 2 shows a bar of each epoch too, in terminals and notebooks.",
    )


# Fitted attributes, name -> (type, text), for the `_attributes` of a class (see `declaration`).
ATTRIBUTES = {
    "conditioning_": (
        "Conditioning",
        "Singular values of Attn(X) and Z per layer on a fixed probe of training sequences.",
    ),
    "convergence_": ("Convergence", "Loss per epoch and the rate at which it fell."),
    "net_": ("skorch.NeuralNet", "The fitted net; ``net_.module_`` is the torch model."),
    "loss_curve_": (
        "list of float",
        "Weighted mean training loss of each epoch; of a regressor on standardised targets.",
    ),
    "history_": ("DataFrame", "One row per epoch: losses, step size, seconds."),
    "n_iter_": ("int", "Epochs run."),
    "best_iteration_": ("int", "Epoch whose weights were kept, from 1."),
    "validation_scores_": (
        "list of float",
        "Minus the validation loss of each epoch, where there was a validation part.",
    ),
    "best_validation_score_": (
        "float",
        "The score of ``best_iteration_``, which the fitted weights have exactly.",
    ),
    "residual_beta_": (
        "ndarray of shape (n_layers, 2)",
        "Residual coefficients of attention and feed-forward part after fit.",
    ),
    "device_": ("str", "Where the model lives."),
    "n_features_in_": ("int", "Columns of a 2-D X, channels of a 3-D X."),
    "feature_names_in_": (
        "ndarray of shape (n_features_in_,)",
        "Column names, if X had string names.",
    ),
}
OF_CLASSIFIERS = {"classes_": ("ndarray of shape (n_classes,)", "Class labels.")}
OF_SEARCHES = {
    "residual_beta_": ("float", "The best beta."),
    "best_score_": ("float", "Its mean score over folds and seeds."),
    "best_index_": ("int", "Its place in ``betas``."),
    "cv_results_": (
        "dict of ndarrays",
        "As GridSearchCV's: params, scores per split, means, ranks, times; and per beta the mean "
        "conditioning of Z and Attn(X) (``mean_sigma_min_Z``, ...), rate and final training loss.",
    ),
    "beta_path_": ("BetaPath", "Every fit behind it."),
}

# ---- what the parameters of an estimator mean together ------------------------------------------


def beta_matrix(value, n_layers):
    """residual_beta as an array (n_layers, 2): a number, a pair, or every value."""
    allowed = (
        "residual_beta must be a number >= 0, a pair (attention, ffn), or an array of shape "
        f"(n_layers, 2) = ({n_layers}, 2)"
    )
    try:
        beta = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{allowed}; got {value!r}.") from None
    if beta.shape not in ((), (2,), (n_layers, 2)):
        raise ValueError(f"{allowed}; got shape {beta.shape}.")
    if not np.isfinite(beta).all() or (beta < 0).any():
        raise ValueError(f"{allowed}, finite and not negative; got {value!r}.")
    return np.broadcast_to(beta, (n_layers, 2)).copy()


def check_step(estimator):
    """The step size, or "auto"; refuses settings that do not go with the solver."""
    if estimator.learning_rate_init == "auto" and estimator.solver in ("adamw", "adam"):
        raise ValueError(
            "learning_rate_init='auto' is 1 / curvature, a step for solver='gd' or 'sgd'; "
            f"solver={estimator.solver!r} rescales every weight's step: pass a number."
        )
    if estimator.solver in FULL_BATCH:
        _check_full_batch(estimator)
    step = estimator.learning_rate_init
    return step if step == "auto" else float(step)


def _check_full_batch(estimator):
    """Refuse what has no meaning for steps on the exact loss of all rows."""
    solver = estimator.solver
    for name in ("dropout", "weight_decay") if solver == "gd" else ("dropout",):
        value = getattr(estimator, name)
        if value != 0 and (name, value) != ("weight_decay", "auto"):
            raise ValueError(
                f"solver={solver!r} descends the exact loss of all rows: {name} must be 0, got "
                f"{value!r}."
            )
    if estimator.learning_rate == "one_cycle":
        raise ValueError(
            f"{solver=} takes one step size; learning_rate='one_cycle' is for the other solvers."
        )
    if solver in SECOND_ORDER and estimator.dtype == "bfloat16":
        raise ValueError(
            f"{solver=} measures curvature: set dtype='auto', which is float64 for it."
        )
    if solver == "gauss_newton" and estimator.loss not in ("squared_error", "log_loss"):
        raise ValueError(
            "solver='gauss_newton' needs a loss that is smooth and convex in the outputs, "
            f"'squared_error' or 'log_loss', got loss={estimator.loss!r}: use solver='lbfgs'."
        )


def draw_seed(random_state):
    """An integer seed; None draws a fresh one and leaves numpy's global state as it is."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def check_parameters(estimator):
    """Refuse the parameters that fit would refuse whatever the data are."""
    validate_params(estimator)
    beta_matrix(estimator.residual_beta, estimator.n_layers)
    check_step(estimator)
    estimator._levels()
    check_random_state(estimator.random_state)
