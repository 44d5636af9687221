"""Does beta matter when conditioning does not limit the step, and when is such a step worth it?

``python benchmarks/bench_solvers.py [--quick] [--only TABLE ...]``

The first tables are the falsification: if conditioning is the reason that beta changes the speed of
gradient descent, its effect must vanish under Gauss-Newton, whose step the condition number does
not enter. All fits start with W_U = 0, so that Phi_0 is the same for every beta. The loss of "gd",
"lbfgs" and "gauss_newton" is that at the weights before a step; that of "sgd" and "adamw" is the
mean over the batches of an epoch, and a step is a batch. The other tables are in seconds.

The settings were chosen on other data: the damping of Gauss-Newton on wine, digits, make_friedman1,
a noisy sine and random walks (from 1e-6 to 1e-4 of the trace the mean number of steps is the same
within one), the step size of adamw is the package's default.
"""

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
from _common import Target, data_folder, interval, jena_windows, run
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import train_test_split

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
)
from sklearn_restrans.datasets import make_planted_sequences

BETAS = (0.0, 0.25, 0.5, 1.0, 2.0)
LEVELS = (1e-2, 1e-4)
BATCH = 8
MOST_ROWS = 1_000  # n c of the goal in seconds
SOLVERS = {
    "gd": {"solver": "gd", "learning_rate_init": "auto"},
    # 1 / L of all rows diverges on batches of 8 at beta = 0.
    "sgd": {"solver": "sgd", "learning_rate_init": 0.01, "batch_size": BATCH},
    "adamw": {
        "solver": "adamw",
        "batch_size": BATCH,
        "weight_decay": 0,
        "learning_rate": "constant",
    },
    "lbfgs": {"solver": "lbfgs"},
    "gauss_newton": {"solver": "gauss_newton"},
    # What is left of beta's effect may be the kinks of ReLU, which a linear model does not see.
    "gauss_newton, gelu": {"solver": "gauss_newton", "activation": "gelu"},
}


@dataclass(frozen=True)
class Size:
    """Sizes of the problems, and numbers of starts and steps."""

    n_sequences: int = 40
    n_tokens: int = 24
    n_starts: int = 10
    n_steps: int = 600
    jena: tuple = (500, 1_000, 4_000)
    gap: int = 50  # between training and held-out windows
    n_rows: int = 1_000  # of a table, at most
    n_seeds: int = 3
    n_epochs: int = 400  # of adamw, in seconds
    n_newton: int = 20


SIZES = {
    "full": Size(),
    "quick": Size(n_starts=2, n_steps=60, jena=(100,), n_seeds=2, n_epochs=20, n_newton=4),
}


# ---- steps ---------------------------------------------------------------------------------------


def problems(size):
    """(X, y) of each kind, drawn once: seeds draw the weights."""
    n, shape, rng = size.n_sequences, (size.n_sequences, size.n_tokens), np.random.default_rng(0)
    found = {
        "Gaussian tokens": (rng.standard_normal((*shape, 6)), rng.standard_normal(n)),
        "planted attention": make_planted_sequences(*shape, 6, random_state=0),
    }
    if data_folder() is not None:
        X, y = jena_windows(70_000, size.n_tokens)
        rows = np.linspace(0, len(y) - 1, n).astype(int)
        found["Jena windows"] = np.asarray(X[rows], dtype=float), y[rows].astype(float)
    return found


def steps_to(model, X, y):
    """Steps to each level of Phi / Phi_0; inf where it is not reached, or the fit diverges."""
    try:
        curve = model.fit(X, y).convergence_
    except DivergenceError:
        return [np.inf] * len(LEVELS)
    per_epoch = -(-len(y) // BATCH) if model.solver in ("sgd", "adamw") else 1
    relative = curve.loss / start_loss(model, X, y)
    reached = [np.flatnonzero(relative <= level) for level in LEVELS]
    # Epoch k is the loss before the step k, or over the batches up to it.
    first = 0 if per_epoch == 1 else 1
    return [per_epoch * (hit[0] + first) if len(hit) else np.inf for hit in reached]


def start_loss(model, X, y):
    """Phi_0: W_U = 0 predicts the mean."""
    targets = (y - y.mean()) / y.std()
    return float(np.mean(targets**2))


@cache
def measured(size):
    """{(data, solver): array (beta, start, level)}."""
    found = {}
    for name, (X, y) in problems(size).items():
        for solver, settings in SOLVERS.items():
            epochs = size.n_steps + 1
            if solver in ("sgd", "adamw"):
                epochs = size.n_steps * BATCH // len(y)
            model = ResidualTransformerRegressor(
                d_model=24,
                d_ff=96,
                positions="learned",
                readout="last",
                init="zero_unembedding",
                max_iter=limit(solver, size) + 1 if newton(solver) else epochs,
                n_iter_no_change=epochs,
                tol=0,
                dtype="float64",
                device="cpu",
            ).set_params(**settings)
            found[name, solver] = np.array(
                [
                    [
                        steps_to(clone(model).set_params(residual_beta=b, random_state=s), X, y)
                        for s in range(size.n_starts)
                    ]
                    for b in BETAS
                ]
            )
    return found


def newton(solver):
    return solver.startswith("gauss_newton")


def limit(solver, size):
    """Most steps that were tried."""
    return min(size.n_steps, 60) if newton(solver) else size.n_steps


def in_words(steps, most):
    """Median over the starts, with the lowest and the highest."""
    shown = [f"{v:.0f}" if np.isfinite(v) else f"> {most:,}" for v in spread(steps)]
    return f"{shown[1]} ({shown[0]} to {shown[2]})"


def spread(steps):
    return np.quantile(steps, [0, 0.5, 1], method="nearest")


def falsification(level):
    """A table of the steps to one level."""
    place = LEVELS.index(level)

    def section(size):
        rows, targets = [], []
        for (data, solver), steps in measured(size).items():
            cells = {
                f"beta = {b:g}": in_words(s[:, place], limit(solver, size))
                for b, s in zip(BETAS, steps, strict=True)
            }
            rows.append({"data": data, "solver": solver} | cells)
            if newton(solver):
                mine = np.median(steps[..., place], axis=1)
                gd = np.median(measured(size)[data, "gd"][..., place], axis=1)
                # Where gd did not arrive, the steps that it took are a lower bound.
                ratios = np.minimum(gd, size.n_steps) / mine
                claim = f"{data}, to {level:g}: steps of gd / {solver}, least over beta"
                targets.append(Target(claim, float(ratios.min()), 100.0))
        return rows, targets

    return section


def times(medians, most):
    """Ratio of the most to the fewest steps; a lower bound where some did not arrive."""
    if not np.isfinite(medians.min()):
        return "none arrived"
    ratio = np.minimum(medians, most).max() / medians.min()
    return f"{'' if np.isfinite(medians.max()) else '> '}{ratio:.2f}"


def effect_of_beta(size):
    """Slowest against fastest beta, and beta = 0 against 1 from the same start."""
    rows = []
    for (data, solver), steps in measured(size).items():
        for place, level in enumerate(LEVELS):
            medians = np.median(steps[..., place], axis=1)
            zero, one = steps[0, :, place], steps[BETAS.index(1.0), :, place]
            capped = [np.minimum(s, limit(solver, size)) for s in (zero, one)]
            rows.append(
                {
                    "data": data,
                    "solver": solver,
                    "Phi / Phi_0": level,
                    "slowest / fastest beta": times(medians, limit(solver, size)),
                    "log2 steps, beta 0 / 1": interval(np.log2(capped[0] / capped[1])),
                    "beta = 0 arrived": f"{np.isfinite(zero).sum()} of {len(zero)}",
                    "beta = 1 arrived": f"{np.isfinite(one).sum()} of {len(one)}",
                }
            )
    return rows, []


# ---- seconds -------------------------------------------------------------------------------------


def tasks(size):
    """Estimator, training and held-out part, and n c of every data set, by name."""
    for name, load, kind in (
        ("diabetes", load_diabetes, ResidualTransformerRegressor),
        ("breast cancer", load_breast_cancer, ResidualTransformerClassifier),
    ):
        X, y = (part[: size.n_rows] for part in load(return_X_y=True))
        yield name, kind, train_test_split(X, y, test_size=0.25, random_state=0)
    if data_folder() is None:
        return
    X, y = jena_windows(70_000, size.n_tokens)
    X, y = np.asarray(X[::12], dtype=float), y[::12].astype(float)
    for n in size.jena:
        later = slice(n + size.gap, n + size.gap + 1_000)
        yield f"Jena, n = {n:,}", ResidualTransformerRegressor, (X[:n], X[later], y[:n], y[later])


IN_SECONDS = {
    "adamw": {"solver": "adamw", "learning_rate": "constant"},
    "adamw, default": {"solver": "adamw"},
    "lbfgs": {"solver": "lbfgs"},
    "gauss_newton": {"solver": "gauss_newton"},
    "gauss_newton, decay 1e-3": {"solver": "gauss_newton", "weight_decay": 1e-3},
    "gauss_newton, decay 1e-2": {"solver": "gauss_newton", "weight_decay": 1e-2},
}


@cache
def in_seconds(size):
    """{(data, solver): one dict a seed}."""
    found = {}
    for name, kind, (X, X_later, y, y_later) in tasks(size):
        for label, settings in IN_SECONDS.items():
            if "decay" in label and len(y) > MOST_ROWS:
                continue
            epochs = size.n_newton if "gauss" in label else size.n_epochs
            epochs = "auto" if label == "adamw, default" else epochs
            model = kind(max_iter=epochs, n_iter_no_change=10**6, device="cpu", **settings)
            found[name, label] = [
                one_run(clone(model).set_params(random_state=seed), X, y, X_later, y_later)
                for seed in range(size.n_seeds)
            ]
    return found


def one_run(model, X, y, X_later, y_later):
    """Seconds to a training loss, to the best held-out loss, and those losses."""
    history = model.fit(X, y, X_val=X_later, y_val=y_later).history_
    seconds = history["dur"].cumsum().to_numpy()
    loss, held_out = history["train_loss"].to_numpy(), history["valid_loss"].to_numpy()

    def first(threshold):
        hit = np.flatnonzero(loss <= threshold)
        return float(seconds[hit[0]]) if len(hit) else np.inf

    best = int(held_out.argmin())
    return {
        "1e-2": first(1e-2),
        "1e-3": first(1e-3),
        "all": float(seconds[-1]),
        "steps": len(loss),
        "final": float(loss[-1]),
        "best": float(held_out[best]),
        "to best": float(seconds[best]),
        "last": float(held_out[-1]),
    }


def middle(runs, name):
    """Median over the seeds."""
    return float(np.median([one[name] for one in runs]))


def time_to_a_loss(size):
    """Seconds to a training loss."""
    rows, targets = [], []
    for (data, label), runs in in_seconds(size).items():
        if "decay" in label:
            continue
        never = f"> {middle(runs, 'all'):.1f}"
        shown = {f"s to {k}": middle(runs, k) for k in ("1e-2", "1e-3")}
        rows.append(
            {"data": data, "solver": label}
            | {k: v if np.isfinite(v) else never for k, v in shown.items()}
            | {"epochs": middle(runs, "steps"), "loss at the end": middle(runs, "final")}
        )
        small = not data.endswith(tuple(f"{n:,}" for n in size.jena if n > MOST_ROWS))
        if label == "gauss_newton" and small:
            other = in_seconds(size)[data, "adamw"]
            # Where adamw did not arrive, the seconds that it took are a lower bound.
            bound = min(middle(other, "1e-3"), middle(other, "all"))
            claim = f"{data}: seconds of adamw / gauss_newton to a training loss of 1e-3"
            targets.append(Target(claim, bound / middle(runs, "1e-3"), 1.0))
    return (rows, targets) if data_folder() is not None else (rows, [])


def held_out(size):
    """Best held-out loss, when, and that of the last step."""
    return [
        {
            "data": data,
            "solver": label,
            "best held-out loss": interval([one["best"] for one in runs]),
            "s to it": middle(runs, "to best"),
            "at the last step": middle(runs, "last"),
            "training loss there": middle(runs, "final"),
        }
        for (data, label), runs in in_seconds(size).items()
    ], []


SECTIONS = {
    "steps to Phi / Phi_0 = 1e-2": falsification(1e-2),
    "steps to Phi / Phi_0 = 1e-4": falsification(1e-4),
    "the effect of beta": effect_of_beta,
    "seconds to a training loss": time_to_a_loss,
    "held-out loss": held_out,
}


def main(argv=None, sizes=SIZES):
    return run("bench_solvers", __doc__.splitlines()[0], SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
