"""The GPUs of a machine, as a worker's build sees them there.

Asked of a process that ends: a library that has looked at a GPU keeps memory on it.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec

from worker.errors import BackendError
from worker.lifecycle.devices import Devices, SeenDevices

_PATIENCE_S = 120.0
# Where a GPU has been given to somebody, its free memory says nothing of what the next one gets.
# Then all of it counts but this, for the driver and a process's own state. It was not measured.
_HELD_BY_DRIVER = 512 << 20


class ProbeError(BackendError):
    """The worker of a machine does not say which devices it sees."""

    default_code = "NO_DEVICES"


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


def devices_here(command: tuple[str, ...] = ("-m", "worker")) -> tuple[FleetDevice, ...]:
    """Those of this machine, in the worker's order. Raises ProbeError.

    command: of this Python, to start a worker
    """
    words = [sys.executable, *command, "version", "--json"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_PATIENCE_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ProbeError(f"`worker version` says nothing for {_PATIENCE_S:.0f} s.") from None
    try:
        seen = msgspec.json.decode(done.stdout, type=SeenDevices)
    except msgspec.DecodeError:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProbeError(
            f"`worker version` left with code {done.returncode}: {last or 'it said nothing'}"
        ) from None
    return tuple(
        FleetDevice(
            each.name, each.description, each.memory_total, each.memory_free, each.memory_free,
            Devices((each,)).is_unified,
        )
        for each in seen.devices
        if each.offloads
    )  # fmt: skip
