"""One training under way: its data, its net, and what is recorded of it on a probe set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ._core import Architecture, ResidualTransformer
from ._data import TrainingSet
from ._descent import Objective, gradient_norm
from ._device import one_blas_thread
from .diagnostics.conditioning import Conditioning
from .diagnostics.measure import COUNTED_IN
from .diagnostics.traces import LayerTrace
from .exceptions import DivergenceError

# Numbers of X and of the softmax matrices of a chunk of traces: 4 MB each in float64.
_TRACED_NUMBERS = 500_000

# Sequences of the probe whose own singular values are recorded (see Conditioning.record).
_N_SPECTRA = 16


# Sequences of the probe set, and tokens (of 16 sequences at least) whose conditioning is measured,
# for conditioning_samples="auto": a record takes about a tenth of an epoch of 20,000 windows
# (benchmarks/bench_conditioning.py).
PROBE, _MEASURED_TOKENS, _FEWEST_MEASURED = 64, 1_024, 16


class Ready(NamedTuple):
    """Validated and scaled data as tensors, and the architecture for them."""

    arch: Architecture
    dtype: torch.dtype
    device: torch.device
    data: TrainingSet
    valid: TrainingSet | None


class Run:
    """One training under way: the net, and what is recorded of it on the probe set."""

    def __init__(self, net, rule, probe, ready, with_gradient, auto=False):
        lengths, n_tokens = probe.source.lengths, ready.arch.n_tokens
        if lengths is not None:
            n_tokens = lengths[probe.rows].mean()
        n = max(_FEWEST_MEASURED, int(_MEASURED_TOKENS // n_tokens))
        self.measured = _evenly(probe.rows, n) if auto else probe.rows
        self.net, self.rule, self.probe, self.ready = net, rule, probe, ready
        self.with_gradient = with_gradient
        self.conditioning, self.gradients = Conditioning(), []
        self._user_callbacks = net.callbacks_

    def record(self, epoch):
        """Conditioning, and loss and gradient norm, of the present weights on the probe set."""
        net, probe = self.net, self.probe
        with one_blas_thread():
            traces = self._finite_traces(epoch)
            self.conditioning.record(epoch, traces, _N_SPECTRA, COUNTED_IN)
        if self.with_gradient:
            net.module_.eval()
            loss, gradient = Objective(net.module_, net.criterion_, probe).gradient()
            self.gradients.append((epoch, loss, gradient_norm(gradient)))

    def check_outputs(self):
        """Refuse a model whose outputs on the probe set are not finite, or absurd.

        The loss of an epoch is that of the weights before each step, so it does not see the last
        one. Targets are standardised (or one-hot): a loss above 1e6, a thousand standard
        deviations, is divergence, whatever it was before.
        """
        loss = self.net.evaluate(self.probe)
        if not loss < 1e6:
            raise DivergenceError(
                f"the loss on {len(self.probe)} training rows is {loss:.4g} after the last step: "
                f"training diverged. {self.rule.advice}"
            )

    def _finite_traces(self, epoch):
        for chunk in layer_traces(self.net.module_, self.probe.source, self.measured):
            if not all(np.isfinite(layer.output).all() for layer in chunk):
                raise DivergenceError(f"Z is not finite after epoch {epoch}. {self.rule.advice}")
            yield chunk

    def release(self):
        """Give the net back without what belongs to this training."""
        self.net.callbacks_, self.net.generator = self._user_callbacks, None
        self.net.valid_set = self.net.descent = None


def _evenly(rows, n):
    """At most n of the rows, evenly spread."""
    return rows if n >= len(rows) else rows[np.arange(n) * len(rows) // n]


def exact_copy(module):
    """A copy in float64 on the CPU, without dropout."""
    exact = ResidualTransformer(module.arch).double()
    exact.load_state_dict(module.state_dict())
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
            x = x.double() if x.is_floating_point() else x  # token ids stay numbers of rows
            layers = exact.traces(x.cpu(), None if mask is None else mask.cpu())
        mask = None if mask is None else mask.cpu().numpy()
        yield [LayerTrace(*(part.numpy() for part in layer), mask) for layer in layers]
