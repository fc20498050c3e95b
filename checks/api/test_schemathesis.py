"""schemathesis holds a worker against its own description: `make check SUITE=api`.

For each path and method 100 requests, right and wrong ones, beside those that it derives from the
limits one by one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.models.infilling import write_infilling
from tests.support.programs.processes import Server, serving

# Set by `make check SUITE=api`.
VENV = os.environ.get("API_VENV")
EXAMPLES = os.environ.get("API_EXAMPLES", "100")
CONFIG = Path(__file__).with_name("schemathesis.toml")
TIMEOUT_S = 3600.0
KEY = "secret"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "ignored_auth",
)

pytestmark = pytest.mark.skipif(VENV is None, reason="`make check SUITE=api` installs and runs it")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The demo model with infill, in a context so small that no answer is long."""
    model = write_infilling(tmp_path_factory.mktemp("demo"))
    options = ("-t", "1", "--ctx-size", "256", "-np", "4", "--queue-size", "256", "--api-key", KEY)
    with serving("--model", model, *options) as running:
        yield running


def test_contract(server: Server, tmp_path: Path) -> None:
    """No answer is a server's error, and each is as described; wrong bodies are refused."""
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    command = [
        Path(VENV or "") / "bin/schemathesis", "--config-file", CONFIG,
        "run", server.url + "/openapi.json",
        "--mode", "all", "--max-examples", EXAMPLES, "--checks", ",".join(CHECKS), "--seed", "1",
        "--header", f"Authorization: Bearer {KEY}", "--exclude-path-regex", "shutdown",
        "--continue-on-failure", "--generation-database", "none",
        "--request-timeout", "120", "--workers", "4",
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, command)),
        cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4_000:]
    assert server.health()["status"] == "ok"
