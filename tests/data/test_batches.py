"""Which rows meet in a batch, and that no row is lost or met twice."""

import numpy as np
import pytest
import torch
from tokenrows import lengths_of_rows

from sklearn_restrans._data.batches import TrainingSet, chunks
from sklearn_restrans._data.sources import DenseSource, TokenSource


@pytest.mark.parametrize("size", [1, 4, 7, 64])
@pytest.mark.parametrize("n_partial", [0, 3, 10])
def test_chunks_hold_every_row_once_and_have_one_size(n_partial, size, seed):
    """So that a row meets the same kernels whatever rows come with it."""
    mask = np.ones((10, 4), bool)
    mask[np.random.default_rng(seed).permutation(10)[:n_partial], 2:] = False
    source = DenseSource(torch.zeros(10, 4, 1), mask)
    seen = []
    for rows, n_real in chunks(source, size):
        assert len(rows) == size and 1 <= n_real <= size
        assert len(set(source.partial[rows])) == 1, "a chunk is all full or all partial"
        assert (rows[n_real:] == rows[n_real - 1]).all()
        seen.extend(rows[:n_real])
    assert sorted(seen) == list(range(10))
    for kind in (False, True):
        ordered = [row for row in seen if source.partial[row] == kind]
        assert ordered == sorted(ordered), "rows keep their order"


def test_rows_of_like_length_meet_in_a_batch(seed):
    ids, _ = lengths_of_rows(4_000, 60, seed)
    source = TokenSource(ids, torch.device("cpu"))
    rows = np.random.default_rng(seed).permutation(4_000)[:3_333]
    data = TrainingSet(source, torch.zeros(3_333), None, rows)

    def order(seed):
        return data.order(64, torch.Generator().manual_seed(seed))

    first = order(seed)
    assert sorted(first) == list(range(3_333))
    np.testing.assert_array_equal(order(seed), first)
    assert (order(seed + 1) != first).mean() > 0.9
    batches = [source.lengths[rows[first[i : i + 64]]] for i in range(0, 3_333, 64)]
    # All but the few that hold a border between two of the six lengths of this data.
    assert np.mean([len(set(batch)) == 1 for batch in batches]) > 0.8
    computed = sum(batch.max() * len(batch) for batch in batches)
    assert computed < 1.1 * source.lengths[rows].sum()
    means = [batch.mean() for batch in batches[:-1]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.5, "not short ones first"
