"""Views of windows refuse what cannot be counted in rows."""

import numpy as np
import pytest

from sklearn_restrans import SequenceView


@pytest.mark.parametrize(("window", "dilation"), [(2, 2**62 + 1), (10**30, 1), (2**32, 2**32)])
def test_windows_that_reach_back_further_than_rows_can_be_counted_are_refused(window, dilation):
    with pytest.raises(ValueError, match="reaches back further than rows can be counted"):
        SequenceView(np.ones((5, 2)), [4], window, dilation=dilation)


def test_the_farthest_row_that_can_be_counted_is_a_missing_one():
    view = SequenceView(np.ones((5, 2)), [4], 2, dilation=2**62)
    assert np.isnan(np.asarray(view)[0, 0]).all() and view.partial.all()
