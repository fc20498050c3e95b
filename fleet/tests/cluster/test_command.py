"""`worker fleet serve` from its start to its end, on a cluster of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support import http
from tests.support.programs import Program, until

KEY = "edge"


def test_a_fleet_of_two_models(tmp_path: Path) -> None:
    """It serves until it is told to stop; then it leaves with 0, and its workers with it."""
    (tmp_path / "keys").write_text(KEY)
    file = tmp_path / "fleet.toml"
    options = 'options = ["-c", "1024", "--cache-ram", "0"]'
    file.write_text(
        f'[fleet]\nport = 8766\napi_key_file = "keys"\n[models.a]\n{options}\n[models.b]\n{options}'
    )
    process = Program("-m", "worker", "fleet", "serve", str(file))
    try:
        until(lambda: any(" ready " in line or "error:" in line for line in process.lines), 120)
        assert process.process.poll() is None, process.lines
        url, headers = "http://127.0.0.1:8766", {"authorization": f"Bearer {KEY}"}
        assert http.get(url + "/v1/models").status_code == 401
        models = http.get(url + "/v1/models", headers=headers).json()["data"]
        assert [each["id"] for each in models] == ["a", "b"]
        pids: list[int] = []
        for name in "ab":
            body = {"model": name, "prompt": "Once", "max_tokens": 2}
            done = http.post(url + "/v1/completions", json=body, headers=headers)
            assert done.json()["model"] == name
            info = http.get(f"{url}/models/{name}/info", headers=headers).json()
            pids.append(info["pid"])
        process.process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, process.lines
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    finally:
        process.end()


_PROXIES = """
import sys, ray
from ray import serve
from gguf_fleet.errors import UsageError
from gguf_fleet.app import check_proxies
from gguf_fleet.file import FleetEndpoint
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
serve.start(proxy_location=sys.argv[1], http_options={"port": 8767})
for port in (8766, 8767):
    try:
        check_proxies(FleetEndpoint(port=port))
        print("free")
    except UsageError:
        print("taken")
serve.shutdown()
"""


def test_a_port_of_rays_proxies() -> None:
    """It is theirs where they run, and only there: their options name it in any case."""
    found: list[list[str]] = []
    for location in ("Disabled", "HeadOnly"):
        command = [sys.executable, "-c", _PROXIES, location]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        # Ray writes there too.
        found.append([word for word in done.stdout.split() if word in ("free", "taken")])
    assert found == [["free", "free"], ["free", "taken"]]
