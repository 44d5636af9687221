"""AttentionDisplay draws the mean weights by lag, and says in which state attention is."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from sklearn_restrans import (
    AttentionDisplay,
    ResidualTransformerClassifier,
    ResidualTransformerRegressor,
    attention_over_lags,
)


def sequences():
    X = np.random.default_rng(0).standard_normal((30, 6, 3))
    return X, X[:, 0, 0]


@pytest.fixture(scope="module")
def model():
    settings = {"n_layers": 2, "n_heads": 2, "d_model": 8, "max_iter": 1, "random_state": 0}
    return ResidualTransformerRegressor(**settings).fit(*sequences())


def labels(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_a_line_per_layer_is_the_mean_over_heads(model):
    X, _ = sequences()
    found = attention_over_lags(model, X)
    display = AttentionDisplay.from_estimator(model, X)
    for line, weights in zip(display.lines_[:-1], found.weights, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), found.lags)
        np.testing.assert_allclose(line.get_ydata(), weights.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(display.lines_[-1].get_ydata(), 1 / 6, rtol=1e-12)
    assert [text.split(" (")[0] for text in labels(display)] == ["layer 0", "layer 1", "uniform"]


def test_a_line_per_head_of_one_layer_has_its_state(model):
    X, _ = sequences()
    _, ax = plt.subplots()
    display = AttentionDisplay.from_estimator(model, X, layer=-1, reading="last", ax=ax)
    assert display.ax_ is ax
    found = attention_over_lags(model, X, reading="last")
    assert labels(display)[:2] == [f"head {k} ({found.state[1, k]})" for k in range(2)]
    np.testing.assert_allclose(display.lines_[1].get_ydata(), found.weights[1, 1], rtol=1e-12)


def test_heads_of_different_states_are_counted(model):
    found = attention_over_lags(model, sequences()[0])
    found.score_std[0, 0] = 0.01
    texts = labels(AttentionDisplay(found).plot())
    assert texts[0] == "layer 0 (1 flat, 1 selective)" and texts[1] == "layer 1 (selective)"


def test_of_classes():
    X, y = sequences()
    model = ResidualTransformerClassifier(d_model=8, max_iter=1, random_state=0).fit(X, y > 0)
    assert len(AttentionDisplay.from_estimator(model, X).lines_) == 2


def test_bad_input_is_named(model):
    with pytest.raises(TypeError, match=r"attention must be an AttentionOverLags, .* got dict"):
        AttentionDisplay({})
    for layer in (2, -3, 0.5, True, "last"):
        with pytest.raises(ValueError, match=f"from -2 to 1, got {layer!r}"):
            AttentionDisplay.from_estimator(model, sequences()[0], layer=layer)
