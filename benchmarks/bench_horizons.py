"""Long horizons on all seven channels of ETTh1: against ridge, DLinear and PatchTST.

``python benchmarks/bench_horizons.py [--quick] [--only TABLE ...]``

The usual protocol: 336 hours of history, 96 to 720 ahead, months 12/4/4, values standardised by the
training part, mean squared and mean absolute error over every channel, horizon and test window.
Ours: patches of 24 hours, windows relative to their last value or standardised, each channel a
sample, absolute error, ten epochs in batches of 256, all else a default; the epoch is the best one
of the validation part, as that of DLinear and PatchTST is. Which of our forecasts counts is chosen
on the validation part, for every horizon by itself ("chosen"); the test part is printed and nothing
is chosen on it. Batches, epochs, patches, read-outs and a ridge first were tried on the validation
part at 96, 336 and 720.
"""

import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from _common import LEFT_OUT, Target, data_folder, run, seconds
from bench_etth1 import MONTH, errors, parts
from torch import nn

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.forecasting import RidgeForecaster, SeasonalNaiveRegressor

COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
FORMS = {
    "last": {"patch": 24, "relative": "last"},
    "standard": {"patch": 24, "relative": "standard"},
}
# Mean squared and absolute errors of the papers, at a history of 336.
PUBLISHED = {
    "DLinear": {96: (0.375, 0.399), 192: (0.405, 0.416), 336: (0.439, 0.443), 720: (0.472, 0.490)},
    "PatchTST/42": {
        96: (0.375, 0.399),
        192: (0.414, 0.421),
        336: (0.431, 0.436),
        720: (0.449, 0.466),
    },
}


@dataclass(frozen=True)
class Size:
    """Hours of a month, of the history and ahead; seeds, epochs, and steps of the others."""

    month: int = MONTH
    history: int = 336
    horizons: tuple[int, ...] = (96, 192, 336, 720)
    n_seeds: int = 3
    max_iter: int = 10
    linear_epochs: int = 10
    steps: int = 600


SIZES = {
    "full": Size(),
    "quick": Size(n_seeds=1, max_iter=1, linear_epochs=1, steps=4),
}


class DLinear(nn.Module):
    """Zeng et al. (arXiv:2205.13504): a line from the moving mean, another from the rest."""

    def __init__(self, history, horizon, width=25):
        super().__init__()
        self.mean = nn.AvgPool1d(width, stride=1)
        self.ends = width // 2
        self.trend, self.rest = nn.Linear(history, horizon), nn.Linear(history, horizon)

    def forward(self, x):
        first, last = x[:, :1], x[:, -1:]
        padded = torch.cat([first.repeat(1, self.ends), x, last.repeat(1, self.ends)], dim=1)
        trend = self.mean(padded[:, None])[:, 0]
        return self.trend(trend) + self.rest(x - trend)


class PatchTST(nn.Module):
    """transformers' PatchTST in the size that its authors take for this data."""

    def __init__(self, history, horizon):
        from transformers import PatchTSTConfig, PatchTSTForPrediction

        super().__init__()
        config = PatchTSTConfig(
            num_input_channels=1,
            context_length=history,
            prediction_length=horizon,
            patch_length=16,
            patch_stride=8,
            d_model=16,
            num_attention_heads=4,
            num_hidden_layers=3,
            ffn_dim=128,
            attention_dropout=0.3,
            ff_dropout=0.3,
            head_dropout=0.3,
            pooling_type=None,  # the patches side by side, not their mean
            scaling="std",
            loss="mse",
        )
        self.model = PatchTSTForPrediction(config)

    def forward(self, x):
        return self.model(past_values=x[..., None]).prediction_outputs[..., 0]


def trained(model, data, n_steps, every, batch_size, step):
    """Adam on the mean squared error with a cosine schedule; the weights best on validation."""
    (x, y), (x_val, y_val) = data
    optimizer = torch.optim.Adam(model.parameters(), lr=step)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
    generator = torch.Generator().manual_seed(0)
    best, kept, order = np.inf, None, torch.zeros(0, dtype=torch.long)
    for k in range(n_steps):
        if len(order) < batch_size:
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:batch_size], order[batch_size:]
        model.train()
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (k + 1) % every == 0 or k + 1 == n_steps:
            error = float(np.mean((forecast(model, x_val) - y_val.numpy()) ** 2))
            if error < best:
                best = error
                kept = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(kept)


@torch.no_grad()
def forecast(model, x):
    model.eval()
    return np.concatenate([model(part).numpy() for part in x.split(1024)])


def by_channel(X, y, rows, horizon):
    """Windows (m, history) and targets (m, horizon) of every channel, as float32 tensors."""
    series = np.asarray(X.series, dtype=np.float32)
    places = X.ends[rows][:, None] - np.arange(X.window)[::-1]
    windows = series[places].swapaxes(1, 2).reshape(-1, X.window)
    targets = y[rows].astype(np.float32).reshape(-1, horizon)
    return torch.from_numpy(np.ascontiguousarray(windows)), torch.from_numpy(targets)


def yardsticks(size, horizon):
    """Forecasts of the validation and the test part, and seconds, of the others, by name.

    Batches of 224 are 32 windows of seven channels. PatchTST's step is the better one of 1e-3 and
    3e-3 on the validation part, 96 ahead, after 200 steps (0.691, 0.669).
    """
    ahead = range(1, horizon + 1)
    form = {"relative": "last", "channel_independent": True}
    X, y, (train, *later) = parts(size, ahead, form, COLUMNS)
    naive = SeasonalNaiveRegressor(list(COLUMNS), period=24, horizon=ahead)
    found = {}
    for name, model in {"last day": naive, "ridge": RidgeForecaster(alpha=1000.0)}.items():
        took = seconds(model.fit, X[train], y[train])
        found[name] = [model.predict(X[part]) for part in later], took
    data = [by_channel(X, y, part, horizon) for part in (train, later[0])]
    last = by_channel(X, y, later[1], horizon)[0]
    per_epoch = -(-len(data[0][0]) // 224)
    for name, kind, how in (
        ("DLinear", DLinear, (size.linear_epochs * per_epoch, per_epoch, 224, 1e-3)),
        ("PatchTST", PatchTST, (size.steps, 100, 224, 3e-3)),
    ):
        torch.manual_seed(0)
        model = kind(size.history, horizon)
        took = seconds(trained, model, data, *how)
        wide = [forecast(model, x).reshape(-1, y.shape[1]) for x in (data[1][0], last)]
        found[name] = wide, took
    return found, [y[part] for part in later]


def ours(size, horizon, form):
    """The same of every seed."""
    form = form | {"channel_independent": True}
    X, y, (train, valid, test) = parts(size, range(1, horizon + 1), form, COLUMNS)
    fits = []
    for seed in range(size.n_seeds):
        model = ResidualTransformerRegressor(
            loss="absolute_error",
            batch_size=256,
            max_iter=size.max_iter,
            random_state=seed,
            device="cpu",
        )
        told = {"X_val": X[valid], "y_val": y[valid]}
        took = seconds(model.fit, X[train], y[train], **told)
        fits.append(([model.predict(X[part]) for part in (valid, test)], took))
    return fits


def at_horizon(size, place):
    """Errors of every forecast at one horizon; ours is chosen on the validation part."""
    if data_folder() is None:
        return LEFT_OUT
    horizon = size.horizons[place]
    others, truth = yardsticks(size, horizon)
    own = {}
    for name, form in FORMS.items():
        fits = ours(size, horizon, form)
        own[f"ours, {name}, one fit"] = fits
        whole = sum(took for _, took in fits)
        mean = [np.mean(part, axis=0) for part in zip(*[f for f, _ in fits], strict=True)]
        own[f"ours, {name}, mean of fits"] = [(mean, whole)]
        both, took = others["ridge"]
        with_ridge = [(a + b) / 2 for a, b in zip(mean, both, strict=True)]
        own[f"ours, {name}, mean of fits and ridge"] = [(with_ridge, whole + took)]
    table = [_row(horizon, name, [fit], truth) for name, fit in others.items()]
    mine = [_row(horizon, name, fits, truth) for name, fits in own.items()]
    best = min(mine, key=lambda row: row["validation MSE"])
    best["chosen"] = "*"
    targets = [
        Target(f"{horizon} hours: MSE of {row['forecast']} / ours", row["MSE"] / best["MSE"], 1.0)
        for row in table[1:]
    ]
    ratio = table[-1]["fit, s"] / mine[0]["fit, s"]
    targets.append(Target(f"{horizon} hours: seconds of PatchTST / ours, one fit", ratio, 10.0))
    return [*table, *mine], targets


def _row(horizon, name, fits, truth):
    """Means over fits of errors and seconds."""
    found = [[errors(part, true) for part, true in zip(f, truth, strict=True)] for f, _ in fits]
    valid, test = np.mean(found, axis=0)
    base = name.split(",")[0]
    label = {"DLinear": "DLinear", "PatchTST": "PatchTST/42"}.get(base)
    published = PUBLISHED[label].get(horizon, ("", ""))[0] if label else ""
    return {
        "ahead": horizon,
        "forecast": name,
        "validation MSE": float(valid[0]),
        "MSE": float(test[0]),
        "MAE": float(test[1]),
        "sd of MSE": float(np.std([f[1][0] for f in found])),
        "fit, s": float(np.median([took for _, took in fits])),
        "published MSE": published,
        "chosen": "",
    }


SECTIONS = {
    f"{horizon} hours": partial(at_horizon, place=place)
    for place, horizon in enumerate(Size.horizons)
}


def main(argv=None, sizes=SIZES):
    return run("bench_horizons", __doc__.splitlines()[0], SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
