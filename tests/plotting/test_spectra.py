"""SpectrumDisplay shows the singular values that fit recorded."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from sklearn_restrans import SpectrumDisplay


def test_spectra_are_the_recorded_singular_values_up_to_the_rank(models):
    for stage, record in (("initial", 0), ("final", -1)):
        display = SpectrumDisplay.from_estimator(models, stage=stage)
        for k, model in enumerate(models.values()):
            rank = model.conditioning_.input_rank[record, -1]
            z, attention = (line.get_ydata() for line in display.lines_[2 * k : 2 * k + 2])
            expected = model.conditioning_.Z.singular_values[record, -1, :rank]
            np.testing.assert_array_equal(z, expected)
            expected = model.conditioning_.attention.singular_values[record, -1, :rank]
            np.testing.assert_array_equal(attention, expected)


def test_spectra_are_drawn_where_they_are_told(models):
    _, ax = plt.subplots()
    assert SpectrumDisplay.from_estimator(models, ax=ax).ax_ is ax
    assert len(plt.get_fignums()) == 1


def test_bad_input_of_spectra_is_named(models):
    with pytest.raises(ValueError, match="stage must be 'final' or 'initial', got 'middle'"):
        SpectrumDisplay.from_estimator(models, stage="middle")
    for layer in (1, -2, 0.5, True, None, "last"):
        with pytest.raises(
            ValueError, match=f"layer must be an integer from -1 to 0, got {layer!r}"
        ):
            SpectrumDisplay.from_estimator(models, layer=layer)


NO_SPECTRA = {
    "None": (None, "spectra must be a dict from labels to pairs .*, got NoneType"),
    "an empty dict": ({}, "spectra is an empty dict: pass pairs"),
    "a list": ([[1.0]], "spectra must be a dict from labels to pairs .*, got list"),
    "a number": ({"a": 3}, r"spectra\['a'\] must be a pair \(attention, Z\) .*, got 3"),
    "one of two": ({"a": [[1.0]]}, r"spectra\['a'\] must be a pair \(attention, Z\)"),
    "two numbers": ({"a": [1.0, 2.0]}, r"attention of spectra\['a'\] must be a list .*, got 1\.0"),
    "two words": ({"a": "ab"}, r"attention of spectra\['a'\] must be a list .*, got 'a'"),
    "a matrix": ({"a": ([1.0], [[1.0]])}, r"Z of spectra\['a'\] must .* array of shape \(1, 1\)"),
    "NaN": ({"a": ([np.nan], [1.0])}, r"attention of spectra\['a'\] must be finite, got nan"),
    "below 0": ({"a": ([1.0], [2.0, -1.0])}, r"Z of spectra\['a'\] must hold .* >= 0, got -1\.0"),
}


@pytest.mark.parametrize("case", NO_SPECTRA)
def test_what_is_not_a_spectrum_is_refused_in_words(case):
    wrong, sentence = NO_SPECTRA[case]
    with pytest.raises(ValueError, match=sentence):
        SpectrumDisplay(wrong)


def test_a_singular_value_of_zero_is_left_out_of_the_logarithmic_axis():
    display = SpectrumDisplay({"a": ([1.0, 0.0], [2.0, 1.0, 0.0]), "b": ([0.0], [0.0])}).plot()
    expected = [[2.0, 1.0, np.nan], [1.0, np.nan], [np.nan], [np.nan]]
    for line, values in zip(display.lines_, expected, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)


def test_the_legend_names_each_label_once_and_the_two_kinds_of_line(models):
    display = SpectrumDisplay.from_estimator(models)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == [*models, "Z", "Attn(X)"]
    alone = SpectrumDisplay.from_estimator(models["beta = 1.0"])
    assert [text.get_text() for text in alone.ax_.get_legend().get_texts()] == ["Z", "Attn(X)"]
