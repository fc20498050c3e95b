"""What the model says to the clients, and what they tell of it: {name of a check: result}."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

HELLO = "Say hello!"
GREETING = "Hello there, how are you today?"
PET = "Name a pet!"
ANIMAL: dict[str, Any] = {"animal": "old cat", "legs": 4}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"animal": {"type": "string"}, "legs": {"type": "integer"}},
    "required": ["animal", "legs"],
    "additionalProperties": False,
}
# A loop of three steps: a question, calls and results, the answer.
TOUR = "How is it everywhere?"
STEPS: list[tuple[str, dict[str, str], str]] = [
    ("look_up", {"place": "Rome"}, "It is sunny there."),
    ("look_up", {"place": "Malmö"}, "It snows there."),
    ("rest", {}, "Now it is calm."),
]
END = "Sun, snow, and calm."
PLACES = {arguments["place"]: result for name, arguments, result in STEPS if name == "look_up"}
LOOK_UP: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "string"}},
    "required": ["place"],
    "additionalProperties": False,
}
REST: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "description": f"To {name}.", "parameters": schema},
    }
    for name, schema in (("look_up", LOOK_UP), ("rest", REST))
]


def do(name: str, arguments: str | dict[str, Any]) -> str:
    """A tool's result."""
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return PLACES[arguments["place"]] if name == "look_up" else STEPS[-1][2]


def tell(**checks: Callable[[str], Any]) -> None:
    """Run each check with the worker's address, and print what all of them found as JSON."""
    url = sys.argv[1]
    found: dict[str, Any] = {}
    for name, check in checks.items():
        try:
            found[name] = check(url)
        except Exception as error:  # noqa: BLE001  (whatever the client makes of our answer)
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))
