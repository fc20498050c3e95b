"""Which devices a worker computes on: what was asked for, found among what is there."""

from __future__ import annotations

import msgspec

from worker.errors import ResidencyError, UsageError
from worker.llama.library import Device
from worker.machine import DeviceMemory
from worker.settings import Settings

# llama.cpp's names of backends -> ours
_BACKENDS = {"mtl": "metal"}
_UNIFIED = ("cpu", "metal")


class Devices(msgspec.Struct, frozen=True):
    """Where the model goes. Without devices it goes to the CPU.

    chosen    devices to offload to; empty: none
    explicit  whether they were named, so that llama.cpp must be told
    number    of the first among the machine's devices of its backend
    """

    chosen: tuple[Device, ...] = ()
    explicit: bool = False
    number: int = 0

    @property
    def backend(self) -> str:
        """cpu, cuda, metal, vulkan, ..."""
        return backend_of(self.chosen[0]) if self.chosen else "cpu"

    @property
    def is_unified(self) -> bool:
        """Whether the model lies in the memory that the CPU uses."""
        return all(backend_of(d) in _UNIFIED or d.kind == "igpu" for d in self.chosen)

    @property
    def memory(self) -> tuple[DeviceMemory, ...]:
        """What is free on the chosen devices."""
        return tuple(
            DeviceMemory(name=d.name, available=d.memory_free, unified=self.is_unified)
            for d in self.chosen
        )


def backend_of(device: Device) -> str:
    """The backend's name as `--backend` takes it."""
    name = device.backend.lower()
    return _BACKENDS.get(name, name)


def choose_devices(settings: Settings, there: tuple[Device, ...]) -> Devices:
    """What `--backend` and `--device` say of the devices that are there.

    Raises UsageError for a device that is not there or contradicts the backend, ResidencyError
    where the machine has none of the backend's devices.
    """
    pool = tuple(device for device in there if device.offloads)
    if settings.backend is not None:
        pool = _of_kind(settings.backend, there)
        if not pool:
            raise ResidencyError(
                f"This machine has no {settings.backend} device.",
                hint="See `worker version`.",
            )
    named = settings.device
    if [name.lower() for name in named] == ["none"]:
        chosen = ()
    elif named:
        chosen = tuple(_find(name, pool or there, there) for name in named)
        strangers = [d.name for d in chosen if settings.backend and d not in pool]
        if strangers:
            raise UsageError(f"{strangers[0]} is no {settings.backend} device.")
    else:
        chosen = pool
    offloading = tuple(device for device in chosen if device.offloads)
    if offloading and len(offloading) < len(chosen):
        raise UsageError("--device names the CPU beside other devices.", hint="Leave it out.")
    if settings.n_gpu_layers and not offloading and (named or settings.backend):
        raise UsageError(
            "--n-gpu-layers needs a GPU, and --device or --backend rules them out.",
            hint="Leave one of them out.",
        )
    buffers = ("CPU", *(device.name for device in offloading))
    for _, device in settings.override_tensor:
        if device not in buffers:
            raise UsageError(
                f"--override-tensor names {device!r}, where nothing is placed.",
                hint=f"Name one of these: {', '.join(buffers)}.",
            )
    number = 0
    if offloading:
        number = _of_kind(backend_of(offloading[0]), there).index(offloading[0])
    return Devices(offloading, explicit=bool(named or settings.backend), number=number)


def _of_kind(kind: str, there: tuple[Device, ...]) -> tuple[Device, ...]:
    if kind == "gpu":
        return tuple(device for device in there if device.offloads)
    return tuple(device for device in there if backend_of(device) == kind)


def _find(name: str, pool: tuple[Device, ...], there: tuple[Device, ...]) -> Device:
    """By name, by number in the pool, or by kind and number."""
    kind, _, number = name.rpartition(":")
    if number.isdecimal():
        candidates = _of_kind(kind.lower(), there) if kind else pool
        if int(number) < len(candidates):
            return candidates[int(number)]
    for device in there:
        if device.name.lower() == name.lower():
            return device
    raise UsageError(
        f"There is no device {name!r}.",
        hint=f"Name one that this build sees: {', '.join(device.name for device in there)}.",
    )
