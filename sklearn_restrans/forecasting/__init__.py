"""Forecasting as supervised learning: targets, baselines, backtests, calendar features."""

from .backtest import backtest
from .calendar import CalendarFeatures
from .errors import mean_absolute_scaled_error
from .naive import PersistenceRegressor, SeasonalNaiveRegressor
from .supervised import make_supervised

__all__ = [
    "CalendarFeatures",
    "PersistenceRegressor",
    "SeasonalNaiveRegressor",
    "backtest",
    "make_supervised",
    "mean_absolute_scaled_error",
]
