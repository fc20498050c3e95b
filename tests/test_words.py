"""What people read is plain technical English: docs, help, errors, log sentences and the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Generator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from worker.cli.main import COMMANDS, parser

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
MODULES = sorted([*(ROOT / "worker").rglob("*.py"), *(ROOT / "fleet" / "gguf_fleet").rglob("*.py")])
PAGE = ROOT / "worker" / "api" / "page"
SCRIPTS = sorted((PAGE / "script").glob("*.js"))

# What is not said -> what is said.
WORDS = {
    r"guess(es|ed|ing)?\b": "draft token, drafting",
    r"(pictures?|sounds)\b": "images, audio",
    r"thoughts?\b": "reasoning",
    r"(plain|fused) attention": "standard or flash attention",
    r"[a-z]*(quantis|tokenis|neighbour|behaviour|colour)[a-z]*": "American spelling",
    r"the proof\b": "self-test",
    r"organis(e|at)[a-z]*|recognis[a-z]*|initialis[a-z]*": "American spelling",
    r"vectors of (texts?|pictures?|sounds?)": "embeddings",
    r"nobody\b": "no one, or the passive",
    r"makes? vectors|into vectors": "embeds, makes embeddings",
    r"toss-up|cannot be told from": "indistinguishable",
    r"who (asks|reads|writes|comes|leaves|has|only|wants|starts|finds)\b": "clients that ...",
    r"where (there|it|that|this|no|a|an|one|none|they|you) (is|are|has|have|does|says?)\b": "if",
}
MOST = 35  # words of a sentence

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_MARK = re.compile(r"^#+ .*$|\]\([^)]*\)|^\s*(?:[-*>]+|\d+\.) ", re.MULTILINE)
# A sentence ends at its mark, an item at the next one, a cell at its border.
_END = re.compile(r"(?<=[.:;?!])\s+|\n\s*\n|\n(?=\s*(?:[-*|]|\d+\. ))| \| |^\| ?|\|$", re.MULTILINE)
# A string of three words is for people, unless it lists many names.
_NAMES = re.compile(r"\s*\w[\w.-]*(?:\s+\w[\w.-]*){35,}\s*$")
_TOLD = re.compile(r".*\w \w+ \w", re.DOTALL)


def sentences(text: str) -> list[str]:
    """The sentences, items and cells of a text, without what stands between backticks."""
    text = _CODE.sub("code", _FENCE.sub("", text))
    parts = _END.split(text)
    return [s for part in parts if (s := _MARK.sub("", part).strip())]


def faults(text: str) -> list[str]:
    """What is said in a way that it should not be said."""
    found = list[str]()
    for sentence in sentences(text):
        low = sentence.lower()
        for pattern, better in WORDS.items():
            if hit := re.search(rf"\b(?:{pattern})", low):
                found.append(f"{hit[0]!r} -> {better}: {sentence}")
        if (count := len(sentence.split())) > MOST:
            found.append(f"{count} words: {sentence}")
        if re.match(r"(Who|What)\b", sentence) and not sentence.endswith("?"):
            found.append(f"begins with who or what: {sentence}")
    return found


def told(module: Path) -> Generator[tuple[int, str]]:
    """What a module's strings say to people: errors, hints, help and events of the log."""
    tree = ast.parse(module.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    inner = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            text = "".join(map(str, values))
        elif isinstance(node, ast.Constant) and id(node) not in inner:
            text = str(node.value)
        else:
            continue
        if id(node) not in docstrings and _TOLD.match(text) and not _NAMES.match(text):
            yield node.lineno, text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages(page: Path) -> None:
    """The pages are in the words of docs/glossary.md, a sentence has at most 35 words."""
    assert faults(page.read_text()) == []


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"fleet"}))
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So is each command's help."""
    with pytest.raises(SystemExit):
        parser(command).parse_args([command, "--help"])
    # What is less indented than an option's explanation begins something new.
    shown = re.sub(r"^usage:.*?\n\n", "", capsys.readouterr().out, count=1, flags=re.DOTALL)
    shown = re.sub(r"\n {1,4}(?=\S)", "\n\n", shown)
    assert len(shown) > 200
    assert faults(shown) == []


def test_sentences_of_the_code() -> None:
    """So are errors, hints and events of the log."""
    found = [
        f"{module.relative_to(ROOT)}:{line}: {fault}"
        for module in MODULES
        for line, text in told(module)
        for fault in faults(text)
    ]
    assert found == []


class Shown(HTMLParser):
    """The texts that a page shows, also those of its attributes, without styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Attributes that are read out or shown."""
        self._tag = tag
        told = ("aria-label", "placeholder", "title", "alt")
        self.texts += [value for name, value in attrs if name in told and value]

    def handle_data(self, data: str) -> None:
        """What is between two tags."""
        if self._tag not in ("style", "script") and data.strip():
            self.texts.append(data.strip())


def literals(script: str) -> list[str]:
    """The strings of a script that are for people: of two words or more, its comments left out.

    What a template puts in is an ellipsis.
    """
    script = re.sub(r"class: \"[^\"\n]*\"", "", script)  # names of styles
    bare = re.sub(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", "", script, flags=re.DOTALL)
    while (flat := re.sub(r"\$\{[^{}]*\}", "…", bare)) != bare:
        bare = flat
    found = re.findall(r"\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`", bare)
    texts = ["".join(each) for each in found]
    return [text for text in texts if re.search(r"[a-z]{2,}[,.:]? [a-z]", text)]


def test_the_page() -> None:
    """So is what the web UI shows."""
    texts = Shown((PAGE / "page.html").read_text()).texts
    assert "Completions" in texts
    assert len(texts) > 90
    assert [fault for text in texts for fault in faults(text)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_the_scripts_of_the_page(script: Path) -> None:
    """So is what its scripts say."""
    assert [fault for text in literals(script.read_text()) for fault in faults(text)] == []


def test_texts_of_scripts_are_found() -> None:
    """Strings and templates, without what is put in; comments are not read."""
    script = """// "a comment here"
    say("Two words."); x = `the ${count(`a ${b}`)} of all`; const y = "word"; /* "not this one" */
    """
    assert literals(script) == ["Two words.", "the … of all"]
    every = [text for path in SCRIPTS for text in literals(path.read_text())]
    assert "gone, trying again" in every
    assert len(every) > 40


@pytest.mark.parametrize(
    "text",
    ["Who asks has none.", "It guesses tokens.", "word " * 36, "The pictures are read."],
)
def test_faults_are_found(text: str) -> None:
    """A sentence of each kind of fault is one."""
    assert faults(text)
