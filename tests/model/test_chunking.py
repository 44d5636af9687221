"""How many sequences travel together: within a budget of numbers kept, and by shape alone."""

import pytest
from coremodels import architecture

from sklearn_restrans._model.chunking import fewest_sequences, predict_chunk, sequences_per_pass
from sklearn_restrans._model.shortcuts import choose

FOLDED = architecture(n_layers=1, n_tokens=144, n_features=14, d_model=64, d_ff=128, n_heads=2)
FULL = architecture(n_layers=2, n_tokens=100, n_features=14, d_model=64, d_ff=128, n_heads=2)


def test_a_pass_keeps_at_most_three_million_numbers():
    assert choose(FOLDED) == "folded"
    assert sequences_per_pass(FOLDED) == 3_000_000 // (144 * (14 + 2 * 2))
    assert choose(FULL) == "single_query"
    # T (6 d + 2 m + 2 h T)
    assert sequences_per_pass(FULL) == 3_000_000 // (100 * (6 * 64 + 2 * 128 + 2 * 2 * 100))


@pytest.mark.parametrize(
    ("n_tokens", "fewest"), [(1, 16), (256, 16), (512, 8), (4_096, 1), (9_000, 1)]
)
def test_long_sequences_travel_in_small_groups_but_never_in_none(n_tokens, fewest):
    arch = FULL.at_length(n_tokens)
    assert fewest_sequences(arch) == fewest
    assert sequences_per_pass(arch) >= fewest
    assert predict_chunk(arch) >= fewest


@pytest.mark.parametrize("arch", [FOLDED, FULL, architecture(), FULL.at_length(5_000)])
def test_a_chunk_of_predictions_is_a_power_of_two_up_to_256(arch):
    size = predict_chunk(arch)
    assert size in {2**k for k in range(9)}
    assert size <= max(sequences_per_pass(arch), fewest_sequences(arch))


def test_off_the_cpu_a_pass_keeps_four_gigabytes():
    wide = architecture(n_layers=2, n_tokens=512, d_model=768, d_ff=3_072, n_heads=12)
    kept = 512 * (6 * 768 + 2 * 3_072 + 2 * 12 * 512)
    assert sequences_per_pass(wide, on_cpu=False) == 1_000_000_000 // kept == 84
    assert sequences_per_pass(wide) == fewest_sequences(wide) == 8
