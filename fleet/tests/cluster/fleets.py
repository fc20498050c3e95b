"""What the tests of a fleet on Ray look at, and streams that run while something happens."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import httpx

from gguf_fleet.file import Fleet, FleetEndpoint, FleetModel
from tests.support import http
from tests.support.programs import until

PORT = 8765
# Without drafts each step is one token, so a stream runs as long as its tokens take.
OPTIONS = ("-c", "2048", "-np", "2", "--cache-ram", "0", "--queue-size", "1", "--draft", "none")
#: A node's death takes seconds to notice, and a new process some more; a busy machine longer.
PATIENCE_S = 120.0


def fleet_of(replicas: int, gateways: Literal["head", "every node"] = "head") -> Fleet:
    """So many workers of the demo model, each request to the idlest."""
    model = FleetModel(options=OPTIONS, replicas=replicas, affinity="none")
    return Fleet(endpoint=FleetEndpoint(port=PORT, gateways=gateways), models={"demo": model})


def planned(address: str, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What `worker fleet plan` says of a file with this text in the cluster at `address`."""
    file = folder / "fleet.toml"
    file.write_text(text)
    command = [sys.executable, "-m", "worker", "fleet", "plan", str(file), "--address", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def replicas(url: str) -> dict[str, dict[str, Any]]:
    """The replicas that the gateway knows, by id."""
    try:
        view = http.get(url + "/fleet").json()
    except httpx.HTTPError:  # a gateway that is made anew
        return {}
    return {
        each["id"]: each
        for each in view.get("models", {"demo": {"replicas": []}})["demo"]["replicas"]
    }


def pids(url: str) -> dict[str, int]:
    """The process of each replica's worker."""
    return {name: http.get(f"{url}/replicas/{name}/info").json()["pid"] for name in replicas(url)}


def wait_for(url: str, count: int, *, without: str = "") -> None:
    """Until so many replicas are there that answer, `without` not among them."""

    def are_there() -> bool:
        found = replicas(url)
        return (
            len(found) == count
            and without not in found
            and all(each["well"] for each in found.values())
        )

    until(are_there, PATIENCE_S)


class Stream:
    """A stream that is read in a thread.

    text    what came so far
    error   the event that ended it early, or None
    """

    def __init__(self, url: str, prompt: str, max_tokens: int = 100) -> None:
        self.prompt = prompt
        self.text = ""
        self.error: str | None = None
        self.begun = threading.Event()
        body = {
            "model": "demo", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
            "ignore_eos": True, "stream": True,
        }  # fmt: skip
        self._thread = threading.Thread(target=self._read, args=(url, body), daemon=True)
        self._thread.start()

    def _read(self, url: str, body: dict[str, Any]) -> None:
        # Without a gateway it breaks off.
        with (
            contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError),
            http.stream("POST", url + "/v1/completions", json=body) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    if "error" in event:
                        self.error = event["error"]["code"]
                    else:
                        self.text += event["choices"][0]["text"]
                    self.begun.set()

    def end(self) -> str:
        """Wait for its end; its text."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.text


def two_streams(url: str) -> list[Stream]:
    """Two that run, one on each of two replicas."""
    streams = [Stream(url, prompt) for prompt in ("Once upon a time", "One day, Anna found")]
    for each in streams:
        assert each.begun.wait(PATIENCE_S)
    until(lambda: {each["slots_processing"] for each in replicas(url).values()} == {1})
    return streams
