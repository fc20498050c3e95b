"""Jinja for templates that nobody has checked: they cannot reach Python, and time and memory are
limited."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import BuiltinMethodType, FrameType, MethodType
from typing import Any, cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, sync_do_slice
from jinja2.runtime import Context, Macro
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)
from jinja2.utils import generate_lorem_ipsum, pass_context
from markupsafe import Markup

from worker.chat.jinja import growth
from worker.limits import MADE, RANGE, TEMPLATE

MAX_SECONDS = TEMPLATE.most / 1000
_SECONDS_A_MESSAGE, _MOST_SECONDS = 0.005, 6.0
_MAX_BITS = 4096  # of a product
_MAX_PRECISION = 400  # digits; a float has no more

# Its regular expressions take the square of a text, and no prompt has links in HTML.
_LEFT_OUT = frozenset({"urlize"})
# `encode` gives bytes, whose methods nobody counts.
_TEXT_METHODS = frozenset(name for name in dir(str) if not name.startswith("_")) - {"encode"}
_TEMPLATE_FILE = "<template>"
_STEPS = 64  # lines and calls of a template between two looks at the clock


# They make no text and look into no element, the first ones at the list alone: a template that asks
# in each turn how many there are would take the square of a long conversation.
_CONSTANT = frozenset({"length", "count", "first", "last", "default", "d"})
_SHALLOW = frozenset("list reverse items select reject selectattr rejectattr".split())


class SandboxCode(CodeGenerator):
    """Writes code in which the sandbox joins the texts of `~` and counts what a literal holds.

    A filter or test that nobody knows fails where it is reached: templates name some in branches
    for other programs.
    """

    _growing: nodes.Node | None = None  # what is being assigned to its own first part

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802  (Jinja's names)
        super().visit_Filter(node, frame.soft())

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        super().visit_Test(node, frame.soft())

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:  # noqa: N802
        if _grows(node):
            self._growing = node.node
        super().visit_Assign(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write(f"environment.{'grow' if node is self._growing else 'concat'}((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.count(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.count(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.count(")
        super().visit_Tuple(node, frame)
        self.write(")")


def _grows(node: nodes.Assign) -> bool:
    """Whether it is `ns.text = ns.text ~ ...`."""
    if not isinstance(node.target, nodes.NSRef) or not isinstance(node.node, nodes.Concat):
        return False
    first = node.node.nodes[0]
    return (
        isinstance(first, nodes.Getattr)
        and isinstance(first.node, nodes.Name)
        and (first.node.name, first.attr) == (node.target.name, node.target.attr)
    )


class GivenLists:
    """The lists that one rendering was given: a template may append to those that it made."""

    def __init__(self, given: object) -> None:
        self._given = given
        self._ids: frozenset[int] | None = None  # found at the first append

    def check_append(self, target: list[Any], values: Sequence[Any]) -> None:
        """No list comes to hold itself: what looks into lists would never end.

        Raises SecurityError.
        """
        if self._ids is None:
            self._ids = frozenset(map(id, _lists(self._given)))
        if id(target) in self._ids:
            raise SecurityError("a template cannot change what it was given")
        if any(each is target for each in _lists(values)):
            raise SecurityError("a list cannot hold itself")


def _lists(value: Any) -> Iterator[list[Any]]:
    """The lists in the value, itself among them."""
    rest = [value]
    while rest:
        found = rest.pop()
        if isinstance(found, dict):
            rest += cast("dict[Any, Any]", found).values()
        elif isinstance(found, list | tuple):
            rest += cast("list[Any]", found)
            if isinstance(found, list):
                yield cast("list[Any]", found)


class BudgetError(BaseException):
    """A template ran for too long or made too much.

    It is a BaseException, so that no `except Exception` inside of Jinja catches it.
    """


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's own sandbox, which keeps a template away from Python, with limits on what it makes.

    Results that can be longer than their inputs are counted, most of them before they are made:
    sums, joins, replacements, lists and their texts. The time is checked at every line. A sandbox
    renders one template at a time.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = SandboxCode

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self._show, optimized=False, **options)
        self._left, self._end, self._seconds = MADE.most, 0.0, MAX_SECONDS
        self._given = GivenLists(None)
        self._lock = threading.Lock()
        self.filters = {
            name: self._count_inputs(name, made)
            for name, made in FILTERS.items()
            if name not in _LEFT_OUT
        }
        self.filters |= {
            "format": self._format,
            "join": self._join,
            "replace": self._replace,
            "round": self._round,
            "slice": self._slice,
            "sum": self._sum,
            "tojson": self._json,
        }
        functions: dict[str, Any] = {
            "dict": dict,
            "lipsum": self._count_inputs("lipsum", generate_lorem_ipsum),
            "range": _range,
        }
        self.globals.update(functions)
        self.concat: Any = self._concat

    @contextmanager
    def budget(self, given: Mapping[str, Any]) -> Generator[None]:
        """Limit a rendering of `given` inside the block to `TEMPLATE.most` and `MADE.most`.

        Where there are many messages, and where they are long, more is allowed. Raises BudgetError.
        """
        with self._lock:
            self._left = MADE.most + 64 * growth.size(given, MADE.most)
            count = len(given.get("messages", ()))
            self._seconds = min(_MOST_SECONDS, MAX_SECONDS + _SECONDS_A_MESSAGE * count)
            self._end = time.thread_time() + self._seconds
            self._given = GivenLists(given)
            before = sys.gettrace()
            sys.settrace(self._watch())
            try:
                yield
            finally:
                sys.settrace(before)
                self._given = GivenLists(None)

    def _watch(self) -> Callable[[FrameType, str, object], Any]:
        """What Python calls at each line of the template, and where something is called. It takes
        most of a rendering's time, so the clock is read at some of them only."""
        steps = 0

        def step(_frame: FrameType, _event: str, _argument: object) -> Any:
            nonlocal steps
            steps += 1
            if not steps % _STEPS:
                self._check_time()
            return step

        def enter(frame: FrameType, event: str, argument: object) -> Any:
            step(frame, event, argument)
            return step if frame.f_code.co_filename == _TEMPLATE_FILE else None

        return enter

    def _check_time(self) -> None:
        if time.thread_time() > self._end:
            raise BudgetError(f"it takes longer than {self._seconds:g} s")

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise BudgetError("it makes too much text")

    def count(self, value: Any) -> Any:
        """Count what the value holds, then return the value."""
        self._spend(growth.size(value, self._left))
        return value

    @pass_context  # so that Jinja shows nothing at compile time, where nothing is counted
    def _show(self, _context: Context, value: Any) -> Any:
        return self.count(value)

    def _concat(self, parts: Iterable[Any]) -> str:
        return "".join([str(self.count(part)) for part in parts])

    def grow(self, parts: tuple[Any, ...]) -> str:
        """The joined parts, which take the place of the first one: where nobody else holds that, it
        is gone, and only what was added counts."""
        is_gone = isinstance(parts[0], str) and _num_references(parts) <= _ALONE
        text = self._concat(parts)
        self._left += len(parts[0]) if is_gone else 0
        return text

    def _join(self, values: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            values = [self._field(value, attribute) for value in values]
        texts = [str(self.count(value)) for value in values]
        self._spend(len(str(d)) * len(texts))
        return str(d).join(texts)

    def _field(self, value: Any, attribute: str | int) -> Any:
        """An attribute as filters name it: `function.name`, or a place."""
        for name in attribute.split(".") if isinstance(attribute, str) else (attribute,):
            value = self.getitem(value, int(name) if str(name).isdigit() else name)
        return value

    def _replace(self, text: Any, old: str, new: str, count: int | None = None) -> str:
        text = str(self.count(text))
        self._spend(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise TypeError("format takes values in their order or by name, not both")
        return self._percent(str(value), kwargs or args)

    def _round(self, value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > _MAX_PRECISION:
            raise SecurityError(f"a number is rounded to {_MAX_PRECISION} digits at most")
        return cast("Any", FILTERS["round"])(value, precision, method)

    def _slice(self, value: Iterable[Any], slices: int, fill_with: Any = None) -> Iterator[Any]:
        self._spend(growth.ELEMENT * slices)
        return sync_do_slice(self.count(value), slices, fill_with)

    def _sum(self, iterable: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        if isinstance(start, str):
            raise TypeError("texts are joined, not summed")
        for value in iterable:
            start = self._plus(start, value if attribute is None else self._field(value, attribute))
        return start

    def _json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """The filter `tojson` as in `transformers`: it does not escape for HTML."""
        if isinstance(value, Iterator):  # what `map` and `select` give
            value = list(cast("Iterator[Any]", value))
        elements = growth.size(self.count(value), self._left)
        if indent is not None:
            width = len(indent) if isinstance(indent, str) else max(0, indent)
            self._spend(elements * growth.depth(value) * width // growth.ELEMENT)
        if separators is not None:
            self._spend(elements * growth.size(separators))
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def _count_inputs(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """One of Jinja's functions, with its inputs and what its arguments add counted first."""
        grows = growth.FILTERS.get(name)
        bind = inspect.signature(made).bind

        @functools.wraps(made)
        def check(*arguments: Any, **options: Any) -> Any:
            for value in (*arguments, *options.values()):
                if name in _CONSTANT:
                    self._spend(growth.ELEMENT)
                elif name in _SHALLOW:
                    self._spend(growth.ELEMENT * growth.length(value))
                else:
                    self.count(value)
            if grows is not None:
                bound = bind(*arguments, **options)
                bound.apply_defaults()
                self._spend(max(0, int(grows(bound.arguments))))
            return made(*arguments, **options)

        return check

    def _plus(self, left: Any, right: Any) -> Any:
        if not isinstance(left, int | float):
            self._spend(growth.size(left, self._left) + growth.size(right, self._left))
        return left + right

    def _percent(self, text: str, values: Any) -> str:
        self._spend(len(text) + growth.of_percent(text, values))
        return text % values

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What makes or repeats a text or list is counted; powers and products are bounded. Raises
        SecurityError."""
        if operator == "+":
            return self._plus(left, right)
        if operator == "%" and isinstance(left, str):
            return self._percent(left, right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "**" and not (abs(left) < 2**16 and abs(right) < 16):
                raise SecurityError("the power is too large")
            if operator == "*" and growth.bits(left) + growth.bits(right) > _MAX_BITS:
                raise SecurityError("the product is too large")
        elif operator == "*":
            self._spend(growth.of_product(left, right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of a text only those methods that `call` counts; a template may append to its lists."""
        if isinstance(obj, str) and attr not in _TEXT_METHODS:
            return False
        if isinstance(obj, list) and attr == "append":
            return True
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Jinja's own, with each field counted before it is made."""
        if not isinstance(value, MethodType | BuiltinMethodType):
            return None
        text, name = value.__self__, value.__name__
        if name not in ("format", "format_map") or not isinstance(text, str):
            return None
        made: SandboxedFormatter = (
            _EscapingFields(self, escape=text.escape) if isinstance(text, Markup) else _Fields(self)
        )

        def check(*args: Any, **kwargs: Any) -> str:
            self._spend(len(text))
            if name == "format_map":
                (given,) = args
                return type(text)(made.vformat(text, (), given))
            return type(text)(made.vformat(text, args, kwargs))

        return check

    def spend_field(self, value: Any, spec: str) -> None:
        self._spend(growth.size(value, self._left) + growth.of_field(spec))

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Methods of a text that can make more than there was are counted, or ours."""
        if _makes_nothing(__obj):
            self._spend(growth.ELEMENT * (len(args) + len(kwargs)))
        else:
            self.count((args, kwargs))  # a macro can get them as one list and one dictionary
        text = getattr(__obj, "__self__", None)
        if isinstance(text, list) and __obj.__name__ == "append":
            self._given.check_append(cast("list[Any]", text), args)
        if isinstance(text, str) and __obj.__name__ == "join":
            return self._join(*args, d=text)
        if isinstance(text, str) and __obj.__name__ == "replace":
            return self._replace(text, *args)
        if isinstance(text, str):
            given = (*args, *kwargs.values())
            self._spend(max(0, growth.of_method(__obj.__name__, text, given)))
        return super().call(__context, __obj, *args, **kwargs)


def _num_references(parts: tuple[Any, ...]) -> int:
    first = parts[0]
    return sys.getrefcount(first)


_HOLDER = [str(object())]
_ALONE = _num_references((_HOLDER[0],))  # of a text that one thing holds


def _makes_nothing(called: object) -> bool:
    """Whether it is a macro that makes no list of what it is given."""
    return isinstance(called, Macro) and not (called.catch_varargs or called.catch_kwargs)


class _Fields(SandboxedFormatter):
    """Jinja's `str.format`, which tells the sandbox of each field, its format resolved."""

    _env: Sandbox

    def format_field(self, value: Any, format_spec: str) -> str:
        self._env.spend_field(value, format_spec)
        return super().format_field(value, format_spec)


class _EscapingFields(_Fields, SandboxedEscapeFormatter):
    """The same for texts in which values are escaped."""


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > RANGE.most:
        raise SecurityError(f"a range has at most {RANGE.most:,} elements")
    return found
