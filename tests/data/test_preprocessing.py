"""What fit learns of its data, and that later data go the same way."""

import numpy as np
import pytest
import torch

from sklearn_restrans import ResidualTransformerClassifier, SequenceView
from sklearn_restrans._data.inputs import InputSpec
from sklearn_restrans._data.preprocessing import Samples, learn_preprocessing
from sklearn_restrans._data.targets import RegressionTargets


def learnt(seed, **form):
    """The codings of a view of three columns, of which the first two are forecast one row ahead."""
    rng = np.random.default_rng(seed)
    series = rng.standard_normal((60, 3)).cumsum(axis=0) * [1, 100, 1] + [0, 1e4, 0]
    view = SequenceView(series, np.arange(5, 59), 6, target_columns=[0, 1], **form)
    y = series[view.ends + 1, :2]
    spec = InputSpec("Someone", "sequence", 3, n_tokens=6, spacing=1, form=view.form)
    given = Samples(view, y, None, np.arange(40), np.arange(40, 54))
    codings, samples = learn_preprocessing(spec, RegressionTargets, given, "squared_error")
    return codings, samples, view, y


@pytest.mark.parametrize("form", [{"relative": "last"}, {"relative": "standard"}])
@pytest.mark.parametrize("apart", [False, True])
def test_later_data_are_coded_as_the_training_data_were_and_predictions_come_back(form, apart):
    codings, samples, view, y = learnt(0, channel_independent=apart, **form)
    again = codings.samples(Samples(view, codings.check_targets(y, "Someone")))
    np.testing.assert_array_equal(again.y, samples.y)
    np.testing.assert_array_equal(
        np.asarray(codings.view(codings.inputs.check(view))), np.asarray(samples.X)
    )
    coded = codings.targets.encode(samples.y, torch.float64).numpy()
    np.testing.assert_allclose(codings.predictions(coded, view), y, rtol=1e-10)


def test_channels_as_samples_count_every_window_once_for_each_channel():
    codings, samples, view, _ = learnt(1, relative="last", channel_independent=True)
    assert len(samples.X) == len(samples.y) == 2 * len(view)
    assert samples.rows.tolist() == list(range(80))
    assert samples.valid_rows.tolist() == list(range(80, 108))
    assert codings.names is None and codings.scaler.mean.shape == (2,)  # own channel, shared one


def test_classes_have_no_channels_of_their_own():
    view = SequenceView(np.zeros((9, 2)), [5, 6, 7, 8], 3, channel_independent=True)
    with pytest.raises(ValueError, match="one label for all channels"):
        ResidualTransformerClassifier().fit(view, [0, 1, 0, 1])
