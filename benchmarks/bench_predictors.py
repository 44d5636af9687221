"""Which number, known before training, orders the betas as their losses after training do?

``python benchmarks/bench_predictors.py [--quick] [--only TABLE ...]``

A problem is a drawn set of sequences and a drawn start. Gradient descent runs from that start for
each beta, once with the beta's own step 1 / (1.05 L) and once with one common step. The order of
the losses Phi after it is the truth. ``suggest_residual_beta`` sees the data and draws starts of
its own. The naive predictors see the very start that is trained, which favours them.
"""

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
from _common import Target, data_folder, run
from scipy.stats import rankdata

from sklearn_restrans import (
    ResidualTransformerRegressor,
    certify_linear_convergence,
    suggest_residual_beta,
)
from sklearn_restrans.datasets import (
    fetch_jena_climate,
    load_nyc_weather,
    make_planted_sequences,
)
from sklearn_restrans.forecasting import make_supervised

BETAS = (0.0, 0.25, 0.5, 1.0, 2.0)
STEPS = ("own", "common")
# The correlations of the two methods in the experiment that they come from.
BOUNDS = {"linearized": 0.67, "pilot": 0.84}


@dataclass(frozen=True)
class Size:
    """Sizes of the problems, and numbers of problems, starts and steps of one run."""

    n_rows: int = 32
    n_tokens: int = 12
    d_model: int = 16
    n_steps: int = 200
    n_problems: int = 20
    n_starts: int = 5
    # A quarter of the run.
    pilot_steps: int = 50
    pilot_starts: int = 3


SIZES = {
    "full": Size(),
    "quick": Size(n_steps=80, n_problems=3, n_starts=2, pilot_steps=20, pilot_starts=1),
}


def weather(size):
    """All windows of hourly weather and the temperature a day later: Jena, or New York."""
    folder = data_folder()
    if folder is None:
        frame = load_nyc_weather("JFK").select_dtypes("number")
        frame = frame.loc[:, frame.isna().mean() < 0.05].ffill(limit=3).dropna()
    else:
        frame = fetch_jena_climate(folder, frequency="1h")
    return make_supervised(frame, target="T (degC)", horizon=24, window=size.n_tokens)


def problems(size):
    """For each kind of data a function that draws (X, y) from a seed."""
    view, targets = weather(size)
    shape = size.n_rows, size.n_tokens

    def drawn_weather(seed):
        rows = np.random.default_rng(seed).choice(len(view), size.n_rows, replace=False)
        return np.asarray(view[rows]), np.asarray(targets)[rows]

    def gaussian(seed):
        rng = np.random.default_rng(seed)
        return rng.standard_normal((*shape, 6)), rng.standard_normal(size.n_rows)

    def planted(seed):
        return make_planted_sequences(*shape, 6, random_state=seed)

    name = "New York weather" if data_folder() is None else "Jena weather"
    return {name: drawn_weather, "Gaussian tokens": gaussian, "planted attention": planted}


def model(size, init, beta, seed, step="auto"):
    """One layer; the loss after each number of steps up to ``n_steps`` is recorded."""
    return ResidualTransformerRegressor(
        beta,
        d_model=size.d_model,
        d_ff=4 * size.d_model,
        positions="learned",
        readout="last",
        init=init,
        solver="gd",
        learning_rate_init=step,
        max_iter=size.n_steps + 1,  # the loss of an epoch is taken before its step
        tol=0,
        device="cpu",
        random_state=seed,
    )


def expected_losses(size, init, X, y, seed, fits, step):
    """For each predictor one number per beta, which should rise with the loss."""
    # With W_U = 0 the bound at the start is 0, so it is taken one step later.
    n_steps = 2 if init == "zero_unembedding" else 1
    certificates = [
        certify_linear_convergence(fit, X, y, n_steps=n_steps).steps.iloc[-1] for fit in fits
    ]
    alpha, tangent, own = np.array(
        [[c["alpha"], c["alpha_tangent"], c["step_size"]] for c in certificates]
    ).T
    start = [fit.conditioning_ for fit in fits]
    # The random state differs from that of the fits, so that the starts differ too.
    other = model(size, init, 1.0, 10_000 + seed)
    efforts = {
        "linearized": {"n_steps": size.n_steps, "n_seeds": size.n_starts},
        "pilot": {"n_steps": size.pilot_steps, "n_seeds": size.pilot_starts},
    }
    suggested = {
        method: suggest_residual_beta(other, X, y, BETAS, method, step=step, **effort).scores
        for method, effort in efforts.items()
    }
    return {method: scores["score"] for method, scores in suggested.items()} | {
        "alpha / L": -alpha * own,
        "mu alpha": -alpha * (own if step == "own" else step),
        "lambda_min(J J^T) / L": -tangent * own,
        "sigma_min(Z)": [-c.get("sigma_min", stage="initial") for c in start],
        "condition number of Z": [c.get("condition_number", stage="initial") for c in start],
        "always beta = 1": [beta != 1 for beta in BETAS],
    }


def rank_correlation(expected, losses):
    """Spearman's correlation; 0 for a predictor that gives every beta the same number."""
    ranks = [rankdata(values) for values in (expected, losses)]
    return float(np.corrcoef(ranks)[0, 1]) if all(map(np.ptp, ranks)) else 0.0


@cache
def measured(size, init):
    """{(data, step): {predictor: [(rank correlation, regret) of each problem]}}."""
    result = {}
    for name, draw in problems(size).items():
        for seed in range(size.n_problems):
            X, y = draw(seed)
            fits = [model(size, init, beta, seed).fit(X, y) for beta in BETAS]
            # The common step is the longest that exceeds no beta's own.
            common = min(fit.convergence_.learning_rate[0] for fit in fits)
            for kind in STEPS:
                step = "own" if kind == "own" else float(common)
                if kind == "common":
                    fits = [model(size, init, beta, seed, step).fit(X, y) for beta in BETAS]
                losses = np.log10([fit.convergence_.loss[-1] for fit in fits])
                auto = [fit.set_params(learning_rate_init="auto") for fit in fits]
                expected = expected_losses(size, init, X, y, seed, auto, step)
                for predictor, values in expected.items():
                    pair = (
                        rank_correlation(values, losses),
                        losses[np.argmin(values)] - losses.min(),
                    )
                    result.setdefault((name, kind), {}).setdefault(predictor, []).append(pair)
    return result


def interval(values):
    """Ends of the 95 % percentile bootstrap interval of the mean."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (10_000, len(values))).mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


def correlations(init):
    """A function of a size: mean Spearman rank correlation with the losses, 95 % interval.

    Own steps and the common step have a mean each: some predictors change their sign between them,
    and one mean over both would hide that.
    """

    def section(size):
        rows, means = {}, {}
        for (data, step), found in measured(size, init).items():
            for predictor, pairs in found.items():
                if predictor.startswith("always"):
                    continue
                values = [pair[0] for pair in pairs]
                low, high = interval(values)
                cell = f"{np.mean(values):.2f} ({low:.2f} to {high:.2f})"
                rows.setdefault(predictor, {"predictor": predictor})[f"{data}, {step}"] = cell
                means.setdefault((predictor, step), []).append(np.mean(values))
        for predictor, row in rows.items():
            row |= {f"mean, {step}": float(np.mean(means[predictor, step])) for step in STEPS}
        targets = [
            Target(
                f"mean rank correlation, {method}, {init}",
                float(np.mean([rows[method][f"mean, {step}"] for step in STEPS])),
                bound,
            )
            for method, bound in BOUNDS.items()
        ]
        return list(rows.values()), targets

    return section


def regrets(init):
    """A function of a size: median log10 of the loss at the chosen beta over the lowest loss."""

    def section(size):
        rows = {}
        for (data, step), found in measured(size, init).items():
            for predictor, pairs in found.items():
                regret = float(np.median([pair[1] for pair in pairs]))
                rows.setdefault(predictor, {"predictor": predictor})[f"{data}, {step}"] = regret
        return list(rows.values()), []

    return section


SECTIONS = {
    "rank correlation, Gaussian start": correlations("gaussian"),
    "regret in decades, Gaussian start": regrets("gaussian"),
    "rank correlation, W_U = 0": correlations("zero_unembedding"),
    "regret in decades, W_U = 0": regrets("zero_unembedding"),
}


def main(argv=None, sizes=SIZES):
    return run("bench_predictors", "Order of the betas before training.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
