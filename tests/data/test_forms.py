"""The form of windows: patches cover every row of a window, and every other wish is refused."""

import numpy as np
import pytest

from sklearn_restrans._data.forms import (
    PLAIN,
    WindowForm,
    check_form,
    filled_window,
    learn_form,
    relative_form,
)


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


@pytest.mark.parametrize("patch", [1, 3, 8])
@pytest.mark.parametrize("stride", [None, 1, 2])
def test_a_filled_window_is_the_shortest_that_patches_fill(patch, stride):
    if stride is not None and stride > patch:
        stride = patch
    for n_rows in range(1, 20):

        def fills(window):
            try:
                learn_form(window, patch, stride)
            except ValueError:
                return False
            return True

        shortest = next(window for window in range(n_rows, 40) if fills(window))
        assert filled_window(n_rows, patch, stride) == shortest


def test_windows_of_another_form_than_in_fit_are_named():
    check_form(WindowForm(4, 2), WindowForm(4, 2), "Model")
    with pytest.raises(ValueError, match=r"with patch_stride=4, but Model .* patch_stride=2; pass"):
        check_form(WindowForm(4, 2), WindowForm(4, 4), "Model")
    with pytest.raises(
        ValueError, match=r"patch=1, patch_stride=1, but .* patch=4, patch_stride=2"
    ):
        check_form(WindowForm(4, 2), WindowForm(), "Model")


# ---- relative windows ------------------------------------------------------------------------

NAMES = np.array(["T", "p", "wind"], dtype=object)


@pytest.mark.parametrize(
    ("columns", "targets", "expected"),
    [
        (None, None, ((0, 1, 2), None)),
        ("p", None, ((1,), None)),
        (["wind", 0], "T", ((0, 2), (0,))),
        ((2, 1), [None, "p", 2, "p"], ((1, 2), (None, 1, 2, 1))),
        (np.array([1]), [np.int64(1)], ((1,), (1,))),
    ],
)
def test_columns_are_named_by_number_or_name(columns, targets, expected):
    form = relative_form(WindowForm(2, 1), "last", columns, targets, 3, NAMES)
    assert form == WindowForm(2, 1, "last", *expected)


@pytest.mark.parametrize(
    ("relative", "columns", "targets", "message"),
    [
        ("mean", None, None, "relative must be 'last', 'standard' or None, got 'mean'"),
        (True, None, None, "relative must be 'last', 'standard' or None, got True"),
        (None, ["T"], None, r"relative_columns=\['T'\] needs relative='last' or 'standard'"),
        (None, None, "T", "target_columns='T' needs relative='last' or 'standard'"),
        ("last", "q", None, "relative_columns='q': 'q' is not a column .* 0 to 2, or one of .'T'"),
        ("last", 3, None, "relative_columns=3: 3 is not a column of series; pass a number from 0"),
        ("last", -1, None, "-1 is not a column"),
        ("last", [True], None, "True is not a column"),
        ("last", [None], None, "None is not a column"),
        ("last", {"T"}, None, "relative_columns must be a column of series or a list of them"),
        ("last", [], None, "must name at least one column, and each once"),
        ("last", ["T", 0], None, "must name at least one column, and each once"),
        ("last", None, ["T", "T t+24"], "'T t.24' is not a column of series"),
        ("last", ["T"], ["p"], r"not among relative_columns=\['T'\]; name them there too, or"),
    ],
)
def test_what_is_relative_to_nothing_that_is_there_is_refused(relative, columns, targets, message):
    with pytest.raises(ValueError, match=message):
        relative_form(PLAIN, relative, columns, targets, 3, NAMES)


def test_a_series_without_names_has_numbers_only():
    with pytest.raises(ValueError, match="from 0 to 2; this series has no names"):
        relative_form(PLAIN, "last", "T", None, 3, None)


def test_a_view_to_predict_from_need_not_say_what_is_predicted():
    fitted = WindowForm(1, 1, "last", (0, 2), (0,))
    check_form(fitted, WindowForm(1, 1, "last", (0, 2)), "Model")
    for form, message in [
        (PLAIN, r"relative=None, relative_columns=\[\], but .*relative='last', relative_columns="),
        (WindowForm(1, 1, "standard", (0, 2)), "with relative='standard', but Model was fitted on"),
        (WindowForm(1, 1, "last", (0,)), r"with relative_columns=\[0\], but .*=\[0, 2\]; pass"),
        (WindowForm(1, 1, "last", (0, 2), (2,)), r"with target_columns=\(2,\), but .*=\(0,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_form(fitted, form, "Model")
