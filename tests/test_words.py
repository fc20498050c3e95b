"""What people read is plain technical English: docs, help, errors and log sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from worker.cli.main import COMMANDS, parser

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
MODULES = sorted((ROOT / "worker").rglob("*.py"))

# What is not said -> what is said.
WORDS = {
    r"guess(es|ed|ing)?\b": "draft token, drafting",
    r"(pictures?|sounds)\b": "images, audio",
    r"thoughts?\b": "reasoning",
    r"(plain|fused) attention": "standard or flash attention",
    r"[a-z]*quantise[a-z]*|[a-z]*tokenis[a-z]*|neighbour[a-z]*|behaviour|colour[a-z]*": "American spelling",
    r"the proof\b": "self-test",
    r"vectors of (texts?|pictures?|sounds?)": "embeddings",
    r"nobody\b": "no one, or the passive",
    r"who (asks|reads|writes|comes|leaves|has|only|wants|starts|chooses|finds)\b": "clients that ...",
    r"where (there|it|that|this|no|a|an|one|none|they|you) (is|are|has|have|does|says?)\b": "if",
}
MOST = 35  # words of a sentence

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_MARK = re.compile(r"\]\([^)]*\)|^\s*([-*>#]+|\d+\.) ", re.MULTILINE)
_END = re.compile(r"(?<=[.:;?!])\s+|\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\. ))| \| |\n(?=\|)|^\| ?|\|$", re.MULTILINE)
_SENTENCE = re.compile(r"^[A-Z`{%].* .*[.?!]$", re.DOTALL)


def sentences(text: str) -> list[str]:
    """The sentences, items and cells of a text, without what stands between backticks."""
    text = _CODE.sub("code", _FENCE.sub("", text))
    return [s.strip() for s in _END.split(_MARK.sub("", text)) if s and s.strip()]


def faults(text: str) -> list[str]:
    """What is said in a way that it should not be said."""
    found = list[str]()
    for sentence in sentences(text):
        low = sentence.lower()
        for pattern, better in WORDS.items():
            if hit := re.search(rf"\b(?:{pattern})", low):
                found.append(f"{hit[0]!r} -> {better}: {sentence}")
        if len(sentence.split()) > MOST:
            found.append(f"{len(sentence.split())} words: {sentence}")
        if re.match(r"(Who|What)\b", sentence) and not sentence.endswith("?"):
            found.append(f"begins with who or what: {sentence}")
    return found


def told(module: Path) -> Generator[tuple[int, str]]:
    """The sentences among a module's strings: errors, hints, help and lines of the log."""
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
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        if id(node) not in docstrings and _SENTENCE.match(text):
            yield node.lineno, text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages(page: Path) -> None:
    """The pages are in the words of docs/glossary.md, a sentence has at most 35 words."""
    assert faults(page.read_text()) == []


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"fleet"}))
def test_help(command: str) -> None:
    """So is each command's help."""
    assert faults(parser(command).format_help()) == []


def test_sentences_of_the_code() -> None:
    """So are errors, hints and log sentences."""
    found = [
        f"{module.relative_to(ROOT)}:{line}: {fault}"
        for module in MODULES
        for line, text in told(module)
        for fault in faults(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["Who asks has none.", "It guesses tokens.", "word " * 36, "The pictures are read."],
)
def test_faults_are_found(text: str) -> None:
    """A sentence of each kind of fault is one."""
    assert faults(text)
