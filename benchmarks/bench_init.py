"""Do starts that are conditioned on purpose earn a place beside the default one?

``python benchmarks/bench_init.py [--quick] [--only TABLE ...]``

Every start is the default's draw of the same seed with a change, and is trained on the same rows:

- "default": ``init="depth_scaled"``; "gaussian": ``init="gaussian"``, the same for one layer.
- "spectral": Gaussian, then lambda I added to W_Q, W_K and W_V of every layer (arXiv:2603.07162).
  The paper keeps lambda I fixed beside the weight that is trained, with lambda = 10; here it is
  part of the start, which differs under weight decay only. "spectral, scaled": the same on the
  default start, so W_V gets s lambda I with the default's scale s.
- "tokens": default, then the embedded tokens conditioned (arXiv:2505.12789). The paper adds to the
  tokens X of an input a correction C made from their singular value decomposition U S V^T, so that
  X + C has condition number <= 2; taken here: C = sigma_max U V^T. A start is one for all inputs,
  so X is all training tokens stacked, and as X + C = X (I + sigma_max V S^-1 V^T) it is W_in and
  the positions that are multiplied by that matrix.
- "both": "spectral, scaled" and "tokens".

lambda, and whether "tokens" keeps the size of X or takes that of X + C, are chosen on other data
("choice"): the lowest mean ratio of held-out errors to the default's at beta = 1.

A held-out error is 1 - R2 or 1 - accuracy. Differences to the default are paired by seed, each with
half of its 95 % interval over seeds; they are negative where the start is better. A start wins a
data set if the interval of the error at beta = 1 lies below zero, and loses it if above. It earns
its place if it wins two data sets of three and loses none. Everything is in float32, for speed;
gradient descent is run at beta = 1 on the first 32 training rows.
"""

import sys
import warnings
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from _common import (
    data_folder,
    depth_scale,
    fit_from,
    interval,
    jena_windows,
    mean_and_half,
    run,
)
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from sklearn_restrans import ResidualTransformerClassifier, ResidualTransformerRegressor
from sklearn_restrans.datasets import load_nyc_weather, make_planted_sequences
from sklearn_restrans.forecasting import make_supervised

SIZES_OF_X = {"size of X": True, "size of X + C": False}
HORIZON = 24
N_PROBED = 16  # sequences whose own condition number is measured
EPS = np.finfo(np.float32).eps


@dataclass(frozen=True)
class Size:
    """What is compared, numbers of seeds and rows, the window, epochs and steps of descent."""

    betas: tuple[float, ...] = (0.0, 0.5, 1.0)
    layers: tuple[int, ...] = (1, 4)
    lambdas: tuple[float, ...] = (0.5, 1.0, 2.0, 10.0)
    n_seeds: int = 10
    n_pilot_seeds: int = 3
    n_train: int = 160
    n_test: int = 500
    n_descent: int = 32
    n_hours: int = 3 * 8766
    window: int = 8
    max_iter: int | str = "auto"
    n_steps: int = 100


SIZES = {
    "full": Size(),
    "quick": Size(n_seeds=2, n_pilot_seeds=1, n_train=80, n_steps=20, max_iter=5, n_hours=4_000),
}


# ---- data --------------------------------------------------------------------------------------


@cache
def problems(size):
    """{name: (estimator, function from a seed to X, y, X_test, y_test)}."""
    digits, y_digits = load_digits(return_X_y=True)
    split = partial(_split, size)
    found = {
        "diabetes": (ResidualTransformerRegressor, partial(split, *load_diabetes(return_X_y=True))),
        "digits": (
            ResidualTransformerClassifier,
            partial(split, digits.reshape(-1, 8, 8), y_digits),
        ),
    }
    if data_folder() is not None:
        windows = partial(_later, size, *jena_windows(size.n_hours, size.window))
        found = {"Jena": (ResidualTransformerRegressor, windows)} | found
    return found


@cache
def pilots(size):
    """As `problems`, of the data on which lambda is chosen."""
    frame = load_nyc_weather("JFK").select_dtypes("number")
    frame = frame.loc[:, frame.isna().mean() < 0.05].ffill(limit=3).dropna()
    X, y = make_supervised(frame.iloc[: size.n_hours], "T (degC)", HORIZON, window=size.window)
    full = np.flatnonzero(~X.partial)
    cancer = load_breast_cancer(return_X_y=True)
    return {
        "New York": (
            ResidualTransformerRegressor,
            partial(_later, size, X[full], y.to_numpy()[full]),
        ),
        "breast cancer": (ResidualTransformerClassifier, partial(_split, size, *cancer)),
        "planted": (ResidualTransformerRegressor, partial(_planted, size)),
    }


def _split(size, X, y, seed):
    """Random rows of each kind; every class is among the training rows."""
    n_test, classes = min(size.n_test, len(X) - size.n_train), None
    if len(np.unique(y)) <= 10:
        classes = y
    options = {"train_size": size.n_train, "test_size": n_test, "stratify": classes}
    X, X_test, y, y_test = train_test_split(X, y, random_state=seed, **options)
    return X, y, X_test, y_test


def _later(size, X, y, seed):
    """Random windows of the first two thirds, and of what is later than all they look at."""
    rng, cut = np.random.default_rng(seed), 2 * len(X) // 3
    later = np.arange(cut + size.window + HORIZON, len(X))
    rows = np.sort(rng.choice(cut, min(size.n_train, cut), replace=False))
    tests = np.sort(rng.choice(later, min(size.n_test, len(later)), replace=False))
    return X[rows], y[rows], X[tests], y[tests]


def _planted(size, seed):
    n = size.n_train
    X, y = make_planted_sequences(n + size.n_test, noise=0.5, random_state=seed)
    return X[:n], y[:n], X[n:], y[n:]


# ---- starts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A change of the drawn weights; ``lam`` 0 leaves attention, ``keeps_size`` None the tokens."""

    init: str = "depth_scaled"
    lam: float = 0.0
    keeps_size: bool | None = None

    def change(self, module, x):
        """Change the weights of a fresh module whose training sequences are x (n, T, f)."""
        if self.keeps_size is not None:
            condition_tokens(module, x, self.keeps_size)
        for index, layer in enumerate(module.layers):
            scale = 1.0
            if self.init == "depth_scaled":
                scale = float(depth_scale(module.layer_beta(index), len(module.layers))[0])
            for weight, factor in ((layer.W_Q, 1), (layer.W_K, 1), (layer.W_V, scale)):
                weight.data.diagonal().add_(factor * self.lam)


def condition_tokens(module, x, keeps_size):
    """X := X + sigma_max U V^T for X = U S V^T, all tokens of x stacked, by W_in and positions.

    Directions below the rounding of float32, counted as `conditioning_` does, are no part of X and
    stay. ``keeps_size``: divided so that ||X||_F is what it was; the condition number is the same.
    """
    X = module.embed(x).detach().double().flatten(0, 1)
    _, s, Vh = torch.linalg.svd(X, full_matrices=False)
    r = int((s > s[0] * min(max(X.shape) * EPS, EPS**0.5)).sum())
    s, Vh = s[:r], Vh[:r]
    M = torch.eye(X.shape[1], dtype=X.dtype) + (s[0] / s * Vh.T) @ Vh
    if keeps_size:
        M *= s.norm() / (s + s[0]).norm()
    for table in (module.W_in, module.positions):
        table.data.copy_(table.data.double() @ M)


@cache
def starts(size):
    """{name: Start}, with lambda and the size of the tokens as chosen."""
    lam, keeps_size = chosen(size)
    return {
        "default": Start(),
        "gaussian": Start("gaussian"),
        "spectral": Start("gaussian", lam),
        "spectral, scaled": Start(lam=lam),
        "tokens": Start(keeps_size=keeps_size),
        "both": Start(lam=lam, keeps_size=keeps_size),
    }


def names_of(n_layers, beta):
    """Names of the starts that differ: one layer, and beta = 0, have no scale of depth."""
    if n_layers == 1 or beta == 0:
        return ("default", "spectral", "tokens", "both")
    return ("default", "gaussian", "spectral", "spectral, scaled", "tokens", "both")


# ---- trainings -----------------------------------------------------------------------------------


def model(estimator, start, n_layers, beta, seed, **settings):
    return estimator(
        beta,
        n_layers=n_layers,
        init=start.init,
        dtype="float32",
        device="cpu",
        n_threads=torch.get_num_threads(),
        random_state=seed,
        **settings,
    )


def error_of(fit, X, y):
    """1 - R2 or 1 - accuracy; infinite for a training that diverged."""
    return 1 - fit.score(X, y) if hasattr(fit, "net_") else np.inf


def log_condition(module, x):
    """Median over sequences of log10(sigma_1 / sigma_r) of Z in the last layer, r = rank of X."""
    with torch.no_grad():
        X, _, Z, _ = module.traces(x[:N_PROBED])[-1]
    s_X, s_Z = (np.linalg.svd(a.double().numpy(), compute_uv=False) for a in (X, Z))
    rank = (s_X > s_X[:, :1] * min(max(X.shape[1:]) * EPS, EPS**0.5)).sum(axis=1)
    return float(np.median(log_ratio(s_Z[:, 0], s_Z[np.arange(len(s_Z)), rank - 1])))


def log_ratio(a, b):
    """log10(a / b), with what float64 cannot resolve counted as 1e16."""
    return np.log10(a / np.maximum(b, 1e-16 * a))


def fit_all(models, changes, X, y):
    """The models fitted from their starts; of each its training sequences and condition before.

    Models of one stack share sinusoidal positions, so each change of the tokens has its own: the
    seed draws one W_in for every beta and start, hence one correction.
    """
    fits, before = [None] * len(models), [None] * len(models)

    def change(k):
        def changed(module, x):
            changes[k].change(module, x)
            before[k] = x, log_condition(module, x)

        return changed

    for keeps_size in {start.keeps_size for start in changes}:
        places = [k for k, start in enumerate(changes) if start.keeps_size == keeps_size]
        with warnings.catch_warnings():
            # Trainings that end worse than a constant are a result here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            group = fit_from([models[k] for k in places], [change(k) for k in places], X, y)
        for k, fit in zip(places, group, strict=True):
            fits[k] = fit
    return fits, before


def trained(size, name, n_layers, seed):
    """{(beta, start): {quantity: number}} of one draw of data and weights, AdamW's default epochs.

    All betas and starts are trained together.
    """
    estimator, draw = problems(size)[name]
    X, y, X_test, y_test = draw(seed)
    keys = [(beta, start) for beta in size.betas for start in names_of(n_layers, beta)]
    models = [
        model(estimator, starts(size)[start], n_layers, beta, seed, max_iter=size.max_iter)
        for beta, start in keys
    ]
    fits, before = fit_all(models, [starts(size)[start] for _, start in keys], X, y)
    return {
        key: _quantities(fit, *seen) | {"error": error_of(fit, X_test, y_test)}
        for key, fit, seen in zip(keys, fits, before, strict=True)
    }


def _quantities(fit, x, condition_before):
    if not hasattr(fit, "net_"):
        return {"loss": np.inf}
    found = {
        "loss": np.log10(fit.loss_curve_[-1]),
        "condition, sequence, start": condition_before,
        "condition, sequence, end": log_condition(fit.net_.module_, x),
    }
    for stage, when in (("initial", "start"), ("final", "end")):
        get = partial(fit.conditioning_.get, stage=stage)
        largest, smallest = get("sigma_max"), get("sigma_min")
        found |= {
            f"condition, stacked, {when}": log_ratio(largest, smallest),
            f"sigma_min, stacked, {when}": log_ratio(smallest, 1.0),
            f"sigma_min, sequence, {when}": log_ratio(get("sequence_sigma_min"), 1.0),
        }
    return {quantity: float(value) for quantity, value in found.items()}


def descended(size, name, n_layers, beta, start, seed):
    """log10 of the loss after full-batch gradient descent with measured steps, on few rows."""
    estimator, draw = problems(size)[name]
    X, y, _, _ = draw(seed)
    # The loss of an epoch is taken before its step.
    descent = {"solver": "gd", "learning_rate_init": "auto", "tol": 0, "max_iter": size.n_steps + 1}
    start, few = starts(size)[start], slice(size.n_descent)
    fit = model(estimator, start, n_layers, beta, seed, **descent)
    (fit,), _ = fit_all([fit], [start], X[few], y[few])
    return float(np.log10(fit.convergence_.loss[-1])) if hasattr(fit, "net_") else np.inf


@cache
def results(size):
    """{(data, layers, beta): for each seed {start: {quantity: number}}}."""
    found = {}
    for name in problems(size):
        for n_layers in size.layers:
            seeds = [trained(size, name, n_layers, seed) for seed in range(size.n_seeds)]
            for beta in size.betas:
                found[name, n_layers, beta] = [
                    {start: numbers[beta, start] for start in names_of(n_layers, beta)}
                    for numbers in seeds
                ]
    return found


@cache
def descents(size):
    """As `results`, the loss after gradient descent only.

    Measuring its steps takes long: at beta = 1, of the two changes alone.
    """
    found = {}
    for name in problems(size):
        for n_layers in size.layers:
            spectral = "spectral" if n_layers == 1 else "spectral, scaled"
            found[name, n_layers, 1.0] = [
                {
                    start: {"loss": descended(size, name, n_layers, 1.0, start, seed)}
                    for start in ("default", spectral, "tokens")
                }
                for seed in range(size.n_seeds)
            ]
    return found


# ---- tables ------------------------------------------------------------------------------------


@cache
def pilot(size):
    """{(data, layers): {variant: errors of the seeds}} at beta = 1, on the data of the choice."""
    plain = {"default": Start()}
    sizes_of_X = {name: Start(keeps_size=keeps) for name, keeps in SIZES_OF_X.items()}
    spectral = {f"lambda {lam:g}": Start("gaussian", lam) for lam in size.lambdas}
    scaled = {f"lambda {lam:g}, scaled": Start(lam=lam) for lam in size.lambdas}
    found = {}
    for name, (estimator, draw) in pilots(size).items():
        for n_layers in size.layers:
            variants = plain | spectral | (scaled if n_layers > 1 else {}) | sizes_of_X
            errors = found[name, n_layers] = {variant: [] for variant in variants}
            for seed in range(size.n_pilot_seeds):
                X, y, X_test, y_test = draw(seed)
                models = [
                    model(estimator, start, n_layers, 1.0, seed, max_iter=size.max_iter)
                    for start in variants.values()
                ]
                fits, _ = fit_all(models, list(variants.values()), X, y)
                for variant, fit in zip(variants, fits, strict=True):
                    errors[variant].append(error_of(fit, X_test, y_test))
    return found


def _mean_ratio(size, *variants):
    """Mean over data, depths and variants of the error divided by the default's."""
    ratios = [
        np.mean(errors[variant]) / np.mean(errors["default"])
        for errors in pilot(size).values()
        for variant in variants
        if variant in errors
    ]
    return float(np.mean(ratios))


@cache
def chosen(size):
    """(lambda, whether the conditioned tokens keep the size of X)."""
    of_lambda = {
        lam: _mean_ratio(size, f"lambda {lam:g}", f"lambda {lam:g}, scaled") for lam in size.lambdas
    }
    of_size = {keeps: _mean_ratio(size, name) for name, keeps in SIZES_OF_X.items()}
    return min(of_lambda, key=of_lambda.get), min(of_size, key=of_size.get)


def choice(size):
    """Mean held-out error of each variant on the data of the choice, and which was taken."""
    lam, keeps_size = chosen(size)
    taken = {f"lambda {lam:g}", f"lambda {lam:g}, scaled"}
    taken.add(next(name for name, keeps in SIZES_OF_X.items() if keeps == keeps_size))
    rows = []
    variants = list(dict.fromkeys(key for errors in pilot(size).values() for key in errors))
    for variant in variants:
        row = {"start": variant}
        for (name, n_layers), errors in pilot(size).items():
            mean = f"{np.mean(errors[variant]):.3g}" if variant in errors else None
            row[f"{name}, L = {n_layers}"] = mean
        row["mean ratio to default"] = f"{_mean_ratio(size, variant):.3g}"
        rows.append(row | {"taken": "yes" if variant in taken else ""})
    return rows, []


def _differences(seeds, start, quantity):
    return [seed[start][quantity] - seed["default"][quantity] for seed in seeds]


def against_default(measured, quantity, default):
    """A function of a size: the default's mean, and paired differences of every other start."""

    def section(size):
        rows = []
        for (name, n_layers, beta), seeds in measured(size).items():
            row = {"data": name, "L": n_layers, "beta": beta}
            row[default] = interval([seed["default"][quantity] for seed in seeds])
            for start in list(starts(size))[1:]:
                missing = start not in seeds[0]
                row[start] = None if missing else interval(_differences(seeds, start, quantity))
            rows.append(row)
        return rows, []

    return section


def conditioning(when):
    """A function of a size: log10 of the quantities of Z in the last layer.

    Means over the data sets: the default's own, and paired differences of the others, with an
    interval over seeds.
    """
    quantities = [
        f"{quantity}, {of}"
        for quantity in ("condition", "sigma_min")
        for of in ("stacked", "sequence")
    ]

    def section(size):
        rows = []
        for n_layers in size.layers:
            for beta in size.betas:
                found = [results(size)[name, n_layers, beta] for name in problems(size)]
                for start in names_of(n_layers, beta):
                    row = {"L": n_layers, "beta": beta, "start": start}
                    for quantity in quantities:
                        key = f"{quantity}, {when}"
                        values = [
                            [seed["default"][key] for seed in seeds]
                            if start == "default"
                            else _differences(seeds, start, key)
                            for seeds in found
                        ]
                        row[quantity] = interval(np.mean(values, axis=0))
                    rows.append(row)
        return rows, []

    return section


def verdict(size):
    """Which data sets each start wins and loses at beta = 1, and whether it earns its place."""
    rows = []
    for n_layers in size.layers:
        for start in names_of(n_layers, 1.0)[1:]:
            won, lost = [], []
            for name in problems(size):
                errors = _differences(results(size)[name, n_layers, 1.0], start, "error")
                mean, half = mean_and_half(errors)
                worse = mean - half > 0 or not np.isfinite(mean)
                (won if mean + half < 0 else lost if worse else []).append(name)
            row = {"L": n_layers, "start": start}
            row |= {"wins": ", ".join(won) or "none", "loses": ", ".join(lost) or "none"}
            rows.append(row | {"earns its place": "yes" if len(won) > 1 and not lost else "no"})
    return rows, []


SECTIONS = {
    "choice": choice,
    "verdict": verdict,
    "held-out error": against_default(results, "error", "default's error"),
    "training loss after the default epochs": against_default(
        results, "loss", "default's log10 loss"
    ),
    "loss after gradient descent": against_default(descents, "loss", "default's log10 loss"),
    "conditioning of Z at the start, log10": conditioning("start"),
    "conditioning of Z at the end, log10": conditioning("end"),
}


def main(argv=None, sizes=SIZES):
    return run("bench_init", "Starts conditioned on purpose.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
