"""Stands in for llama-server: other weights, and the server that SUITE_SERVER names.

SUITE_WEIGHTS is JSON: a beginning of `repository/file` -> a file here.
"""

from __future__ import annotations

import json
import os
import sys


def main(arguments: list[str]) -> None:
    """Become the server."""
    weights: dict[str, str] = json.loads(os.environ["SUITE_WEIGHTS"])
    named = {"--hf-repo": "", "--hf-file": ""}
    given: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in named:
            named[argument] = next(rest)
        elif argument != "--offline":
            given.append(argument)
    if named["--hf-repo"] and "--model" not in given:
        name = "/".join(filter(None, named.values()))
        fitting = [beginning for beginning in weights if name.startswith(beginning)]
        if not fitting:
            sys.exit(f"no weights stand for {name}")
        given += ["--model", weights[max(fitting, key=len)]]
        if "reranker" in name and "--reranking" in given:
            given.remove("--reranking")  # what stands for it has no classifier: cosines rank
    server = json.loads(os.environ["SUITE_SERVER"])
    os.execv(server[0], [*server, *given])


if __name__ == "__main__":
    main(sys.argv[1:])
