"""Searching beta: GridSearchCV over skorch and over our estimator, against the stacked path.

``python benchmarks/bench_beta_path.py [--quick] [--only TABLE ...]``

The times are wall clock on two warm worker processes with one thread each. skorch trains the same
model by its plain formulas, with its own data loader and loop, without a hold-out. Both sides take
plain SGD with one fixed step (skorch's default, and the paper's experiment) over equal windows,
epochs, batches and folds.
"""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from _common import (
    BATCH_SIZE,
    LEFT_OUT,
    MB,
    N_CHANNELS,
    Architecture,
    ResidualTransformer,
    Target,
    data_folder,
    forget_peak,
    grown_megabytes,
    interleaved,
    jena_windows,
    make_windows,
    our_model,
    peak_bytes,
    reset_parameters,
    run,
    seconds,
)
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit
from skorch import NeuralNetRegressor

from sklearn_restrans import residual_beta_path

T = 24
STEP = 1e-3
BETAS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# Two medians of equal work differ by this much from run to run.
NOISE = 0.05


@dataclass(frozen=True)
class Size:
    """Numbers of windows, folds, epochs and rounds of one run."""

    n_windows: int = 10_000  # 8,000 in the training part of each of 5 folds
    n_folds: int = 5
    n_epochs: int = 10
    processes: int = 2
    rounds: int = 2
    skorch_rounds: int = 1  # one round takes minutes
    readouts: tuple = ("last", "mean")
    widths: tuple = (16, 32, 64)
    jena_rows: int | None = None
    jena_train: int = 8_000
    jena_test: int = 2_000
    cost_rounds: int = 5
    cost_lengths: tuple = (24, 144)
    cost_widths: tuple = (16, 32, 64, 128)
    cost_windows: tuple = (("last", 2_048), ("mean", 512))


SIZES = {
    "full": Size(),
    "quick": Size(
        n_windows=2_000,
        n_folds=2,
        n_epochs=3,
        rounds=1,
        widths=(16, 64),
        jena_rows=12_000,
        jena_train=1_000,
        jena_test=500,
        cost_rounds=3,
        cost_lengths=(24,),
        cost_widths=(16, 64),
        cost_windows=(("last", 1_024), ("mean", 256)),
    ),
}


# ---- the contenders -----------------------------------------------------------------------------


class PlainModule(ResidualTransformer):
    """The model by its plain formulas, with beta as a parameter that GridSearchCV can set."""

    def __init__(self, beta, n_features, d_model, readout):
        arch = Architecture(T, n_features, 1, d_model=d_model, d_ff=2 * d_model, readout=readout)
        super().__init__(arch, torch.full((1, 2), beta))
        reset_parameters(self, generator=torch.Generator().manual_seed(0))


def over_skorch(X, y, cv, n_jobs, n_epochs, **model):
    """GridSearchCV over default skorch, on windows in memory."""
    net = NeuralNetRegressor(
        PlainModule,
        max_epochs=n_epochs,
        batch_size=BATCH_SIZE,
        lr=STEP,
        train_split=None,
        verbose=0,
        module__n_features=X.shape[2],
        **{f"module__{name}": value for name, value in model.items()},
    )
    search = GridSearchCV(net, {"module__beta": BETAS}, cv=cv, n_jobs=n_jobs, refit=False)
    return search.fit(np.asarray(X), y[:, None]).cv_results_["mean_test_score"]


def sgd_model(**settings):
    """Our estimator with skorch's default optimiser."""
    return our_model(solver="sgd", learning_rate_init=STEP, tol=0, n_threads=1, **settings)


def over_ours(X, y, cv, n_jobs, n_epochs, **model):
    """GridSearchCV over our tuned estimator."""
    model = sgd_model(max_iter=n_epochs, **model)
    search = GridSearchCV(model, {"residual_beta": BETAS}, cv=cv, n_jobs=n_jobs, refit=False)
    return search.fit(X, y).cv_results_["mean_test_score"]


def stacked(X, y, cv, n_jobs, n_epochs, **model):
    """The beta path."""
    model = sgd_model(max_iter=n_epochs, **model)
    path = residual_beta_path(X, y, BETAS, estimator=model, cv=cv, n_jobs=n_jobs)
    return path.summary()["score", "mean"].to_numpy()


CONTENDERS = {"skorch": over_skorch, "ours": over_ours, "stacked": stacked}


# ---- wall clock ---------------------------------------------------------------------------------


def compare(X, y, cv, size, **model):
    """A row with the seconds of every contender and their ratios to the stacked path."""
    few, folds = np.arange(min(len(X), 2 * BATCH_SIZE)), KFold(2)
    for function in CONTENDERS.values():  # starts the workers and loads their code
        function(X[few], y[few], folds, size.processes, 1, **model)
    scores = {}

    def timed(name, n_jobs):
        def search():
            scores[name] = CONTENDERS[name](X, y, cv, n_jobs, size.n_epochs, **model)

        return lambda: seconds(search)

    ours = {name: timed(name, size.processes) for name in ("ours", "stacked")}
    times = interleaved({"skorch": timed("skorch", size.processes)}, size.skorch_rounds)
    times |= interleaved(ours | {"stacked, 1 process": timed("stacked", 1)}, size.rounds)
    # Both searches compute the same numbers, except that float32 sums are taken in another order.
    np.testing.assert_allclose(scores["stacked"], scores["ours"], atol=2e-2)
    plan = residual_beta_path(X[few], y[few], BETAS, estimator=sgd_model(max_iter=1, **model)).plan
    trained = [len(train) for train, _ in cv.split(X)]
    return {
        "windows a fold": min(trained),
        "folds": len(trained),
        "epochs": size.n_epochs,
        **times,
        "skorch / stacked": times["skorch"] / times["stacked"],
        "ours / stacked": times["ours"] / times["stacked"],
        "plan": plan["mode"],
    }


def searches(size):
    """8 betas x 5 folds on synthetic windows, in seconds."""
    X, y = make_windows(size.n_windows, T)
    rows, targets = [], []
    for readout in size.readouts:
        for d in size.widths:
            row = compare(X, y, KFold(size.n_folds), size, d_model=d, readout=readout)
            rows.append({"read-out": readout, "d": d} | row)
            targets += _targets(row, f"{readout}, d = {d}", readout == "last" and d)
    return rows, targets


def _targets(row, where, d_of_last):
    never_slower = Target(
        f"GridSearchCV over ours / stacked, {where} (1, less what runs differ by)",
        row["ours / stacked"],
        1 - NOISE,
    )
    targets = [never_slower]
    if d_of_last in (16, 64):
        claim = f"GridSearchCV over default skorch / stacked, {where}"
        targets.append(Target(claim, row["skorch / stacked"], 12))
    if d_of_last and d_of_last <= 32:
        claim = f"GridSearchCV over ours / stacked, {where}"
        targets.append(Target(claim, row["ours / stacked"], 3))
    return targets


def jena(size):
    """The same search on Jena weather: air temperature in 24 hours from the last 24."""
    if data_folder() is None:
        return LEFT_OUT
    X, y = jena_windows(size.jena_rows, T)
    mean, scale = y.mean(), y.std()
    cv = TimeSeriesSplit(
        size.n_folds, gap=24, max_train_size=size.jena_train, test_size=size.jena_test
    )
    # skorch does not scale its inputs, so the series is scaled for both sides.
    X.series = ((X.series - X.series.mean(0)) / X.series.std(0)).astype(np.float32)
    rows, targets = [], []
    for d in size.widths[::2]:
        row = compare(X, (y - mean) / scale, cv, size, d_model=d, readout="last")
        rows.append({"d": d} | row)
        targets += _targets(row, f"Jena, last, d = {d}", None)
    return rows, targets


# ---- the cost model -----------------------------------------------------------------------------


def cost_model(size):
    """Milliseconds per candidate and step: one by one, as planned, and all 8 in one group."""
    rows, targets = [], []
    for readout, n_windows in size.cost_windows:
        for n_tokens in size.cost_lengths:
            X, y = make_windows(n_windows, n_tokens)
            for d in size.cost_widths:
                row = _cost(X, y, size, d_model=d, readout=readout)
                rows.append({"read-out": readout, "T": n_tokens, "d": d} | row)
                if row["group"] > 1:
                    claim = f"one by one / as planned, {readout}, T = {n_tokens}, d = {d}"
                    targets.append(Target(claim, row["one by one"] / row["as planned"], 1.0))
    return rows, targets


def _cost(X, y, size, **settings):
    model = sgd_model(batch_size=64, max_iter=3, conditioning_samples=1, **settings)
    steps = len(BETAS) * -(-len(X) // model.batch_size)
    plans = {}

    def epochs(stack):
        """Milliseconds per step of each epoch after the first, all candidates together."""
        path = residual_beta_path(X, y, BETAS, estimator=model, stacked=stack)
        plans[stack] = path.plan
        durations = sum(fit.history_["dur"].to_numpy()[1:] for fit in path.estimators.values())
        return (1e3 * durations / steps).tolist()

    ways = {"one by one": False, "as planned": "auto", "in one group": True}
    times = interleaved(
        {name: lambda stack=stack: epochs(stack) for name, stack in ways.items()}, size.cost_rounds
    )
    group = plans["auto"]["size"]
    if group == 1:  # then the plan is to train one by one, and the same thing was measured twice
        times["as planned"] = times["one by one"]
    return {"group": group} | times


# ---- memory -------------------------------------------------------------------------------------


def memory(size):
    """MB by which the peak memory of a process grows during a search in that process alone."""
    rows = []
    for readout in size.readouts:
        row = {"read-out": readout, "d": size.widths[-1]}
        for name in CONTENDERS:
            numbers = (readout, size.widths[-1], size.n_windows, size.n_folds)
            row[f"{name} (MB)"] = grown_megabytes(__file__, name, *numbers)
        rows.append(row | {"windows as a copy (MB)": 4 * size.n_windows * T * N_CHANNELS / MB})
    return rows, []


def child(name, readout, d_model, n_windows, n_folds):
    """Search once with one epoch and print by how many bytes this process's peak memory grew."""
    torch.set_num_threads(1)
    settings = {"n_jobs": 1, "n_epochs": 1, "d_model": int(d_model), "readout": readout}
    CONTENDERS[name](*make_windows(4 * BATCH_SIZE, T), KFold(2), **settings)
    X, y = make_windows(int(n_windows), T)
    forget_peak()
    before = peak_bytes()
    CONTENDERS[name](X, y, KFold(int(n_folds)), **settings)
    print(peak_bytes() - before)


SECTIONS = {"searches": searches, "jena": jena, "cost model": cost_model, "memory": memory}


def main(argv=None, sizes=SIZES):
    return run("bench_beta_path", "Time of a search over beta.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main())
