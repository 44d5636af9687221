"""Torch modules with the weights of our own model, and modules of a user's own."""

import torch
from torch import nn

from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.transformer import ResidualTransformer

N, T, F, D = 9, 6, 3, 8


def our_model(seed=0, **changes):
    """A float64 model with biases, every weight of it random, and beta = 1."""
    settings = {"n_layers": 3, "d_model": D, "n_heads": 2, "d_ff": 12, "biases": True}
    arch = Architecture(n_tokens=T, n_features=F, n_outputs=2, **(settings | changes))
    model = ResidualTransformer(arch).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name == "beta":
                continue
            weight.normal_(float(name.endswith("gain")), 0.4, generator=generator)
    return model.eval()


class Embedded(nn.Module):
    """Our embedding, and torch's own encoder with the weights of our layers."""

    def __init__(self, ours, batch_first=True):
        super().__init__()
        arch = ours.arch
        layer = nn.TransformerEncoderLayer(
            arch.d_model,
            arch.n_heads,
            arch.d_ff,
            activation=arch.activation,
            batch_first=batch_first,
            norm_first=arch.norm == "pre",
        )
        # Nested tensors, the fast path that hides Z, are possible without a norm in front only.
        nested = batch_first and arch.norm == "post"
        self.encoder = nn.TransformerEncoder(layer, arch.n_layers, enable_nested_tensor=nested)
        self.W_in, self.positions = nn.Parameter(ours.W_in), nn.Parameter(ours.positions)
        self.double()
        with torch.no_grad():
            for theirs, layer in zip(self.encoder.layers, ours.layers, strict=True):
                copy_layer(theirs, layer)

    def forward(self, x, src_key_padding_mask=None):
        x = x @ self.W_in + self.positions
        if not self.encoder.layers[0].self_attn.batch_first:
            return self.encoder(
                x.transpose(0, 1), src_key_padding_mask=src_key_padding_mask
            ).transpose(0, 1)
        return self.encoder(x, src_key_padding_mask=src_key_padding_mask)


def copy_layer(theirs, ours):
    """torch multiplies by transposed weights, and keeps those of Q, K and V in one."""
    theirs.self_attn.in_proj_weight.copy_(torch.cat([ours.W_Q.T, ours.W_K.T, ours.W_V.T]))
    theirs.self_attn.in_proj_bias.copy_(torch.cat([ours.b_Q, ours.b_K, ours.b_V]))
    theirs.self_attn.out_proj.weight.copy_(ours.W_O.T)
    theirs.self_attn.out_proj.bias.copy_(ours.b_O)
    for linear, weight, bias in (
        (theirs.linear1, ours.W_1, ours.b_1),
        (theirs.linear2, ours.W_2, ours.b_2),
    ):
        linear.weight.copy_(weight.T)
        linear.bias.copy_(bias)
    for norm, source in ((theirs.norm1, ours.norm_1), (theirs.norm2, ours.norm_2)):
        norm.weight.copy_(source.gain)
        norm.bias.copy_(source.shift)


class Block(nn.Module):
    """A user's own block: ``add(x, attention)`` is how it adds the residual to the output."""

    def __init__(self, add=lambda x, a: x + a, norm_first=False, batch_first=True):
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 2, batch_first=batch_first)
        self.norm, self.add, self.norm_first = nn.LayerNorm(D), add, norm_first
        self.double()

    def forward(self, x):
        q = self.norm(x) if self.norm_first else x
        attention, self.asked = self.attention(q, q, q)
        return torch.relu(self.add(x, attention))
