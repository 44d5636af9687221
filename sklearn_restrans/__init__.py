"""Transformers with a residual coefficient beta, as scikit-learn estimators."""

from . import _moved as _moved  # makes the old module names end in a sentence
from ._data.panels import as_sequences
from ._data.windows import SequenceView
from ._estimators.classifier import ResidualTransformerClassifier
from ._estimators.embedder import TextEmbedder
from ._estimators.ensemble import SeedEnsembleClassifier, SeedEnsembleRegressor
from ._estimators.pretrained import PretrainedTextClassifier, PretrainedTextRegressor
from ._estimators.regressor import ResidualTransformerRegressor
from .conditioning import Conditioning, measure_conditioning, module_conditioning
from .convergence import (
    Convergence,
    LinearConvergenceCertificate,
    LinearizedPrediction,
    ResidualBetaSuggestion,
    certify_linear_convergence,
    linearized_prediction,
    suggest_residual_beta,
)
from .diagnostics import attention_over_lags, channel_importance, lambda_skip_bound
from .exceptions import DivergenceError, RankCollapseWarning
from .model_selection import (
    AutoForecaster,
    BetaPath,
    ResidualTransformerClassifierCV,
    ResidualTransformerRegressorCV,
    StackedGridSearchCV,
    make_conditioning_scorer,
    make_convergence_scorer,
    make_crps_scorer,
    residual_beta_path,
)
from .plotting import (
    AttentionDisplay,
    BetaPathDisplay,
    ConvergenceDisplay,
    DepthProfileDisplay,
    IntervalDisplay,
    SpectrumDisplay,
)
from .text import SequenceVectorizer

__version__ = "0.1.0.dev0"

__all__ = [
    "AttentionDisplay",
    "AutoForecaster",
    "BetaPath",
    "BetaPathDisplay",
    "Conditioning",
    "Convergence",
    "ConvergenceDisplay",
    "DepthProfileDisplay",
    "DivergenceError",
    "IntervalDisplay",
    "LinearConvergenceCertificate",
    "LinearizedPrediction",
    "PretrainedTextClassifier",
    "PretrainedTextRegressor",
    "RankCollapseWarning",
    "ResidualBetaSuggestion",
    "ResidualTransformerClassifier",
    "ResidualTransformerClassifierCV",
    "ResidualTransformerRegressor",
    "ResidualTransformerRegressorCV",
    "SeedEnsembleClassifier",
    "SeedEnsembleRegressor",
    "SequenceVectorizer",
    "SequenceView",
    "SpectrumDisplay",
    "StackedGridSearchCV",
    "TextEmbedder",
    "as_sequences",
    "attention_over_lags",
    "certify_linear_convergence",
    "channel_importance",
    "lambda_skip_bound",
    "linearized_prediction",
    "make_conditioning_scorer",
    "make_convergence_scorer",
    "make_crps_scorer",
    "measure_conditioning",
    "module_conditioning",
    "residual_beta_path",
    "suggest_residual_beta",
]
