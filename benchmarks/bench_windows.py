"""Windows without copies: time per batch and peak memory.

``python benchmarks/bench_windows.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from _common import (
    BATCH_SIZE,
    MB,
    N_CHANNELS,
    DenseSource,
    Target,
    forget_peak,
    grown_megabytes,
    interleaved,
    make_series,
    make_windows,
    our_model,
    peak_bytes,
    run,
    seconds,
    source_of,
)

from sklearn_restrans import SequenceView

_BATCH = 64  # relative windows in a batch


@dataclass(frozen=True)
class Size:
    """Numbers of windows, batches and rounds of one run."""

    n_windows: int = 100_000
    n_batches: int = 200
    rounds: int = 15
    lengths: tuple = (24, 144)
    memory: tuple = ((420_000, 144),)
    relative: tuple = ((336, 7, 24), (336, 1, 24), (48, 7, 1))  # rows, columns, patch
    n_relative: int = 2_000
    n_epochs: int = 4
    relative_rounds: int = 7


SIZES = {
    "full": Size(),
    "quick": Size(
        n_windows=10_000, n_batches=50, rounds=5, memory=((42_000, 144),), relative_rounds=3
    ),
}


def batches(size):
    """Microseconds to fetch one shuffled batch, from a strided view and from a copy."""
    rows, targets = [], []
    for T in size.lengths:
        view, _ = make_windows(size.n_windows, T)
        strided = source_of(view)
        index = torch.as_tensor(view.ends[:, None] - strided.offsets[:, 0])
        copied = DenseSource(strided.series[index].contiguous())
        rng = np.random.default_rng(0)
        orders = [rng.integers(0, len(view), BATCH_SIZE) for _ in range(size.n_batches)]
        contenders = {
            "strided view": lambda source=strided, orders=orders: _fetch(source.take, orders),
            "materialised copy": lambda source=copied, orders=orders: _fetch(source.take, orders),
            "fancy index": lambda series=strided.series, index=index, orders=orders: _fetch(
                lambda rows: series[index[torch.as_tensor(rows)]], orders
            ),
        }
        times = {name: 1e6 * value for name, value in interleaved(contenders, size.rounds).items()}
        held = {
            "series (MB)": strided.series.nbytes / MB,
            "copy (MB)": copied.x.nbytes / MB,
        }
        rows.append({"T": T, "windows": len(view), "batch": BATCH_SIZE} | times | held)
        claim = f"strided view / materialised copy, time per batch, T = {T}"
        ratio = times["strided view"] / times["materialised copy"]
        targets.append(Target(claim, ratio, 1.0, at_least=False))
    return rows, targets


def _fetch(take, orders):
    return seconds(lambda: [take(order) for order in orders]) / len(orders)


def relative(size):
    """Relative windows against the same tensors, made by hand beforehand: batches, epochs, fits.

    By hand means a 3-D array of which the level is taken off, and targets of which it is too.
    """
    rows, targets = [], []
    for n_rows, n_channels, patch in size.relative:
        for kind in ("last", "standard"):
            view, y, X, z = _walks(size.n_relative, n_rows, n_channels, patch, kind)
            case = f"relative={kind!r}, {n_rows} x {n_channels}, patch {patch}"
            times = _batch_times(view, X, size) | _fit_times(
                {"": (view, y), "by hand": (X, z)}, size
            )
            shape = {"T": n_rows, "columns": n_channels, "patch": patch, "relative": kind}
            rows.append(shape | times)
            for part in ("epoch", "fit"):
                ratio = times[part] / times[f"{part}, by hand"]
                claim = f"{part} / {part} of the same tensors, {case}"
                targets.append(Target(claim, ratio, 1.1, at_least=False))
    return rows, targets


def _walks(n_windows, n_rows, n_channels, patch, kind):
    """Windows of random walks with their next value, and both relative, made by hand."""
    series = np.cumsum(make_series(n_windows + n_rows, n_channels), axis=0)
    ends = np.arange(n_rows - 1, len(series) - 1)
    y = series[ends + 1, 0]
    view = SequenceView(series, ends, n_rows, patch=patch, relative=kind, target_columns=0)
    X = np.asarray(SequenceView(series, ends, n_rows))
    level, size = X[:, -1:], np.float32(1)
    if kind == "standard":
        level, size = X.mean(axis=1, keepdims=True), X.std(axis=1, keepdims=True)
    X, z = (X - level) / size, y - level[:, 0, 0]
    if kind == "standard":
        z = z / size[:, 0, 0]
    return view, y, X.reshape(view.shape), z


def _batch_times(view, X, size):
    """Microseconds to fetch one shuffled batch of `_BATCH` windows."""
    rng = np.random.default_rng(0)
    orders = [rng.integers(0, len(view), _BATCH) for _ in range(size.n_batches)]
    sources = {
        "batch (us)": source_of(view),
        "batch, by hand (us)": DenseSource(torch.from_numpy(X)),
    }
    contenders = {
        name: lambda source=source: _fetch(source.take, orders) for name, source in sources.items()
    }
    return {name: 1e6 * value for name, value in interleaved(contenders, size.rounds).items()}


def _fit_times(data, size):
    """Seconds of an epoch after the first, and of a whole fit with its beginning."""
    epochs = {name: [] for name in data}

    def fit(name):
        model = our_model(max_iter=size.n_epochs, batch_size=_BATCH)
        total = seconds(model.fit, *data[name])
        epochs[name] += model.history_["dur"].tolist()[1:]
        return total

    fits = interleaved({name: partial(fit, name) for name in data}, size.relative_rounds)
    times = {"epoch": {name: np.median(values) for name, values in epochs.items()}, "fit": fits}
    return {
        f"{part}, {name}" if name else part: float(value)
        for part, of_part in times.items()
        for name, value in of_part.items()
    }


def memory(size):
    """Extra peak memory of one epoch on a memory-mapped series, in a process of its own."""
    rows, targets = [], []
    for n_windows, T in size.memory:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "series.f32"
            make_series(n_windows + T).tofile(file)
            series = file.stat().st_size / MB
            peak = grown_megabytes(__file__, file, T)
        rows.append(
            {
                "windows": n_windows,
                "T": T,
                "series (MB)": series,
                "windows as a copy (MB)": 4 * n_windows * T * N_CHANNELS / MB,
                "extra peak of fit (MB)": peak,
                "beyond the series (MB)": peak - series,
            }
        )
        claim = f"MB beyond the series, fit on {n_windows:,} windows of {T} x {N_CHANNELS}"
        targets.append(Target(claim, peak - series, 60, at_least=False))
    return rows, targets


def child(file, n_tokens):
    """Fit on a memory-mapped file and print by how many bytes this process's peak memory grew."""
    torch.set_num_threads(1)
    small, y = make_windows(1_000, n_tokens)
    our_model(max_iter=1).fit(small, y)  # loads the code and fills the buffers
    mapped = np.memmap(file, np.float32, "r").reshape(-1, N_CHANNELS)
    ends = np.arange(n_tokens - 1, len(mapped) - 1)
    forget_peak()
    before = peak_bytes()
    # The targets are read here, because reading them makes pages of the file resident.
    our_model(max_iter=1).fit(SequenceView(mapped, ends, n_tokens), mapped[ends + 1, 0])
    print(peak_bytes() - before)


SECTIONS = {"batches": batches, "relative": relative, "memory": memory}


def main(argv=None, sizes=SIZES):
    return run("bench_windows", "Time and memory of windows.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
