"""Which item leaves the memory first: the one that was not used for the longest time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from worker.cache.block import CachedBlock, Item

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
