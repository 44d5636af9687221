"""Conditioning of the attention in any torch module, on given inputs.

What a forward computes is watched by `attention_blocks`; here are the inputs, cut into chunks, and
the state of the module, which is borrowed for each forward and given back.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from .attention_blocks import RECOGNISED, AttentionWatch, attention_blocks
from .conditioning import Conditioning
from .measure import COUNTED_IN
from .traces import LayerTrace

__all__ = ["module_conditioning"]

# Numbers of the traces of a chunk, over all layers: 32 MB in float64.
_TRACED_NUMBERS = 4_000_000
_HALF = (torch.float16, torch.bfloat16)
# Arguments that have a row for each sequence and a column for each token, by the names that torch
# and transformers give them.
_PER_SEQUENCE = {"input_ids", "inputs_embeds", "attention_mask", "token_type_ids", "position_ids"}
_PER_SEQUENCE |= {"src_key_padding_mask", "key_padding_mask"}


def module_conditioning(
    module: nn.Module, inputs: Any, *, residual_beta: float | None = None, float64: bool = True
) -> Conditioning:
    """Conditioning of the attention of any torch module, before and after the residual.

    Attention blocks are found by hooks, and the residual by watching what the forward adds to
    their outputs. Attn(X) is the output of a block in the form in which it is added (after W_O and
    any scale of it). Z is its first sum with a tensor of the same shape that was computed before
    it, in front of a norm that follows. X is that tensor, without a coefficient that multiplied it
    since the attention began. Each call of a block is a layer, in the order of the calls, so that a
    block called twice is two layers.

    The first sum after attention with a same-shaped tensor computed earlier is taken for the
    residual, whatever `residual_beta` says. For a module that adds something else first (a position
    table, say) the result is wrong; pass its arrays to ``conditioning_from_traces``.

    Parameters
    ----------
    module : torch.nn.Module
        A module with self-attention: ``nn.MultiheadAttention`` (also in
        ``nn.TransformerEncoderLayer`` and ``nn.TransformerDecoderLayer``), the models of this
        package (``net_.module_`` of a fitted estimator), and attention modules built as in the
        BERT, DistilBERT, GPT-2, Llama and BART models of transformers. Attention to another
        sequence is left out, as it has no X.
    inputs : array-like, tuple, mapping, or iterable of these
        One batch or many: an array or tensor is the first argument of the forward, a tuple its
        positional and a mapping its keyword arguments. Anything else is read once as an iterable
        of batches, one at a time. A batch of one array is cut into chunks along axis 0. So is a
        batch whose further arrays have the names ``input_ids``, ``inputs_embeds``,
        ``attention_mask``, ``token_type_ids``, ``position_ids``, ``src_key_padding_mask`` or
        ``key_padding_mask`` in the forward and the same (n, T), n != T, as its first array. Every
        other batch runs whole, as does any where a block has its tokens along axis 0
        (``batch_first=False``): to bound memory then, pass an iterable of small batches. Tokens
        that the module masks as padding (``key_padding_mask``, ``attention_mask``) are not
        counted.
    residual_beta : float, default=None
        For blocks whose output is never seen to be added to anything, such as a bare
        ``nn.MultiheadAttention``: Z = Attn(X) + residual_beta X, where X is the input of the
        block. None refuses such blocks.
    float64 : bool, default=True
        Run the forward with float64 copies of the weights and inputs. False runs it in the
        module's own type, which saves the memory of the copies; float32 shows no condition number
        above about 1e7 to 1e8. Code that names a type itself, such as the float32 softmax of
        Llama, computes in that type either way.

    Returns
    -------
    result : Conditioning
        With one record, at epoch 0. Ranks are counted in the precision of float32, as those of
        fitted estimators.

    Raises
    ------
    TypeError
        If `module` is no eager torch module, `inputs` holds no numbers, or its forward needs other
        arguments.
    ValueError
        If no attention block is found or called; a block is not seen to have a residual; layers
        differ in their number of tokens or their width; the module is spread over devices, or in
        half precision with ``float64=False``; `inputs` is empty; or values are not finite.

    Notes
    -----
    The forward runs without gradients, dropout and autocast. Training flags, weights, buffers,
    gradients and torch's generators are afterwards as before, and the hooks are gone, also after
    an error. During a forward the module holds the float64 weights, so no other thread may use it.
    torch's fast paths, whose kernels and nested tensors hide Z, stand aside while operations are
    watched, so that no setting of the module or the process is touched. Compiled modules run
    uncompiled.

    Memory is that of the copies and of one chunk, whatever the number of sequences, or of one batch
    that is not cut. Of a module in half precision the float64 copies hold its weights exactly, so
    the result is that of these weights, without the rounding of activations.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> encoder = nn.TransformerEncoder(layer, num_layers=3)
    >>> result = module_conditioning(encoder, torch.randn(20, 5, 8))
    >>> result.n_layers, result.n_sequences, result.n_rows, result.d_model
    (3, 20, 100, 8)
    >>> bool((result.Z.sigma_min > result.attention.sigma_min).all())
    True
    """
    while isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module  # replicas would run outside the watch
    blocks = _checked_blocks(module)
    if residual_beta is not None and not np.isfinite(residual_beta):
        raise ValueError(f"residual_beta must be a finite number or None, got {residual_beta!r}.")
    runner = _Runner(module, blocks, residual_beta, float64)
    try:
        return Conditioning().record(0, runner.chunks(inputs), dtype=COUNTED_IN)
    except (RuntimeError, ValueError) as error:
        if float64 and _speaks_of_types(error):
            error.add_note(
                "The forward ran in float64, which the code of some modules does not expect; "
                "float64=False runs it in the module's own type."
            )
        raise


def _speaks_of_types(error: Exception) -> bool:
    """Whether the float64 of a forward may be the cause of its error."""
    return re.search(r"dtype|scalar type|float|double", str(error), re.IGNORECASE) is not None


def _checked_blocks(module: Any) -> dict[str, nn.Module]:
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule):
        what = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        raise TypeError(
            f"module must be an eager torch.nn.Module, got {what}; for a fitted estimator use "
            "measure_conditioning, for arrays conditioning_from_traces."
        )
    blocks = attention_blocks(module)
    if not blocks:
        raise ValueError(
            f"module holds no attention block that is recognised: {RECOGNISED}; got "
            f"{type(module).__name__}. For other blocks pass their arrays to "
            "conditioning_from_traces."
        )
    return blocks


class _Batch(NamedTuple):
    """Arguments of one call of the forward."""

    args: tuple
    kwargs: dict[str, Any]

    def arrays(self) -> list[Any]:
        return [value for value in (*self.args, *self.kwargs.values()) if _is_array(value)]

    def map(self, function: Any) -> _Batch:
        return _Batch(
            tuple(function(value) for value in self.args),
            {name: function(value) for name, value in self.kwargs.items()},
        )


class _Runner:
    """Runs the forward of a module on chunks of inputs and yields the traces of its layers."""

    def __init__(
        self,
        module: nn.Module,
        blocks: dict[str, nn.Module],
        residual_beta: float | None,
        float64: bool,
    ) -> None:
        self.module, self.watch = module, AttentionWatch(blocks, residual_beta)
        self.tokens_first = not all(
            getattr(block, "batch_first", True) for block in blocks.values()
        )
        tensors = [*module.parameters(), *module.buffers()]
        devices = {tensor.device for tensor in tensors} or {torch.device("cpu")}
        if len(devices) > 1 or devices == {torch.device("meta")}:
            raise ValueError(
                f"module must be on one device that holds values, got {sorted(map(str, devices))}; "
                "move it with module.to(device)."
            )
        self.device = devices.pop()
        own = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
        self.dtype = torch.float64 if float64 else own
        if self.dtype in _HALF:
            raise ValueError(
                f"float64=False runs the module in {own}, whose rounding hides condition numbers "
                "above 100 or 1,000; pass float64=True, or module.float()."
            )
        if float64 and self.device.type == "mps":  # which has no float64
            self.device = torch.device("cpu")
        self.substitutes = self._substitutes(float64)

    def _substitutes(self, float64: bool) -> dict[str, Tensor]:
        """What stands in for the module's tensors: float64 weights, and copies of buffers."""
        tensors = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        if float64:  # tied weights come once, and functional_call ties their other names
            tensors |= dict(self.module.named_parameters())
        return {
            name: (self._placed(tensor) if float64 else tensor).detach()
            for name, tensor in tensors.items()
        }

    def _placed(self, values: Any) -> Any:
        """An array on the module's device, in its type if it holds floats; all else as it is."""
        if not _is_array(values):
            return values
        if not isinstance(values, Tensor):
            if values.dtype.kind not in "fiub":
                raise TypeError(f"inputs must hold numbers, got dtype {values.dtype}.")
            values = torch.tensor(values)
        values = values.to(self.device)
        if values.is_complex():
            return values.to(torch.complex128 if self.dtype == torch.float64 else values.dtype)
        return values.to(self.dtype) if values.is_floating_point() else values

    # ---- chunks -------------------------------------------------------------------------------

    def chunks(self, inputs: Any) -> Iterator[list[LayerTrace]]:
        """Traces of all layers, chunk by chunk; the first chunk is one sequence, to learn sizes."""
        size, empty = 1, True
        for batch in _batches(inputs):
            _check_call(self.module, batch)
            n_rows = self._n_rows(batch)
            start = 0
            while n_rows is None or start < n_rows:
                # None keeps the batch whole: one call of the forward.
                stop = None if n_rows is None else min(start + size, n_rows)
                traces = self.traces(batch, slice(start, stop))
                if stop is not None:
                    _check_rows(len(traces[0].inputs), stop - start, n_rows)
                    numbers = sum(a.size for trace in traces for a in trace[:4] if a is not None)
                    size = max(1, _TRACED_NUMBERS * (stop - start) // max(numbers, 1))
                if len(traces[0].inputs):
                    empty = False
                    yield traces
                if stop is None:
                    break
                start = stop
        if empty:
            raise ValueError("inputs is empty; pass at least one sequence.")

    def _n_rows(self, batch: _Batch) -> int | None:
        """Number of rows that may be cut; None if the batch must stay whole.

        A second argument with n rows is not cut for that alone: a scale (d,), positions (T, d) or
        a mask (T, T) have n rows by chance, and a cut to one row would be broadcast silently.
        """
        arrays = batch.arrays()
        values = [*batch.args, *batch.kwargs.values()]
        if self.tokens_first or not np.ndim(arrays[0]):
            return None
        if any(not _is_array(value) and not _is_plain(value) for value in values):
            return None  # lists and the like, which may hold something for each sequence
        shape = tuple(arrays[0].shape)
        if len(arrays) > 1:
            names = [*inspect.signature(self.module.forward).parameters][: len(batch.args)]
            names += [""] * (len(batch.args) - len(names)) + [*batch.kwargs]
            named = [name for name, v in zip(names, values, strict=True) if _is_array(v)]
            alike = all(tuple(array.shape[:2]) == shape[:2] for array in arrays)
            if len(shape) < 2 or shape[0] == shape[1] or not alike:
                return None
            if not _PER_SEQUENCE.issuperset(named[1:]):
                return None
        return shape[0]

    def traces(self, batch: _Batch, rows: slice) -> list[LayerTrace]:
        """Traces of one forward."""
        if rows.stop is not None:
            batch = batch.map(lambda value: value[rows] if _is_array(value) else value)
        batch = batch.map(self._placed)
        with borrowed(self.module, self.device), self.watch.forward():
            functional_call(self.module, self.substitutes, batch.args, batch.kwargs)
        traces = self.watch.traces()
        shapes = {trace.inputs.shape for trace in traces}
        if len(shapes) != 1:
            raise ValueError(
                "all self-attention of the module must have one shape (n, T, d)"
                + (f", got {sorted(shapes)}; pass a part of it." if shapes else ", but none ran.")
            )
        return traces


@contextmanager
def borrowed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """The module in evaluation, without gradients and autocast; afterwards all is as before."""
    flags = [(part, part.training) for part in module.modules()]
    devices = [device] if device.type == "cuda" else []
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if any(_is_compiled(part) for part, _ in flags):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            # Not module.eval(), which a class may override to do more than this.
            for part, _ in flags:
                part.training = False
            yield
        finally:
            for part, training in flags:
                part.training = training


def _is_compiled(part: nn.Module) -> bool:
    in_place = getattr(part, "_compiled_call_impl", None) is not None
    return in_place or type(part).__name__ == "OptimizedModule"


# ---- inputs -------------------------------------------------------------------------------------


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _is_plain(value: Any) -> bool:
    """A setting of the forward, which holds nothing for each sequence."""
    return value is None or isinstance(value, bool | int | float | str)


def _batch(value: Any) -> _Batch:
    """One batch as arguments of the forward."""
    if isinstance(value, Mapping):
        return _Batch((), dict(value))
    if isinstance(value, tuple | list) and any(map(_is_array, value)):
        return _Batch(tuple(value), {})
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        return _Batch((value if _is_array(value) else np.asarray(value),), {})
    raise TypeError(
        "each batch of inputs must be an array, a tuple of arguments or a mapping of keyword "
        f"arguments, got {type(value).__name__}."
    )


def _batches(inputs: Any) -> Iterator[_Batch]:
    """The batches of inputs, read one at a time."""
    one = isinstance(inputs, Tensor | Mapping | tuple) or hasattr(inputs, "__array__")
    if not one and (isinstance(inputs, str | bytes) or not isinstance(inputs, Iterable)):
        raise TypeError(
            "inputs must be an array, a tuple of arguments, a mapping of keyword arguments, or an "
            f"iterable of these, got {type(inputs).__name__}."
        )
    for value in [inputs] if one else inputs:
        batch = _batch(value)
        if not batch.arrays():
            raise TypeError(
                "each batch of inputs must hold an array or tensor, got none; ask a tokenizer for "
                "return_tensors='pt'."
            )
        yield batch


def _check_rows(n_sequences: int, n_cut: int, n_rows: int) -> None:
    """Refuse inputs whose axis 0, along which they were cut, is not that of the sequences."""
    if n_cut < n_rows and n_sequences % n_cut:
        raise ValueError(
            f"{n_cut} of the {n_rows} rows of inputs reach attention as {n_sequences} sequences, "
            "so axis 0 is not that of the sequences; pass a list of batches of one sequence each, "
            "as the forward takes them."
        )


def _check_call(module: nn.Module, batch: _Batch) -> None:
    """Say which arguments the forward takes, rather than fail inside it."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*batch.args, **batch.kwargs)
    except TypeError as error:
        names = list(batch.kwargs) or f"{len(batch.args)} positional argument(s)"
        raise TypeError(
            f"inputs must fit forward{signature} of {type(module).__name__}, got {names}: {error}; "
            "pass a mapping of keyword arguments, such as {'input_ids': ..., 'attention_mask': "
            "...}."
        ) from error
