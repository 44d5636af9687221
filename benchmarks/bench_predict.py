"""Prediction time: against skorch on the same model, by chunk size, and for one row.

``python benchmarks/bench_predict.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from _common import (
    N_CHANNELS,
    SkorchNet,
    StockEncoder,
    Target,
    choose,
    flattened,
    forward,
    interleaved,
    make_windows,
    our_model,
    run,
    seconds,
    source_of,
    torch_model,
)
from sklearn.neural_network import MLPRegressor


@dataclass(frozen=True)
class Size:
    """Numbers of windows, rounds and chunks of one run."""

    n_windows: int = 20_000
    rounds: int = 5
    lengths: tuple = (24, 144)
    widths: tuple = (16, 32, 64)
    n_chunked: int = 4_096
    chunks: tuple = (32, 64, 128, 256, 512)
    single_rounds: int = 200


SIZES = {
    "full": Size(),
    "quick": Size(
        n_windows=2_000,
        rounds=2,
        widths=(64,),
        n_chunked=1_024,
        chunks=(32, 64, 512),
        single_rounds=20,
    ),
}


def against_skorch(size):
    """Seconds to predict all windows. Every contender gets them in the form that its users have."""
    rows, targets = [], []
    for T in size.lengths:
        view, y = make_windows(size.n_windows, T)
        few = view[:256]
        flat = flattened(view)
        for d in size.widths:
            ours = our_model(d_model=d, max_iter=1).fit(few, y[:256])
            mlp = MLPRegressor(hidden_layer_sizes=(2 * d,)).partial_fit(flat[:256], y[:256])
            skorch = SkorchNet(torch_model(T, d, readout="last"), view, y)
            encoder = SkorchNet(StockEncoder(N_CHANNELS, d), view, y)
            contenders = {
                "ours": lambda ours=ours, view=view: seconds(ours.predict, view),
                "skorch default": lambda skorch=skorch: seconds(skorch.predict),
                "skorch + nn.TransformerEncoder": lambda encoder=encoder: seconds(encoder.predict),
                "MLPRegressor": lambda mlp=mlp, flat=flat: seconds(mlp.predict, flat),
            }
            times = interleaved(contenders, size.rounds)
            ratio = times["skorch default"] / times["ours"]
            rows.append({"T": T, "d": d} | times | {"skorch default / ours": ratio})
            if d == 64:
                claim = f"skorch default / ours, predict at T = {T}, d = {d}, last token"
                targets.append(Target(claim, ratio, 10))
    return rows, targets


def chunk_sizes(size):
    """Microseconds per window of the forward pass alone, in chunks and all at once."""
    rows, d = [], size.widths[-1]
    for readout, T in product(("last", "mean"), size.lengths):
        view, _ = make_windows(size.n_chunked, T)
        source = source_of(view)
        module = torch_model(T, d, readout=readout).eval()
        contenders = {
            f"{chunk} a chunk": lambda s=source, m=module, chunk=chunk: _forward_all(s, m, chunk)
            for chunk in size.chunks
        }
        contenders["all at once"] = lambda s=source, m=module: _forward_all(s, m, len(s))
        times = interleaved(contenders, size.rounds)
        per_window = {name: 1e6 * value / size.n_chunked for name, value in times.items()}
        rows.append({"route": choose(module.arch), "T": T, "d": d} | per_window)
    return rows, []


def _forward_all(source, module, chunk):
    rows, module = np.arange(len(source)), module.evenly()
    with torch.inference_mode():
        return seconds(
            lambda: [
                forward(module, *source.take(rows[start : start + chunk]))
                for start in range(0, len(rows), chunk)
            ]
        )


def one_row(size):
    """Milliseconds of predict for a single window, as in an online service."""
    rows = []
    for readout in ("last", "mean"):
        view, y = make_windows(256, 24)
        model = our_model(d_model=64, max_iter=1, readout=readout).fit(view, y)
        skorch = SkorchNet(torch_model(24, 64, readout=readout), view, y)
        one = np.asarray(view[:1])
        contenders = {
            "ours": lambda model=model, one=one: seconds(model.predict, one),
            "skorch default": lambda skorch=skorch, one=one: seconds(skorch.net.predict, one),
        }
        times = interleaved(contenders, size.single_rounds)
        rows.append({"read-out (T = 24, d = 64)": readout} | {k: 1e3 * v for k, v in times.items()})
    return rows, []


SECTIONS = {
    "against skorch": against_skorch,
    "chunk sizes": chunk_sizes,
    "one row": one_row,
}


def main(argv=None, sizes=SIZES):
    return run("bench_predict", "Prediction time against skorch.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
