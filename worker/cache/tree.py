"""Prefixes in host memory, as a tree of blocks of 64 tokens: what they share is kept once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from worker.cache.block import (
    BLOCK_BYTES,
    OVERHEAD,
    WIDTH,
    CachedBlock,
    CachedRest,
    Item,
    chain_hash,
)
from worker.cache.state import BLOCK, RestAt

# (begin, stop) -> the packed rows of the tokens at these positions, in memory of their own
Rows = Callable[[int, int], np.ndarray]

# The part of the budget that items which came back may hold against those that were seen once.
# The rest is for new ones, so that they live long enough to come back.
_SHARE_OF_RETURNED = 0.6


class Recency:
    """All items, least useful first: those that were seen once, then those that came back.

    Within both classes the order is that of the last use. When those that came back hold more
    than their share, the oldest of them counts as seen once again, as the newest of these.

    An item that others need (a block and the blocks below it) must be used after them, in the
    same operation, and be in their class or the better one. Then the first one is never needed.
    """

    def __init__(self, max_bytes: int) -> None:
        self._limit = int(max_bytes * _SHARE_OF_RETURNED)
        self._once: OrderedDict[Item, None] = OrderedDict()
        self._returned: OrderedDict[Item, None] = OrderedDict()
        self._returned_bytes = 0

    def __contains__(self, item: Item) -> bool:
        return item in self._once or item in self._returned

    def has_returned(self, item: Item) -> bool:
        """Whether the item is in the better class."""
        return item in self._returned

    def use(self, item: Item, *, returned: bool) -> None:
        """The item, new or not, was used now. It stays in the better class once it is there."""
        if item in self._returned:
            self._returned.move_to_end(item)
        elif returned:
            self._once.pop(item, None)
            self._returned[item] = None
            self._returned_bytes += item.nbytes
        else:
            self._once[item] = None
            self._once.move_to_end(item)

    def settle(self) -> None:
        """Bring the better class back to its share; an operation ends with this."""
        while self._returned_bytes > self._limit:
            item, _ = self._returned.popitem(last=False)
            self._returned_bytes -= item.nbytes
            self._once[item] = None

    def remove(self, item: Item) -> None:
        if item in self._returned:
            del self._returned[item]
            self._returned_bytes -= item.nbytes
        else:
            del self._once[item]

    def first(self, stamp: int) -> Item | None:
        """The item to drop next; those that the operation `stamp` uses are never named."""
        for items in (self._once, self._returned):
            item = next(iter(items), None)
            # Used items stand last: if the first of a class is in use, all of them are.
            if item is not None and item.stamp != stamp:
                return item
        return None

    def newest_first(self) -> Iterator[Item]:
        yield from reversed(self._returned)
        yield from reversed(self._once)

    def check_integrity(self, items: set[Item]) -> None:
        """Raise AssertionError unless these are the items, and each stands after its children."""
        ordered = [*self._once, *self._returned]
        assert len(ordered) == len(items), (len(ordered), len(items))
        assert set(ordered) == items
        assert self._returned_bytes == sum(item.nbytes for item in self._returned)
        assert self._returned_bytes <= self._limit, (self._returned_bytes, self._limit)
        places = {item: place for place, item in enumerate(ordered)}
        for item in items:
            if isinstance(item, CachedBlock):
                for child in item.children.values():
                    assert places[child] < places[item], (child.tokens, item.tokens)


class TreePath(NamedTuple):
    """How far the tree knows a prompt.

    root        where it begins
    blocks      from the root's child on; of the last one perhaps only the first tokens are meant
    num_tokens  the tokens of the prompt that these blocks hold the rows of
    """

    root: CachedBlock
    blocks: list[CachedBlock]
    num_tokens: int


class Tree:
    """The blocks and rests in host memory, never more than `max_bytes` of them.

        root ── You are a helpful … ── assistant. What is … ── the sea? (12 tokens)
             │                      └─ assistant. Why does … ── …
             └─ Translate this text … ── …

    A block with the same tokens under the same parent exists once. A block of fewer than 64
    tokens is replaced when another one goes on where it ends. What was computed with another key
    has another root, and its hashes begin otherwise.

    needs_rest: a state can be restored only where a rest was kept. Blocks that no rest needs are
    dropped at once.
    """

    def __init__(self, max_bytes: int, *, needs_rest: bool, origin: bytes = b"") -> None:
        self.max_bytes = max_bytes
        self.needs_rest = needs_rest
        self._origin = origin
        self._roots: WeakValueDictionary[bytes, CachedBlock] = WeakValueDictionary()
        self.num_bytes = 0
        self.num_tokens = 0
        self.evicted_tokens = 0
        self._recency = Recency(max_bytes)
        self._operation = 0

    def root(self, key: bytes) -> CachedBlock:
        """Where the prefixes of prompts with this key begin. It lives as long as it is in use."""
        root = self._roots.get(key)
        if root is None:
            chain = chain_hash(self._origin, key) if key else self._origin
            root = self._roots[key] = CachedBlock(b"", np.empty(0, np.uint8), None, chain)
        return root

    def walk(self, root: CachedBlock, tokens: bytes) -> TreePath:
        """The longest beginning of `tokens` whose rows are here. Nothing changes."""
        blocks: list[CachedBlock] = []
        node = root
        for begin in range(0, len(tokens), BLOCK_BYTES):
            wanted = tokens[begin : begin + BLOCK_BYTES]
            child = node.children.get(wanted)
            if child is None:
                child, common = node.nearest(wanted)
                if child is not None:
                    blocks.append(child)
                return TreePath(root, blocks, begin // WIDTH + common)
            blocks.append(child)
            node = child
        return TreePath(root, blocks, len(tokens) // WIDTH)

    def rest_at(self, tokens: bytes, path: TreePath, stop: int) -> CachedRest | None:
        """The rest after the first `stop` of these tokens; `path` is where `walk` led."""
        before, key = self._place(tokens, path.root, path.blocks, stop)
        return before.rests.get(key) if before is not None else None

    def extend(
        self,
        root: CachedBlock,
        tokens: bytes,
        rows: Rows,
        rest: RestAt | None = None,
        *,
        returned: bool = False,
    ) -> list[Item]:
        """Keep the rows of all these tokens, and a rest after some of them.

        `rows` is asked for blocks that are not here yet, and for a shorter one that is replaced.
        Others leave when there is no room. When that is not enough, the first blocks are kept
        that fit; where rests are needed, nothing new.

        Returns what is new, parents first, the rest last.
        """
        self._operation += 1
        path = self.walk(root, tokens)
        self._use(path.blocks, None, returned=returned)
        new = self._extend(tokens, path, rows, rest, returned=returned)
        self._operation += 1  # nothing is in use any more
        if path.blocks and path.blocks[-1] in self._recency:
            self._drop_useless(path.blocks[-1])
        self._recency.settle()
        return new

    def forget(self, root: CachedBlock, tokens: bytes) -> None:
        """Drop the last blocks of these tokens, back to one from which another goes on."""
        self._operation += 1
        for block in reversed(self.walk(root, tokens).blocks):
            begin = (block.depth - 1) * BLOCK_BYTES
            is_gone = block not in self._recency  # with the one behind it
            if is_gone or block.children or not tokens.startswith(block.tokens, begin):
                continue
            self._remove(block)
            self._drop_useless(block.parent)

    def newest_first(self) -> Iterator[Item]:
        """All items, the most useful first; a block comes before those that follow it."""
        return self._recency.newest_first()

    def _place(
        self, tokens: bytes, root: CachedBlock, blocks: list[CachedBlock], stop: int
    ) -> tuple[CachedBlock | None, bytes]:
        """Where a rest after `stop` tokens lies: the last block before it, and its own tokens."""
        level = (stop - 1) // BLOCK
        key = tokens[level * BLOCK_BYTES : stop * WIDTH]
        if level > len(blocks):
            return None, key
        return (blocks[level - 1] if level else root), key

    def _extend(
        self, tokens: bytes, path: TreePath, rows: Rows, rest: RestAt | None, *, returned: bool
    ) -> list[Item]:
        num_tokens, root = len(tokens) // WIDTH, path.root
        blocks = path.blocks[:]
        old: CachedBlock | None = None
        tail = blocks[-1] if blocks else root
        if path.num_tokens < num_tokens and len(blocks) > path.num_tokens // BLOCK:
            blocks.pop()  # it is a shorter one, or goes on in another way
            old = tail if tail.num_tokens == path.num_tokens % BLOCK else None
        # What goes on where a sequence ended that came back, will come back too. What begins like
        # many others, with a system prompt say, may be seen once.
        goes_on = path.num_tokens == num_tokens or old is not None or not tail.children
        returned = returned or (goes_on and self._recency.has_returned(tail))

        kept = self.rest_at(tokens, path._replace(blocks=blocks), rest[0]) if rest else None
        if kept is not None:
            self._use([], kept, returned=returned)
            rest = None
        begins = range(len(blocks) * BLOCK, num_tokens, BLOCK)
        packed = rows(begins[0], min(begins[0] + BLOCK, num_tokens)) if begins else None
        if self.needs_rest:
            in_use = sum(block.nbytes for block in path.blocks) + (kept.nbytes if kept else 0)
            need = rest[1].nbytes + OVERHEAD if rest else 0
            if packed is not None:
                length = num_tokens - begins[0]
                need += packed.nbytes // min(BLOCK, length) * length + len(begins) * OVERHEAD
            if in_use + need > self.max_bytes:
                return []
        new: list[Item] = []
        for begin in begins:
            stop = min(begin + BLOCK, num_tokens)
            if packed is None:
                packed = rows(begin, stop)
            freed = old.nbytes if old is not None else 0
            if not self._make_room(packed.nbytes + OVERHEAD - freed):
                break
            if old is not None:
                self._unlink(old)
                old = None
            parent = blocks[-1] if blocks else root
            blocks.append(self._link(parent, tokens[begin * WIDTH : stop * WIDTH], packed))
            new.append(blocks[-1])
            packed = None
        added: CachedRest | None = None
        if rest is not None and self._make_room(rest[1].nbytes + OVERHEAD):
            before, key = self._place(tokens, root, blocks, rest[0])
            if before is not None:
                data = rest[1] if rest[1].flags.owndata else rest[1].copy()
                added = before.rests[key] = CachedRest(key, data, before)
                self.num_bytes += added.nbytes
                new.append(added)
        self._use(blocks, added, returned=returned)
        return new

    def _use(self, blocks: list[CachedBlock], rest: CachedRest | None, *, returned: bool) -> None:
        """Mark as used now, a block after those that follow it."""
        if rest is not None:
            rest.stamp = self._operation
            self._recency.use(rest, returned=returned)
        for block in reversed(blocks):
            block.stamp = self._operation
            self._recency.use(block, returned=returned)

    def _make_room(self, nbytes: int) -> bool:
        """Whether so many bytes more fit, once items have left that are not in use now."""
        while self.num_bytes + nbytes > self.max_bytes:
            item = self._recency.first(self._operation)
            if item is None:
                return False
            if isinstance(item, CachedRest):
                self._drop_rest(item)
                for block in item.before.children_from(item.tokens):
                    self._drop_useless(block)
            else:
                self._remove(item)
                self._drop_useless(item.parent)
        return True

    def _drop_useless(self, block: CachedBlock | None) -> None:
        """Drop a block that no rest needs, and then those above it that are left without use."""
        while self.needs_rest and block is not None and block.parent is not None:
            if block.children or block.stamp == self._operation or self._alone_for(block):
                return
            self._remove(block)
            block = block.parent

    def _alone_for(self, block: CachedBlock) -> list[CachedRest]:
        """The rests whose rows only this block holds."""
        above = block.parent
        assert above is not None, "the root holds no rows"
        return [
            rest
            for key, rest in above.rests.items()
            if block.tokens.startswith(key) and above.children_from(key) == [block]
        ]

    def _remove(self, block: CachedBlock) -> None:
        """A block without children leaves, and with it the rests whose rows only it holds."""
        for rest in self._alone_for(block):
            self._drop_rest(rest)
        self.evicted_tokens += block.num_tokens
        self._unlink(block)

    def _drop_rest(self, rest: CachedRest) -> None:
        del rest.before.rests[rest.tokens]
        self._recency.remove(rest)
        self.num_bytes -= rest.nbytes

    def _link(self, parent: CachedBlock, tokens: bytes, rows: np.ndarray) -> CachedBlock:
        """A new child; it takes part in the order of use once `_use` has named it."""
        block = CachedBlock(tokens, rows, parent, chain_hash(parent.chain, tokens))
        block.stamp = self._operation
        parent.children[tokens] = block
        insort(parent.order, tokens)
        self.num_bytes += block.nbytes
        self.num_tokens += block.num_tokens
        return block

    def _unlink(self, block: CachedBlock) -> None:
        parent = block.parent
        assert parent is not None, "the root stays"
        del parent.children[block.tokens]
        del parent.order[bisect_left(parent.order, block.tokens)]
        self._recency.remove(block)
        self.num_bytes -= block.nbytes
        self.num_tokens -= block.num_tokens

    def check_integrity(self) -> None:
        """Raise AssertionError with all numbers unless tree, order and sums fit together."""
        blocks: list[CachedBlock] = []
        rests: list[CachedRest] = []
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            assert sorted(node.children) == node.order, (node.order, sorted(node.children))
            for one, next_one in zip(node.order, node.order[1:], strict=False):
                assert not next_one.startswith(one), (one, next_one)
            for key, rest in node.rests.items():
                assert rest.tokens == key, (rest.tokens, key)
                assert rest.before is node, key
                assert 0 < len(key) <= BLOCK_BYTES, key
                assert node.children_from(key), key
                rests.append(rest)
            for key, child in node.children.items():
                assert child.tokens == key, (child.tokens, key)
                assert child.parent is node, key
                assert child.chain == chain_hash(node.chain, key), key
                full = len(key) == BLOCK_BYTES
                assert full or not (child.children or child.rests), (child.num_tokens, key)
                needed = child.children or self._alone_for(child) or not self.needs_rest
                shared = [k for k in node.rests if key.startswith(k)]
                assert needed or shared, key
                blocks.append(child)
                stack.append(child)
        numbers = (self.num_bytes, self.max_bytes, self.num_tokens, len(blocks), len(rests))
        assert self.num_bytes == sum(item.nbytes for item in [*blocks, *rests]), numbers
        assert self.num_bytes <= self.max_bytes, numbers
        assert self.num_tokens == sum(block.num_tokens for block in blocks), numbers
        self._recency.check_integrity({*blocks, *rests})
