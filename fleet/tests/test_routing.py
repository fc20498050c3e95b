"""Who gets a request: its own replica, unless that has too much to do."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_fleet.routing import BOUND, Homes, Member, order
from tests.support.gateways import member

KEYS = [f"key {n}".encode() for n in range(400)]


def members(count: int, *, slots: int = 4, limit: int = 8) -> list[Member]:
    """So many replicas."""
    return [member(f"r{n}", "http://127.0.0.1:1", slots=slots, limit=limit) for n in range(count)]


def first(among: list[Member], key: bytes | None, loads: dict[str, int] | None = None) -> str:
    """The id of the replica that is asked first."""
    return order(among, loads or {}, key)[0].id


def test_a_key_keeps_its_replica() -> None:
    """Whatever the order in which the replicas are told; and keys spread over all of them."""
    among = members(4)
    homes = [first(among, key) for key in KEYS]
    assert homes == [first(among[::-1], key) for key in KEYS]
    counts = Counter(homes)
    assert len(counts) == 4
    assert min(counts.values()) > len(KEYS) / 4 / 2


def test_a_replica_that_goes_moves_its_own_keys_alone() -> None:
    """All other keys stay where they are; one that comes takes keys and moves no others."""
    among = members(4)
    before = {key: first(among, key) for key in KEYS}
    after = {key: first(among[:3], key) for key in KEYS}
    assert {key for key in KEYS if before[key] != after[key]} == {
        key for key in KEYS if before[key] == "r3"
    }


def test_a_hot_key_spills_instead_of_queueing() -> None:
    """One key alone fills all slots of all replicas before anybody waits."""
    among, loads = members(3), Counter[str]()
    for _ in range(12):
        loads[first(among, b"hot", loads)] += 1
    assert set(loads.values()) == {4}


def test_load_is_bounded() -> None:
    """No replica has more than BOUND times the mean of what its slots are, rounded up."""
    among, loads = members(4, slots=16, limit=64), Counter[str]()
    for done in range(1, 33):
        loads[first(among, b"hot", loads)] += 1
        assert max(loads.values()) <= BOUND * done / 4 + 1


def test_new_keys_are_spread_evenly() -> None:
    """Each goes to the idlest one."""
    among, loads = members(4, slots=64, limit=64), Counter[str]()
    for done, key in enumerate(KEYS[:128]):
        loads[first(among, key, loads)] += 1
        assert max(loads.values()) == done // 4 + 1


def test_a_key_goes_where_it_went() -> None:
    """Also where that is not the first in its order, and busier than the mean; not beyond BOUND."""
    among, homes = members(4), Homes()
    usual = first(among, b"key")
    home = homes.order(among, {usual: 4}, b"key")[0].id
    assert home != usual
    assert homes.order(among, {}, b"key")[0].id == home
    busy = {each.id: 2 for each in among} | {home: 3}
    assert homes.order(among, busy, b"key")[0].id == home
    elsewhere = homes.order(among, {home: 3}, b"key")[0].id
    assert elsewhere != home
    assert homes.order(among, {}, b"key")[0].id == elsewhere
    left = [each for each in among if each.id != elsewhere]
    assert homes.order(left, {}, b"key")[0].id == first(left, b"key")


def test_few_keys_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest ones."""
    monkeypatch.setattr("gguf_fleet.routing._MOST_KEYS", 2)
    among, homes = members(4), Homes()
    usual = first(among, b"a")
    home = homes.order(among, {usual: 4}, b"a")[0].id
    homes.order(among, {}, b"b")
    assert homes.order(among, {}, b"a")[0].id == home
    homes.order(among, {}, b"c")
    homes.order(among, {}, b"b")
    assert homes.order(among, {}, b"a")[0].id == usual


def test_beyond_all_slots_the_shortest_queue_is_taken() -> None:
    """Then nobody has a home any more."""
    among = members(3)
    assert first(among, b"key", {"r0": 6, "r1": 5, "r2": 7}) == "r1"


def test_a_full_fleet_has_no_order() -> None:
    """Full is who has as much as it accepts."""
    among = members(2)
    assert order(among, {"r0": 8, "r1": 8}, b"key") == []
    assert [each.id for each in order(among, {"r0": 8, "r1": 7}, b"key")] == ["r1"]
    assert order([], {}, None) == []


def test_without_a_key_the_idlest_is_taken() -> None:
    """By its share of slots: 2 of 8 are less than 1 of 2."""
    among = [*members(1, slots=2), member("big", "http://127.0.0.1:1", slots=8, limit=16)]
    assert first(among, None, {"r0": 1, "big": 2}) == "big"
    assert first(among, None, {"r0": 1, "big": 5}) == "r0"


def test_who_failed_lately_is_asked_last() -> None:
    """It is still asked: nobody else may be there."""
    among = members(3)
    home = first(among, b"key")
    ranked = order(among, {}, b"key", {home})
    assert ranked[-1].id == home
    assert len(ranked) == 3


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.one_of(st.none(), st.binary(max_size=16)),
)
def test_nobody_waits_while_a_slot_is_free(loads: list[int], key: bytes | None) -> None:
    """For any loads, with and without a key; and nobody is asked who is full."""
    among = members(len(loads))
    known = {each.id: load for each, load in zip(among, loads, strict=True)}
    ranked = order(among, known, key)
    assert {each.id for each in ranked} == {name for name, load in known.items() if load < 8}
    if any(load < 4 for load in loads):
        assert known[ranked[0].id] < 4
