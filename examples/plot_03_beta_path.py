"""
3. The whole experiment on beta in one call: nine betas, five folds, ten seeds
==============================================================================

Hourly weather, air temperature 24 hours ahead, one layer. Z = Attn(X) + beta X.

Claim C4 of arXiv:2506.05249: gradient descent converges faster with larger beta, beta = 0 is
clearly slowest, and beta raises the smallest singular value strongly. One fit per beta shows
little, because another start or another stretch of data may reverse the order.
``residual_beta_path`` fits every beta on every fold from every seed, 450 fits. Fits that differ
only in beta and seed are trained as one stacked model; each equals the fit that ``fit`` gives.

Plain SGD takes one fixed step for every beta, and W_U = 0 at the start, so that every beta begins
at the same loss. Each fit sees 8,000 windows and takes 10 epochs. ``--help`` lists the options.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from _shared import HORIZON, TARGET, command_line, finish, hourly_weather, save
from sklearn.model_selection import TimeSeriesSplit

from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path
from sklearn_restrans.forecasting import make_supervised

BETAS = np.arange(9) / 4  # 0, 0.25, ..., 2
WINDOW = 24
N_FOLDS = 5
# One fixed step, at which beta = 2 does not diverge on either data set.
SGD_STEP = 0.003

args = command_line(
    "Nine betas, five folds, ten seeds in one call.",
    quick="1,000 windows, 4 epochs and 2 seeds",
).parse_args()
n_train, n_epochs, n_seeds = (1_000, 4, 2) if args.quick else (8_000, 10, 10)

# %%
# The data. Every fold trains on the n_train windows before its test part.
frame, data, _ = hourly_weather(args.data)
X, y = make_supervised(frame, target=TARGET, horizon=HORIZON, window=WINDOW)
n_test = min(2_000, (len(y) - n_train - HORIZON) // N_FOLDS)
cv = TimeSeriesSplit(N_FOLDS, gap=HORIZON, max_train_size=n_train, test_size=n_test)
trained = {len(train) for train, _ in cv.split(X)}
print(
    f"{data}: {len(y):,} windows of {WINDOW} hours x {X.shape[2]} variables; {N_FOLDS} folds, each "
    f"trained on {min(trained):,} windows and tested on the {n_test:,} after them"
)

# %%
# The one call.
model = ResidualTransformerRegressor(
    solver="sgd",
    learning_rate_init=SGD_STEP,
    init="zero_unembedding",
    max_iter=n_epochs,
    tol=0,
    random_state=0,
)
called = time.perf_counter()
path = residual_beta_path(
    X,
    y,
    BETAS,
    estimator=model,
    cv=cv,
    n_seeds=n_seeds,
    scoring="neg_mean_absolute_error",
    n_jobs=2,
)
seconds = time.perf_counter() - called
print(f"{path}\n{len(path.estimators)} fits of {n_epochs} epochs in {seconds:.0f} s")

# %%
# Per beta: means over folds and seeds, and how far the seeds alone move the mean.
summary = path.summary()
table = summary.xs("mean", axis=1, level=1)[["loss", "sigma_min_attn", "sigma_min_Z"]]
table.insert(1, "low", summary["loss", "low"])
table.insert(2, "high", summary["loss", "high"])
table["MAE [degC]"] = -summary["score", "mean"]
table["fits"] = summary["loss", "count"]
print(f"\nloss after {n_epochs} epochs, with its 95 % interval over {n_seeds} seeds")
print(table.to_string(float_format="{:.4g}".format))

# Fits of one fold and one seed share their data, batches and start. Which beta is slowest there?
losses = path.to_frame().pivot(index=["fold", "seed"], columns="beta", values="loss")
slowest = losses.idxmax(axis=1).value_counts()
fastest = losses.idxmin(axis=1).value_counts()
print(f"\nslowest beta of a fold and seed: {slowest.to_dict()}; fastest: {fastest.to_dict()}")

# %%
# The picture.
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
path.plot(left)
left.set(title=f"SGD, step {SGD_STEP}, mean of {N_FOLDS} folds x {n_seeds} seeds")
middle.plot(BETAS, table["loss"], "o-", color="C0")
middle.fill_between(BETAS, table["low"], table["high"], color="C0", alpha=0.3)
middle.set(xlabel="beta", ylabel="training loss", title=f"Epoch {n_epochs}, 95 % over seeds")
right.semilogy(BETAS, table["sigma_min_Z"], "o-", color="C0", label="Z = Attn(X) + beta X")
right.semilogy(BETAS, table["sigma_min_attn"], "s:", color="C3", label="Attn(X)")
right.set(xlabel="beta", ylabel="sigma_min", title="After training")
right.legend()
picture = save(fig, args, f"beta_path_{data}")

# %%
# What this run found.
loss, best = table["loss"], table["loss"].idxmin()
after = f" and rises again to {loss.iloc[-1]:.3f} at beta = {BETAS[-1]:g}"
finish(
    args,
    picture,
    f"{len(path.estimators)} fits ({len(BETAS)} betas x {N_FOLDS} folds x {n_seeds} seeds, "
    f"{min(trained):,} windows and {n_epochs} epochs each) took {seconds:.0f} s in one call. With "
    f"one fixed SGD step beta = 0 is the slowest in {slowest.get(0.0, 0)} of {len(losses)} folds "
    f"and seeds, the mean loss after {n_epochs} epochs falls from {loss.iloc[0]:.3f} at beta = 0 "
    f"to {loss[best]:.3f} at beta = {best:g}{after if best < BETAS[-1] else ''}, and sigma_min(Z) "
    f"goes from {table['sigma_min_Z'].iloc[0]:.3g} at beta = 0 to "
    f"{table['sigma_min_Z'].iloc[-1]:.3g} at beta = {BETAS[-1]:g}.",
)
