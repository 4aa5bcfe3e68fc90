"""Finding, loading and saving models: what a folder must have, what stops a turn; a kill leaves nothing half there."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rlvr.engine.load import ModelError, find_model, load_model, models_dir, save_model, whole_folder

CHATML = (Path(__file__).parent / "templates" / "chatml.jinja").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.set_num_threads(1)
    monkeypatch.setenv("RLVR_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("rlvr.organisms.names", lambda: ["nano"])
    monkeypatch.setattr("rlvr.organisms.folder", lambda name: tmp_path / "bundled" / name)
    return tmp_path / "models"


def tiny(**config: Any) -> tuple[Any, Any]:
    """A two-head Llama over bytes with <|im_start|>, <|im_end|>, <|endoftext|>, <pad> as ids 256..259."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    control = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<pad>"]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": control[:2]})
    torch.manual_seed(0)
    sizes = {"vocab_size": 260, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    special = {"bos_token_id": None, "eos_token_id": 258, "pad_token_id": 259}
    return LlamaForCausalLM(LlamaConfig(**sizes | heads | special | config)).eval(), tokenizer


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(40, 60)[None]).logits


def test_a_saved_model_comes_back_to_the_bit_and_transformers_can_generate_from_it(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    tokenizer.chat_template = CHATML
    folder = save_model(model, tokenizer, tmp_path / "out")
    loaded = load_model(folder, device="cpu")
    assert torch.equal(logits(loaded.model), logits(model))
    assert not loaded.model.training
    assert (loaded.name, loaded.folder) == (str(folder), folder)
    assert loaded.tokenizer.chat_template == CHATML
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    prompt = AutoTokenizer.from_pretrained(folder)("hi", return_tensors="pt")
    assert theirs.generate(**prompt, max_new_tokens=3, do_sample=False).shape[1] >= 3
    assert (folder / "generation_config.json").is_file()


def test_weights_are_stored_in_one_type_and_loaded_in_another(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    save_model(model, tokenizer, tmp_path / "half", dtype="float16")
    save_model(model, tokenizer, tmp_path / "full")
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")}
    assert size["half"] < 0.6 * size["full"]  # tied weights are still stored once
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "float16"
    assert model.dtype == torch.float32
    for dtype in ("float32", "float64", "bfloat16"):
        again = load_model(tmp_path / "half", dtype=dtype, device="cpu").model
        assert again.dtype == getattr(torch, dtype)
        assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()
        expected = model.model.norm.weight.half().to(again.dtype)
        assert torch.equal(again.model.norm.weight, expected)
    with pytest.raises(ModelError, match="float32, bfloat16"):
        load_model(tmp_path / "half", dtype="fp8")


def test_others_may_read_what_is_saved_as_the_umask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_folder(tmp_path / "m") as partial:
            save_file({"x": torch.zeros(1)}, partial / "x.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m" / "x.safetensors").stat().st_mode) == 0o640


def test_weights_beyond_float16_are_not_saved_as_infinities(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    model.model.norm.weight.data[0] = 1e6
    with pytest.raises(ModelError, match=r"norm\.weight.*float16"):
        save_model(model, tokenizer, tmp_path / "out", dtype="float16")
    assert list(tmp_path.iterdir()) == []


def test_every_way_to_end_a_turn_is_a_stop_id_and_padding_is_none(tmp_path: Path) -> None:
    model, tokenizer = tiny(eos_token_id=[258, 65])
    model.generation_config.eos_token_id = 66
    bare = load_model(save_model(model, tokenizer, tmp_path / "bare"), device="cpu")
    assert (bare.stop_ids, bare.pad_id) == ({258, 65, 66}, 259)
    tokenizer.chat_template = CHATML  # <|im_end|> closes a turn, though no config names it
    assert load_model(save_model(model, tokenizer, tmp_path / "chat"), device="cpu").stop_ids == {257, 258, 65, 66}
    tokenizer.pad_token = None
    assert load_model(save_model(model, tokenizer, tmp_path / "no_pad"), device="cpu").pad_id == 65


def test_names_are_looked_up_bundled_then_added_then_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("bundled/nano", "models/mine", "nano", "mine", "here"):
        save_model(*tiny(), tmp_path / folder)
    assert find_model("nano") == tmp_path / "bundled" / "nano"
    assert find_model("mine") == models_dir() / "mine"
    assert find_model("here") == Path("here")
    assert find_model(Path("nano")) == Path("nano")
    assert load_model("mine", device="cpu").name == "mine"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nanoo", "did you mean 'nano'"),
        ("smolm2", "did you mean 'smollm2'"),
        ("./absent", "there is no folder absent"),
        ("some/where/deep", "there is no folder some/where/deep"),
        ("smollm2", "run: rlvr models add smollm2"),
        ("Owner/Model", "the hub cannot be reached"),
    ],
)
def test_a_name_that_leads_nowhere_gives_one_sentence(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        find_model(name)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    if name != "smollm2":
        assert "bundled model (nano)" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "says"), [("GatedRepoError", "accept the terms"), ("RepositoryNotFoundError", "HF_TOKEN")]
)
def test_what_the_hub_refuses_is_explained(kind: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    def refuse(*args: Any, **options: Any) -> None:
        answer: Any = SimpleNamespace(headers={}, request=None)
        raise getattr(errors, kind)("401 Client Error\nRepository Not Found for url", response=answer)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(ModelError, match=says):
        find_model("Owner/Model")


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = save_model(*tiny(), tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pickle.*save_pretrained"):
        load_model(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match="no weights"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(folder)


def test_a_models_own_code_is_never_run(tmp_path: Path) -> None:
    folder = save_model(*tiny(), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelError, match="never run"):
        load_model(folder)
    assert not (tmp_path / "ran").exists()


def test_weights_of_another_model_are_refused_rather_than_made_up(tmp_path: Path) -> None:
    folder = save_model(*tiny(), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(ModelError, match=r"9 weights .* missing .*model\.layers\.1\."):
        load_model(folder)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    tokenizer.add_tokens(["one", "two"])
    with pytest.raises(ModelError, match="262 tokens and the model's embedding only 260 rows"):
        load_model(save_model(model, tokenizer, tmp_path / "m"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no usable GPU"):
        load_model(save_model(*tiny(), tmp_path / "m"), device="cuda")


def test_saving_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    save_model(model, tokenizer, tmp_path / "m")
    model.model.norm.weight.data.fill_(3.0)
    save_model(model, tokenizer, tmp_path / "m")
    assert load_model(tmp_path / "m", device="cpu").model.model.norm.weight[0] == 3.0
    assert [f.name for f in tmp_path.iterdir()] == ["m"]
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="not just a saved model"):
        save_model(model, tokenizer, project)
    assert (project / "src").is_dir()


def test_a_failure_half_way_leaves_the_old_folder_and_no_rest(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").touch()

    def fail_half_way() -> None:
        with whole_folder(tmp_path / "m") as partial:
            (partial / "new").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_half_way()
    assert [str(f.relative_to(tmp_path)) for f in sorted(tmp_path.rglob("*"))] == ["m", "m/old"]


def test_a_kill_half_way_leaves_no_folder_of_that_name(tmp_path: Path) -> None:
    script = "import os, sys, pathlib; from rlvr.engine.load import whole_folder\n"
    script += "with whole_folder(pathlib.Path(sys.argv[1])) as p: (p / 'half').touch(); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "m").exists()


def test_importing_the_loader_imports_no_torch() -> None:
    script = (
        "import sys, rlvr.engine.load, rlvr.engine.fetch; print({'torch', 'transformers', 'gguf'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "set()\n"
