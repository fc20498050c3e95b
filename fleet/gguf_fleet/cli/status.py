"""worker fleet status: models, replicas and load of a running fleet."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

import aiohttp
from rich.table import Table

from gguf_fleet.cli.console import plain, write, write_json
from gguf_fleet.errors import FleetError, UsageError
from gguf_fleet.keys import key_file
from gguf_fleet.text import human_bytes

_TIMEOUT_S = 5.0


class StatusError(FleetError):
    """The fleet does not answer, or answers something else."""

    code = "NOT_WATCHED"


def run(arguments: argparse.Namespace) -> int:
    """Print what the fleet says. Raises UsageError, StatusError."""
    url = arguments.url if "://" in arguments.url else f"http://{arguments.url}"
    url = url.rstrip("/")
    said = asyncio.run(_ask(url, _key(arguments)))
    if arguments.json:
        write_json(said)
    else:
        write(f"{url}: {said['status']}", _table(said["models"]))
    return 0


def _key(arguments: argparse.Namespace) -> str | None:
    key: str | None = arguments.api_key
    if key is None and arguments.api_key_file is not None:
        try:
            key = key_file(arguments.api_key_file).keys[0]
        except ValueError as error:
            raise UsageError(f"--api-key-file {error}.") from None
    return key or os.environ.get("LLAMA_API_KEY")


async def _ask(url: str, key: str | None) -> Any:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url}/fleet", headers=headers) as answer,
        ):
            if answer.status in (401, 403):
                raise StatusError(
                    f"{url} has another key." if key else f"{url} asks for a key.",
                    hint="Give it with --api-key-file, --api-key or LLAMA_API_KEY.",
                )
            if answer.status != 200:
                raise StatusError(f"{url} has no /fleet: it answers {answer.status}.")
            return await answer.json()
    except aiohttp.InvalidURL:
        raise UsageError(f"{url!r} is no address.", hint="Write http://HOST:PORT.") from None
    except TimeoutError:
        raise StatusError(f"{url} says nothing for {_TIMEOUT_S:.0f} s.") from None
    except OSError as error:
        raise StatusError(
            f"No fleet answers at {url}: {error.strerror or error}.",
            hint="Start one with `worker fleet serve`, or name its address.",
        ) from None
    except (aiohttp.ClientError, ValueError):
        raise StatusError(f"{url} answers something that is not a fleet's.") from None


def _table(models: dict[str, Any]) -> Table:
    table = Table(box=None)
    for name in ("model", "replica", "node", "runs", "waits", "sequences", "memory", ""):
        right = name in ("runs", "waits", "sequences", "memory")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for name, model in models.items():
        for each in model["replicas"]:
            table.add_row(
                plain(name), plain(each["id"]), plain(each["node"][:8]),
                str(each["slots_processing"]), str(each["queue_depth"]), str(each["slots"]),
                human_bytes(each["memory_bytes"]), "" if each["well"] else "does not answer",
            )  # fmt: skip
        if not model["replicas"]:
            why = "sleeps" if model["wanted"] == 0 else "no replica is ready"
            table.add_row(plain(name), "-", "-", "-", "-", "-", "-", why)
        more = (model["wanted"] or 0) - len(model["replicas"])
        if more > 0:
            table.add_row(plain(name), "-", "-", "-", "-", "-", "-", f"{more} more to come")
    return table
