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
    for layer in (1, -2, 0.5):
        with pytest.raises(ValueError, match=f"layer must be an integer from -1 to 0, got {layer}"):
            SpectrumDisplay.from_estimator(models, layer=layer)
    for wrong in ([1.0, 2.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"spectra: 'a' must be a pair \(attention, Z\)"):
            SpectrumDisplay({"a": wrong})
