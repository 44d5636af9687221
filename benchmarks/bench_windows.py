"""Windows without copies: time per batch and peak memory.

``python benchmarks/bench_windows.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
import tempfile
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Size:
    """Numbers of windows, batches and rounds of one run."""

    n_windows: int = 100_000
    n_batches: int = 200
    rounds: int = 15
    lengths: tuple = (24, 144)
    memory: tuple = ((420_000, 144),)


SIZES = {
    "full": Size(),
    "quick": Size(n_windows=10_000, n_batches=50, rounds=5, memory=((42_000, 144),)),
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


SECTIONS = {"batches": batches, "memory": memory}


def main(argv=None, sizes=SIZES):
    return run("bench_windows", "Time and memory of windows.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
