"""Displays of convergence and conditioning. Matplotlib is imported when something is drawn."""

from .attention import AttentionDisplay
from .beta_path import BetaPathDisplay
from .curves import ConvergenceDisplay
from .depth import DepthProfileDisplay
from .spectra import SpectrumDisplay

__all__ = [
    "AttentionDisplay",
    "BetaPathDisplay",
    "ConvergenceDisplay",
    "DepthProfileDisplay",
    "SpectrumDisplay",
]
