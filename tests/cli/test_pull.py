"""`worker pull` with the real Hub client against a Hub on loopback."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from tests.support.models import ggufs
from tests.support.programs.hub import COMMIT, TOKEN
from tests.support.programs.pulling import CATALOG, REPO, TIMEOUT_S, Machine
from worker.gguf.split_name import all_files
from worker.model.projector import projector_beside


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
    assert machine.usable() == ["mmproj-F16.gguf", "tiny.Q8_0.gguf"]


def test_the_projector_comes_too(machine: Machine, home: Path) -> None:
    """Where the repository has one, or the catalogue names it; not where it is not wanted."""
    names = ["mmproj-F16.gguf", "tiny.Q4_0.gguf"]
    (model,) = machine.pulled(f"{REPO}:Q4_0", "--no-mmproj")
    assert list(model["files"]) == names[1:]
    (model,) = machine.pulled(f"hf:{REPO}::file=tiny.Q4_0.gguf")
    assert sorted(model["files"]) == names
    assert Path(model["path"]).name == "tiny.Q4_0.gguf"
    found = projector_beside(Path(model["path"]))
    assert found is not None
    assert found.name == names[0]
    (model,) = machine.pulled("tiny:Q8_0")
    assert list(model["files"]) == ["tiny.Q8_0.gguf"]
    told = CATALOG.replace("context =", 'mmproj = "mmproj-F16.gguf"\ncontext =')
    (home / "own.toml").write_text(told)
    (model,) = machine.pulled("tiny:Q8_0")
    assert model["files"].keys() == {"tiny.Q8_0.gguf", "mmproj-F16.gguf"}


def test_a_projector_that_is_none(machine: Machine) -> None:
    """Nothing is taken, and --no-mmproj does without."""
    machine.hub.files[REPO]["mmproj-F16.gguf"] = machine.hub.files[REPO]["tiny.Q8_0.gguf"]
    assert "error: NOT_PROJECTOR: " in machine.refused("pull", f"{REPO}:Q4_0")
    assert machine.usable() == []
    machine.pulled(f"{REPO}:Q4_0", "--no-mmproj")


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
    named = f"hf:{REPO}::file=tiny-F32-00001-of-00002.gguf"
    (again,) = machine.pulled(named, "--no-mmproj")
    assert again["path"] == model["path"]
    assert again["fetched_bytes"] == 0


def test_a_split_model_without_one_file_is_not_usable(machine: Machine) -> None:
    """Files of a model that is not complete do not get their names."""
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
    """It chooses by the size of the models, and reads an encoding in any case of letters."""
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
