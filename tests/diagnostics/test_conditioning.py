"""The record of conditioning as an object, and through an estimator."""

import pickle
import pickletools

import numpy as np
import pytest
from layertraces import assert_same, attention_trace, measured
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from sklearn_restrans.conditioning import (
    Conditioning,
    LayerTrace,
    conditioning_from_traces,
    measure_conditioning,
)


def two_records():
    result = Conditioning().record(0, [[attention_trace(beta=0.1), attention_trace(seed=5)]])
    return result.record(4, [[attention_trace(beta=0.1, seed=7), attention_trace(seed=6)]])


def test_frame_has_one_row_per_epoch_layer_and_matrix():
    result = two_records()
    frame = result.to_frame()
    assert frame["epoch"].tolist() == [0] * 6 + [4] * 6
    assert frame["layer"].tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert frame["of"].tolist() == ["X", "attention", "Z"] * 4
    assert (frame["n_rows"] == 42).all()
    for view, of in ((result.X, "X"), (result.attention, "attention"), (result.Z, "Z")):
        rows = frame[frame["of"] == of]
        for name in ("sigma_min", "sigma_min_ratio", "numerical_rank", "rank_collapse"):
            assert np.array_equal(rows[name], getattr(view, name).ravel())
        assert np.array_equal(
            rows["sequence_sigma_min_q25"], view.sequence_sigma_min[..., 1].ravel()
        )
    assert np.array_equal(
        frame.loc[frame["of"] == "attention", "score_std"], result.score_std.ravel()
    )
    assert frame.loc[frame["of"] != "attention", "score_std"].isna().all()


def test_get_returns_one_number():
    result = two_records()
    assert result.epochs.tolist() == [0, 4]
    assert result.get("sigma_min") == result.Z.sigma_min[1, 1]
    assert result.get("sigma_min", of="attention", layer=0) == result.attention.sigma_min[1, 0]
    assert result.get("condition_number", stage="initial") == result.Z.condition_number[0, 1]
    assert result.get("attention_entropy", layer=0) == result.attention_entropy[1, 0]
    assert type(result.get("numerical_rank")) is float


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantity": "sigma"}, "quantity must be one of sigma_min, .*n_argmax_keys; got 'sigma'"),
        ({"quantity": "sigma_min", "of": "attn"}, "of must be one of X, attention, Z; got 'attn'"),
        ({"quantity": "sigma_min", "stage": "last"}, "stage must be one of final, initial; got"),
        ({"quantity": "sigma_min", "layer": 2}, "layer must be below n_layers = 2, got 2"),
        ({"quantity": "sigma_min", "layer": -3}, "layer must be below n_layers = 2, got -3"),
    ],
)
def test_get_lists_what_there_is(arguments, message):
    with pytest.raises(ValueError, match=message):
        two_records().get(**arguments)


def test_every_name_that_get_lists_can_be_got():
    result = two_records()
    with pytest.raises(ValueError, match="quantity must be") as error:
        result.get("")
    names = str(error.value).split("one of ")[1].split(";")[0].split(", ")
    assert len(names) == 17
    assert all(np.isfinite(two_records().get(name, of)) for name in names for of in result.matrices)


def test_repr_is_a_sentence_about_the_last_layer():
    result = two_records()
    text = repr(result)
    assert text.startswith(
        "Conditioning of layer 1, the last of 2, before training -> after epoch 4 "
        "(6 sequences, 42 rows)\n  X:    sigma_min "
    )
    first, last = result.Z.sigma_min[:, 1]
    assert f"\n  Z:    sigma_min {first:.3g} -> {last:.3g}, condition number " in text
    once = repr(conditioning_from_traces([[attention_trace()]], epoch=3))
    assert "after epoch 3 (" in once
    assert "->" not in once
    assert repr(Conditioning()) == "Conditioning: nothing recorded yet"


def test_pickle_holds_numpy_and_builtins_only():
    result = two_records()
    data = pickle.dumps(result)
    assert_same(result, pickle.loads(data), rtol=0)
    strings = [arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)]
    modules = {s for s in strings if s.partition(".")[0] in ("numpy", "torch", "pandas", "scipy")}
    assert all(s.startswith("numpy") for s in modules)
    own = [s for s in strings if s.startswith("sklearn_restrans")]
    assert own == ["sklearn_restrans.diagnostics.conditioning"]


def test_records_of_another_probe_set_are_refused():
    result = measured(attention_trace())
    with pytest.raises(ValueError, match=r"the probe set changed: first .*'n_rows': 42"):
        result.record(1, [[attention_trace(n=7)]])
    with pytest.raises(ValueError, match="the probe set changed"):
        result.record(1, [[attention_trace(), attention_trace()]])
    assert result.epochs.tolist() == [0]


class TwoLayers(BaseEstimator):
    """Hands X itself over, in chunks of two sequences, as an estimator of the package does."""

    def fit(self, X, y=None):
        self.best_iteration_ = 12
        return self

    def __restrans_traces__(self, X):
        for start in range(0, len(X), 2):
            rows = np.asarray(X[start : start + 2], dtype=float)[:, :, None]
            yield [LayerTrace(rows, 0 * rows, rows), LayerTrace(rows, rows, 3 * rows)]


def test_conditioning_of_an_estimator_and_through_a_pipeline():
    X = np.random.default_rng(0).standard_normal((7, 5)) + 3
    result = measure_conditioning(TwoLayers().fit(X), X)
    assert result.epochs.tolist() == [12]
    norm = np.linalg.norm(X)
    np.testing.assert_allclose(result.sigma_max, [[norm, 3 * norm]], rtol=1e-14)

    pipe = make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), TwoLayers())).fit(X)
    scaled = MinMaxScaler().fit_transform(StandardScaler().fit_transform(X))
    norm = np.linalg.norm(scaled)
    np.testing.assert_allclose(
        measure_conditioning(pipe, X).sigma_max, [[norm, 3 * norm]], rtol=1e-13
    )
    alone = make_pipeline(TwoLayers()).fit(X)
    assert_same(measure_conditioning(alone, X), result, rtol=0)


def test_conditioning_refuses_other_objects():
    X = np.ones((4, 3))
    for unfitted in (TwoLayers(), make_pipeline(StandardScaler(), TwoLayers())):
        with pytest.raises(NotFittedError):
            measure_conditioning(unfitted, X)
    for other in (StandardScaler().fit(X), make_pipeline(StandardScaler()).fit(X)):
        with pytest.raises(TypeError, match=r"that ends with one, got StandardScaler; for arrays"):
            measure_conditioning(other, X)


def test_the_ratio_is_what_the_residual_kept_and_what_attention_left():
    """X has sigma_min s; attention of half of X leaves s / 2, and beta = 1 makes it 1.5 s."""
    X = np.random.default_rng(0).standard_normal((5, 6, 4))
    result = measured(LayerTrace(X, X / 2, 1.5 * X))
    found = [result.get("sigma_min_ratio", of=of) for of in ("X", "attention", "Z")]
    np.testing.assert_allclose(found, [1, 0.5, 1.5], rtol=1e-14)
    assert result.sigma_min_ratio[0, 0] == result.Z.sigma_min_ratio[0, 0]
    np.testing.assert_allclose(
        result.X.sigma_min[0, 0], np.linalg.svd(X.reshape(-1, 4), compute_uv=False)[-1], rtol=1e-13
    )
    nothing = measured(LayerTrace(0 * X, 0 * X, 0 * X))
    assert np.isnan(nothing.get("sigma_min_ratio"))


def test_a_record_of_a_version_without_x_is_read_and_says_what_it_lacks():
    result = two_records()
    for record in result._records:
        for name in list(record):
            if name.startswith("X.") or name == "attention_entropy_share":
                del record[name]
    old = pickle.loads(pickle.dumps(result))
    assert old.matrices == ("attention", "Z")
    assert old.to_frame()["of"].tolist() == ["attention", "Z"] * 4
    assert old.get("sigma_min") == two_records().get("sigma_min")
    assert np.isnan(old.sigma_min_ratio).all() and np.isnan(old.attention_entropy_share).all()
    assert "\n  Z:    sigma_min " in repr(old) and "\n  X: " not in repr(old)
    with pytest.raises(ValueError, match="X was not recorded by the version that made"):
        old.get("sigma_min", of="X")
    assert Conditioning().matrices == ()
    with pytest.raises(ValueError, match="nothing was recorded yet"):
        Conditioning().to_frame()
