"""A chat template as Jinja compiled it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from worker.chat.jinja.sandbox import BudgetError, Sandbox
from worker.errors import RequestError

_OF_JINJA = ("caller", "loop", "super")  # functions that are defined in their places


def unknown_names(environment: Environment, source: str) -> tuple[str, ...]:
    """Filters, tests and functions that the template names and that are not here; it fails where
    it reaches one. Raises TemplateSyntaxError."""
    tree = environment.parse(source)
    found = [
        f"filter {node.name}"
        for node in tree.find_all(nodes.Filter)
        if node.name not in environment.filters
    ]
    found += [
        f"test {node.name}"
        for node in tree.find_all(nodes.Test)
        if node.name not in environment.tests
    ]
    known = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    known |= {node.name for node in tree.find_all(nodes.Macro)}
    known |= {*environment.globals, *_OF_JINJA}
    found += [
        f"function {node.node.name}"
        for node in tree.find_all(nodes.Call)
        if isinstance(node.node, nodes.Name) and node.node.name not in known
    ]
    return tuple(dict.fromkeys(found))


def read(environment: Environment, source: str) -> frozenset[str]:
    """All names that the template reads. Raises TemplateSyntaxError."""
    found = environment.parse(source).find_all(nodes.Name)
    return frozenset(node.name for node in found if node.ctx == "load")


# Characters of a template's error message that are shown.
_MAX_REASON = 300


class CompiledTemplate:
    """The Jinja template of a model file, with the functions that such templates call.

    unknown  what it uses and nobody knows, such as `filter nosuch`
    """

    def __init__(self, source: str, *, bos: str, eos: str, name: str) -> None:
        """Compile it. `bos` and `eos` are the texts of these tokens; name: for errors.

        Raises RequestError where `source` is no template.
        """
        self._called = f"The model's {name} template"
        self._sandbox = Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Marked]
        )
        functions: dict[str, Any] = {
            "raise_exception": _raise,
            "strftime_now": _now,
            "bos_token": bos,
            "eos_token": eos,
        }
        self._sandbox.globals.update(functions)
        try:
            self.unknown = unknown_names(self._sandbox, source)
            self._free = read(self._sandbox, source)
            self._template = self._sandbox.from_string(source)
        except Exception as error:  # noqa: BLE001  (also what Python's compiler raises)
            raise RequestError(
                f"{self._called} cannot be read: {_reason(error)}.", param="messages"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt. Raises RequestError with the template's reason."""
        given = {"documents": None, **self._for_foreign(variables), **variables}
        given["messages"] = messages
        try:
            with self._sandbox.budget(given):
                return self._template.render(given, add_generation_prompt=add_generation_prompt)
        except BudgetError as error:
            reason = f"{self._called} does not come to an end: {error}."
        except (_RefusedError, TemplateError) as error:
            reason = f"{self._called} refuses these messages: {_reason(error)}."
        except Exception as error:  # noqa: BLE001  (a template can raise whatever Python can)
            reason = f"{self._called} fails on these messages: {_reason(error)}."
        raise RequestError(reason, param="messages")

    def _for_foreign(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """What llama-server gives templates that name it: some do without nothing else, Llama 3.1
        takes a day of 2024 for today."""
        found: dict[str, Any] = {}
        if "functions" in self._free:
            tools = variables.get("tools")
            found["functions"] = json.dumps(tools, ensure_ascii=False, indent=2) if tools else ""
        if "datetime" in self._free:
            now = datetime.datetime.now(datetime.UTC)
            found["datetime"] = now.strftime("%b %d %Y %H:%M:%S GMT")
        if "date_string" in self._free:
            found["date_string"] = _now("%d %b %Y")
        return found


class _RefusedError(Exception):
    """The template itself refuses the messages, with `raise_exception`."""


class _Marked(Extension):
    """The tag `{% generation %}`, which marks text for training. Here the text is just shown."""

    tags = {"generation"}  # noqa: RUF012  (Jinja reads it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The tag's body, without the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: object) -> None:
    raise _RefusedError(message)


def _now(format: str) -> str:  # noqa: A002  (the name that templates use)
    return datetime.datetime.now().astimezone().strftime(str(format)[:100])


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
    return text.rstrip(".")
