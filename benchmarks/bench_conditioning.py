"""What the diagnostics cost: one record beside one epoch, and that of any torch module.

``python benchmarks/bench_conditioning.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from _common import (
    Target,
    choose,
    forget_peak,
    grown_megabytes,
    interleaved,
    make_windows,
    our_model,
    peak_bytes,
    run,
    seconds,
    torch_model,
)
from skorch.callbacks import Callback
from torch import nn

from sklearn_restrans.conditioning import module_conditioning


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
    n_sequences: int = 1_000
    module_layers: int = 4
    module_cases: tuple = ((24, 64), (144, 64))
    memory: tuple = (1_000, 4_000)


SIZES = {
    "full": Size(),
    "quick": Size(
        rounds=1,
        n_epochs=2,
        cases=(("last", 24, 64), ("mean", 24, 64)),
        samples=(16, 64),
        n_sequences=200,
        module_cases=((24, 64),),
        memory=(300, 1_200),
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


class Encoder(nn.Module):
    """Linear embedding and torch's own encoder, whose layers have a norm after each part.

    Shape: x (n, T, f); returns (n, T, d).
    """

    def __init__(self, n_features, d_model, n_layers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(d_model, 4, 2 * d_model, dropout=0.0, batch_first=True)
        self.embed = nn.Linear(n_features, d_model)
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(self.embed(x))


def plain_forward(module, x, batch=128):
    """Prediction as a user would run it."""
    with torch.inference_mode():
        for part in x.split(batch):
            module(part)


def any_module(size):
    """Seconds of a diagnosis of torch's encoder for 1,000 sequences, beside its plain forward."""
    rows, targets = [], []
    for T, d in size.module_cases:
        view, _ = make_windows(size.n_sequences, T)
        x = torch.tensor(np.asarray(view))
        torch.manual_seed(0)
        module = Encoder(x.shape[2], d, size.module_layers).eval()
        twin = Encoder(x.shape[2], d, size.module_layers).double().eval()
        twin.load_state_dict(module.state_dict())
        contenders = {
            "forward": lambda m=module, x=x: seconds(plain_forward, m, x),
            "forward, float64": lambda m=twin, x=x: seconds(plain_forward, m, x.double()),
            "module_conditioning": lambda m=module, x=x: seconds(module_conditioning, m, x),
            "float64=False": lambda m=module, x=x: seconds(
                module_conditioning, m, x, float64=False
            ),
        }
        times = interleaved(contenders, size.rounds)
        per_thousand = {name: 1_000 * t / size.n_sequences for name, t in times.items()}
        ratio = times["module_conditioning"] / times["forward"]
        rows.append(
            {"T": T, "d": d, "layers": size.module_layers} | per_thousand | {"x forward": ratio}
        )
    return rows, targets


def module_memory(size):
    """MB by which a diagnosis grows the process, against the number of sequences.

    What is held is one chunk and the one before it; the allocator keeps some of the pages of
    earlier chunks, so that the peak creeps up by a small part of what the traces would take.
    """
    T, d = size.module_cases[0]
    few, many = (grown_megabytes(__file__, n, T, d, size.module_layers) for n in size.memory)
    rows = [
        {"T": T, "d": d, "layers": size.module_layers, "sequences": n, "MB": mb}
        for n, mb in zip(size.memory, (few, many), strict=True)
    ]
    # X, Attn(X), Z and the softmax matrices of 4 heads, in float64.
    of_traces = (size.memory[1] - size.memory[0]) * size.module_layers * (3 * T * d + 4 * T * T)
    share = (many - few) / (8 * of_traces / 1e6)
    claim = "MB of further sequences / MB of their traces"
    return rows, [Target(claim, share, 0.2, at_least=False)]


def child(n_sequences, n_tokens, d_model, n_layers):
    """Prints the bytes by which one diagnosis grew the peak of this process."""
    torch.set_num_threads(1)
    view, _ = make_windows(n_sequences, n_tokens)
    module = Encoder(view.shape[2], d_model, n_layers)
    batches = (np.asarray(view[start : start + 64]) for start in range(0, n_sequences, 64))
    forget_peak()
    before = peak_bytes()
    module_conditioning(module, batches)
    print(peak_bytes() - before)


SECTIONS = {
    "diagnostics": diagnostics,
    "probe sizes": probe_sizes,
    "any module, seconds for 1,000 sequences": any_module,
    "any module, memory": module_memory,
}


def main(argv=None, sizes=SIZES):
    return run("bench_conditioning", "Cost of the diagnostics.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*map(int, sys.argv[2:]))
    else:
        sys.exit(main())
