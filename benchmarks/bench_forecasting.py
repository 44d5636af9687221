"""Forecasts at published and stated protocols: errors and seconds, beside the usual yardsticks.

``python benchmarks/bench_forecasting.py [--quick] [--threads 2] [--only TABLE ...]``
"""

import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from _common import LEFT_OUT, Target, data_folder, flattened, light_gbm, run, seconds
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.datasets import fetch_jena_climate, load_nyc_weather
from sklearn_restrans.forecasting import CalendarFeatures, PersistenceRegressor, make_supervised

TARGET = "T (degC)"
HORIZON = 24


@dataclass(frozen=True)
class Size:
    """Numbers of seeds, hours, epochs and stations of one run."""

    n_seeds: int = 5
    n_hours: int | None = None
    window: int = 120
    n_epochs: int = 20
    stations: tuple = ("EWR", "JFK", "LGA")
    station_hours: int | None = None


SIZES = {
    "full": Size(),
    "quick": Size(n_seeds=2, n_hours=20_000, n_epochs=4, stations=("JFK",)),
}


def ours(seed, **settings):
    """Our regressor with its defaults, except for the loss, the seed and the threads."""
    return ResidualTransformerRegressor(
        loss="absolute_error",
        random_state=seed,
        device="cpu",
        n_threads=torch.get_num_threads(),
        **settings,
    )


def parts(size):
    """Windows of Jena's weather, targets, temperature now, and the rows of the three parts.

    The book protocol: five days of history, 24 hours ahead. The first half of the record trains,
    the next quarter validates, the last quarter tests; windows and targets lie inside their part.
    """
    frame = fetch_jena_climate(data_folder(), frequency="1h").iloc[: size.n_hours]
    calendar = CalendarFeatures(weekday=False)
    # The protocol takes the last rows even where hours are missing between them: max_gap=None.
    X, y = make_supervised(
        calendar.fit_transform(frame), TARGET, HORIZON, window=size.window, max_gap=None
    )
    full = ~X.partial
    X, y = X[full], y[full]
    y, n, ends = y.to_numpy(), len(frame), X.ends
    now = frame[TARGET].to_numpy()[ends]
    cut = [(0, n // 2), (n // 2, 3 * n // 4), (3 * n // 4, n)]
    rows = [
        np.flatnonzero((ends >= start + size.window - 1) & (ends < stop - HORIZON))
        for start, stop in cut
    ]
    return X, y, now, rows


def book(size):
    """Jena 2009-2016 hourly; the best recurrent network published has 2.39, with 14 variables."""
    if data_folder() is None:
        return LEFT_OUT
    X, y, now, (train, val, test) = parts(size)
    rows = _yardsticks(X, y, now, train, val, test)
    targets = []
    for name, base in (("ours", 0.0), ("ours, of the change", now)):
        forecasts, took = [], []
        for seed in range(size.n_seeds):
            model, goal = ours(seed, max_iter=size.n_epochs), y - base
            held_out = {"X_val": X[val], "y_val": goal[val]}
            took.append(seconds(model.fit, X[train], goal[train], **held_out))
            forecasts.append(base + model.predict(X))
        single = _row(name, forecasts, y, val, test, took)
        together = f"{name}, mean of {size.n_seeds} forecasts"
        many = _row(together, [np.mean(forecasts, axis=0)], y, val, test, [sum(took)])
        rows += [single, many]
        targets.append(
            Target(
                f"book protocol, mean test MAE, {name}", single["test MAE"], 2.35, at_least=False
            )
        )
        targets.append(
            Target(f"book protocol, test MAE, {together}", many["test MAE"], 2.30, False)
        )
        targets.append(Target(f"book protocol, longest fit, {name}", max(took), 30, at_least=False))
    return rows, targets


def _yardsticks(X, y, now, train, val, test):
    """Rows of persistence, ridge and LightGBM; the last two see the windows as a table."""
    rows = [_row("persistence", [now], y, val, test, [0.0])]
    flat = flattened(X, np.float32)
    models = {
        "ridge": make_pipeline(StandardScaler(), Ridge(1e3)),
        "LightGBM, 100 trees, absolute error": light_gbm(objective="mae"),
    }
    for name, model in models.items():
        took = seconds(lambda model=model: model.fit(flat[train], y[train]))
        rows.append(_row(name, [model.predict(flat)], y, val, test, [took]))
    return rows


def _row(name, forecasts, y, val, test, took):
    errors = {
        part: [mean_absolute_error(y[rows], forecast[rows]) for forecast in forecasts]
        for part, rows in (("validation", val), ("test", test))
    }
    return {
        "forecast": name,
        "seeds": len(forecasts),
        "validation MAE": float(np.mean(errors["validation"])),
        "test MAE": float(np.mean(errors["test"])),
        "sd over seeds": float(np.std(errors["test"], ddof=1)) if len(forecasts) > 1 else None,
        "longest fit (s)": float(max(took)),
    }


def stations(size):
    """New York airports with missing readings, 3 hours ahead; the last quarter of 2013 tests."""
    frame = load_nyc_weather("all")
    frame = frame[frame["station"].isin(size.stations)]
    frame = frame.groupby("station").head(size.station_hours or len(frame))
    calendar = CalendarFeatures(weekday=False, day_of_year=False)
    data = calendar.fit_transform(frame.drop(columns="station")).assign(station=frame["station"])
    X, y = make_supervised(data, TARGET, 3, window=24, group="station")
    now = PersistenceRegressor(TARGET).fit(X, y).predict(X)
    cut = y.index.sort_values()[3 * len(y) // 4]
    train = np.flatnonzero(y.index < cut - pd.Timedelta(hours=3))
    test, y = np.flatnonzero(y.index >= cut), y.to_numpy()
    forecasts, took = [], []
    for seed in range(size.n_seeds):
        model = ours(seed, max_iter=min(10, size.n_epochs))
        took.append(seconds(model.fit, X[train], (y - now)[train]))
        forecasts.append(now + model.predict(X))
    rows = [
        _row("persistence", [now], y, test, test, [0.0]),
        _row("ours, of the change", forecasts, y, test, test, took),
    ]
    return [{k: v for k, v in row.items() if k != "validation MAE"} for row in rows], []


SECTIONS = {"book protocol": book, "three stations": stations}


def main(argv=None, sizes=SIZES):
    return run("bench_forecasting", "Forecasts of weather.", SECTIONS, sizes, argv)


if __name__ == "__main__":
    sys.exit(main())
