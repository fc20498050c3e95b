"""Command lines of llama-server that people publish: each starts with its effect, or says what it
waits for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.models import drafters, ggufs
from tests.support.models.adapters import control_gguf, write_lora
from tests.support.models.heads import write_glm4moe
from tests.support.models.projectors import png, projector_gguf
from tests.support.programs.processes import Server, serving
from tests.support.programs.pulling import Machine
from worker.cli.main import main
from worker.llama import hidden_states, library

REPO = "org/repo-GGUF"
USUAL, OTHER = "repo-Q4_K_M.gguf", "repo-Q8_0.gguf"
THINKS = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
)
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
# Behind each line: no port that is taken, none that others reach.
BEHIND = ("--host", "127.0.0.1", "--port", "0")


def get(server: Server, path: str) -> Any:
    """What a path answers."""
    return http.get(server.url + path).json()


def sampling(server: Server, **expected: float) -> None:
    """Requests that do not say otherwise are sampled so."""
    params = get(server, "/props")["default_generation_settings"]["params"]
    assert {name: params[name] for name in expected} == expected


def prompted(server: Server, **more: Any) -> str:
    """What the template makes of a conversation."""
    return server.post({**HELLO, **more}, "/apply-template").json()["prompt"]


def needless(server: Server, *flags: str) -> None:
    """The log says why these are ignored."""
    lines = [json.loads(line) for line in server.lines if "options ignored" in line]
    assert set(flags) == {flag for line in lines for flag in line["options"].split()}
    assert all(line["why"] for line in lines)


def adapted(server: Server) -> None:
    """Both adapters count for requests that choose nothing."""
    assert [each["scale"] for each in get(server, "/lora-adapters")] == [1.0, 0.5]


def steered(server: Server) -> None:
    """The log says behind which layers what is added."""
    line = server.logged("control vectors are added")
    assert (line["first"], line["last"]) == (1, 1)


def fetched(server: Server) -> None:
    """The usual encoding came from the Hub, which was told on standard error."""
    assert get(server, "/v1/models")["data"][0]["id"] == USUAL.removesuffix(".gguf")
    for file in (USUAL, "mmproj-F16.gguf"):
        assert any(line.startswith(f"downloading {file}") for line in server.lines)


def fetched_with_batches(server: Server) -> None:
    fetched(server)
    needless(server, "--cache-reuse")


def sampled(server: Server) -> None:
    sampling(server, temperature=0.7, top_p=0.8, top_k=20, min_p=0, presence_penalty=1.5)
    needless(server, "--no-context-shift")


def seeded(server: Server) -> None:
    sampling(server, temperature=1, top_p=0.95, min_p=0.01, repeat_penalty=1, seed=3407)
    texts = {server.post({"prompt": "a"}).json()["choices"][0]["text"] for _ in range(2)}
    assert len(texts) == 1


def without_thoughts(server: Server) -> None:
    assert prompted(server) == "hello"
    assert prompted(server, enable_thinking=True) == "hello<think>\n"


def named(server: Server) -> None:
    (model,) = get(server, "/v1/models")["data"]
    assert (model["id"], model["aliases"]) == ("a", ["b"])
    assert get(server, "/v1/models/b") == model
    answer = http.get(server.url + "/v1/models", headers={"origin": "https://any.example"})
    assert answer.headers["access-control-allow-origin"] == "https://any.example"
    assert prompted(server).startswith("<|im_start|>user")


def quantised_cells(server: Server) -> None:
    (warning,) = (json.loads(line) for line in server.lines if "a quantized KV cache" in line)
    assert (warning["cache_type_k"], warning["cache_type_v"]) == ("q8_0", "q8_0")


def sixteen_threads(server: Server) -> None:
    told = get(server, "/info")
    assert (told["threads"], told["threads_batch"]) == (16, 16)
    needless(server, "--numa")


def stretched(server: Server) -> None:
    assert get(server, "/info")["context_length"] == 131072
    (model,) = get(server, "/v1/models")["data"]
    assert (model["max_model_len"], model["meta"]["n_ctx_train"]) == (131072, 2048)


def guesses(who: str, model: str | None = None) -> Callable[[Server], None]:
    """Who guesses tokens."""

    def check(server: Server) -> None:
        told = get(server, "/info")
        assert (told["draft"], told["draft_model"]) == (who, model)

    return check


def watched(server: Server) -> None:
    for path in ("/slots", "/props", "/metrics"):
        assert http.get(server.url + path).status_code == 200
    needless(server, "--slots", "--metrics", "--props")
    assert http.post(server.url + "/sleep").json() == {"is_sleeping": True}
    body = {"prompt": "Once", "n_predict": 1, "id_slot": 0}
    assert server.post(body, "/completion").status_code == 200
    assert server.post({"filename": "a"}, "/slots/0?action=save").json()["n_saved"] > 0


def seeing(server: Server) -> None:
    """It reads pictures."""
    address = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    picture = {"type": "image_url", "image_url": {"url": address}}
    content = [picture, {"type": "text", "text": "What is it?"}]
    chat = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    answer = server.post(chat, "/v1/chat/completions")
    assert answer.status_code == 200, answer.text


def embedded(server: Server) -> None:
    """It makes vectors, and writes too."""
    answer = server.post({"input": "a"}, "/v1/embeddings").json()
    assert sum(part**2 for part in answer["data"][0]["embedding"]) == pytest.approx(1, rel=1e-4)
    assert server.post({"prompt": "a", "max_tokens": 1}).status_code == 200


FORMS: dict[str, Callable[[Server], None]] = {
    f"-hf {REPO}:Q4_K_M --jinja -c 0 -fa on": fetched,
    f"-hf {REPO} --port 8012 -fa -ub 1024 -b 1024 --ctx-size 0 --cache-reuse 256":
        fetched_with_batches,
    "-m M.gguf --temp 0.7 --top-p 0.8 --top-k 20 --min-p 0 --presence-penalty 1.5 -c 40960 "
    "-n 32768 --no-context-shift": sampled,
    "-m M.gguf --temp 1.0 --top-p 0.95 --min-p 0.01 --repeat-penalty 1.0 --jinja --seed 3407":
        seeded,
    "-m M.gguf --jinja --chat-template-file T.jinja --reasoning-format deepseek "
    "--reasoning-budget 0": without_thoughts,
    '-m T.gguf --jinja --chat-template-kwargs {"enable_thinking":false}': without_thoughts,
    "-m M.gguf --chat-template chatml --alias a,b --host 0.0.0.0 --port 5001 --cors-origins *":
        named,
    "-m M.gguf --n-cpu-moe 24 -fa on -ctk q8_0 -ctv q8_0 --no-mmap --mlock": quantised_cells,
    "-m M.gguf -ot .ffn_.*_exps.=CPU -t 16 -tb 16 --numa distribute": sixteen_threads,
    "-m M.gguf --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 -c 131072": stretched,
    "-m M.gguf -md D.gguf --draft-max 16 --draft-min 4 --draft-p-min 0.75": guesses("auto", "D"),
    "-m M.gguf --spec-type ngram-mod --spec-ngram-mod-n-max 48": guesses("ngram"),
    "-m H.gguf --spec-type draft-mtp --spec-draft-n-max 3":
        guesses("none" if hidden_states.why_missing() else "mtp"),
    "-m M.gguf --lora A.gguf --lora-scaled B.gguf:0.5": adapted,
    "-m M.gguf --control-vector V.gguf --control-vector-layer-range 1 1": steered,
    "-m M.gguf --embedding --pooling last -ub 8192": embedded,
    "-m M.gguf --slots --metrics --props --slot-save-path DIR --sleep-idle-seconds 300": watched,
}  # fmt: skip
if library.reads_media():
    FORMS["-m M.gguf --mmproj P.gguf --no-mmproj-offload"] = seeing
WAITING = {
    "-m M.gguf --mmproj-url https://h.example/P.gguf": "name it with --mmproj",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the lines name."""
    folder = tmp_path_factory.mktemp("forms")
    wide = {"context": 2048, "heads": 2, "kv_heads": 1}  # which cells of any type hold
    ggufs.write_llama(folder / "M.gguf", **wide)
    ggufs.write_llama(folder / "D.gguf", **wide)
    ggufs.write_llama(folder / "T.gguf", **wide, chat_template=THINKS)
    write_glm4moe(folder / "H.gguf")
    for seed, name in enumerate("AB"):
        write_lora(folder / f"{name}.gguf", folder / "M.gguf", seed)
    control_gguf([1], 64).write(folder / "V.gguf")
    projector_gguf().write(folder / "P.gguf")
    (folder / "T.jinja").write_text(THINKS)
    return folder


@pytest.mark.parametrize("line", FORMS)
def test_a_published_line_has_its_effect(
    line: str, folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts as it is written, and what it asks for is true."""
    machine.hub.files[REPO] = {
        **{name: (folder / "M.gguf").read_bytes() for name in (USUAL, OTHER)},
        "mmproj-F16.gguf": (folder / "P.gguf").read_bytes(),
    }
    monkeypatch.chdir(folder)
    with serving(*line.split(), *BEHIND, env=machine.env(), forked=True) as server:
        FORMS[line](server)


def test_a_drafter_in_the_repository(machine: Machine, tmp_path: Path) -> None:
    """`-hfd` takes the drafter that lies beside a model before the model itself; once it is here,
    no Hub is asked."""
    drafter = "mtp-repo-Q8_0.gguf"
    machine.hub.files[REPO] = {
        USUAL: drafters.write_gemma4(tmp_path / "m.gguf").read_bytes(),
        drafter: drafters.write_assistant(tmp_path / "a.gguf").read_bytes(),
    }
    asked: list[int] = []
    for _ in range(2):
        line = ("-hf", REPO, "-hfd", REPO, *BEHIND)
        with serving(*line, env=machine.env(), forked=True) as server:
            guesses("auto", drafter.removesuffix(".gguf"))(server)
        asked.append(len(machine.hub.asked))
    assert asked[0] == asked[1]


@pytest.mark.parametrize("line", WAITING)
def test_a_line_that_waits_says_for_what(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, exit code 2."""
    assert main(line.split()) == 2
    assert WAITING[line] in capsys.readouterr().err


def test_a_model_that_is_here_needs_no_hub(machine: Machine, folder: Path) -> None:
    """It is taken as it is; offline it is looked for in any encoding, and never asked for."""
    machine.hub.files[REPO] = {OTHER: (folder / "M.gguf").read_bytes()}
    error = machine.refused("serve", "-hf", REPO, "--offline", *BEHIND)
    assert error.startswith(f"error: NOT_DOWNLOADED: {REPO} is not on this machine.")
    assert machine.hub.asked == []
    machine.pulled(f"{REPO}:Q8_0")
    before = len(machine.hub.asked)
    for words in (
        ("-hf", f"{REPO}:q8_0"),
        ("-hf", REPO, "--offline"),
        ("-hf", REPO, "-hff", OTHER),
    ):
        with serving(*words, *BEHIND, env=machine.env(), forked=True) as server:
            assert get(server, "/v1/models")["data"][0]["id"] == OTHER.removesuffix(".gguf")
    assert len(machine.hub.asked) == before
