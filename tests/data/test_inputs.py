"""What X may be is learnt once, as a value of its own, and held against every later X.

Messages for every kind of bad input are tested through the estimators (`test_pains.py`,
`test_sequences.py`, `test_segments.py`, `test_token_estimators.py`).
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from sklearn_restrans import ResidualTransformerClassifier as Classifier
from sklearn_restrans import ResidualTransformerRegressor as Regressor
from sklearn_restrans import SequenceView
from sklearn_restrans._data.inputs import learn_inputs

TABLE = np.random.default_rng(0).standard_normal((10, 3))
IDS = np.array([[2, 5, 0], [3, 0, 0]])
KINDS = {
    "table": (TABLE, {}),
    "window": (TABLE, {"window": 4}),
    "sequence": (TABLE[:8].reshape(2, 4, 3), {}),
    "tokens": (IDS, {"embedding": "token"}),
}


def model(**settings):
    """The three parameters that say what X is."""
    return SimpleNamespace(**({"window": None, "embedding": "auto", "d_model": 8} | settings))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_learnt_is_what_a_later_x_is_held_against(kind):
    X, settings = KINDS[kind]
    before = vars(model(**settings))
    estimator = model(**settings)
    spec, learnt = learn_inputs(estimator, X)
    assert spec.kind == kind and spec.n_features == 3
    assert vars(estimator) == before, "nothing is assigned to the estimator"
    np.testing.assert_array_equal(np.asarray(spec.check(X)), np.asarray(learnt))


@pytest.mark.parametrize("learnt", ["table", "window"])
def test_rows_and_sequences_are_not_taken_for_each_other(learnt):
    X, settings = KINDS[learnt]
    spec, _ = learn_inputs(model(**settings), X)
    with pytest.raises(ValueError, match=r"3-D array or SequenceView.* was fitted on a 2-D"):
        spec.check(KINDS["sequence"][0])
    of_sequences, _ = learn_inputs(model(), KINDS["sequence"][0])
    with pytest.raises(ValueError, match=r"X is a 2-D table, but .* was fitted on a 3-D array"):
        of_sequences.check(TABLE)


def test_windows_of_a_table_are_a_view_of_its_rows():
    spec, X = learn_inputs(model(window=4), TABLE)
    assert isinstance(X, SequenceView) and X.shape == (10, 4, 3)
    assert (spec.n_tokens, spec.window) == (4, 4)
    split = spec.check(TABLE, segments=np.repeat([0, 1], 5))
    assert np.isnan(np.asarray(split)[5, :3]).all(), "row 5 begins a segment"


def test_names_of_columns_belong_to_the_spec():
    frame = pd.DataFrame(TABLE, columns=list("abc"))
    spec, _ = learn_inputs(model(), frame)
    assert spec.names.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        spec.check(frame[["b", "a", "c"]])


def test_a_view_keeps_its_spacing_and_its_length():
    spec, _ = learn_inputs(model(), SequenceView(TABLE, [6, 7], 3, dilation=2))
    with pytest.raises(ValueError, match=r"dilation=1, but .* was fitted on dilation=2"):
        spec.check(SequenceView(TABLE, [6, 7], 3))
    with pytest.raises(ValueError, match=r"sequences of 4 tokens, but .* was fitted on 3"):
        spec.check(SequenceView(TABLE, [6, 7], 4, dilation=2))


def test_ids_that_training_has_not_met_are_unknown_ones():
    spec, _ = learn_inputs(model(embedding="token"), IDS)
    np.testing.assert_array_equal(spec.check([[5, 4], [0, 0], [99, 2]]), [[5, 1], [1, 0], [1, 2]])
    more = spec.meeting(np.array([[4, 2]]))
    np.testing.assert_array_equal(more.check([[5, 4]]), [[5, 4]])
    np.testing.assert_array_equal(spec.check([[5, 4]]), [[5, 1]])  # the old spec has not changed


def test_series_that_are_samples_are_read_out_like_an_array_of_sequences():
    """The readout does not change with the form that a collection of series comes in."""
    series, segments, y = TABLE[:8], np.repeat([0, 1], 4), np.array([0, 1] * 4)
    apart = SequenceView(series, [3, 7], 4, segments=segments)
    in_time = SequenceView(series, [2, 3, 6, 7], 2, segments=segments)
    small = {"d_model": 4, "max_iter": 1, "random_state": 0}
    for estimator, of_sequences in ((Classifier, "mean"), (Regressor, "last")):
        for X, expected in (
            (np.asarray(apart), of_sequences),
            (apart, of_sequences),
            (in_time, "last"),
        ):
            model = estimator(**small).fit(X, y[: len(X)])
            assert model.net_.module_.arch.readout == expected
