"""The torch modules compute the formulas of arXiv:2506.05249, and say so token by token.

The reference of this file is written from the formulas alone: numpy, float64, one sequence, one
token, one head at a time. Padding is not masked in it but cut off.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from coremodels import EXACT, MASKS, N, T, architecture, random_input, random_model

from sklearn_restrans._model import transformer
from sklearn_restrans._model.candidates import stack
from sklearn_restrans._model.products import average_tokens, last_token, read_token
from sklearn_restrans._model.transformer import ResidualTransformer, sinusoidal

# ---- the formulas, one token at a time -------------------------------------------------------


PHI = {
    "relu": lambda u: max(u, 0.0),
    "gelu": lambda u: u * 0.5 * (1.0 + math.erf(u / math.sqrt(2.0))),
    "tanh": math.tanh,
}


def normalise(row, gain, shift):
    mean, variance = np.mean(row), np.mean((row - np.mean(row)) ** 2)
    return (row - mean) / math.sqrt(variance + 1e-5) * gain + shift


def softmax(scores):
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def attention_row(W, X, t, n_heads):
    """Attn(X) at token t, and the softmax weights of every head."""
    width = W["W_Q"].shape[1] // n_heads
    heads, weights = [], []
    for h in range(n_heads):
        of_head = slice(h * width, (h + 1) * width)
        query = X[t] @ W["W_Q"][:, of_head]
        scores = [query @ (row @ W["W_K"][:, of_head]) / math.sqrt(width) for row in X]
        weights.append(softmax(scores))
        heads.append(
            sum(p * (row @ W["W_V"][:, of_head]) for p, row in zip(weights[-1], X, strict=True))
        )
    mixed = np.concatenate(heads)
    return (mixed @ W["W_O"] if n_heads > 1 else mixed), weights


def reference_layer(W, X, beta, arch):
    """A of one layer for one sequence X (T, d) of real tokens; also Attn(X) and Z."""

    def norm(rows, which):
        return np.array([normalise(r, W[which + ".gain"], W[which + ".shift"]) for r in rows])

    pre, post = arch.norm == "pre", arch.norm == "post"
    inputs = norm(X, "norm_1") if pre else X
    attention = np.array([attention_row(W, inputs, t, arch.n_heads)[0] for t in range(len(X))])
    z = attention + beta[0] * X
    Z = norm(z, "norm_1") if post else z
    inputs = norm(Z, "norm_2") if pre else Z
    hidden = [[PHI[arch.activation](u) for u in row @ W["W_1"] + W["b_1"]] for row in inputs]
    A = np.array(hidden) @ W["W_2"] + W["b_2"] + beta[1] * Z
    return (norm(A, "norm_2") if post else A), attention, z


def reference_sequence(model, x, real):
    """F of one sequence x (T, f) whose real tokens are listed; X, Attn and Z of every layer."""
    arch = model.arch
    W = {name: value.numpy() for name, value in model.state_dict().items()}
    rows = []
    for t in real:
        row = x[t, 0] * W["W_in"][t] if arch.embedding == "feature" else x[t] @ W["W_in"]
        rows.append(row + W["positions"][t] if arch.positions else row)
    X, traces = np.array(rows), []
    for index in range(arch.n_layers):
        prefix = f"layers.{index}."
        own = {k.removeprefix(prefix): v for k, v in W.items() if k.startswith(prefix)}
        A, attention, z = reference_layer(own, X, W["beta"][index], arch)
        traces.append((X, attention, z))
        X = A
    read = X[-1] if arch.readout == "last" else X.mean(axis=0)
    return read @ W["W_U"] + W["b_U"], traces


def reference(model, x, mask):
    every = np.ones(x.shape[:2], bool) if mask is None else mask.numpy()
    sequences = [
        reference_sequence(model, row, np.flatnonzero(real))
        for row, real in zip(x.numpy(), every, strict=True)
    ]
    return np.array([output for output, _ in sequences]), [traces for _, traces in sequences]


@pytest.mark.parametrize("embedding", ["linear", "feature"])
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_output_equals_the_formulas(norm, readout, embedding, seed):
    """Every combination of depth, heads, positions, activation and mask, on its own weights."""
    options = product((1, 2), (1, 2), ("learned", "sinusoidal", None), PHI, MASKS.values())
    for number, (n_layers, n_heads, positions, activation, mask) in enumerate(options):
        arch = architecture(
            n_layers=n_layers,
            n_heads=n_heads,
            positions=positions,
            activation=activation,
            norm=norm,
            readout=readout,
            embedding=embedding,
        )
        model = random_model(arch, seed + number)
        x = random_input(arch, seed + number)
        with torch.no_grad():
            output = model(x, mask).numpy()
        expected, _ = reference(model, x, mask)
        np.testing.assert_allclose(output, expected, rtol=0, atol=EXACT * np.abs(expected).max())


@pytest.mark.parametrize("width", [4, 5])
def test_sinusoidal_positions_are_those_of_vaswani(width):
    """sin(t / 10000^(2i/d)) in the even channels, the cosine in the odd ones."""
    table = sinusoidal(6, width)
    for t, channel in product(range(6), range(width)):
        angle = t / 10000.0 ** (2 * (channel // 2) / width)
        expected = math.cos(angle) if channel % 2 else math.sin(angle)
        # exp(-log) against a power: one rounding of an angle of at most 5
        assert abs(table[t, channel].item() - expected) < 4e-15
    model = ResidualTransformer(architecture(positions="sinusoidal", d_model=4))
    assert torch.equal(model.positions, sinusoidal(T, 4).float())
    assert "positions" not in dict(model.named_parameters())


# ---- against torch's own modules -------------------------------------------------------------


def multihead_attention(layer):
    """torch.nn.MultiheadAttention with the weights of a layer; one head has no W_O: identity."""
    d = layer.arch.d_model
    attention = torch.nn.MultiheadAttention(d, layer.arch.n_heads, bias=False, batch_first=True)
    W_O = torch.eye(d) if layer.W_O is None else layer.W_O.T
    with torch.no_grad():
        attention = attention.double()
        attention.in_proj_weight.copy_(torch.cat([layer.W_Q.T, layer.W_K.T, layer.W_V.T]))
        attention.out_proj.weight.copy_(W_O)
    return attention


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_attention_equals_torch_multihead_attention(n_heads, mask, seed):
    layer = random_model(architecture(d_model=8, n_heads=n_heads), seed).layers[0]
    X = torch.tensor(np.random.default_rng(seed).standard_normal((N, T, 8)))
    padding = None if mask is None else ~mask
    expected, expected_weights = multihead_attention(layer)(
        X, X, X, key_padding_mask=padding, average_attn_weights=False
    )
    attention, weights = layer.attend(X, mask)
    torch.testing.assert_close(attention, expected, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(weights, expected_weights, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_beta_one_is_torch_transformer_encoder_layer(n_heads, activation, norm, seed):
    """beta = 1 is the usual residual connection, so the usual layer must come out."""
    arch = architecture(d_model=8, n_heads=n_heads, activation=activation, norm=norm)
    layer = random_model(arch, seed).layers[0]
    usual = torch.nn.TransformerEncoderLayer(
        8, n_heads, 5, 0.0, activation, batch_first=True, norm_first=norm == "pre"
    ).double()
    own = multihead_attention(layer)
    with torch.no_grad():
        usual.self_attn.in_proj_weight.copy_(own.in_proj_weight)
        usual.self_attn.out_proj.weight.copy_(own.out_proj.weight)
        usual.self_attn.in_proj_bias.zero_()
        usual.self_attn.out_proj.bias.zero_()
        for linear, weight, bias in (
            (usual.linear1, layer.W_1, layer.b_1),
            (usual.linear2, layer.W_2, layer.b_2),
        ):
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
        for theirs, ours in ((usual.norm1, layer.norm_1), (usual.norm2, layer.norm_2)):
            theirs.weight.copy_(ours.gain)
            theirs.bias.copy_(ours.shift)
    X = torch.tensor(np.random.default_rng(seed).standard_normal((N, T, 8)))
    mask = MASKS["trailing"]
    output = layer(X, mask, torch.ones(2).double())
    expected = usual(X, src_key_padding_mask=~mask)
    torch.testing.assert_close(output[mask], expected[mask], rtol=EXACT, atol=EXACT)


# ---- beta ------------------------------------------------------------------------------------


def test_beta_zero_is_attention_alone(seed):
    model = random_model(architecture(), seed)
    model.beta.zero_()
    for _, attention, Z, _ in model.traces(random_input(model.arch, seed)):
        assert torch.equal(Z, attention)


def test_a_pair_acts_on_attention_and_feedforward(seed):
    """A - FFN is beta_ffn Z, and Z - Attn is beta_attention X, for each layer's own pair."""
    model = random_model(architecture(), seed)
    pairs = [(0.25, 2.0), (0.0, 0.5)]
    model.beta.copy_(torch.tensor(pairs))
    traces = model.traces(random_input(model.arch, seed))
    zero = torch.zeros(2).double()
    for index, (trace, (attention_beta, ffn_beta)) in enumerate(zip(traces, pairs, strict=True)):
        X, attention, Z, _ = trace
        torch.testing.assert_close(Z, attention + attention_beta * X, rtol=EXACT, atol=EXACT)
        A = model.layers[index].feedforward(Z, zero) + ffn_beta * Z
        if index == 0:
            torch.testing.assert_close(traces[1][0], A, rtol=EXACT, atol=EXACT)
        else:
            output = model(random_input(model.arch, seed))
            torch.testing.assert_close(output, model.unembed(A[:, -1]), rtol=EXACT, atol=EXACT)


def test_beta_is_a_weight_only_where_it_is_learned():
    beta = torch.tensor([[0.5, 1.0], [2.0, 0.0]])
    for learn_beta in (False, True):
        model = ResidualTransformer(architecture(learn_beta=learn_beta), beta)
        assert ("beta" in dict(model.named_parameters())) is learn_beta
        assert torch.equal(model.beta, beta)
    assert torch.equal(ResidualTransformer(architecture()).beta, torch.ones(2, 2))
    model.beta.data.zero_()
    assert beta[0, 0] == 0.5, "the model must not share the caller's tensor"


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_gradients_equal_finite_differences(norm, activation, seed):
    """With respect to the input, every weight, and beta."""
    arch = architecture(
        norm=norm, activation=activation, n_heads=2, learn_beta=True, d_ff=3, n_features=2
    )
    model = random_model(arch, seed)
    names, weights = zip(*model.named_parameters(), strict=True)
    x = random_input(arch, seed).requires_grad_()

    def function(x, *weights):
        state = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(model, state, (x, MASKS["trailing"]))

    assert torch.autograd.gradcheck(function, (x, *weights))


# ---- dropout ---------------------------------------------------------------------------------


def test_dropout_stands_on_attention_and_on_hidden_units(monkeypatch, seed):
    """If it drops everything, only the residuals and the bias are left."""
    monkeypatch.setattr(transformer, "dropout", lambda x, *_: 0.0 * x)
    model = random_model(architecture(n_layers=1), seed)
    X = torch.tensor(np.random.default_rng(seed).standard_normal((N, T, 4)))
    beta = torch.tensor([0.5, 2.0]).double()
    layer = model.layers[0]
    torch.testing.assert_close(layer(X, None, beta), 2.0 * (0.5 * X) + layer.b_2)


def test_dropout_is_inverted_and_only_while_training(seed):
    ones = torch.ones(200, 200)
    dropped = transformer.dropout(ones, 0.3, True, None)
    assert set(dropped.unique().tolist()) == {0.0, (1 / torch.tensor(0.7)).item()}
    # the share of zeros among 40,000: five standard errors
    assert abs((dropped == 0).double().mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 40_000)
    assert (
        transformer.dropout(ones, 0.3, False, None) is ones
        and transformer.dropout(ones, 0.0, True, None) is ones
    )

    arch = architecture(dropout=0.3)
    model, x = random_model(arch, seed), random_input(arch, seed)
    without = random_model(replace(arch, dropout=0.0), seed)
    assert not torch.allclose(model(x), without(x))
    assert torch.equal(model.eval()(x), without(x))


# ---- masks and read-out ----------------------------------------------------------------------


def test_the_value_of_padding_changes_nothing(seed):
    for readout, norm, name in product(("last", "mean"), (None, "pre"), ("trailing", "leading")):
        model = random_model(architecture(readout=readout, norm=norm), seed)
        x, mask = random_input(model.arch, seed), MASKS[name]
        other = torch.where(mask[..., None], x, torch.full_like(x, 1e3))
        assert torch.equal(model(x, mask), model(other, mask))


def test_read_out_of_last_and_mean_token():
    x = torch.arange(2.0 * 4 * 3).reshape(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1]]).bool()
    assert last_token(mask, 4).tolist() == [1, 3]
    assert last_token(None, 4) is None
    assert torch.equal(read_token(x, last_token(mask, 4)), torch.stack([x[0, 1], x[1, 3]]))
    assert torch.equal(read_token(x, None), x[:, 3])
    assert torch.equal(average_tokens(x, None), x.mean(1))
    expected = torch.stack([x[0, :2].mean(0), x[1, 1:].mean(0)])
    torch.testing.assert_close(average_tokens(x, mask), expected)


@pytest.mark.parametrize("embedding", ["linear", "feature"])
def test_an_input_of_another_shape_is_refused(embedding):
    """One token or one channel would broadcast to a wrong answer without a word."""
    model = random_model(architecture(embedding=embedding))
    f = model.arch.n_features
    for shape in ((N, 1, f), (N, T, f + 1), (N, T, 4), (N, T + 1, f), (T, f), (2, N, T, f)):
        message = rf"x must have shape \(n, T, f\).*T=4, f={f} and K=None; got \({shape[0]}, "
        with pytest.raises(ValueError, match=message):
            model(torch.zeros(shape).double())
    stacked = stack([model, model])
    with pytest.raises(ValueError, match="K=2; got"):
        stacked(torch.zeros(3, N, T, f).double())


# ---- what the diagnostics read ---------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_traces_are_the_matrices_of_the_formulas(norm, n_heads, seed):
    """X, Attn(X) and Z of every layer and sequence; Z = Attn(X) + beta X before a post norm."""
    model = random_model(architecture(norm=norm, n_heads=n_heads), seed)
    x, mask = random_input(model.arch, seed), MASKS["trailing"]
    with torch.no_grad():
        traces = model.traces(x, mask)
    _, expected = reference(model, x, mask)
    assert len(traces) == 2
    for index, trace in enumerate(traces):
        X, attention, Z, weights = trace
        assert {part.dtype for part in trace} == {torch.float64}
        assert weights.shape == (N, n_heads, T, T)
        for sequence in range(N):
            real = mask[sequence]
            for part, formula in zip(trace, expected[sequence][index], strict=False):
                np.testing.assert_allclose(part[sequence][real], formula, rtol=0, atol=EXACT * 100)
        beta = model.beta[index, 0]
        torch.testing.assert_close(Z, attention + beta * X)
        # Sums of at most 4 numbers that were divided by their sum.
        ones = torch.ones(N, n_heads, T).double()
        torch.testing.assert_close(weights.sum(-1), ones, rtol=0, atol=1e-15)
        assert not weights.masked_select(~mask[:, None, None, :]).any()


def test_z_keeps_its_rank_under_a_post_norm(seed):
    """Layer normalisation takes the mean of every row, hence one rank; Z stands before it."""
    arch = architecture(norm="post", d_model=8, n_features=16, positions=None)
    model = random_model(arch, seed)
    with torch.no_grad():
        for name, vector in model.named_parameters():
            if name.endswith("shift"):
                vector.zero_()
    x = torch.tensor(np.random.default_rng(seed).standard_normal((20, T, 16)))
    Z = model.traces(x)[0][2].flatten(0, 1)
    s = torch.linalg.svdvals(Z)
    assert s[-1] / s[0] > 1e-3
    normed = torch.linalg.svdvals(model.layers[0].norm_1(Z) / model.layers[0].norm_1.gain)
    assert normed[-1] / normed[0] < 1e-14
