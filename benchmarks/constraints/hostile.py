"""What constraints cost that are made to cost much: compiling them, and then each token.

    python -m benchmarks.constraints.hostile VOCABULARY [--cases 300] [--seed 0]

Named ones that once took minutes or that reach the limits, then seeded random regular expressions,
schemas, lists of choices and GBNF. Each that is taken writes four texts of 40 tokens: random ones,
long ones, one token again and again, and tokens that are tried one by one. CPU time of one thread;
the worst of each kind of call.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

from worker.errors import RequestError
from worker.grammar.constraint import Constraint, choice_constraint, schema_constraint
from worker.llama.guides.guides import Guides
from worker.llama.guides.matcher import Matcher, MatcherError, TokenMask
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

TOKENS = 40
INTEGER = {"type": "integer"}
REGEXES = {
    "counting": r"\w{1,65535}",
    "nested counting": "((a{1,100}){1,100}){1,100}",
    "words": "|".join(f"{number * 7919 % 1_000_003:x}" for number in range(50_000)),
    "options": "".join(f"(x{number}|y)?" for number in range(5000)),
    "remainders": "|".join(rf"(\w{{{n}}})*c{n}" for n in (97, 101, 103, 107, 109, 113, 127, 131)),
    "lookback": "(.*a.{30}|.*b.{31}|.*c.{32}|.*d.{33}){2}",
    "half a megabyte": "." * 500_000,
    "empty": "(|a|b)" * 5000 + "{3}",
}
SCHEMAS: dict[str, Any] = {
    "patterns at once": {
        "type": "string",
        "allOf": [{"pattern": f".*{c}.{{{i}}}"} for i, c in enumerate(ascii_lowercase)],
    },
    "names by patterns": {
        "patternProperties": {f"^w{i}_[a-z]{{1,{i}}}$": INTEGER for i in range(1, 1500)}
    },
    "multiples": {"properties": {f"p{i}": {"multipleOf": 9000 + i} for i in range(100)}},
    "objects to choose": {"enum": [{"a": i, "b": [i, i]} for i in range(10_000)]},
    "properties": {
        "properties": {f"p{i}": INTEGER for i in range(15_000)},
        "required": [f"p{i}" for i in range(15_000)],
    },
    "optional properties": {"properties": {f"p{i}": INTEGER for i in range(900)}},
    "lengths": {"properties": {f"p{i}": {"type": "string", "maxLength": 1000 + i * 100}
                               for i in range(900)}},
    "numbers": {"anyOf": [{"type": "integer", "minimum": i * 1_000_003, "maximum": i * 1_000_777}
                          for i in range(5000)]},
    "arrays of arrays": {"anyOf": [{"type": "array", "maxItems": i, "items": {
        "anyOf": [{"type": "array", "maxItems": j} for j in range(1, 100)]}}
        for i in range(1, 100)]},
}  # fmt: skip


def word(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(ascii_lowercase, k=length))


def regex(rng: random.Random, depth: int) -> str:
    """A random one in Rust's syntax."""
    kind = rng.random()
    if depth <= 0 or kind < 0.15:
        return rng.choice(["a", "b", "[a-z]", "[^x]", ".", r"\w", r"\p{L}", r"\s", "(?s:.)", "é"])
    if kind < 0.45:
        return "".join(regex(rng, depth - 1) for _ in range(rng.randint(2, 4)))
    if kind < 0.65:
        return f"({'|'.join(regex(rng, depth - 1) for _ in range(rng.randint(2, 6)))})"
    least = rng.choice([0, 1, 2, 10, 100, 1000, 20_000, 65_535])
    most = least + rng.choice([0, 1, 100, 65_535])
    counts = ("*", "+", "?", f"{{{least}}}", f"{{{least},{most}}}", f"{{{least},}}")
    return f"({regex(rng, depth - 1)}){rng.choice(counts)}"


def schema(rng: random.Random, depth: int) -> dict[str, Any]:
    """A random one, over definitions named A to C."""
    kinds = ["object", "array", "anyOf", "allOf", "$ref", "patterns", "wide"] if depth > 0 else []
    match rng.choice(["leaf", *kinds]):
        case "object":
            return {
                "properties": {word(rng, 6): schema(rng, depth - 1) for _ in range(3)},
                "additionalProperties": schema(rng, depth - 1),
            }
        case "array":
            least = rng.choice([0, 10, 20_000])
            return {"items": schema(rng, depth - 1), "minItems": least, "maxItems": least + 1000}
        case "anyOf" | "allOf" as key:
            return {key: [schema(rng, depth - 1) for _ in range(rng.choice([2, 10]))]}
        case "$ref":
            return {"$ref": f"#/$defs/{rng.choice('ABC')}"}
        case "patterns":
            names = ["^x", "^y.*z$", ".*a.{40}", "^[a-z]{1,1000}$"]
            return {"patternProperties": {n: schema(rng, depth - 1) for n in rng.sample(names, 2)}}
        case "wide":
            names = [f"p{number}" for number in range(rng.choice([50, 1000]))]
            return {"properties": dict.fromkeys(names, INTEGER), "required": names[::2]}
        case _:
            return rng.choice([
                {"type": "string", "maxLength": rng.choice([1, 1000, 100_000])},
                {"type": "string", "pattern": regex(rng, 3)},
                {"type": "string", "format": rng.choice(["uri", "email", "ipv6", "date-time"])},
                {"enum": [word(rng, 40) for _ in range(rng.choice([3, 1000]))]},
                {"type": "integer", "multipleOf": rng.choice([7, 9973])},
                {"type": "number", "minimum": rng.random(), "maximum": rng.random() * 1e12},
                {},
            ])  # fmt: skip


def random_case(seed: int) -> Callable[[], Constraint]:
    """What makes it; of one of four kinds."""
    rng = random.Random(seed)
    match seed % 4:
        case 0:
            text = regex(rng, rng.randint(2, 6))
            return lambda: Constraint(kind="regex", text=text)
        case 1:
            definitions = {name: schema(rng, 3) for name in "ABC"}
            whole = {"anyOf": [schema(rng, rng.randint(1, 6))], "$defs": definitions}
            return lambda: schema_constraint(whole, "schema")
        case 2:
            count, length = rng.choice([(10, 50_000), (1000, 500), (10_000, 50)])
            choices = [word(rng, length) for _ in range(count)]
            return lambda: choice_constraint(choices, "choice")
        case _:
            body = " ".join(f'({word(rng, 1)!r} | [^x]{{0,{rng.choice([9, 999])}}} ".")'
                            for _ in range(rng.randint(1, 8))).replace("'", '"')  # fmt: skip
            again = rng.choice(["", " root?", ' ("x" | root)'])
            return lambda: Constraint(kind="gbnf", text=f"root ::= {body}{again}")


def cases(count: int, seed: int) -> Iterator[tuple[str, Callable[[], Constraint]]]:
    """(name, what makes it)"""
    for name, text in REGEXES.items():
        yield name, lambda text=text: Constraint(kind="regex", text=text)
    for name, value in SCHEMAS.items():
        yield name, lambda value=value: schema_constraint(value, "schema")
    for number in range(seed, seed + count):
        yield f"number {number}", random_case(number)


class Worst:
    """The longest call of each kind, in seconds of CPU time."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, str]] = {}
        self.case = ""

    def __call__(self, kind: str, call: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.thread_time()
        try:
            return call(*arguments)
        finally:
            seconds = time.thread_time() - begun
            self.found[kind] = max(self.found.get(kind, (0.0, "")), (seconds, self.case))


def write(template: Matcher, vocab: Vocab, way: str, rng: random.Random, worst: Worst) -> None:
    """A text of some tokens."""
    mask = TokenMask(vocab.size)
    matcher = worst("copy", template.copy)
    last = -1
    try:
        for _ in range(TOKENS):
            if way == "tried":
                tokens = [t for t in rng.sample(range(vocab.size), 200)
                          if worst("a token's judgement", matcher.allows, t)]  # fmt: skip
            else:
                worst("a mask", matcher.fill, mask)
                bits = np.unpackbits(mask.words.view(np.uint8), bitorder="little")[: vocab.size]
                tokens = np.flatnonzero(bits).tolist()
            tokens = [token for token in tokens if token not in vocab.end_tokens]
            if not tokens:
                return
            last = last if way == "again" and last in tokens else rng.choice(tokens)
            if way == "long":
                some = rng.sample(tokens, min(100, len(tokens)))
                last = max(some, key=lambda token: len(vocab.pieces[token]))
            worst("a step", matcher.accept, last)
    finally:
        worst("freeing", matcher.free)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    worst, ends = Worst(), Counter[str]()
    options = LoadOptions(n_gpu_layers=0, vocab_only=True)
    with Weights(args.vocabulary, options) as weights:
        vocab = Vocab(weights.handle, 64)
        guides = Guides(vocab)
        guides.matcher_of(Constraint(kind="regex", text="a"))
        for name, make in cases(args.cases, args.seed):
            worst.case = name
            try:
                template = worst("compiling", guides.matcher_of, worst("reading", make))
            except RequestError:
                ends["refused"] += 1
                continue
            end = "taken"
            for way in ("random", "long", "again", "tried"):
                try:
                    write(template, vocab, way, random.Random(name), worst)
                except MatcherError:
                    end = "stopped in the text"
            ends[end] += 1
    print(f"{vocab.size:,} tokens, {sum(ends.values())} constraints: {dict(ends)}")
    for kind, (seconds, name) in sorted(worst.found.items(), key=lambda item: -item[1][0]):
        print(f"  {kind:20} {seconds * 1e3:8.1f} ms  {name}")


if __name__ == "__main__":
    main()
