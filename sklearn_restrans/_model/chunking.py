"""How many sequences travel together through the model."""

from __future__ import annotations

from .architecture import Architecture
from .shortcuts import choose

# Numbers that the sequences of one pass may keep for its gradient. On the CPU 12 MB in float32:
# smaller passes pay for their number, larger ones leave the cache (benchmarks/bench_fit.py,
# "micro-batches"). Elsewhere 4 GB, so that no batch is too large for the memory of a usual GPU.
_KEPT_PER_PASS, _KEPT_ELSEWHERE = 3_000_000, 1_000_000_000


def sequences_per_pass(arch: Architecture, on_cpu: bool = True) -> int:
    """How many sequences to send through :func:`forward` at once.

    A sequence keeps T (f + 2 h) numbers on the folded route and about T (6 d + 2 m + 2 h T) on
    every other one.
    """
    T, h = arch.n_tokens, arch.n_heads
    if choose(arch) == "folded":
        kept = T * (arch.n_features + 2 * h)
    else:
        kept = T * (6 * arch.d_model + 2 * arch.d_ff + 2 * h * T)
    return max(fewest_sequences(arch), (_KEPT_PER_PASS if on_cpu else _KEPT_ELSEWHERE) // kept)


def fewest_sequences(arch: Architecture) -> int:
    """The fewest sequences that share a pass; of very long ones fewer, for their T^2 scores."""
    return min(16, max(1, 4_096 // arch.n_tokens))


def predict_chunk(arch: Architecture) -> int:
    """Sequences per forward pass without gradients.

    The same for every call on a model: matrix kernels choose by shape, so rows are equal to the bit
    only when they always travel in chunks of one size; a power of two, as kernels treat the rows
    that are left over differently. Small, as a single row pays for a whole chunk.
    """
    size = min(256, max(fewest_sequences(arch), sequences_per_pass(arch) // 4))
    return 1 << (size.bit_length() - 1)
