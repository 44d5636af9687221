"""Small data: the default batch size, and short training sets against MiniRocket and ridge.

``python benchmarks/bench_small.py [--quick] [--threads 2] [--only TABLE ...]``

The data of "series" and "patches", and MiniRocket, come with aeon, which none of our extras
installs: it asks for older versions of numpy and pandas than ``constraints.txt`` names. Install
aeon and this package, with its extra "bench", into an environment of their own; elsewhere these
tables are left out.
"""

import importlib
import importlib.metadata
import sys
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from _common import Target, run, seconds
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    as_sequences,
)
from sklearn_restrans.datasets import make_planted_sequences

SERIES = ("GunPoint", "ItalyPowerDemand", "UnitTest")
# Chosen on the digits of "rule", not on the series.
STRONGER = {"n_layers": 3, "norm": "pre", "max_iter": 60}
LONG_SERIES = ("GunPoint", "ArrowHead", "OSULeaf")
PATCHES = tuple(
    {"patch": patch, "patch_stride": step} for patch, step in ((16, 8), (32, 16), (64, 16))
)
SETTINGS = ({}, {"max_iter": 60})


@dataclass(frozen=True)
class Size:
    """Numbers of seeds, training rows and batch sizes of one run; the names of aeon's data."""

    n_seeds: int = 3
    series: tuple[str, ...] = SERIES
    long_series: tuple[str, ...] = LONG_SERIES
    batches: tuple[int, ...] = (64, 32, 16, 8)
    most_rows: int = 640
    n_test: int = 1_000
    n_epochs: int = 20


SIZES = {
    "full": Size(),
    "quick": Size(n_seeds=2, long_series=LONG_SERIES[:1], batches=(64, 8), most_rows=160),
}


# ---- the rule ----------------------------------------------------------------------------------


def rule(size):
    """Test score for each batch size: R2 or accuracy, medians over subsets of the rows and seeds.

    The data on which ``batch_size="auto"`` was chosen: rows of scikit-learn's tables, rows of its
    8 x 8 digits as sequences, and planted sequences with and without noise.
    """
    rows, gains = [], {}
    for name, estimator, load, counts in _problems(size):
        for n in (count for count in counts if count <= size.most_rows):
            row = {"data": name, "training rows": n}
            fits = {"auto": []} | {f"batch {batch}": [] for batch in size.batches}
            for seed in range(size.n_seeds):
                X, y, X_test, y_test = load(n, seed)
                for column, scores in fits.items():
                    batch = "auto" if column == "auto" else int(column.split()[1])
                    model = _ours(estimator, seed, batch_size=batch, max_iter=size.n_epochs)
                    scores.append(model.fit(X, y).score(X_test, y_test))
            row |= {column: float(np.median(scores)) for column, scores in fits.items()}
            gains[name, n] = row["auto"] - row["batch 64"]
            rows.append(row)
    lowest = min(gains, key=gains.get)
    targets = [
        Target(
            'mean gain of "auto" over a batch of 64', float(np.mean(list(gains.values()))), 0.03
        ),
        Target(f'lowest gain of "auto" over a batch of 64, {lowest}', gains[lowest], -0.03),
    ]
    return rows, targets


def _problems(size):
    """(name, estimator, function from a number of rows and a seed to data, numbers of rows)."""
    classifier, regressor = ResidualTransformerClassifier, ResidualTransformerRegressor
    digits, cancer, wine, diabetes = (
        load(return_X_y=True)
        for load in (load_digits, load_breast_cancer, load_wine, load_diabetes)
    )
    digits = digits[0].reshape(-1, 8, 8), digits[1]
    yield "digits, 8 tokens", classifier, partial(_part, *digits), (40, 80, 160, 320, 640)
    for noise in (0.0, 0.5):
        load = partial(_planted, noise, size.n_test)
        yield f"planted, noise {noise:g}", regressor, load, (40, 160, 640)
    yield "wine", classifier, partial(_part, *wine), (15, 40, 140)
    yield "breast cancer", classifier, partial(_part, *cancer), (20, 60, 200)
    yield "diabetes", regressor, partial(_part, *diabetes), (20, 60, 150, 353)


def _part(X, y, n, seed):
    """``n`` random rows and, as test part, all others; every class is among the ``n``."""
    classes = None if len(np.unique(y)) > 10 else y
    X, X_test, y, y_test = train_test_split(X, y, train_size=n, random_state=seed, stratify=classes)
    return X, y, X_test, y_test


def _planted(noise, n_test, n, seed):
    X, y = make_planted_sequences(n + n_test, noise=noise, random_state=seed)
    return X[:n], y[:n], X[n:], y[n:]


# ---- series of aeon ----------------------------------------------------------------------------


def series(size):
    """Accuracy on the published test parts, and seconds of a fit: medians over seeds.

    A first fit of MiniRocket, in which numba compiles, is not counted.
    """
    try:
        load = importlib.import_module("aeon.datasets").load_classification
        rocket = importlib.import_module("aeon.classification.convolution_based")
    except ImportError:
        return [{"left out": "aeon is not installed, see the head of bench_small.py"}], []
    rows, targets, classifier = [], [], ResidualTransformerClassifier
    contenders = {
        "ours, defaults": lambda seed: _ours(classifier, seed),
        "ours, batch_size=64": lambda seed: _ours(classifier, seed, batch_size=64),
        f"ours, {_written(STRONGER)}": lambda seed: _ours(classifier, seed, **STRONGER),
        f"MiniRocket, aeon {importlib.metadata.version('aeon')}": lambda seed: (
            rocket.MiniRocketClassifier(random_state=seed, n_jobs=torch.get_num_threads())
        ),
        "ridge": lambda seed: _Flat(),
    }
    for name in size.series:
        parts = [load(name, split=part) for part in ("train", "test")]
        (X, y), (X_test, y_test) = [(as_sequences(X), y) for X, y in parts]
        accuracies = {}
        for model, make in contenders.items():
            fit = _fit_rocket if model.startswith("MiniRocket") else _fit
            n_seeds = 1 if model == "ridge" else size.n_seeds
            results = [fit(make(seed), X, y, X_test, y_test) for seed in range(n_seeds)]
            scores, took = np.transpose(results)
            accuracies[model] = float(np.median(scores))
            rows.append(
                {
                    "data": name,
                    "training series": len(X),
                    "times": X.shape[1],
                    "model": model,
                    "seeds": n_seeds,
                    "test accuracy": accuracies[model],
                    "lowest": float(scores.min()),
                    "highest": float(scores.max()),
                    "seconds a fit": float(np.median(took)),
                }
            )
        gain = accuracies["ours, defaults"] - accuracies["ours, batch_size=64"]
        targets.append(Target(f"{name}: accuracy gained over a batch of 64", gain, 0.05))
    return rows, targets


# ---- patches of long series --------------------------------------------------------------------


def patches(size):
    """Accuracy on the published test parts: points as tokens, patches, and the nearest neighbour.

    Patches are chosen by cross-validation on the training part, for each of ``SETTINGS``; so is
    the last row, patches and settings together.
    """
    try:
        load = importlib.import_module("aeon.datasets").load_classification
    except ImportError:
        return [{"left out": "aeon is not installed, see the head of bench_small.py"}], []
    rows, gains = [], {}
    for name in size.long_series:
        train, test = (load(name, split=part) for part in ("train", "test"))
        chosen = []
        for settings in SETTINGS:
            validated = [(_validated(*train, form, settings), form) for form in PATCHES]
            best, form = max(validated, key=lambda pair: pair[0])
            plain = _tested(train, test, {}, settings, size.n_seeds)
            cut = _tested(train, test, form, settings, size.n_seeds)
            written = _written(settings) or "defaults"
            rows.append({"data": name, "model": f"ours, {written}", "validated": None} | plain)
            row = {"data": name, "model": f"ours, {written}, {_written(form)}", "validated": best}
            rows.append(row | cut)
            chosen.append(rows[-1])
            gains[f"{name}, {written}"] = cut["test accuracy"] - plain["test accuracy"]
        last = max(chosen, key=lambda row: row["validated"])
        rows.append(last | {"model": f"chosen: {last['model']}"})
        (X, y), (X_test, y_test) = train, test
        nearest = KNeighborsClassifier(1).fit(X.reshape(len(X), -1), y)
        score = float(nearest.score(X_test.reshape(len(X_test), -1), y_test))
        rows.append(
            {"data": name, "model": "nearest neighbour", "seeds": 1, "test accuracy": score}
        )
    lowest = min(gains, key=gains.get)
    return rows, [
        Target("mean gain of patches over points", float(np.mean(list(gains.values()))), 0.05),
        Target(f"lowest gain of patches over points, {lowest}", gains[lowest], -0.05),
    ]


def _validated(X, y, form, settings):
    """Mean accuracy in four folds of the training part."""
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    model = _ours(ResidualTransformerClassifier, 0, **settings)
    return float(cross_val_score(model, as_sequences(X, **form), y, cv=folds).mean())


def _tested(train, test, form, settings, n_seeds):
    """Accuracies on the test part, and seconds of a fit."""
    (X, y), (X_test, y_test) = [(as_sequences(X, **form), y) for X, y in (train, test)]
    models = [_ours(ResidualTransformerClassifier, seed, **settings) for seed in range(n_seeds)]
    scores, took = np.transpose([_fit(model, X, y, X_test, y_test) for model in models])
    return {
        "tokens": X.shape[1],
        "seeds": n_seeds,
        "test accuracy": float(np.median(scores)),
        "lowest": float(scores.min()),
        "highest": float(scores.max()),
        "seconds a fit": float(np.median(took)),
    }


def _ours(estimator, seed, **settings):
    """One of our estimators on the CPU, with its defaults except for the settings."""
    threads = torch.get_num_threads()
    return estimator(random_state=seed, device="cpu", n_threads=threads, **settings)


def _fit(model, X, y, X_test, y_test):
    """(test accuracy, seconds of the fit)."""
    took = seconds(model.fit, X, y)
    return model.score(X_test, y_test), took


class _Flat:
    """Ridge on the standardised readings of all times; leave-one-out chooses the penalty."""

    def __init__(self):
        self.model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-3, 5, 17)))

    def fit(self, X, y):
        self.model.fit(X.reshape(len(X), -1), y)

    def score(self, X, y):
        return self.model.score(X.reshape(len(X), -1), y)


def _fit_rocket(model, X, y, X_test, y_test):
    """As `_fit`, for a model of aeon that has been compiled."""
    X, X_test = X.swapaxes(1, 2), X_test.swapaxes(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.clone().fit(X, y)
        return _fit(model, X, y, X_test, y_test)


def _written(settings):
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


SECTIONS = {"rule": rule, "series": series, "patches": patches}


def main(argv=None, sizes=SIZES):
    return run("bench_small", "Small data: batch sizes, MiniRocket, ridge.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
