"""Training time: against skorch, torch's own encoder, scikit-learn and LightGBM.

``python benchmarks/bench_fit.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from _common import (
    BATCH_SIZE,
    LEFT_OUT,
    N_CHANNELS,
    SkorchNet,
    StockEncoder,
    Target,
    choose,
    data_folder,
    exponent,
    flattened,
    forward,
    interleaved,
    jena_windows,
    light_gbm,
    make_series,
    make_windows,
    our_epochs,
    our_model,
    run,
    seconds,
    source_of,
    torch_model,
    windows_of,
)
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neural_network import MLPRegressor

from sklearn_restrans import SequenceView


@dataclass(frozen=True)
class Size:
    """Numbers of windows, rounds, lengths and widths of one run."""

    n_windows: int = 20_000
    rounds: int = 3
    tree_rounds: int = 3
    lengths: tuple = (24, 144)
    widths: tuple = (16, 32, 64)
    overhead_rounds: int = 15
    micro: tuple = (16, 32, 64, 128, 256, 512)
    n_micro: int = 4_096
    grow_windows: tuple = (10_000, 100_000, 1_000_000)
    grow_tokens: tuple = (24, 72, 216, 1_024)
    grow_tokens_mean: tuple = (24, 72, 216, 648)
    grow_width: tuple = (16, 32, 64, 128, 256)
    grow_layers: tuple = (1, 2, 4, 8, 12)
    n_grow: int = 5_000
    jena_rows: int | None = None
    jena_epochs: tuple = (1, 2, 3, 5, 10, 20)


SIZES = {
    "full": Size(),
    "quick": Size(
        n_windows=2_000,
        rounds=2,
        tree_rounds=1,
        widths=(64,),
        overhead_rounds=7,
        micro=(16, 64, 512),
        n_micro=1_024,
        grow_windows=(2_000, 20_000),
        grow_tokens=(24, 216),
        grow_tokens_mean=(24, 72),
        grow_width=(16, 64),
        grow_layers=(1, 3),
        n_grow=500,
        jena_rows=12_000,
        jena_epochs=(2, 10),
    ),
}


# ---- per epoch ---------------------------------------------------------------------------------


def rivals(view, y, d_model):
    """Every contender as a function that returns its seconds per epoch."""
    flat = flattened(view)
    skorch = SkorchNet(torch_model(view.window, d_model, readout="last"), view, y)
    encoder = SkorchNet(StockEncoder(N_CHANNELS, d_model), view, y)
    mlp = MLPRegressor(hidden_layer_sizes=(2 * d_model,), batch_size=BATCH_SIZE, random_state=0)
    mlp.partial_fit(flat[:256], y[:256])
    return {
        "ours": lambda: our_epochs(view, y, d_model=d_model),
        "skorch default": skorch.epoch,
        "skorch + nn.TransformerEncoder": encoder.epoch,
        "MLPRegressor": lambda: seconds(mlp.partial_fit, flat, y),
    }


def epochs(size):
    """Seconds per epoch of every contender, and the two headline ratios."""
    rows, targets = [], []
    for T in size.lengths:
        view, y = make_windows(size.n_windows, T)
        for d in size.widths:
            times = interleaved(rivals(view, y, d), size.rounds)
            names = list(times)
            ratios = {f"{name} / ours": times[name] / times["ours"] for name in names[1:3]}
            rows.append({"T": T, "d": d} | times | ratios)
            where = f"per epoch at T = {T}, d = {d}, last token"
            bounds = {(24, 64): (8, 18), (144, 64): (25, None)}.get((T, d), (None, None))
            for (name, ratio), bound in zip(ratios.items(), bounds, strict=True):
                if bound is not None:
                    targets.append(Target(f"{name} {where}", ratio, bound))
    return rows, targets


def whole_fits(size):
    """Seconds of whole fits with each library's default settings; trees take flattened windows."""
    rows = []
    for T in size.lengths:
        view, y = make_windows(size.n_windows, T)
        flat = flattened(view)
        models = {
            "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
            "LightGBM": light_gbm(),
        }
        contenders = {"ours": lambda view=view, y=y: seconds(our_model(batch_size=64).fit, view, y)}
        for name, model in models.items():
            contenders[name] = lambda model=model, flat=flat, y=y: seconds(model.fit, flat, y)
        rows.append({"T": T} | interleaved(contenders, size.tree_rounds))
    return rows, []


def readouts(size):
    """Seconds per epoch of models that need every token of a layer: mean read-out, two layers."""
    T, d = size.lengths[0], size.widths[-1]
    view, y = make_windows(size.n_windows, T)
    rows, targets = [], []
    cases = {"mean read-out": (dict(readout="mean"), 1.4), "two layers": (dict(n_layers=2), 1.8)}
    for name, (options, bound) in cases.items():
        options = {"readout": "last"} | options
        skorch = SkorchNet(torch_model(T, d, **options), view, y)
        contenders = {
            "ours": lambda options=options: our_epochs(view, y, 1, d_model=d, **options),
            "skorch default": skorch.epoch,
        }
        times = interleaved(contenders, size.rounds)
        ratio = times["skorch default"] / times["ours"]
        rows.append({"model": name, "T": T, "d": d} | times | {"ratio": ratio})
        claim = f"skorch default / ours per epoch at T = {T}, d = {d}, {name}"
        targets.append(Target(claim, ratio, bound))
    return rows, targets


# ---- against a bare loop ------------------------------------------------------------------------


class BareLoop:
    """A training loop as one writes it by hand, with the same algebra: no skorch, no estimator.

    With ``micro`` the gradient of a batch is accumulated over passes of ``micro`` windows.
    """

    def __init__(self, view, y, batch_size=BATCH_SIZE, micro=None, **options):
        self.windows, self.y = source_of(view).windows, torch.from_numpy(y[:, None])
        self.module = torch_model(view.window, n_features=view.shape[2], **options)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3, fused=True)
        self.batch_size, self.micro = batch_size, micro or batch_size

    def epoch(self):
        started, n = time.perf_counter(), len(self.windows) - 1
        order, total = torch.randperm(n), 0.0
        for start in range(0, n, self.batch_size):
            rows = order[start : start + self.batch_size]
            self.optimizer.zero_grad()
            for part in rows.split(self.micro):
                output = forward(self.module, self.windows.index_select(0, part))
                loss = (output - self.y.index_select(0, part)).square().sum() / len(rows)
                loss.backward()
                total += loss.detach()
            self.optimizer.step()
        float(total)
        return time.perf_counter() - started


def overhead(size):
    """Seconds per epoch of the estimator's loop and of a bare one."""
    rows, targets = [], []
    cases = [(24, 16, N_CHANNELS, 1.10), (24, 64, N_CHANNELS, 1.03), (4, 4, 1, 1.5)]
    for T, d, f, bound in cases:
        view, y = make_windows(size.n_windows, T, f)
        bare = BareLoop(view, y, d_model=d, readout="last")
        bare.epoch()
        contenders = {
            "ours": lambda view=view, y=y, d=d: our_epochs(view, y, 1, d_model=d),
            "bare loop": bare.epoch,
        }
        times = interleaved(contenders, size.overhead_rounds)
        ratio = times["ours"] / times["bare loop"]
        rows.append({"T": T, "d": d, "channels": f} | times | {"ratio": ratio})
        claim = f"ours / bare torch loop, T = {T}, d = {d}, {f} channels, batch {BATCH_SIZE}"
        targets.append(Target(claim, ratio, bound, at_least=False))
    return rows, targets


def micro_batches(size):
    """Microseconds per window when the gradient of 512 is accumulated over smaller passes."""
    rows, d = [], size.widths[-1]
    for readout, T in product(("last", "mean"), size.lengths):
        view, y = make_windows(size.n_micro, T)
        loops = {
            f"{micro} a pass": BareLoop(view, y, 512, micro, d_model=d, readout=readout).epoch
            for micro in size.micro
        }
        loops["ours"] = lambda view=view, y=y, d=d, readout=readout: our_epochs(
            view, y, 1, d_model=d, readout=readout, batch_size=512
        )
        times = interleaved(loops, size.rounds)
        per_window = {name: 1e6 * value / size.n_micro for name, value in times.items()}
        rows.append({"read-out": readout, "T": T, "d": d} | per_window)
    return rows, []


# ---- growth -------------------------------------------------------------------------------------


def growth(size):
    """Seconds per epoch as one size grows at a time, and the measured exponent."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        views = [_mapped_windows(Path(folder), n) for n in size.grow_windows]
        times = [min(our_epochs(*pair, 1, d_model=32)) for pair in views]
        rows.append(_growth("N (memory-mapped), T = 24, d = 32", size.grow_windows, times))
        del views
    n = size.n_grow
    for readout in ("last", "mean"):
        lengths = size.grow_tokens if readout == "last" else size.grow_tokens_mean
        count = n if readout == "last" else n // 10
        times = [_epoch(make_windows(count, T), d_model=32, readout=readout) for T in lengths]
        rows.append(_growth(f"T, {readout}, d = 32, N = {count:,}", lengths, times))
    pair = make_windows(n, 24)
    times = [_epoch(pair, d_model=d) for d in size.grow_width]
    rows.append(_growth(f"d, last, T = 24, N = {n:,}", size.grow_width, times))
    times = [_epoch(pair, d_model=32, n_layers=layers) for layers in size.grow_layers]
    rows.append(_growth(f"L, last, T = 24, d = 32, N = {n:,}", size.grow_layers, times))
    return rows, []


def _epoch(pair, **settings):
    return min(our_epochs(*pair, 2, **settings))


def _growth(name, sizes, times):
    return {
        "grows": name,
        "values": ", ".join(f"{value:,}" for value in sizes),
        "seconds per epoch": ", ".join(f"{value:.3g}" for value in times),
        "exponent": exponent(sizes, times),
        "of the last two": exponent(sizes[-2:], times[-2:]),
    }


def _mapped_windows(folder, n_windows, n_tokens=24):
    file = folder / f"{n_windows}.f32"
    series = make_series(n_windows + n_tokens)
    series.tofile(file)
    view, y = windows_of(series, n_tokens)
    mapped = np.memmap(file, np.float32, "r", shape=series.shape)
    return SequenceView(mapped, view.ends, n_tokens), y


# ---- real data, whole fits ----------------------------------------------------------------------


def jena(size):
    """Whole fits on Jena weather: air temperature in 24 hours from the last 24."""
    if data_folder() is None:
        return LEFT_OUT
    X, y = jena_windows(size.jena_rows, 24)
    cut = int(0.8 * len(X))
    # Windows and targets of the held-out part begin after the last training target.
    train, test = np.arange(cut - 48), np.arange(cut, len(X))
    flat, lightgbm = flattened(X), light_gbm()

    def error(model, inputs):
        return float(np.sqrt(np.mean((model.predict(inputs[test]) - y[test]) ** 2)))

    base_time = interleaved(
        {"": lambda: seconds(lightgbm.fit, flat[train], y[train])}, size.rounds
    )[""]
    goal = error(lightgbm, flat)
    rows = [_fit_row("LightGBM, 100 trees", base_time, goal, base_time, goal)]
    for batch in (64, 256):
        for n_epochs in size.jena_epochs:
            model = our_model(max_iter=n_epochs, batch_size=batch)
            took = seconds(model.fit, X[train], y[train])
            name = f"ours, batch {batch}, {n_epochs} epochs"
            rows.append(_fit_row(name, took, error(model, X), base_time, goal))
    reached = [row for row in rows[1:] if row["held-out RMSE (K)"] <= goal]
    if not reached:
        return rows, [
            Target(
                "ours / LightGBM: held-out RMSE of the best fit",
                min(row["held-out RMSE (K)"] for row in rows[1:]) / goal,
                1.0,
                at_least=False,
            )
        ]
    best = min(row["time / LightGBM"] for row in reached)
    claim = "ours / LightGBM: whole fit to LightGBM's held-out RMSE (stretch goal)"
    return rows, [Target(claim, best, 1.0, at_least=False)]


def _fit_row(name, took, error, base_time, goal):
    return {
        "model": name,
        "seconds": took,
        "held-out RMSE (K)": error,
        "time / LightGBM": took / base_time,
        "reached": "yes" if error <= goal else "no",
    }


def bfloat16(size):
    """Seconds per epoch with products in bfloat16 and in float32."""
    rows, d = [], size.widths[-1]
    for T in size.lengths:
        view, y = make_windows(size.n_windows // 4, T)
        for readout in ("last", "mean"):
            contenders = {
                dtype: lambda view=view, y=y, readout=readout, dtype=dtype: our_epochs(
                    view, y, 1, d_model=d, readout=readout, dtype=dtype
                )
                for dtype in ("float32", "bfloat16")
            }
            times = interleaved(contenders, size.rounds)
            route = choose(torch_model(T, d, readout=readout).arch)
            ratio = times["float32"] / times["bfloat16"]
            rows.append({"T": T, "d": d, "route": route} | times | {"gain": ratio})
    return rows, []


SECTIONS = {
    "epochs": epochs,
    "whole fits": whole_fits,
    "readouts": readouts,
    "overhead": overhead,
    "micro-batches": micro_batches,
    "growth": growth,
    "jena": jena,
    "bfloat16": bfloat16,
}


def main(argv=None, sizes=SIZES):
    return run("bench_fit", "Training time against other libraries.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
