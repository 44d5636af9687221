"""What the diagnostics cost: the time of one record of the conditioning, beside one epoch.

``python benchmarks/bench_conditioning.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import statistics
import sys
import time
from dataclasses import dataclass

from _common import Target, choose, interleaved, make_windows, our_model, run, torch_model
from skorch.callbacks import Callback


@dataclass(frozen=True)
class Size:
    """Numbers of windows, rounds, epochs and probe sequences of one run."""

    n_windows: int = 20_000
    rounds: int = 3
    n_epochs: int = 4
    cases: tuple = (
        *((readout, T, d) for readout in ("last", "mean") for T in (24, 144) for d in (16, 64)),
    )
    samples: tuple = (16, 64, 256)


SIZES = {
    "full": Size(),
    "quick": Size(
        rounds=1,
        n_epochs=2,
        cases=(("last", 24, 64), ("mean", 24, 64)),
        samples=(16, 64),
    ),
}


class Gaps(Callback):
    """Seconds between the end of an epoch and the start of the next: the record is made there."""

    def on_train_begin(self, net, **_):
        self.seconds_, self.ended_ = [], None

    def on_epoch_begin(self, net, **_):
        if self.ended_ is not None:
            self.seconds_.append(time.perf_counter() - self.ended_)

    def on_epoch_end(self, net, **_):
        self.ended_ = time.perf_counter()


def measure(view, y, n_epochs, **settings):
    """(seconds of an epoch, seconds of one record) of one fit that records after every epoch."""
    gaps = Gaps()
    model = our_model(
        max_iter=1 + n_epochs, conditioning_interval=1, callbacks=[gaps], **settings
    ).fit(view, y)
    return statistics.median(model.history_["dur"].tolist()[1:]), statistics.median(gaps.seconds_)


def diagnostics(size):
    """One record at the default probe size, as a share of an epoch."""
    rows, targets = [], []
    for readout, T, d in size.cases:
        view, y = make_windows(size.n_windows, T)
        route = choose(torch_model(T, d, readout=readout).arch)
        pairs = [
            measure(view, y, size.n_epochs, d_model=d, readout=readout) for _ in range(size.rounds)
        ]
        epoch, record = (statistics.median(values) for values in zip(*pairs, strict=True))
        share = record / epoch
        rows.append(
            {
                "route": route,
                "T": T,
                "d": d,
                "epoch": epoch,
                "one record": record,
                "share of an epoch (%)": 100 * share,
            }
        )
        bound = 0.10 if route == "folded" else 0.02
        claim = f"one record / epoch of {size.n_windows:,} windows, {readout}, T = {T}, d = {d}"
        targets.append(Target(claim, share, bound, at_least=False))
    return rows, targets


def probe_sizes(size):
    """Seconds of one record against the number of probe sequences."""
    rows = []
    for T in (24, 144):
        view, y = make_windows(max(size.samples), T)
        contenders = {
            f"{n} sequences": lambda view=view, y=y, n=n: measure(
                view, y, 2, d_model=64, conditioning_samples=n
            )[1]
            for n in size.samples
        }
        rows.append({"T": T, "d": 64} | interleaved(contenders, size.rounds))
    return rows, []


SECTIONS = {"diagnostics": diagnostics, "probe sizes": probe_sizes}


def main(argv=None, sizes=SIZES):
    return run("bench_conditioning", "Cost of the diagnostics.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
