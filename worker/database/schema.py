"""The tables. A version adds a script, and never changes one that was released."""

from __future__ import annotations

# `answers` has no more than one line for each line that was asked: what is there counts.
_FIRST = """
CREATE TABLE files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL,
    bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
    batch TEXT, has_errors INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX files_of ON files (owner);
CREATE TABLE batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at INTEGER NOT NULL,
    is_over INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE INDEX batches_of ON batches (owner);
CREATE TABLE lines (
    batch TEXT NOT NULL, number INTEGER NOT NULL, place INTEGER NOT NULL,
    custom_id TEXT NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
    PRIMARY KEY (batch, place)
) WITHOUT ROWID;
CREATE TABLE answers (
    batch TEXT NOT NULL, number INTEGER NOT NULL, is_error INTEGER NOT NULL, line BLOB NOT NULL,
    PRIMARY KEY (batch, number)
)
"""

# `tokens` are marks as a relay reads them, see `api/answer/marks.py`.
_SECOND = """
CREATE TABLE responses (
    name TEXT PRIMARY KEY, owner BLOB NOT NULL, account TEXT NOT NULL,
    created_at INTEGER NOT NULL, body BLOB NOT NULL, items BLOB NOT NULL, before TEXT, reply BLOB
);
CREATE TABLE response_parts (
    name TEXT NOT NULL, number INTEGER NOT NULL, events BLOB NOT NULL, tokens BLOB NOT NULL,
    PRIMARY KEY (name, number)
) WITHOUT ROWID
"""

SCHEMA = (_FIRST, _SECOND)
VERSION = len(SCHEMA)
