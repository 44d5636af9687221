"""Planted sequences, and checkpoints with random weights: what they hold, and what is refused."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from sklearn_restrans.datasets import make_planted_sequences, make_random_checkpoint


def test_planted_target_follows_its_rule(seed):
    for s in range(seed, seed + 3):
        X, y, coef = make_planted_sequences(
            50, 7, 5, sharpness=2.0, return_coef=True, random_state=s
        )
        assert X.shape == (50, 7, 5) and coef.shape == (3,)
        # 1e-14: one rounding of a unit norm;  1e-13: sums of 7 terms of order one
        assert abs(np.linalg.norm(coef) - 1) < 1e-14
        for i in range(50):
            weights = np.exp([2.0 * X[i, 6, 0] * X[i, t, 1] for t in range(7)])
            target = sum(w * (X[i, t, 2:] @ coef) for t, w in enumerate(weights)) / weights.sum()
            assert abs(y[i] - target) < 1e-13
        again = make_planted_sequences(50, 7, 5, sharpness=2.0, random_state=s)
        np.testing.assert_array_equal(again[1], y)


def test_planted_target_needs_attention(seed):
    scores = []
    for sharpness in (0.0, 3.0):
        X, y = make_planted_sequences(4000, sharpness=sharpness, random_state=seed)
        flat = X.reshape(4000, -1)
        scores.append(Ridge().fit(flat[:2000], y[:2000]).score(flat[2000:], y[2000:]))
    # Without attention the target is linear. With it a linear model explains the mean of the
    # tokens only: 0.27 over 20 seeds, standard deviation 0.02.
    assert scores[0] > 0.999 and scores[1] < 0.4


def test_planted_noise_has_its_standard_deviation(seed):
    quiet = make_planted_sequences(4000, random_state=seed)[1]
    noisy = make_planted_sequences(4000, noise=0.5, random_state=seed)[1]
    # 5 %: 4.5 standard errors of a standard deviation from 4,000 values
    assert abs(np.std(noisy - quiet) / 0.5 - 1) < 0.05


@pytest.mark.parametrize(
    "argument, value",
    [
        ("n_samples", 0),
        ("n_samples", True),
        ("n_tokens", 1.5),
        ("n_features", 2),
        ("sharpness", -1.0),
        ("noise", np.nan),
        ("noise", "loud"),
        ("noise", True),
        ("noise", 10**400),
        ("sharpness", 1e301),
        ("sharpness", np.float32(np.inf)),
        ("return_coef", "yes"),
        ("random_state", -1),
        ("random_state", "seed"),
    ],
)
def test_planted_arguments_are_checked(argument, value):
    with pytest.raises(ValueError, match=f"{argument} must be"):
        make_planted_sequences(**{argument: value})


def test_planted_sizes_beyond_any_memory_are_refused():
    with pytest.raises(ValueError, match="ask for more than 1099511627776 values; pass smaller"):
        make_planted_sequences(10**30)


@pytest.mark.parametrize("sharpness", [1e300, np.float32(1e38)])
def test_planted_sequences_of_the_sharpest_attention_are_finite(sharpness):
    X, y, coef = make_planted_sequences(50, sharpness=sharpness, return_coef=True, random_state=0)
    # One token has all of the attention: the one with the largest score.
    best = (X[:, -1:, 0] * X[:, :, 1]).argmax(axis=1)
    # 1e-12: a few roundings of sums of order one
    np.testing.assert_allclose(y, X[np.arange(50), best, 2:] @ coef, rtol=0, atol=1e-12)


# ---- random checkpoints ---------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_random_checkpoint_has_the_shapes_and_files_of_the_other(checkpoints, tmp_path, family):
    numpy_files = pytest.importorskip("safetensors.numpy")
    like = checkpoints(family)
    folder = make_random_checkpoint(tmp_path / "new", like, scale=0.5, random_state=0)
    old, new = (numpy_files.load_file(path / "model.safetensors") for path in (like, folder))
    assert {key: value.shape for key, value in new.items()} == {
        key: value.shape for key, value in old.items()
    }
    drawn = np.concatenate([value.ravel() for value in new.values() if value.ndim > 1])
    # the mean and the standard deviation of n normal numbers, four standard errors of each
    assert abs(drawn.mean()) < 4 * 0.5 / np.sqrt(drawn.size)
    assert abs(drawn.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * drawn.size)
    flat = {key: value for key, value in new.items() if value.ndim == 1}
    gains = {key for key in flat if key.endswith("weight")}
    assert gains and all((flat[key] == (key in gains)).all() for key in flat)
    for name in ("config.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (like / name).read_bytes()


def test_a_random_checkpoint_follows_its_seed(checkpoints, tmp_path):
    files = pytest.importorskip("safetensors.numpy")
    seeds = {"a": 0, "b": 0, "c": 1}
    made = {
        name: files.load_file(
            make_random_checkpoint(tmp_path / name, checkpoints("bert"), random_state=seed)
            / "model.safetensors"
        )
        for name, seed in seeds.items()
    }
    assert all((made["a"][key] == made["b"][key]).all() for key in made["a"])
    assert any((made["a"][key] != made["c"][key]).any() for key in made["a"])


def test_a_random_checkpoint_never_replaces_the_other(checkpoints, tmp_path):
    like = checkpoints("bert")
    with pytest.raises(ValueError, match="is the checkpoint itself; name another"):
        make_random_checkpoint(like, like)
    with pytest.raises(FileNotFoundError, match=r"like='.*' has no model.safetensors"):
        make_random_checkpoint(tmp_path / "new", tmp_path)
    assert not (tmp_path / "new").exists()
