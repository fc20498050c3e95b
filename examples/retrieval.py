"""Retrieval in a page: texts and their vectors in SQLite, found by meaning, ranked, answered.

    worker serve --model all-MiniLM-L6-v2.gguf --port 8081
    python examples/retrieval.py add notes.db notes.txt
    python examples/retrieval.py find notes.db "Where does the river end?"

With RERANKER=http://... the best twenty are ranked by a worker that serves a reranker.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

EMBEDDER = os.environ.get("EMBEDDER", "http://127.0.0.1:8081")
RERANKER = os.environ.get("RERANKER")
AT_ONCE, CANDIDATES, SHOWN = 256, 20, 5


def ask(address: str, **body: Any) -> Any:
    """POST JSON."""
    request = urllib.request.Request(address, json.dumps(body).encode())  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return json.load(answer)


def vectors(texts: list[str]) -> list[np.ndarray]:
    """Of length 1; what is too long is cut."""
    made = ask(f"{EMBEDDER}/v1/embeddings", input=texts, truncate_prompt_tokens=-1)
    return [np.array(entry["embedding"], np.float32) for entry in made["data"]]


def add(base: sqlite3.Connection, path: Path) -> None:
    """Each paragraph of a file, those that are there already left out."""
    known = {text for (text,) in base.execute("SELECT text FROM notes")}
    texts = [text.strip() for text in path.read_text().split("\n\n")]
    new = [text for text in dict.fromkeys(texts) if text and text not in known]
    for at in range(0, len(new), AT_ONCE):
        some = new[at : at + AT_ONCE]
        rows = [(t, v.tobytes()) for t, v in zip(some, vectors(some), strict=True)]
        with base:
            base.executemany("INSERT INTO notes VALUES (?, ?)", rows)
    print(f"{len(new)} texts added, {len(known)} were there")


def find(base: sqlite3.Connection, question: str) -> None:
    """The texts that are most like the question."""
    rows = base.execute("SELECT text, vector FROM notes").fetchall()
    (asked,) = vectors([question])
    likeness = [float(np.frombuffer(raw, np.float32) @ asked) for _, raw in rows]
    best = sorted(zip(likeness, (text for text, _ in rows), strict=True), reverse=True)
    if RERANKER and best:
        texts = [text for _, text in best[:CANDIDATES]]
        ranked = ask(f"{RERANKER}/v1/rerank", query=question, documents=texts)["results"]
        best = [(each["relevance_score"], texts[each["index"]]) for each in ranked]
    for score, text in best[:SHOWN]:
        print(f"{score:.3f}  {text}")


if __name__ == "__main__":
    what, where, given = sys.argv[1:]
    notes = sqlite3.connect(where)
    notes.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT PRIMARY KEY, vector BLOB)")
    if what == "add":
        add(notes, Path(given))
    else:
        find(notes, given)
