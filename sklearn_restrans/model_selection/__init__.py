"""Searches over the residual coefficient, and scorers that carry diagnostics through any search."""

from .beta_path import residual_beta_path
from .beta_search import ResidualTransformerClassifierCV, ResidualTransformerRegressorCV
from .grid_search import StackedGridSearchCV
from .path_results import BetaPath
from .scorers import make_conditioning_scorer, make_convergence_scorer, make_crps_scorer

__all__ = [
    "BetaPath",
    "ResidualTransformerClassifierCV",
    "ResidualTransformerRegressorCV",
    "StackedGridSearchCV",
    "make_conditioning_scorer",
    "make_convergence_scorer",
    "make_crps_scorer",
    "residual_beta_path",
]
