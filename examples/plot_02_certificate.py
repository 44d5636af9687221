"""
2. A certificate of linear convergence, step by step
====================================================

Forty days of hourly weather, one layer, the loss of arXiv:2506.05249, full-batch gradient descent.
The paper's claim C1 is a linear rate, Phi_{t+1} <= (1 - mu alpha) Phi_t; its claim C2 is that alpha
comes from singular values. Both can be computed and checked at every step that is taken:

    Phi_{t+1} <= (1 - 2 mu (1 - mu kappa_t / 2) alpha_t) Phi_t       if kappa_t < 2 / mu

kappa_t is the curvature that the step met, computed from three measured numbers; no smoothness is
assumed. alpha_t is one of two constants. The first comes from W_U and the last W_2 alone: it is the
smallest eigenvalue of A A^T + sigma_c(W_U)^2 H H^T. The second, the smallest eigenvalue of the
tangent kernel J J^T, is the largest that can stand in the bound.

The same is done for tokens that are independent Gaussian numbers. ``--help`` lists the options.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import BETAS, command_line, finish, save, small_problems

from sklearn_restrans import ResidualTransformerRegressor, certify_linear_convergence
from sklearn_restrans.theory import certified_contraction

# The alpha of the two blocks is 0 for more rows than d + m = 24 + 96.
N_ROWS = 40

args = command_line(
    "Certify gradient descent on weather and on noise.", quick="60 steps instead of 300"
).parse_args()
n_steps = 60 if args.quick else 300

# %%
# The data: forty windows of one day of weather, and Gaussian tokens.
problems, key = small_problems(args.data, N_ROWS)


def model(beta=1.0):
    return ResidualTransformerRegressor(
        beta,
        d_model=24,
        d_ff=96,
        readout="last",
        solver="gd",
        learning_rate_init="auto",
        max_iter=n_steps,
        tol=0,
        random_state=0,
    )


# %%
# The certificates.
certificates = {}
for name, (sequences, targets) in problems.items():
    certificate = certificates[name] = certify_linear_convergence(model(), sequences, targets)
    print(f"{name}, beta = 1\n{certificate}")
    columns = ["loss", "step_size", "kappa", "alpha", "alpha_tangent", "bound", "margin", "status"]
    table = certificate.to_frame()[columns].rename_axis("step")
    print(table.head(5).to_string(float_format="{:.4g}".format), "\n")

# %%
# What beta does to the constants of the first step, to the step itself, and to the final loss.
first = []
for name, (sequences, targets) in problems.items():
    for beta in BETAS:
        step = certify_linear_convergence(model(beta), sequences, targets, n_steps=1).steps.iloc[0]
        first.append(
            {
                "data": name,
                "beta": beta,
                "mu": step["step_size"],
                "alpha": step["alpha"],
                "alpha_tangent": step["alpha_tangent"],
                "mu alpha": step["step_size"] * step["alpha"],
                "mu alpha_tangent": step["step_size"] * step["alpha_tangent"],
                "final Phi": model(beta).fit(sequences, targets).convergence_.loss[-1],
            }
        )
first = pd.DataFrame(first)
print(first.to_string(index=False, float_format="{:.3g}".format))

# %%
# The picture: the loss, and the bound on it that the certified steps multiply up to.
fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (name, certificate) in zip(axes, certificates.items(), strict=True):
    steps = certificate.to_frame()
    loss = np.append(steps["loss"], certificate.final_loss)
    curves = {
        "two blocks": (steps["alpha"], "C1", "--"),
        "tangent kernel": (steps["alpha_tangent"], "C2", "-."),
    }
    for label, (alpha, color, style) in curves.items():
        factors = certified_contraction(alpha, steps["kappa"], steps["step_size"])
        bound = loss[0] * np.cumprod(np.append(1.0, factors))
        ax.semilogy(bound, color=color, ls=style, label=f"certified by the {label}")
    ax.semilogy(loss, color="C0", lw=2, label="loss")
    ax.set(xlabel="step of gradient descent", title=f"{name}, N = {N_ROWS}, beta = 1")
axes[0].set_ylabel("Phi (mean squared error)")
axes[0].legend()
picture = save(fig, args, f"certificate_{key}")

# %%
# What this run found.
found, agree = [], True
for name, certificate in certificates.items():
    status, start = certificate.steps["status"], certificate.steps["loss"].iloc[0]
    of_data = first[first["data"] == name].set_index("beta")
    promised, best = of_data["mu alpha"].idxmax(), of_data["final Phi"].idxmin()
    agree &= promised == best
    found.append(
        f"on {name} {(status == 'certified').sum()} of {len(status)} steps are certified; the loss "
        f"fell to {certificate.final_loss / start:.2g} of its start, of which the certificate "
        f"proves a fall to {certificate.product:.2g}; mu alpha is largest at beta = {promised:g}, "
        f"and the loss after {n_steps} steps is lowest at beta = {best:g}"
    )
finish(
    args,
    picture,
    f"C1 and C2, step by step: {'; '.join(found)}. The bounds hold and are far from tight"
    + ("." if agree else ", and the beta with the largest bound need not be the best one."),
)
