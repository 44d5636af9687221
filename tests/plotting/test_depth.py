"""DepthProfileDisplay draws what was recorded of X, Attn(X) and Z against the layer."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import tinycheckpoints as tiny

from sklearn_restrans import (
    DepthProfileDisplay,
    PretrainedTextClassifier,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
    measure_conditioning,
)

DEEP = {"n_layers": 3, "d_model": 8, "max_iter": 2, "random_state": 0}


def sequences():
    X = np.random.default_rng(0).standard_normal((40, 6, 3))
    return X, X[:, 0, 0]


@pytest.fixture(scope="module")
def deep():
    return {
        f"beta = {beta}": ResidualTransformerRegressor(beta, **DEEP).fit(*sequences())
        for beta in (0.0, 1.0)
    }


def labels(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


@pytest.mark.parametrize("quantity", ["sigma_min", "condition_number", "rank_collapse"])
@pytest.mark.parametrize("stage", ["initial", "final"])
def test_lines_are_the_recorded_values(deep, quantity, stage):
    display = DepthProfileDisplay.from_estimator(deep, quantity=quantity, stage=stage)
    lines = iter(display.lines_)
    for model in deep.values():
        for of in ("X", "attention", "Z"):
            expected = [
                model.conditioning_.get(quantity, of, layer=k, stage=stage) for k in range(3)
            ]
            np.testing.assert_array_equal(next(lines).get_ydata(), expected)
    assert next(lines, None) is None
    assert labels(display)[:5] == [*deep, "X", "Attn(X)", "Z"]
    assert display.ax_.get_ylabel() == quantity.replace("_", " ")


def test_spectra_of_sequences_are_bands_of_z(deep):
    model = deep["beta = 1.0"]
    display = DepthProfileDisplay.from_estimator(model, quantity="sequence_sigma_min")
    quantiles = model.conditioning_.Z.sequence_sigma_min[-1]
    np.testing.assert_array_equal(display.lines_[2].get_ydata(), quantiles[:, 2])
    assert len(display.bands_) == 2
    for band, (low, high) in zip(display.bands_, ((0, 4), (1, 3)), strict=True):
        heights = band.get_paths()[0].vertices[:, 1]
        assert {heights.min(), heights.max()} == {
            quantiles[:, low].min(),
            quantiles[:, high].max(),
        }


def test_what_belongs_to_the_layer_has_one_line(deep):
    display = DepthProfileDisplay.from_estimator(deep, quantity="score_std")
    assert len(display.lines_) == 2
    ratio = DepthProfileDisplay.from_estimator(deep, quantity="sigma_min_ratio")
    assert len(ratio.lines_) == 4, "X over itself says nothing"


def test_flat_and_saturated_layers_are_marked():
    profile = {"attention": [1.0, 2.0, 3.0], "Z": [2.0, 3.0, 4.0]}
    states = {"a": ["flat", "selective", "saturated"]}
    display = DepthProfileDisplay({"a": profile}, states=states).plot()
    marked = [line for line in display.ax_.lines if line not in display.lines_]
    assert [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in marked] == [
        ([0], [1.0]),
        ([2], [3.0]),
    ]
    assert labels(display) == ["a", "Attn(X)", "Z", "flat attention", "saturated attention"]
    assert len(DepthProfileDisplay({"a": profile}).plot().ax_.lines) == 2


def test_a_record_of_other_data_an_ensemble_classes_and_texts(deep, tmp_path):
    X, y = sequences()
    record = measure_conditioning(deep["beta = 1.0"], X[:9])
    _, ax = plt.subplots()
    alone = DepthProfileDisplay.from_estimator(record, ax=ax)
    assert alone.ax_ is ax
    np.testing.assert_array_equal(alone.lines_[2].get_ydata(), record.Z.sigma_min[0])
    both = DepthProfileDisplay.from_estimator({"probe": deep["beta = 1.0"], "nine": record})
    assert len(both.lines_) == 6
    ensemble = SeedEnsembleRegressor(ResidualTransformerRegressor(**DEEP), n_estimators=2)
    assert len(DepthProfileDisplay.from_estimator(ensemble.fit(X, y)).profiles) == 2
    classes = ResidualTransformerClassifier(**DEEP).fit(X, y > 0)
    assert len(DepthProfileDisplay.from_estimator(classes).lines_) == 3
    texts, targets = tiny.labelled(16)
    folder = tiny.save("bert", tmp_path)
    model = PretrainedTextClassifier(folder, 1.0, fine_tune="head", max_iter=1, random_state=0)
    display = DepthProfileDisplay.from_estimator(model.fit(texts, targets))
    assert len(display.lines_[0].get_xdata()) == model.conditioning_.n_layers


NO_PROFILES = {
    "a list": ([1.0], "profiles must be a dict from labels to dicts of lines, got list"),
    "nothing": ({}, "profiles is an empty dict"),
    "a number": ({"a": 3}, r"profiles\['a'\] must be a dict from 'X', .* got 3"),
    "an empty profile": ({"a": {}}, r"profiles\['a'\] must be a dict from"),
    "another matrix": ({"a": {"W": [1.0]}}, r"profiles\['a'\] must be a dict from"),
    "a word": ({"a": {"Z": "b"}}, r"Z of profiles\['a'\] must have shape \(n_layers,\)"),
    "three quantiles": ({"a": {"Z": np.ones((2, 3))}}, r"or \(n_layers, 5\), got"),
    "two depths": ({"a": {"X": [1.0], "Z": [1.0, 2.0]}}, "as many layers in every line"),
}


@pytest.mark.parametrize("case", NO_PROFILES)
def test_what_is_no_profile_is_refused_in_words(case):
    wrong, sentence = NO_PROFILES[case]
    with pytest.raises(ValueError, match=sentence):
        DepthProfileDisplay(wrong)


def test_unknown_names_are_refused(deep):
    with pytest.raises(ValueError, match=r"quantity must be one of sigma_min, .* got 'sigma'"):
        DepthProfileDisplay.from_estimator(deep, quantity="sigma")
    with pytest.raises(ValueError, match="stage must be one of final, initial; got 'middle'"):
        DepthProfileDisplay.from_estimator(deep, stage="middle")
    with pytest.raises(ValueError, match="is not fitted, or"):
        DepthProfileDisplay.from_estimator(ResidualTransformerRegressor())
