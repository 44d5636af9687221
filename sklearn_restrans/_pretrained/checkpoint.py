"""Read a pretrained encoder from a folder: its sizes, its tokenizer and its weights.

Weights are read from safetensors files, which hold numbers and no code. Nothing in a folder is
ever executed, and a folder that is there is never looked for elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from .._data.tokens import padded_length
from .layouts import ACTIVATIONS, LAYOUTS

CONFIG, WEIGHTS = "config.json", "model.safetensors"
INDEX = WEIGHTS + ".index.json"
# Weights as pickles, which may run code when they are read.
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder whose config.json has been read and understood.

    Attributes
    ----------
    named : str
        The parameter ``model`` that it was read for.
    path : str
        Its folder.
    config : dict
        All of config.json.
    sizes : dict
        d_model, n_layers, n_heads, d_ff, n_positions, n_ids, activation, norm_eps.
    """

    named: str
    path: str
    config: dict
    sizes: dict

    @property
    def folder(self):
        return Path(self.path)  # a Path itself cannot be unpickled on another system

    @property
    def layout(self):
        return LAYOUTS[self.config["model_type"]]

    @property
    def first_position(self):
        """Row of the position table that belongs to the first token."""
        if not self.layout.after_padding:
            return 0
        padding = self.config.get("pad_token_id")
        return 2 if padding is None else padding + 1

    @property
    def n_positions(self):
        """The most tokens of a text."""
        return self.sizes["n_positions"] - self.first_position

    def fields(self, n_layers, max_length):
        """Fields of the architecture of the first ``n_layers`` layers.

        Raises
        ------
        ValueError
            If the checkpoint has fewer layers, or fewer positions than ``max_length``.
        """
        most = self.sizes["n_layers"]
        if n_layers is not None and n_layers > most:
            raise ValueError(
                f"n_layers={n_layers}, but {self.folder / CONFIG} says that this checkpoint has "
                f"{most} layers; take at most {most}, or None for all."
            )
        if max_length is not None and max_length > self.n_positions:
            raise ValueError(
                f"max_length={max_length}, but {self.folder / CONFIG} says that this checkpoint "
                f"has {self.n_positions} positions; take at most that, or None for all."
            )
        same = ("d_model", "n_heads", "d_ff", "activation", "norm_eps")
        return {
            "n_tokens": int(padded_length(max_length or self.n_positions)),
            "n_features": self.sizes["n_ids"] + 1,  # id 0 is padding; the checkpoint's follow
            "n_layers": int(n_layers or most),
            "positions": "learned",
            "embedding": "token",
            "biases": True,
            **{name: self.sizes[name] for name in same},
            **self.layout.formulas,
        }


def read_checkpoint(model):
    """The checkpoint of a local folder, or of a name on the hub, which is downloaded once.

    Parameters
    ----------
    model : str or path-like
        A folder. A name without a folder, such as "user/name", is looked for on the hub.

    Raises
    ------
    FileNotFoundError
        If a file is missing; the message names it.
    ValueError
        If model is None, config.json cannot be read, or it describes a model whose formulas this
        package lacks.
    """
    folder = _folder_of(model)
    config = _read_json(folder, CONFIG)
    kind = config.get("model_type")
    where = folder / CONFIG
    if not isinstance(kind, str) or kind not in LAYOUTS:
        raise ValueError(
            f"{where} has model_type={kind!r}; this package knows {', '.join(map(repr, LAYOUTS))}."
        )
    layout = LAYOUTS[kind]
    for name, value in layout.fixed.items():
        if config.get(name, value) not in (value, None):
            raise ValueError(
                f"{where} has {name}={config[name]!r}, whose formulas this package lacks; it takes "
                f"{name}={value!r}."
            )
    return Checkpoint(str(model), str(folder), config, _sizes(config, layout, where))


def _sizes(config, layout, where):
    sizes = {}
    for ours, theirs in layout.config.items():
        value = config.get(theirs, layout.defaults.get(ours))
        if ours == "activation":
            if not isinstance(value, str) or value not in ACTIVATIONS:
                raise ValueError(
                    f"{where} has {theirs}={value!r}; this package knows the activations "
                    f"{', '.join(map(repr, ACTIVATIONS))}."
                )
            value = ACTIVATIONS[value]
        elif ours == "d_ff" and value is None:
            value = 4 * sizes["d_model"]
        elif ours == "norm_eps":
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ValueError(f"{where} has {theirs}={value!r}; it must be a number >= 0.")
            value = float(value)
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{where} has {theirs}={value!r}; it must be a positive integer.")
        sizes[ours] = value
    if sizes["d_model"] % sizes["n_heads"]:
        raise ValueError(
            f"{where} has {layout.config['n_heads']}={sizes['n_heads']}, which does not divide "
            f"{layout.config['d_model']}={sizes['d_model']}."
        )
    return sizes


# ---- files --------------------------------------------------------------------------------------


def _folder_of(model):
    """The folder that a parameter ``model`` names; of a hub name the one it was downloaded to."""
    if model is None:
        raise ValueError(
            "model=None: pass the folder of a pretrained encoder, or its name on the hub."
        )
    if not isinstance(model, str | os.PathLike) or not os.fspath(model):
        raise TypeError(
            f"model must be a folder with a pretrained encoder, or its name on the hub, got "
            f"{model!r:.80}."
        )
    missing = f"model={str(model)!r:.80}: there is no such folder."
    try:
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
        is_file = folder.exists()
    except (OSError, RuntimeError):  # a name that is too long, the home of an unknown user
        raise FileNotFoundError(missing) from None
    if is_file:
        raise NotADirectoryError(f"model must be a folder, got the file {folder}.")
    if isinstance(model, os.PathLike) or not _HUB_NAME.fullmatch(model):
        raise FileNotFoundError(missing)
    return _download(model)


def _download(name):
    """The folder of the cache in which the files of a model of the hub are; downloads them."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(
            f"model={name!r} is no folder here; to look for it on the hub, pip install "
            "sklearn_restrans[text]."
        ) from None
    wanted = [CONFIG, WEIGHTS, INDEX, "model-*.safetensors", *_TOKENIZERS]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # of the library, of its HTTP client, of the disk
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise FileNotFoundError(
            f"model={name!r}: there is no such folder, and no such model could be fetched from the "
            f"hub ({reason}). Write ./{name} to look for a folder only."
        ) from error


def _read_json(folder, name):
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(_missing(folder, name))
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}.")
    return value


def _missing(folder, name):
    """What to say where a folder has no file of that name."""
    path = folder / name
    if path.is_symlink():
        return f"{path} is a link that leads nowhere; copy the file itself."
    if path.is_dir():
        return f"{path} is a folder, not a file."
    return f"{folder} has no {name}; {_found(folder)}."


def _found(folder):
    if not folder.is_dir():
        return "the folder itself is gone"
    names = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"it holds {shown}" if names else "it is empty"


# ---- weights ------------------------------------------------------------------------------------


def read_weights(checkpoint, arch):
    """The weights of a model of this architecture, by name; its read-out W_U starts at zero.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file or a weight is missing, damaged, or of another shape than config.json says.
    """
    layout, read = checkpoint.layout, _Reader(checkpoint)
    d = arch.d_model
    table = read(f"{layout.table}.weight", (arch.n_features - 1, d))
    first, n_positions = checkpoint.first_position, checkpoint.sizes["n_positions"]
    positions = read(f"{layout.positions}.weight", (n_positions, d))[first:][: arch.n_tokens]
    if layout.kinds is not None:  # a sum rounded to float32 would show in float64
        positions = positions.double() + read(f"{layout.kinds}.weight", (None, d))[0]
    # Rows of padding have no position of their own.
    missing = arch.n_tokens - len(positions)
    weights = {
        "W_in": torch.cat([table.new_zeros(1, d), table]),
        "positions": torch.cat([positions, positions.new_zeros(missing, d)]),
        "W_U": torch.zeros(d, arch.n_outputs),
        "b_U": torch.zeros(arch.n_outputs),
    }
    weights |= read.norm("outer_norm", layout.outer_norm, d)
    for index in range(arch.n_layers):
        ours, theirs = f"layers.{index}.", layout.layer.format(index)
        for name, of in layout.norms.items():
            weights |= read.norm(ours + name, theirs + of, d)
        for name, of in layout.weights.items():
            shape = {"1": (d, arch.d_ff), "2": (arch.d_ff, d), "QKV": (d, 3 * d)}.get(name, (d, d))
            matrix = read(f"{theirs}{of}.weight", shape[::-1] if layout.transposed else shape)
            matrix = matrix.T if layout.transposed else matrix
            bias = read(f"{theirs}{of}.bias", shape[1:])
            width = shape[1] // len(name)  # GPT-2 keeps three matrices side by side
            for letter, W, b in zip(name, matrix.split(width, 1), bias.split(width), strict=True):
                weights |= {f"{ours}W_{letter}": W, f"{ours}b_{letter}": b}
    read.warn_of_half_precision()
    return weights


class _Reader:
    """Reads weights by name from the safetensors files of a checkpoint, in 32 bits at least."""

    def __init__(self, checkpoint):
        try:
            import safetensors
        except ImportError:
            raise ImportError(
                "reading a pretrained encoder needs the safetensors library: pip install "
                "sklearn_restrans[text]."
            ) from None
        paths = _weight_files(checkpoint.folder)
        self.whole = paths[0] if len(paths) == 1 else checkpoint.folder / INDEX
        self.where = {}  # name -> (open file, its path)
        self.halved = {}  # path -> type of weights of 16 bits
        for path in paths:
            try:
                opened = safetensors.safe_open(path, framework="pt")
                self.where |= {name: (opened, path) for name in opened.keys()}
            except (safetensors.SafetensorError, OSError) as error:
                raise ValueError(
                    f"{path} cannot be read as safetensors ({error}); it is damaged or was not "
                    "copied to its end: fetch it again."
                ) from None
        first = f"{checkpoint.layout.table}.weight"
        self.prefix = next(
            (p for p in checkpoint.layout.prefixes if p + first in self.where),
            checkpoint.layout.prefixes[0],
        )

    def __call__(self, name, shape):
        full = self.prefix + name
        if full not in self.where:
            raise ValueError(
                f"{self.whole} has no weight {full}, which {CONFIG} asks for; the two "
                "files belong to different models, or the file is a part of one."
            )
        opened, path = self.where[full]
        weight = opened.get_tensor(full)
        agrees = weight.ndim == len(shape) and all(
            size in (None, found) for size, found in zip(shape, weight.shape, strict=True)
        )
        if not agrees:
            asked = tuple("any" if size is None else size for size in shape)
            raise ValueError(
                f"{path} has {full} of shape {tuple(weight.shape)}, but {CONFIG} says {asked}; the "
                "two files belong to different models."
            )
        if not weight.is_floating_point():
            raise ValueError(
                f"{path} has {full} as {weight.dtype}; a checkpoint of floating-point weights is "
                "needed, not a quantised one."
            )
        if weight.element_size() < 4:
            self.halved[path] = str(weight.dtype).removeprefix("torch.")
            weight = weight.float()
        if not weight.isfinite().all():
            raise ValueError(f"{path} has values in {full} that are not finite; fetch it again.")
        return weight

    def warn_of_half_precision(self):
        """Say that weights of 16 bits are computed with in 32."""
        for path, kind in self.halved.items():
            warnings.warn(
                f"{path} holds weights in {kind}; they are used in float32, with the accuracy that "
                f"{kind} left them. dtype='bfloat16' multiplies in 16 bits.",
                UserWarning,
                stacklevel=3,
            )

    def norm(self, ours, theirs, d):
        """Gain and shift of a norm, under the newer or the older of two pairs of names."""
        old = self.prefix + theirs + ".gamma" in self.where
        gain, shift = ("gamma", "beta") if old else ("weight", "bias")
        return {
            f"{ours}.gain": self(f"{theirs}.{gain}", (d,)),
            f"{ours}.shift": self(f"{theirs}.{shift}", (d,)),
        }


def _weight_files(folder):
    """Paths of the safetensors files: one, or those that an index names."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        named = _read_json(folder, INDEX).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(n, str) for n in named.values()):
            raise ValueError(f"{folder / INDEX} has no weight_map that names a file per weight.")
        paths = [folder / Path(name).name for name in sorted(set(named.values()))]
        for path in paths:
            if not path.is_file():
                raise FileNotFoundError(f"{folder} has no {path.name}, which {INDEX} names.")
        return paths
    pickles = sorted(path.name for kind in _PICKLES for path in folder.glob(kind))
    if pickles:
        raise FileNotFoundError(
            f"{folder} has its weights as {', '.join(pickles)} only, and no {WEIGHTS}; such files "
            "can run code when they are read, so they are not. Convert them with the library that "
            "wrote them, for transformers model.save_pretrained(folder, safe_serialization=True)."
        )
    raise FileNotFoundError(_missing(folder, WEIGHTS))
