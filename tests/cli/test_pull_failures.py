"""`worker pull` where the network, the Hub, the disk or the name is not as it should be."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs.hub import TOKEN
from tests.support.programs.processes import ended, until
from tests.support.programs.pulling import CATALOG, REPO, TIMEOUT_S, Machine
from worker.demo import MODEL_PATH


def test_connections_that_break_are_picked_up(large: Machine) -> None:
    """Two connections cut in the middle of the file cost only what was not yet on the disk."""
    large.hub.troubles.cuts = [3 << 20, 2 << 20]
    (model,) = large.pulled("tiny:Q8_0")
    ranges = [asked.headers.get("range") for asked in large.hub.of("cdn", "GET")]
    assert len(ranges) == 3
    assert ranges[0] is None
    first, second = (int((asked or "").removeprefix("bytes=")[:-1]) for asked in ranges[1:])
    assert 0 < first <= 3 << 20
    assert first < second <= first + (2 << 20)
    assert Path(model["path"]).read_bytes() == MODEL_PATH.read_bytes()


def test_a_server_that_sends_too_much_is_given_up(machine: Machine) -> None:
    """A size that the Hub has wrong must not be fetched for ever; nothing is left of it."""
    machine.hub.troubles.claimed = 100
    done = machine.run("pull", "tiny:Q4_0")
    assert done.returncode == 1
    assert "shorter or longer than the Hub had announced" in done.stderr
    assert len(machine.hub.of("cdn", "GET")) <= 6
    assert machine.usable() == []


def test_a_page_instead_of_the_file_is_not_gone_on_from(machine: Machine) -> None:
    """A login page is called one, at once; its bytes do not become the begin of a model that is
    fetched later."""
    machine.hub.troubles.replace = b"\n<!doctype HTML><html>log in</html>"
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith(
        "error: NOT_THE_FILE: The download of tiny.Q4_0.gguf is a web page. Check"
    )
    assert len(machine.hub.of("cdn", "GET")) == 1
    machine.hub.troubles.replace = None
    done = machine.run("pull", "tiny:Q4_0")
    assert done.returncode == 0, done.stderr


def test_a_page_instead_of_the_rest_keeps_what_is_here(large: Machine) -> None:
    """A login page in the place of a file's rest is called one; the bytes before it stay."""
    large.hub.troubles.stall_at = 3 << 20
    pulling = large.start("pull", "tiny:Q8_0")
    assert large.hub.stalled.wait(60)
    (partial,) = large.repo.glob("blobs/*.partial")
    until(lambda: partial.stat().st_size >= 2 << 20)
    pulling.kill()
    pulling.communicate()
    large.hub.troubles.stall_at = None
    have = partial.read_bytes()
    large.hub.troubles.no_ranges = True
    for page in (b"<html>log in</html>", b"\n<!doctype HTML>" + bytes(9 << 20), b'{"error": "x"}'):
        large.hub.troubles.replace = page
        error = large.refused("pull", "tiny:Q8_0")
        assert error.startswith("error: NOT_THE_FILE: The download of tiny.Q8_0.gguf is ")
        assert partial.read_bytes() == have
    large.hub.troubles.replace, large.hub.troubles.no_ranges = None, False
    (model,) = large.pulled("tiny:Q8_0")
    assert model["fetched_bytes"] == MODEL_PATH.stat().st_size - len(have)


def test_a_home_that_cannot_be_written_names_the_variable(machine: Machine, tmp_path: Path) -> None:
    """HOME may be no folder of this user's, as / is in containers."""
    (tmp_path / "file").write_text("")
    kept = {name: value for name, value in machine.env().items() if not name.startswith("HF_H")}
    kept |= {"HF_ENDPOINT": machine.hub.url, "HOME": str(tmp_path / "file")}
    kept.pop("XDG_CACHE_HOME", None)
    done = ended("pull", "tiny:Q4_0", env=kept)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: CACHE_UNUSABLE: The Hub's cache ")
    assert "Set HF_HOME to a folder that can be written to" in error


def test_what_is_longer_and_no_model_is_named_too(machine: Machine) -> None:
    """An answer that is no model and longer than the file is told by its begin."""
    machine.hub.troubles.replace = b'{"error": "no such key"}' + bytes(1 << 20)
    error = machine.refused("pull", "tiny:Q4_0")
    assert 'is no GGUF file, it begins with \'{"error": "no such key"}' in error


def test_a_range_beyond_the_end_begins_anew(large: Machine) -> None:
    """Where the Hub has fewer bytes than came before (416) they are thrown away, and all is
    fetched."""
    large.hub.troubles.cuts = [3 << 20]
    large.hub.troubles.beyond = True
    (model,) = large.pulled("tiny:Q8_0")
    assert Path(model["path"]).read_bytes() == MODEL_PATH.read_bytes()
    ranges = [asked.headers.get("range") for asked in large.hub.of("cdn", "GET")]
    assert [asked is None for asked in ranges] == [True, False, True]


def test_redirects_in_a_circle_are_one_sentence(machine: Machine) -> None:
    """Redirects in a circle, as a proxy with a login page makes them, are one sentence."""
    circle = (302, {"Location": f"/{REPO}/resolve/main/tiny.Q4_0.gguf"})
    machine.hub.troubles.statuses = [circle] * 50
    done = machine.run("pull", "tiny:Q4_0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: DOWNLOAD_FAILED: ")
    assert "Check HF_ENDPOINT" in done.stderr


def test_names_that_lead_out_of_the_cache_are_not_taken(machine: Machine) -> None:
    """No name that a repository gives its files leads out of the cache."""
    model = machine.hub.files[REPO]["tiny.Q4_0.gguf"]
    outside = machine.home / "outside-Q8_0.gguf"
    machine.hub.files[REPO] = {"../../../../../outside-Q4_0.gguf": model, str(outside): model}
    for name in (f"{REPO}:Q4_0", f"{REPO}:Q8_0", f"hf:{REPO}::file={outside}"):
        assert machine.run("pull", name).returncode != 0
    assert not list(machine.home.rglob("outside*"))


def test_a_server_without_ranges_starts_over(large: Machine) -> None:
    """A full answer to a request for the rest replaces what was there."""
    large.hub.troubles.cuts = [3 << 20]
    large.hub.troubles.no_ranges = True
    (model,) = large.pulled("tiny:Q8_0")
    assert Path(model["path"]).read_bytes() == MODEL_PATH.read_bytes()


def test_wrong_bytes_are_removed(machine: Machine, content: dict[str, bytes]) -> None:
    """Bytes other than the Hub announced never get a name, and are removed."""
    wrong = bytearray(content["tiny.Q4_0.gguf"])
    wrong[len(wrong) // 2] ^= 1
    machine.hub.troubles.replace = bytes(wrong)
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith("error: WRONG_CHECKSUM: ")
    assert machine.usable() == []
    assert list(machine.repo.glob("blobs/*")) == []
    machine.hub.troubles.replace = None
    machine.pulled("tiny:Q4_0")


def test_what_is_no_model_does_not_count(machine: Machine) -> None:
    """A page under a model's name is refused for what it is, checksum or not."""
    machine.hub.files[REPO]["tiny.Q4_0.gguf"] = b"<!DOCTYPE html><html>not found</html>" * 10
    assert machine.refused("pull", "tiny:Q4_0").startswith("error: HTML_PAGE: ")
    assert machine.usable() == []
    assert list(machine.repo.glob("blobs/*")) == []


def test_busy_and_failing_hubs_are_asked_again(machine: Machine) -> None:
    """After the answers 429 and 503 the pull waits, asks again and succeeds."""
    machine.hub.troubles.statuses = [(503, {}), (429, {"Retry-After": "0"})]
    machine.pulled("tiny:Q4_0")
    assert len(machine.hub.of("hub", "HEAD")) == 3


def test_a_catalogue_can_pin_checksums(machine: Machine, content: dict[str, bytes]) -> None:
    """A file other than the catalogue names is refused before it is fetched."""
    pinned = '\n[tiny.sha256]\n"tiny.Q4_0.gguf" = "{}"\n'
    machine.catalog.write_text(CATALOG + pinned.format("0" * 64))
    assert machine.refused("pull", "tiny:Q4_0").startswith("error: WRONG_CHECKSUM: ")
    assert machine.hub.of("cdn", "GET") == []
    right = hashlib.sha256(content["tiny.Q4_0.gguf"]).hexdigest()
    machine.catalog.write_text(CATALOG + pinned.format(right))
    machine.pulled("tiny:Q4_0")


def test_room_is_checked_before(machine: Machine) -> None:
    """A file larger than the disk is not begun."""
    machine.hub.troubles.claimed = 1 << 60
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith("error: NO_DISK_SPACE: tiny:Q4_0 needs ")
    assert machine.hub.of("cdn", "GET") == []


def test_two_pulls_of_one_file_do_not_mix(large: Machine) -> None:
    """The second pull says that the first one is bringing the file already."""
    large.hub.troubles.stall_at = 1 << 20
    first = large.start("pull", "tiny:Q8_0")
    try:
        assert large.hub.stalled.wait(TIMEOUT_S)
        assert "is bringing tiny.Q8_0.gguf already" in large.refused("pull", "tiny:Q8_0")
    finally:
        first.kill()
        first.communicate(timeout=TIMEOUT_S)


def test_no_network_is_one_sentence(machine: Machine) -> None:
    """An address where nobody listens, and offline mode, say what to do."""
    machine.hub.close()
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith(f"error: HUB_UNREACHABLE: {machine.hub.url} cannot be reached")
    assert "copy the .gguf file here" in error
    error = machine.refused("pull", "tiny:Q4_0", HF_HUB_OFFLINE="1")
    assert error.startswith("error: OFFLINE: HF_HUB_OFFLINE is set")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("nope", "error: UNKNOWN_MODEL: "),
        ("tiny:Q9_9", "error: USAGE: "),
        ("org/nothing:Q4_0", "error: REPO_NOT_FOUND: "),
        (f"{REPO}@gone:Q4_0", "error: REVISION_NOT_FOUND: "),
        (f"{REPO}:IQ1_S", "error: USAGE: "),
        (f"hf:{REPO}::file=none.gguf", "error: FILE_NOT_FOUND: "),
        ("hf:one-word", "error: USAGE: "),
        ("./some.gguf", "error: USAGE: "),
    ],
)
def test_names_that_lead_nowhere(machine: Machine, name: str, start: str) -> None:
    """Each mistake in a name is one sentence."""
    assert machine.refused("pull", name).startswith(start)
    assert machine.usable() == []


def test_gated_models_say_what_to_do(machine: Machine) -> None:
    """A gated model says that its terms must be accepted."""
    machine.hub.gated.add(REPO)
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith("error: GATED: ")
    assert "HF_TOKEN" in error
    assert TOKEN not in error


def test_all_names_are_judged_before_the_first_is_fetched(machine: Machine) -> None:
    """A mistake in the last name costs no download."""
    assert machine.refused("pull", "tiny:Q4_0", "nope").startswith("error: UNKNOWN_MODEL: ")
    assert machine.usable() == []


def test_without_a_home_no_folder_is_called_by_a_tilde(machine: Machine, tmp_path: Path) -> None:
    """A user without a home folder is told what to set; nothing is written beside the command."""
    code = (
        "import pwd, sys\n"
        "def nobody(_): raise KeyError\n"
        "pwd.getpwuid = nobody\n"
        "sys.argv = ['worker', 'pull', 'tiny:Q4_0']\n"
        "from worker.cli.main import run\n"
        "run()"
    )
    kept = {
        name: value
        for name, value in machine.env().items()
        if name not in ("HOME", "HF_HOME", "XDG_CACHE_HOME")
    }
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=here,
        env=kept, check=False,
    )  # fmt: skip
    assert (done.returncode, list(here.iterdir())) == (2, [])
    assert done.stderr.startswith("error: USAGE: There is no home folder")
    assert "HF_HOME" in done.stderr
