"""`worker show` as a user and as a program sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from huggingface_hub import constants

from tests.support.models import ggufs
from tests.support.models.adapters import lora_gguf
from tests.support.models.embedders import Embedder
from tests.support.models.ggufs import f32, text, u32
from tests.support.models.projectors import SEEING
from worker.cli import model as cli_model
from worker.cli.main import main
from worker.model.adapter import AdapterConfig, load_adapter
from worker.model.config import ModelConfig, load_config
from worker.model.projector import ProjectorConfig, load_projector


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set in the environment that stands for an option."""
    for name in [name for name in os.environ if name.startswith("LLAMA_ARG_")]:
        monkeypatch.delenv(name)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `worker show` prints."""
    assert main(["show", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def row(output: str, name: str) -> str:
    """The line that begins with `name`."""
    return next(line for line in output.splitlines() if line.startswith(name + "  "))


def test_json_is_the_typed_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints one line that reads back as the very config that the loader makes."""
    path = ggufs.write_llama(tmp_path / "tiny.gguf", experts=4, vocab="bpe")
    output = shown(capsys, str(path), "--json")
    assert output.count("\n") == 1
    assert msgspec.json.decode(output, type=ModelConfig) == load_config(path)


def test_prose_answers_what_a_reader_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shape, attention, tokens with their text, encodings and files are there."""
    path = ggufs.write_llama(tmp_path / "tiny.gguf", vocab="bpe", encoding="Q4_0", layers=3)
    output = shown(capsys, str(path))
    assert row(output, "architecture").split() == ["architecture", "llama"]
    assert row(output, "layers").split() == ["layers", "3"]
    assert row(output, "key/value heads").split()[-1] == "2"
    assert "319 <|im_end|>" in row(output, "ends generation")
    assert "317 <|endoftext|>" in row(output, "ends generation")
    assert "tensors" in row(output, "Q4_0")
    assert "4.50 bits" in row(output, "Q4_0")
    assert "tiny.gguf" in output


def test_rerankers_and_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a classifier's file lacks is told; nothing is rotated where positions are learned."""
    lacking = Embedder("bert", pooling=None, classifier=1, pooler=False)
    output = shown(capsys, str(lacking.write(tmp_path / "a.gguf")))
    assert row(output, "pooling").split() == ["pooling", "rank"]
    assert "BERT's pooler is missing" in row(output, "scores")
    assert "rotary" not in output
    assert "rotary" not in shown(capsys, str(Embedder("jina-bert-v2").write(tmp_path / "b.gguf")))
    output = shown(capsys, str(Embedder("nomic-bert").write(tmp_path / "c.gguf")))
    assert "base 1000" in row(output, "rotary")


@pytest.mark.parametrize("kind", SEEING)
def test_projectors(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it makes, for models of which width, and how much the largest picture takes."""
    model, file = SEEING[kind](tmp_path)
    output = shown(capsys, str(file))
    width = f"{load_config(model).embedding} numbers, as its model's"
    assert width in row(output, "vectors")
    assert row(output, "pictures").split() == ["pictures", "yes"]
    found = msgspec.json.decode(shown(capsys, str(file), "--json"), type=ProjectorConfig)
    assert found == load_projector(file)
    assert f" {found.cells:,} cells" in row(output, "largest picture")


def test_recommended_sampling_is_shown_where_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the makers recommend is printed, zeros included; without it there is no section."""
    gguf = ggufs.llama_gguf()
    path = gguf.write(tmp_path / "silent.gguf")
    assert "Recommended sampling" not in shown(capsys, str(path))
    gguf.keys["general.sampling.temp"] = f32(0.0)
    gguf.keys["general.sampling.top_k"] = ggufs.Key(ggufs.I32, 20)
    output = shown(capsys, str(gguf.write(tmp_path / "telling.gguf")))
    assert row(output, "temperature").split() == ["temperature", "0"]
    assert row(output, "top k").split() == ["top", "k", "20"]


def test_long_templates_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A chat template shows its first lines and how many more there are; none says so."""
    lines = [f"line {number}" for number in range(20)]
    path = ggufs.write_llama(tmp_path / "long.gguf", chat_template="\n".join(lines))
    output = shown(capsys, str(path))
    assert "line 5" in output
    assert "line 6" not in output
    assert "(14 more lines)" in output
    path = ggufs.write_llama(tmp_path / "none.gguf", chat_template=None)
    assert row(shown(capsys, str(path)), "default").split() == ["default", "none"]


def test_without_a_file_the_demo_model_and_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No FILE shows the embedded model, its model card too."""
    gguf = ggufs.llama_gguf(name="demo")
    gguf.keys["worker.card.data"] = text("made-up stories")
    gguf.keys["worker.card.steps"] = u32(4000)
    monkeypatch.setattr(cli_model, "MODEL_PATH", gguf.write(tmp_path / "demo.gguf"))
    output = shown(capsys)
    assert output.startswith("demo")
    assert row(output, "data").split(maxsplit=1)[1].strip() == "made-up stories"
    assert row(output, "steps").split() == ["steps", "4000"]


def test_a_vocabulary_alone_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without tensors, which no command could run, can still be looked at."""
    gguf = ggufs.llama_gguf()
    gguf.tensors = []
    output = shown(capsys, str(gguf.write(tmp_path / "vocabulary.gguf")))
    assert row(output, "kind").split() == ["kind", "vocabulary"]
    assert row(output, "tokens").split() == ["tokens", "320"]
    assert "Weights" not in output


def test_text_of_a_file_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences are spelled out, and square brackets are not markup."""
    path = ggufs.write_llama(tmp_path / "evil.gguf", name="a\x1b[2Jb [bold]c[/bold]")
    output = shown(capsys, str(path))
    assert "\x1b" not in output
    assert "a\\x1b[2Jb [bold]c[/bold]" in output


def test_split_models_list_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file of a split model is named."""
    path = ggufs.write_llama(tmp_path / "parts.gguf", splits=2)
    output = shown(capsys, str(path)).replace("\n", "")
    assert "parts-00001-of-00002.gguf" in output
    assert "parts-00002-of-00002.gguf" in output


def test_what_is_no_model_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged file exits with 1, one line on stderr and nothing on stdout."""
    path = ggufs.write_llama(tmp_path / "cut.gguf")
    path.write_bytes(path.read_bytes()[:1000])
    assert main(["show", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


def show(*words: str, **more: str) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "worker", "show", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | more,
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_reader_that_leaves_is_no_failure(words: tuple[str, ...]) -> None:
    """A reader that leaves early, as in `worker show | head -c1`, makes no traceback."""
    with show(*words) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_locale_without_unicode_costs_no_output(tmp_path: Path) -> None:
    """A character that the locale lacks is a question mark in prose; JSON is always UTF-8."""
    gguf = ggufs.llama_gguf()
    gguf.keys["general.name"] = text("Käse – 50 €")
    path = str(gguf.write(tmp_path / "model.gguf"))
    with show(path, PYTHONIOENCODING="ascii:strict") as process:
        stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert b"K?se ? 50 ?" in stdout
    with show(path, "--json", PYTHONIOENCODING="ascii:strict") as process:
        stdout, _ = process.communicate()
    assert json.loads(stdout)["name"] == "Käse – 50 €"


def test_a_catalogue_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All commands that take a model's name know the user's own catalogue."""
    own = tmp_path / "own.toml"
    own.write_text('[mine]\nrepo = "org/mine"\nlicense = "mit"\nparameters = 1\ncontext = 1\n'
                   'quants = ["Q8_0"]\nfile = "mine.{QUANT}.gguf"\n')  # fmt: skip
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    target = str(tmp_path / "out.gguf")
    for words in (
        ["show", "mine"],
        ["plan", "mine"],
        ["generate", "text", "--model", "mine"],
        ["quantize", "mine", target, "Q2_K"],
        ["bench", "mine"],
    ):
        assert main([*words, "--catalog", str(own)]) == 1
        assert "NOT_DOWNLOADED" in capsys.readouterr().err


def test_a_name_in_an_error_controls_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The last line on standard error stays one line, whatever a file is called."""
    assert main(["show", "a\nb\x1b[31m\udcff.gguf"]) == 1
    line = r"error: NOT_FOUND: There is no file a\nb\x1b[31m\xff.gguf. Check the path."
    assert capfd.readouterr().err.splitlines() == [line]


def test_an_adapter(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it is for, its rank, and how much it changes."""
    path = lora_gguf(tiny, name="pirate").write(tmp_path / "pirate.gguf")
    output = shown(capsys, str(path))
    assert output.startswith("pirate")
    assert "LoRA adapter" in row(output, "kind")
    assert row(output, "rank").split()[-1] == "4"
    assert row(output, "matrices").split()[-1] == "8"
    read = msgspec.json.decode(shown(capsys, str(path), "--json"), type=AdapterConfig)
    assert read == load_adapter(path)
