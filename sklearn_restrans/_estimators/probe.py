"""What is recorded of a training on a fixed probe set of its sequences."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import torch

from .._model.transformer import ResidualTransformer
from .._training.descent import Objective, gradient_norm
from .._training.settings import FULL_BATCH
from ..diagnostics.collapse import rank_collapse_of
from ..diagnostics.conditioning import Conditioning
from ..diagnostics.measure import COUNTED_IN
from ..diagnostics.traces import LayerTrace
from ..exceptions import DivergenceError, RankCollapseWarning

# Numbers of X and of the softmax matrices of a chunk of traces: 4 MB each in float64.
_TRACED_NUMBERS = 500_000

# First names of modules that a warning looks past, to the line that called fit.
_OURS = ("sklearn_restrans", "sklearn.", "skorch", "joblib", "contextlib", "threadpoolctl")

# Squares of larger entries are no float64 numbers, and a matrix of them has no spectrum.
_LARGEST_ENTRY = 1e150

# Sequences of the probe whose own singular values are recorded (see Conditioning.record).
_N_SPECTRA = 16

# For conditioning_samples="auto": sequences of the probe set, and how many tokens of them, in 16
# sequences at least, the conditioning is measured on: a record then takes about a tenth of an epoch
# of 20,000 windows (benchmarks/bench_conditioning.py).
_PROBE, _MEASURED_TOKENS, _FEWEST_MEASURED = 64, 1_024, 16


class Probe:
    """Conditioning, loss and gradient of one net on a fixed part of its training set.

    Parameters
    ----------
    net : Net
    problem : Problem
    train : TrainingSet
        Its training part, as the trained part of the model sees it.
    settings : TrainingSettings
    seed : int
        Seed of the sequences drawn.
    advice : str
        What to lower if training diverged.
    """

    def __init__(self, net, problem, train, settings, seed, advice):
        auto = settings.conditioning_samples == "auto"
        size = _PROBE if auto else settings.conditioning_samples
        self.net, self.advice = net, advice
        self.data, self.seen = problem.train.subset(size, seed), train.subset(size, seed)
        self.rows = self._measured_rows(problem.arch.n_tokens) if auto else self.data.rows
        # The history of a descent on all rows has their gradient at every epoch.
        self.with_gradient = settings.solver not in FULL_BATCH
        self.conditioning, self.gradients = Conditioning(), []
        self.on_collapse, self.collapsed, self._warned = settings.on_collapse, False, False

    def _measured_rows(self, n_tokens):
        """Evenly spread rows of the probe set that hold enough tokens together."""
        rows, lengths = self.data.rows, self.data.source.lengths
        if lengths is not None:
            n_tokens = lengths[rows].mean()
        n = max(_FEWEST_MEASURED, int(_MEASURED_TOKENS // n_tokens))
        return rows if n >= len(rows) else rows[np.arange(n) * len(rows) // n]

    def record(self, epoch, *, over=False):
        """Conditioning, and loss and gradient norm, of the present weights.

        ``over`` says that training has ended, so that a collapse cannot stop it.
        """
        # Layers that are not trained do not change.
        frozen = self.net.module_.arch.n_trained == 0 and self.gradients
        traces = None if frozen else self._finite_traces(epoch)
        self.conditioning.record(epoch, traces, _N_SPECTRA, COUNTED_IN)
        if self.on_collapse != "ignore":
            self._watch(epoch, over)
        if self.with_gradient:
            self.net.module_.eval()
            objective = Objective(self.net.module_, self.net.criterion_, self.seen)
            loss, gradient = objective.gradient()
            self.gradients.append((epoch, loss, gradient_norm(gradient)))

    def _watch(self, epoch, over):
        """Note whether the last record shows rank collapse, and warn of the first that does."""
        found = rank_collapse_of(self.conditioning)
        self.collapsed = found is not None
        if found is None or self._warned:
            return
        self._warned = True
        beta = float(self.net.module_.layer_beta(found.layer)[0])
        end = ""
        if self.on_collapse == "stop" and not over:
            end = f" Training ends after {'the first epoch' if not epoch else 'this epoch'}."
        warnings.warn(
            f"{found.in_words(epoch)} Raise residual_beta (now {beta:.3g} in that layer), take "
            f"fewer layers, or pass on_collapse='ignore'.{end}",
            RankCollapseWarning,
            stacklevel=_level_of_caller(),
        )

    def _finite_traces(self, epoch):
        for chunk in layer_traces(self.net.module_, self.data.source, self.rows):
            largest = max(np.abs(layer.output).max() for layer in chunk)
            if not largest < _LARGEST_ENTRY:
                size = f"has entries of {largest:.1g}" if np.isfinite(largest) else "is not finite"
                raise DivergenceError(f"Z {size} after epoch {epoch}. {self.advice}")
            yield chunk


def _level_of_caller():
    """The stacklevel with which a warning of the caller points at the user's line.

    Between them stand this package and what runs its fits.
    """
    frame, level = inspect.currentframe().f_back, 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    return level


def exact_copy(module):
    """A copy in float64 on the CPU, without dropout."""
    exact = ResidualTransformer(module.arch).double()
    # First to the CPU, then to float64, which MPS does not have.
    exact.load_state_dict({name: value.cpu() for name, value in module.state_dict().items()})
    return exact.eval()


def layer_traces(module, source, rows):
    """Float64 layer traces of some rows of a source, on the CPU, a chunk at a time."""
    exact, arch = exact_copy(module), module.arch
    # Of texts the tokens they are padded to, however wide X is.
    longest = arch.n_tokens if source.lengths is None else int(source.lengths[rows].max())
    size = max(1, _TRACED_NUMBERS // (longest * (arch.d_model + arch.n_heads * longest)))
    for start in range(0, len(rows), size):
        x, mask = source.take(rows[start : start + size])
        with torch.inference_mode():
            x = x.cpu()
            x = x.double() if x.is_floating_point() else x  # token ids stay numbers of rows
            layers = exact.traces(x, None if mask is None else mask.cpu())
        mask = None if mask is None else mask.cpu().numpy()
        yield [LayerTrace(*(part.numpy() for part in layer), mask) for layer in layers]
