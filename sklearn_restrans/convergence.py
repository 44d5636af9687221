"""Public names about convergence; the code is in :mod:`sklearn_restrans.diagnostics`."""

from .diagnostics import (
    Convergence,
    LinearConvergenceCertificate,
    LinearizedPrediction,
    ResidualBetaSuggestion,
    certify_linear_convergence,
    linearized_prediction,
    suggest_residual_beta,
)

__all__ = [
    "Convergence",
    "LinearConvergenceCertificate",
    "LinearizedPrediction",
    "ResidualBetaSuggestion",
    "certify_linear_convergence",
    "linearized_prediction",
    "suggest_residual_beta",
]
