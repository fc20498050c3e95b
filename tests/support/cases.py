"""Many small cases of one rule in one test: pytest spends more on a test than they take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_PARAM = type(pytest.param())


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but one test, that ends with the first case that fails and
    names it. The cases share the test's fixtures."""
    wanted = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    rows = [
        case.values if isinstance(case, _PARAM) else (case,) if len(wanted) == 1 else tuple(case)
        for case in cases
    ]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        rest = [part for name, part in signature.parameters.items() if name not in wanted]

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            assert rows
            for row in rows:
                case = dict(zip(wanted, row, strict=True))
                try:
                    test(**fixtures, **case)
                except BaseException as error:
                    error.add_note(f"in the case {case!r:.500}")
                    raise

        vars(run)["__signature__"] = signature.replace(parameters=rest)
        return run

    return decorate
