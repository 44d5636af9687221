"""
7. From the institute's raw file to tomorrow's temperature, in one pipeline
===========================================================================

Five months of weather every ten minutes, 21 variables, the mark -9999 where a reading is missing,
as the Max Planck Institute in Jena serves it. ``fetch_jena_climate`` reads the file and turns the
marks into NaN, and says so; the pipeline adds the calendar, and the model takes one row in six of
the last day as its window. It is told where a reading is missing and learns what that means.

``backtest`` moves through the record: fit on the past, forecast the stretch that follows, which
keeps its true history. At the end the pipeline reads the first 300 rows of the same record from
the raw Latin-1 file and forecasts the hours that come after its last one.

The files are ``jena/jena_2021_10min.csv.gz`` and ``jena/mpi_roof_2021_head_latin1.csv`` of the
folder named by the environment variable SKLEARN_RESTRANS_DATA; any other ``mpi_roof*.csv`` of the
institute works as ``--file``.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import TimeSeriesSplit
from sklearn.pipeline import make_pipeline

from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor
from sklearn_restrans.datasets import fetch_jena_climate
from sklearn_restrans.forecasting import CalendarFeatures, backtest, make_supervised

TARGET = "T (degC)"
DAY = 144  # rows of ten minutes
folder = Path(os.environ.get("SKLEARN_RESTRANS_DATA", "."))

parser = argparse.ArgumentParser(description="Forecast from the raw file of the Jena station.")
parser.add_argument("--file", type=Path, default=folder / "jena" / "jena_2021_10min.csv.gz")
parser.add_argument("--head", type=Path, default=folder / "jena" / "mpi_roof_2021_head_latin1.csv")
parser.add_argument("--quick", action="store_true", help="two folds instead of five")
parser.add_argument("--output", type=Path, default=Path("output"), help="folder for the picture")
args = parser.parse_args()

# %%
# The record. The warning names what was blank.
frame = fetch_jena_climate(args.file)
print(f"{frame.attrs['source']}: {len(frame):,} rows x {frame.shape[1]} variables")
print(f"missing readings: {frame.isna().sum()[lambda n: n > 0].to_dict()}")
X, y = make_supervised(frame, TARGET, horizon=DAY)
change = (y - X[TARGET]).rename("change of T in 24 h")
change.attrs = {"horizon": [DAY]}

# %%
# One pipeline, from rows to forecast. It learns the change over the next day. Five months are one
# season that never comes back in the test folds, so the model is small, short of epochs, and the
# mean of three seeds.
model = ResidualTransformerRegressor(
    window=24,
    dilation=6,
    loss="absolute_error",
    d_model=16,
    dropout=0.3,
    weight_decay=0.3,
    learning_rate_init=1e-3,
    max_iter=3,
)
pipeline = make_pipeline(
    CalendarFeatures(weekday=False, day_of_year=False),
    SeedEnsembleRegressor(model, n_estimators=3, random_state=0),
)


# %%
# Rolling origin: the baseline is "tomorrow as today", and the folds leave a day between training
# and test targets.
no_change = DummyRegressor(strategy="constant", constant=0.0)
started = time.perf_counter()
cv = TimeSeriesSplit(2 if args.quick else 5, gap=DAY - 1, test_size=14 * DAY)
scores = backtest(pipeline, X, change, cv, baseline=no_change, period=DAY)
seconds = time.perf_counter() - started
shown = scores[["fold", "test_start", "test_end", "n_train", "n_test", "MAE", "RMSE", "skill"]]
print(shown.to_string(index=False, float_format=lambda v: f"{v:.3f}"))

# %%
# The raw file: Latin-1, CRLF, a quoted header, padded numbers. Its columns are the same.
pipeline.fit(X, change)
head = fetch_jena_climate(args.head)
forecast = head[TARGET] + pipeline.predict(head[X.columns])
forecast.index = head.index + pd.Timedelta(days=1)
truth = frame[TARGET].reindex(forecast.index)

args.output.mkdir(parents=True, exist_ok=True)
fig, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4), layout="constrained", gridspec_kw={"width_ratios": [3, 2]}
)
left.plot(head.index, head[TARGET], color="0.6", label="the raw file")
left.plot(truth.index, truth, color="k", label="what came")
left.plot(forecast.index, forecast, color="C0", ls="--", label="forecast, a day ahead")
left.set(ylabel=TARGET, title="From 300 rows of the raw file (in the training record)")
left.tick_params(axis="x", rotation=30)
left.legend()
right.bar(scores["fold"], scores["MAE"], color="C0", width=0.4, label="pipeline")
persistence = scores["MAE"] / (1 - scores["skill"])
right.bar(scores["fold"] + 0.4, persistence, color="0.6", width=0.4, label="no change")
right.set(xlabel="fold (two weeks each)", ylabel="MAE [degC]", title="Backtest")
right.set_xticks(scores["fold"] + 0.2, scores["fold"])
right.legend()
picture = args.output / "raw_file_to_forecast.png"
fig.savefig(picture, dpi=150)

# %%
# What this run found.
print(
    f"{picture}, {seconds:.0f} s for {len(scores)} fits\n"
    f"Over {len(scores)} folds of two weeks the pipeline's MAE is {scores['MAE'].mean():.2f} degC, "
    f"against {persistence.mean():.2f} of 'no change' (skill {scores['skill'].mean():.2f}, better "
    f"in {(scores['skill'] > 0).sum()} of {len(scores)}): five months of one year are too little "
    "to learn a day-ahead forecast from; example 6 has eight years."
)
