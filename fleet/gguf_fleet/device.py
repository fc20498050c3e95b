"""The GPUs of a machine, as a worker's build sees them there.

Asked of a process that ends: a library that has looked at a GPU keeps memory on it.
"""

from __future__ import annotations

import msgspec

from gguf_fleet.command import WORKER, Command, version

# Kinds of devices that hold layers, and backends whose devices use the host's memory.
_OFFLOADING = ("gpu", "igpu")
_UNIFIED = ("mtl", "metal")
# Where a GPU has been given to somebody, its free memory says nothing of what the next one gets.
# Then all of it counts but this, for the driver and a process's own state. It was not measured.
_HELD_BY_DRIVER = 512 << 20


class FleetDevice(msgspec.Struct, frozen=True):
    """One GPU; bytes.

    total, free  as the build says them
    room         what a plan may take of it
    unified      it uses the memory of its machine
    """

    name: str
    description: str
    total: int
    free: int
    room: int
    unified: bool = False

    def whole(self) -> FleetDevice:
        """The same where somebody uses it who will have left when it is given away."""
        room = max(self.free, self.total - _HELD_BY_DRIVER)
        return msgspec.structs.replace(self, room=room)


def devices_here(command: Command = WORKER) -> tuple[FleetDevice, ...]:
    """Those of this machine, in the worker's order. Raises FleetError."""
    return tuple(
        FleetDevice(
            each.name, each.description, each.memory_total, each.memory_free, each.memory_free,
            each.kind == "igpu" or each.backend.lower() in _UNIFIED,
        )
        for each in version(command).devices
        if each.kind in _OFFLOADING
    )  # fmt: skip
