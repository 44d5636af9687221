"""How the checkpoints of each family are laid out: names in their config and of their weights.

The models themselves are :class:`.ResidualTransformer`: BERT (Devlin et al. 2019,
arXiv:1810.04805) normalises after each part and once after the embedding, GPT-2 (Radford et al.
2019) before each part and once at the end, and lets tokens attend to earlier ones only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Names that configs give the activations -> ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


@dataclass(frozen=True)
class Layout:
    """Where a family of checkpoints keeps what a ResidualTransformer needs.

    Attributes
    ----------
    prefixes : tuple of str
        What may stand before every name of a weight.
    config : dict
        Our names of sizes -> the entries of config.json.
    defaults : dict
        Our names of sizes -> what they are where config.json lacks the entry.
    fixed : dict
        Entries of config.json that change the formulas -> the one value that is read.
    formulas : dict
        Fields of the architecture that are the same in all checkpoints of the family.
    table, positions, kinds, outer_norm : str or None
        Weights: vectors of the tokens, of their positions, of the kinds of text (the first one is
        added everywhere), and the norm at one end.
    layer : str
        What stands before the names of a layer's weights, with its number.
    weights : dict
        Our names of a layer's matrices and biases -> theirs.
    norms : dict
        Our names of a layer's norms -> theirs.
    transposed : bool
        Whether matrices are stored (out, in).
    after_padding : bool
        Whether positions count from the id of padding on.
    reads_merges : bool
        Whether vocab.json and merges.txt alone make its tokenizer.
    """

    prefixes: tuple[str, ...]
    config: dict[str, str]
    table: str
    positions: str
    layer: str
    weights: dict[str, str]
    norms: dict[str, str]
    outer_norm: str
    formulas: dict[str, object]
    kinds: str | None = None
    fixed: dict[str, object] = field(default_factory=dict)
    defaults: dict[str, object] = field(default_factory=dict)
    transposed: bool = True
    after_padding: bool = False
    reads_merges: bool = False


_SIZES = {
    "d_model": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "n_ids": "vocab_size",
    "activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
}
_DEFAULTS = {"activation": "gelu", "norm_eps": 1e-12, "n_positions": 512}
_POST = {"norm": "post", "outer_norm": "first", "causal": False}
_BERT = Layout(
    prefixes=("bert.", ""),
    config=_SIZES,
    defaults=_DEFAULTS,
    fixed={"position_embedding_type": "absolute", "is_decoder": False},
    formulas=_POST,
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    kinds="embeddings.token_type_embeddings",
    outer_norm="embeddings.LayerNorm",
    layer="encoder.layer.{}.",
    weights={
        "Q": "attention.self.query",
        "K": "attention.self.key",
        "V": "attention.self.value",
        "O": "attention.output.dense",
        "1": "intermediate.dense",
        "2": "output.dense",
    },
    norms={"norm_1": "attention.output.LayerNorm", "norm_2": "output.LayerNorm"},
)
_ROBERTA = Layout(**{**vars(_BERT), "prefixes": ("roberta.", ""), "after_padding": True})
_DISTILBERT = Layout(
    prefixes=("distilbert.", ""),
    config=_SIZES
    | {
        "d_model": "dim",
        "n_layers": "n_layers",
        "n_heads": "n_heads",
        "d_ff": "hidden_dim",
        "activation": "activation",
    },
    defaults=_DEFAULTS,
    formulas=_POST,
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    outer_norm="embeddings.LayerNorm",
    layer="transformer.layer.{}.",
    weights={
        "Q": "attention.q_lin",
        "K": "attention.k_lin",
        "V": "attention.v_lin",
        "O": "attention.out_lin",
        "1": "ffn.lin1",
        "2": "ffn.lin2",
    },
    norms={"norm_1": "sa_layer_norm", "norm_2": "output_layer_norm"},
)
_GPT2 = Layout(
    prefixes=("transformer.", ""),
    config={
        "d_model": "n_embd",
        "n_layers": "n_layer",
        "n_heads": "n_head",
        "d_ff": "n_inner",
        "n_positions": "n_positions",
        "n_ids": "vocab_size",
        "activation": "activation_function",
        "norm_eps": "layer_norm_epsilon",
    },
    defaults={"activation": "gelu_new", "norm_eps": 1e-5, "n_positions": 1024},
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    formulas={"norm": "pre", "outer_norm": "last", "causal": True},
    table="wte",
    positions="wpe",
    outer_norm="ln_f",
    layer="h.{}.",
    weights={"QKV": "attn.c_attn", "O": "attn.c_proj", "1": "mlp.c_fc", "2": "mlp.c_proj"},
    norms={"norm_1": "ln_1", "norm_2": "ln_2"},
    transposed=False,
    reads_merges=True,
)

# model_type of config.json -> layout.
LAYOUTS = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "gpt2": _GPT2,
}
