"""The tables. A version adds a script, and never changes one that was released."""

from __future__ import annotations

# `answers` has no more than one line for each line that was asked: what is there counts.
_FIRST = """
create table files (
    id text primary key, owner text not null, purpose text not null, name text not null,
    bytes integer not null, created_at integer not null, expires_at integer,

    batch text, has_errors integer not null default 0
);

create index files_of on files (owner);

create table batches (
    id text primary key, owner text not null, created_at integer not null,
    is_over integer not null, record blob not null
);

create index batches_of on batches (owner);

create table lines (
    batch text not null, number integer not null, place integer not null,
    custom_id text not null, start integer not null, length integer not null,
    primary key (batch, place)
) without rowid;
create table answers (
    batch text not null, number integer not null, is_error integer not null, line blob not null,
    primary key (batch, number)
)
"""

_USAGE = "CREATE TABLE usage (name TEXT PRIMARY KEY, counts BLOB NOT NULL)"
# `tokens` are marks as a relay reads them, see `api/answer/marks.py`.
_RESPONSES = """
CREATE TABLE responses (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, account TEXT NOT NULL,
    created_at INTEGER NOT NULL, body BLOB NOT NULL, items BLOB, before TEXT,
    begun BLOB, reply BLOB
);
CREATE TABLE response_parts (
    name TEXT NOT NULL, number INTEGER NOT NULL, events BLOB NOT NULL, tokens BLOB NOT NULL,
    PRIMARY KEY (name, number)
) WITHOUT ROWID
"""

SCHEMA = (_FIRST, _USAGE, _RESPONSES)
VERSION = len(SCHEMA)
