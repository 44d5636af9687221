"""Searches over the residual coefficient, forecasts chosen by backtest, scorers of diagnostics."""

from .auto_forecaster import AutoForecaster
from .beta_path import residual_beta_path
from .beta_search import ResidualTransformerClassifierCV, ResidualTransformerRegressorCV
from .grid_search import StackedGridSearchCV
from .path_results import BetaPath
from .scorers import make_conditioning_scorer, make_convergence_scorer, make_crps_scorer

__all__ = [
    "AutoForecaster",
    "BetaPath",
    "ResidualTransformerClassifierCV",
    "ResidualTransformerRegressorCV",
    "StackedGridSearchCV",
    "make_conditioning_scorer",
    "make_convergence_scorer",
    "make_crps_scorer",
    "residual_beta_path",
]
