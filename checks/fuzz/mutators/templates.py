"""Chat templates that are broken, that never end, or that reach for Python."""

from __future__ import annotations

from random import Random

from checks.fuzz.mutators.header import Structure
from tests.support.models.ggufs import STR, Gguf, Key

_TEMPLATE = "tokenizer.chat_template"
BOMBS = (
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "{{ " + "+".join(["1"] * 20_000) + " }}",
    "{{ " + "not " * 20_000 + "1 }}",
    "{{ " + "-" * 20_000 + "1 }}",
    "{{ x" + ".a" * 20_000 + " }}",
    "{{ x" + "|upper" * 20_000 + " }}",
    "{{ 'a'" + "~'b'" * 20_000 + " }}",
    "{{ 9" + "**9" * 30 + " }}",
    "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}x"
    + "{% endfor %}" * 3,
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ 'x' * 5000000000 }}",
    "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '{:999999999}'.format(1) }}",
    "{% set ns = namespace(a=[]) %}" + "{% set ns.a = [ns.a, ns.a] %}" * 60 + "{{ ns.a }}",
    "{{ messages | tojson(indent=999999) }}",
    "{{ " * 1000,
    "{% for m in messages %}",
    "{% include '/etc/passwd' %}",
    "{% extends 'x' %}",
    "{# " * 50_000,
    "{{ raise_exception('no') }}",
    "{{ range(10**9) | list }}",
    "{{ strftime_now('%' * 100000) }}",
    "{% set " + ",".join(f"a{n}" for n in range(5000)) + " = messages %}",
    "{{ {" + ",".join(f"{n}:{n}" for n in range(20_000)) + "} }}",
    "{% raw %}" + "x" * 200_000 + "{% endraw %}",
    "{{ messages[0].content.format(messages[0]) }}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{{ '\\ud800' }}",
    "\0",
    "",
)


def bomb(gguf: Gguf, draw: Random) -> str:
    """A template that is too much for a parser, or never comes to an end."""
    number = draw.randrange(len(BOMBS))
    gguf.keys[_TEMPLATE] = Key(STR, BOMBS[number])
    return f"template {number}"


def large(gguf: Gguf, draw: Random) -> str:
    """As much of something as a template may be long."""
    unit = draw.choice(("{% if a %}", "{{ a }}", "(", "{{ ", "{% for a in b %}x{% endfor %}", "x",
                        "{% set a = b %}", "{%- macro a() -%}", "'", "{#", "{{ a|b }}",
                        "{{ a if b else c }}"))  # fmt: skip
    size = draw.choice((2**10, 2**14, 2**18))
    gguf.keys[_TEMPLATE] = Key(STR, (unit * (size // len(unit)))[:size])
    return f"{size} characters of {unit!r}"


def edited(gguf: Gguf, draw: Random) -> str:
    """The file's own template with some characters missing, doubled or replaced."""
    key = gguf.keys.get(_TEMPLATE)
    source = key.value if isinstance(key, Key) and isinstance(key.value, str) else "{{ messages }}"
    text = list(source)
    for _ in range(draw.choice((1, 3, 20))):
        place = draw.randrange(len(text) + 1)
        piece = draw.choice(("", "{%", "%}", "{{", "}}", "'", "(", ")", "|", "-", "not ", "\\"))
        text[place : place + draw.choice((0, 1, 5))] = list(piece)
    gguf.keys[_TEMPLATE] = Key(STR, "".join(text))
    return "template edited"


def named(gguf: Gguf, draw: Random) -> str:
    """A template of another name."""
    name = draw.choice(("tool_use", "rag", "", "x" * 300, "Ä", "a.b"))
    gguf.keys[f"{_TEMPLATE}.{name}"] = Key(STR, draw.choice(BOMBS))
    return f"template named {name[:10]!r}"


TEMPLATES: dict[str, Structure] = {
    "bomb": bomb, "large-template": large, "template": edited, "named-template": named,
}  # fmt: skip
