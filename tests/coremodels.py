"""Small models of the torch core, with known shapes and random weights."""

import numpy as np
import torch

from sklearn_restrans._model.architecture import Architecture
from sklearn_restrans._model.transformer import ResidualTransformer

N, T = 3, 4
# Two orders of the same sums over at most 16 terms: a few eps, times the growth through two layers.
EXACT = 1e-12
MASKS = {
    "none": None,
    "trailing": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool(),
    "leading": torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]).bool(),
}


def architecture(**changes):
    """A small model of two layers; a table has one channel a token."""
    changes.setdefault("n_features", 1 if changes.get("embedding") == "feature" else 3)
    small = dict(n_tokens=T, n_outputs=2, n_layers=2, d_model=4, d_ff=5)
    return Architecture(**(small | changes))


def random_model(arch, seed=0):
    """A float64 model, every weight of it random: gains, biases and every beta too."""
    generator = torch.Generator().manual_seed(seed)
    model = ResidualTransformer(arch).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0.0, 0.6, generator=generator)
            if name.endswith("gain"):
                weight += 1.0
        model.beta.uniform_(0.2, 1.5, generator=generator)
    return model


def random_input(arch, seed=0):
    shape = (N, arch.n_tokens, arch.n_features)
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape))
