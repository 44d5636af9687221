"""
13. Depth: what each layer keeps of its tokens, and where it looks
==================================================================

Every layer of a Transformer averages its tokens, so that in a deep one they become equal: rank
collapse. This lesson follows Jena's weather through eight layers, with and without residual.

*Depth profiles.* The smallest singular value of X, Attn(X) and Z = Attn(X) + beta X of each window,
and how far its tokens are from their mean, layer by layer.

*A sufficient beta.* Joseph et al. (2025, arXiv:2410.10609) bound the lambda, our beta, above which
a layer with post norm keeps its tokens apart whatever attention does. Attention as it is asks for
less; both values are computed and held against what the layers do.

*Attention over lags.* How far back each layer of a trained model reads, and whether its softmax is
flat, selective or saturated.

``--help`` lists the options.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from _shared import HORIZON, TARGET, command_line, finish, hourly_weather, save

from sklearn_restrans import (
    AttentionDisplay,
    DepthProfileDisplay,
    ResidualTransformerRegressor,
    lambda_skip_bound,
    measure_conditioning,
)
from sklearn_restrans.forecasting import make_supervised
from sklearn_restrans.theory import lambda_skip

args = command_line(
    "What each layer keeps of its tokens.", quick="fewer windows and epochs"
).parse_args()
N, N_DEPTH, EPOCHS = (200, 40, 4) if args.quick else (400, 80, 8)
L, T = 8, 24

# %%
# Windows of a day, spread evenly over the record, and the temperature a day later.
frame, data, name = hourly_weather(args.data)
X, y = make_supervised(frame, target=TARGET, horizon=HORIZON, window=T)
rows = np.linspace(T, len(y) - 1, N).astype(int)
X, y = X[rows], np.asarray(y)[rows]
step = N // N_DEPTH
some = X[::step]
SETTINGS = {"n_layers": L, "d_model": 32, "random_state": 0, "init": "gaussian"}


def start(beta, **settings):
    """A model at its start (one epoch with steps of 1e-9): what depth does by itself."""
    model = ResidualTransformerRegressor(
        beta, max_iter=1, learning_rate_init=1e-9, **SETTINGS | settings
    )
    return model.fit(some, y[::step])


# %%
# Depth profiles. Without residual the tokens of a window are equal after a few layers. The matrix
# of a window then has rank one, and its smallest singular value is its largest, so the left picture
# has to be read together with the right one.
starts = {f"beta = {beta:g}": start(beta, norm="post") for beta in (0.0, 1.0)}
records = {label: measure_conditioning(model, some) for label, model in starts.items()}
fig, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
DepthProfileDisplay.from_estimator(records, quantity="sequence_sigma_min", ax=axes[0, 0])
axes[0, 0].set(title=f"{name}: smallest singular value of a window")
axes[0, 0].annotate("rank one: its only one", (4, 30), (3.2, 0.8), arrowprops={"arrowstyle": "->"})
DepthProfileDisplay.from_estimator(records, quantity="rank_collapse", ax=axes[0, 1])
axes[0, 1].set(title="distance of its tokens from their mean")
print(records["beta = 0"], records["beta = 1"], sep="\n")

# %%
# The beta that is sure to keep half of the tokens' spread in every layer: asked again until the
# layers, whose inputs move with beta, need no more.
KEPT = 0.5
betas = [0.0, 0.5, 1.0, 2.0, 4.0]
shares = []
for beta in betas:
    bound = lambda_skip_bound(start((beta, 1.0), norm="post"), some, kept=KEPT, layer_norm=True)
    shares.append(bound.kept_share.min())
sufficient = 1.0
for _ in range(4):
    model = start((sufficient, 1.0), norm="post")
    bound = lambda_skip_bound(model, some, kept=KEPT, layer_norm=True)
    if bound.sufficient_beta.max() <= sufficient:
        break
    sufficient = float(bound.sufficient_beta.max())
# The theorem takes mu^2, so that half of mu is a quarter; sqrt(T) bounds the norm of a softmax.
S = max(np.linalg.norm(layer.W_V.detach().numpy(), 2) for layer in model.net_.module_.layers)
paper = lambda_skip(KEPT**2, float(S), math.sqrt(T))
# It also asks that the tokens of the input are far enough from each other, here for one layer.
relative = measure_conditioning(model, some).X.rank_collapse[0, 0] ** 2
with_input = lambda_skip(KEPT**2, float(S), math.sqrt(T), relative_spread=float(relative))
enough = next((b for b, share in zip(betas, shares, strict=True) if share >= KEPT), math.nan)
print(bound)
ax = axes[1, 0]
ax.plot([*betas, sufficient], [*shares, bound.kept_share.min()], "o-", color="C0")
ax.axhline(KEPT, color="0.6", lw=1, ls="--")
ax.axvline(sufficient, color="C1", label=f"sufficient for attention as it is: {sufficient:.1f}")
ax.axvline(paper, color="C3", ls=":", label=f"arXiv:2410.10609, condition on lambda: {paper:.1f}")
ax.axvline(with_input, color="C3", ls="--", label=f"and on the input: {with_input:.0f}")
ax.set(xscale="symlog", xlabel="beta", ylabel="spread kept by the worst layer and window")
ax.set(title="what beta keeps, and what it needs to be sure", ylim=(0, None))
ax.legend(fontsize="small")

# %%
# Where a trained model of three layers looks.
trained = ResidualTransformerRegressor(
    1.0, max_iter=EPOCHS, on_collapse="warn", **SETTINGS | {"n_layers": 3, "init": "depth_scaled"}
).fit(X, y)
display = AttentionDisplay.from_estimator(trained, X, reading="last", ax=axes[1, 1])
axes[1, 1].set(title="where the last hour of a trained model reads")
print(display.attention)
picture = save(fig, args, f"depth_{data}")

# %%
# What this run found.
collapse = {label: record.Z.rank_collapse[0, -1] for label, record in records.items()}
finish(
    args,
    picture,
    f"In layer {L} the tokens differ from their mean by {collapse['beta = 0']:.1e} of their norm "
    f"without residual and by {collapse['beta = 1']:.2f} with beta = 1. To keep half of their "
    f"spread in every layer beta = {enough:g} was enough, {sufficient:.1f} is sure to be, and the "
    f"theorem that knows norms only asks for {paper:.1f}, or {with_input:.0f} with its condition "
    "on the input.",
)
