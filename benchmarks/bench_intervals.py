"""Intervals of forecasts: coverage, width and CRPS, beside those of MAPIE on the same predictions.

``python benchmarks/bench_intervals.py [--quick] [--only TABLE ...]``

One model of the point and one of quantiles are fitted with their defaults on the first part of a
series, calibrated on the next and tested on the last; all intervals are made of their predictions.
"Updated" intervals are issued row by row, each when the targets known at that hour, and no later
ones, have been told. Their rate is min(0.005, (1 - coverage) / (4 (gap + 1))), a quarter of what
could take alpha to 0 before a miss is noticed; it was written down before the test part was seen.
MAPIE's, and those of the CRPS, are told of whole days, since hour by hour they take minutes. Widths
are means over the finite intervals, and "infinite" is the share of the others; the quantiles of the
CRPS, 0.05, 0.15, ..., 0.95, are ends of intervals. Without MAPIE its rows are left out.
"""

import sys
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from _common import LEFT_OUT, Target, data_folder, run
from bench_etth1 import parts as etth1_parts
from bench_forecasting import HORIZON
from bench_forecasting import parts as jena_parts
from sklearn.base import BaseEstimator, RegressorMixin

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.forecasting import ConformalIntervals, crps_of_quantiles

COVERAGES = (0.8, 0.95)
# The ends of these intervals are the quantiles 0.05, 0.15, ..., 0.95 that the CRPS is taken of.
OF_CRPS = (0.1, 0.3, 0.5, 0.7, 0.9)
ALL = (*OF_CRPS, *COVERAGES)
DEFAULT_RATE = 0.005


def level_of(coverage, sign):
    """Level of the lower (-1) or upper (1) end of an interval."""
    return round((1 + sign * coverage) / 2, 6)


LEVELS = tuple(sorted(level_of(c, sign) for c in ALL for sign in (-1, 1)))


@dataclass(frozen=True)
class Size:
    """Hours of Jena and their history, hours of a month of ETTh1 and theirs, and what is ahead."""

    n_hours: int | None = None
    window: int = 120
    month: int = 30 * 24
    history: int = 336
    horizons: tuple = (1, 24, 48, 96)
    patch: int = 24
    max_iter: object = "auto"
    day: int = 24


SIZES = {"full": Size(), "quick": Size(n_hours=8_000, max_iter=1)}


class Remembered(RegressorMixin, BaseEstimator):
    """Predictions that were made before, found by their row number, the only column of X.

    Values (n,) are numbers; values (n, 2) the quantiles that an interval of this coverage ends in.
    """

    def __init__(self, values, coverage=None):
        self.values = values
        self.coverage = coverage
        self.n_features_in_ = 1  # by which MAPIE sees that it is fitted
        if values.ndim == 2:
            self.quantiles_ = level_of(coverage, -1), level_of(coverage, 1)
            self.predict_quantiles = self._found

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def _found(self, X):
        return self.values[np.asarray(X)[:, 0].astype(int)]

    def predict(self, X):
        found = self._found(X)
        return found if found.ndim == 1 else found.mean(axis=1)


def remembered(values, coverage):
    """Numbers as they are; of quantiles (n, q) at LEVELS the two ends of an interval."""
    if values.ndim == 1:
        return Remembered(values)
    return Remembered(values[:, [LEVELS.index(level_of(coverage, s)) for s in (-1, 1)]], coverage)


def rows_of(rows):
    return np.asarray(rows, dtype=float)[:, None]


# ---- intervals (n, 2) of each coverage ----------------------------------------------------------


def alone(values, test):
    """The ends that the quantiles have by themselves."""
    return {c: remembered(values, c).values[test] for c in ALL}


def calibrated(values, y, calibration, test):
    """Split-conformal around numbers, conformalised quantiles around quantiles."""
    ends = {}
    for c in ALL:
        found = ConformalIntervals(remembered(values, c))
        found.calibrate(rows_of(calibration), y[calibration])
        ends[c] = found.predict_interval(rows_of(test), c)
    return ends


def turns(test, gap, every):
    """What becomes known before each block of rows is issued, and the places of the block."""
    told = 0
    for start in range(0, len(test), every):
        known = max(told, start - gap)
        yield test[told:known], slice(start, start + every)
        told = known


def rate_of(coverage, gap):
    """The rate that "auto" is, for MAPIE."""
    return min(DEFAULT_RATE, (1 - coverage) / (4 * (gap + 1)))


def updated(values, y, calibration, test, gap, day, rate="auto"):
    """The same, told of every row as soon as its target is known."""
    ends = {}
    for c in ALL:
        model = remembered(values, c)
        found = ConformalIntervals(model, gap=gap, adaptation_rate=rate)
        found.calibrate(rows_of(calibration), y[calibration])
        ends[c] = np.empty((len(test), 2))
        for known, block in turns(test, gap, 1 if c in COVERAGES else day):
            if len(known):
                found.update(rows_of(known), y[known])
            ends[c][block] = found.predict_interval(rows_of(test[block]), c)
    return ends


def with_mapie(point, quantiles, y, calibration, test, gap, day):
    """MAPIE's intervals by name; none where it is not installed."""
    try:
        from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
    except ImportError:
        return {}
    told, asked = (rows_of(calibration), y[calibration]), rows_of(test)
    split = SplitConformalRegressor(Remembered(point), confidence_level=list(ALL), prefit=True)
    ends = split.conformalize(*told).predict_interval(asked)[1]
    of_quantiles = {}
    for c in ALL:
        low, high = remembered(quantiles, c).values.T
        three = [Remembered(column) for column in (low, high, low / 2 + high / 2)]
        cqr = ConformalizedQuantileRegressor(three, confidence_level=c, prefit=True)
        cqr.conformalize(*told)
        # By default it corrects each end by itself, which is another method.
        of_quantiles[c] = cqr.predict_interval(asked, symmetric_correction=True)[1][:, :, 0]
    return {
        "MAPIE, point": {c: ends[:, :, k] for k, c in enumerate(ALL)},
        "MAPIE, quantiles": of_quantiles,
        "MAPIE, point, updated": mapie_updated(point, y, told, test, gap, day),
    }


def mapie_updated(point, y, told, test, gap, day):
    """MAPIE's adaptive intervals of both coverages."""
    from mapie.regression import TimeSeriesRegressor

    ends = {}
    for c in COVERAGES:
        found = TimeSeriesRegressor(Remembered(point), method="aci", cv="prefit").fit(*told)
        blocks = []
        for known, block in turns(test, gap, day):
            if len(known):
                news = rows_of(known), y[known]
                found.adapt_conformal_inference(*news, gamma=rate_of(c, gap), confidence_level=c)
                found.update(*news)
            issued = found.predict(
                rows_of(test[block]), confidence_level=c, allow_infinite_bounds=True
            )
            blocks.append(issued[1][:, :, 0])
        ends[c] = np.concatenate(blocks)
    return ends


# ---- tables -------------------------------------------------------------------------------------


def scores(name, ends, y):
    """A row of the table: coverages and mean widths, and the CRPS of the ends."""
    row = {"intervals": name}
    for c in COVERAGES:
        low, high = ends[c].T
        finite = np.isfinite(high - low)
        row[f"coverage, {c:.0%}"] = float(np.mean((low <= y) & (y <= high)))
        row[f"width, {c:.0%}"] = float((high - low)[finite].mean()) if finite.any() else None
        row[f"infinite, {c:.0%}"] = float(np.mean(~finite))
    of_crps = [ends[c] for c in OF_CRPS if c in ends]
    row["CRPS"] = None
    if of_crps and np.isfinite(of_crps).all():
        levels = np.ravel([[level_of(c, sign) for sign in (-1, 1)] for c in OF_CRPS])
        order = np.argsort(levels)
        forecast = np.concatenate(of_crps, axis=1)[:, order]
        row["CRPS"] = crps_of_quantiles(y, forecast, levels[order])
    return row


def compared(place, point, quantiles, y, calibration, test, gap, day):
    """Rows of all methods on the same predictions, and their targets."""
    given = y, calibration, test
    found = {
        "point": calibrated(point, *given),
        "quantiles, as predicted": alone(quantiles, test),
        "quantiles": calibrated(quantiles, *given),
        "point, updated": updated(point, *given, gap, day),
        "quantiles, updated": updated(quantiles, *given, gap, day),
    }
    if gap:
        found[f"quantiles, updated, rate {DEFAULT_RATE}"] = updated(
            quantiles, *given, gap, day, rate=DEFAULT_RATE
        )
    with warnings.catch_warnings():
        # update() says at every call that two arguments, which are not passed, have no effect.
        warnings.filterwarnings("ignore", "\\s*This function behavior has been changed")
        peers = with_mapie(point, quantiles, *given, gap, day)
    rows = [scores(name, ends, y[test]) for name, ends in (found | peers).items()]
    targets = []
    for row in rows:
        if row["intervals"] in ("point, updated", "quantiles, updated"):
            off = max(abs(row[f"coverage, {c:.0%}"] - c) for c in COVERAGES)
            claim = f"{place}, {row['intervals']}, largest |coverage - asked|"
            targets.append(Target(claim, off, 0.02, at_least=False))
    for name in ("point", "quantiles"):
        if peers:
            apart = max(np.abs(found[name][c] - peers[f"MAPIE, {name}"][c]).max() for c in ALL)
            claim = f"{place}, {name}, largest |end - MAPIE's|"
            # Float32 predictions of a size of about 10.
            targets.append(Target(claim, float(apart), 1e-5, at_least=False))
    return rows, targets


def fitted(X, y, size):
    """Models of the point and of quantiles, with defaults."""
    settings = {"random_state": 0, "device": "cpu", "n_threads": torch.get_num_threads()}
    settings["max_iter"] = size.max_iter
    losses = {"squared_error": None, "quantile": LEVELS}
    return [
        ResidualTransformerRegressor(loss=loss, quantiles=levels, **settings).fit(X, y)
        for loss, levels in losses.items()
    ]


def jena(size):
    """Jena's hourly weather, 24 hours ahead, by the book protocol."""
    if data_folder() is None:
        return LEFT_OUT
    X, y, _, (train, calibration, test) = jena_parts(size)
    point, quantiles = fitted(X[train], y[train], size)
    predicted = point.predict(X), quantiles.predict_quantiles(X)
    return compared("Jena", *predicted, y, calibration, test, HORIZON - 1, size.day)


def etth1(size):
    """Oil temperature of ETTh1, standardised, by horizon; months 12/4/4."""
    if data_folder() is None:
        return LEFT_OUT
    form = {"patch": size.patch, "relative": "last"}
    X, y, (train, calibration, test) = etth1_parts(size, size.horizons, form)
    point, quantiles = fitted(X[train], y[train], size)
    point, quantiles = point.predict(X), quantiles.predict_quantiles(X)
    rows, targets = [], []
    for k, ahead in enumerate(size.horizons):
        # Each horizon by itself: what is one hour ahead is known before what is 96 ahead.
        of_horizon = point[:, k], quantiles[:, k], y[:, k]
        more, claims = compared(
            f"ETTh1, {ahead} ahead", *of_horizon, calibration, test, ahead - 1, size.day
        )
        rows += [{"hours ahead": ahead} | row for row in more]
        targets += claims
    return rows, targets


SECTIONS = {"Jena, 24 hours ahead": jena, "ETTh1, oil temperature, by horizon": etth1}


def main(argv=None, sizes=SIZES):
    return run("bench_intervals", __doc__.splitlines()[0], SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
