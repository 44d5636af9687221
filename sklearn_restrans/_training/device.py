"""Where and how torch runs: device, number type, threads and random state of one call."""

from __future__ import annotations

import contextlib
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

# n T d up to which float64 is used for float64 input: below it an epoch stays under about 0.2 s,
# and scikit-learn's equivalences (weights as repeated rows, ...) hold to its tolerance of 1e-7.
_SMALL_WORK = 1_000_000

_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}


def resolve_device(device: str) -> torch.device:
    """The torch device for a ``device`` parameter; "auto" is CUDA, then MPS, then the CPU.

    Raises
    ------
    ValueError
        If the name is not that of a device, or the device is not available.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        resolved = None
    if resolved is None or resolved.type not in ("cpu", "cuda", "mps"):
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps', got {device!r}."
        )
    missing = (
        resolved.type == "cuda"
        and not (torch.cuda.is_available() and (resolved.index or 0) < torch.cuda.device_count())
    ) or (resolved.type == "mps" and not torch.backends.mps.is_available())
    if missing:
        raise ValueError(
            f"device={device!r} is not available to this process "
            f"({torch.cuda.device_count()} CUDA devices are visible); use device='auto' or 'cpu'."
        )
    return resolved


def available_device(device: str) -> torch.device:
    """``device`` if it is there, else the CPU: for models that come from another machine."""
    try:
        return resolve_device(device)
    except ValueError:
        return torch.device("cpu")


def resolve_dtype(dtype: str, x_dtype, work: int, device: torch.device) -> torch.dtype:
    """Number type of weights and data; ``work`` is n T d of the training set."""
    if dtype != "auto":
        if dtype == "float64" and device.type == "mps":
            raise ValueError("dtype='float64' does not exist on MPS; use dtype='float32'.")
        return _DTYPES[dtype]
    if device.type == "mps" or x_dtype != np.float64 or work > _SMALL_WORK:
        return torch.float32
    return torch.float64


@cache
def _numpy_blas() -> ThreadpoolController:
    """The BLAS libraries of numpy and scipy; finding them takes longer than setting them."""
    return ThreadpoolController().select(user_api="blas")


def one_blas_thread():
    """A context for many small decompositions: two threads take five times as long for them."""
    return _numpy_blas().limit(limits=1)


@contextlib.contextmanager
def torch_state(n_threads: int | None, seed: int | None, device: torch.device):
    """Threads and random state for one call; both are the caller's again afterwards.

    The threads are torch's and those of numpy's BLAS.
    """
    before = torch.get_num_threads()
    n_threads = n_threads or before
    cuda = [device] if device.type == "cuda" else []
    if n_threads != before:
        torch.set_num_threads(n_threads)
    try:
        with (
            _numpy_blas().limit(limits=n_threads),
            torch.random.fork_rng(devices=cuda, enabled=seed is not None),
        ):
            if seed is not None:
                # Not torch.manual_seed: that would also seed the devices this call leaves alone.
                torch.default_generator.manual_seed(seed)
                if cuda:
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(seed)
                elif device.type == "mps":
                    torch.mps.manual_seed(seed)
            yield
    finally:
        if n_threads != before:
            torch.set_num_threads(before)
