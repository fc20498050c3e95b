"""`worker plan` as a user and as a program sees it."""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

import msgspec
import pytest

from tests.support.models import ggufs
from worker import machine
from worker.cli.main import main
from worker.machine import human_bytes
from worker.memory.plan import MemoryPlan

GiB = 2**30


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1 GiB left and nothing set in the environment."""
    monkeypatch.setattr(machine, "memory", lambda: machine.Memory(total=2 * GiB, available=GiB))
    for name in [name for name in os.environ if name.startswith("LLAMA_ARG_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A small Llama trained on 512 tokens."""
    return str(ggufs.write_llama(tmp_path / "tiny.gguf"))


def plan_of(capsys: pytest.CaptureFixture[str], *words: str) -> MemoryPlan:
    """The plan that `worker plan --json` prints."""
    code = main(["plan", *words, "--json"])
    output = capsys.readouterr().out
    assert code in (0, 4)
    assert output.count("\n") == 1
    return msgspec.json.decode(output, type=MemoryPlan)


def test_two_models(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which one is meant is not guessed."""
    assert main(["plan", model, "--model", "other.gguf"]) == 2
    assert "Two models are named. Leave out FILE or --model." in capsys.readouterr().err


def test_json_is_the_plan(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints one line that reads back as the plan for the options given."""
    plan = plan_of(capsys, model, "-c", "1000", "-np", "3")
    assert (plan.num_cells, plan.num_slots) == (1024, 3)
    assert plan.fits
    assert plan.available_bytes == GiB


def test_the_model_is_named_as_for_serve(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With -m a command line of `serve` becomes one of `plan`."""
    assert plan_of(capsys, "-m", model, "-np", "3") == plan_of(capsys, model, "-np", "3")


def test_table_shows_the_parts_and_the_total(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `--json` a table names each part that takes memory, the total and what there is."""
    plan = plan_of(capsys, model, "-c", "2048")
    assert main(["plan", model, "-c", "2048"]) == 0
    table = capsys.readouterr().out
    for name, size in (
        ("weights", plan.weights_bytes),
        ("KV cells", plan.kv_bytes),
        ("compute", plan.compute_bytes),
        ("total", plan.total_bytes),
        ("available", plan.available_bytes),
    ):
        line = next(line for line in table.splitlines() if line.strip().startswith(name))
        assert human_bytes(size) in line
    assert "recurrent" not in table


def test_the_cache_has_a_line_of_its_own(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table says how much the states of ended conversations may take, in tokens too.

    It is not in the total, because a worker starts with none.
    """
    plan = plan_of(capsys, model)
    assert 0 < plan.cache_bytes <= GiB // 4
    for words, nbytes in (((), plan.cache_bytes), (("--cache-ram", "100"), 100 << 20)):
        assert main(["plan", model, *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        (line,) = (line for line in lines if line.strip().startswith("cache"))
        assert human_bytes(nbytes) in line
        assert f"{nbytes // plan.kv_bytes_per_token:,} tokens" in line
        (total,) = (line for line in lines if line.strip().startswith("total"))
        assert human_bytes(plan.total_bytes) in total
    assert main(["plan", model, "--cache-ram", "0"]) == 0
    assert "no states of ended conversations are kept" in capsys.readouterr().out
    assert main(["plan", model, "--cache-ram", "2000"]) == 4
    assert "does not fit" in capsys.readouterr().out


def test_a_library_that_dies_leaves_an_estimate(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command does not die with it, and says what is estimated."""
    assert plan_of(capsys, model).is_asked

    def die(_: object) -> None:
        faulthandler.disable()
        os.abort()

    monkeypatch.setattr("worker.cli.plan.asking", die)
    assert main(["plan", model]) == 0
    assert "at once, estimated" in capsys.readouterr().out


def test_what_does_not_fit_exits_with_4(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is printed first, then one sentence with a context that would fit."""
    assert main(["plan", model, "-c", "50000000"]) == 4
    captured = capsys.readouterr()
    assert "does not fit" in captured.out
    longest = plan_of(capsys, model, "-c", "50000000").max_cells
    assert captured.err.startswith("error: DOES_NOT_FIT: ")
    assert f"--ctx-size {longest} " in captured.err
    assert captured.err.count("\n") == 1
    assert main(["plan", model, "-c", str(longest)]) == 0


def test_cache_types_shrink_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight-bit keys and values take 34/64 of the sixteen-bit ones."""
    model = str(ggufs.write_llama(tmp_path / "m.gguf", heads=2))
    half = plan_of(capsys, model, "-c", "1024")
    eight = plan_of(capsys, model, "-c", "1024", "-ctk", "q8_0", "--cache-type-v", "q8_0")
    assert eight.kv_bytes * 64 == half.kv_bytes * 34


def test_cache_types_that_do_not_suit_the_model(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Heads of 16 elements are no whole blocks of 32: one sentence says so, before any loading."""
    assert main(["plan", model, "-ctk", "q8_0"]) == 2
    assert capsys.readouterr().err == (
        "error: USAGE: --cache-type-k q8_0 needs heads of a multiple of 32 elements, and this "
        "model's have 16. Use --cache-type-k f16.\n"
    )


def test_mapping_the_file_costs_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing more: pages of what was reordered are given back."""
    path = str(ggufs.write_llama(tmp_path / "q.gguf", encoding="Q4_0"))
    read, mapped = plan_of(capsys, path, "--no-mmap"), plan_of(capsys, path, "--mmap")
    assert read.weights_bytes == mapped.weights_bytes


def test_the_environment_counts(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables stand for options, for FILE too, and the command line wins over them."""
    monkeypatch.setenv("LLAMA_ARG_MODEL", model)
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "768")
    assert plan_of(capsys).num_cells == 768
    assert plan_of(capsys, "-c", "512").num_cells == 512
    assert plan_of(capsys, model).num_cells == 768


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["plan", "no-such-file.gguf"], 1, "error: "),
        (["plan", "--cache-type-k", "q3_0"], 2, "error: USAGE: "),
        (["plan", "-c", "many"], 2, "error: USAGE: "),
    ],
    ids=["no file", "unknown type", "not a number"],
)
def test_mistakes(
    words: list[str], code: int, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is one line on stderr, its exit code, and nothing on stdout."""
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(start)
    assert captured.err.count("\n") == 1
