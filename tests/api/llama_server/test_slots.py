"""Slots of llama-server: saved to a file, restored under another number, erased."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.models.architectures import WRITERS
from tests.support.programs.processes import Server, serving

STORY: dict[str, Any] = {
    "prompt": "Once upon a time there was a goose that lived by the sea. " * 8, "n_predict": 6,
    "temperature": 0, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def saving(tiny: Path, folder: Path) -> Generator[Server]:
    options = ("--ctx-size", "2048", "-np", "2", "--slot-save-path", str(folder))
    with serving("--model", tiny, *options) as server:
        yield server


def act(server: Server, number: int, action: str, **body: Any) -> Any:
    return server.post(body, f"/slots/{number}?action={action}").json()


def write(server: Server, **fields: Any) -> dict[str, Any]:
    answer = server.post(STORY | fields, "/completion")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_saved_erased_and_restored(saving: Server, folder: Path, tiny: Path) -> None:
    """What a slot has said is known again after it was erased, also by another worker."""
    first = write(saving, id_slot=1)
    assert (first["id_slot"], first["timings"]["cache_n"]) == (1, 0)
    usual = write(saving, id_slot=1)["timings"]["cache_n"]
    assert usual > 100
    saved = act(saving, 1, "save", filename="a.bin")
    total = first["tokens_evaluated"] + first["tokens_predicted"]
    assert total - 1 <= saved["n_saved"] <= total
    assert saved["n_written"] == (folder / "a.bin").stat().st_size
    assert (folder / "a.bin").stat().st_mode & 0o077 == 0
    assert saved["timings"]["save_ms"] > 0
    assert act(saving, 1, "erase")["n_erased"] == total
    assert write(saving, id_slot=1)["timings"]["cache_n"] == 0
    act(saving, 1, "erase")
    restored = act(saving, 0, "restore", filename="a.bin")
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])
    again = write(saving)
    assert usual - 128 < again["timings"]["cache_n"] <= usual
    assert again["content"] == first["content"]
    assert act(saving, 0, "save", filename="b.bin")["n_saved"] == saved["n_saved"]
    options = ("--ctx-size", "2048", "-np", "2", "--slot-save-path", str(folder))
    with serving("--model", tiny, *options) as other:
        act(other, 1, "restore", filename="a.bin")
        told = write(other, id_slot=1)
        assert told["content"] == first["content"]
        assert told["timings"]["cache_n"] == again["timings"]["cache_n"]


# Prompts that a slot's file is good for: as it is, with more behind it, and with another end.
OTHERS = {"same": "", "longer": " And then?", "asked again": " But who was it that came by?"}


@pytest.mark.parametrize("kind", ["gemma3", "granitehybrid", "lfm2-window", "rwkv7"])
def test_checkpoints_travel(kind: str, tmp_path: Path) -> None:
    """What a running worker takes from its cache another one takes from the file, but for three
    tokens that a window's cells may have more."""
    path = WRITERS[kind](tmp_path / "model.gguf")
    options = ("--model", path, "--ctx-size", "4096", "-np", "2", "--slot-save-path", tmp_path)

    def told(server: Server) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for name, more in OTHERS.items():
            answer = write(server, prompt=STORY["prompt"] + more, ignore_eos=True)
            found[name] = answer["timings"]["cache_n"], answer["content"]
        return found

    with serving(*options) as first:
        write(first, id_slot=1, ignore_eos=True)
        saved = act(first, 1, "save", filename="a.bin")
        usual = told(first)
        # What others went on with is not in the file.
        assert act(first, 1, "save", filename="b.bin")["n_saved"] == saved["n_saved"]
    for name in ("a.bin", "b.bin"):
        with serving(*options) as other:
            assert act(other, 0, "restore", filename=name)["n_restored"] == saved["n_saved"]
            for case, (count, text) in told(other).items():
                assert count >= usual[case][0] - 3 > 100, case
                assert text == usual[case][1]


BAD_NAMES = ["../a.bin", "/etc/passwd", "a/b", "", ".", "..", "\\x", "a\u0000b", "x" * 300, None]


@for_each("name", BAD_NAMES)
def test_names_stay_in_the_folder(saving: Server, name: str | None) -> None:
    """Nothing outside of it is read or written."""
    write(saving, id_slot=0)
    for action in ("save", "restore"):
        answer = saving.post({"filename": name}, f"/slots/0?action={action}")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "filename"


def test_foreign_files(saving: Server, folder: Path) -> None:
    """A file that is not ours, is damaged, of another model, a link or a pipe: a sentence."""
    write(saving, id_slot=0)
    act(saving, 0, "save", filename="good")
    good = (folder / "good").read_bytes()
    bad = {
        "none": b"", "text": b"not ours" * 99, "short": good[:-1], "long": good + b"x",
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
        "other": good[:9] + bytes([good[9] ^ 1]) + good[10:],
        "many": good[:44] + b"\xff\xff\xff\x7f" + good[48:],
        "older": good[:6] + b"\x00\x01" + good[8:],
    }  # fmt: skip
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    (folder / "link").symlink_to(folder / "good")
    for name in (*bad, "link", "missing"):
        answer = saving.post({"filename": name}, "/slots/0?action=restore")
        assert answer.status_code == 400, name
        message = answer.json()["error"]["message"]
        assert "cannot be restored" in message
        assert ("save it again" in message) == (name == "older")
    assert write(saving)["tokens_predicted"] == 6


@pytest.mark.parametrize("asked", ["99999999999999999999", "9", "-1", "first", "9" * 500])
def test_a_slot_that_is_not_there(saving: Server, asked: str) -> None:
    """The error names what was asked for, and which there are."""
    answer = saving.post({"filename": "a"}, f"/slots/{asked}?action=save")
    assert answer.status_code == 400
    told = answer.json()["error"]["message"]
    assert told == f"There is no slot {asked[:40]}. Name one from 0 to 1."


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="a full disk is made with prlimit")
def test_a_folder_that_takes_nothing(tiny: Path, tmp_path: Path) -> None:
    """A full disk and a folder that is gone are the server's failures: each has a next step, and
    leaves no part of a file. A name that is a folder's is the client's."""
    options = ("--ctx-size", "2048", "-np", "1", "--slot-save-path", str(tmp_path / "slots"))
    with serving("--model", tiny, *options) as server:
        write(server, id_slot=0)
        (tmp_path / "slots" / "folder").mkdir()
        taken = server.post({"filename": "folder"}, "/slots/0?action=save")
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        full = server.post({"filename": "a.bin"}, "/slots/0?action=save")
        left = [path.name for path in (tmp_path / "slots").iterdir()]
        shutil.rmtree(tmp_path / "slots")
        gone = server.post({"filename": "a.bin"}, "/slots/0?action=save")
    assert taken.status_code == 400
    assert taken.json()["error"]["param"] == "filename"
    assert (full.status_code, full.json()["error"]["code"]) == (507, "storage_full")
    assert "--slot-save-path is full. Free some room" in full.json()["error"]["message"]
    assert left == ["folder"]
    assert gone.status_code == 503
    assert "Make the folder writable again." in gone.json()["error"]["message"]


def test_refused(saving: Server, server: Server) -> None:
    """Slots and actions that there are not, a slot that nobody named, no folder, other pages."""
    for path in ("/slots/9?action=save", "/slots/0?action=eat", "/slots/0"):
        assert saving.post({"filename": "a"}, path).status_code == 400
    assert saving.post(STORY | {"id_slot": 9}, "/completion").status_code == 400
    assert server.post({"filename": "a"}, "/slots/3?action=save").status_code == 501
    elsewhere = {"origin": "https://elsewhere.example"}
    answer = http.post(saving.url + "/slots/0?action=erase", json={}, headers=elsewhere)
    assert answer.status_code == 403
