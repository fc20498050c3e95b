"""Which schemas of the JSON Schema test suite are held, and whether any answer could be wrong.

    python -m benchmarks.constraints.suite MODEL FOLDER [--draft draft2020-12] [--list]

FOLDER is the suite's `tests`; jsonschema's source package brings it, as `json/tests`. Nothing is
generated: each instance of a test is written as JSON and followed by a matcher.

held      schemas that compile; refused: those that a request would get a 400 for
right     instances that are valid and may be written, or invalid and may not
narrower  valid instances that may not be written: other orders of properties, closed objects
wrong     invalid instances that may be written; there must be none
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from worker.errors import RequestError
from worker.grammar.constraint import schema_constraint
from worker.llama.guides.guides import Guides
from worker.llama.guides.matcher import Matcher
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights


def may_be_written(matcher: Matcher, guides: Guides, text: str, end: int) -> bool:
    """Whether a whole text, and then the end, is allowed."""
    for token in guides.spell(text.encode()):
        if matcher.is_done or not matcher.allows(token):
            return False
        matcher.accept(token)
    return matcher.is_done or matcher.allows(end)


def judge(schema: Any, tests: list[dict[str, Any]], guides: Guides, end: int) -> Counter[str]:
    """Counts of one schema and its tests."""
    try:
        template = guides.matcher_of(schema_constraint(schema, "schema"))
    except RequestError:
        return Counter(refused=1)
    found = Counter(held=1)
    for test in tests:
        matcher = template.copy()
        text = json.dumps(test["data"], ensure_ascii=False)
        written = may_be_written(matcher, guides, text, end)
        matcher.free()
        if written == test["valid"]:
            found["right"] += 1
        else:
            found["wrong" if written else "narrower"] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draft", default="draft2020-12")
    parser.add_argument("--list", action="store_true", help="one line for each file")
    args = parser.parse_args()
    total: Counter[str] = Counter()
    with Weights(args.model, LoadOptions(n_gpu_layers=0, vocab_only=True)) as weights:
        vocab = Vocab(weights.handle, 64)
        guides = Guides(vocab)
        end = min(vocab.end_tokens)
        for path in sorted((args.folder / args.draft).glob("*.json")):
            found: Counter[str] = Counter()
            for case in json.loads(path.read_text()):
                found += judge(case["schema"], case["tests"], guides, end)
            if args.list:
                print(f"{path.stem:24}", dict(found))
            total += found
    print(args.draft, dict(total))


if __name__ == "__main__":
    main()
