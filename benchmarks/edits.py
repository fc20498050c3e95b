"""What is asked where text comes again: edits of code, calls of tools, and prose beside them.

Each is a raw prompt in ChatML whose answer is begun, because small models begin another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

_FENCE = "```python\n"
_CODES = (
    '''\
class RingBuffer:
    """Keeps the newest values, at most `capacity` of them."""

    def __init__(self, capacity):
        if capacity < 1:
            raise ValueError("capacity must be positive")
        self.values = [None] * capacity
        self.capacity = capacity
        self.start = 0
        self.count = 0

    def push(self, value):
        end = (self.start + self.count) % self.capacity
        self.values[end] = value
        if self.count < self.capacity:
            self.count += 1
        else:
            self.start = (self.start + 1) % self.capacity

    def pop(self):
        if not self.count:
            raise IndexError("the buffer is empty")
        value = self.values[self.start]
        self.start = (self.start + 1) % self.capacity
        self.count -= 1
        return value
''',
    '''\
import csv
from collections import defaultdict


def read_orders(path):
    """Total amount and number of orders of each customer in a CSV file."""
    totals = defaultdict(float)
    counts = defaultdict(int)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            customer = row["customer"].strip().lower()
            amount = float(row["amount"])
            if amount <= 0:
                continue
            totals[customer] += amount
            counts[customer] += 1
    return totals, counts


def best_customers(path, limit=10):
    totals, counts = read_orders(path)
    ranked = sorted(totals, key=lambda name: totals[name], reverse=True)
    for name in ranked[:limit]:
        mean = totals[name] / counts[name]
        print(f"{name:20} {totals[name]:10.2f} {counts[name]:5} {mean:8.2f}")
''',
    '''\
import time
import urllib.request
from urllib.error import HTTPError, URLError


def fetch(url, attempts=3, timeout=10.0):
    """The body of a page; tries again where the server is busy."""
    delay = 0.5
    for attempt in range(1, attempts + 1):
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                body = response.read()
                encoding = response.headers.get_content_charset() or "utf-8"
                return body.decode(encoding)
        except HTTPError as error:
            if error.code not in (429, 502, 503, 504):
                raise
            print(f"attempt {attempt}: status {error.code}")
        except URLError as error:
            print(f"attempt {attempt}: {error.reason}")
        if attempt < attempts:
            time.sleep(delay)
            delay = min(delay * 2, 8.0)
    raise RuntimeError(f"no answer from {url} after {attempts} attempts")
''',
    '''\
def shortest_path(graph, source, target):
    """Nodes from source to target with the least sum of weights, or None."""
    distances = {source: 0}
    previous = {}
    visited = set()
    while True:
        candidates = [node for node in distances if node not in visited]
        if not candidates:
            return None
        current = min(candidates, key=distances.get)
        if current == target:
            break
        visited.add(current)
        for neighbor, weight in graph[current].items():
            if neighbor in visited:
                continue
            distance = distances[current] + weight
            if distance < distances.get(neighbor, float("inf")):
                distances[neighbor] = distance
                previous[neighbor] = current
    path = [target]
    while path[-1] != source:
        path.append(previous[path[-1]])
    path.reverse()
    return path
''',
)
_WISHES = (
    ("Rename the attribute `count` to `length`.", "Rename the method `push` to `append`."),
    ("Rename the variable `totals` to `sums`.", 'Read the column "name", not "customer".'),
    ("Rename the parameter `attempts` to `tries`.", "Print nothing between the attempts."),
    ("Rename the variable `visited` to `done`.", "Rename `neighbor` to `other`."),
)
_STORIES = (
    "Tell a story of a lighthouse keeper who finds a letter in a bottle.",
    "Explain to a child why the sea is salty.",
    "Write a letter to a friend about a long train journey.",
    "What should I think of when I buy an old house?",
    "Describe a market in a small town early in the morning.",
    "Why did the Roman empire fall?",
    "Tell me of a day in the life of a street musician.",
    "How do bees find their way home?",
)
_TOOLS = (
    {"name": "read_file", "parameters": {"path": "string"}},
    {"name": "search_text", "parameters": {"pattern": "string", "folder": "string"}},
    {"name": "write_file", "parameters": {"path": "string", "content": "string"}},
    {"name": "run_tests", "parameters": {"folder": "string", "verbose": "boolean"}},
)
_CALLING = "Call a tool with <tool_call>{JSON}</tool_call>. The tools:\n"
DRAWN = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "ignore_eos": True}


class CopyAsk(NamedTuple):
    """One request to /completion; `kind` is what its row of the table is called."""

    kind: str
    prompt: str
    most: int
    fields: Mapping[str, object]


def edits() -> list[CopyAsk]:
    """Twelve: one edit of each of four files of 25 lines; another one of each; the first again."""
    rounds = (("edit", 0), ("another", 1), ("again", 0))
    return [_edit(kind, number, wish) for kind, wish in rounds for number in range(len(_CODES))]


def _edit(kind: str, number: int, wish: int) -> CopyAsk:
    code = _CODES[number]
    asked = f"Repeat this code with one change. {_WISHES[number][wish]}\n\n{_FENCE}{code}```"
    begun = _FENCE + "\n".join(code.splitlines()[:3])  # an indent is one token with its newline
    return CopyAsk(kind, _chat(asked) + begun, 320, {"temperature": 0, "stop": ["```"]})


def calls() -> list[CopyAsk]:
    """Of two agents: each reads a file, writes it with a change, and tests it."""
    system = _CALLING + "\n".join(map(json.dumps, _TOOLS))
    asked: list[CopyAsk] = []
    for number, code in enumerate(_CODES[:2]):
        said = f"<|im_start|>system\n{system}<|im_end|>\n"
        path = f"src/part_{number}.py"
        written = code.replace("return", "return  # checked:", 1)
        for wish, call in (
            (f"Read {path}.", {"name": "read_file", "arguments": {"path": path}}),
            (f"It holds:\n{code}\nWrite it with this change: {_WISHES[number][0]}",
             {"name": "write_file", "arguments": {"path": path, "content": written}}),
            ("Run the tests.", {"name": "run_tests", "arguments": {"folder": "tests"}}),
        ):  # fmt: skip
            said += f"<|im_start|>user\n{wish}<|im_end|>\n<|im_start|>assistant\n"
            text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
            begun = text[: text.index("arguments") + len('arguments": {"')]
            fields = {"temperature": 0, "stop": ["</tool_call>"]}
            asked.append(CopyAsk("call", said + begun, 320, fields))
            said += f"{text}<|im_end|>\n"
    return asked


def prose() -> list[CopyAsk]:
    """Eight texts of 64 tokens, drawn."""
    return [CopyAsk("prose", _chat(text), 64, DRAWN) for text in _STORIES]


def _chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
