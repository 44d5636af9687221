"""Texts: SST-2 from scratch against TF-IDF with logistic regression, and tokens per second.

``python benchmarks/bench_sst2.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from _common import Target, data_folder, run
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader

from sklearn_restrans import (
    ResidualTransformerClassifier,
    SeedEnsembleClassifier,
    SequenceVectorizer,
)
from sklearn_restrans._core import Architecture, ResidualTransformer
from sklearn_restrans.datasets import fetch_sst2

MODEL = {"dropout": 0.5, "max_iter": 4, "batch_size": 128, "learning_rate_init": 2e-3}
LEFT_OUT = [{"left out": "no real data: set SKLEARN_RESTRANS_DATA"}], []


@dataclass(frozen=True)
class Size:
    """How much of everything one run takes."""

    n_texts: int | None = None
    n_seeds: int = 3
    n_members: int = 5
    n_timed: int = 12_800
    n_epochs: int = 3


SIZES = {
    "full": Size(),
    "quick": Size(n_texts=2_000, n_seeds=2, n_members=2, n_timed=1_280, n_epochs=1),
}


def texts_of(size):
    """Texts and labels of the three parts; of the training part so many as the size says."""
    folder = data_folder() / "sst2"
    texts, labels = fetch_sst2(folder, "train")
    if size.n_texts is not None:
        chosen = np.random.default_rng(0).permutation(len(texts))[: size.n_texts]
        texts, labels = [texts[row] for row in chosen], labels[chosen]
    return {"train": (texts, labels)} | {part: fetch_sst2(folder, part) for part in ("dev", "test")}


def classifier(**settings):
    return ResidualTransformerClassifier(
        **MODEL
        | {"embedding": "token", "device": "cpu", "n_threads": torch.get_num_threads()}
        | settings
    )


def hits(model, parts):
    """Whether each sentence of dev and of test is labelled rightly."""
    return {part: model.predict(parts[part][0]) == parts[part][1] for part in ("dev", "test")}


def quality(size):
    """Accuracy on dev, test and both: means over seeds, with the 95 % interval of 2,693 rows."""
    if data_folder() is None:
        return LEFT_OUT
    parts = texts_of(size)
    base = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10))
    found = {"TF-IDF (1, 2), logistic regression": ([0.0], [hits(_fitted(base, parts)[0], parts)])}
    for name in ("one net", f"mean of {size.n_members} nets"):
        took, right = [], []
        for seed in range(size.n_seeds):
            model = classifier(random_state=seed)
            if name != "one net":
                model = SeedEnsembleClassifier(
                    classifier(), n_estimators=size.n_members, random_state=seed
                )
            fitted, seconds = _fitted(make_pipeline(SequenceVectorizer(), model), parts)
            took.append(seconds)
            right.append(hits(fitted, parts))
        found[name] = (took, right)
    rows = []
    for name, (took, right) in found.items():
        of_both = np.mean([np.concatenate(list(r.values())) for r in right], axis=0)
        row = {"model": name, "seeds": len(right), "seconds a fit": float(np.mean(took))}
        row |= {part: float(np.mean([r[part].mean() for r in right])) for part in right[0]}
        half = 1.96 * of_both.std() / np.sqrt(len(of_both))
        rows.append(row | {"both": float(of_both.mean()), "half of its 95 % interval": half})
    bar = rows[0]["both"]
    targets = []
    for row in rows[1:]:
        targets += [
            Target(f"accuracy on dev, {row['model']}", row["dev"], 0.82),
            Target(f"accuracy on dev + test, {row['model']}, TF-IDF's", row["both"], bar),
            Target(f"seconds a fit, {row['model']}", row["seconds a fit"], 300, at_least=False),
        ]
    return rows, targets


def _fitted(model, parts):
    started = time.perf_counter()
    model.fit(*parts["train"])
    return model, time.perf_counter() - started


def speed(size):
    """Real tokens per second of training, against a plain loop over a padded DataLoader."""
    if data_folder() is None:
        return LEFT_OUT
    texts, labels = fetch_sst2(data_folder() / "sst2", "train")
    ids = SequenceVectorizer().fit_transform(texts[: size.n_timed])
    y, rows = labels[: size.n_timed], []
    n_tokens = int((ids != 0).sum())
    for d_model, batch in ((32, 64), (32, 128), (64, 128)):
        options = {"d_model": d_model, "batch_size": batch}
        model = classifier(max_iter=1 + size.n_epochs, random_state=0, **options)
        ours = np.median(model.fit(ids, y).history_["dur"].to_numpy()[1:])
        plain = np.median([_padded_epoch(ids, y, d_model, batch) for _ in range(size.n_epochs)])
        rows.append(
            {
                "d": d_model,
                "batch": batch,
                "ours (tokens/s)": round(n_tokens / ours),
                "padded DataLoader (tokens/s)": round(n_tokens / plain),
                "ratio": float(plain / ours),
            }
        )
    return rows, []


def _padded_epoch(ids, y, d_model, batch):
    """Seconds of an epoch of the same model on rows of one width, from a DataLoader."""
    arch = Architecture(
        ids.shape[1],
        int(ids.max()) + 1,
        2,
        d_model=d_model,
        d_ff=2 * d_model,
        readout="mean",
        dropout=0.5,
        embedding="token",
    )
    module = ResidualTransformer(arch)
    module.reset_parameters(generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, fused=True)
    data = list(zip(torch.from_numpy(ids), torch.from_numpy(y), strict=True))
    started = time.perf_counter()
    for x, target in DataLoader(data, batch, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x, x != 0), target).backward()
        optimizer.step()
    return time.perf_counter() - started


SECTIONS = {"quality": quality, "speed": speed}


def main(argv=None, sizes=SIZES):
    return run("bench_sst2", "Texts: accuracy and tokens per second.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
