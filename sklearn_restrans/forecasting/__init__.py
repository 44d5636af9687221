"""Forecasting as supervised learning: targets, baselines, backtests, intervals, calendars."""

from .backtest import backtest
from .calendar import CalendarFeatures
from .errors import crps_of_quantiles, crps_of_sample, mean_absolute_scaled_error
from .intervals import ConformalIntervals
from .mean import MeanForecaster
from .naive import PersistenceRegressor, SeasonalNaiveRegressor
from .ridge import RidgeForecaster
from .supervised import make_supervised

__all__ = [
    "CalendarFeatures",
    "ConformalIntervals",
    "MeanForecaster",
    "PersistenceRegressor",
    "RidgeForecaster",
    "SeasonalNaiveRegressor",
    "backtest",
    "crps_of_quantiles",
    "crps_of_sample",
    "make_supervised",
    "mean_absolute_scaled_error",
]
