"""Token ids and pretrained vectors: what they may be, and how far texts are padded."""

import numpy as np

from sklearn_restrans._data.tokens import padded_length


def test_the_ladder_of_padded_lengths():
    ladder = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    expected = [next(step for step in ladder if step >= n) for n in range(1, 513)]
    assert padded_length(np.arange(1, 513)).tolist() == expected
    assert padded_length(0) == 8 and padded_length(10_000) == 12_288
