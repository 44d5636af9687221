"""Transformers with a residual coefficient beta, as scikit-learn estimators."""

from ._data import SequenceView
from ._training import DivergenceError
from .beta_path import BetaPath, residual_beta_path
from .classifier import ResidualTransformerClassifier
from .classifier_cv import ResidualTransformerClassifierCV
from .conditioning import Conditioning, conditioning
from .convergence import (
    Convergence,
    LinearConvergenceCertificate,
    LinearizedPrediction,
    ResidualBetaSuggestion,
    certify_linear_convergence,
    linearized_prediction,
    suggest_residual_beta,
)
from .model_selection import make_conditioning_scorer, make_convergence_scorer
from .plotting import ConvergenceDisplay, SpectrumDisplay
from .regressor import ResidualTransformerRegressor
from .regressor_cv import ResidualTransformerRegressorCV

__version__ = "0.1.0.dev0"

__all__ = [
    "BetaPath",
    "Conditioning",
    "Convergence",
    "ConvergenceDisplay",
    "DivergenceError",
    "LinearConvergenceCertificate",
    "LinearizedPrediction",
    "ResidualBetaSuggestion",
    "ResidualTransformerClassifier",
    "ResidualTransformerClassifierCV",
    "ResidualTransformerRegressor",
    "ResidualTransformerRegressorCV",
    "SequenceView",
    "SpectrumDisplay",
    "certify_linear_convergence",
    "conditioning",
    "linearized_prediction",
    "make_conditioning_scorer",
    "make_convergence_scorer",
    "residual_beta_path",
    "suggest_residual_beta",
]
