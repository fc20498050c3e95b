"""The command line of `worker serve`: its own options, other systems' flags, secrets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import for_each
from tests.support.programs.processes import WorkerProcess, serving
from worker.account import NOBODY, Account
from worker.cli import foreign
from worker.cli.main import main, parse, parser
from worker.cli.options import settings_from
from worker.errors import UsageError
from worker.keys import key_file
from worker.llama import library
from worker.settings import OPTIONS, Settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs this sets an option."""
    for option in OPTIONS:
        for name in option.variables:
            monkeypatch.delenv(name, raising=False)


def settings_of(*words: str) -> Settings:
    """What `worker serve WORDS` would run with."""
    return settings_from(parser("serve").parse_args(["serve", *words]))


def accepted(*words: str) -> list[str]:
    """The flags among `words` that were accepted without a meaning."""
    found = getattr(parser("serve").parse_args(["serve", *words]), "foreign", [])
    return [flag for flag, _ in found]


def test_underscores() -> None:
    """In an option's name they are dashes, in its value they are not."""
    settings = settings_from(parse(["serve", "--chat_template=a_b", "--ctx_size", "64"]))
    assert (settings.chat_template, settings.ctx_size) == ("a_b", 64)


@for_each(
    ("words", "expected"),
    [
        ("-m x.gguf -a name", {"model": "x.gguf", "alias": ("name",)}),
        ("--served-model-name a,b --tags fast", {"alias": ("a", "b"), "tags": ("fast",)}),
        ("-hf Org/Repo-GGUF:q8_0", {"model": "hf:Org/Repo-GGUF:q8_0", "offline": False}),
        ("-hf a/b:Q8_0 -hff b.gguf --offline", {"model": "hf:a/b::file=b.gguf", "offline": True}),
        (
            "--fetch-images A.example,[::1]:80 --fetch-images 10.0.0.1:8080",
            {"fetch_images": (("a.example", 0), ("::1", 80), ("10.0.0.1", 8080))},
        ),
        ("-hfd a/b", {"draft_model": "hf:a/b", "guesses": "auto"}),
        ("--host 127.0.0.1,[::1]", {"host": "127.0.0.1,::1"}),
        ("--api-prefix /llm/", {"api_prefix": "/llm"}),
        ("-t -1 -tb -1 -np -1", {"threads": None, "threads_batch": None, "parallel": None}),
        ("--log-jsonl --log-file f.log", {"log_format": "json", "log_file": "f.log"}),
        ("--no-mmap --mlock", {"mmap": False, "mlock": True}),
        ("--cors-origins *", {"cors": ("*",)}),
        ("--cors localhost,https://a.example", {"cors": ("localhost", "https://a.example")}),
        ("--worker-id w --model-ref hf:a/b", {"worker_id": "w", "model_ref": "hf:a/b"}),
        ("--callback-url https://h:1/r?t=1", {"callback_url": "https://h:1/r?t=1"}),
        ("--heartbeat-url http://[::1]/x", {"heartbeat_url": "http://[::1]/x"}),
        ("--hive-url http://h:1", {"heartbeat_url": "http://h:1/v1/worker-heartbeat"}),
        ("--queen-url http://h/a/", {"heartbeat_url": "http://h/a/v1/worker-heartbeat"}),
        ("--heartbeat-interval 2.5", {"heartbeat_interval": 2.5}),
        ("--local-mode", {"local_mode": True, "host": "127.0.0.1"}),
        ("--api-key k", {"api_key": "k"}),
        ("--die-with-parent", {"die_with_parent": "process"}),
        ("--die-with-parent stdin", {"die_with_parent": "stdin"}),
        ("--die-with-parent off", {"die_with_parent": "off"}),
        ("-md d.gguf", {"draft_model": "d.gguf", "guesses": "auto"}),
        ("--model-draft d.gguf --draft both", {"guesses": "both", "uses_heads": False}),
        ("--draft ngram", {"draft_model": None, "guesses": "ngram", "uses_heads": False}),
        ("--draft mtp", {"guesses": "mtp", "uses_heads": True}),
        ("--spec-type none", {"guesses": "none"}),
        ("--spec-type ngram-mod --spec-ngram-mod-n-max 48", {"guesses": "ngram", "ngram_max": 48}),
        ("--spec-type draft-mtp,ngram-map-k --draft-max 3", {"guesses": "both", "draft_max": 3}),
        (
            "-md d --spec-type draft-simple --draft-p-min 0.75",
            {"guesses": "model", "draft_p_min": 0.75},
        ),
        (
            "--override-kv a.b=int:3,c=bool:false --override-kv d=str:x,y",
            {"override_kv": (("a.b", 3), ("c", False), ("d", "x,y"))},
        ),
        ("--rope-freq-scale 0.25 --rope-scaling YARN", {"rope_scale": 4.0, "rope_scaling": "yarn"}),
        (
            "--temp 0.7 --top-k 20 --seed -1 --typical 0.9",
            {"sampling": {"temperature": 0.7, "top_k": 20, "typical_p": 0.9}},
        ),
        ("--sampler-seq kt", {"samplers": ("top_k", "temperature")}),
        ("-n -2", {"n_predict": -1}),
        ("-np 2", {"cpu_moe": None}),
        ("--cpu-moe", {"cpu_moe": 10_000}),
        ("--cpu-moe off", {"cpu_moe": 0}),
        ("-ncmoe 3", {"cpu_moe": 3}),
        (
            r"-ot ^blk\.(1|2)\.ffn_.*_exps=CPU,output=CUDA0",
            {"override_tensor": ((r"^blk\.(1|2)\.ffn_.*_exps", "CPU"), ("output", "CUDA0"))},
        ),
        ("--reasoning off", {"thinks": False}),
        ("--reasoning on", {"thinks": True}),
        ("--reasoning-budget 0", {"thinks": False, "reasoning_budget": 0}),
        ("--reasoning-budget -1", {"thinks": None, "reasoning_budget": None}),
        ("--draft both", {"guesses": "both", "uses_heads": True}),
        ("-np 2", {"guesses": "auto", "reasoning_format": "auto"}),
        ("--reasoning-format deepseek", {"reasoning_format": "deepseek"}),
        ("--reasoning-field reasoning", {"reasoning_field": "reasoning"}),
        ("--cuda-device 1", {"device": ("cuda:1",)}),
        ("--gpu-device 0", {"device": ("gpu:0",)}),
        ("--metal-device 0", {"device": ("metal:0",)}),
        ("--device CUDA0,CUDA1", {"device": ("CUDA0", "CUDA1")}),
        ("--n-ctx 512 --max-num-seqs 2", {"ctx_size": 512, "parallel": 2}),
        ("-c 0", {"ctx_size": None}),
        ("-ngl all", {"n_gpu_layers": 10_000}),
        ("-ngl auto", {"n_gpu_layers": None}),
        ("-fa", {"flash_attn": "on"}),
        ("-fa auto", {"flash_attn": "auto"}),
        ("--no-mmap", {"mmap": False}),
        ("--mmap", {"mmap": True}),
        ("--mmap --no-mmap", {"mmap": False}),
        ("--load-mode mmap", {"mmap": True}),
        ("--load-mode dio", {"mmap": False}),
        ("-np 1", {"page": True}),
        ("--no-page", {"page": False}),
        ("--no-webui", {"page": False}),
        ("--no-ui --page", {"page": True}),
        ("--cors HTTPS://a.Example:443/", {"cors": ("https://a.example",)}),
        (
            "--cors-origins http://[::1]:80,app://x,http://h:443",
            {"cors": ("http://[::1]", "app://x", "http://h:443")},
        ),
        ("-cram 100", {"cache_ram": 100}),
        ("--cache-ram 0", {"cache_ram": 0}),
        ("--host localhost,127.0.0.1", {"host": "localhost"}),
        ("--host ::1,0.0.0.0,127.0.0.1", {"host": "::1,0.0.0.0"}),
        ("--cache-ram -1", {"cache_ram": None}),
        ("--cache-dir . --cache-disk 5", {"cache_dir": ".", "cache_disk": 5}),
        ("--cache-dir ./not/yet/there", {"cache_dir": "./not/yet/there"}),
    ],
)
def test_words(words: str, expected: dict[str, Any]) -> None:
    """Each option on the command line sets its field of the settings."""
    settings = settings_of(*words.split())
    assert {name: getattr(settings, name) for name in expected} == expected


VALUES = {
    "model": "x.gguf", "alias": "n", "model_ref": "r", "host": "::1", "port": "0",
    "queue_size": "1", "drain_timeout": "1", "worker_id": "w", "callback_url": "http://h/",
    "heartbeat_url": "http://h/", "heartbeat_interval": "1", "public_host": "h",
    "local_mode": "on", "die_with_parent": "on", "ctx_size": "512", "parallel": "2",
    "max_stall_ms": "5", "draft": "ngram", "draft_model": "d.gguf", "threads": "1",
    "threads_batch": "1", "pooling": "cls",
    "batch_size": "5", "ubatch_size": "5", "n_gpu_layers": "1", "backend": "cpu",
    "tensor_split": "1", "split_mode": "row", "main_gpu": "1", "cache_type_k": "q8_0",
    "cache_type_v": "q8_0", "flash_attn": "off", "log_format": "json", "log_level": "debug",
    "otel": "on",
    "rpc": "127.0.0.1:50052", "api_key": "k", "inference_timeout": "5", "max_tokens_out": "5",
    "state_dir": ".", "fair_by": "user",
    "cache_ram": "100", "cache_dir": ".", "cache_disk": "5", "reasoning_format": "none",
    "lora_dir": ".", "media_dir": ".", "reasoning_field": "reasoning", "page": "on", "cors": "https://a.example",
    "override_kv": "a.b=int:3", "rope_scaling": "yarn", "rope_scale": "4",
    "rope_freq_base": "26000", "yarn_ext_factor": "1", "reasoning": "off", "n_predict": "3",
    "reasoning_budget_message": "So.", "ignore_eos": "on", "cpu_moe": "4",
    "hf_repo": "a/b", "hf_draft": "a/b", "offline": "on", "api_prefix": "/a", "mlock": "on",
    "log_file": "f.log", "access_log": "off", "sandbox": "on",
    "chat_template": "chatml", "chat_template_file": __file__,
    "chat_template_kwargs": '{"a": 1}', "grammar": 'root ::= "a"',
    "json_schema": '{"type": "object"}', "logit_bias": "5+1", "decisions": "texts",
    "decisions_calibration": "off",
}  # fmt: skip
# What an option cannot be without.
NEEDED = {
    "cache_disk": {"LLAMA_ARG_CACHE_DIR": "."}, "hf_file": {"LLAMA_ARG_HF_REPO": "a/b"},
    "batch_lines": {"LLAMA_ARG_STATE_DIR": "."}, "batch_file": {"LLAMA_ARG_STATE_DIR": "."},
    "batch_files": {"LLAMA_ARG_STATE_DIR": "."}, "keep_days": {"LLAMA_ARG_STATE_DIR": "."},
    "lora_memory": {"LLAMA_ARG_LORA_DIR": "."}, "trust_account": {"LLAMA_API_KEY": "k"},
    "control_layers": {"LLAMA_ARG_CONTROL_VECTOR": "v.gguf"},
    "ssl_cert_file": {"LLAMA_ARG_SSL_KEY_FILE": "k"},
    "ssl_key_file": {"LLAMA_ARG_SSL_CERT_FILE": "c"},
}  # fmt: skip
SCHEMA_FILE = str(Path(__file__).parent / "schema.json")
SPECIAL = {
    "--mmproj-auto": "off", "--mmproj-offload": "off", "--grammar-file": __file__,
    "--json-schema-file": SCHEMA_FILE, "--no-access-log": "on", "--verbose": "on",
    "--quiet": "on", "--log-verbosity": "4",
    "--no-mmap": "off", "--mmap": "on", "--load-mode": "mmap", "--device": "CUDA0", "--page": "off",
    "--log-jsonl": "on", "--spec-type": "ngram-mod", "--rope-freq-scale": "0.25",
    "--cpu-moe": "on", "--override-tensor": "a=CPU", "--spec-default": "on", "--rerank": "on",
    "--samplers": "top_k;temp", "--sampling-seq": "kt", "--lora-scaled": "a.gguf:0.5",
    "--control-vector-scaled": "a.gguf:0.5", "--control-vector-layer-range": "1 2",
    "--socket-mode": "660",
}  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flags[0])
def test_environment(option: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option has its variables, each of them counts, and the command line wins over it."""
    value = SPECIAL.get(option.flags[0]) or VALUES.get(option.field, "1")
    if option.flags[0] == "--api-key-file":
        (tmp_path / "key").write_text("k\n")
        value = str(tmp_path / "key")
    assert option.variables[0] == "LLAMA_ARG_" + option.flags[0][2:].upper().replace("-", "_")
    needed = NEEDED.get(option.field, {})
    for name, text in needed.items():
        monkeypatch.setenv(name, text)
    for name in option.variables:
        settings = settings_from(Namespace(), {name: value, **needed})
        assert getattr(settings, option.field) == option.read(value), name
        assert getattr(settings, option.field) != getattr(Settings(), option.field)
    words = value.split() if " " in option.metavar else [value]
    for flag in option.flags:
        assert getattr(settings_of(flag, *words), option.field) == option.read(value)
    monkeypatch.setenv(option.variables[0], "surely wrong")
    assert getattr(settings_of(option.flags[0], *words), option.field) == option.read(value)


@pytest.mark.parametrize(
    "name", ["LLAMA_API_KEY", "LLORCH_API_TOKEN", "LLORCH_LOG_FORMAT", "RBEE_WORKER_HOST"]
)
def test_other_systems_variables(name: str) -> None:
    """The variables that managers set are known."""
    assert any(name in option.variables for option in OPTIONS)


# Here the rest is several words.
SEVERAL = ("--local-mode", "--cache-ram", "--draft", "--hf-repo")


def test_the_words_of_an_option_that_is_also_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    """The error offers what the option takes."""
    assert main(["serve", "--die-with-parent", "foo"]) == 2
    assert "--die-with-parent must be process, stdin or off, not 'foo'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--draft model", "--draft ngram -md d.gguf", "--draft none -md d.gguf",
        "--callback-url ftp://h/", "--callback-url h:80", "--callback-url http://",
        "--callback-url http://u:hush@h/", "--callback-url http://h:99999/",
        "--callback-url http://h/a\nb", "--callback-url http://a..b/", "--heartbeat-interval 0",
        "--hive-url http://[",
        "--worker-id \x1b[2J", "--model-ref ", "--cuda-device CUDA0", "--die-with-parent maybe",
        "--local-mode --host 0.0.0.0", "--api-key a\u20acb", "--public-host a/b", "--load-mode x",
        "--api-key-file /no/such/file", "--parallel 0", "--mmap maybe",
        "--cache-ram -2", "--cache-ram 0 --cache-dir .", "--cache-ram 1G", "--cache-dir ",
        "--fetch-images https://a", "--fetch-images u@a", "--fetch-images a:b",
        "--fetch-images a/b", "--fetch-images ,",
        f"--media-dir {__file__}", "--media-dir /no/such/folder",
        "--hf-repo a", "--hf-file x.gguf", "--hf-repo a/b --model c", "--host unix:",
        "--socket-mode 8",
        "--spec-type draft-dspark", "--spec-type draft-mtp,draft-simple", "--samplers top_k;dry",
        "--samplers nope", "--override-kv a=b", "--override-kv a=int:x", "--temp hot",
        "--temp 1_0", "--port 8_0", "--n-cpu-moe -1", "--sleep-idle-seconds -2", "-ot exps",
        "-ot =CPU", "-ot (=CPU", "-ot a*+=CPU", "-ot (?i)a=CPU", r"-ot \pL=CPU", "-ot [[:w:]]=CPU",
        "-ot \u20ac=CPU", f"-ot {'a' * 257}=CPU",
        "--api-prefix a", "--cors null", "--cors a.example", "--cors https://a/b", "--cors ,",
        "--cors https://u:hush@a", "--reasoning-format yes", "--cache-disk 0", "--cache-disk 100",
        "--batch-lines 5",
        "--lora-memory 100", f"--lora-dir {__file__}",
        f"--cache-dir {__file__}", f"--cache-dir {__file__}/below",
    ],
)  # fmt: skip
def test_unusable_values(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong value exits with 2 and one line that names the option."""
    option, *value = words.split(" ", 1)
    rest = value[0].split(" ") if option in SEVERAL else value
    assert main(["serve", option, *rest]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: USAGE: ")
    assert option in captured.err
    assert captured.err.count("\n") == 1
    assert "hush" not in captured.err


@pytest.mark.parametrize(
    ("text", "keys"),
    [("k\n", ["k"]), ("# a comment\n\n  k  \n", ["k"]), ("a\r\nb\na\n#c", ["a", "b"]), ("", []),
     ("# k\n", []), ("hush hush\n", []), ("\udcff", []), ("k" * 70_000, [])],
)  # fmt: skip
def test_key_file(text: str, keys: list[str], tmp_path: Path) -> None:
    """A key file holds a key a line, and comments. Another is refused, and its text not shown."""
    path = tmp_path / "keys"
    path.write_bytes(text.encode(errors="surrogateescape"))
    if not keys:
        with pytest.raises(UsageError, match="--api-key-file") as caught:
            settings_of("--api-key-file", str(path))
        assert "hush" not in str(caught.value)
    else:
        settings = settings_of("--api-key-file", str(path))
        assert settings.api_keys == tuple(keys)
        assert repr(keys[0]) not in repr(settings)


def test_fields_of_a_key(tmp_path: Path) -> None:
    """What follows a key on its line is whose it is and what that may take."""
    path = tmp_path / "keys"
    path.write_text("# c\na name=alice weight=2.5 rpm=60 tpm=9 running=4 priority=-1 admin\nb\n"
                    "c name=bob\nd admin\ne name=bob\n")  # fmt: skip
    file = key_file(str(path))
    assert dict(zip(file.keys, file.accounts, strict=True)) == {
        "a": Account("alice", 2.5, 60, 9, 4, -1, is_admin=True),
        "b": NOBODY,
        "c": Account("bob", priority=0),
        "d": Account(is_admin=True),
        "e": Account("bob", priority=0),
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hush weigt=6", "line 2: a field is not known. Did you mean weight?"),
        ("hush hush", "line 2: a field is not known."),
        ("hush name=a rpm", "line 2: a field is not known."),
        ("hush name=a rpm=0", "line 2: rpm must be from 1"),
        ("hush name=a tpm=x", "line 2: tpm must be a whole number"),
        ("hush name=a running=-1", "line 2: running must be"),
        ("hush name=a weight=0", "line 2: weight must be from 0.01 to 100"),
        ("hush name=a priority=101", "line 2: priority must be from -100 to 100"),
        ("hush name=a,b", "line 2: name must be 1 to 64 letters"),
        ("hush name=", "line 2: name must be 1 to 64 letters"),
        ("hush name=a name=b", "line 2: name is there twice"),
        ("hush rpm=3", "line 2: name is missing"),
        ("hush name=ann rpm=3", "line 2: name ann has other fields on an earlier line"),
        ("name=hush rpm=3", "line 2: the key is missing"),
        ("k name=ben", "line 2: the key has other fields on an earlier line"),
    ],
)
def test_wrong_fields_of_a_key(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the line and the field; the key is not told."""
    path = tmp_path / "keys"
    path.write_text(f"k name=ann\n{line}\n")
    assert main(["serve", "--api-key-file", str(path)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "hush" not in told


def test_a_key_is_the_first_word_of_a_line(tmp_path: Path) -> None:
    """What else Python takes for the end of a line makes no key of a field."""
    path = tmp_path / "keys"
    path.write_text("a\u2028name=ann\r\nb\x0bname=ben\n")
    file = key_file(str(path))
    assert file.keys == ("a", "b")
    assert [account.name for account in file.accounts] == ["ann", "ben"]


def test_which_keys_count(tmp_path: Path) -> None:
    """Both ways count together, but where the command line names keys, variables name none."""
    file = str(tmp_path / "keys")
    Path(file).write_text("filed\n")
    for name in ("LLAMA_API_KEY", "LLORCH_API_TOKEN", "LLAMA_ARG_API_KEY"):
        assert settings_from(Namespace(), {name: "k"}).api_keys == ("k",)
        named = settings_from(Namespace(api_key_file=key_file(file)), {name: "k"})
        assert named.api_keys == ("filed",)
        both = settings_from(Namespace(), {name: "k", "LLAMA_ARG_API_KEY_FILE": file})
        assert both.api_keys == ("k", "filed")
    alone = settings_from(Namespace(api_key="k"), {"LLAMA_ARG_API_KEY_FILE": file})
    assert alone.api_keys == ("k",)
    assert settings_of("--api-key", "k", "--api-key-file", file).api_keys == ("k", "filed")
    assert Settings().api_keys == ()


def test_a_key_file_that_is_a_pipe(tmp_path: Path) -> None:
    """It is read once; asked to read it again, the worker does not wait for another writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("k\n"))
    writer.start()
    held = key_file(str(pipe))
    writer.join()
    assert held.keys == ("k",)
    with pytest.raises(ValueError, match="no regular file"):
        held.again()
    pipe.unlink()
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        held.again()


def test_a_folder_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before anything is loaded, also where only a folder above it exists."""

    def access(*_: object) -> bool:
        return False  # root is told that it may write everywhere

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(UsageError, match="--cache-dir must name a folder that can be written to"):
        settings_of("--cache-dir", "./not/yet/there")


def test_callback_settings() -> None:
    """The test address and local mode mean that nobody is called back."""
    url = "http://h/ready"
    assert Settings(callback_url=url).callback == url
    assert Settings(callback_url=url, local_mode=True).callback is None
    assert Settings(callback_url="http://localhost:9999/ready").callback is None


CALLERS = {
    "ollama": "--model x.gguf --port 1 --host 127.0.0.1 --no-webui --offline -c 8192 -np 2 "
    "--log-verbosity 4 --no-log-prefix --no-log-timestamps --jinja --load-mode none "
    "--cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on -b 512 -ub 512 -ngl 0 -t 4 "
    "--split-mode none --main-gpu 0 --no-context-shift --spec-type none",
    "llama-swap": "-m x.gguf --port 5800 --host 127.0.0.1 -c 0 --metrics --slots --no-warmup "
    "--threads-http 2 --timeout 600 --cont-batching -ngl 99 -fa on --cache-reuse 256 -sps 0.5",
    "llama-server's router": "--model x.gguf --alias m --host 127.0.0.1 --port 1 "
    "--no-models-autoload --fit off --log-colors off --props --prio -1 --cache-ram -1",
    "worker-orcd": "--worker-id 9b2 --model /x.gguf --gpu-device 0 --port 8081 "
    "--callback-url http://127.0.0.1:1/ready --max-tokens-in 4096 --max-tokens-out 2048 "
    "--inference-timeout-sec 300",
    "rbee-hive": "--worker-id worker-9b2 --model /x.gguf --model-ref hf:a/b --backend cpu "
    "--device 0 --port 8081 --callback-url http://127.0.0.1:1/v1/workers/ready",
    "rbee's newest": "--worker-id w --model /x.gguf --model-ref r --backend cuda --device 0 "
    "--port 8081 --hive-url http://127.0.0.1:7835 --local-mode",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_callers(caller: str) -> None:
    """The command lines of programs that start such workers are understood."""
    words = CALLERS[caller].split()
    assert settings_of(*words).model in ("x.gguf", "/x.gguf")
    assert not set(accepted(*words)) & {flag for option in OPTIONS for flag in option.flags}


def test_every_accepted_flag_says_why_it_needs_nothing() -> None:
    """All flags of the table are accepted, with and without values, and with `=`; none of them is
    an option, or is refused."""
    known = {flag for option in OPTIONS for flag in option.flags}
    known |= {flag for flags in foreign.REFUSED.values() for flag in flags.split()}
    for why, flags in foreign.NEEDLESS.items():
        assert " " in why
        for flag in flags.split():
            name = flag.rstrip("=?")
            assert name not in known
            value = ["7"] if flag != name else []
            found = parser("serve").parse_args(["serve", name, *value]).foreign
            assert found == [(name, why)]
    assert accepted("--timeout=600", "--fit") == ["--timeout", "--fit"]
    assert accepted("--sse-ping-interval", "-1") == ["--sse-ping-interval"]


def test_every_flag_of_llama_server_is_known() -> None:
    """Each one of its help, as of 2026, is an option here, or has a sentence."""
    theirs = (Path(__file__).parent / "llama_server_flags.txt").read_text().split()
    words = {flag for flags in foreign.NEEDLESS.values() for flag in flags.split()}
    known = {flag.rstrip("=?") for flag in words} | foreign.PRESETS.keys()
    known |= {flag for flags in foreign.REFUSED.values() for flag in flags.split()}
    known |= {flag for option in OPTIONS for flag in option.flags}
    assert sorted({*theirs} - known - {"-h", "--help", "--version"}) == []


@pytest.mark.parametrize("hint", foreign.REFUSED)
def test_foreign_flags_are_refused(hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that would change answers exits with 2, one sentence and the next step."""
    for flag in foreign.REFUSED[hint].split():
        for words in ([flag], [flag, "7"]):
            assert main(["serve", *words]) == 2
            assert capsys.readouterr().err == f"error: USAGE: {flag} is not supported. {hint}\n"


def test_foreign_variables() -> None:
    """llama-server's variables are treated as its flags are; what is off changes nothing."""
    variables = foreign.foreign_variables
    assert variables({"LLAMA_ARG_CTX_SIZE": "512", "HOME": "/"}) == []
    ignored = {"LLAMA_ARG_ATTENTION": "0", "LLAMA_ARG_NUMA": "1"}
    assert [name for name, _ in variables(ignored)] == list(ignored)
    for name in ("MMPROJ_URL", "ATTENTION"):
        with pytest.raises(UsageError, match=f"LLAMA_ARG_{name} is not supported"):
            variables({f"LLAMA_ARG_{name}": "x"})


@pytest.mark.parametrize("name", ["LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "LLAMA_ARG_API_KEY_FILE"])
def test_an_empty_key_does_not_open_the_worker(name: str) -> None:
    """A secret that did not arrive; the command line may name another."""
    with pytest.raises(UsageError, match=f"{name} is set, and empty"):
        settings_from(Namespace(), {name: ""})
    assert settings_from(Namespace(api_key="k"), {name: ""}).api_keys == ("k",)


def test_several_keys_in_one_option() -> None:
    """As llama-server takes them."""
    assert settings_of("--api-key", "one,two").api_keys == ("one", "two")
    with pytest.raises(UsageError, match="must be printable ASCII"):
        settings_of("--api-key", "one,")


def test_unknown_options_are_named_without_their_values(capsys: pytest.CaptureFixture[str]) -> None:
    """The value of a misspelt flag is not shown, because it may be a secret."""
    for words in (["--api-kye", "hush"], ["--api-kye=hush"], ["a.gguf", "hush"]):
        assert main(["serve", *words]) == 2
        error = capsys.readouterr().err
        assert "hush" not in error
        assert ("--api-kye" in error) is words[0].startswith("--api-kye")


@for_each(
    ("words", "expected"),
    [
        ("serve my.gguf", {"model": "my.gguf"}),
        ("serve --mlock my.gguf --port 1", {"model": "my.gguf", "mlock": True, "port": 1}),
        ("serve org/repo:Q8_0 -fa off", {"model": "org/repo:Q8_0", "flash_attn": "off"}),
        ("serve -l 5+1,7-0.5 -l 9-inf", {"logit_bias": ((5, 1), (7, -0.5), (9, -1_000_000))}),
        ("serve -q", {"log_level": "warning", "verbose": False}),
        ("serve -v", {"log_level": "debug", "verbose": True}),
        ("serve -lv 1", {"log_level": "error"}),
        (
            "serve --fim-qwen-7b-spec --port 9",
            {
                "model": "hf:ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF:Q8_0",
                "draft_model": "hf:ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF:Q8_0",
                "port": 9, "batch_size": 1024,
            },
        ),
    ],
)  # fmt: skip
def test_command_lines(words: str, expected: dict[str, Any]) -> None:
    """A model may stand without an option, also behind a switch; presets stand for options."""
    settings = settings_from(parse(words.split()))
    assert {name: getattr(settings, name) for name in expected} == expected


def test_a_file_alone_is_served(tiny: Path) -> None:
    """`worker FILE` is `worker serve FILE`."""
    command = [str(COMMANDS / "worker"), str(tiny), "--port", "0"]
    process = WorkerProcess("--log-format", "json", command=command)
    try:
        assert process.wait_for("ready")["model"] == tiny.stem
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()


@pytest.mark.parametrize(
    ("words", "body", "text"),
    [
        (["--grammar", 'root ::= "yes"'], {}, "yes"),
        (["--json-schema", '{"const": 5}'], {}, "5"),
        (["--json-schema", '{"const": 5}'], {"guided_choice": ["no"]}, "no"),
    ],
    ids=["grammar", "schema", "request"],
)
def test_forms_for_all_requests(words: list[str], body: dict[str, Any], text: str) -> None:
    """A grammar or a schema holds answers to requests that ask for no form of their own."""
    with serving(*words) as server:
        found = server.post({"prompt": "a", "max_tokens": 8, **body}).json()
    assert found["choices"][0]["text"] == text


def test_settings_hide_secrets() -> None:
    """The key, and addresses, which may hold tokens, are never printed."""
    settings = Settings(api_key="hush", callback_url="http://h/?hush", heartbeat_url="http://hush/")
    assert "hush" not in repr(settings)
    assert "port=8080" in repr(settings)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The help lists every flag by topic, has an example, and no flags of other systems."""
    with pytest.raises(SystemExit) as end:
        main(["serve", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE) == [
        "Model", "Server", "Generation", "Context and cache", "Speculative decoding",
        "Embeddings", "Decisions", "Batches", "Adapters", "Images and audio", "Devices",
        "Manager", "Logging", "Compatibility", "Examples",
    ]  # fmt: skip
    assert "worker serve my.gguf --port 8080" in text
    for option in OPTIONS:
        assert all(flag in text for flag in option.flags)
    assert "--jinja" not in text
    assert "--mmproj-url" not in text


def test_a_serving_process(tiny: Path) -> None:
    """--model stays two words in argv; a warning names foreign flags; no secret is logged."""
    words = ("--model", tiny, "-t", "1", "--no-perf", "--hf-token", "hush1", "--no-warmup")
    env = {"LLORCH_API_TOKEN": "hush2"}
    with serving(*words, "--callback-url", "http://localhost:9999/?hush3", env=env) as server:
        cmdline = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().split(b"\0")
        assert cmdline[cmdline.index(b"--model") + 1] == str(tiny).encode()
        server.process.terminate()
        assert server.wait() == 0
    (warning,) = (line for line in server.lines if "options ignored" in line)
    assert '"--no-perf --no-warmup"' in warning
    assert "hush" not in "\n".join(server.lines)


COMMANDS = Path(sys.executable).parent


def test_backend_command(tiny: Path) -> None:
    """worker-cpu serves on the CPU."""
    command = [str(COMMANDS / "worker-cpu"), "--model", str(tiny), "--port", "0", "-t", "1"]
    process = WorkerProcess("--log-format", "json", command=command)
    try:
        assert process.wait_for("ready")["layers"] == {"CPU": 3}
        process.process.terminate()
        assert process.wait() == 0
    finally:
        process.end()


@pytest.mark.parametrize("backend", ["cuda", "metal", "vulkan"])
def test_backend_command_on_another_build(backend: str, tiny: Path) -> None:
    """On a build without the backend it exits with 2 and says how to get one."""
    names = {name.lower() for name in library.build().backends}
    if names & {backend, {"metal": "mtl"}.get(backend, backend)}:
        pytest.skip(f"this build has {backend}")
    done = subprocess.run(
        [COMMANDS / f"worker-{backend}", "--model", tiny, "--port", "0"],
        capture_output=True, text=True, timeout=60, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"error: USAGE: This build has no {backend} backend, it has: ")
    assert f"make install BACKEND={backend}" in line


def test_backend_command_with_another_backend(capsys: pytest.CaptureFixture[str]) -> None:
    """No option can take the command's backend away."""
    assert main(["--backend", "cuda"], "cpu") == 2
    assert "--backend cpu alone" in capsys.readouterr().err
    assert main(["--mmproj-url", "x"], "cpu") == 2


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a word the commands are listed, on stderr, and the last line says what is missing."""
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "\n    serve " in shown.err
    assert shown.err.splitlines()[-1].startswith("error: USAGE: ")
    assert not shown.out
