"""
7. From the institute's raw file to tomorrow's temperature
==========================================================

Five months of weather every ten minutes, 21 variables, and the mark -9999 where a reading is
missing, as the Max Planck Institute in Jena serves it. ``fetch_jena_climate`` reads the file, turns
the marks into NaN, and warns that it did. ``CalendarFeatures`` adds the hour of the day, and
``make_supervised`` makes windows of one row in six of the last day. The model is told where a
reading is missing and learns what that means.

``backtest`` moves through the record: it fits on the past and forecasts the stretch that follows,
which keeps its true history. At the end the model reads the first 300 rows of the same record from
the raw Latin-1 file and forecasts the hours that come after its last one.

The files are ``jena/jena_2021_10min.csv.gz`` and ``jena/mpi_roof_2021_head_latin1.csv`` in the
folder named by the environment variable SKLEARN_RESTRANS_DATA; any other ``mpi_roof*.csv`` of the
institute works as ``--file``.
"""

import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import TARGET, command_line, finish, save
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import TimeSeriesSplit

from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor, SequenceView
from sklearn_restrans.datasets import fetch_jena_climate
from sklearn_restrans.forecasting import CalendarFeatures, backtest, make_supervised

DAY = 144  # rows of ten minutes
WINDOW, DILATION = 24, 6  # a row each hour of the last day

folder = Path(os.environ.get("SKLEARN_RESTRANS_DATA", ".")) / "jena"
parser = command_line(
    "Forecast from the raw file of the Jena station.",
    quick="two folds instead of five",
    weather=False,
)
parser.add_argument("--file", type=Path, default=folder / "jena_2021_10min.csv.gz")
parser.add_argument("--head", type=Path, default=folder / "mpi_roof_2021_head_latin1.csv")
args = parser.parse_args()

# %%
# The record. The warning names the columns with missing readings.
frame = fetch_jena_climate(args.file)
print(f"{frame.attrs['source']}: {len(frame):,} rows x {frame.shape[1]} variables")
print(f"missing readings: {frame.isna().sum()[lambda n: n > 0].to_dict()}")

# %%
# Windows, and the change over the next day as target.
calendar = CalendarFeatures(weekday=False, day_of_year=False)
X, y = make_supervised(
    calendar.fit_transform(frame), TARGET, horizon=DAY, window=WINDOW, dilation=DILATION
)
change = (y - frame[TARGET].to_numpy()[X.ends]).rename("change of T in 24 h")
change.attrs = {"horizon": [DAY]}

# %%
# The model. Five months are one season that never comes back in the test folds. So the nets are
# small, train for few epochs, and their forecasts are averaged over three seeds.
net = ResidualTransformerRegressor(
    loss="absolute_error",
    d_model=16,
    dropout=0.3,
    weight_decay=0.3,
    learning_rate_init=1e-3,
    max_iter=3,
)
model = SeedEnsembleRegressor(net, n_estimators=3, random_state=0)

# %%
# Rolling origin. The baseline is "tomorrow as today", and the folds leave a day between training
# and test targets.
no_change = DummyRegressor(strategy="constant", constant=0.0)
begun = time.perf_counter()
cv = TimeSeriesSplit(2 if args.quick else 5, gap=DAY - 1, test_size=14 * DAY)
scores = backtest(model, X, change, cv, baseline=no_change, period=DAY)
seconds = time.perf_counter() - begun
shown = scores[["fold", "test_start", "test_end", "n_train", "n_test", "MAE", "RMSE", "skill"]]
print(shown.to_string(index=False, float_format="{:.3f}".format))
print(f"{len(scores)} fits in {seconds:.0f} s")

# %%
# The raw file: Latin-1, CRLF, a quoted header, padded numbers. Its columns are the same.
model.fit(X, change)
head = fetch_jena_climate(args.head)
windows = SequenceView(calendar.transform(head), np.arange(len(head)), WINDOW, dilation=DILATION)
forecast = head[TARGET] + model.predict(windows)
forecast.index = head.index + pd.Timedelta(days=1)
truth = frame[TARGET].reindex(forecast.index)

# %%
# The picture.
fig, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4), layout="constrained", gridspec_kw={"width_ratios": [3, 2]}
)
left.plot(head.index, head[TARGET], color="0.6", label="the raw file")
left.plot(truth.index, truth, color="k", label="measured later")
left.plot(forecast.index, forecast, color="C0", ls="--", label="forecast, a day ahead")
left.set(ylabel=TARGET, title="From 300 rows of the raw file (in the training record)")
left.tick_params(axis="x", rotation=30)
left.legend()
right.bar(scores["fold"], scores["MAE"], color="C0", width=0.4, label="model")
persistence = scores["MAE"] / (1 - scores["skill"])
right.bar(scores["fold"] + 0.4, persistence, color="0.6", width=0.4, label="no change")
right.set(xlabel="fold (two weeks each)", ylabel="MAE [degC]", title="Backtest")
right.set_xticks(scores["fold"] + 0.2, scores["fold"])
right.margins(y=0.25)  # room for the legend above the bars
right.legend(ncols=2)
picture = save(fig, args, "raw_file_to_forecast")

# %%
# What this run found.
finish(
    args,
    picture,
    f"Over {len(scores)} folds of two weeks the model's MAE is {scores['MAE'].mean():.2f} degC, "
    f"that of 'no change' {persistence.mean():.2f} (skill {scores['skill'].mean():.2f}, better in "
    f"{(scores['skill'] > 0).sum()} of {len(scores)}): five months of one year are too little to "
    "learn a day-ahead forecast from; example 6 has eight years.",
)
