"""The README and docs/ name only what is there, and their Python examples run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from scripts.docs import house
from tests.support import http
from tests.support.programs.processes import Server, serving
from worker.cli.main import COMMANDS, parser
from worker.demo import MODEL_PATH
from worker.service.app import APIS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = sorted(
    [
        README,
        ROOT / "SECURITY.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *DOCS,
        *(ROOT / "benchmarks").rglob("*.md"),
        ROOT / "checks" / "README.md",
        *(ROOT / "fleet" / "benchmarks").glob("*.md"),
    ]
)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())

NAMES = set(COMMANDS)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FOLDERS = ("worker", "tests", "checks", "scripts", "benchmarks", "examples", "docs", "fleet")
# What a page tells the reader to type, and which of it is the command's own word.
_PROMPT = r"(?:\$ )?(?:\.venv/bin/)?"
_COMMAND = re.compile(_PROMPT + r"worker ([a-z]+)")
_OPTION = re.compile(r"--[a-z][a-z-]*")
_TARGET = re.compile(_PROMPT + r"make ([a-z.-]+)(?: SUITE=([a-z]+))?")


def fences(text: str, language: str | None = None) -> list[str]:
    """The fenced blocks, of one language or of all."""
    return [body for name, body in _FENCE.findall(text) if language in (None, name)]


def inline(text: str) -> list[str]:
    """What stands between single backticks outside of fenced blocks."""
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))


def typed(text: str) -> list[str]:
    """All that could be a command line: inline code, and each line of the fenced blocks."""
    return [*inline(text), *(line for body in fences(text) for line in body.splitlines())]


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Every link is to a file that exists, and to a heading that it has."""
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_paths_exist(page: Path) -> None:
    """Every path of ours in the text is there."""
    for words in inline(page.read_text()):
        for word in words.split():
            folder, slash, _ = word.partition("/")
            if slash and folder in _FOLDERS:
                assert (ROOT / word).exists(), word


@each_page
def test_commands_exist(page: Path) -> None:
    """Every `worker COMMAND` and every `make TARGET` is one."""
    targets = set(re.findall(r"^([a-z.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in typed(page.read_text()):
        if found := _COMMAND.match(line):
            assert found[1] in NAMES, line
        if found := _TARGET.match(line):
            assert found[1] in targets, line
            assert not found[2] or f"check-{found[2]}" in targets, line


@each_page
def test_options_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option in the text of README and docs/ is in the help of some command."""
    if page.parent.name == "peers":
        pytest.skip("its options are those of `python -m benchmarks.peers`")
    for name in NAMES:
        with pytest.raises(SystemExit):
            parser(name).parse_args([name, "--help"])
    known = set(_OPTION.findall(capsys.readouterr().out))
    # Another distribution's, which need not be installed.
    known |= set(_OPTION.findall((ROOT / "fleet" / "gguf_fleet" / "cli" / "main.py").read_text()))
    for words in inline(page.read_text()):
        if words.startswith("--"):
            assert set(_OPTION.findall(words)) <= known, words


def test_the_first_session() -> None:
    """The log has two lines as today, no warning among them, and the answer is the model's."""
    text = (ROOT / "docs" / "install.md").read_text()
    session = text[text.index("## A first session") :]
    (body,) = re.findall(r"/v1/chat/completions -d '(.*)'", session)
    (answer,) = re.findall(r'"content":"([^"]*)"', session)
    shown = re.findall(r"^2\d{3}-.*\[(\w+)\] (\w+) ", session, re.MULTILINE)
    command = [sys.executable, "-m", "worker", "serve", str(MODEL_PATH), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline() for _ in shown]
            found = re.findall(r"\[(\w+)\] (\w+) ", "".join(lines))
            assert found == shown == [("info", "Loading"), ("info", "Ready")]
            url = lines[-1].split()[-1]
            reply = http.post(f"{url}/v1/chat/completions", json=json.loads(body)).json()
            assert reply["choices"][0]["message"]["content"] == answer
        finally:
            process.terminate()


def words(page: Path) -> int:
    """The words of a page, without examples and marks of tables."""
    return sum(map(bool, (re.search(r"\w", w) for w in _FENCE.sub("", page.read_text()).split())))


def test_the_readme_is_short() -> None:
    """It is read in one go."""
    assert len(README.read_text().splitlines()) <= 120


def test_pages_are_short() -> None:
    """A page answers one question in at most 1,800 words, and all of them take at most 24,000."""
    counts = {page.name: words(page) for page in DOCS}
    assert {name: n for name, n in counts.items() if n > 1800} == {}
    assert sum(counts.values()) <= 24_000


def test_every_page_is_found() -> None:
    """docs/index.md and the site's navigation link to each page, and to nothing else."""
    names = {page.name for page in DOCS}
    linked = set(_LINK.findall((ROOT / "docs" / "index.md").read_text()))
    assert linked == names - {"index.md"}
    assert set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text())) == names


def test_every_package_is_described() -> None:
    """Each package of worker/ stands in docs/architecture.md."""
    words = inline((ROOT / "docs" / "architecture.md").read_text())
    described = {word.rstrip("/").rpartition("/")[2] for word in words}
    packages = {path.parent.name for path in (ROOT / "worker").rglob("__init__.py")}
    assert packages - {"worker"} <= described


def test_every_path_of_the_service_is_described() -> None:
    """Each route is in docs/api.md, or on the page of its API."""
    text = "".join(page.read_text() for page in DOCS)
    paths = set[str]()
    for api in APIS:
        for route in api.routes:
            paths |= route.handler.paths
    assert len(paths) > 20
    for path in paths:
        shown = re.sub(r"\{\w+:\w+\}", "{id}", path)
        assert f"{shown}`" in text or f"{shown}/" in text, path


def test_the_picture_is_of_this_house() -> None:
    """docs/house.svg is what `python -m scripts.docs.house` draws of the rule and the table."""
    assert house.PICTURE.read_text() == house.picture()


@pytest.fixture(scope="module")
def demo() -> Generator[Server]:
    """The demo model, which the pages are about."""
    with serving() as running:
        yield running


EXAMPLES = [example for page in DOCS for example in fences(page.read_text(), "python")]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example: str, demo: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Each Python example prints something if it runs against the demo model."""
    assert "http://127.0.0.1:8080" in example
    exec(example.replace("http://127.0.0.1:8080", demo.url), {})
    assert capsys.readouterr().out.strip()
