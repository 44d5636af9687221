"""Conditioning of any torch module: the numbers of our own tracing, and a module left as it was."""

import random
import re
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torchmodules import Block, D, Embedded, F, N, T, our_model

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.conditioning import (
    LayerTrace,
    conditioning_from_traces,
    measure_conditioning,
    module_conditioning,
)
from sklearn_restrans.diagnostics import modules
from sklearn_restrans.diagnostics.measure import COUNTED_IN

SEEDS = [0, 1, 2]


def assert_same(found, expected, atol=1e-12):
    """Singular values to `atol` of the largest; what is computed from them to what that allows."""
    for of in ("attention", "Z"):
        a, b = getattr(found, of), getattr(expected, of)
        scale = b.sigma_max[..., None]
        np.testing.assert_allclose(
            a.singular_values / scale, b.singular_values / scale, rtol=0, atol=atol
        )
        np.testing.assert_array_equal(a.numerical_rank, b.numerical_rank)
    # The smallest value of one sequence and the condition number lose the digits that the largest
    # has more: below six here.
    frames = (result.to_frame().drop(columns="epoch") for result in (found, expected))
    pd.testing.assert_frame_equal(*frames, rtol=atol * 1e6, atol=atol * 10)


def of_ours(model, x, mask=None):
    with torch.no_grad():
        layers = model.traces(x, mask)
    real = None if mask is None else mask.numpy()
    chunk = [LayerTrace(*(part.numpy() for part in layer), real) for layer in layers]
    return conditioning_from_traces([chunk], dtype=COUNTED_IN)


def windows(seed, n=N):
    return torch.randn(n, T, F, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def padding(n=N):
    """True at padding, at the end and at the start."""
    lengths = torch.tensor([T, 2, 4] * n)[:n, None]
    behind, before = torch.arange(T) >= lengths, torch.arange(T) < T - lengths
    return torch.where(torch.arange(n)[:, None] % 2 == 0, behind, before)


# ---- against our own tracing with the same weights ----------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("seed", SEEDS)
def test_torch_encoder_with_our_weights(seed, norm, batch_first, masked):
    """At T = 6 and d = 8 with d / h = 4; ReLU as torch has it. 1e-12 of the largest value: sums of
    at most 12 float64 terms in another order, through three layers."""
    ours = our_model(seed, norm=norm)
    module, x = Embedded(ours, batch_first), windows(seed)
    pad = padding() if masked else None
    inputs = {"x": x, "src_key_padding_mask": pad} if masked else x
    expected = of_ours(ours, x, None if pad is None else ~pad)
    found = module_conditioning(module, inputs)
    assert_same(found, expected)
    assert found.n_rows == (int((~pad).sum()) if masked else N * T)
    assert np.isfinite(found.attention_entropy).all()


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_models_of_transformers_with_our_weights(checkpoints, family, attention):
    """Against TextEmbedder's copy of the same weights. Its own embedding and eps differ by rounding
    alone; the norms of random gains multiply it by up to a hundred."""
    import tinycheckpoints as tiny

    from sklearn_restrans import TextEmbedder

    folder = checkpoints(family)
    fitted = TextEmbedder(folder, dtype="float64").fit()
    ids, mask = tiny.encode(folder, tiny.TEXTS)
    model = tiny.transformers.AutoModel.from_pretrained(folder, attn_implementation=attention)
    found = module_conditioning(model, {"input_ids": ids, "attention_mask": mask})
    own_ids = torch.as_tensor(fitted._inputs.check(tiny.TEXTS))[:, : ids.shape[1]]
    np.testing.assert_array_equal((own_ids != 0).sum(1), mask.sum(1))
    expected = of_ours(fitted.encoder_, own_ids, own_ids != 0)
    assert_same(found, expected, atol=1e-12)
    assert found.n_layers == tiny.LAYERS and found.n_rows == int(mask.sum())
    assert next(model.parameters()).dtype == torch.float32


def test_residuals_that_a_model_scales_are_seen(checkpoints):
    """X stays X, where Z = Attn(X) + beta X, for the beta of each layer; 0 is no special case."""
    import tinycheckpoints as tiny

    from sklearn_restrans import TextEmbedder

    beta = np.array([[0.5, 2.0], [0.0, 1.3], [1.7, 0.6]])
    folder = checkpoints("bert")
    fitted = TextEmbedder(folder, dtype="float64", residual_beta=beta).fit()
    scaled = tiny.scale_residuals(tiny.fresh_reference(folder), beta)
    ids, mask = tiny.encode(folder, tiny.TEXTS)
    found = module_conditioning(scaled, {"input_ids": ids, "attention_mask": mask})
    own_ids = torch.as_tensor(fitted._inputs.check(tiny.TEXTS))[:, : ids.shape[1]]
    assert_same(found, of_ours(fitted.encoder_, own_ids, own_ids != 0), atol=1e-11)
    np.testing.assert_array_equal(
        found.Z.singular_values[0, 1], found.attention.singular_values[0, 1]
    )


def test_llama_style_blocks_are_measured(seed):
    """Grouped keys, rotated positions; X of each layer is the hidden state before it."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24)
    config = transformers.LlamaConfig(vocab_size=40, num_key_value_heads=2, **sizes)
    model = transformers.AutoModel.from_config(config).double()
    ids = torch.randint(5, 30, (N, T), generator=torch.Generator().manual_seed(seed))
    found = module_conditioning(model, ids)
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
    for layer, state in enumerate(states[:-1]):
        X = state.numpy()
        alone = conditioning_from_traces([[LayerTrace(X, X, X)]], dtype=COUNTED_IN)
        assert alone.input_rank[0, 0] == found.input_rank[0, layer]
    assert found.n_layers == 3 and np.isfinite(found.attention_entropy).all()


def test_the_module_of_a_fitted_estimator(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, T, F)), rng.standard_normal(30)
    model = ResidualTransformerRegressor(0.5, n_layers=2, max_iter=2, random_state=seed).fit(X, y)
    expected = measure_conditioning(model, X)
    # What the estimator hands to its module: X scaled, in float64.
    codings = model._preprocessing
    source = codings.source(codings.inputs.check(X, None), torch.float64, torch.device("cpu"))
    x = source.take(np.arange(30))[0]
    assert_same(module_conditioning(model.net_.module_, x), expected)


def test_float32_shows_no_condition_number_above_1e7(seed):
    """X of condition 1e9 in a layer whose attention is zero: in float64 it is seen, in float32 the
    rounding of X, at most 6e-8 of its entries, takes the place of the smallest value."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, D)))[0] for n in (N * T, D))
    X = (left * np.geomspace(1, 1e-9, D) @ right.T).reshape(N, T, D)
    block = Block()
    with torch.no_grad():
        for weight in block.attention.parameters():
            weight.zero_()
    for dtype, float64, low, high in (
        (torch.float64, True, 0.99e9, 1.01e9),
        (torch.float32, True, 0.99e9, 1.01e9),
        (torch.float32, False, 1e7, 3e8),
    ):
        found = module_conditioning(block.to(dtype), X, float64=float64).Z
        condition = found.sigma_max / found.sigma_last
        assert low < condition.item() < high


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_by_its_exact_weights(dtype, seed):
    module = Embedded(our_model(seed, norm="pre")).to(dtype)
    twin = Embedded(our_model(seed, norm="pre"))
    twin.load_state_dict(module.state_dict())  # into float64, exactly
    x = windows(seed).to(dtype)
    assert_same(module_conditioning(module, x), module_conditioning(twin, x.double()))
    with pytest.raises(ValueError, match=f"float64=False runs the module in {dtype}"):
        module_conditioning(module, x, float64=False)


def test_tied_weights_and_wrapped_modules_are_those_inside(seed):
    transformers = pytest.importorskip("transformers")
    sizes = dict(n_embd=16, n_layer=2, n_head=2, n_inner=24, n_positions=T)
    ends = dict(vocab_size=40, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends))
    assert model.lm_head.weight is model.transformer.wte.weight
    ids = torch.randint(5, 30, (N, T), generator=torch.Generator().manual_seed(seed))
    expected = module_conditioning(model.transformer, ids)
    assert_same(module_conditioning(model, ids), expected)
    assert_same(module_conditioning(nn.DataParallel(model), ids), expected)
    assert model.lm_head.weight is model.transformer.wte.weight


def test_a_decoder_of_transformers_is_measured_without_its_attention_to_the_encoder(seed):
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    config = transformers.BertConfig(
        vocab_size=40, is_decoder=True, add_cross_attention=True, **sizes
    )
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 30, (N, T), generator=draw)
    inputs = {"input_ids": ids, "encoder_hidden_states": torch.randn(N, 4, 16, generator=draw)}
    found = module_conditioning(transformers.BertModel(config), inputs)
    assert found.n_layers == 2 and found.n_rows == N * T


def test_a_shared_layer_counts_at_each_call(seed):
    module = Embedded(our_model(seed, norm="pre"))
    module.encoder.layers = nn.ModuleList([module.encoder.layers[0]] * 3)
    apart = Embedded(our_model(seed, norm="pre"))
    for layer in apart.encoder.layers:
        layer.load_state_dict(module.encoder.layers[0].state_dict())
    found = module_conditioning(module, windows(seed))
    assert found.n_layers == 3
    assert_same(found, module_conditioning(apart, windows(seed)))


# ---- inputs -------------------------------------------------------------------------------------


def test_every_form_of_inputs_gives_the_same(seed, monkeypatch):
    module, x, pad = Embedded(our_model(seed, norm="post")), windows(seed, 20), padding(20)
    whole = module_conditioning(module, (x, pad))
    # Chunks of a few sequences.
    monkeypatch.setattr(modules, "_TRACED_NUMBERS", 5_000)
    parts = [slice(0, 7), slice(7, 8), slice(8, 20)]
    for inputs in (
        (x, pad),
        (x.numpy(), pad.numpy()),
        {"x": x, "src_key_padding_mask": pad},
        [(x[part], pad[part]) for part in parts],
        ({"x": x[part], "src_key_padding_mask": pad[part]} for part in parts),
        ([x[part], pad[part]] for part in parts),
    ):
        assert_same(module_conditioning(module, inputs), whole)
    alone = module_conditioning(module, x)
    assert_same(module_conditioning(module, iter(x.split(6))), alone)
    assert alone.n_sequences == 20


def test_a_mask_between_tokens_is_not_cut_with_the_sequences(seed):
    """Six sequences of six tokens: axis 0 of the mask looks like that of the inputs."""
    module, x = Embedded(our_model(seed, norm="pre")).encoder, torch.randn(T, T, D).double()
    causal = torch.ones(T, T).triu(1).bool()
    found = module_conditioning(module, (x, causal))
    assert_same(found, module_conditioning(module, [(x[:2], causal), (x[2:], causal)]))


class Second(nn.Module):
    """`use(x, other)` before a block, whose forward calls its second argument `other` or by one of
    the names of padding."""

    def __init__(self, use):
        super().__init__()
        self.block, self.use, self.rows = Block(), use, []

    def forward(self, x, other=None, *more, attention_mask=None, size=None):
        self.rows.append(len(x))
        if other is None and attention_mask is None:
            return self.block(x)
        return self.block(self.use(x, other if attention_mask is None else attention_mask))


SECOND = {
    "scale (d,), n = d": (D, (D,), lambda x, s: x * s),
    "positions (T, d), n = T": (T, (T, D), lambda x, p: x + p),
    "mask (T, T), n = T": (T, (T, T), lambda x, m: m @ x),
    "for each sequence, by no known name": (N, (N, T), lambda x, m: x * m[..., None]),
}


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("form", ["tuple", "list", "mapping", "keyword", "more"])
def test_a_second_argument_that_happens_to_have_n_rows_is_not_cut(case, form, seed):
    """Cut with the sequences, it would be broadcast silently, first of all to the one sequence of
    the first chunk."""
    n, shape, use = SECOND[case]
    draw = torch.Generator().manual_seed(seed)
    x, other = torch.randn(n, T, D, generator=draw), torch.randn(shape, generator=draw)
    module = Second(use)
    name = "other"
    if form == "keyword" and case.startswith("mask"):
        name = "attention_mask"  # of n = T rows and columns: whose are they?
    inputs = {
        "tuple": (x, other),
        "list": [(x, other)],
        "mapping": {"x": x, "other": other},
        "keyword": {"x": x, name: other},
        "more": (x, other, other),
    }[form]
    found = module_conditioning(module, inputs)
    assert module.rows == [n]
    changed = use(x.double(), other.double())
    expected = module_conditioning(module.block, [changed[: n // 2], changed[n // 2 :]])
    assert_same(found, expected)


def test_a_square_mask_beside_token_ids_is_not_cut(seed):
    class Ids(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.block = nn.Embedding(20, D).double(), Block()

        def forward(self, input_ids, mask):
            x = self.table(input_ids)
            return x + self.block.attention(x, x, x, attn_mask=mask)[0]

    ids = torch.randint(0, 20, (T, T), generator=torch.Generator().manual_seed(seed))
    causal, module = torch.ones(T, T).triu(1).bool(), Ids()
    expected = module_conditioning(module, [(ids[:2], causal), (ids[2:], causal)])
    assert_same(module_conditioning(module, (ids, causal)), expected)


def test_which_batches_are_cut():
    x, mask = torch.randn(N, T, D), torch.ones(N, T)
    for inputs, cut in (
        (x, True),
        ({"x": x}, True),
        ({"x": x, "attention_mask": mask, "size": 3}, True),
        ((x, None), True),
        ({"x": x, "size": [T] * N}, False),  # of each sequence, perhaps
        ({"attention_mask": mask, "x": x}, False),
        ({"x": x, "attention_mask": mask[:, None]}, False),
        ({"x": x[:T], "attention_mask": mask[:T]}, False),
    ):
        module = Second(lambda x, m: x)
        module_conditioning(module, inputs)
        assert (module.rows[0] == 1) == cut


def test_memory_holds_one_chunk_whatever_the_number_of_sequences(monkeypatch):
    """Chunks are handed on one by one, each forward sees only its own, and no array of a chunk is
    left when the one after the next is made."""
    seen, alive, arrays = [], [], []
    module = Embedded(our_model(norm="pre"))
    module.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    monkeypatch.setattr(modules, "_TRACED_NUMBERS", 20_000)
    read = modules.Conditioning.record

    def record(self, epoch, chunks, **options):
        def counted():
            for chunk in chunks:
                alive.append(len(seen))  # forwards so far: one for each chunk asked for
                assert not any(array() is not None for old in arrays[:-1] for array in old)
                arrays.append([weakref.ref(trace.output) for trace in chunk])
                yield chunk

        return read(self, epoch, counted(), **options)

    monkeypatch.setattr(modules.Conditioning, "record", record)
    result = module_conditioning(module, windows(0, 300))
    numbers = 3 * (3 * T * D + 2 * T * T)  # of the traces of one sequence
    assert result.n_sequences == sum(seen) == 300
    assert alive == list(range(1, len(seen) + 1))
    assert seen[0] == 1 and max(seen) == 20_000 // numbers
    assert len(arrays) >= 10


# ---- the module is left as it was ---------------------------------------------------------------


def snapshot(module):
    return {
        "training": [part.training for part in module.modules()],
        "weights": {k: v.clone() for k, v in module.state_dict().items()},
        "gradients": {k: p.grad.clone() for k, p in module.named_parameters()},
        "ids": {k: id(p) for k, p in module.named_parameters()},
        "learns": [p.requires_grad for p in module.parameters()],
        "nested": getattr(module.encoder, "use_nested_tensor", None),
        "hooks": [len(p._forward_hooks) + len(p._forward_pre_hooks) for p in module.modules()],
        "random": (torch.get_rng_state(), random.getstate()[1], np.random.get_state()[1]),  # noqa: NPY002  the legacy generator is the global one
        "process": (
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
        ),
    }


def assert_equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        equal = torch.equal if isinstance(a, torch.Tensor) else np.array_equal
        assert equal(a, b)


def half_trained(fails):
    """A module with dropout, gradients, mixed training flags, and a draw in its forward."""

    class Drawing(Embedded):
        def forward(self, x, src_key_padding_mask=None):
            torch.rand(3)
            out = super().forward(x, src_key_padding_mask)
            if fails:
                raise RuntimeError("at the end")
            return out

    module = Drawing(our_model(norm="post")).float()
    module(windows(0).float()).square().sum().backward() if not fails else None
    for p in module.parameters():
        p.grad = torch.ones_like(p) if p.grad is None else p.grad
    module.train()
    module.encoder.layers[1].eval()
    module.W_in.requires_grad_(False)
    return module


@pytest.mark.parametrize("float64", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails, float64):
    module = half_trained(fails)
    before = snapshot(module)
    inputs = {"x": windows(0), "src_key_padding_mask": padding()}
    if fails:
        with pytest.raises(RuntimeError, match="at the end"):
            module_conditioning(module, inputs, float64=float64)
    else:
        module_conditioning(module, inputs, float64=float64)
    assert before["nested"]
    assert_equal(snapshot(module), before)


def test_training_mode_has_no_part_in_the_result(seed):
    module = Embedded(our_model(seed, norm="post"))  # torch's dropout is 0.1
    expected = module_conditioning(module.eval(), windows(seed))
    assert_same(module_conditioning(module.train(), windows(seed)), expected)


def test_buffers_that_a_forward_changes_are_as_before(seed):
    class Counting(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    for float64 in (True, False):
        module = Counting()
        module_conditioning(module, torch.randn(N, T, D).double(), float64=float64)
        assert module.calls.item() == 0


def test_the_fast_path_hides_nothing_and_comes_back(seed, monkeypatch):
    """In evaluation without gradients and with padding, torch hands nested tensors to the layers:
    the test sees that it does so before and after, and does not while Z is measured. The kernel of
    a whole layer is not called either."""
    module, x, pad = Embedded(our_model(seed, norm="post")).eval(), windows(seed), padding()
    pad = torch.arange(T) >= torch.tensor([T, 2, 4] * 3)[:, None]  # nested ones end in padding
    nested = []
    make = torch._nested_tensor_from_mask
    monkeypatch.setattr(
        torch, "_nested_tensor_from_mask", lambda *a, **k: nested.append(1) or make(*a, **k)
    )
    kernels, kernel = [], torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(
        torch, "_transformer_encoder_layer_fwd", lambda *a: kernels.append(1) or kernel(*a)
    )
    with torch.no_grad(), pytest.warns(UserWarning, match="nested tensors"):
        module(x, pad)
    assert len(nested) == 1 and len(kernels) == 3
    found = module_conditioning(module, (x, pad))
    assert len(nested) == 1 and len(kernels) == 3
    assert_same(found, of_ours(our_model(seed, norm="post"), x, ~pad))
    with torch.no_grad():
        module(x, pad)
    assert len(nested) == 2 and len(kernels) == 6


def test_autocast_and_gradients_of_the_caller_have_no_part(seed):
    module, x = Embedded(our_model(seed, norm="pre")).float(), windows(seed).float()
    expected = module_conditioning(module, x, float64=False)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert_same(module_conditioning(module, x, float64=False), expected)


def test_a_compiled_module_runs_uncompiled(seed):
    module = Embedded(our_model(seed, norm="pre"))
    expected = module_conditioning(module, windows(seed))
    compiled = torch.compile(module, backend="eager")
    assert_same(module_conditioning(compiled, windows(seed)), expected)


@pytest.mark.gpu
def test_inputs_go_to_the_device_of_the_module(seed):
    module = Embedded(our_model(seed, norm="post"))
    expected = module_conditioning(module, (windows(seed), padding()))
    # Sums in another order, and kernels of another library.
    assert_same(module_conditioning(module.cuda(), (windows(seed), padding())), expected, 1e-11)
    assert next(module.parameters()).is_cuda


# ---- bad input ----------------------------------------------------------------------------------


def encoder():
    return Embedded(our_model(norm="pre"))


class Widths(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.turn = Block(), nn.Linear(D, 4).double()
        self.second = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).double()

    def forward(self, x):
        return self.second(self.turn(self.first(x)))


class Idle(Block):
    def forward(self, x):
        return x


def with_meta():
    module = encoder()
    return module.to("meta")


BAD = {
    "no module": (lambda: np.zeros(3), windows(0), TypeError, "module must be .* got ndarray"),
    "an estimator": (
        ResidualTransformerRegressor,
        windows(0),
        TypeError,
        "got ResidualTransformerRegressor; for a fitted estimator use measure_conditioning",
    ),
    "a class": (lambda: Block, windows(0), TypeError, "got the class Block"),
    "no attention": (lambda: nn.Linear(3, 3), windows(0), ValueError, "holds no attention block"),
    "attention that is not called": (Idle, torch.zeros(2, T, D), ValueError, "but none ran"),
    "widths": (Widths, torch.randn(2, T, D), ValueError, r"one shape \(n, T, d\), got \[\(.*4\)"),
    "no values": (with_meta, windows(0), ValueError, "one device that holds values.*meta"),
    "keywords needed": (
        encoder,
        {"inputs": windows(0)},
        TypeError,
        "inputs must fit forward.*src_key_padding_mask.*pass a mapping of keyword",
    ),
    "too many": (encoder, (windows(0),) * 3, TypeError, "inputs must fit forward.*3 positional"),
    "text": (encoder, "text", TypeError, "inputs must be an array.*got str"),
    "a number": (encoder, 3, TypeError, "inputs must be an array.*got int"),
    "numbers": (encoder, [1.0, 2.0], TypeError, "each batch of inputs must be .* got float"),
    "objects": (encoder, np.array([["a"]]), TypeError, "inputs must hold numbers, got dtype <U1"),
    "nothing": (encoder, {"x": None}, TypeError, "must hold an array or tensor"),
    "empty": (encoder, windows(0)[:0], ValueError, "inputs is empty"),
    "no batch": (encoder, [], ValueError, "inputs is empty"),
    "NaN": (encoder, windows(0) * np.nan, ValueError, "layer 0 holds NaN or infinity"),
    "all padding": (
        encoder,
        (windows(0), torch.ones(N, T).bool()),
        ValueError,
        "at least one real token",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_sentence(case):
    make, inputs, kind, sentence = BAD[case]
    with pytest.raises(kind, match=sentence):
        module_conditioning(make(), inputs)


@pytest.mark.parametrize("beta", [np.nan, np.inf])
def test_a_coefficient_must_be_finite(beta):
    with pytest.raises(ValueError, match="residual_beta must be a finite number or None, got"):
        module_conditioning(encoder(), windows(0), residual_beta=beta)


def test_bare_attention_needs_a_coefficient(seed):
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.MultiheadAttention(D, 2, batch_first=True)

        def forward(self, x):
            return self.heads(x, x, x)[0]

    x = torch.randn(N, T, D, generator=torch.Generator().manual_seed(seed))
    with pytest.raises(ValueError, match=re.escape("attention block 'heads' was not seen")):
        module_conditioning(Alone(), x)
    module = Alone()
    none, some = (module_conditioning(module, x, residual_beta=beta) for beta in (0.0, 1.0))
    np.testing.assert_array_equal(none.Z.singular_values, none.attention.singular_values)
    assert some.get("sigma_min") > none.get("sigma_min")


def test_one_long_sequence_is_not_cut_into_tokens(seed, monkeypatch):
    """A forward that takes (T, d): axis 0 is not that of sequences."""
    module, x = Embedded(our_model(seed, norm="pre")).encoder, torch.randn(T, D).double()
    with pytest.raises(ValueError, match="axis 0 is not that of the sequences"):
        monkeypatch.setattr(modules, "_TRACED_NUMBERS", 10**6)
        module_conditioning(module, x)
    assert module_conditioning(module, [x[None]]).n_rows == T


def test_code_that_names_a_type_is_told_of_the_other_way(seed):
    class Naming(Block):
        def forward(self, x):
            return super().forward(x.float())

    module = Naming().float()
    x = torch.randn(N, T, D, generator=torch.Generator().manual_seed(seed))
    with pytest.raises(RuntimeError) as caught:
        module_conditioning(module, x)
    assert "float64=False runs it in the module's own type" in caught.value.__notes__[0]
    assert module_conditioning(module, x, float64=False).n_layers == 1


def test_errors_that_are_not_of_types_say_nothing_of_float64():
    for module, inputs in (
        (Second(lambda x, s: x * s), (torch.randn(N, T, D), torch.ones(N))),
        (Block(lambda x, a: x - a), torch.randn(N, T, D)),
        (encoder(), []),
    ):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            module_conditioning(module, inputs)
        assert not getattr(caught.value, "__notes__", [])
