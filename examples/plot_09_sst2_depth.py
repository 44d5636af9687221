"""
9. Depth with and without residuals: film reviews through 1 to 10 layers
========================================================================

Claim C5 of arXiv:2506.05249: with residual connections the training error is lower at every depth,
and depth helps only with them. The paper cuts pretrained encoders to L layers. Here every layer is
trained from scratch, on phrases of the Stanford Sentiment Treebank (SST-2), for beta = 0, 0.25,
0.5, 1 in Z = Attn(X) + beta X: without normalisation from the paper's Gaussian start and from the
default ``init="depth_scaled"``, and with normalisation before each part.

``conditioning_`` shows layer by layer what depth does to the tokens: without residual the tokens of
a sequence become alike ("rank collapse", Dong et al. 2021), and the rank of Z falls.

``residual_beta_path`` fits all betas and seeds of one depth in one call. The texts come from the
folder named by the environment variable SKLEARN_RESTRANS_DATA, or a download of GLUE's SST-2. The
example takes six minutes on one core, with ``--quick`` twenty seconds.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import beta_styles, command_line, finish, save
from scipy.stats import t

from sklearn_restrans import (
    ResidualTransformerClassifier,
    SequenceVectorizer,
    residual_beta_path,
)
from sklearn_restrans.datasets import fetch_sst2

BETAS = [0.0, 0.25, 0.5, 1.0]
MODELS = {
    "no norm, gaussian": {"norm": None, "init": "gaussian"},
    "no norm, depth_scaled": {"norm": None},
    "pre norm, depth_scaled": {"norm": "pre"},
}

parser = command_line(
    "Training error against depth on SST-2.",
    quick="400 phrases, 2 seeds, depths 1, 2 and 6",
    weather=False,
)
parser.add_argument("--full", action="store_true", help="all 67,349 phrases (hours)")
args = parser.parse_args()
depths = [1, 2, 6] if args.quick else [1, 2, 6, 10]
n_texts, n_seeds, n_epochs = (400, 2, 4) if args.quick else (2_000, 3, 8)

# %%
# The texts: phrases of at least five words. They are drawn once and are the same for every fit.
texts, labels = fetch_sst2(subset="train")
chosen = np.flatnonzero([len(text.split()) >= 5 for text in texts])
if not args.full:
    chosen = np.random.default_rng(0).permutation(chosen)[:n_texts]
X = SequenceVectorizer(max_length=32).fit_transform([texts[row] for row in chosen])
y = labels[chosen]
majority = max(np.mean(y), 1 - np.mean(y))
print(f"{len(y):,} phrases, {(X != 0).sum(axis=1).mean():.1f} tokens each; majority {majority:.3f}")

# %%
# The fits: a path over beta and seeds for every depth and model.
begun = time.perf_counter()
rows, profiles = [], []
for label, settings in MODELS.items():
    for n_layers in depths:
        model = ResidualTransformerClassifier(
            embedding="token",
            n_layers=n_layers,
            learning_rate_init=2e-3,
            max_iter=n_epochs,
            tol=0,
            random_state=0,
            **settings,
        )
        path = residual_beta_path(X, y, BETAS, estimator=model, n_seeds=n_seeds)
        for (beta, seed, _), fitted in path.estimators.items():
            if fitted is None:
                continue
            where = {"model": label, "L": n_layers, "beta": beta, "seed": seed}
            loss = fitted.convergence_.loss[-1]
            rows.append(where | {"error": 1 - fitted.score(X, y), "loss": loss})
            found = fitted.conditioning_
            for stage, record in (("start", 0), ("end", -1)):
                profiles += [
                    where
                    | {
                        "stage": stage,
                        "layer": layer + 1,
                        "collapse": found.Z.rank_collapse[record, layer],
                        "sigma_min": found.Z.sigma_min[record, layer],
                        "effective rank": found.Z.effective_rank[record, layer],
                    }
                    for layer in range(n_layers)
                ]
        print(f"{label}, L = {n_layers}: {path.plan['mode']}", flush=True)
seconds = time.perf_counter() - begun
fits, profiles = pd.DataFrame(rows), pd.DataFrame(profiles)

# %%
# Training error: means over seeds, and half of their 95 % interval.
grouped = fits.groupby(["model", "beta", "L"])["error"]
mean = grouped.mean()
half = t.ppf(0.975, n_seeds - 1) * grouped.std() / np.sqrt(n_seeds)
table = mean.map("{:.3f}".format) + " ± " + half.map("{:.3f}".format)
print(f"\ntraining error after {n_epochs} epochs, mean of {n_seeds} seeds ± 95 %, {seconds:.0f} s")
print(table.unstack("L").to_string())
deepest = profiles[profiles["L"] == depths[-1]]
profile = deepest.groupby(["model", "stage", "beta", "layer"]).mean(numeric_only=True)
at_last = profile.drop(columns=["L", "seed"]).xs(depths[-1], level="layer")
print(
    f"\nlayer {depths[-1]} of {depths[-1]}, means over seeds; sigma_min at the rank of the layer's "
    "own input"
)
print(at_last.to_string(float_format="{:.3g}".format))

# %%
# The picture.
shown = {
    "collapse": "||Z - 1 z'|| / ||Z|| of a sequence",
    "sigma_min": "sigma_min of the stacked Z",
    "effective rank": "effective rank of the stacked Z",
}
fig, axes = plt.subplots(4, 3, figsize=(14, 14), sharey="row", layout="constrained")
for (top, *below), label in zip(axes.T, MODELS, strict=True):
    at_start = profile.xs((label, "start"), level=("model", "stage"))
    for beta, style in beta_styles(BETAS).items():
        line, width = mean[label, beta], half[label, beta]
        top.errorbar(line.index, line, yerr=width, capsize=3, label=f"{beta:g}", **style)
        for ax, quantity in zip(below, shown, strict=True):
            line = at_start.loc[beta, quantity]
            ax.semilogy(line.index, line, **style)
    top.axhline(1 - majority, color="0.6", ls=":", label="majority class")
    top.set(xlabel="layers", title=label, xticks=depths)
    below[0].set_title(f"{depths[-1]} layers before training")
    below[-1].set_xlabel("layer")
axes[0, 0].set(ylabel="training error", ylim=(-0.02, 1))
axes[0, 0].legend(title="beta")
for ax, name in zip(axes[1:, 0], shown.values(), strict=True):
    ax.set_ylabel(name)
picture = save(fig, args, "sst2_depth")

# %%
# What this run found.
deepest, found = depths[-1], []
for label in MODELS:
    errors = mean[label].unstack("L")
    lower = (errors.drop(index=0.0) < errors.loc[0.0]).to_numpy()
    change = {beta: errors.loc[beta, deepest] - errors.loc[beta, 1] for beta in (0.0, 1.0)}
    helps = change[1.0] < 0 <= change[0.0]
    collapse = profile.loc[(label, "start", slice(None), deepest), "collapse"].droplevel([0, 1, 3])
    found.append(
        f"{label}: 'residuals lower the training error at every depth' is "
        f"{'' if lower.all() else 'not '}reproduced ({lower.sum()} of {lower.size} pairs of beta "
        f"and depth). 'Depth helps only with residuals' is {'' if helps else 'not '}reproduced "
        f"(from 1 to {deepest} layers {change[0.0]:+.3f} at beta = 0, {change[1.0]:+.3f} at beta = "
        f"1). Before training layer {deepest} leaves {collapse[0.0]:.2g} of the differences "
        f"between tokens at beta = 0 and {collapse[1.0]:.2g} at beta = 1."
    )
print(*found, sep="\n")
shallow = mean["no norm, depth_scaled", 1.0, 1]
finish(
    args,
    picture,
    f"Means of {n_seeds} seeds over {len(y):,} phrases, {n_epochs} epochs, one step size for all. "
    "The models are trained from scratch, not pretrained as in the paper. One layer without norm "
    f"has a training error of {shallow:.3f} at beta = 1 already.",
)
