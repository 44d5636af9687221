"""Measurements of models: conditioning, convergence, certificates and importance of channels."""

from .attention import AttentionOverLags, attention_over_lags
from .certificate import LinearConvergenceCertificate, certify_linear_convergence
from .collapse import LambdaSkipBound, lambda_skip_bound
from .conditioning import (
    Conditioning,
    MatrixConditioning,
    conditioning_from_traces,
    measure_conditioning,
)
from .convergence import Convergence
from .importance import channel_importance
from .linearized import (
    LinearizedPrediction,
    ResidualBetaSuggestion,
    linearized_prediction,
    suggest_residual_beta,
)
from .modules import module_conditioning
from .traces import LayerTrace

__all__ = [
    "AttentionOverLags",
    "Conditioning",
    "Convergence",
    "LambdaSkipBound",
    "LayerTrace",
    "LinearConvergenceCertificate",
    "LinearizedPrediction",
    "MatrixConditioning",
    "ResidualBetaSuggestion",
    "attention_over_lags",
    "certify_linear_convergence",
    "channel_importance",
    "conditioning_from_traces",
    "lambda_skip_bound",
    "linearized_prediction",
    "measure_conditioning",
    "module_conditioning",
    "suggest_residual_beta",
]
