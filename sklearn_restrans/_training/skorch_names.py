"""skorch's names, in one place, so that a new release breaks one file."""

from skorch import NeuralNet
from skorch.callbacks import (
    BatchScoring,
    Callback,
    EarlyStopping,
    EpochScoring,
    EpochTimer,
    PrintLog,
)
from skorch.exceptions import SkorchException
from skorch.history import History
from skorch.utils import TeeGenerator

__all__ = [
    "BatchScoring",
    "Callback",
    "EarlyStopping",
    "EpochScoring",
    "EpochTimer",
    "History",
    "NeuralNet",
    "PrintLog",
    "SkorchException",
    "TeeGenerator",
]
