"""Which blocks are found, and what is seen of them while a forward runs."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchmodules import Block, D, Embedded, N, T, our_model

from sklearn_restrans.diagnostics.attention_blocks import (
    AttentionWatch,
    attention_blocks,
    softmax_weights,
)

# The same float64 sums of at most 16 terms in another order: a few eps, times the growth of three
# layers.
EXACT = {"rtol": 0, "atol": 1e-12}


def tokens(seed=0, n=N, n_tokens=T):
    return torch.randn(n, n_tokens, D, dtype=torch.float64, generator=generator(seed))


def generator(seed):
    return torch.Generator().manual_seed(seed)


def watched(module, *args, residual_beta=None, **kwargs):
    """Traces of one forward, and what it returned."""
    watch = AttentionWatch(attention_blocks(module), residual_beta)
    with torch.no_grad(), watch.forward():
        output = module.eval()(*args, **kwargs)
    return watch.traces(), output


def hooks_of(module):
    return [
        hook
        for part in module.modules()
        for table in (part._forward_hooks, part._forward_pre_hooks)
        for hook in table.values()
    ]


# ---- finding ----------------------------------------------------------------------------------


def test_blocks_are_found_once_and_by_name():
    encoder = Embedded(our_model(norm="pre")).encoder
    names = [f"layers.{k}.self_attn" for k in range(3)]
    assert list(attention_blocks(encoder)) == names
    assert list(attention_blocks(nn.Sequential(encoder, our_model()))) == [
        *(f"0.{name}" for name in names),
        "1",
    ]
    decoder = nn.TransformerDecoderLayer(D, 2, 16)
    assert list(attention_blocks(decoder)) == ["self_attn", "multihead_attn"]
    assert attention_blocks(nn.Linear(2, 2)) == {}
    shared = nn.ModuleList([encoder.layers[0]] * 2)
    assert list(attention_blocks(shared)) == ["0.self_attn"]


def test_a_block_inside_a_block_is_not_counted_twice():
    outer = nn.Module()
    outer.c_attn, outer.c_proj = nn.MultiheadAttention(D, 2), nn.Linear(D, D)
    assert list(attention_blocks(nn.Sequential(outer))) == ["0"]


# ---- what the residual adds ---------------------------------------------------------------------


def in_place(x, a):
    a += 0.5 * x
    return a


def in_place_on_the_residual(x, a):
    x += a
    return x


gain = torch.linspace(0.5, 2.0, D, dtype=torch.float64)
# How a block adds: the function, the coefficient of X, and the factor of the attention's output.
WAYS = {
    "x + a": (lambda x, a: x + a, 1.0, 1.0),
    "a + x": (lambda x, a: a + x, 1.0, 1.0),
    "beta x": (lambda x, a: 0.3 * x + a, 0.3, 1.0),
    "beta of zero": (lambda x, a: a + 0.0 * x, 0.0, 1.0),
    "a tensor beta": (lambda x, a: a + torch.sigmoid(torch.zeros(1)) * x, 0.5, 1.0),
    "alpha of X": (lambda x, a: torch.add(a, x, alpha=2.0), 2.0, 1.0),
    "alpha of Attn": (lambda x, a: torch.add(x, a, alpha=2.0), 1.0, 2.0),
    "twice scaled": (lambda x, a: 2 * (0.25 * x) + a, 0.5, 1.0),
    "dropout": (lambda x, a: x + F.dropout(a, 0.5, training=False), 1.0, 1.0),
    "layer scale": (lambda x, a: x + gain * a, 1.0, gain.numpy()),
    "in place": (in_place, 0.5, 1.0),
    "in place on X": (in_place_on_the_residual, 1.0, 1.0),
    "transposed": (lambda x, a: (x.transpose(0, 1) + a.transpose(0, 1)).transpose(0, 1), 1.0, 1.0),
}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_block_adds_is_seen(way, norm_first, seed):
    add, beta, factor = WAYS[way]
    block, x = Block(add, norm_first), tokens(seed)
    with torch.no_grad():
        q = block.norm(x) if norm_first else x
        expected = block.attention(q, q, q)[0].numpy() * factor
    X = x.numpy().copy()
    (trace,), _ = watched(block, x)
    np.testing.assert_allclose(trace.inputs, X, **EXACT)
    np.testing.assert_allclose(trace.attention, expected, **EXACT)
    np.testing.assert_allclose(trace.output, expected + beta * X, **EXACT)


def test_tokens_first_are_turned(seed):
    block, x = Block(batch_first=False), tokens(seed)
    turned = Block()
    turned.load_state_dict(block.state_dict())
    (first,), output = watched(block, x.transpose(0, 1))
    (second,), expected = watched(turned, x)
    for a, b in zip(first[:4], second[:4], strict=True):
        np.testing.assert_allclose(a, b, **EXACT)
    np.testing.assert_allclose(output.transpose(0, 1), expected, **EXACT)


def test_one_sequence_without_an_axis_for_it(seed):
    block, x = Block(), tokens(seed)
    (alone,), _ = watched(block, x[0])
    (among,), _ = watched(block, x)
    for a, b in zip(alone[:4], among[:4], strict=True):
        np.testing.assert_allclose(a, b[:1], **EXACT)


REFUSED = {
    "nothing is added": lambda x, a: 2 * a,
    "a parallel feed-forward part": lambda x, a: a + torch.tanh(x @ torch.eye(D).double()) + x,
    "itself": lambda x, a: a + a,
    "a bias": lambda x, a: a + torch.ones(D),
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_is_no_residual_is_refused_unless_a_coefficient_is_given(way, seed):
    block, x = Block(REFUSED[way]), tokens(seed)
    with pytest.raises(ValueError, match=r"attention block 'attention' was not seen .*=0\.0"):
        watched(block, x)
    assert hooks_of(block) == []
    (trace,), _ = watched(block, x, residual_beta=0.7)
    np.testing.assert_allclose(trace.inputs, x, **EXACT)
    np.testing.assert_allclose(trace.output, trace.attention + 0.7 * x.numpy(), **EXACT)


def test_a_coefficient_given_is_not_used_where_the_addition_is_seen(seed):
    (trace,), _ = watched(Block(), tokens(seed), residual_beta=9.0)
    np.testing.assert_allclose(trace.output, trace.attention + trace.inputs, **EXACT)


def test_attention_to_another_sequence_is_left_out(seed):
    layer = nn.TransformerDecoderLayer(D, 2, 16, batch_first=True).double()
    x, memory = tokens(seed), tokens(seed + 1, n_tokens=4)
    traces, _ = watched(layer, x, memory)
    assert len(traces) == 1
    np.testing.assert_allclose(traces[0].inputs, x, **EXACT)


def test_a_shared_block_is_a_layer_for_each_call(seed):
    block = Block()
    traces, _ = watched(nn.Sequential(block, block), tokens(seed))
    assert len(traces) == 2
    np.testing.assert_allclose(traces[1].inputs, np.maximum(traces[0].output, 0), **EXACT)


# ---- softmax matrices and masks -----------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{}, {"need_weights": False}, {"average_attn_weights": False}], ids=str
)
def test_the_caller_of_attention_gets_what_it_asked_for(asked, seed):
    class Asking(Block):
        def forward(self, x):
            attention, self.asked = self.attention(x, x, x, **asked)
            return x + attention

    block, x = Asking(), tokens(seed)
    expected = block.eval()(x).detach()
    weights = block.asked
    (trace,), output = watched(block, x)
    np.testing.assert_allclose(output, expected, **EXACT)
    assert (weights is None) == (block.asked is None)
    if weights is not None:
        np.testing.assert_allclose(block.asked, weights.detach(), **EXACT)
    assert trace.weights.shape == (N, 2, T, T)
    np.testing.assert_allclose(trace.weights.sum(-1), 1.0, **EXACT)


KERNELS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "allowed": {"attn_mask": torch.ones(T, T).tril().bool()},
    "added": {"attn_mask": torch.linspace(-3, 0, T * T, dtype=torch.float64).reshape(T, T)},
    "grouped": {"enable_gqa": True},
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_softmax_matrices_are_those_of_the_kernel(kernel, seed):
    options = KERNELS[kernel]
    n_keys = 2 if options.get("enable_gqa") else 4
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(N, h, T, 3, dtype=torch.float64, generator=draw) for h in (4, n_keys, n_keys)
    )
    weights = softmax_weights(q, k, v, **options)
    values = v.repeat_interleave(4 // n_keys, dim=1)
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    np.testing.assert_allclose(weights @ values, expected, **EXACT)
    assert softmax_weights(q, k[:, :, :2], v[:, :, :2]) is None


class Kernel(nn.Module):
    """Attention as nanoGPT writes it, on the kernel that returns no weights."""

    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.double()

    def forward(self, x, allowed):
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.c_attn(x).split(D, -1)
        )
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.c_proj(heads.transpose(1, 2).flatten(-2))


class KernelBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Kernel()

    def forward(self, x, allowed):
        return x + self.attention(x, allowed)


def test_padding_is_what_no_query_may_see(seed):
    real = torch.arange(T) < torch.tensor([T, 2, 4] * 3)[:, None]
    causal = torch.ones(T, T).tril().bool()
    allowed = real[:, None, None, :] & causal
    (trace,), _ = watched(KernelBlock(), tokens(seed), allowed)
    np.testing.assert_array_equal(trace.mask, real)
    later = np.triu(np.ones((T, T), dtype=bool), 1)
    assert trace.weights[:, :, later].max() == 0.0
    (trace,), _ = watched(KernelBlock(), tokens(seed), causal[None, None])
    assert trace.mask is None


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_padding_of_torch_attention(kind, seed):
    class Padded(Block):
        def forward(self, x, padding):
            return x + self.attention(x, x, x, key_padding_mask=padding)[0]

    padding = torch.arange(T) >= torch.tensor([T, 2, 4] * 3)[:, None]
    given = padding
    if kind == "float":
        given = torch.zeros(N, T, dtype=torch.float64).masked_fill(padding, -torch.inf)
    (trace,), _ = watched(Padded(), tokens(seed), given)
    np.testing.assert_array_equal(trace.mask, ~padding)
    assert trace.weights[padding[:, None, None, :].expand(trace.weights.shape)].max() == 0.0


def test_keys_that_are_no_tokens_leave_no_softmax_matrix(seed):
    block = Block()
    block.attention = nn.MultiheadAttention(D, 2, add_zero_attn=True, batch_first=True).double()
    (trace,), _ = watched(block, tokens(seed))
    assert trace.weights is None


# ---- our own model ------------------------------------------------------------------------------


def test_our_own_model_says_itself_what_it_computes(seed):
    model = our_model(seed, norm="pre")
    with torch.no_grad():
        model.beta.uniform_(0.2, 1.5, generator=generator(seed))
    x = torch.randn(N, T, 3, dtype=torch.float64, generator=generator(seed))
    traces, _ = watched(nn.Sequential(model, nn.Linear(2, 2).double()), x)
    for found, expected in zip(traces, model.traces(x), strict=True):
        for a, b in zip(found[:4], expected, strict=True):
            np.testing.assert_array_equal(a, b.detach())


def test_a_stack_of_candidates_is_refused():
    model = our_model(n_candidates=2)
    with pytest.raises(ValueError, match="stack of candidates"):
        watched(model, torch.zeros(N, T, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ({}, (N, T, T)),
        ({"need_weights": False}, None),
        ({"average_attn_weights": False}, (N, 2, T, T)),
    ],
)
def test_hooks_of_others_see_the_weights_that_the_caller_asked_for(asked, shape):
    class Asking(Block):
        def forward(self, x):
            return x + self.attention(x, x, x, **asked)[0]

    block, seen = Asking(), []
    block.attention.register_forward_hook(lambda _, args, output: seen.append(output[1]))
    with torch.no_grad():
        block(tokens())
    (trace,), _ = watched(block, tokens())
    before, during = seen
    assert (None if during is None else tuple(during.shape)) == shape
    if shape is not None:
        torch.testing.assert_close(during, before, **EXACT)
    assert trace.weights.shape == (N, 2, T, T)


def test_a_hook_of_others_that_changes_the_output_has_its_part_in_the_trace():
    block = Block()
    (plain,), _ = watched(block, tokens())
    block.attention.register_forward_hook(lambda _, args, output: (2 * output[0], output[1]))
    (doubled,), _ = watched(block, tokens())
    np.testing.assert_array_equal(doubled.attention, 2 * plain.attention)


@pytest.mark.parametrize(
    "add", [lambda x, a: x - a, lambda x, a: torch.lerp(x, a, 0.5), lambda x, a: sum([x, a])]
)
def test_a_residual_that_is_no_sum_of_two_is_named_as_a_reason(add):
    with pytest.raises(ValueError, match=r"otherwise than as a sum a \+ b; pass .*beta X"):
        watched(Block(add), tokens())


def test_hooks_go_after_a_forward_and_after_a_failure():
    def fails(x, a):
        raise RuntimeError("in the middle")

    block = Block(fails)
    kept = block.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="in the middle"):
        watched(block, tokens())
    assert len(hooks_of(block)) == 1
    kept.remove()
    watched(Block(), tokens())
    assert hooks_of(block) == []
