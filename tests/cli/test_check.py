"""`worker check` as a user and as a pipeline sees it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

from tests.support.models import ggufs
from tests.support.models.adapters import lora_gguf
from tests.support.models.embedders import Embedder
from tests.support.models.projectors import projector_gguf
from tests.support.programs.processes import ended
from worker.cli import check as command
from worker.cli.main import main


def check(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str], str]:
    """Exit code, lines on standard output, text on standard error."""
    code = main(["check", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def verdicts(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, Any]]:
    """What `--json` says, by file name."""
    code, lines, prose = check(capsys, *words, "--json")
    found = [json.loads(line) for line in lines]
    assert prose == ""
    assert code == int(not all(each["ok"] for each in found))
    return {Path(each["file"]).name: each for each in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good model, a bad one, a projector."""
    top = tmp_path / "models"
    top.mkdir()
    path = ggufs.write_llama(top / "good.gguf", encoding="Q4_0")
    (top / "cut.gguf").write_bytes(path.read_bytes()[:-1000])
    projector_gguf().write(top / "mmproj.gguf")
    return top


def test_a_line_for_each_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Good, bad and neither; the code is 1 where one is bad, and the last line counts them."""
    code, lines, prose = check(capsys, folder)
    assert code == 1
    bad, good, other = lines
    assert bad.startswith(f"bad   {folder}/cut.gguf: TRUNCATED: The file ends before the weights")
    assert "(byte " in bad
    assert good == f"good  {folder}/good.gguf (llama, Q4_0, 73.3 KiB)"
    said = "MMPROJ: It is a projector of kind mlp that makes embeddings of 64 numbers of images."
    assert other == f"other {folder}/mmproj.gguf: {said}"
    assert prose == "3 files checked, 1 bad\n"
    code, lines, prose = check(capsys, folder / "good.gguf")
    assert (code, len(lines), prose) == (0, 1, "1 file checked, 0 bad\n")


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of JSON for each, with all that is known."""
    found = verdicts(capsys, folder)
    good, cut = found["good.gguf"], found["cut.gguf"]
    size = (folder / "good.gguf").stat().st_size
    template = good.pop("template")
    assert (template["first system message"], template["unknown"]) == ("shown", "nothing")
    assert good | {"seconds": 0} == {
        "file": str(folder / "good.gguf"), "ok": True, "code": None, "message": None, "hint": None,
        "offset": None, "field": None, "architecture": "llama", "quant": "Q4_0", "files": 1,
        "does": "writes text", "flaw": None, "newer": None,
        "bytes": size, "weights_read": False, "checksum": None, "tensors": [], "seconds": 0,
    }  # fmt: skip
    assert (cut["ok"], cut["code"], cut["bytes"]) == (False, "TRUNCATED", size - 1000)
    assert cut["offset"] > 0
    assert cut["field"].startswith("blk.1.")
    assert (found["mmproj.gguf"]["ok"], found["mmproj.gguf"]["code"]) == (True, "MMPROJ")


def test_what_a_template_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter that nobody knows is told before a conversation reaches it."""
    path = ggufs.write_llama(tmp_path / "odd.gguf", chat_template="{{ messages | nosuch }}")
    assert verdicts(capsys, path)["odd.gguf"]["template"]["unknown"] == "filter nosuch"


def test_a_template_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The worker loads such a file, so it is good; its line names each broken template."""
    gguf = ggufs.llama_gguf(chat_template="{% for %}")
    gguf.keys["tokenizer.chat_template.systemone"] = ggufs.text("{% if %}")
    gguf.write(tmp_path / "broken.gguf")
    code, (line,), _ = check(capsys, tmp_path / "broken.gguf")
    assert code == 0
    assert "no chat: The model's chat template cannot be read: " in line
    assert "The model's systemone template cannot be read: " in line


def test_a_reranker_with_a_flaw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is good, and what its file lacks is told."""
    path = Embedder("bert", pooling=None, classifier=1, pooler=False).write(tmp_path / "a.gguf")
    code, (line,), _ = check(capsys, path)
    assert code == 0
    assert "scores texts" in line
    assert "BERT's pooler is missing" in line
    assert "pooler" in verdicts(capsys, path)["a.gguf"]["flaw"]


def test_projectors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One is bad where it cannot be read, and a model with --mmproj where it does not fit."""
    projector, good = folder / "mmproj.gguf", folder / "good.gguf"
    assert verdicts(capsys, projector)["mmproj.gguf"]["ok"]
    assert verdicts(capsys, good, "--mmproj", projector)["good.gguf"]["ok"]
    gguf = projector_gguf()
    gguf.keys["clip.vision.projection_dim"] = ggufs.u32(48)
    other = gguf.write(folder / "other.gguf")
    found = verdicts(capsys, good, "--mmproj", other)["good.gguf"]
    assert (found["ok"], found["code"]) == (False, "PROJECTOR_MISMATCH")
    del gguf.keys["clip.has_vision_encoder"]
    found = verdicts(capsys, gguf.write(folder / "none.gguf"))["none.gguf"]
    assert (found["ok"], found["code"]) == (False, "NOT_PROJECTOR")


def test_deep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights are read where that is asked for."""
    gguf = ggufs.llama_gguf()
    gguf.tensors[0].data = np.float32(np.nan).tobytes() + gguf.tensors[0].data[4:]
    path = gguf.write(folder / "nan.gguf")
    assert verdicts(capsys, path)["nan.gguf"]["ok"]
    found = verdicts(capsys, folder, "--deep")
    assert found["good.gguf"]["weights_read"]
    assert found["nan.gguf"]["code"] == "NOT_FINITE"
    (tensor,) = found["nan.gguf"]["tensors"]
    assert (tensor["name"], tensor["nan"]) == ("token_embd.weight", 1)
    code, lines, _ = check(capsys, "--deep", path, folder / "good.gguf")
    assert code == 1
    assert (
        "NOT_FINITE: There are numbers that are not finite in token_embd.weight (1 NaN" in lines[0]
    )
    assert lines[1].endswith("(llama, Q4_0, 73.3 KiB, weights read)")


def test_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its own code, none keeps the command from ending, and the last one is checked."""
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "link.gguf").symlink_to("nowhere")
    (tmp_path / "folder.gguf").mkdir()
    names = ["pipe.gguf", "empty.gguf", "link.gguf", "folder.gguf", "gone.gguf"]
    paths = [tmp_path / name for name in names]
    found = verdicts(capsys, *paths, "no-such-model", ggufs.write_llama(tmp_path / "z.gguf"))
    codes = ["NOT_A_FILE", "EMPTY_FILE", "NOT_FOUND", "DIRECTORY", "NOT_FOUND"]
    assert {name: found[name]["code"] for name in names} == dict(zip(names, codes, strict=True))
    assert found["no-such-model"]["code"] == "UNKNOWN_MODEL"
    assert found["z.gguf"]["ok"]


@pytest.mark.parametrize("as_json", [False, True])
def test_names_that_attack_a_terminal(as_json: bool, tmp_path: Path) -> None:
    """A name neither controls the terminal nor makes a second line, whatever its bytes are."""
    folder = os.fsencode(tmp_path)
    names = [
        b"a\nbad   forged.gguf",
        b"\x1b[31mred[bold].gguf",
        b"\xff\xfe.gguf",
        "ä.gguf".encode(),
    ]
    for name in names:
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "worker", "check", str(tmp_path), *(["--json"] if as_json else [])],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(names)
    assert b"\x1b" not in done.stdout + done.stderr
    if as_json:
        assert {json.loads(line)["code"] for line in lines} == {"EMPTY_FILE"}
        assert any(json.loads(line)["file"].endswith("\\xff\\xfe.gguf") for line in lines)
    else:
        assert all(line.startswith("bad   ") for line in lines)
        assert any("[bold]" in line for line in lines)


def test_names_of_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name of the user's catalogue leads into the Hub's cache, where the checksum is known."""
    own = tmp_path / "own.toml"
    own.write_text('[mine]\nrepo = "org/mine"\nlicense = "mit"\nparameters = 1\ncontext = 1\n'
                   'quants = ["F32", "Q8_0"]\nfile = "mine.{QUANT}.gguf"\n')  # fmt: skip
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    data = ggufs.llama_gguf().encode()
    repo = tmp_path / "hub" / "models--org--mine"
    blob = repo / "blobs" / hashlib.sha256(data).hexdigest()
    pointer = repo / "snapshots" / ("0" * 40) / "mine.F32.gguf"
    for path in (blob, pointer):
        path.parent.mkdir(parents=True)
    blob.write_bytes(data)
    pointer.symlink_to(blob)
    names = ("mine:F32", "mine:Q8_0")
    found = verdicts(capsys, *names, "--deep", "--catalog", own)
    assert (found["mine.F32.gguf"]["ok"], found["mine.F32.gguf"]["checksum"]) == (True, "right")
    assert found["mine:Q8_0"]["code"] == "NOT_DOWNLOADED"


def test_nothing_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file it is a wrong command line; a folder without models is bad."""
    assert main(["check"]) == 2
    capsys.readouterr()
    assert verdicts(capsys, tmp_path)[tmp_path.name]["code"] == "DIRECTORY"


def test_the_service_refuses_in_the_same_words(folder: Path) -> None:
    """What `worker serve` says when it leaves is what the check said."""
    path = str(folder / "cut.gguf")
    said = json.loads(ended("check", "--json", path).stdout)
    done = ended("serve", "--model", path, "--port", "0")
    assert done.returncode == 1
    assert f"error: {said['code']}: {said['message']} {said['hint']}" in done.stderr.splitlines()


def test_progress(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal a bar says what takes long, on standard error, and is gone in the end."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(command, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(command, "_PAUSE_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    (folder / "z\x1b[7m.gguf").touch()
    code, lines, prose = check(capsys, "--json", folder)
    assert (code, [json.loads(line)["ok"] for line in lines]) == (1, [False, True, True, False])
    assert "checking cut.gguf" in prose
    assert "checking z\\x1b[7m.gguf" in prose
    assert "4/4" in prose
    assert "\x1b[7m" not in prose
    assert prose.endswith("\x1b[2K")  # the bar's line is empty
    assert check(capsys, "--deep", folder)[0] == 1


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """How to use it in a pipeline stands at the end."""
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "worker check --deep --json" in capsys.readouterr().out


def test_adapters(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound one is told; a damaged one is bad, and so is a model that it does not fit."""
    path = lora_gguf(tiny).write(tmp_path / "fits.gguf")
    code, lines, _ = check(capsys, path)
    assert code == 0
    assert lines[0].startswith(f"other {path}: LORA_ADAPTER: It is a LoRA adapter for llama models")
    gguf = lora_gguf(tiny)
    gguf.drop("blk.1.ffn_up.weight.lora_b")
    wrong = gguf.write(tmp_path / "wrong.gguf")
    assert verdicts(capsys, wrong)["wrong.gguf"]["code"] == "MISSING_TENSOR"
    other = ggufs.write_llama(tmp_path / "other.gguf", embedding=96, heads=4)
    found = verdicts(capsys, tiny, other, "--lora", path)
    assert found["tiny.gguf"]["ok"]
    assert found["other.gguf"]["code"] == "ADAPTER_MISMATCH"
