"""The cases of llama.cpp's tests of grammars and schemas, followed by our guides.

Where a case names the grammar that they make of a schema, texts are drawn from that grammar,
spoiled, and mixed with those of other cases. We are to take those that llama.cpp takes; where we
differ, jsonschema says who is right.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema

from checks.suites.outcome import PASSED, Outcome
from checks.suites.sdist import llama_cpp
from tests.support.guided import Writer
from tests.support.llama_grammar import LlamaGrammar
from tests.support.models.ggufs import write_llama
from worker.errors import RequestError
from worker.grammar.client_grammar import grammar_constraint
from worker.grammar.constraint import Constraint, schema_constraint
from worker.grammar.gbnf import Grammar, characters
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

_CALL = re.compile(r"^    (test_schema(?=\()|test_grammar(?=\()|test(?=\(\{))", re.MULTILINE)
_FAILING = re.compile(r"^static void test_failure_(?!missing_root_symbol)\w+\(\).*?^}", re.M | re.S)
_PARSED = re.compile(r'^    verify_(\w+)\(R"""\((.*?)\)"""', re.MULTILINE | re.DOTALL)
_RAW = re.compile(r'R"""\((.*?)\)"""', re.DOTALL)
_PART = re.compile(
    rf'{_RAW.pattern}|("(?:\\.|[^"\\])*")|token\((\d+)\)|([{{}}(),])|//[^\n]*|(\w+)', re.DOTALL
)
# What a class draws from, where it may: else from the ends of its runs.
_LIKED = "abcdfoz019 -_.é"
_DRAWN, _MOST = 12, 400  # texts of a grammar, characters of a text
# How we may differ, the worst first.
_KINDS = tuple(
    f"{who} {how}"
    for how in ("take what is not valid", "refuse what is valid", "refuse a spelling")
    for who in ("we", "they")
)


def outcome() -> Outcome:
    """A case is a call of theirs, a grammar that is to parse, or one that is not."""
    folder = llama_cpp() / "tests"
    with tempfile.TemporaryDirectory() as name:
        path = write_llama(Path(name) / "wide.gguf", vocab_size=1201)
        with Weights(path, LoadOptions(n_gpu_layers=0)) as weights:
            writer, found = Writer(Vocab(weights.handle, 512)), dict[str, str]()
            for case, said in _cases(writer, folder):
                found[f"{case} {len(found)}" if case in found else case] = said
    return Outcome("grammars", found)


def _cases(writer: Writer, folder: Path) -> Iterator[tuple[str, str]]:
    for kind in ("integration", "llguidance"):
        text = (folder / f"test-grammar-{kind}.cpp").read_text("utf-8")
        for call, (name, rules, good, bad) in _calls(text):
            yield f"{kind} {name}", _followed(writer, call == "test_schema", rules, good, bad)
        for failing in _FAILING.findall(text):
            for rules in _RAW.findall(failing):
                yield f"{kind} {failing[12:].partition('(')[0]}", _parsed(writer, rules, False)
    for kind, rules in _PARSED.findall((folder / "test-grammar-parser.cpp").read_text("utf-8")):
        yield f"parser {' '.join(rules.split())}", _parsed(writer, rules, kind == "parsing")
    text = (folder / "test-json-schema-to-grammar.cpp").read_text("utf-8")
    made = [case for _, (case,) in _calls(text)]
    drawn = {schema: list(_drawn(rules)) for _, _, schema, rules in made if rules}
    probes = [texts[0] for texts in drawn.values()]
    for status, name, schema, rules in made:
        if status == "SUCCESS":
            yield f"schema {name}", _compared(writer, schema, rules, [*drawn[schema], *probes])
        else:
            yield f"schema {name}", PASSED if _refused(writer, schema) else "is not refused"


def _calls(text: str) -> Iterator[tuple[str, list[Any]]]:
    """(function, arguments): texts, words and lists of such."""
    for call in _CALL.finditer(text):
        lists: list[list[Any]] = [[]]
        goes_on = False
        for part in _PART.finditer(text, call.end()):
            value = part[part.lastindex or 0]
            if part.lastindex is None:  # a remark
                continue
            if part.lastindex in (1, 2, 3):
                value = json.loads(value) if part[2] else f"<[{value}]>" if part[3] else value
                lists[-1][-1:] = [lists[-1][-1] + value] if goes_on else [*lists[-1][-1:], value]
            elif value in "({":
                lists.append([])
            elif value in ")}":
                last = lists.pop()
                lists[-1].append(last)
                if len(lists) == 1:
                    yield call[1], last
                    break
            elif value != ",":
                lists[-1].append(value)
            goes_on = part.lastindex in (1, 2, 3)


def _followed(
    writer: Writer, is_schema: bool, rules: str, good: Sequence[str], bad: Sequence[str]
) -> str:
    """Whether we take the texts that are good, and none of the bad ones."""
    try:
        constraint = _of_schema(rules) if is_schema else grammar_constraint(rules, "grammar")
        refused = [text for text in good if not writer.takes(constraint, text)]
        taken = [text for text in bad if writer.takes(constraint, text)]
    except RequestError as error:
        return str(error)
    told = [f"refuses {refused}"] * bool(refused) + [f"takes {taken}"] * bool(taken)
    return ", ".join(told)[:400] or PASSED


def _parsed(writer: Writer, rules: str, is_right: bool) -> str:
    try:
        writer.guides.matcher_of(Constraint(kind="gbnf", text=rules))
    except RequestError as error:
        return str(error) if is_right else PASSED
    return PASSED if is_right else "is not refused"


def _refused(writer: Writer, schema: str) -> bool:
    try:
        writer.guides.matcher_of(_of_schema(schema))
    except RequestError:
        return True
    return False


def _compared(writer: Writer, schema: str, rules: str, texts: Sequence[str]) -> str:
    """Whether we take the same of these texts as llama.cpp with its grammar."""
    found: dict[str, str] = {}
    try:
        constraint = _of_schema(schema)
        takes: dict[str, Callable[[str], bool]] = {
            "we": partial(writer.takes, constraint),
            "they": partial(_theirs, writer, rules),
        }
        for text in texts:
            taker, refuser = takes if takes["we"](text) else reversed(takes)
            if takes[refuser](text) == takes[taker](text):
                continue
            if not _is_valid(schema, text):
                kind = f"{taker} take what is not valid"
            elif takes[refuser](_plain(text)):
                kind = f"{refuser} refuse a spelling"
            else:
                kind = f"{refuser} refuse what is valid"
            found.setdefault(kind, text)
    except RequestError as error:
        return str(error)
    worst = next((kind for kind in _KINDS if kind in found), None)
    return PASSED if worst is None else f"{worst}: {found[worst]!r}"[:400]


def _plain(text: str) -> str:
    """Without escapes of characters, and with as little white space as may be."""
    text = re.sub(r"\\u[0-9a-fA-F]{4}", "z", text)
    return re.sub(r"\s+(?=[:,])", "", re.sub(r"\s+", " ", text))


def _of_schema(text: str) -> Constraint:
    return schema_constraint(json.loads(text), "schema", strict=False)


def _theirs(writer: Writer, rules: str, text: str) -> bool:
    grammar = LlamaGrammar(rules, writer)
    try:
        for token in writer.guides.spell(text.encode()):
            if not grammar.allowed()[token]:
                return False
            grammar.accept(token)
        return bool(grammar.allowed()[sorted(writer.vocab.end_tokens)].any())
    finally:
        grammar.free()


def _is_valid(schema: str, text: str) -> bool:
    own: dict[str, Any] = json.loads(schema)
    is_older = isinstance(own.get("items"), list)
    judge = jsonschema.Draft7Validator if is_older else jsonschema.Draft202012Validator
    try:
        return judge(own).is_valid(json.loads(text))  # pyright: ignore[reportUnknownMemberType]
    except ValueError:
        return False


def _drawn(rules: str) -> Iterator[str]:
    """Texts of a grammar, each with a spoiled one behind it."""
    grammar, draw = Grammar(rules, "grammar"), random.Random(1)
    for _ in range(_DRAWN):
        text = None
        while text is None:
            text = _text(grammar, draw)
        yield text
        at, char = draw.randrange(len(text) + 1), draw.choice('a0 ",:}]-')
        yield text[:at] + char * draw.randrange(2) + text[at + draw.randrange(2) :]


def _text(grammar: Grammar, draw: random.Random) -> str | None:
    """None: it became too long."""
    text, nodes = "", [grammar.rules["root"]]
    while nodes and len(text) + len(nodes) < _MOST:
        node = nodes.pop()
        if node in grammar.chars:
            runs = characters(*grammar.chars[node])
            liked = [char for char in _LIKED if any(a <= ord(char) <= b for a, b in runs)]
            text += draw.choice(liked or [chr(each) for each in draw.choice(runs)])
        elif node in grammar.choices:
            nodes += reversed(draw.choice(grammar.choices[node]))
        else:
            inner, least, most = grammar.repeats[node]
            nodes += [inner] * draw.randint(least, least + 2 if most < 0 else min(most, least + 2))
    return None if nodes else text
