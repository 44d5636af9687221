"""Displays of convergence and conditioning. Matplotlib is imported when something is drawn."""

from .beta_path import BetaPathDisplay
from .curves import ConvergenceDisplay
from .spectra import SpectrumDisplay

__all__ = ["BetaPathDisplay", "ConvergenceDisplay", "SpectrumDisplay"]
