"""Displays of convergence, conditioning and forecasts. Matplotlib is imported for drawing only."""

from .attention import AttentionDisplay
from .beta_path import BetaPathDisplay
from .curves import ConvergenceDisplay
from .depth import DepthProfileDisplay
from .intervals import IntervalDisplay
from .spectra import SpectrumDisplay

__all__ = [
    "AttentionDisplay",
    "BetaPathDisplay",
    "ConvergenceDisplay",
    "DepthProfileDisplay",
    "IntervalDisplay",
    "SpectrumDisplay",
]
