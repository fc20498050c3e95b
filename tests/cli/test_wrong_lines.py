"""Wrong command lines: each gets one line with what failed and the next step, and its exit code."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.adapters import write_lora
from worker.cli.main import main, parse
from worker.cli.model import fetch_models
from worker.cli.options import settings_from
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.errors import WorkerError
from worker.http.sockets import listen
from worker.lifecycle.prepared import prepare
from worker.settings import OPTIONS

DEMO = str(MODEL_PATH)
# A message and behind it the next step, each of them a sentence.
TWO = re.compile(r"error: [A-Z_]+: .+[.?] [A-Z`0-9].+", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with something wrong."""
    found = tmp_path_factory.mktemp("wrong")
    (found / "folder").mkdir()
    (found / "empty.gguf").touch()
    (found / "text.gguf").write_text("hello " * 50)
    (found / "text").write_text("hello " * 50)
    (found / "head.gguf").write_bytes(b"GGUF")
    (found / "cut.gguf").write_bytes(MODEL_PATH.read_bytes()[:3_000_000])
    (found / "copy.gguf").write_bytes(MODEL_PATH.read_bytes())
    (found / "latin.txt").write_bytes(b"caf\xe9 " * 50)
    (found / "bad.jinja").write_text("{% for m in messages %}{{ m.content }")
    (found / "no-key").write_text("# none\n")
    ggufs.write_llama(found / "tiny.gguf", context=512)
    ggufs.write_llama(found / "q8.gguf", encoding="Q8_0", context=512)
    write_lora(found / "lora.gguf", MODEL_PATH, 1)
    return found


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In that folder; no variable of the machine sets an option, nothing is downloaded."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for option in OPTIONS:
        for name in option.variables:
            if name != "HF_HUB_OFFLINE":
                monkeypatch.delenv(name, raising=False)


def explained(text: str, *parts: str) -> None:
    """One line: what failed, and the next step."""
    assert text.count("\n") == 1, text
    assert TWO.match(text), text
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ("wibble", 2, ["no command 'wibble'", "`worker --help`"]),
        ("serv x", 2, ["no command 'serv'", "Did you mean serve?"]),
        ("--bogus", 2, ["Unknown option --bogus", "`worker serve --help`"]),
        ("serve --prot 8081", 2, ["--prot", "Did you mean --port?"]),
        ("serve --ctx 512", 2, ["--ctx", "Did you mean --ctx-size?"]),
        ("serve a.gguf b.gguf", 2, ["one argument too many", "--help"]),
        ("serve --model a.gguf b.gguf", 2, ["Two models are named", "Leave one of them out"]),
        ("serve --model", 2, ["--model needs a value", "--help"]),
        ("serve -hf nothing", 2, ["-hf must be ORGANIZATION/REPOSITORY", "--help"]),
        ("serve --port 99999", 2, ["--port must be from 0 to 65535, not 99999"]),
        ("serve --port abc", 2, ["--port must be a whole number, not 'abc'"]),
        ("serve -c -5", 2, ["-c must be from 0", "not -5"]),
        ("serve --ctx-size 12x", 2, ["--ctx-size must be a whole number, not '12x'"]),
        ("serve --parallel 9999", 2, ["--parallel must be from 1 to 256"]),
        ("serve --temp -1", 2, ["--temp must be from 0 to 100"]),
        ("serve --top-p 2", 2, ["--top-p must be from 0 to 1"]),
        ("serve --flash-attn maybe", 2, ["on, off, auto, not 'maybe'"]),
        ("serve --cache-type-k q7", 2, ["--cache-type-k", "q8_0", "not 'q7'"]),
        ("serve --samplers top_k;nope", 2, ["--samplers", "not 'nope'"]),
        ("serve --rpc nowhere", 2, ["--rpc", "HOST:PORT"]),
        ("serve --callback-url ftp://x", 2, ["--callback-url", "http://"]),
        ("serve --log-level loud", 2, ["--log-level", "warning"]),
        ("serve --log-file folder", 2, ["--log-file folder cannot be written", "another file"]),
        ("serve --media-dir none", 2, ["--media-dir", "none"]),
        ("serve --api-key-file none", 2, ["--api-key-file cannot be read: No such file"]),
        ("serve --api-key-file folder", 2, ["--api-key-file cannot be read: Is a directory"]),
        ("serve --api-key-file no-key", 2, ["--api-key-file", "holds none"]),
        ("serve --chat-template-file none", 2, ["--chat-template-file cannot be read"]),
        ("serve --chat-template-kwargs x", 2, ["--chat-template-kwargs must be a JSON object"]),
        ("serve --grammar-file none", 2, ["--grammar-file cannot be read"]),
        ("serve --json-schema {", 2, ["--json-schema must be a JSON object"]),
        ("serve --logit-bias much", 2, ["--logit-bias must be TOKEN_ID+BIAS"]),
        ("serve --override-kv foo", 2, ["--override-kv must be KEY=TYPE:VALUE"]),
        ("serve --grammar a --json-schema {}", 2, ["--grammar and --json-schema", "Leave one"]),
        ("serve --local-mode --host 0.0.0.0", 2, ["--local-mode", "--host", "Leave one of them"]),
        ("serve --cache-disk 100", 2, ["--cache-disk", "Add --cache-dir DIR"]),
        ("serve --trust-account", 2, ["--trust-account", "Add --api-key-file FILE"]),
        ("serve --fair-by key", 2, ["--fair-by must be", "none, user, connection", "'key'"]),
        ("serve --draft model", 2, ["--draft model", "Add --draft-model FILE"]),
        ("serve --ssl-key-file k", 2, ["HTTPS needs both --ssl-cert-file and"]),
        ("serve --context-shift", 2, ["--context-shift is not supported", "--ctx-size"]),
        ("generate", 2, ["required: PROMPT", "worker generate --help"]),
        ("generate hi --model none.gguf", 1, ["There is no file none.gguf", "Check the path"]),
        ("generate hi --image none.png", 2, ["none.png cannot be read", "Check the path"]),
        ("generate hi --image text", 2, ["no projector", "--mmproj"]),
        ("generate hi -n 0", 2, ["-n must be from 1"]),
        ("embed --model none.gguf", 1, ["There is no file none.gguf"]),
        ("embed text", 2, ["writes text", "--pooling mean"]),
        ("batch text", 2, ["required: OUT", "worker batch --help"]),
        ("batch none out", 1, ["none: No such file", "Check the path"]),
        ("batch empty.gguf out", 2, ["no requests in IN", "worker batch --help"]),
        ("batch text text", 2, ["IN and OUT are one file", "Name another OUT"]),
        ("batch text q8.gguf", 2, ["q8.gguf has other text", "Name a new file"]),
        ("batch text - --json", 2, ["--json", "Leave one of them out"]),
        ("pull nomodel", 2, ["no catalogue model named 'nomodel'", "`worker pull --list`"]),
        ("pull tinyllama:Q9", 2, ["not as Q9", "Name one of them"]),
        ("pull none.gguf", 2, ["none.gguf is a file", "ORGANIZATION/REPOSITORY"]),
        ("show none.gguf", 1, ["There is no file none.gguf", "Check the path"]),
        ("show folder", 1, ["folder is a directory", "Pass a .gguf file"]),
        ("show cut.gguf", 1, ["ends before the weights", "Download it again"]),
        ("check", 2, ["required: FILE"]),
        ("plan --ctx-size x", 2, ["--ctx-size must be a whole number"]),
        ("bench --quants Q9_K", 2, ["no quant level 'Q9_K'", "Did you mean Q6_K?"]),
        ("bench --quick --thorough", 2, ["--thorough and --quick exclude each other"]),
        ("bench copy.gguf copy.gguf", 2, ["given twice", "once"]),
        ("bench copy.gguf tiny.gguf", 2, ["not of one model", "Give files of one model"]),
        ("bench --text latin.txt", 2, ["latin.txt is not UTF-8 at byte 3"]),
        ("quantize copy.gguf q.gguf Q4KM", 2, ["'Q4KM'", "Did you mean Q4_K_M?"]),
        ("quantize copy.gguf tiny.gguf Q8_0", 2, ["tiny.gguf exists already", "--force"]),
        ("quantize copy.gguf copy.gguf Q8_0 --force", 2, ["the source itself", "another file"]),
        ("quantize q8.gguf q.gguf Q4_0", 2, ["already quantized", "--allow-requantize"]),
        ("top http://127.0.0.1:1", 1, ["No worker answers", "worker serve"]),
        ("top x://y", 2, ["no worker's address", "http://HOST:PORT"]),
        ("completion tcsh", 2, ["SHELL must be one of bash, zsh, fish, not 'tcsh'"]),
        ("version --quick=5", 2, ["Unknown option --quick", "worker version --help"]),
    ],
)
def test_the_command_line(
    words: str, code: int, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the words themselves say, and files that are looked at first."""
    assert main(words.split(" ")) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    explained(captured.err, *parts)


def look(words: str) -> None:
    """What `worker serve` does before it reads weights, without binding its address."""
    path, settings = fetch_models(settings_from(parse(["serve", *words.split(" ")])))
    prepare(path, settings)


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ("none.gguf", 1, ["There is no file none.gguf", "Check the path"]),
        ("folder", 1, ["folder is a directory", "Pass a .gguf file"]),
        ("text.gguf", 1, ["text.gguf is no GGUF file", "Download it again"]),
        ("text", 1, ["text is no GGUF file", "Pass a file that ends in .gguf"]),
        ("empty.gguf", 1, ["empty.gguf is empty", "Download it again"]),
        ("head.gguf", 1, ["ends within its first 24 bytes", "Download it again"]),
        ("cut.gguf", 1, ["ends before the weights", "Download it again"]),
        ("nomodel:Q4_K_M", 2, ["no catalogue model named 'nomodel'", "`worker pull --list`"]),
        ("tinylama:Q8_0", 2, ["'tinylama'", "Did you mean tinyllama?"]),
        ("-hf no/such --offline", 1, ["no/such is not on this machine", "`worker pull no/such`"]),
        (f"{DEMO} -c 2000000000", 4, ["2000000000 cells needs", "Start with --ctx-size"]),
        (f"{DEMO} -ctv q8_0 -fa off", 2, ["needs flash attention", "Leave out one of them"]),
        (f"{DEMO} --backend cuda", 2, ["no cuda backend", "make install BACKEND=cuda"]),
        (f"{DEMO} --device CUDA0", 2, ["no device 'CUDA0'", "Name one"]),
        (f"{DEMO} --draft-model tiny.gguf", 2, ["cannot draft tokens", "of the same family"]),
        (f"{DEMO} --draft mtp", 2, ["has no heads for it", "Choose another --draft"]),
        (f"{DEMO} --lora none.gguf", 1, ["There is no file none.gguf"]),
        (f"{DEMO} --lora tiny.gguf", 1, ["tiny.gguf is not an adapter", "LoRA adapter"]),
        ("tiny.gguf --lora lora.gguf", 1, ["lora.gguf", "this model"]),
        (f"{DEMO} --control-vector tiny.gguf", 1, ["tiny.gguf is not a control vector"]),
        (f"{DEMO} --mmproj none.gguf", 1, ["There is no file none.gguf"]),
        (f"{DEMO} --mmproj tiny.gguf", 1, ["tiny.gguf is not a projector", "--no-mmproj"]),
        (f"{DEMO} --chat-template-file bad.jinja", 2, ["--chat-template-file", "Correct it"]),
        (f"{DEMO} --chat-template nosuch", 2, ["nosuch names no template", "chatml"]),
        (f"{DEMO} --pooling rank", 2, ["needs a classifier", "another --pooling"]),
        (f"{DEMO} --grammar root::=(", 2, ["--grammar", "Correct it, or leave it out"]),
        (f"{DEMO} -l 99999+1", 2, ["names token 99999", "from 0 to 2047"]),
    ],
)
def test_what_the_model_cannot_do(words: str, code: int, parts: list[str]) -> None:
    """Files and options that do not go together are told before the weights are read."""
    with pytest.raises(WorkerError) as raised:
        look(words)
    error = raised.value
    assert error.exit_code == code
    explained(f"error: {error.code}: {error}\n", *parts)


@pytest.mark.parametrize(
    ("host", "port", "parts"),
    [
        ("127.0.0.1", None, ["Address already in use", "Choose another --port"]),
        ("203.0.113.7", 0, ["Cannot listen on 203.0.113.7", "Choose another --host"]),
        ("no.such.host.invalid", 0, ["not an address of this machine", "127.0.0.1"]),
    ],
)
def test_where_it_cannot_listen(host: str, port: int | None, parts: list[str]) -> None:
    """A port in use, an address of another machine, a name of none."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(WorkerError) as raised:
        listen(host, taken.getsockname()[1] if port is None else port)
    assert raised.value.exit_code == (2 if "invalid" in host else 3)
    explained(f"error: {raised.value.code}: {raised.value}\n", *parts)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_key_file_that_may_not_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is the system's."""
    key = folder / "secret"
    key.write_text("k\n")
    key.chmod(0)
    assert main(["serve", "--api-key-file", "secret"]) == 2
    explained(capsys.readouterr().err, "--api-key-file cannot be read: Permission denied")


def test_a_text_of_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """The held-out text is no model."""
    assert main(["show", str(HELDOUT_PATH)]) == 1
    explained(capsys.readouterr().err, "is no GGUF file", "Pass a file that ends in .gguf")
