"""Transformers with a residual coefficient beta, as scikit-learn estimators."""

from ._data import SequenceView
from ._training import DivergenceError
from .classifier import ResidualTransformerClassifier
from .conditioning import Conditioning, conditioning
from .convergence import Convergence
from .model_selection import make_conditioning_scorer, make_convergence_scorer
from .regressor import ResidualTransformerRegressor

__version__ = "0.1.0.dev0"

__all__ = [
    "Conditioning",
    "Convergence",
    "DivergenceError",
    "ResidualTransformerClassifier",
    "ResidualTransformerRegressor",
    "SequenceView",
    "conditioning",
    "make_conditioning_scorer",
    "make_convergence_scorer",
]
