"""`worker pull` with the real Hub client against a Hub on loopback."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ggufs
from tests.support.hub import COMMIT, TOKEN, Hub, running
from worker.demo import MODEL_PATH
from worker.gguf.split_name import all_files

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


@pytest.fixture
def hub() -> Generator[Hub]:
    """A Hub with one repository: two encodings, one split, a projector and a page."""
    with running() as hub:
        yield hub


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The repository's files."""
    folder = tmp_path_factory.mktemp("content")
    files: dict[str, bytes] = {"README.md": b"# tiny", "mmproj-F16.gguf": b"GGUF"}
    for label in ("Q4_0", "Q8_0", "F16"):
        path = ggufs.write_llama(folder / f"tiny.{label}.gguf", encoding=label)
        files[path.name] = path.read_bytes()
    first = ggufs.write_llama(folder / "tiny-F32.gguf", splits=2)
    for name in all_files(first.name):
        files[name] = (folder / name).read_bytes()
    return files


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the cache and the user's own catalogue lie."""
    (tmp_path / "own.toml").write_text(CATALOG)
    return tmp_path


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
        return subprocess.run(
            [sys.executable, "-m", "worker", *words],
            capture_output=True, text=True, timeout=TIMEOUT_S, env=self.env(**more), check=False,
        )  # fmt: skip

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


@pytest.fixture
def machine(hub: Hub, home: Path, content: dict[str, bytes]) -> Machine:
    """A machine that has nothing yet, and a Hub that has the repository."""
    hub.files[REPO] = dict(content)
    return Machine(hub, home)


@pytest.fixture
def large(machine: Machine) -> Machine:
    """The same with the demo model as its Q8_0: large enough to be interrupted."""
    machine.hub.files[REPO]["tiny.Q8_0.gguf"] = MODEL_PATH.read_bytes()
    return machine


def test_a_model_is_brought_checked_and_then_runs_by_its_name(
    machine: Machine, content: dict[str, bytes]
) -> None:
    """The file lies in the client's cache, and other commands find it by name, without the Hub."""
    (model,) = machine.pulled("tiny:q4_0")
    path = Path(model["path"])
    assert path == machine.repo / "snapshots" / COMMIT / "tiny.Q4_0.gguf"
    assert path.read_bytes() == content["tiny.Q4_0.gguf"]
    assert (machine.repo / "refs" / "main").read_text() == COMMIT
    assert model["name"] == "tiny:Q4_0"
    assert model["size_bytes"] == model["fetched_bytes"] == path.stat().st_size
    digest = hashlib.sha256(content["tiny.Q4_0.gguf"]).hexdigest()
    assert model["checksums"] == {"tiny.Q4_0.gguf": digest}
    before = len(machine.hub.asked)
    for name in ("tiny:Q4_0", "Tiny", f"{REPO}:Q4_0", f"hf:{REPO}@main::file=tiny.Q4_0.gguf"):
        shown = machine.run("show", name, "--json")
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["files"][0]["path"] == str(path)
    words = ("generate", "hello", "--model", "tiny:Q4_0", "--max-tokens", "3")
    assert machine.run(*words).returncode == 0
    assert len(machine.hub.asked) == before


def test_the_clients_own_cache_lookup_finds_it(machine: Machine) -> None:
    """Other programs that use the Hub's client share what was pulled."""
    (model,) = machine.pulled("tiny:Q4_0")
    found = subprocess.run(
        [sys.executable, "-c", "from huggingface_hub import hf_hub_download;"
         f"print(hf_hub_download({REPO!r}, 'tiny.Q4_0.gguf', local_files_only=True))"],
        capture_output=True, text=True, timeout=TIMEOUT_S, env=machine.env(), check=True,
    )  # fmt: skip
    assert found.stdout.strip() == model["path"]


def test_what_the_client_downloaded_is_found(machine: Machine) -> None:
    """A file that another program brought into the cache runs by its name too."""
    subprocess.run(
        [sys.executable, "-c", "from huggingface_hub import hf_hub_download;"
         f"hf_hub_download({REPO!r}, 'tiny.Q4_0.gguf')"],
        capture_output=True, timeout=TIMEOUT_S, env=machine.env(), check=True,
    )  # fmt: skip
    assert machine.run("show", "tiny:Q4_0").returncode == 0
    (model,) = machine.pulled("tiny:Q4_0")
    assert model["fetched_bytes"] == 0


def test_a_model_that_is_not_here_says_how_to_get_it(machine: Machine) -> None:
    """Nothing is downloaded by a command that runs a model."""
    for words in (("serve", "--model", "tiny:Q4_0"), ("plan", "tiny:Q4_0")):
        error = machine.refused(*words)
        assert error == (
            "error: NOT_DOWNLOADED: tiny:Q4_0 is not on this machine. "
            "Get it with `worker pull tiny:Q4_0`."
        )
    assert machine.hub.asked == []


def test_a_file_wins_over_a_name(machine: Machine, home: Path, tmp_path: Path) -> None:
    """Where a file is called like an entry of the catalogue, the file is meant."""
    (tmp_path / "tiny").write_bytes(ggufs.llama_gguf(name="the file").encode())
    shown = subprocess.run(
        [sys.executable, "-m", "worker", "show", "tiny", "--json"], cwd=tmp_path,
        capture_output=True, text=True, timeout=TIMEOUT_S, env=machine.env(), check=True,
    )  # fmt: skip
    assert json.loads(shown.stdout)["name"] == "the file"


def test_without_an_encoding_the_largest_up_to_eight_bits(machine: Machine) -> None:
    """Where all would fit, neither F16 nor F32 is taken; test_catalog.py tests the rule."""
    (model,) = machine.pulled("tiny")
    assert model["quant"] == "Q8_0"
    (model,) = machine.pulled(REPO)
    assert model["quant"] == "Q8_0"
    assert machine.usable() == ["tiny.Q8_0.gguf"]


def test_what_is_here_is_not_fetched_again(machine: Machine) -> None:
    """A second pull reads the file and asks the CDN for nothing."""
    machine.pulled("tiny:Q4_0")
    asked = len(machine.hub.of("cdn", "GET"))
    (model,) = machine.pulled("tiny:Q4_0")
    assert model["fetched_bytes"] == 0
    assert len(machine.hub.of("cdn", "GET")) == asked


def test_a_damaged_file_is_brought_again(machine: Machine, content: dict[str, bytes]) -> None:
    """One flipped bit on the disk is found by the next pull."""
    (model,) = machine.pulled("tiny:Q4_0")
    path = Path(model["path"])
    data = bytearray(content["tiny.Q4_0.gguf"])
    data[-1] ^= 1
    path.resolve().write_bytes(data)
    (model,) = machine.pulled("tiny:Q4_0")
    assert model["fetched_bytes"] == len(data)
    assert path.read_bytes() == content["tiny.Q4_0.gguf"]


def test_split_models_come_whole(machine: Machine, content: dict[str, bytes]) -> None:
    """All files of a split model are brought, and its first is what opens it."""
    (model,) = machine.pulled("tiny:F32")
    assert sorted(model["files"]) == list(all_files("tiny-F32-00001-of-00002.gguf"))
    assert machine.run("show", "tiny:F32").returncode == 0
    (again,) = machine.pulled(f"hf:{REPO}::file=tiny-F32-00001-of-00002.gguf")
    assert again["path"] == model["path"]
    assert again["fetched_bytes"] == 0


def test_a_split_model_without_one_file_is_not_usable(machine: Machine) -> None:
    """What came of an incomplete model does not get its name."""
    del machine.hub.files[REPO]["tiny-F32-00002-of-00002.gguf"]
    assert "FILE_NOT_FOUND" in machine.refused("pull", "tiny:F32")
    assert machine.usable() == []
    assert "NOT_DOWNLOADED" in machine.refused("show", "tiny:F32")


def test_a_file_outside_of_large_file_storage(machine: Machine) -> None:
    """A small file comes from the Hub itself and is checked by git's hash."""
    machine.hub.plain.add("tiny.Q4_0.gguf")
    (model,) = machine.pulled("tiny:Q4_0")
    assert len(model["checksums"]["tiny.Q4_0.gguf"]) == 40
    assert machine.hub.of("cdn", "GET") == []


def test_who_is_asked_and_with_which_token(machine: Machine) -> None:
    """The Hub is asked for the model alone, and the CDN that it sends us to learns no token."""
    machine.pulled("tiny:Q4_0")
    hub, cdn = machine.hub.of("hub", "HEAD"), machine.hub.of("cdn", "GET")
    assert hub
    assert cdn
    assert {asked.path.split("/resolve/")[0] for asked in machine.hub.asked if asked.server == "hub"
            } == {f"/{REPO}"}  # fmt: skip
    assert all(asked.headers["user-agent"].startswith("gguf-worker/") for asked in hub)
    assert all(asked.headers["authorization"] == f"Bearer {TOKEN}" for asked in hub)
    assert not any("authorization" in asked.headers for asked in cdn)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_pull_goes_on(large: Machine, number: signal.Signals) -> None:
    """What had arrived is kept: the next pull asks for the rest only, and the file is right."""
    large.hub.troubles.stall_at = 5 << 20
    process = large.start("pull", "tiny:Q8_0")
    assert large.hub.stalled.wait(TIMEOUT_S)
    partials: list[Path] = []
    deadline = time.monotonic() + TIMEOUT_S
    while not any(path.stat().st_size >= 4 << 20 for path in partials):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        partials = list(large.repo.glob("blobs/*.partial"))
    process.send_signal(number)
    _, prose = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in prose
    assert large.usable() == []
    have = partials[0].stat().st_size
    large.hub.troubles.stall_at = None
    large.hub.released.set()
    (model,) = large.pulled("tiny:Q8_0")
    assert large.hub.of("cdn", "GET")[-1].headers["range"] == f"bytes={have}-"
    assert Path(model["path"]).read_bytes() == MODEL_PATH.read_bytes()
    assert model["fetched_bytes"] == len(MODEL_PATH.read_bytes()) - have
    assert list(large.repo.glob("blobs/*.partial")) == []


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
    """A login page's bytes must not become the begin of a model that is fetched later."""
    machine.hub.troubles.replace = b"<html>log in</html>"
    assert machine.run("pull", "tiny:Q4_0").returncode == 1
    machine.hub.troubles.replace = None
    done = machine.run("pull", "tiny:Q4_0")
    assert done.returncode == 0, done.stderr


def test_redirects_in_a_circle_are_one_sentence(machine: Machine) -> None:
    """As a proxy with a login page makes them."""
    circle = (302, {"Location": f"/{REPO}/resolve/main/tiny.Q4_0.gguf"})
    machine.hub.troubles.statuses = [circle] * 50
    done = machine.run("pull", "tiny:Q4_0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: DOWNLOAD_FAILED: ")
    assert "Check HF_ENDPOINT" in done.stderr


def test_names_that_lead_out_of_the_cache_are_not_taken(machine: Machine) -> None:
    """Whatever a repository calls its files."""
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
    """What is not what the Hub announced never gets a name, and does not stand in the way."""
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
    """429 and 503 pass: the pull waits and succeeds."""
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
    """The second says that the first is at it."""
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
    """Terms that were not accepted are named as such."""
    machine.hub.gated.add(REPO)
    error = machine.refused("pull", "tiny:Q4_0")
    assert error.startswith("error: GATED: ")
    assert "HF_TOKEN" in error
    assert TOKEN not in error


def test_all_names_are_judged_before_the_first_is_fetched(machine: Machine) -> None:
    """A mistake in the last name costs no download."""
    assert machine.refused("pull", "tiny:Q4_0", "nope").startswith("error: UNKNOWN_MODEL: ")
    assert machine.usable() == []


def test_list_shows_what_is_here(machine: Machine) -> None:
    """The packaged models and the user's own, each with the encodings that are here."""
    machine.pulled("tiny:Q4_0")
    listed = json.loads(machine.run("pull", "--list", "--json").stdout)
    assert list(listed["tiny"]["here"]) == ["Q4_0"]
    assert listed["tinyllama"]["here"] == {}
    table = machine.run("pull", "--list", "tiny").stdout
    assert table.split()[-1] == "Q4_0"
    assert "tinyllama" not in table


def test_check_compares_the_catalogue_with_the_hub(machine: Machine) -> None:
    """Files that the Hub lacks are named, and the exit code tells."""
    assert machine.run("pull", "--check", "tiny").returncode == 0
    del machine.hub.files[REPO]["tiny.Q8_0.gguf"]
    done = machine.run("pull", "--check", "tiny", "tinyllama", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["tiny"] == {"found": 4, "missing": ["tiny.Q8_0.gguf"], "problem": None}
    assert "no repository" in report["tinyllama"]["problem"]
    assert machine.hub.of("cdn", "GET") == []


def test_the_script_brings_models_too(machine: Machine) -> None:
    """scripts/download_models.py is the same thing without the package's command."""
    script = Path(__file__).parents[2] / "scripts" / "download_models.py"
    done = subprocess.run(
        [sys.executable, script, "tiny:Q4_0"],
        capture_output=True, text=True, timeout=TIMEOUT_S, env=machine.env(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert machine.usable() == ["tiny.Q4_0.gguf"]


def test_the_script_knows_the_users_own_catalogue(machine: Machine) -> None:
    """By the size of its models, and an encoding in any case of letters."""
    script = Path(__file__).parents[2] / "scripts" / "download_models.py"

    def up_to(quant: str) -> subprocess.CompletedProcess[str]:
        words = ["--up-to", "1e-9", "--quant", quant]
        return subprocess.run(
            [sys.executable, script, *words],
            capture_output=True, text=True, timeout=TIMEOUT_S, env=machine.env(), check=False,
        )  # fmt: skip

    assert up_to("q4_0").returncode == 0
    assert machine.usable() == ["tiny.Q4_0.gguf"]
    assert "no model has Q5_0" in up_to("q5_0").stderr
    machine.catalog.write_text("[tiny")
    done = up_to("q4_0")
    assert done.returncode == 2
    assert "is no TOML" in done.stderr
    assert "Traceback" not in done.stderr
