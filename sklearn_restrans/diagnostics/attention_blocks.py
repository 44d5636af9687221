"""Finds the attention blocks of a torch module and watches one forward of it.

A block is found by what it is made of (see :func:`attention_blocks`). Its output, Attn(X), is seen
by a hook. What the residual adds to it is not assumed but seen too: while the forward runs, torch
hands every operation to :class:`AttentionWatch`, which follows the output to its first addition.
The other operand is the residual and the sum is Z, whatever the module around the block looks like:
norm before or after, any coefficient, any layout.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .._model.transformer import ResidualTransformer
from .traces import LayerTrace

# Names of the projections of attention modules outside torch: GPT-2 and nanoGPT; DistilBERT; the
# Llama family; BART, OPT and CLIP. Their output is Attn(X), alone or first in a tuple.
_PROJECTIONS = (
    {"c_attn", "c_proj"},
    {"q_lin", "k_lin", "v_lin", "out_lin"},
    {"q_proj", "k_proj", "v_proj", "o_proj"},
    {"q_proj", "k_proj", "v_proj", "out_proj"},
)
# Arguments of these that are None unless the keys come from another sequence.
_OF_ANOTHER_SEQUENCE = ("encoder_hidden_states", "key_value_states")
_MASKS = ("key_padding_mask", "attention_mask")
# Operations by the names torch gives them, in and out of place.
_ADDS = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_SCALES = {"mul", "mul_", "multiply", "div", "true_divide", "__mul__", "__rmul__", "__imul__"}
_SAME = {"dropout", "dropout_", "contiguous", "clone", "detach", "to", "type", "type_as"}
_SAME |= {"float", "double", "half", "bfloat16"}
_VIEWS = {"view", "reshape", "expand", "flatten", "unflatten", "transpose", "permute", "__get__"}
# Additive masks hold the lowest number of some float type at forbidden keys, or -inf. Biases of
# the scores, which are additive masks as well, never come near.
_FORBIDDEN = -1e30

RECOGNISED = (
    "nn.MultiheadAttention (also inside nn.TransformerEncoderLayer and -DecoderLayer), "
    "ResidualTransformer, and attention modules named as in BERT, DistilBERT, GPT-2, Llama or BART"
)


def attention_blocks(module: nn.Module) -> dict[str, nn.Module]:
    """Attention blocks by their names, outermost first; one inside another is not listed again."""
    found: dict[str, nn.Module] = {}
    for name, part in module.named_modules():
        inside = any(name.startswith(f"{outer}.") or not outer for outer in found)
        if not inside and _is_block(part):
            found[name] = part
    return found


def _is_block(part: nn.Module) -> bool:
    children = {name for name, _ in part.named_children()}
    return (
        isinstance(part, nn.MultiheadAttention | ResidualTransformer)
        or any(names <= children for names in _PROJECTIONS)
        or _is_bert_style(part)
    )


def _is_bert_style(part: nn.Module) -> bool:
    """Heads in ``self``; W_O is ``output.dense``, and ``output`` adds and normalises as well."""
    parts = dict(part.named_children())
    return "self" in parts and isinstance(getattr(parts.get("output"), "dense", None), nn.Module)


@dataclass(eq=False)
class _Call:
    """One call of one block: what is known of it so far."""

    name: str
    arguments: dict[str, Any]
    tokens_first: bool = False
    weights: Tensor | None = None
    inputs: np.ndarray | None = None
    attention: np.ndarray | None = None
    output: np.ndarray | None = None

    @property
    def query(self) -> Tensor:
        for name in ("query", "hidden_states"):
            if isinstance(self.arguments.get(name), Tensor):
                return self.arguments[name]
        return next(value for value in self.arguments.values() if isinstance(value, Tensor))

    def array(self, tensor: Tensor) -> np.ndarray:
        """A copy as (n, T, d) in float64; the module may overwrite the tensor later."""
        if tensor.ndim not in (2, 3):
            raise ValueError(
                f"the tokens of attention block {self.name!r} must be (T, d) or (n, T, d), got "
                f"{tuple(tensor.shape)}."
            )
        # First to the CPU: not every device has float64.
        array = tensor.detach().cpu().to(torch.float64, copy=True).numpy()
        if array.ndim == 2:
            return array[None]
        return array.swapaxes(0, 1) if self.tokens_first else array

    def real_tokens(self, n: int, n_tokens: int) -> np.ndarray | None:
        """Mask (n, T), True at real tokens; None if nothing is masked."""
        padding = self.arguments.get("key_padding_mask")
        mask = self.arguments.get("attention_mask")
        if padding is not None:
            real = ~padding if padding.dtype == torch.bool else padding > _FORBIDDEN
            real = real[None] if real.ndim == 1 else real
        elif mask is None:
            return None
        elif mask.ndim == 2:  # as the kernels for unpadded batches take it
            real = mask > 0
        else:  # (n or 1, heads or 1, T or 1, T): a key that no query may see is padding
            allowed = mask if mask.dtype == torch.bool else mask > _FORBIDDEN
            real = allowed.any(dim=-2)
            while real.ndim > 2:
                real = real.any(dim=1)
        real = real.expand(n, -1) if len(real) == 1 else real
        if real.shape != (n, n_tokens):
            raise ValueError(
                f"the mask of attention block {self.name!r} has keys {tuple(real.shape)}, its "
                f"tokens are {(n, n_tokens)}; keys from a cache cannot be measured."
            )
        return None if real.all() else real.cpu().numpy()

    def trace(self) -> LayerTrace:
        assert self.inputs is not None and self.attention is not None and self.output is not None
        n, n_tokens = self.inputs.shape[:2]
        weights = self.weights
        if weights is not None:
            weights = weights[None] if weights.ndim == 3 else weights
            if (len(weights), *weights.shape[2:]) != (n, n_tokens, n_tokens):
                weights = None  # keys that are no tokens, such as bias_k
        values = None if weights is None else weights.detach().cpu().double().numpy()
        mask = self.real_tokens(n, n_tokens)
        return LayerTrace(self.inputs, self.attention, self.output, values, mask)


class AttentionWatch(TorchFunctionMode):
    """Watches forwards of the module that holds these blocks; see :meth:`forward`.

    The fast paths of nn.TransformerEncoder, its layers and nn.MultiheadAttention show no Z. Each
    asks ``has_torch_function``, which is true while a function mode is on, and stands aside.

    Parameters
    ----------
    blocks : dict of name -> module
        From :func:`attention_blocks`.
    residual_beta : float or None
        Coefficient to assume where no addition is seen; None refuses such a block.
    """

    def __init__(self, blocks: dict[str, nn.Module], residual_beta: float | None) -> None:
        super().__init__()
        self.blocks, self.residual_beta = blocks, residual_beta
        self._forget()

    def _forget(self) -> None:
        self.finished: list[_Call | LayerTrace] = []
        self.inside: _Call | None = None
        # Rescaled since the last attention began, by id: the tensor and what it was made of.
        self._scaled: dict[int, tuple[Tensor, Tensor]] = {}
        self._begun = False
        self._follow(None)

    def _follow(self, call: _Call | None, *outputs: Tensor) -> None:
        """Follow these outputs of a call from now on; None: nothing."""
        self.awaiting = call
        # Tensors by id; held, so that no id is given to another tensor meanwhile.
        self._tracked = {id(output): output for output in outputs}
        # Made since, by more than a rescaling: these are no residual.
        self._young: dict[int, Tensor] = {}

    @contextmanager
    def forward(self) -> Iterator[AttentionWatch]:
        """Watch what runs inside; the hooks go whatever happens."""
        self._forget()
        with ExitStack() as stack:
            for name, block in self.blocks.items():
                for handle in self._hooks(name, block):
                    stack.callback(handle.remove)
            stack.enter_context(self)
            yield self
            self._give_up()

    def traces(self) -> list[LayerTrace]:
        """One LayerTrace for each call of a block in the last forward, in their order."""
        calls = self.finished
        self._forget()
        return [call if isinstance(call, LayerTrace) else call.trace() for call in calls]

    # ---- hooks ------------------------------------------------------------------------------

    def _hooks(self, name: str, block: nn.Module) -> Iterator[Any]:
        if isinstance(block, ResidualTransformer):
            yield block.register_forward_pre_hook(self._own_layers, with_kwargs=True)
            return
        heads, last = block, block
        if _is_bert_style(block):
            heads, last = block.get_submodule("self"), block.get_submodule("output.dense")
        last_call: list[_Call | None] = [None]

        def begin(heads, args, kwargs):
            bound = inspect.signature(heads.forward).bind(*args, **kwargs)
            self._give_up()
            last_call[0] = self.inside = call = _opened(name, heads, bound)
            self._scaled, self._begun = {}, call is not None
            if call is not None and isinstance(heads, nn.MultiheadAttention):
                # Weights of each head; `end` gives the caller what it asked for.
                bound.arguments.update(need_weights=True, average_attn_weights=False)
                return bound.args, bound.kwargs
            return None

        def end(heads, args, kwargs, output):
            self.inside = None
            call = last_call[0]
            if call is not None and isinstance(output, tuple) and len(output) > 1:
                weights = output[1]
                if isinstance(weights, Tensor) and weights.ndim in (3, 4):
                    call.weights = weights
            if call is None or not isinstance(heads, nn.MultiheadAttention):
                return None
            return output[0], _as_asked(output[1], call.arguments)

        def emitted(last, args, output):
            call, last_call[0] = last_call[0], None
            if call is not None:
                self._emitted(call, output[0] if isinstance(output, tuple) else output)

        yield heads.register_forward_pre_hook(begin, with_kwargs=True)
        # Before the hooks of others, which see the weights that the caller asked for.
        yield heads.register_forward_hook(end, with_kwargs=True, prepend=True)
        yield last.register_forward_hook(emitted)

    def _own_layers(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        """The layers of our own model say themselves what they compute."""
        assert isinstance(model, ResidualTransformer)
        if model.arch.n_candidates is not None:
            raise ValueError("module holds a stack of candidates; pass one of them.")
        self._give_up()
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
        mask = bound.arguments.get("mask")
        real = None if mask is None else mask.cpu().numpy()
        for layer in model.traces(bound.arguments["x"], mask):
            arrays = (part.detach().cpu().double().numpy() for part in layer)
            self.finished.append(LayerTrace(*arrays, real))

    def _emitted(self, call: _Call, attention: Tensor) -> None:
        if self.residual_beta is not None:  # the module may overwrite both
            call.inputs, call.attention = call.array(call.query), call.array(attention)
        # Of what the block was given, only the masks are needed until the forward has ended.
        call.arguments = {name: call.arguments.get(name) for name in _MASKS}
        self._follow(call, attention)

    def _give_up(self) -> None:
        """The forward ended, or the next attention begins, and no addition was seen."""
        call = self.awaiting
        if call is None:
            return
        self._scaled, self._begun = {}, False
        self._follow(None)
        if self.residual_beta is None:
            raise ValueError(
                f"the output of attention block {call.name!r} was not seen to be added to "
                "something computed before it: it has no residual, or it is written otherwise "
                "than as a sum a + b; pass residual_beta=0.0 for none, otherwise the beta of "
                "Z = Attn(X) + beta X, where X is the input of the block."
            )
        assert call.inputs is not None and call.attention is not None
        call.output = call.attention + self.residual_beta * call.inputs
        self.finished.append(call)

    # ---- operations -------------------------------------------------------------------------

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.inside is not None and func is F.scaled_dot_product_attention:
            self._attended(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if self.awaiting is None and not (self._begun and name in _SCALES):
            return func(*args, **kwargs)
        operands = [*args[:2], *(kwargs[key] for key in ("input", "other") if key in kwargs)]
        mine = next((operand for operand in operands if id(operand) in self._tracked), None)
        if mine is not None and name in _ADDS and len(operands) == 2:
            return self._added(func, args, kwargs, operands, mine)
        result = func(*args, **kwargs)
        self._mark(name, args, operands, mine, result)
        return result

    def _attended(self, query, key, value, attn_mask=None, *args, **kwargs):
        """A kernel that returns no softmax matrices is told the same arguments."""
        call = self.inside
        call.weights = softmax_weights(query, key, value, attn_mask, *args, **kwargs)
        if attn_mask is not None and attn_mask.ndim == 4:
            call.arguments.setdefault("attention_mask", attn_mask)

    def _added(self, func, args, kwargs, operands, mine):
        """The output of attention is added to something: the residual, or a bias."""
        call = self.awaiting
        other = operands[1] if operands[0] is mine else operands[0]
        if not isinstance(other, Tensor) or other.shape != mine.shape or other is mine:
            result = func(*args, **kwargs)
            if result.shape == mine.shape:
                self._tracked[id(result)] = result
            return result
        if id(other) in self._young or id(other) in self._tracked:
            self._give_up()  # of a parallel feed-forward part, say
            return func(*args, **kwargs)
        source = self._scaled.get(id(other), (other, other))[1]
        # Copies before the addition, which may be in place.
        call.inputs, call.attention = call.array(source), call.array(mine)
        if mine is operands[1]:
            call.attention *= kwargs.get("alpha", 1)
        result = func(*args, **kwargs)
        call.output = call.array(result)
        self.finished.append(call)
        self._scaled, self._begun = {}, False
        self._follow(None)
        return result

    def _mark(self, name, args, operands, mine, result) -> None:
        """Note what an operation that is no addition made of which tensors."""
        results = [r for r in _as_tuple(result) if isinstance(r, Tensor)]
        if mine is not None and (name in _SAME or name in _SCALES):
            if results and results[0].shape == mine.shape:
                self._tracked[id(results[0])] = results[0]
            return
        if mine is not None and mine.ndim == 3 and _swaps_first_axes(name, args[1:]):
            self.awaiting.tokens_first = not self.awaiting.tokens_first
            self._tracked = {id(results[0]): results[0]}
            return
        tensors = [t for t in operands if isinstance(t, Tensor)]
        size = max((t.numel() for t in tensors), default=0)
        full = [t for t in tensors if t.numel() == size]
        old = not any(id(t) in self._young or id(t) in self._tracked for t in full)
        if full and old and name in _SAME | _SCALES | _VIEWS:
            if name in _SCALES and len(full) == 1:
                source = self._scaled.get(id(full[0]), (full[0], full[0]))[1]
                self._scaled |= {id(r): (r, source) for r in results if r is not full[0]}
            return
        if self.awaiting is not None:
            self._young |= {id(r): r for r in results}


def _as_tuple(result: Any) -> tuple:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _swaps_first_axes(name: str, axes: tuple) -> bool:
    """Whether an operation turns (n, T, d) into (T, n, d) or back."""
    axes = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
    return (name, *axes) in {("transpose", 0, 1), ("transpose", 1, 0), ("permute", 1, 0, 2)}


def _opened(name: str, heads: nn.Module, bound: inspect.BoundArguments) -> _Call | None:
    """The call that begins, or None for attention to another sequence, which has no X."""
    arguments = dict(bound.arguments)
    if isinstance(arguments.get("kwargs"), dict):  # what a forward takes as **kwargs
        arguments |= arguments["kwargs"]
    if any(arguments.get(key) is not None for key in _OF_ANOTHER_SEQUENCE):
        return None
    call = _Call(name, arguments)
    if isinstance(heads, nn.MultiheadAttention):
        query, key = arguments["query"], arguments["key"]
        if key is not query and not torch.equal(key, query):
            return None
        call.tokens_first = not heads.batch_first
    return call


def _as_asked(weights: Tensor | None, arguments: dict[str, Any]) -> Tensor | None:
    """Weights of each head as the caller of nn.MultiheadAttention asked for them."""
    if weights is None or not arguments.get("need_weights", True):
        return None
    return weights.mean(dim=-3) if arguments.get("average_attn_weights", True) else weights


def softmax_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Softmax matrices (n, h, T, T) of a call of F.scaled_dot_product_attention.

    Formula: softmax(Q K^T scale + mask). None for other shapes.
    """
    if query.ndim != 4 or query.shape[-2] != key.shape[-2]:
        return None
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-1, -2)
    if is_causal:
        later = scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if attn_mask is not None:
        blocked = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if blocked else scores + attn_mask
    return scores.softmax(-1)
