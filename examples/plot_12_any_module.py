"""
12. The same diagnosis of any torch module: twelve layers, ours and torch's own
===============================================================================

What the other lessons show of this package's estimators can be asked of any torch module:
``module_conditioning(module, inputs)`` finds the attention blocks, watches what the forward adds to
their outputs, and returns the same result, layer by layer, before and after the residual. The
module is left as it was.

Here it is asked of stacks of twelve layers at the start of training, on windows of hourly weather:
ours with and without residual (beta = 1 and 0), without a norm and with one before or after each
part, and torch's own ``nn.TransformerEncoder`` with its two places of the norm.

``--help`` lists the options.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from _shared import beta_styles, command_line, finish, hourly_weather, save
from torch import nn

from sklearn_restrans import ResidualTransformerRegressor, SequenceView
from sklearn_restrans.conditioning import module_conditioning

args = command_line(
    "Twelve layers of our own and of torch's encoder, by the same function.",
    quick="fewer sequences",
).parse_args()

N_SEQUENCES, T, D, HEADS, LAYERS = (16 if args.quick else 128), 24, 32, 4, 12
BETAS = [0.0, 1.0]
NORMS = {None: "no norm", "pre": "norm before", "post": "norm after"}
TORCH = "torch's encoder"

frame, data, name = hourly_weather(args.data)
values = ((frame - frame.mean()) / frame.std()).to_numpy()
ends = np.linspace(T, len(values) - 2, N_SEQUENCES).astype(int)
windows, targets = np.asarray(SequenceView(values, ends, T)), values[ends + 1, 0]
f = windows.shape[2]


class TorchEncoder(nn.Module):
    """Linear embedding with positions, torch's encoder, and the mean over tokens.

    Shape: x (n, T, f); returns (n, d).
    """

    def __init__(self, norm):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            D, HEADS, 2 * D, batch_first=True, norm_first=norm == "pre"
        )
        self.embed = nn.Linear(f, D)
        self.positions = nn.Parameter(torch.randn(T, D) / D**0.5)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(self.embed(x) + self.positions).mean(1)


def our_stack(beta, norm):
    """The module of an estimator; the step is so small that its weights stay those of the start."""
    model = ResidualTransformerRegressor(
        beta,
        n_layers=LAYERS,
        d_model=D,
        n_heads=HEADS,
        d_ff=2 * D,
        norm=norm,
        readout="mean",
        positions="learned",
        early_stopping=False,
        conditioning_samples=4,
        max_iter=1,
        learning_rate_init=1e-12,
        random_state=0,
    )
    return model.fit(windows, targets).net_.module_


# %%
# One function for all of them.
results = {}
for norm in NORMS:
    for beta in BETAS:
        results[norm, f"ours, beta = {beta:g}"] = module_conditioning(
            our_stack(beta, norm), windows
        )
    if norm is not None:  # torch's encoder always has one, and beta = 1
        torch.manual_seed(0)
        # Copies of one layer: torch gives all layers the weights of the first.
        results[norm, TORCH] = module_conditioning(TorchEncoder(norm), windows)

table = pd.DataFrame(
    [
        {
            "norm": NORMS[norm],
            "stack": stack,
            "of": of,
            "collapse, layer 1": view.rank_collapse[0, 0],
            f"collapse, layer {LAYERS}": view.rank_collapse[0, -1],
            f"effective rank, layer {LAYERS}": view.effective_rank[0, -1],
        }
        for (norm, stack), result in results.items()
        for of, view in (("Attn", result.attention), ("Z", result.Z))
    ]
)
print(f"{name}, {N_SEQUENCES} windows of {T} hours, d = {D}; a collapse of 0 is rank one")
print(table.to_string(index=False, float_format="{:.2g}".format))

# %%
# Layer by layer: what is left of the differences between the tokens of a sequence, and how many
# directions the stacked tokens use.
layers = np.arange(1, LAYERS + 1)
fig, axes = plt.subplots(2, 3, figsize=(11, 7), sharex=True, sharey="row", layout="constrained")
stacks = [*(f"ours, beta = {beta:g}" for beta in BETAS), TORCH]
styles = dict(zip(stacks, beta_styles(range(3)).values(), strict=True))
for column, (norm, title) in zip(axes.T, NORMS.items(), strict=True):
    for stack, style in styles.items():
        if (norm, stack) not in results:
            continue
        result = results[norm, stack]
        for view, dashes in ((result.attention, ":"), (result.Z, "-")):
            label = stack if dashes == "-" else None
            # An exact 0 has no place on a logarithmic axis.
            left = np.maximum(view.rank_collapse[0], 1e-17)
            column[0].semilogy(layers, left, ls=dashes, label=label, **style)
            column[1].plot(layers, view.effective_rank[0], ls=dashes, **style)
    column[0].set(title=title)
    column[1].set(xlabel="layer (dotted: Attn, solid: Z)", ylim=(0, D))
    column[0].legend(fontsize="small")
axes[0, 0].set_ylabel("||Z - 1 z'|| / ||Z|| of a sequence")
axes[1, 0].set_ylabel("effective rank of the stacked tokens")
picture = save(fig, args, f"any_module_{data}")

# %%
# What this run found.
left = {key: result.get("rank_collapse") for key, result in results.items()}
with_residual = min(value for (_, stack), value in left.items() if stack != "ours, beta = 0")
without = {title: left[norm, "ours, beta = 0"] for norm, title in NORMS.items()}
sizes = ", ".join(f"{value:.1g} with {title}" for title, value in without.items())
finish(
    args,
    picture,
    f"Of the differences between tokens, layer {LAYERS} leaves without residual {sizes}; with it "
    f"at least {with_residual:.2g}, in our stacks and in torch's encoder alike.",
)
