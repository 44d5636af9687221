"""
11. Taking the conditioning away
================================

If beta changes how fast gradient descent goes because it changes the conditioning, its effect must
vanish under a step that the condition number does not enter. ``solver="gauss_newton"`` takes such
steps: it solves with the tangent kernel of all outputs, J J^T.

Forty windows of one day of weather, and as many sequences of independent Gaussian numbers, are
fitted by both and by L-BFGS, which lies between them. The start has W_U = 0, so that Phi_0 is the
same for every beta. Ten seeds, three data sets and two more solvers are in
``benchmarks/bench_solvers.py``.

``--help`` lists the options.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import BETAS, beta_styles, command_line, finish, save, small_problems

from sklearn_restrans import ResidualTransformerRegressor, certify_linear_convergence

args = command_line(
    "Steps of gradient descent, L-BFGS and Gauss-Newton against beta.",
    quick="60 steps and 2 starts",
).parse_args()
n_steps, n_seeds = (60, 2) if args.quick else (600, 2)
SOLVERS = {
    "gd": ("auto", n_steps, "#D55E00"),
    "lbfgs": (5e-3, min(n_steps, 100), "#009E73"),
    "gauss_newton": (5e-3, 40, "#0072B2"),
}
LEVEL = 1e-2

# %%
# The data: forty windows of one day of weather, and Gaussian tokens.
problems, key = small_problems(args.data)


def model_of(solver, beta, seed):
    """One layer, with no rule that stops the descent early."""
    step, most, _ = SOLVERS[solver]
    return ResidualTransformerRegressor(
        beta,
        d_model=24,
        d_ff=96,
        positions="learned",
        readout="last",
        init="zero_unembedding",
        solver=solver,
        learning_rate_init=step,
        max_iter=most,
        n_iter_no_change=most,
        tol=0,
        dtype="float64",
        random_state=seed,
    )


# %%
# Phi / Phi_0 after each number of steps: the loss of an epoch is taken before its step.
curves = {
    (name, solver, beta, seed): model_of(solver, beta, seed).fit(X, y).convergence_.relative_loss
    for name, (X, y) in problems.items()
    for solver in SOLVERS
    for beta in BETAS
    for seed in range(n_seeds)
}


def steps_to(curve, most):
    """Steps to the level, and the largest number tried where it is not reached."""
    reached = np.flatnonzero(curve <= LEVEL)
    return reached[0] if len(reached) else most


steps = {
    (name, solver): np.array(
        [[steps_to(curves[name, solver, b, seed], most) for seed in range(n_seeds)] for b in BETAS]
    )
    for name in problems
    for solver, (_, most, _) in SOLVERS.items()
}
table = [
    {"data": name, "solver": solver, "beta": beta, "steps, median": np.median(found)}
    | {"lowest": found.min(), "highest": found.max()}
    for (name, solver), of_betas in steps.items()
    for beta, found in zip(BETAS, of_betas, strict=True)
]
print(f"steps to Phi / Phi_0 = {LEVEL:g} (gd: at most {n_steps}), {n_seeds} starts")
print(pd.DataFrame(table).to_string(index=False))

# %%
# A bound for every Gauss-Newton step, from measured numbers: the part of the residual that damping
# leaves, lambda / (lambda + lambda_min(J J^T)), and the part that the linear model missed.
X, y = problems["Gaussian tokens"]
certificate = certify_linear_convergence(model_of("gauss_newton", 1.0, 0), X, y, n_steps=12)
print(f"\n{certificate}")
columns = ["loss", "damping", "lambda_min", "remainder", "bound", "status"]
print(certificate.to_frame()[columns].to_string(float_format="{:.3g}".format))

# %%
# The picture.
fig, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
for (left, middle, right), name in zip(axes, problems, strict=True):
    for ax, solver in ((left, "gd"), (middle, "gauss_newton")):
        for beta, style in beta_styles().items():
            curve = curves[name, solver, beta, 0]
            every = max(1, len(curve) // 8)
            ax.semilogy(curve, markevery=every, label=f"{beta:g}", **style)
        ax.axhline(LEVEL, color="0.6", lw=0.8)
        ax.set(title=f"{name}, {solver}", xlabel="step", ylabel="Phi / Phi_0")
    for solver, (_, _, color) in SOLVERS.items():
        found = steps[name, solver]
        median = np.median(found, axis=1)
        bars = [median - found.min(axis=1), found.max(axis=1) - median]
        right.errorbar(BETAS, median, bars, fmt="o-", color=color, ms=4, label=solver)
    right.axhline(n_steps, color="0.6", lw=0.8)
    right.set(yscale="log", title=f"{name}: steps to {LEVEL:g}", xlabel="beta", ylabel="steps")
axes[0, 0].legend(title="beta")
handles, labels = axes[0, 2].get_legend_handles_labels()
title = f"right: median and range over starts; gd stops after {n_steps} steps (grey)"
fig.legend(handles, labels, loc="outside lower right", ncols=3, title=title)
picture = save(fig, args, f"gauss_newton_{key}")

# %%
# What this run found.
said = []
for name in problems:
    gd, newton = (np.median(steps[name, solver], axis=1) for solver in ("gd", "gauss_newton"))
    said.append(
        f"on {name} gradient descent needs {gd.min():.0f} to {gd.max():.0f} steps to "
        f"Phi / Phi_0 = {LEVEL:g} over the betas ({n_steps} means not reached), Gauss-Newton "
        f"{newton.min():.0f} to {newton.max():.0f}, {newton[0]:.0f} of them at beta = 0 and "
        f"{newton[BETAS.index(1.0)]:.0f} at beta = 1"
    )
finish(args, picture, f"Conditioning taken away: {'; '.join(said)}.")
