"""Tiny random checkpoints of every family, as transformers itself saves and computes them."""

from __future__ import annotations

import hashlib
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

tokenizers = pytest.importorskip("tokenizers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

FAMILIES = ["bert", "roberta", "distilbert", "gpt2"]
D, LAYERS, HEADS, D_FF, POSITIONS = 16, 3, 2, 24, 40

# Of 0 to 14 words.
TEXTS = [
    "a fine film",
    "a dull film",
    "good",
    "the cast is good and the film is fine",
    "a very long and dull film with a bad cast and no good song at all",
    "",
    "bad, bad film!",
    "unheard-of words",
    "the song is no good",
    "fine cast",
]
WORDS = sorted({word for text in TEXTS for word in text.replace(",", "").rstrip("!").split()})
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [letter for letter in "abcdefghijklmnopqrstuvwxyz!,-" if letter not in WORDS]
WORD_PIECES = [*SPECIAL, *WORDS, *LETTERS, "##s", "##e", "##d", "##ing"]


def labelled(n=40, seed=0):
    """Texts of 2 to 6 words, and whether there is a "good" in them."""
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if word != "good"]
    texts, labels = [], np.arange(n) % 2
    for label in labels:
        text = list(rng.choice(words, rng.integers(2, 6)))
        text.insert(rng.integers(len(text) + 1), "good" if label else "bad")
        texts.append(" ".join(text))
    return texts, np.where(labels, "pos", "neg")


# ---- making them --------------------------------------------------------------------------------


def word_pieces(folder):
    made = tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(WORD_PIECES)})
    made.save(str(folder / "tokenizer.json"))
    return len(WORD_PIECES), {"pad_token_id": 0}


def byte_pairs(folder):
    """As RoBERTa has it: <s> ... </s>, padding with id 1."""
    made = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(TEXTS, vocab_size=290, special_tokens=special, show_progress=False)
    made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.save(str(folder / "tokenizer.json"))
    ends = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return made.get_vocab_size(), ends


def plain_byte_pairs(folder):
    """As GPT-2 has it: nothing around a text."""
    made = tokenizers.ByteLevelBPETokenizer()
    special = ["<|endoftext|>"]
    made.train_from_iterator(TEXTS, vocab_size=290, special_tokens=special, show_progress=False)
    made.save(str(folder / "tokenizer.json"))
    return made.get_vocab_size(), {"bos_token_id": 0, "eos_token_id": 0}


def _bert_config(n_ids, activation, ends):
    return transformers.BertConfig(
        **_sizes_of_bert(n_ids, activation), type_vocab_size=2, layer_norm_eps=1e-6, **ends
    )


def _roberta_config(n_ids, activation, ends):
    sizes = _sizes_of_bert(n_ids, activation) | {"max_position_embeddings": POSITIONS + 2}
    return transformers.RobertaConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-5, **ends)


def _sizes_of_bert(n_ids, activation):
    return {
        "vocab_size": n_ids,
        "hidden_size": D,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": D_FF,
        "hidden_act": activation,
        "max_position_embeddings": POSITIONS,
    }


def _distilbert_config(n_ids, activation, ends):
    return transformers.DistilBertConfig(
        vocab_size=n_ids,
        dim=D,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=D_FF,
        activation=activation,
        max_position_embeddings=POSITIONS,
        **ends,
    )


def _gpt2_config(n_ids, activation, ends):
    return transformers.GPT2Config(
        vocab_size=n_ids,
        n_embd=D,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=D_FF,
        activation_function=activation,
        n_positions=POSITIONS,
        **ends,
    )


_MAKERS = {
    "bert": (word_pieces, _bert_config, "BertModel"),
    "roberta": (byte_pairs, _roberta_config, "RobertaModel"),
    "distilbert": (word_pieces, _distilbert_config, "DistilBertModel"),
    "gpt2": (plain_byte_pairs, _gpt2_config, "GPT2Model"),
}


def save(family, folder, activation="gelu", seed=0, dtype=torch.float32, **saving):
    """A checkpoint whose every weight, bias and gain is random, so that each one matters."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, config, name = _MAKERS[family]
    n_ids, ends = tokenizer(folder)
    model = getattr(transformers, name)(config(n_ids, activation, ends))
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            is_gain = weight.ndim == 1 and key.endswith("weight")
            drawn = rng.normal(float(is_gain), 0.3, weight.shape)
            weight.copy_(torch.as_tensor(drawn))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.to(dtype).save_pretrained(folder, **saving)
    return folder


def digest(folder):
    """Every file of a folder with a hash of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


# ---- the reference: transformers ----------------------------------------------------------------


def fresh_reference(folder, dtype=torch.float64, n_layers=None):
    """transformers' own model of a folder, cut to its first layers by its own config."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.from_pretrained(folder)
        if n_layers is not None:
            config.num_hidden_layers = n_layers
        options = {"config": config, "attn_implementation": "eager"}
        model = transformers.AutoModel.from_pretrained(folder, **options)
    return model.to(dtype).eval()


reference = lru_cache(maxsize=32)(fresh_reference)


def encode(folder, texts, max_length=None):
    """Ids and attention mask of transformers' reading of the tokenizer; padding is id 1."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(Path(folder, "tokenizer.json"))
    )
    names = tokenizer.get_vocab()
    padding = next(n for n in ("<pad>", "[PAD]", "<|endoftext|>") if n in names)
    tokenizer.pad_token = padding
    options = {} if max_length is None else {"truncation": True, "max_length": max_length}
    made = tokenizer(texts, padding=True, return_tensors="pt", **options)
    ids, mask = made["input_ids"], made["attention_mask"]
    for row in torch.nonzero(mask.sum(1) == 0).flatten():  # of GPT-2: the id that ends a text
        ids[row, 0], mask[row, 0] = 0, 1
    return ids, mask


@torch.no_grad()
def hidden_states(folder, texts, dtype=torch.float64, n_layers=None, model=None, max_length=None):
    """All hidden states (n, T, d) of transformers' model, and the mask (n, T)."""
    ids, mask = encode(folder, texts, max_length)
    model = model or reference(folder, dtype, n_layers)
    states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
    return [state.numpy() for state in states], mask.numpy().astype(bool)


def mean_of_tokens(states, mask):
    """Means (n, d) over the real tokens."""
    weight = mask[..., None] / mask.sum(1)[:, None, None]
    return (states * weight).sum(1)


def last_of_tokens(states, mask):
    """The last real token of each text (n, d)."""
    return states[np.arange(len(states)), mask.sum(1) - 1]


def scale_residuals(model, beta):
    """Multiply every residual of a model of transformers, by hooks; beta is (n_layers, 2)."""
    kind = model.config.model_type
    layers = {"distilbert": lambda: model.transformer.layer, "gpt2": lambda: model.h}
    blocks = layers.get(kind, lambda: model.encoder.layer)()
    for block, pair in zip(blocks, np.asarray(beta, dtype=float), strict=True):
        _SCALERS.get(kind, _scale_bert)(block, *map(float, pair))
    return model


def _scale_bert(block, attention, ffn):
    """Both ends are called as (output, residual)."""
    for part, factor in ((block.attention.output, attention), (block.output, ffn)):
        part.register_forward_pre_hook(lambda _, args, b=factor: (args[0], b * args[1]))


def _scale_distilbert(block, attention, ffn):
    """The norms are given output + residual, so that (b - 1) residual is missing."""
    kept = {}
    block.register_forward_pre_hook(lambda _, args: kept.update(x=args[0]))
    block.sa_layer_norm.register_forward_pre_hook(
        lambda _, args: (args[0] + (attention - 1) * kept["x"],)
    )
    block.sa_layer_norm.register_forward_hook(lambda _, args, out: kept.update(z=out))
    block.output_layer_norm.register_forward_pre_hook(
        lambda _, args: (args[0] + (ffn - 1) * kept["z"],)
    )


def _scale_gpt2(block, attention, ffn):
    """What each part gives gets (b - 1) of the residual that is then added to it."""
    kept = {}
    block.ln_1.register_forward_pre_hook(lambda _, args: kept.update(x=args[0]))
    block.attn.register_forward_hook(
        lambda _, args, out: (out[0] + (attention - 1) * kept["x"], *out[1:])
    )
    block.ln_2.register_forward_pre_hook(lambda _, args: kept.update(z=args[0]))
    block.mlp.register_forward_hook(lambda _, args, out: out + (ffn - 1) * kept["z"])


_SCALERS = {"distilbert": _scale_distilbert, "gpt2": _scale_gpt2}
