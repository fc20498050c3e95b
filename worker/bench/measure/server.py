"""A `worker serve` process with the settings of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from worker.lifecycle import server_process
from worker.lifecycle.server_process import ServerAddress
from worker.settings import OPTIONS, Settings

_LAST_EVENT = "large pages"  # after it nothing in memory moves
# The settings of a run that its server gets; the others do not bear on speed or memory.
_TOLD = frozenset(
    "ctx_size parallel threads threads_batch batch_size ubatch_size backend n_gpu_layers "
    "device tensor_split split_mode main_gpu cache_type_k cache_type_v flash_attn mmap "
    "draft max_stall_ms decisions decisions_orders decisions_calibration".split()
)


@contextlib.contextmanager
def model_server(model: Path, settings: Settings) -> Generator[ServerAddress]:
    """A server that is ready, its memory in large pages; stopped afterwards, whatever happens.

    Raises BackendError.
    """
    words = ["--model", str(model), *arguments_of(settings)]
    environment = server_process.clean_environment()
    with server_process.server_process(words, environment, until=_LAST_EVENT) as address:
        yield address


def arguments_of(settings: Settings) -> list[str]:
    """The command line's words for the settings that bear on speed and memory; defaults none."""
    default, words = Settings(), dict[str, str]()
    flags: dict[str, str] = {}
    for option in reversed(OPTIONS):  # the first option of a field is the plain one
        flags[option.field] = option.flags[0]
    for field in sorted(_TOLD):
        value = getattr(settings, field)
        if value == getattr(default, field):
            continue
        if isinstance(value, tuple):
            words[flags[field]] = ",".join(map(str, value))  # pyright: ignore
        elif isinstance(value, bool):
            words[flags[field]] = "on" if value else "off"
        else:
            words[flags[field]] = str(value)
    if settings.lora:
        words["--lora-scaled"] = ",".join(f"{each.file}:{each.scale}" for each in settings.lora)
    return [word for pair in words.items() for word in pair]
