"""The form of windows: patches cover every row of a window, and every other wish is refused."""

import numpy as np
import pytest

from sklearn_restrans._data.forms import WindowForm, check_form, learn_form


@pytest.mark.parametrize(
    ("window", "patch", "stride"),
    [
        (6, 1, None),
        (6, 2, None),
        (6, 6, None),
        (6, 4, 2),
        (6, 4, 1),
        (7, 3, 2),
        (5, 5, 3),
        (1, 1, 1),
    ],
)
def test_patches_begin_and_end_where_the_window_does_and_leave_no_row_out(window, patch, stride):
    form = learn_form(window, patch, stride)
    places = form.places(window)
    assert places.shape == (form.n_tokens(window), patch)
    assert places[0, 0] == 0 and places[-1, -1] == window - 1
    np.testing.assert_array_equal(np.unique(places), np.arange(window))
    np.testing.assert_array_equal(np.diff(places, axis=1), 1)
    np.testing.assert_array_equal(np.diff(places[:, 0]), patch if stride is None else stride)


@pytest.mark.parametrize(
    ("patch", "stride", "message"),
    [
        (0, None, "patch must be an integer >= 1, got 0"),
        (2.0, None, r"patch must be an integer >= 1, got 2.0"),
        (None, None, "patch must be an integer >= 1, got None"),
        (2, 0, "patch_stride must be an integer >= 1, got 0"),
        (25, None, "patch=25 is longer than window=24; use a patch of at most 24"),
        (5, 6, "patch_stride=6 is longer than patch=5, which leaves rows .* at most 5"),
        (5, None, "patch=5 does not divide window=24: 4 rows .* a window of 20 or 25, a patch"),
        (6, 4, "patch_stride=4 does not divide window - patch = 18: 2 rows .* of 22 or 26"),
    ],
)
def test_patches_that_leave_rows_out_are_refused_with_a_remedy(patch, stride, message):
    with pytest.raises(ValueError, match=message):
        learn_form(24, patch, stride)


def test_windows_of_another_form_than_in_fit_are_named():
    check_form(WindowForm(4, 2), WindowForm(4, 2), "Model")
    with pytest.raises(ValueError, match=r"with patch_stride=4, but Model .* patch_stride=2; pass"):
        check_form(WindowForm(4, 2), WindowForm(4, 4), "Model")
    with pytest.raises(
        ValueError, match=r"patch=1, patch_stride=1, but .* patch=4, patch_stride=2"
    ):
        check_form(WindowForm(4, 2), WindowForm(), "Model")
