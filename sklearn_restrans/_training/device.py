"""Where and how torch runs: device, number type and threads of one call."""

from __future__ import annotations

import contextlib
import os
import threading
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


def resolve_dtype(
    dtype: str, x_dtype, work: int, device: torch.device, exact: bool = False
) -> torch.dtype:
    """Number type of weights and data; ``work`` is n T d of the training set.

    "auto" is float64 for solvers that need it to be ``exact``, wherever the device has it.
    """
    if dtype != "auto":
        if dtype == "float64" and device.type == "mps":
            raise ValueError("dtype='float64' does not exist on MPS; use dtype='float32'.")
        return _DTYPES[dtype]
    small = x_dtype == np.float64 and work <= _SMALL_WORK
    if device.type == "mps" or not (small or exact):
        return torch.float32
    return torch.float64


# ---- threads ------------------------------------------------------------------------------------
#
# A call borrows two settings: torch's number of threads, which torch keeps for every thread of the
# process and as a default for those to come, and that of numpy's BLAS, which the process has once.
# Calls in several threads overlap in any order, and each must leave what it found.

# Held while a setting changes, never while a model computes.
_lock = threading.RLock()
# Calls that have numpy's BLAS limited at present, and what ends the limit after the last of them.
_limiting: list[_Call] = []
_end_of_limit = None
_in_forked_child = False


class _Call:
    """One call of fit or predict, by the thread that it runs in."""

    def __init__(self):
        self.thread = threading.get_ident()


def _after_fork():
    """In a forked child: the calls and locks of the parent's other threads do not exist here."""
    global _lock, _in_forked_child, _end_of_limit
    _lock, _in_forked_child, _end_of_limit = threading.RLock(), True, None
    _limiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def own_threads(n_threads: int | None, *, limit_blas: bool = True):
    """Torch's threads for one call, None for the caller's; numpy's BLAS takes one.

    ``limit_blas`` False is for calls without linear algebra in numpy: to limit it takes 0.2 ms.
    Both are as they were afterwards, whatever other threads of the process do. In a forked child
    torch takes one thread: those of OpenMP do not survive a fork, and waiting for them would last
    for ever.
    """
    n_threads = 1 if _in_forked_child else n_threads
    call, before = _Call(), None
    try:
        with _lock:
            if limit_blas:
                _limit_blas(call)
            before = torch.get_num_threads()
        if n_threads not in (None, before):
            _set_threads_here(n_threads)
        yield
    finally:
        # A generator that nobody reads to its end may be closed by another thread.
        if before is not None and call.thread == threading.get_ident():
            if torch.get_num_threads() != before:
                _set_threads_here(before)
        with _lock:
            _release_blas(call)


def _set_threads_here(n_threads):
    """torch.set_num_threads for the present thread; threads to come keep the default they had.

    Torch sets both at once. A thread that never asked for its number is given the default, and
    whoever sets a number last sets the default: so one new thread reads it and sets it again.
    """
    read, changed = threading.Event(), threading.Event()

    def keep_default():
        default = torch.get_num_threads()
        read.set()
        changed.wait()
        torch.set_num_threads(default)

    with _lock:
        keeper = threading.Thread(target=keep_default, daemon=True)
        keeper.start()
        try:
            read.wait()
            torch.set_num_threads(n_threads)
        finally:
            changed.set()
            keeper.join()


@cache
def _numpy_blas() -> ThreadpoolController:
    """The BLAS libraries of numpy and scipy; finding them takes longer than setting them."""
    return ThreadpoolController().select(user_api="blas")


def _limit_blas(call):
    """One BLAS thread from the first call on.

    With two, many small decompositions take five times as long; and one for every call, so that
    what a call computes does not depend on those beside it.
    """
    global _end_of_limit
    _limiting.append(call)
    blas = _numpy_blas()
    if _end_of_limit is None and any(lib.num_threads != 1 for lib in blas.lib_controllers):
        _end_of_limit = _hold(lambda: blas.limit(limits=1))


def _release_blas(call):
    """The caller's number again after the last call."""
    global _end_of_limit
    if call in _limiting:
        _limiting.remove(call)
    if not _limiting and _end_of_limit is not None:
        _end_of_limit()
        _end_of_limit = None


def _hold(make_context):
    """Enter a context in a thread of its own, and return a function that leaves it.

    threadpoolctl lets the thread that set a limit, and no other, take it back.
    """
    entered, left = threading.Event(), threading.Event()

    def hold():
        try:
            with make_context():
                entered.set()
                left.wait()
        finally:
            entered.set()

    def leave():
        left.set()
        holder.join()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    entered.wait()
    return leave
