"""Layouts: every weight of a family has a place, and every size is an entry of its config."""

import json

import pytest
import safetensors.torch
import torch
import transformers
from tinycheckpoints import FAMILIES, LAYERS
from torch.nn import functional as F

from sklearn_restrans._model.transformer import _ALL_ACTIVATIONS
from sklearn_restrans._pretrained.layouts import ACTIVATIONS, LAYOUTS


def names_of(layout, n_layers):
    """Every name of a weight that a layout asks for."""
    outer = [f"{layout.outer_norm}.{kind}" for kind in ("weight", "bias")]
    tables = [
        f"{table}.weight" for table in (layout.table, layout.positions, layout.kinds) if table
    ]
    parts = [*layout.weights.values(), *layout.norms.values()]
    return [*tables, *outer] + [
        f"{layout.layer.format(index)}{part}.{kind}"
        for index in range(n_layers)
        for part in parts
        for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_that_transformers_saves_has_a_place(checkpoints, family):
    saved = safetensors.torch.load_file(checkpoints(family) / "model.safetensors")
    encoder = {name for name in saved if not name.startswith("pooler.")}  # not in hidden states
    names = names_of(LAYOUTS[family], LAYERS)
    assert len(names) == len(set(names))
    assert set(names) == encoder


@pytest.mark.parametrize("family", LAYOUTS)
def test_sizes_and_defaults_are_those_of_transformers(family):
    layout, config = LAYOUTS[family], transformers.AutoConfig.for_model(family)
    for ours, theirs in layout.config.items():
        if (family, ours) != ("distilbert", "norm_eps"):  # written into its code: 1e-12
            assert hasattr(config, theirs), theirs
    for ours in ("activation", "norm_eps", "n_positions"):
        theirs = getattr(config, layout.config[ours], 1e-12)
        assert layout.defaults[ours] == theirs


@pytest.mark.parametrize("family", FAMILIES)
def test_entries_that_change_the_formulas_stand_at_the_value_that_is_read(checkpoints, family):
    config = json.loads((checkpoints(family) / "config.json").read_text())
    for name, value in LAYOUTS[family].fixed.items():
        assert config.get(name, value) == value


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_what_transformers_means_by_its_name(name):
    x = torch.linspace(-6, 6, 500, dtype=torch.float64)
    theirs = transformers.activations.ACT2FN[name](x)
    # gelu_fast writes sqrt(2 / pi) with ten digits
    torch.testing.assert_close(_ALL_ACTIVATIONS[ACTIVATIONS[name]](x), theirs, rtol=0, atol=1e-10)
    assert (theirs - F.tanh(x)).abs().max() > 0.1
