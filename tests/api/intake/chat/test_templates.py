"""Which template a conversation is written by, and what it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import http
from tests.support.models import ggufs
from tests.support.programs.processes import Server, WorkerProcess, serving
from worker.cli.main import main

SAYS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
NAMED = {
    "": "plain\n" + SAYS,
    ".tool_use": "with tools {{ tools | map(attribute='function.name') | join }}\n" + SAYS,
    ".rag": "with documents {{ documents | map(attribute='title') | join }}\n" + SAYS,
}
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "sky", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose file has three templates."""
    made = ggufs.llama_gguf()
    made.keys |= {
        f"tokenizer.chat_template{name}": ggufs.text(source) for name, source in NAMED.items()
    }
    path = tmp_path_factory.mktemp("templates") / "named.gguf"
    return made.write(path)


def prompt(server: Server, **more: Any) -> str:
    answer = ask(server, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["prompt"]


def ask(server: Server, **more: Any) -> httpx.Response:
    return http.post(f"{server.url}/apply-template", json={"messages": HELLO, **more})


def test_named_templates_are_used_where_they_apply(named: Path) -> None:
    """`tool_use` where there are tools, `rag` where there are documents."""
    with serving("--model", named) as server:
        assert prompt(server).startswith("plain\nuser: Hello")
        said = {"messages": HELLO, "max_tokens": 1, "verbose": True}
        answer = server.post(said, "/v1/chat/completions").json()
        assert answer["__verbose"]["prompt"] == prompt(server)
        assert prompt(server, tools=TOOLS).startswith("with tools sky\nuser: Hello")
        given = {"documents": [{"title": "Rome", "text": "warm"}]}
        assert prompt(server, chat_template_kwargs=given).startswith("with documents Rome\n")


@pytest.mark.parametrize(
    ("chosen", "begins"),
    [
        ("rag", "with documents \nuser: Hello"),
        ("chatml", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"),
        ("{{ messages[0].content }}!", "Hello!"),
    ],
)
def test_a_chosen_template(named: Path, chosen: str, begins: str) -> None:
    """One of the file's, one of ours, or the text itself; with and without --jinja."""
    for more in ((), ("--jinja",)):
        with serving("--model", named, "--chat-template", chosen, *more) as server:
            assert prompt(server).startswith(begins)


def test_a_name_that_nobody_knows(named: Path) -> None:
    """The worker does not start, and says which names there are."""
    options = ("--port", "0", "--model", str(named), "--chat-template", "nosuch")
    process = WorkerProcess("serve", *options)
    try:
        assert process.wait() == 2
    finally:
        process.end()
    said = "\n".join(process.lines)
    assert all(word in said for word in ("nosuch", "chatml", "zephyr", "tool_use", "rag"))
    assert "Traceback" not in said


@pytest.mark.parametrize("option", ["--chat-template", "--chat-template-file"])
def test_an_option_that_is_no_template(named: Path, option: str, tmp_path: Path) -> None:
    """The worker does not start, and one sentence says which option and why."""
    file = tmp_path / "bad.jinja"
    file.write_text("{{ foo")
    value = str(file) if option.endswith("file") else "{{ foo"
    process = WorkerProcess("serve", "--port", "0", "--model", str(named), option, value)
    try:
        assert process.wait() == 2
    finally:
        process.end()
    (told,) = [line for line in process.lines if "template" in line]
    assert f"The template of {option} cannot be read: " in told


BAD = {
    "{{ messages[0].content.encode() }}": "encode",
    "{{ messages | nosuch }}": "nosuch",
    "{{ nosuch(messages) }}": "nosuch",
    "{{ raise_exception('never') }}": "never",
    "{{ messages[0].parts[0].text.upper() }}": "parts",
    "{% for m in messages %}{% endfor %}": "nothing",
    "{% for %}": "cannot be read",
}


@pytest.mark.parametrize("source", BAD)
def test_a_template_that_renders_no_chat(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log says so before `ready`, and so do `check` and `show`; texts are continued."""
    path = ggufs.write_llama(tmp_path / "bad.gguf", chat_template=source)
    with serving("--model", path) as server:
        told = [line for line in server.lines if "chat template" in line]
        assert len(told) == 1
        assert BAD[source] in told[0]
        if source != "{% for m in messages %}{% endfor %}":
            assert ask(server).status_code == 400
        assert server.post({"prompt": "Hello", "max_tokens": 2}).status_code == 200
    for command in ("check", "show"):
        assert main([command, str(path)]) == 0
        assert BAD[source] in " ".join(capsys.readouterr().out.split())


def test_a_template_that_renders_some_chats(tmp_path: Path) -> None:
    """Nothing is told of one that wants tools, documents or a system message."""
    for word in ("tools[0].function", "documents[0].title", "messages[1].content"):
        source = f"{{% if not {word} %}}{{{{ raise_exception('no') }}}}{{% endif %}}" + SAYS
        path = ggufs.write_llama(tmp_path / "some.gguf", chat_template=source)
        with serving("--model", path) as server:
            assert not [line for line in server.lines if "chat template" in line]


def test_a_file_of_a_template_and_what_it_is_given(named: Path, tmp_path: Path) -> None:
    """Defaults of the command line, which a request may change, and llama-server's variables."""
    source = (
        "{{ 'thinks' if enable_thinking else 'does not think' }}, {{ mood }},"
        " {{ functions | length > 0 }}, {{ datetime[-3:] }}, {{ date_string }}"
    )
    (tmp_path / "own.jinja").write_text(source)
    given = json.dumps({"enable_thinking": "Off", "mood": "calm", "date_string": "today"})
    options = ("--chat-template-file", tmp_path / "own.jinja", "--chat-template-kwargs", given)
    with serving("--model", named, *options) as server:
        says = {"messages": HELLO, "tools": TOOLS}
        refused = ask(server)
        assert refused.status_code == 400
        assert "'Hello'" in refused.json()["error"]["message"]
    (tmp_path / "own.jinja").write_text(source + "{{ messages[-1].content }}")
    with serving("--model", named, *options) as server:
        end = ", GMT, todayHello"
        assert prompt(server) == f"does not think, calm, False{end}"
        assert prompt(server, **says).startswith("does not think, calm, True, GMT, today")
        changed = {"enable_thinking": True, "mood": "glad"}
        assert prompt(server, chat_template_kwargs=changed) == f"thinks, glad, False{end}"
        for word in ("off", "None", "0", 0, "disabled"):  # in a template any text is true
            told = prompt(server, chat_template_kwargs={"enable_thinking": word})
            assert told == f"does not think, calm, False{end}"
