"""Every benchmark runs and reports. No time is asserted here."""

import ast
import importlib
import json
import shutil
from pathlib import Path

import datafiles
import numpy as np
import pandas as pd
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = {
    "bench_fit": {
        "n_windows": 260,
        "rounds": 1,
        "tree_rounds": 1,
        "lengths": (4,),
        "widths": (4,),
        "overhead_rounds": 1,
        "micro": (256, 512),
        "n_micro": 600,
        "grow_windows": (260, 520),
        "grow_tokens": (3, 6),
        "grow_tokens_mean": (3, 6),
        "grow_width": (4, 8),
        "grow_layers": (1, 2),
        "n_grow": 300,
        "jena_rows": 500,
        "jena_epochs": (1,),
    },
    "bench_predict": {
        "n_windows": 260,
        "rounds": 1,
        "lengths": (4,),
        "widths": (4,),
        "n_chunked": 128,
        "chunks": (64,),
        "single_rounds": 1,
    },
    "bench_windows": {
        "n_windows": 500,
        "n_batches": 2,
        "rounds": 1,
        "lengths": (4,),
        "memory": ((1_000, 4),),
        "relative": ((8, 2, 4),),
        "n_relative": 200,
        "n_epochs": 2,
        "relative_rounds": 1,
    },
    "bench_conditioning": {
        "n_windows": 260,
        "rounds": 1,
        "n_epochs": 1,
        "cases": (("last", 4, 4), ("mean", 4, 4)),
        "samples": (4,),
        "n_sequences": 20,
        "module_layers": 2,
        "module_cases": ((4, 4),),
        "memory": (20, 40),
    },
    "bench_beta_path": {
        "n_windows": 300,
        "n_folds": 2,
        "n_epochs": 1,
        "processes": 1,
        "rounds": 1,
        "widths": (4,),
        "jena_rows": 400,
        "jena_train": 60,
        "jena_test": 30,
        "cost_rounds": 1,
        "cost_lengths": (4,),
        "cost_widths": (4,),
        "cost_windows": (("last", 128), ("mean", 64)),
    },
    "bench_forecasting": {
        "n_seeds": 2,
        "n_hours": 400,
        "window": 6,
        "n_epochs": 1,
        "stations": ("JFK",),
        "station_hours": 200,
    },
    "bench_solvers": {
        "n_sequences": 8,
        "n_tokens": 4,
        "n_starts": 2,
        "n_steps": 3,
        "jena": (30,),
        "gap": 2,
        "n_rows": 40,
        "n_seeds": 2,
        "n_epochs": 2,
        "n_newton": 2,
    },
    "bench_sst2": {
        "n_texts": 40,
        "n_seeds": 2,
        "n_members": 2,
        "n_timed": 40,
        "n_epochs": 1,
        "n_phrases": 20,
        "depths": (1, 2),
        "depth_epochs": 1,
        "shares": (0.5,),
    },
    "bench_small": {"n_seeds": 2, "batches": (64, 8), "most_rows": 20, "n_test": 20, "n_epochs": 1},
    "bench_predictors": {
        "n_rows": 6,
        "n_tokens": 3,
        "d_model": 4,
        "n_steps": 3,
        "n_problems": 2,
        "n_starts": 1,
        "pilot_steps": 2,
        "pilot_starts": 1,
    },
    "bench_etth1": {
        "month": 30,
        "history": 24,
        "horizon": 4,
        "n_seeds": 1,
        "max_iter": 1,
    },
    "bench_horizons": {
        "month": 30,
        "history": 48,
        "horizons": (2, 3, 4, 5),
        "n_seeds": 1,
        "max_iter": 1,
        "linear_epochs": 1,
        "steps": 2,
    },
    "bench_intervals": {
        "n_hours": 400,
        "window": 6,
        "month": 30,
        "history": 24,
        "horizons": (1, 4),
        "max_iter": 1,
    },
    "bench_init": {
        "betas": (1.0,),
        "layers": (1, 2),
        "lambdas": (1.0,),
        "n_seeds": 2,
        "n_pilot_seeds": 1,
        "n_train": 60,
        "n_test": 20,
        "n_descent": 10,
        "n_hours": 500,
        "window": 4,
        "max_iter": 1,
        "n_steps": 2,
    },
    "bench_pretrained": {
        "n_head": 16,
        "n_all": 16,
        "n_seeds": 2,
        "n_sentences": 10,
        "depths": (2,),
        "n_timed": 16,
        "rounds": 1,
    },
    "bench_pretrained_depth": {
        "n_phrases": 8,
        "n_epochs": 1,
        "n_seeds": 2,
        "depths": (1, 2),
        "betas": (0.0, 1.0),
    },
}


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def common():
    return importlib.import_module("_common")


@pytest.mark.parametrize("name", TINY)
def test_the_quick_path_writes_every_table_and_target(
    name, tmp_path, monkeypatch, capsys, checkpoints
):
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", str(tmp_path))
    hours = datafiles.ten_minutes(600 * 6)[::6]
    datafiles.write(tmp_path, datafiles.jena_text(hours), "jena_2009_2016_hourly.csv")
    names = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    dates = pd.date_range("2016-07-01", periods=620, freq="h", name="date")
    loads = np.random.default_rng(0).standard_normal((620, 7)).cumsum(axis=0)
    pd.DataFrame(loads, dates, names).to_csv(tmp_path / "ETTh1.csv")
    (tmp_path / "sst2").mkdir()
    reviews = [f"a {word} film of {k}\t{k % 2}" for k, word in enumerate(["dull", "fine"] * 20)]
    for part in ("train", "dev", "test"):
        text = "\n".join(["sentence\tlabel", *reviews])
        (tmp_path / "sst2" / f"{part}.tsv").write_text(text)
    bench = importlib.import_module(name)
    if hasattr(bench, "minilm_folder"):
        monkeypatch.setattr(bench, "minilm_folder", lambda: checkpoints("bert"))
    threads = torch.get_num_threads()
    sizes = {"quick": bench.Size(**TINY[name])}
    sentence = bench.main(["--quick", "--output", str(tmp_path / "out")], sizes)
    record = json.loads((tmp_path / "out" / f"{name}_1.json").read_text())
    assert record["benchmark"] == name and record["quick"]
    assert list(record["tables"]) == list(bench.SECTIONS)
    assert all(record["tables"].values()), "a table without rows"
    assert {"cpu", "cores", "threads", "torch", "scikit-learn", "skorch", "date"} <= set(
        record["machine"]
    )
    missed = [target["claim"] for target in record["targets"] if not target["met"]]
    assert (sentence is None) == (not missed)
    assert all(claim in sentence for claim in missed)
    assert torch.get_num_threads() == threads
    assert "targets met" in capsys.readouterr().out


def private_imports(text):
    """Modules with a private part in their name that a file imports from this package."""
    modules = [
        node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)
    ]
    ours = [module.split(".") for module in modules if module.startswith("sklearn_restrans")]
    return [".".join(parts) for parts in ours if any(part.startswith("_") for part in parts)]


@pytest.mark.parametrize("name", TINY)
def test_private_parts_reach_a_benchmark_through_common_only(name):
    """So that a change inside the package is followed in one file."""
    assert private_imports((BENCHMARKS / f"{name}.py").read_text(encoding="utf-8")) == []
    assert private_imports("from sklearn_restrans._model import f") == ["sklearn_restrans._model"]


def test_a_missed_target_is_a_sentence_and_a_met_one_is_none(common, tmp_path, capsys):
    """A string given to sys.exit is printed and makes the exit status 1; None makes it 0."""

    def claims(bound):
        return [{"x": 1}], [
            common.Target("more", 3.0, bound),
            common.Target("less", 0.5, 0.6, at_least=False),
        ]

    arguments = ["--quick", "--output", str(tmp_path)]
    assert common.run("b", "", {"t": claims}, {"quick": 2.9}, arguments) is None
    sentence = common.run("b", "", {"t": claims}, {"quick": 3.1}, arguments)
    assert sentence == "b: missed targets: more: 3, target >= 3.1."
    assert "1 of 2 targets met" in capsys.readouterr().out


def test_only_complete_full_runs_are_recorded(common, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "README", tmp_path / "README.md")
    text = "a\n<!-- bench_b_1 -->\nold\n<!-- /bench_b_1 -->\nz\n"
    common.README.write_text(text)
    sections = {"t": lambda size: ([{"x": size}], []), "u": lambda size: ([{"x": size}], [])}
    for partial in (["--quick"], ["--only", "t"]):
        common.run("bench_b", "", sections, {"quick": 1, "full": 7}, partial)
    assert common.README.read_text() == text and not common.RESULTS.exists()
    assert [file.name for file in Path("output").iterdir()] == ["bench_b_1.json"]
    shutil.rmtree("output")
    common.run("bench_b", "", sections, {"quick": 1, "full": 7}, [])
    shown = common.README.read_text()
    assert "| 7 |" in shown and "old" not in shown
    assert shown.startswith("a\n") and shown.endswith("<!-- /bench_b_1 -->\nz\n")
    assert common.render(shown, common.RESULTS) == shown


def test_the_tables_of_the_readme_are_those_of_the_recorded_runs(common):
    text = common.README.read_text()
    assert common.render(text, common.RESULTS) == text
    for name in TINY:
        for threads in (1, 2):
            assert f"<!-- {name}_{threads} -->" in text
    for file in common.RESULTS.glob("*.json"):
        assert not json.loads(file.read_text())["quick"]


def test_a_bar_in_a_cell_does_not_end_it(common):
    rows = [{"claim": "largest |a - b|", "measured": 0.5, "met": None}]
    assert common.table(rows).splitlines()[2] == r"| largest \|a - b\| | 0.5 | - |"


def test_the_median_is_taken_over_runs_that_take_turns(common):
    calls = []

    def contender(name, times):
        times = iter(times)

        def once():
            calls.append(name)
            return next(times)

        return once

    medians = common.interleaved(
        {"a": contender("a", [3.0, 1.0, 2.0]), "b": contender("b", [[5.0, 7.0]] * 3)}, rounds=3
    )
    assert medians == {"a": 2.0, "b": 6.0}
    assert calls == ["a", "b", "b", "a", "a", "b"]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_exponent_of_a_power_law(common, power):
    sizes = np.array([10.0, 30.0, 1000.0])
    # The logarithms of three numbers, fitted exactly up to float64 rounding.
    assert common.exponent(sizes, 3e-5 * sizes**power) == pytest.approx(power, abs=1e-12)


def test_windows_and_targets_of_the_synthetic_series(common):
    view, y = common.make_windows(5, 3, 2)
    assert view.shape == (5, 3, 2) and view.dtype == np.float32 and not view.partial.any()
    assert np.array_equal(y[:-1], np.asarray(view)[1:, -1, 0]), "the next reading of channel 0"


def test_correlations_of_own_and_common_steps_are_not_averaged_over_opposite_signs(monkeypatch):
    bench = importlib.import_module("bench_predictors")
    signs = {"own": -1.0, "common": 0.5}
    found = {
        (data, step): {name: [(sign, 0.0)] * 3 for name in ("linearized", "pilot")}
        for data in ("a", "b")
        for step, sign in signs.items()
    }
    monkeypatch.setattr(bench, "measured", lambda size, init: found)
    rows, targets = bench.correlations("gaussian")(None)
    assert [(row["mean, own"], row["mean, common"]) for row in rows] == [(-1.0, 0.5)] * 2
    assert [target.measured for target in targets] == [-0.25] * 2, "their mean stays the target"


@pytest.mark.parametrize("embedding", ["linear", "feature"])
@pytest.mark.parametrize("keeps_size", [False, True])
def test_conditioned_tokens_have_every_singular_value_raised_by_the_largest(
    common, embedding, keeps_size
):
    """X + sigma_max U V^T, so that the condition number is at most 2."""
    bench = importlib.import_module("bench_init")
    options = {"embedding": embedding, "positions": "learned"}
    n_features = 1 if embedding == "feature" else 3
    module = common.torch_model(5, 8, n_features, **options).double()
    x = torch.as_tensor(np.random.default_rng(0).standard_normal((20, 5, n_features)))
    X = module.embed(x).detach().flatten(0, 1)
    U, s, Vh = torch.linalg.svd(X, full_matrices=False)
    raised = (U * (s + s[0])) @ Vh
    if keeps_size:
        raised *= X.norm() / raised.norm()
    bench.condition_tokens(module, x, keeps_size)
    conditioned = module.embed(x).detach().flatten(0, 1)
    # float64, and directions of X that are 1e-3 of the largest at least.
    assert torch.allclose(conditioned, raised, atol=1e-9)
    assert torch.linalg.cond(conditioned) <= 2


def test_a_spectral_start_adds_to_the_diagonals_of_attention_alone(common):
    bench = importlib.import_module("bench_init")
    before, after = (common.torch_model(5, 8, n_layers=4) for _ in range(2))
    bench.Start("depth_scaled", 2.0).change(after, None)
    added = {"W_Q": 2.0, "W_K": 2.0, "W_V": 1.0}  # sqrt(1 / 4) of 2 at beta = 1
    for layer, changed in zip(before.layers, after.layers, strict=True):
        for name, weight in layer.named_parameters():
            expected = weight + added.get(name, 0) * torch.eye(*weight.shape)[: len(weight)]
            assert torch.allclose(changed.get_parameter(name), expected, atol=1e-6), name


def test_starts_trained_together_are_what_each_is_alone():
    """Sinusoidal positions are shared within a stack, and conditioned tokens change them."""
    bench = importlib.import_module("bench_init")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 5, 3)), rng.standard_normal(40)
    starts = [bench.Start(), bench.Start(keeps_size=True), bench.Start(lam=1.0, keeps_size=True)]
    models = [
        bench.model(bench.ResidualTransformerRegressor, start, 1, 1.0, 0, max_iter=1)
        for start in starts
    ]
    together, _ = bench.fit_all(models, starts, X, y)
    for k, start in enumerate(starts):
        model = bench.model(bench.ResidualTransformerRegressor, start, 1, 1.0, 0, max_iter=1)
        (alone,), _ = bench.fit_all([model], [start], X, y)
        # Five float32 steps of the same batches, whose products are summed in another order.
        assert np.allclose(together[k].predict(X), alone.predict(X), atol=1e-3)


def test_the_bare_loop_accumulates_the_gradient_of_the_batch(common):
    bench = importlib.import_module("bench_fit")
    view, y = common.make_windows(64, 4)
    gradients = []
    for micro in (None, 16):
        torch.manual_seed(0)
        loop = bench.BareLoop(view, y, 64, micro, d_model=4, readout="last")
        before = loop.module.W_in.detach().clone()
        loop.epoch()
        assert not torch.equal(before, loop.module.W_in)
        gradients.append(loop.module.W_in.grad)
    # Two orders of the same float32 sum of 64 terms.
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_the_peak_of_memory_sees_what_was_allocated_and_freed(common):
    np.ones(200_000_000, np.uint8)
    common.forget_peak()
    before = common.peak_bytes()
    np.ones(40_000_000, np.uint8)
    grown = common.peak_bytes() - before
    # A part may have used pages that were free already. Only Linux can forget the peak.
    assert 20e6 < grown < 80e6 or not Path("/proc/self/clear_refs").is_file()
