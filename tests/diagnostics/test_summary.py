"""Words for numbers: what a condition number means for a step, and how softmax lost its keys."""

import numpy as np
import pytest
from layertraces import attention_trace, measured, softmax

from sklearn_restrans._linalg import rank_collapse
from sklearn_restrans.conditioning import Conditioning, LayerTrace, conditioning_from_traces
from sklearn_restrans.diagnostics.summary import (
    FLAT_BELOW,
    GOOD_CONDITION,
    attention_state,
    step_grade,
)

SEEDS = [0, 1, 2]


def test_a_grade_is_the_number_of_steps_of_gradient_descent():
    """On 1/2 ||D w - y||^2 with the step 1 / L the weakest direction needs about kappa^2 steps."""
    for kappa, grade in ((5.0, "good"), (30.0, "good"), (31.0, "fair"), (4e3, "fair")):
        assert step_grade(kappa) == grade
        # (1 - 1 / kappa^2)^t = 1 / e, solved for t.
        assert -1 / np.log1p(-1 / kappa**2) == pytest.approx(kappa**2, rel=0.03)
    assert GOOD_CONDITION**2 <= 1_000
    for kappa in (4.1e3, np.inf, np.nan):
        assert step_grade(kappa) == "bad"


def test_bad_is_what_float32_products_do_not_hold():
    """sigma_min from X^T X in float32, the matrix that gradients contain."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.standard_normal((n, 8)))[0] for n in (64, 8))
    found = {}
    for kappa in (30.0, 4e4):
        X = ((U * np.geomspace(1, 1 / kappa, 8)) @ V.T).astype(np.float32)
        found[kappa] = np.linalg.eigvalsh((X.T @ X).astype(np.float64))[0] * kappa**2
    assert found[30.0] == pytest.approx(1, abs=0.01)
    assert abs(found[4e4] - 1) > 0.5


def plain(scores, seed=0, d=8):
    """A record of attention with these scores (n, h, T, T) on independent tokens."""
    rng = np.random.default_rng(seed)
    X, weights = rng.standard_normal((len(scores), scores.shape[-1], d)), softmax(scores)
    attention = weights.mean(axis=1) @ X
    return measured(LayerTrace(X, attention, attention + X, weights)), attention


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("T", [6, 24, 96])
def test_flat_selective_and_saturated_are_told_apart(T, seed):
    scores = np.random.default_rng(seed).standard_normal((10, 1, T, T))
    for scale, state in ((0.01, "flat"), (0.05, "flat"), (1.0, "selective"), (50.0, "saturated")):
        record, attention = plain(scale * scores, seed)
        assert record.attention_state.tolist() == [[state]]
        assert f"attention is {state}: score std " in repr(record)
        if state == "flat":
            # Each token is the mean of all: what is left differs by about the spread of the scores.
            assert np.median(rank_collapse(attention)) < 1.3 * scale < 1.3 * FLAT_BELOW


def test_saturated_rows_pick_few_keys():
    record, _ = plain(50 * np.random.default_rng(0).standard_normal((10, 1, 24, 24)))
    assert np.exp(record.attention_entropy[0, 0]) < 24**0.25
    assert record.n_argmax_keys[0, 0] > 10, "different rows pick different keys"


def test_without_softmax_matrices_there_is_no_word():
    record = measured(attention_trace()._replace(weights=None))
    assert record.attention_state.tolist() == [[""]]
    assert "attention is" not in repr(record)
    assert attention_state(np.nan, 1.0).item() == ""
    # One token only: nothing to choose between.
    assert attention_state(0.0, np.nan).item() == ""


def test_a_text_names_every_matrix_the_rank_and_the_source():
    text = repr(measured(attention_trace(n=20)))
    lines = text.splitlines()
    assert [line[:8] for line in lines[1:4]] == ["  X:    ", "  Attn: ", "  Z:    "]
    assert "sigma_min is sigma_4, at the rank of the input X (4 of 4)" in text
    assert "about kappa^2 steps (1 - mu alpha, arXiv:2506.05249);" in text
    assert "our grades: good to 30, a usual training; fair to 4000" in text
    assert "sigma_min over that of X: Z " in text and len(lines) <= 9
    assert "collapsed" not in text
    assert repr(Conditioning()) == "Conditioning: nothing recorded yet"


def test_a_text_says_that_tokens_are_equal_where_the_condition_number_does_not():
    """Two layers: the first reads tokens that differ, the second tokens that are all alike."""
    rng = np.random.default_rng(0)
    X, alike = rng.standard_normal((20, 5, 4)), rng.standard_normal((20, 1, 4)).repeat(5, 1)
    text = repr(conditioning_from_traces([[LayerTrace(X, X, 2 * X), LayerTrace(X, X, alike)]]))
    assert "the tokens of Z have collapsed: they differ from their mean by" in text
    assert "kappa of Z: good." in text
