"""
5. How fast gradient descent converges, and what "faster" means (claim C4)
==========================================================================

Claim C4 of arXiv:2506.05249, on hourly weather with one layer: gradient descent converges faster
with larger beta, and beta = 0 is clearly slowest. Whether that holds depends on three choices that
the sentence leaves open:

- the loss: Phi itself, or Phi / Phi_0. A larger beta starts at a larger Phi_0;
- the step: each beta's own, 1 / (1.05 L) with L the measured largest curvature, or one for all. L
  grows with beta, so a common step that is short enough for beta = 2 is very short for beta = 0;
- the start: Gaussian, or with W_U = 0, where Phi_0 is the same for every beta.

All of them are tried here, by exact full-batch gradient descent in float64 on forty windows, and
on as many sequences of independent Gaussian numbers. There are ten starts, the same for every beta;
the intervals are 95 % bootstrap intervals of the median over starts.

``--help`` lists the options.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import BETAS, beta_styles, command_line, finish, save, small_problems

from sklearn_restrans import ResidualTransformerRegressor, residual_beta_path

args = command_line(
    "Loss curves per beta by exact gradient descent.", quick="60 steps and 3 starts"
).parse_args()
n_steps, n_seeds = (60, 3) if args.quick else (300, 10)

# %%
# The data: forty windows of one day of weather, and Gaussian tokens.
problems, key = small_problems(args.data)


def descend(sequences, targets, init, step="auto"):
    """Loss after 0 to n_steps steps: an array (beta, seed, step), inf where it diverged."""
    model = ResidualTransformerRegressor(
        d_model=24,
        d_ff=96,
        # Small vectors at the start, like the tokens. Sinusoidal ones would outweigh the tokens.
        positions="learned",
        readout="last",
        solver="gd",
        learning_rate_init=step,
        init=init,
        # The loss of an epoch is taken before its step, and no rule may stop the descent early.
        max_iter=n_steps + 1,
        n_iter_no_change=n_steps + 1,
        tol=0,
        random_state=0,
    )
    path = residual_beta_path(sequences, targets, BETAS, estimator=model, n_seeds=n_seeds)
    fits = [
        [path.estimators[beta, seed, 0] for seed in sorted({s for _, s, _ in path.estimators})]
        for beta in BETAS
    ]
    never = np.full(n_steps + 1, np.inf)
    losses = np.array([[never if f is None else f.convergence_.loss for f in row] for row in fits])
    return losses, fits


def median_interval(values):
    """Median over the starts (axis 1), and the two ends of its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).integers(n_seeds, size=(2_000, n_seeds))
    medians = np.median(values[:, draws], axis=2)
    # "nearest" does not interpolate, which would make NaN of two infinite losses.
    ends = np.quantile(medians, [0.025, 0.975], axis=1, method="nearest")
    return np.median(values, axis=1), *ends


# %%
# Every start and every step. The short common step is the shortest of all the betas' own steps. The
# long one is the median own step of beta = 0, at which larger betas may diverge.
losses = {}
for name, problem in problems.items():
    for init in ("gaussian", "zero_unembedding"):
        losses[name, init, "own"], fits = descend(*problem, init)
        own = np.array([[fit.convergence_.learning_rate[0] for fit in row] for row in fits])
        losses[name, init, "common"], _ = descend(*problem, init, float(own.min()))
        if init == "gaussian":
            mu = float(np.median(own[0]))
            losses[name, init, "long common"], _ = descend(*problem, init, mu)
            print(f"{name}: median own first step of each beta {np.median(own, axis=1).round(4)}")

# %%
# The table.
table, found = [], {}
for (name, init, kind), loss in losses.items():
    final, start = loss[:, :, -1], losses[name, init, "own"][:, :, 0]
    slowest = np.bincount(final.argmax(axis=0), minlength=len(BETAS))
    absolute, relative = found[name, init, kind] = [
        median_interval(values) for values in (final, final / start)
    ]
    for k, beta in enumerate(BETAS):
        table.append(
            {
                "data": name,
                "start": init,
                "step": kind,
                "beta": beta,
                "Phi_0": np.median(start[k]),
                "Phi": "{:.3g} [{:.3g}, {:.3g}]".format(*(v[k] for v in absolute)),
                "Phi / Phi_0": "{:.2g} [{:.2g}, {:.2g}]".format(*(v[k] for v in relative)),
                "slowest by Phi": f"{slowest[k]} of {n_seeds}",
                "diverged": f"{np.isinf(final[k]).sum()} of {n_seeds}",
            }
        )
print(f"after {n_steps} steps, median over {n_seeds} starts with its 95 % bootstrap interval")
print(pd.DataFrame(table).to_string(index=False, float_format="{:.3g}".format))

# %%
# The picture: the curves from the Gaussian start, and every final loss against beta.
LINES = [
    ("Phi", "gaussian", 0, "o-"),
    ("Phi / Phi_0", "gaussian", 1, "s--"),
    ("Phi from W_U = 0", "zero_unembedding", 0, "^:"),
]
styles = beta_styles()
fig, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
for (left, middle, right), name in zip(axes, problems, strict=True):
    for ax, kind in ((left, "own"), (middle, "common")):
        for k, (beta, style) in enumerate(styles.items()):
            median, low, high = median_interval(losses[name, "gaussian", kind][k].T)
            steps = np.arange(n_steps + 1)
            ax.fill_between(steps, low, high, color=style["color"], alpha=0.2, lw=0)
            # The markers of different betas stand side by side.
            every = (k * n_steps // 50, n_steps // 6)
            ax.semilogy(median, markevery=every, label=f"{beta:g}", **style)
        ax.set(title=f"{name}, {kind} step", xlabel="step, from a Gaussian start", ylabel="Phi")
    # The colour says which step, the line style which start and which loss.
    for label, init, which, style in LINES:
        for kind, color, shift in (("own", "#0072B2", -0.02), ("common", "#D55E00", 0.02)):
            median, low, high = found[name, init, kind][which]
            bars = [median - low, high - median]
            x = np.array(BETAS) + shift
            label_of_line = f"{label}, {kind} step"
            right.errorbar(x, median, bars, fmt=style, color=color, lw=1.2, label=label_of_line)
    right.set(yscale="log", title=f"{name}, after {n_steps} steps", xlabel="beta")
axes[0, 0].legend(title="beta", ncols=2)
handles, labels = axes[0, 2].get_legend_handles_labels()
fig.legend(handles, labels, loc="outside lower right", ncols=3)
picture = save(fig, args, f"convergence_rate_{key}")

# %%
# What this run found.
ends_of = {}
for name in problems:
    print(f"{name}: beta of the lowest and of the highest median after {n_steps} steps")
    for kind in ("common", "own"):
        for label, init, which, *_ in LINES:
            median = found[name, init, kind][which][0]
            lowest, highest = BETAS[median.argmin()], BETAS[median.argmax()]
            print(f"  {label}, {kind} step: {lowest:g} and {highest:g}")
            ends_of.setdefault((name, kind), []).append((lowest, highest))
said = []
for name in problems:
    common, own = (np.array(ends_of[name, kind]) for kind in ("common", "own"))
    diverged = np.isinf(losses[name, "gaussian", "long common"][-1, :, -1]).sum()
    said.append(
        f"on {name} beta = 0 is slowest in {(common[:, 1] == 0).sum()} of 3 comparisons with one "
        f"common step and in {(own[:, 1] == 0).sum()} of 3 with each beta's own, beta = 2 fastest "
        f"in {(common[:, 0] == 2).sum()} and {(own[:, 0] == 2).sum()} (with own steps the loss Phi "
        f"itself is lowest at beta = {own[0, 0]:g} and highest at {own[0, 1]:g}), and with the "
        f"step of beta = 0 for all beta = 2 diverges from {diverged} of {n_seeds} starts"
    )
finish(args, picture, f"Claim C4: {'; '.join(said)}.")
