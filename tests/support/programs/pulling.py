"""A machine that pulls models from a Hub on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.programs.hub import Hub
from tests.support.programs.processes import ended

REPO = "org/tiny-GGUF"
CATALOG = f"""
[tiny]
repo = "{REPO}"
license = "mit"
parameters = 1
context = 512
quants = ["Q4_0", "Q8_0", "F16"]
file = "tiny.{{QUANT}}.gguf"

[tiny.files]
F32 = "tiny-F32-00001-of-00002.gguf"
"""
TIMEOUT_S = 60


class Machine:
    """Commands on a machine whose cache and catalogue lie in `home`."""

    def __init__(self, hub: Hub, home: Path) -> None:
        self.hub, self.home = hub, home
        self.catalog = home / "own.toml"
        self.repo = home / "hub" / "models--org--tiny-GGUF"

    def env(self, **more: str) -> dict[str, str]:
        """The environment of its commands."""
        return self.hub.environment(self.home, GGUF_WORKER_MODELS=str(self.catalog), **more)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on by itself."""
        return subprocess.Popen(
            [sys.executable, "-m", "worker", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env(),
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command, ended."""
        return ended(*words, env=self.env(**more))

    def pulled(self, *words: str) -> list[dict[str, Any]]:
        """What `worker pull --json` says."""
        done = self.run("pull", *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *words: str, **more: str) -> str:
        """The one line on stderr that begins with `error:`, of a command that fails."""
        done = self.run(*words, **more)
        assert done.returncode != 0
        assert done.stdout == ""
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, done.stderr
        assert "Traceback" not in done.stderr
        return errors[0]

    def usable(self) -> list[str]:
        """Names of files that count as downloaded."""
        return sorted(path.name for path in self.repo.glob("snapshots/*/*"))
