"""What the engine keeps and finds again: prefixes in host memory and, if wanted, on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from worker.cache.block import BLOCK_BYTES, WIDTH, CachedBlock, CachedRest, token_bytes
from worker.cache.block_file import FileKey, key_of
from worker.cache.disk import Disk, DiskItem
from worker.cache.state import BLOCK, Parts, RestAt, SlotState
from worker.cache.tree import Tree, TreePath


class CacheStats(msgspec.Struct, frozen=True):
    """Bytes and tokens of the states that are kept outside of the KV cache.

    memory_bytes, memory_limit  what is held in host memory, and what may be
    kept_tokens      tokens whose state is in host memory now
    restored_tokens  tokens that were brought back into the KV cache, since the start
    evicted_tokens   tokens that had to leave host memory, since the start
    disk_limit       bytes that the folder may hold; 0: nothing is written
    disk_bytes       bytes in the folder, as far as this worker knows
    disk_written, disk_read  bytes since the start
    disk_errors      files that were damaged, could not be read or could not be written
    """

    memory_bytes: int = 0
    memory_limit: int = 0
    kept_tokens: int = 0
    restored_tokens: int = 0
    evicted_tokens: int = 0
    disk_limit: int = 0
    disk_bytes: int = 0
    disk_written: int = 0
    disk_read: int = 0
    disk_errors: int = 0


class Found(NamedTuple):
    """What is kept of a prompt's beginning.

    num_tokens  tokens that can be restored; 0: nothing
    num_common  tokens whose rows are known, >= num_tokens; more only where a rest is missing
    num_read    bytes that must be read from disk for it
    root        where the prefixes of its key begin, and
    prompt      the prompt's tokens, for `Store.load`
    is_whole    whether nothing is known to have followed them
    """

    num_tokens: int
    num_common: int
    num_read: int
    root: CachedBlock
    prompt: bytes
    is_whole: bool = False


class CachedState(NamedTuple):
    """The state after the first `num_tokens` tokens of a prompt, in parts.

    num_read  how many of these tokens, the last ones, had to be read from disk
    """

    num_tokens: int
    num_read: int
    parts: Parts
    rest: np.ndarray | None


class _Place(NamedTuple):
    """Where a prompt's beginning lies: in blocks in memory, and then in files.

    root                    where its blocks begin
    num_common, num_tokens  as in `Found`
    rest                    the rest after num_tokens, where one is needed
    """

    root: CachedBlock
    blocks: list[CachedBlock]
    files: list[FileKey]
    num_common: int
    num_tokens: int
    rest: CachedRest | FileKey | None


class Store:
    """States of sequences that do not run. All calls come from one thread, the engine's.

    A state is found only by prompts with the key of the one that it was kept of.

    max_bytes   of host memory, at least 1
    needs_rest  a state can be restored only where a rest was kept
    disk        where blocks are written and looked for besides
    """

    def __init__(self, max_bytes: int, *, needs_rest: bool, disk: Disk | None = None) -> None:
        self._tree = Tree(
            max_bytes, needs_rest=needs_rest, origin=disk.origin if disk is not None else b""
        )
        self._needs_rest = needs_rest
        self._disk = disk
        self._restored_tokens = 0

    @property
    def stats(self) -> CacheStats:
        """What is held now, and sums since the start."""
        memory = CacheStats(
            memory_bytes=self._tree.num_bytes,
            memory_limit=self._tree.max_bytes,
            kept_tokens=self._tree.num_tokens,
            restored_tokens=self._restored_tokens,
            evicted_tokens=self._tree.evicted_tokens,
        )
        if self._disk is None:
            return memory
        return msgspec.structs.replace(
            memory,
            disk_limit=self._disk.folder.max_bytes,
            disk_bytes=self._disk.folder.index.num_bytes,
            disk_written=self._disk.folder.num_written,
            disk_read=self._disk.folder.num_read,
            disk_errors=self._disk.num_errors,
        )

    def find(self, tokens: np.ndarray, key: bytes = b"") -> Found:
        """The longest beginning of `tokens` that is kept. No file is read, nothing changes.

        tokens: int32 [n]
        """
        prompt = token_bytes(tokens)
        root = self._tree.root(key)
        place = self._seek(root, prompt, len(tokens))
        num_read = 0
        if self._disk is not None:
            num_read = sum(self._disk.nbytes(key) for key in place.files)
            num_read += self._disk.nbytes(place.rest) if isinstance(place.rest, FileKey) else 0
        return Found(place.num_tokens, place.num_common, num_read, root, prompt, _is_whole(place))

    def load(self, found: Found) -> CachedState | None:
        """The state that `find` named, or of fewer tokens, or None if nothing is left of it.

        What was read from disk is kept in memory from now on.
        """
        root, prompt = found.root, found.prompt
        bodies: dict[FileKey, np.ndarray] = {}
        place = self._seek(root, prompt, found.num_tokens)
        while not self._read(place, prompt, bodies):
            place = self._seek(root, prompt, found.num_tokens)  # without the file that was bad
        if not place.num_tokens:
            return None
        rows = [block.rows for block in place.blocks] + [bodies[key] for key in place.files]
        rest: np.ndarray | None = None
        if place.rest is not None:
            rest = bodies[place.rest] if isinstance(place.rest, FileKey) else place.rest.data
        stop, num_read = place.num_tokens, 0
        if place.files:
            num_read = place.num_tokens - len(place.blocks) * BLOCK
            stop = len(place.blocks) * BLOCK + sum(key.num_tokens for key in place.files)
        self._tree.extend(
            root,
            prompt[: stop * WIDTH],
            lambda begin, _: rows[begin // BLOCK],
            (place.num_tokens, rest) if rest is not None else None,
            returned=True,
        )
        self._offer(root, prompt[: place.num_tokens * WIDTH])
        self._restored_tokens += place.num_tokens
        counts = [min(BLOCK, place.num_tokens - i * BLOCK) for i in range(len(rows))]
        parts = list(zip(rows, counts, strict=True))
        return CachedState(place.num_tokens, num_read, parts, rest)

    def holds(self, tokens: np.ndarray, key: bytes = b"") -> bool:
        """Whether all of these tokens are in memory, with a rest at their end if it needs one.

        tokens: int32 [n]
        """
        prompt = token_bytes(tokens)
        path = self._tree.walk(self._tree.root(key), prompt)
        if path.num_tokens < len(tokens):
            return False
        rest = self._tree.rest_at(prompt, path, len(tokens))
        return rest is not None or not self._needs_rest

    def rests(self, tokens: np.ndarray, key: bytes = b"") -> list[RestAt]:
        """The rests after some of these tokens, whose rows are in memory; ascending.

        What takes more than the whole budget begins with a later one.
        tokens: int32 [n]
        """
        prompt, found = token_bytes(tokens), list[RestAt]()
        path = self._tree.walk(self._tree.root(key), prompt)
        room = self._tree.max_bytes - sum(block.nbytes for block in path.blocks)
        for level in range(-(-path.num_tokens // BLOCK) - 1, -1, -1):
            known = prompt[level * BLOCK_BYTES : path.num_tokens * WIDTH][:BLOCK_BYTES]
            before = path.blocks[level - 1] if level else path.root
            for count in range(len(known) // WIDTH, 0, -1):
                rest = self._rest_behind(before, known[: count * WIDTH])
                if rest is not None:
                    room -= rest.nbytes
                    if room < 0:
                        return found[::-1]
                    found.append((level * BLOCK + count, rest))
        return found[::-1]

    def _rest_behind(self, before: CachedBlock, tokens: bytes) -> np.ndarray | None:
        """The rest after these tokens, which follow a block; of memory or of a file."""
        if (rest := before.rests.get(tokens)) is not None:
            return rest.data
        if self._disk is None:
            return None
        key = key_of("rest", before.chain, tokens)
        return self._disk.folder.read(key, tokens) if self._disk.nbytes(key) else None

    def keep(
        self,
        tokens: np.ndarray,
        state: SlotState,
        key: bytes = b"",
        earlier: Iterable[RestAt] = (),
    ) -> None:
        """Keep the state after all of these tokens, and rests after fewer of them.

        Rows are copied for new blocks only. Others leave to make room. Of a state that is larger
        than the whole budget its first blocks are kept, or nothing where a rest is needed.
        tokens: int32 [n]
        """
        if not self._needs_rest:
            rest = None
        elif state.rest is None:
            return
        else:
            rest = (len(tokens), state.rest)
        root, prompt = self._tree.root(key), token_bytes(tokens)
        self._tree.extend(root, prompt, state.rows, rest)
        self._offer(root, prompt, state)
        for each in earlier if self._needs_rest else ():
            self._tree.extend(root, prompt, state.rows, each)
            self._offer(root, prompt[: each[0] * WIDTH])

    def forget(self, tokens: np.ndarray, key: bytes = b"") -> None:
        """Drop the last of these tokens from memory, back to where another prompt goes on.

        tokens: int32 [n]
        """
        self._tree.forget(self._tree.root(key), token_bytes(tokens))

    def close(self, seconds: float) -> None:
        """Write what is not on disk yet, the most useful first, for `seconds` at most."""
        if self._disk is not None:
            items = (
                _rest_item(item) if isinstance(item, CachedRest) else _block_item(item)
                for item in self._tree.newest_first()
            )
            self._disk.close(seconds, items)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books fit together."""
        self._tree.check_integrity()
        if self._disk is not None:
            self._disk.check_integrity()

    def _seek(self, root: CachedBlock, prompt: bytes, limit: int) -> _Place:
        """The longest beginning of `prompt` that can be restored, of `limit` tokens at most.

        Memory goes before files.
        """
        memory = self._tree.walk(root, prompt)
        blocks, files, num_common = memory.blocks, self._files_after(memory, prompt), 0
        if files:
            blocks = blocks[: memory.num_tokens // BLOCK]
            num_common = len(blocks) * BLOCK + sum(key.num_tokens for key in files)
        num_common = min(max(num_common, memory.num_tokens), limit)
        if num_common <= memory.num_tokens:
            blocks, files = memory.blocks, []
        num_tokens, rest = num_common, None
        if self._needs_rest:
            num_tokens, rest = self._deepest_rest(root, prompt, blocks, files, num_common)
            if num_tokens <= memory.num_tokens:
                blocks, files = memory.blocks, []
        num_blocks = -(-num_tokens // BLOCK)
        files = files[: max(num_blocks - len(blocks), 0)]
        return _Place(root, blocks[:num_blocks], files, num_common, num_tokens, rest)

    def _files_after(self, memory: TreePath, prompt: bytes) -> list[FileKey]:
        """The files of rows that follow the whole blocks in memory."""
        files: list[FileKey] = []
        at = memory.num_tokens // BLOCK
        if self._disk is None or len(prompt) == memory.num_tokens * WIDTH:
            return files
        chain = memory.blocks[at - 1].chain if at else memory.root.chain
        for begin in range(at * BLOCK_BYTES, len(prompt), BLOCK_BYTES):
            key = self._disk.longest("rows", chain, prompt[begin : begin + BLOCK_BYTES])
            if key is None:
                break
            files.append(key)
            chain = key.own
            if key.num_tokens < BLOCK:
                break
        return files

    def _deepest_rest(
        self,
        root: CachedBlock,
        prompt: bytes,
        blocks: list[CachedBlock],
        files: list[FileKey],
        num_common: int,
    ) -> tuple[int, CachedRest | FileKey | None]:
        """The rest after the most tokens of those whose rows are known, and after how many."""
        for level in range(-(-num_common // BLOCK) - 1, -1, -1):
            known = prompt[level * BLOCK_BYTES : num_common * WIDTH][:BLOCK_BYTES]
            rest: CachedRest | FileKey | None = None
            count = 0
            if level <= len(blocks):
                before = blocks[level - 1] if level else root
                chain = before.chain
                if before.rests and (rest := before.deepest_rest(known)) is not None:
                    count = len(rest.tokens) // WIDTH
            else:
                chain = files[level - 1 - len(blocks)].own
            if self._disk is not None:
                key = self._disk.longest("rest", chain, known)
                if key is not None and key.num_tokens > count:
                    rest, count = key, key.num_tokens
            if rest is not None:
                return level * BLOCK + count, rest
        return 0, None

    def _read(self, place: _Place, prompt: bytes, bodies: dict[FileKey, np.ndarray]) -> bool:
        """Read the files of a place that are not in `bodies` yet; whether all were good."""
        wanted: list[tuple[FileKey, int]] = []
        begin = len(place.blocks) * BLOCK
        for key in place.files:
            wanted.append((key, begin))
            begin += key.num_tokens
        if isinstance(place.rest, FileKey):
            wanted.append((place.rest, place.num_tokens - place.rest.num_tokens))
        for key, begin in wanted:
            if key not in bodies:
                tokens = prompt[begin * WIDTH : (begin + key.num_tokens) * WIDTH]
                body = self._disk.folder.read(key, tokens) if self._disk is not None else None
                if body is None:
                    return False
                bodies[key] = body
        return True

    def _offer(self, root: CachedBlock, prompt: bytes, state: SlotState | None = None) -> None:
        """Tell the disk that what is in memory of this prompt is of use.

        A file is of use only as a whole. So the state's last rows are written once more where in
        memory they are a part of a block that goes on differently.
        """
        if self._disk is None:
            return
        path = self._tree.walk(root, prompt)
        items = [_block_item(block) for block in path.blocks]
        if path.num_tokens and (rest := self._tree.rest_at(prompt, path, path.num_tokens)):
            key = key_of("rows", rest.before.chain, rest.tokens)
            is_part = path.blocks[-1].num_tokens > key.num_tokens
            if state is not None and is_part and not self._disk.nbytes(key):
                rows = state.rows(path.num_tokens - key.num_tokens, path.num_tokens)
                items.append(DiskItem(key, rest.tokens, rows, rest.before.depth + 1))
            items.append(_rest_item(rest))
        self._disk.offer(items)


def _is_whole(place: _Place) -> bool:
    """Whether a place is where a kept sequence ends, as far as blocks tell."""
    last = place.files[-1] if place.files else place.blocks[-1] if place.blocks else None
    if last is None or place.num_tokens % BLOCK != last.num_tokens % BLOCK:
        return False
    return last.num_tokens < BLOCK if isinstance(last, FileKey) else not last.children


def _block_item(block: CachedBlock) -> DiskItem:
    before = block.parent.chain if block.parent is not None else b""
    key = FileKey("rows", before, block.chain, block.num_tokens)
    return DiskItem(key, block.tokens, block.rows, block.depth)


def _rest_item(rest: CachedRest) -> DiskItem:
    key = key_of("rest", rest.before.chain, rest.tokens)
    return DiskItem(key, rest.tokens, rest.data, rest.before.depth + 1)
