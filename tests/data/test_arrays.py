"""Arrays as users pass them: their axes, and the sentences for what cannot be read."""

import numpy as np
import pytest
from smallmodels import ESTIMATORS, SMALL


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("to", [list, lambda rows: np.array(rows, dtype=object)])
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([np.ones(2), np.ones(3)], "X holds rows of 2 to 3 values; a table has rows of one length"),
        ([np.ones((2, 1)), np.ones((4, 1))], "X holds sequences of 2 to 4 tokens; pad the shorter"),
    ],
)
def test_rows_of_unequal_length_are_named(estimator, to, rows, message):
    with pytest.raises(ValueError, match=message):
        estimator(**SMALL).fit(to(rows), [0, 1])
