"""`worker fleet serve` from its start to its end, on a cluster of its own."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support import http
from tests.support.programs.processes import WorkerProcess, until

KEY = "edge"


def test_a_fleet_of_two_models(tmp_path: Path) -> None:
    """It serves until it is told to stop; then it leaves with 0, and its workers with it."""
    (tmp_path / "keys").write_text(KEY)
    file = tmp_path / "fleet.toml"
    options = 'options = ["-c", "1024", "--cache-ram", "0"]'
    file.write_text(
        f'[fleet]\nport = 8766\napi_key_file = "keys"\n[models.a]\n{options}\n[models.b]\n{options}'
    )
    process = WorkerProcess("fleet", "serve", str(file))
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
