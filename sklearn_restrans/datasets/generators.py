"""Small generators with a known rule, for tests, examples and benchmarks."""

from __future__ import annotations

import shutil
from numbers import Real
from pathlib import Path

import numpy as np
from sklearn.utils import check_random_state

from .._validation import check_integer

# Larger factors of a normal number overflow.
_LARGEST = 1e300
# 8 TiB of float64: more is a slip, which numpy would answer with a sentence about dimensions.
_MOST_VALUES = 2**40


def make_planted_sequences(
    n_samples=200,
    n_tokens=8,
    n_features=4,
    *,
    sharpness=3.0,
    noise=0.0,
    return_coef=False,
    random_state=None,
):
    """Sequences whose target one attention head can compute and a linear model cannot.

    With x_t the token t of a standard normal sequence, T the last one and w a random unit vector,

        y = sum_t a_t <w, x_t[2:]> + noise,    a = softmax_t(sharpness * x_T[0] * x_t[1]):

    channel 0 of the last token asks for large or small values of channel 1, and the answer is
    read from the other channels of the tokens that have them.

    Parameters
    ----------
    n_samples : int, default=200
        Number of sequences.
    n_tokens : int, default=8
        Tokens of every sequence.
    n_features : int, default=4
        Channels of a token, at least 3.
    sharpness : float, default=3.0
        Scale of the scores; 0 makes the target a mean over the tokens, which is linear.
    noise : float, default=0.0
        Standard deviation of the noise added to the target.
    return_coef : bool, default=False
        Whether to return w as well.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_samples, n_tokens, n_features)
        Sequences, float64.
    y : ndarray of shape (n_samples,)
        Targets, float64.
    coef : ndarray of shape (n_features - 2,)
        The vector w, only if `return_coef`.

    Raises
    ------
    ValueError
        If a number is too small or too large.

    Examples
    --------
    >>> from sklearn_restrans.datasets import make_planted_sequences
    >>> X, y = make_planted_sequences(100, n_tokens=6, random_state=0)
    >>> X.shape, y.shape
    ((100, 6, 4), (100,))
    """
    for name, value, least in (
        ("n_samples", n_samples, 1),
        ("n_tokens", n_tokens, 1),
        ("n_features", n_features, 3),
    ):
        check_integer(name, value, least)
    for name, value in (("sharpness", sharpness), ("noise", noise)):
        # A float32 cannot be compared with the limit, which is beyond its range.
        number = float(value) if isinstance(value, np.floating) else value
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= number <= _LARGEST:
            raise ValueError(f"{name} must be a number from 0 to {_LARGEST:g}, got {value!r:.80}.")
    if n_samples * n_tokens * n_features > _MOST_VALUES:
        raise ValueError(
            f"n_samples={n_samples}, n_tokens={n_tokens} and n_features={n_features} ask for more "
            f"than {_MOST_VALUES} values; pass smaller numbers."
        )
    if not isinstance(return_coef, bool | np.bool_):
        raise ValueError(f"return_coef must be True or False, got {return_coef!r:.80}.")
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, an integer from 0 to 2**32 - 1 or a RandomState, got "
            f"{random_state!r:.80}."
        ) from error
    X = rng.standard_normal((n_samples, n_tokens, n_features))
    coef = rng.standard_normal(n_features - 2)
    coef /= np.linalg.norm(coef)
    scores = sharpness * X[:, -1:, 0] * X[:, :, 1]
    attention = np.exp(scores - scores.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    y = (attention * (X[:, :, 2:] @ coef)).sum(axis=1) + noise * rng.standard_normal(n_samples)
    return (X, y, coef) if return_coef else (X, y)


def make_random_checkpoint(folder, like, *, scale=0.02, random_state=None):
    """A pretrained encoder's folder once more, with random weights of the same shapes.

    The control for experiments on pretrained encoders: what comes of their shape and what of their
    training. As BERT starts [1]_, matrices and vectors of tokens are drawn from N(0, scale^2),
    biases are 0 and the gains of norms 1. Configuration and tokenizer are copied.

    Parameters
    ----------
    folder : str or path-like
        Where to write; it is made if it is missing.
    like : str or path-like
        Folder of a checkpoint, with its weights in model.safetensors.
    scale : float, default=0.02
        Standard deviation of the weights.
    random_state : int, RandomState instance or None, default=None
        Seed of the weights.

    Returns
    -------
    folder : Path

    Raises
    ------
    FileNotFoundError
        If ``like`` has no model.safetensors.
    ImportError
        If the safetensors library is missing.

    References
    ----------
    .. [1] J. Devlin et al., "BERT", NAACL 2019, arXiv:1810.04805.

    Examples
    --------
    >>> from sklearn_restrans.datasets import make_random_checkpoint
    >>> make_random_checkpoint("new/folder", like="folder/of/a/checkpoint")
    Traceback (most recent call last):
    FileNotFoundError: like='folder/of/a/checkpoint' has no model.safetensors.
    """
    folder, like, name = Path(folder), Path(like), "model.safetensors"
    if not (like / name).is_file():
        raise FileNotFoundError(f"like={str(like)!r} has no {name}.")
    if folder.exists() and folder.samefile(like):
        raise ValueError(f"folder={str(folder)!r} is the checkpoint itself; name another.")
    try:
        from safetensors import safe_open
        from safetensors.numpy import save_file
    except ImportError:
        raise ImportError(
            "writing a checkpoint needs the safetensors library: pip install "
            "sklearn_restrans[text]."
        ) from None
    rng, weights = check_random_state(random_state), {}
    with safe_open(like / name, framework="np") as opened:
        for key in sorted(opened.keys()):
            shape = tuple(opened.get_slice(key).get_shape())
            if len(shape) > 1:
                value = scale * rng.standard_normal(shape)
            else:  # of one axis are biases, and gains of norms
                value = np.full(shape, float(key.endswith(("weight", "gamma"))))
            weights[key] = value.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*like.glob("*.json"), *like.glob("*.txt")]:
        if path.is_file() and not path.name.endswith(".index.json"):
            shutil.copyfile(path, folder / path.name)
    save_file(weights, folder / name)
    return folder
