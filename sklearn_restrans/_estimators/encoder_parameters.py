"""Parameters of pretrained encoders, each declared once."""

from __future__ import annotations

import os
from numbers import Integral, Real

from .._compat import Interval, StrOptions
from .declaration import again, declared, parameter
from .parameters import BetaParameter

_AT_LEAST_1 = Interval(Integral, 1, None, closed="left")

# Step sizes where learning_rate_init is None: of the read-out alone, and of layers. Chosen on
# sentences held out of the training part of SST-2 (benchmarks/README.md).
STEP_OF_HEAD, STEP_OF_LAYERS = 1e-2, 1e-4


@declared
class EncoderParameters:
    """The encoder, and what is read of it."""

    model: object = parameter(
        None,
        "str or path-like",
        [str, os.PathLike, None],
        "Folder of a BERT, RoBERTa, DistilBERT or GPT-2 checkpoint: config.json, model.safetensors "
        "(or its parts and their index) and tokenizer.json (or vocab.txt). A name that is no "
        'folder, such as "user/name", is downloaded from the hub once. It has no default: ``fit`` '
        "refuses None.",
        kw_only=False,
    )
    residual_beta: object = again(BetaParameter, "residual_beta")
    n_layers: int | None = parameter(
        None,
        "int",
        [_AT_LEAST_1, None],
        "Keep the first L layers; None keeps all.",
    )
    readout: str = parameter(
        "mean",
        '{"mean", "last"}',
        [StrOptions({"mean", "last"})],
        "What is read of the last layer: the mean over the tokens, or the last token.",
    )
    max_length: int | None = parameter(
        None,
        "int",
        [_AT_LEAST_1, None],
        "Tokens that are read of a text, special ones included; a warning counts longer texts. "
        "None is the checkpoint's limit.",
    )


@declared
class TunedParameters:
    """What of the encoder is trained."""

    fine_tune: object = parameter(
        "all",
        '{"all", "head"} or int',
        [StrOptions({"all", "head"}), _AT_LEAST_1],
        'What is trained: "all" of the encoder; the "head", a linear read-out of the frozen '
        "encoder, for which each text goes through it once; or the last k layers and the head.",
    )
    dropout: float = parameter(
        0.1,
        "float",
        [Interval(Real, 0, 1, closed="left")],
        "Dropout on Attn(X), phi(Z W_1) and the vectors of tokens while training, in [0, 1), in "
        "what is trained.",
    )


@declared
class FineTuningParameters:
    """How it is trained, where that differs from other estimators."""

    solver: str = parameter(
        "adamw",
        '{"adamw", "adam", "sgd"}',
        [StrOptions({"adamw", "adam", "sgd"})],
        'Optimiser; "sgd" has no momentum.',
    )
    learning_rate_init: float | None = parameter(
        None,
        "float",
        [Interval(Real, 0, None, closed="neither"), None],
        f"Largest step size. None is {STEP_OF_HEAD} for the head alone and {STEP_OF_LAYERS} "
        "where layers are trained.",
    )
    learning_rate: str = parameter(
        "one_cycle",
        '{"one_cycle", "constant"}',
        [StrOptions({"one_cycle", "constant"})],
        'Schedule of the step size: "one_cycle" rises over 30 % of the steps and then falls to '
        "nearly 0 along a cosine.",
    )
    batch_size: int | str = parameter(
        "auto",
        'int or "auto"',
        [_AT_LEAST_1, StrOptions({"auto"})],
        'Texts per step; "auto" is min(32, max(4, n // 8)) for n training texts. Gradients of a '
        "large batch are accumulated over passes that stay in the cache of a CPU, or in the memory "
        "of a GPU.",
    )
    max_iter: int | str = parameter(
        "auto",
        'int or "auto"',
        [_AT_LEAST_1, StrOptions({"auto"})],
        'Number of epochs. "auto" is 3, or as many as make 150 steps, but at most 40: few texts '
        "would else get too few steps.",
    )
    weight_decay: float = parameter(
        0.01,
        "float",
        [Interval(Real, 0, None, closed="left")],
        'Decay of the weight matrices (decoupled for "adamw"); vectors of tokens do not decay.',
    )
    early_stopping: bool = parameter(
        False,
        "bool",
        ["boolean"],
        "Set aside ``validation_fraction`` of the texts, and keep the epoch with the lowest loss "
        "on them. With a constant step size training stops when that loss no longer falls.",
    )
    dtype: str = parameter(
        "auto",
        '{"auto", "float32", "float64", "bfloat16"}',
        [StrOptions({"auto", "float32", "float64", "bfloat16"})],
        '"auto" is float32; "bfloat16" keeps float32 weights and multiplies in bfloat16.',
    )
