"""Token ids of texts of unequal length."""

import numpy as np


def lengths_of_rows(n, longest, seed=0):
    """Token ids of n rows of random lengths, few of them long."""
    rng = np.random.default_rng(seed)
    length = np.minimum(rng.geometric(0.1, n), longest)
    length[:2] = longest, 1
    ids = rng.integers(1, 50, (n, longest))
    return ids * (np.arange(longest) < length[:, None]), length
