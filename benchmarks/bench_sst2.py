"""Texts: SST-2 from scratch, all and part of it, beside TF-IDF; depth; tokens per second.

``python benchmarks/bench_sst2.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from _common import (
    LEFT_OUT,
    Architecture,
    ResidualTransformer,
    Target,
    data_folder,
    half_interval,
    interval,
    reset_parameters,
    run,
    seconds,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch.utils.data import DataLoader

from sklearn_restrans import (
    ResidualTransformerClassifier,
    SeedEnsembleClassifier,
    SequenceVectorizer,
    residual_beta_path,
)
from sklearn_restrans.datasets import fetch_sst2

COMMON = {"embedding": "token", "device": "cpu"}
# The best of 37 settings on all phrases, by no more than chance. Its epochs follow from the number
# of texts, by a rule chosen on 2,000 sentences of the training part, held out with their phrases.
MODEL = {"n_layers": 2, "dropout": 0.5, "batch_size": 128, "learning_rate_init": 2e-3}
BEFORE = MODEL | {"max_iter": 4}  # what the rule gives for all phrases
STEP = 2e-3  # of "depth" and "speed"
DEPTH_BETAS = [0.0, 0.25, 0.5, 1.0]


@dataclass(frozen=True)
class Size:
    """Numbers of texts, seeds, epochs and layers of one run."""

    n_texts: int | None = None
    n_seeds: int = 3
    n_members: int = 10
    n_timed: int = 12_800
    n_epochs: int = 3
    n_phrases: int = 2_000
    depths: tuple[int, ...] = (1, 2, 6, 10)
    depth_epochs: int = 8
    shares: tuple[float, ...] = (0.01, 0.1)


SIZES = {
    "full": Size(),
    "quick": Size(
        2_000, 2, 2, 1_280, 1, n_phrases=300, depths=(1, 6), depth_epochs=3, shares=(0.1,)
    ),
}


def texts_of(size):
    """Texts and labels of the three parts; the training part is cut to ``size.n_texts``."""
    folder = data_folder() / "sst2"
    texts, labels = fetch_sst2(folder, "train")
    if size.n_texts is not None:
        chosen = np.random.default_rng(0).permutation(len(texts))[: size.n_texts]
        texts, labels = [texts[row] for row in chosen], labels[chosen]
    return {"train": (texts, labels)} | {part: fetch_sst2(folder, part) for part in ("dev", "test")}


def classifier(**settings):
    return ResidualTransformerClassifier(**COMMON, n_threads=torch.get_num_threads(), **settings)


def word_counts():
    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10))


def hits(model, parts):
    """For each sentence of dev and of test, whether the model labels it correctly."""
    return {part: model.predict(parts[part][0]) == parts[part][1] for part in ("dev", "test")}


def quality(size):
    """Accuracy on dev, test and both: means over seeds, with half of the 95 % interval over rows.

    The gain is the difference to TF-IDF, taken row by row.
    """
    if data_folder() is None:
        return LEFT_OUT
    parts = texts_of(size)
    base = word_counts().fit(*parts["train"])
    found = {"TF-IDF (1, 2), logistic regression": ([0.0], [hits(base, parts)])}
    for name in ("one net", f"mean of {size.n_members} nets"):
        took, right = [], []
        for seed in range(size.n_seeds):
            model = classifier(random_state=seed, **MODEL)
            if name != "one net":
                model = SeedEnsembleClassifier(
                    classifier(**MODEL), n_estimators=size.n_members, random_state=seed
                )
            pipe = make_pipeline(SequenceVectorizer(), model)
            took.append(seconds(pipe.fit, *parts["train"]))
            right.append(hits(pipe, parts))
        found[name] = (took, right)
    rows, bases = [], []
    for name, (took, right) in found.items():
        of_both = np.mean([np.concatenate(list(r.values())) for r in right], axis=0)
        row = {"model": name, "seeds": len(right), "seconds a fit": float(np.mean(took))}
        row |= {part: float(np.mean([r[part].mean() for r in right])) for part in right[0]}
        row |= {"both": float(of_both.mean()), "its 95 % interval": half_interval(of_both)}
        bases.append(of_both)
        gain = of_both - bases[0]
        rows.append(
            row | {"gain on TF-IDF": float(gain.mean()), "the gain's interval": half_interval(gain)}
        )
    bar = rows[0]["both"]
    targets = []
    for row in rows[1:]:
        targets += [
            Target(f"accuracy on dev, {row['model']}", row["dev"], 0.82),
            Target(f"accuracy on dev + test, {row['model']}, TF-IDF's", row["both"], bar),
            Target(f"seconds a fit, {row['model']}", row["seconds a fit"], 300, at_least=False),
        ]
    return rows, targets


def small(size):
    """Accuracy of models of a share of the phrases: means over seeds, which draw the phrases.

    "before" is what was recommended while the number of epochs was fixed, for all phrases.
    """
    if data_folder() is None:
        return LEFT_OUT
    parts, rows, targets = texts_of(size), [], []
    models = {"TF-IDF": None, "before": BEFORE, "now": MODEL}
    for share in size.shares:
        found = {name: [] for name in models}
        for seed in range(size.n_seeds):
            train = _drawn(*parts["train"], share, seed)
            for name, settings in models.items():
                found[name].append(_of_part(train, parts, settings, seed))
        for name, runs in found.items():
            means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            rows.append({"share": share, "phrases": len(train[0]), "model": name} | means)
        gain = rows[-1]["both"] - rows[-2]["both"]
        claim = f"gain on dev + test over the setting before, {len(train[0]):,} phrases"
        targets.append(Target(claim, gain, 0))
    return rows, targets


def _drawn(texts, labels, share, seed):
    """A share of the texts, in their own order: all of them are the data of "quality"."""
    order = np.random.default_rng(seed).permutation(len(texts))
    rows = np.sort(order[: max(8, round(share * len(texts)))])
    return [texts[row] for row in rows], labels[rows]


def _of_part(train, parts, settings, seed):
    """Accuracy, epochs and seconds of one fit; without settings that of word counts."""
    model = word_counts()
    if settings is not None:
        model = make_pipeline(SequenceVectorizer(), classifier(random_state=seed, **settings))
    row = {"seconds a fit": seconds(model.fit, *train)}
    row = {"epochs": 0 if settings is None else model[-1].n_iter_} | row
    right = hits(model, parts)
    row |= {part: right[part].mean() for part in right}
    return row | {"both": np.concatenate(list(right.values())).mean()}


def depth(size):
    """Claim C5 from scratch: training error against depth, mean over seeds and its 95 % interval.

    The phrases have at least five words; all models take one step size. Always answering with the
    larger class would have an error of 0.44.
    """
    if data_folder() is None:
        return LEFT_OUT
    texts, labels = fetch_sst2(data_folder() / "sst2", "train")
    long = np.flatnonzero([len(text.split()) >= 5 for text in texts])
    chosen = np.random.default_rng(0).permutation(long)[: size.n_phrases]
    X = SequenceVectorizer(max_length=32).fit_transform([texts[row] for row in chosen])
    y, rows = labels[chosen], []
    for norm, init in ((None, "gaussian"), (None, "depth_scaled"), ("pre", "depth_scaled")):
        for n_layers in size.depths:
            model = classifier(
                norm=norm,
                init=init,
                learning_rate_init=STEP,
                n_layers=n_layers,
                max_iter=size.depth_epochs,
                tol=0,
                random_state=0,
            )
            path = residual_beta_path(X, y, DEPTH_BETAS, estimator=model, n_seeds=size.n_seeds)
            row = {"norm": str(norm), "init": init, "L": n_layers}
            for beta in DEPTH_BETAS:
                errors = [
                    1 - fitted.score(X, y)
                    for (of, _, _), fitted in path.estimators.items()
                    if of == beta and fitted is not None
                ]
                row[f"beta = {beta:g}"] = interval(errors) if errors else "diverged"
            rows.append(row)
    return rows, []


def speed(size):
    """Tokens (without padding) trained per second, by us and by a loop over a padded DataLoader."""
    if data_folder() is None:
        return LEFT_OUT
    texts, labels = fetch_sst2(data_folder() / "sst2", "train")
    ids = SequenceVectorizer().fit_transform(texts[: size.n_timed])
    y, rows = labels[: size.n_timed], []
    n_tokens = int((ids != 0).sum())
    for d_model, batch in ((32, 64), (32, 128), (64, 128)):
        options = {"d_model": d_model, "batch_size": batch, "dropout": 0.5}
        options |= {"learning_rate_init": STEP, "random_state": 0}
        model = classifier(max_iter=1 + size.n_epochs, **options)
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
    """Seconds of an epoch of the same model, with rows padded to one width in a DataLoader."""
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
    reset_parameters(module, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(module.parameters(), lr=STEP, fused=True)
    data = list(zip(torch.from_numpy(ids), torch.from_numpy(y), strict=True))
    started = time.perf_counter()
    for x, target in DataLoader(data, batch, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x, x != 0), target).backward()
        optimizer.step()
    return time.perf_counter() - started


SECTIONS = {"quality": quality, "small": small, "depth": depth, "speed": speed}


def main(argv=None, sizes=SIZES):
    return run("bench_sst2", "Texts: accuracy, depth and tokens per second.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
