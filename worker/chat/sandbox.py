"""Jinja for templates that nobody has checked: they cannot reach Python, and time and memory are
limited."""

from __future__ import annotations

import functools
import json
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from string import Formatter
from types import FrameType
from typing import Any, cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from worker.limits import MADE, RANGE, TEMPLATE

MAX_SECONDS = TEMPLATE.most / 1000
_ELEMENT = 8  # bytes of a reference; to look at 2**24 elements would also take 2 s
_MAX_BITS = 4096  # of a product

# Filters that chat templates use. Filters whose result can be far larger than their input are left
# out.
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float",
    "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "title",
    "trim", "unique", "upper",
)  # fmt: skip
_TEXT_METHODS = frozenset((
    "capitalize", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit",
    "isspace", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix",
    "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip", "title", "upper",
))  # fmt: skip
_TEMPLATE_FILE = "<template>"


class BudgetError(BaseException):
    """A template ran for too long or made too much.

    It is a BaseException, so that no `except Exception` inside of Jinja catches it.
    """


class _Generator(CodeGenerator):
    """Writes code in which the sandbox joins the texts of `~` and counts what a literal holds."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  (Jinja's names)
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.counted(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.counted(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.counted(")
        super().visit_Tuple(node, frame)
        self.write(")")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's own sandbox, which keeps a template away from Python, with limits on what it makes.

    Results that can be longer than their inputs are counted, most of them before they are made:
    sums, joins, replacements, lists and their texts. The time is checked at every line. A sandbox
    renders one template at a time.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Generator

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self.counted, optimized=False, **options)
        self._left, self._end = MADE.most, 0.0
        self._lock = threading.Lock()
        self.filters = {name: self._filter(FILTERS[name]) for name in _FILTERS}
        self.filters |= {"join": self._join, "replace": self._replace, "tojson": self._json}
        self.globals = {"namespace": self.globals["namespace"], "range": _range, "dict": dict}
        self.concat: Any = self._concat

    @contextmanager
    def budget(self, given: object) -> Generator[None]:
        """Limit a rendering of `given` inside the block to `MAX_SECONDS` and `MADE.most`.

        Where `given` is large, more characters are allowed. Raises BudgetError.
        """
        with self._lock:
            self._left = MADE.most + 64 * _size(given, MADE.most)
            self._end = time.thread_time() + MAX_SECONDS
            before = sys.gettrace()
            sys.settrace(self._watch)
            try:
                yield
            finally:
                sys.settrace(before)

    def _watch(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if time.thread_time() > self._end:
            raise BudgetError(f"it takes longer than {MAX_SECONDS:g} s")
        return self._watch if frame.f_code.co_filename == _TEMPLATE_FILE else None

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise BudgetError("it makes too much text")

    def counted(self, value: Any) -> Any:
        """Count what the value holds, then return the value."""
        self._spend(_size(value, self._left))
        return value

    def _concat(self, parts: Iterable[Any]) -> str:
        return "".join([str(self.counted(part)) for part in parts])

    def _join(self, values: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            values = [self.getitem(value, attribute) for value in values]
        texts = [str(self.counted(value)) for value in values]
        self._spend(len(str(d)) * len(texts))
        return str(d).join(texts)

    def _replace(self, text: Any, old: str, new: str, count: int | None = None) -> str:
        text = str(self.counted(text))
        self._spend(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def _json(
        self, value: Any, indent: int | None = None, *, sort_keys: bool = False, **_: Any
    ) -> str:
        """The filter `tojson` as in `transformers`: it does not escape for HTML."""
        indent = None if indent is None else max(0, min(int(indent), 8))
        if isinstance(value, Iterator):  # what `map` and `select` give
            value = list(cast("Iterator[Any]", value))
        return json.dumps(
            self.counted(value), ensure_ascii=False, indent=indent, sort_keys=sort_keys
        )

    def _filter(self, made: Callable[..., Any]) -> Callable[..., Any]:
        """One of Jinja's filters, with its inputs counted first."""

        @functools.wraps(made)
        def checked(*arguments: Any, **options: Any) -> Any:
            for value in arguments:
                self.counted(value)
            return made(*arguments, **options)

        return checked

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`+` of texts and lists is counted. Operators that repeat or pad a text are refused."""
        if operator == "+":
            if not isinstance(left, int | float):
                self._spend(_size(left, self._left) + _size(right, self._left))
        elif not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"{operator} is for numbers only")
        elif operator == "**" and not (abs(left) < 2**16 and abs(right) < 16):
            raise SecurityError("the power is too large")
        elif operator == "*" and _bits(left) + _bits(right) > _MAX_BITS:
            raise SecurityError("the product is too large")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of a text only those methods whose result is no longer than it, and those of `call`."""
        if isinstance(obj, str) and attr not in _TEXT_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Jinja's own, but a width is refused: `"{:999999999}".format(1)` would make a gigabyte."""
        made = super().wrap_str_format(value)
        if made is None:
            return None
        fields = list(Formatter().parse(value.__self__))

        def checked(*args: Any, **kwargs: Any) -> str:
            if any(spec for _, _, spec, _ in fields):
                raise SecurityError("a format has no width or precision here")
            self._spend(len(value.__self__) + len(fields) * _size((args, kwargs), self._left))
            return made(*args, **kwargs)

        return checked

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """`join` and `replace` of a text are ours, because they can make more than there was."""
        self.counted((args, kwargs))  # a macro can get them as one list and one dictionary
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str) and __obj.__name__ == "join":
            return self._join(*args, d=text)
        if isinstance(text, str) and __obj.__name__ == "replace":
            return self._replace(text, *args)
        return super().call(__context, __obj, *args, **kwargs)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > RANGE.most:
        raise SecurityError(f"a range has at most {RANGE.most:,} elements")
    return found


def _bits(value: float) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _size(value: Any, limit: int) -> int:
    """At least the characters of the value's text and the elements that it holds; the count stops
    at `limit`."""
    total, rest = 0, [value]
    while rest and total <= limit:
        found = rest.pop()
        if isinstance(found, str):
            total += len(found)
        elif isinstance(found, dict):
            total += _ELEMENT * len(found)  # pyright: ignore[reportUnknownArgumentType]
            rest += [*found.keys(), *found.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(found, list | tuple):
            total += _ELEMENT * len(found)  # pyright: ignore[reportUnknownArgumentType]
            rest += found
        elif isinstance(found, int) and not isinstance(found, bool):
            total += found.bit_length() // 3 + 1
    return total
