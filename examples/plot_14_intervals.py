"""
14. How sure is a forecast? Quantiles, intervals that hold, and intervals that follow the season
================================================================================================

A forecast of tomorrow's temperature is worth more with an interval that holds it in four cases of
five. This lesson makes one in three steps.

*Quantiles.* ``loss="quantile"`` predicts quantiles that never cross: wide where the training part
was uncertain, but nothing makes them hold as often as they should in months not seen.

*Calibration.* ``ConformalIntervals`` moves them by what they missed on rows that the model was not
fitted on. They hold as long as the future is like these rows.

*Updates.* It is not: weather changes with the season. ``update`` follows, once targets are known.

The first half of the record trains, the next quarter calibrates, the last quarter tests.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from _shared import HORIZON, TARGET, command_line, finish, hourly_weather, save
from matplotlib.dates import ConciseDateFormatter

from sklearn_restrans import IntervalDisplay, ResidualTransformerRegressor
from sklearn_restrans.forecasting import (
    CalendarFeatures,
    ConformalIntervals,
    crps_of_quantiles,
    make_supervised,
)

COVERAGE, DAY, MONTH = 0.8, 24, 30 * 24  # hours
args = command_line(
    "Forecasts with intervals.", quick="fewer epochs, and the last year of Jena only"
).parse_args()

# %%
# Windows of three days in patches of six hours, relative to their last hour; a day ahead.
frame, data, name = hourly_weather(args.data)
if args.quick:
    frame = frame.iloc[-365 * DAY :]
calendar = CalendarFeatures(weekday=False, day_of_year=False).fit_transform(frame)
X, y = make_supervised(
    calendar, TARGET, HORIZON, window=3 * DAY, patch=6, relative="last", relative_columns=[TARGET]
)
full = ~X.partial
X, y = X[full], y[full]
n, gap = len(y), HORIZON - 1
train, calibration, test = slice(n // 2), slice(n // 2 + gap, 3 * n // 4), slice(3 * n // 4, n)
truth = y[test].to_numpy()

# %%
# Quantiles. Their score, the CRPS, is in degrees, as the mean absolute error that it generalises.
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
model = ResidualTransformerRegressor(
    loss="quantile", quantiles=LEVELS, max_iter=4 if args.quick else "auto", random_state=0
).fit(X[train], y[train])
quantiles = model.predict_quantiles(X[test])
crps, mae = crps_of_quantiles(truth, quantiles, LEVELS), np.abs(quantiles[:, 2] - truth).mean()
print(f"{name}, a day ahead: CRPS {crps:.2f}, mean absolute error of the median {mae:.2f} degC")
ends = {"quantiles as predicted": quantiles[:, [0, -1]]}

# %%
# Calibrated once, and updated day by day. What is forecast a day ahead is known a day later, so an
# update stops ``gap`` rows before the rows that are forecast next. Misses come together and are
# noticed a day late, which the default rate of the updates allows for.
intervals = ConformalIntervals(model, gap=gap)
intervals.calibrate(X[calibration], y[calibration])
ends["calibrated once"] = intervals.predict_interval(X[test], COVERAGE)
days, told = [], test.start
for start in range(test.start, n, DAY):
    if start - gap > told:
        intervals.update(X[told : start - gap], y[told : start - gap])
        told = start - gap
    days.append(intervals.predict_interval(X[start : start + DAY], COVERAGE))
ends["updated every day"] = np.concatenate(days)

# %%
# Two weeks of the forecasts, and the share that each kind of interval holds over time.
fig, (above, below) = plt.subplots(2, 1, figsize=(10, 8), layout="constrained")
weeks = slice(n - MONTH, n - MONTH + 14 * DAY)
times = y.index + pd.Timedelta(hours=HORIZON)  # of the hours that are forecast
IntervalDisplay.from_estimator(
    intervals, X[weeks], y[weeks], coverage=(0.5, COVERAGE), x=times[weeks], ax=above
)
above.set(title=f"{name}: forecasts made a day before", ylabel=TARGET)
held = {}
for (kind, found), style in zip(ends.items(), (":", "--", "-"), strict=True):
    inside = pd.Series((found[:, 0] <= truth) & (truth <= found[:, 1]))
    width = np.median(found[:, 1] - found[:, 0])
    held[kind] = inside.mean()
    label = f"{kind}: {held[kind]:.0%}, {width:.1f} degC wide"
    below.plot(times[test], inside.rolling(MONTH).mean(), ls=style, label=label)
below.axhline(COVERAGE, color="0.6", lw=1)
below.set(title=f"share inside the {COVERAGE:.0%} interval, over the last 30 days")
below.xaxis.set_major_formatter(ConciseDateFormatter(below.xaxis.get_major_locator()))
below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, fontsize="small")
picture = save(fig, args, f"intervals_{data}")

# %%
# What this run found.
shares = ", ".join(f"{kind} {share:.0%}" for kind, share in held.items())
finish(
    args, picture, f"Asked for {COVERAGE:.0%}, the intervals of the last quarter hold: {shares}."
)
