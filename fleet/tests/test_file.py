"""fleet.toml: what it may say, and the sentence for what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguf_fleet.errors import UsageError
from gguf_fleet.file import DEMO, FleetReplicas, read_fleet
from gguf_fleet.keys import KeyFile


def written(folder: Path, text: str) -> Path:
    """A fleet.toml of that text."""
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_without_a_file_two_workers_serve_the_demo_model() -> None:
    """The default needs neither a file nor a model."""
    assert read_fleet(None) is DEMO
    (model,) = DEMO.models.values()
    assert (model.file, model.replicas) == (None, 2)
    assert (DEMO.endpoint.host, DEMO.endpoint.port, DEMO.keys) == ("127.0.0.1", 8000, None)


def test_all_that_a_file_can_say(tmp_path: Path) -> None:
    """Paths are relative to the file; a catalogue's name stays a name; the key is read."""
    (tmp_path / "keys").write_text("# of all clients\nsecret\n")
    (tmp_path / "own.gguf").write_bytes(b"")
    path = written(
        tmp_path,
        """
        [fleet]
        host = "0.0.0.0"
        port = 9000
        api_key_file = "keys"
        [models.chat]
        file = "qwen3-4b:Q4_K_M"
        options = ["--parallel", "8", "--jinja"]
        replicas = 3
        affinity = "session"
        [models."own:q4"]
        file = "own.gguf"
        """,
    )
    fleet = read_fleet(path)
    assert (fleet.endpoint.host, fleet.endpoint.port, fleet.keys) == (
        "0.0.0.0",
        9000,
        KeyFile(str(path.parent / "keys"), ("secret",), ("",)),
    )
    chat, own = fleet.models["chat"], fleet.models["own:q4"]
    assert (chat.file, chat.replicas, chat.affinity) == ("qwen3-4b:Q4_K_M", 3, "session")
    assert chat.options == ("--parallel", "8", "--jinja")
    assert (own.file, own.replicas, own.affinity) == (str(tmp_path / "own.gguf"), 1, "prefix")
    assert "secret" not in repr(fleet)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.a]\nreplica = 2", "line 2, [models.a]: unknown field `replica`."),
        ("[models.a]\nreplicas = 0", "line 2, [models.a]: replicas: expected `int` >= 1."),
        ("[models.a]\n\nreplicas = 'two'", "line 3, [models.a]: replicas: expected `int | object`"),
        ("[models.a]\nreplicas = {max = 0}", "line 2, [models.a]: replicas: expected `int` >= 1."),
        ("[models.a]\nreplicas = {min = 1}", "replicas: object missing required field `max`."),
        (
            "[models.a]\nreplicas = {min = 3, max = 2}",
            "line 2, [models.a]: replicas: min is larger than max.",
        ),
        (
            "[models.a]\nreplicas = {max = 2, most = 3}",
            "line 2, [models.a]: replicas: unknown field `most`.",
        ),
        ("[models.a]\naffinity = 'sticky'", "line 2, [models.a]: affinity: invalid enum value"),
        ("[models.a]\n[models.b]\nnodes = 2", "line 3, [models.b]: unknown field `nodes`."),
        ("[models.a]\nrpc_nodes = 16", "line 2, [models.a]: rpc_nodes: expected `int` <= 15."),
        (
            "[models.a]\nrpc_nodes = 1\noptions = ['--rpc', 'h:1']",
            "line 3, [models.a]: options: --rpc is for the fleet to say.",
        ),
        ("[fleet]\nports = 1\n[models.a]", "line 2, [fleet]: unknown field `ports`."),
        ("[fleet]\nport = 70000\n[models.a]", "line 2, [fleet]: port: expected `int` <= 65535."),
        ("[fleet]\nhost = 'a b'\n[models.a]", "line 2, [fleet]: host must be the name"),
        (
            "[fleet]\nhost = 'unix:/tmp/fleet.sock'\n[models.a]",
            "line 2, [fleet]: host: a gateway listens on TCP and has no Unix sockets;",
        ),
        (
            "[fleet]\nssl_cert_file = 'a'\n[models.a]",
            "line 2, [fleet]: unknown field `ssl_cert_file`.",
        ),
        (
            f"[models.a]\noptions = ['--ssl-cert-file={__file__}', '--ssl-key-file={__file__}']",
            "line 2, [models.a]: options: --ssl-cert-file has no place here, because gateways ask",
        ),
        (
            "[models.a]\noptions = ['--host', 'unix:/tmp/worker.sock']",
            "line 2, [models.a]: options: --host is for the fleet to say.",
        ),
        ("[fleet]\napi_key_file = 'no'\n[models.a]", "line 2, [fleet]: api_key_file cannot be"),
        ("[model.a]", "line 1, [model]: there is no table [model]."),
        ("", "[models]: no model is named: write [models.NAME]."),
        ("[models.'a/b']", "line 1, [models.a/b]: a model's name is 1 to 64"),
        ("[models.a", "is no TOML file"),
        (
            "[models.a]\nreplicas = 1\noptions = ['--paralel', '8']",
            "line 3, [models.a]: options: Unknown option --paralel.",
        ),
        (
            "[models.a]\noptions = ['--parallel', 'many']",
            "line 2, [models.a]: options: --parallel must be",
        ),
        (
            "[models.a]\noptions = ['--port', '1']",
            "line 2, [models.a]: options: --port is for the fleet to say.",
        ),
        (
            "[models.a]\noptions = ['--fair-by', 'connection']",
            "line 2, [models.a]: options: --fair-by connection would take all clients",
        ),
        (
            "[models.a]\noptions = ['-a', 'b']",
            "line 2, [models.a]: options: --alias is for the fleet to say.",
        ),
        ("[models.a]\noptions = ['--help']", "line 2, [models.a]: options: --help is no option"),
        (
            "[models.a]\noptions = ['--draft', 'model']",
            "line 2, [models.a]: options: --draft model needs a draft model.",
        ),
    ],
)  # fmt: skip
def test_mistakes(text: str, said: str, tmp_path: Path) -> None:
    """One sentence names the file, the line, the table and the field."""
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_fleet(path)
    assert str(raised.value).startswith(str(path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_replicas_that_come_and_go(tmp_path: Path) -> None:
    """Bounds instead of a number."""
    text = "replicas = { min = 0, max = 4, idle = 30, first_token = 2.5 }"
    (model,) = read_fleet(written(tmp_path, f"[models.a]\n{text}")).models.values()
    assert model.replicas == FleetReplicas(min=0, max=4, idle=30, first_token=2.5)
    (model,) = read_fleet(written(tmp_path, "[models.a.replicas]\nmax = 2")).models.values()
    assert model.replicas == FleetReplicas(min=1, max=2, idle=300, first_token=5)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The sentence says why."""
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_fleet(tmp_path / "fleet.toml")
