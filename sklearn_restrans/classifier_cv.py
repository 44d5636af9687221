"""The classifier that chooses its residual coefficient: signature and documentation."""

from __future__ import annotations

from typing import ClassVar

from ._beta_search import BetaSearch, search_constraints
from .classifier import ResidualTransformerClassifier

__all__ = ["ResidualTransformerClassifierCV"]


class ResidualTransformerClassifierCV(BetaSearch, ResidualTransformerClassifier):
    """ResidualTransformerClassifier that chooses its residual coefficient by cross-validation.

    As LassoCV does for alpha: candidates are trained together where that is faster
    (:func:`residual_beta_path`), and the best one is fitted again on all data.

    Parameters
    ----------
    betas : array-like of float of shape (n_betas,), default=(0.0, 0.25, 0.5, 1.0, 2.0)
        Residual coefficients to choose from, >= 0 and different from each other.
    cv : int, splitter or iterable of splits, default=5
        Folds that score each beta.
    scoring : str or callable, default=None
        Score, greater is better; None is the accuracy.
    refit : bool, default=True
        Fit the best beta on all data, as the plain estimator does. False leaves ``cv_results_`` and
        ``beta_path_`` only.
    n_seeds : int, default=1
        Fits per beta and fold, whose scores are averaged.
    n_jobs : int, default=None
        Processes over groups of candidates, one thread each.
    learn_beta : bool, default=False
        Train beta, starting from ``residual_beta``.
    n_layers : int, default=1
        Number of layers L.
    d_model : int, default=32
        Width d of a token.
    n_heads : int, default=1
        Attention heads; a divisor of ``d_model``. One head is the paper's layer.
    d_ff : int, default=None
        Width m of the feed-forward part; None is ``2 * d_model``.
    activation : {"relu", "gelu", "tanh"}, default="relu"
        Activation phi of the feed-forward part.
    norm : {"pre", "post"} or None, default=None
        Layer normalisation before or after each part; None, the paper's model, has none.
    dropout : float, default=0.0
        Dropout on Attn(X), phi(Z W_1) and the vectors of token ids while training, in [0, 1).
    positions : {"auto", "learned", "sinusoidal"} or None, default="auto"
        Position vectors added to the tokens. In a table they tell the columns apart. "auto" is
        sinusoidal for sequences and windows, learned for tables and texts.
    readout : {"auto", "last", "mean"}, default="auto"
        Token read out. "auto": the last of a window, the mean for tables, token
        ids and sequences.
    init : {"depth_scaled", "gaussian", "orthogonal", "zero_unembedding"}, default="depth_scaled"
        Start of the weights. "gaussian": N(0, 1 / fan_in), as in the paper. "depth_scaled": the
        same for one layer; in deeper models the last matrix of Attn and of the feed-forward part
        is multiplied by sqrt(max(1 - beta^2, 1 / n_layers)), so that at beta near 1 tokens neither
        grow nor vanish from layer to layer (Noci et al. 2022, arXiv:2206.03126, for beta = 1; a
        beta above 1 multiplies them whatever the start). It depends on beta: take another for
        comparisons of beta in deep models. "orthogonal": orthonormal. "zero_unembedding":
        Gaussian with W_U = 0, so that the loss starts equal for every beta.
    window : int, default=None
        Lookback window over the time-ordered rows of a 2-D X; None takes a 2-D X as a table.
    dilation : int, default=1
        Distance in rows between two tokens of a window.
    max_gap : str, Timedelta or None, default="auto"
        With ``window`` and a DatetimeIndex: a step longer than this starts a new segment, which no
        window crosses. "auto" is one and a half times the median step; None ignores the index.
    embedding : "auto", "token" or array-like of shape (n_ids, d_model), default="auto"
        "auto" embeds numbers: a table, a window or a 3-D X. "token": X holds token ids (n_samples,
        n_tokens), integers with 0 as padding at the end, 1 for an unknown token; a row of zeros is
        one unknown token, and so is an id that ``fit`` did not see. An array holds pretrained
        vectors, row i for id i, from which training starts; every id must have one.
    solver : {"adamw", "adam", "sgd", "gd"}, default="adamw"
        Optimiser; "sgd" has no momentum, "gd" is full-batch gradient descent.
    learning_rate_init : float or "auto", default=5e-3
        Step size, for the loss as ``loss_curve_`` has it. "auto", for "gd" and "sgd", is
        1 / (1.05 L) with L the measured largest curvature; for "gd" only ever lowered.
    batch_size : int, default=64
        Sequences per step; "gd" takes all.
    max_iter : int, default=20
        Number of epochs.
    weight_decay : float or "auto", default="auto"
        Decay of the weight matrices (decoupled for "adamw", L2 for "adam" and "sgd"). "auto" is 0.3
        for "adamw" on sequences and windows, else 0.
    loss : {"log_loss", "squared_error"}, default="log_loss"
        Cross-entropy, or the squared error to one-hot targets, as the paper has it.
    early_stopping : bool, default=False
        Set aside ``validation_fraction`` of the rows (the last ones for windows), stop when their
        loss no longer falls, and keep the best epoch. False trains on every row.
    validation_fraction : float, default=0.1
        Part set aside by ``early_stopping``, in (0, 1).
    n_iter_no_change : int, default=10
        Epochs without an improvement by ``tol`` after which training stops.
    tol : float, default=1e-4
        Improvement of the loss that counts.
    learning_rate : {"auto", "constant", "one_cycle"}, default="auto"
        Schedule of the step size; "auto" is "one_cycle" for "adamw" and "adam", and "constant" for
        "sgd" and "gd".
    class_weight : dict or "balanced", default=None
        Weights of the classes, multiplied with ``sample_weight``.
    warm_start : bool, default=False
        Continue from the weights and the optimiser state of the last fit.
    callbacks : list of skorch callbacks, default=None
        Called during training.
    conditioning_interval : int, default=None
        Record the conditioning every so many epochs; None: before the first and after the last.
    conditioning_samples : int or "auto", default="auto"
        Training sequences in the fixed probe set of ``conditioning_`` and of the gradients of
        ``convergence_``. "auto" takes 64, and measures the conditioning of so many of them as have
        1,024 tokens, but not fewer than 16.
    device : str, default="auto"
        "cpu", "cuda", "cuda:<number>", "mps"; "auto" takes CUDA, then MPS, then the CPU.
    dtype : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        "auto" is float64 for float64 input and a small training set (n T d <= 1e6), else float32;
        "bfloat16" keeps float32 weights and multiplies in bfloat16.
    n_threads : int, default=1
        Torch threads during fit and predict; None leaves the caller's setting. Models of this size
        gain little from a second thread, and two that share a core with another process wait for
        each other.
    random_state : int, RandomState instance or None, default=None
        Seed of weights, batches, dropout, validation split and probe set.
    verbose : int, default=0
        1 prints one line per epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    conditioning_ : Conditioning
        Singular values of Attn(X) and Z per layer on a fixed probe of training sequences.
    convergence_ : Convergence
        Loss per epoch and the rate at which it fell.
    net_ : skorch.NeuralNet
        The fitted net; ``net_.module_`` is the torch model.
    loss_curve_ : list of float
        Weighted mean training loss of each epoch.
    history_ : DataFrame
        One row per epoch: losses, step size, seconds.
    n_iter_ : int
        Epochs run.
    best_iteration_ : int
        Epoch whose weights were kept, from 1.
    validation_scores_ : list of float
        Minus the validation loss of each epoch, where there was a validation part.
    best_validation_score_ : float
        The score of ``best_iteration_``, which the fitted weights have exactly.
    residual_beta_ : float
        The best beta.
    best_score_ : float
        Its mean score over folds and seeds.
    cv_results_ : dict of ndarrays
        As GridSearchCV's: params, scores per split, means, ranks, times; and per beta the mean
        conditioning of Z and Attn(X) (``mean_sigma_min_Z``, ...), rate and final training loss.
    beta_path_ : BetaPath
        Every fit behind it.
    device_ : str
        Where the model lives.
    n_features_in_ : int
        Columns of a 2-D X, channels of a 3-D X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names, if X had string names.

    See Also
    --------
    ResidualTransformerClassifier : The same with one given beta.
    residual_beta_path : The function behind it.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ResidualTransformerClassifierCV([0, 1], cv=3, d_model=8, max_iter=3, random_state=0)
    >>> model.fit(X, y).residual_beta_ in (0.0, 1.0)
    True
    """

    _plain = ResidualTransformerClassifier
    _parameter_constraints: ClassVar[dict] = search_constraints(ResidualTransformerClassifier)

    def __init__(
        self,
        betas=(0.0, 0.25, 0.5, 1.0, 2.0),
        *,
        cv=5,
        scoring=None,
        refit=True,
        n_seeds=1,
        n_jobs=None,
        learn_beta=False,
        n_layers=1,
        d_model=32,
        n_heads=1,
        d_ff=None,
        activation="relu",
        norm=None,
        dropout=0.0,
        positions="auto",
        readout="auto",
        init="depth_scaled",
        window=None,
        dilation=1,
        max_gap="auto",
        embedding="auto",
        solver="adamw",
        learning_rate_init=5e-3,
        batch_size=64,
        max_iter=20,
        weight_decay="auto",
        loss="log_loss",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        learning_rate="auto",
        class_weight=None,
        warm_start=False,
        callbacks=None,
        conditioning_interval=None,
        conditioning_samples="auto",
        device="auto",
        dtype="auto",
        n_threads=1,
        random_state=None,
        verbose=0,
    ):
        self.betas = betas
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_seeds = n_seeds
        self.n_jobs = n_jobs
        self.learn_beta = learn_beta
        self.n_layers = n_layers
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_ff = d_ff
        self.activation = activation
        self.norm = norm
        self.dropout = dropout
        self.positions = positions
        self.readout = readout
        self.init = init
        self.window = window
        self.dilation = dilation
        self.max_gap = max_gap
        self.embedding = embedding
        self.solver = solver
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.weight_decay = weight_decay
        self.loss = loss
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.learning_rate = learning_rate
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.conditioning_interval = conditioning_interval
        self.conditioning_samples = conditioning_samples
        self.device = device
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
