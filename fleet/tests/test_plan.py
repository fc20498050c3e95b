"""What a replica needs, where replicas would run, and `worker fleet plan`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gguf_fleet import cluster
from gguf_fleet import plan as module
from gguf_fleet.cli.main import main
from gguf_fleet.cluster import RAY_BYTES
from gguf_fleet.command import MachineRoom, Version, ask_plan
from gguf_fleet.errors import DoesNotFitError, FleetError
from gguf_fleet.file import FleetModel, read_fleet
from gguf_fleet.group.share import RPC_BYTES
from gguf_fleet.need import REPLICA_BYTES, FleetMachine, Need, need_of
from gguf_fleet.plan import check_fits, fits_one_more, place, plan_needs
from gguf_fleet.scale.count import ScaleBounds
from tests.support.programs import PATIENCE_S, WORKER, written_model

GiB = 2**30


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 2 CPUs with 4 GiB left beside Ray."""
    here = MachineRoom(total=8 * GiB, available=4 * GiB + RAY_BYTES)
    reply = msgspec.structs.replace(ask_plan(()), here=here, cpus=2)
    monkeypatch.setattr(cluster, "ask_plan", {(): reply}.get)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small Llama trained on 512 tokens."""
    return written_model("write_llama", tmp_path_factory.mktemp("models") / "tiny.gguf")


def need(model: str, memory: int, cpus: int = 1, replicas: int = 1) -> Need:
    """A need of these sizes."""
    return Need(
        model=model, file="", replicas=replicas, affinity="none", cpus=cpus, memory=memory,
        num_cells=512, num_slots=4, queue=64, drain=60, options=(),
    )  # fmt: skip


def test_a_replica_is_planned_as_a_worker_is(model: str) -> None:
    """As much as `worker plan`, which may ask llama.cpp where a fleet estimates; the options hold
    the worker to it."""
    options = ("-c", "1000", "-np", "3", "--cache-ram", "8", "--threads", "2")
    found = need_of("a", FleetModel(file=model, options=options), [FleetMachine("m", 4, 4 * GiB)])
    command = [sys.executable, *WORKER, "plan", model, *options[:6], "--json"]
    plan = msgspec.json.decode(subprocess.check_output(command, timeout=PATIENCE_S))
    wanted = plan["total_bytes"] + plan["cache_bytes"] + REPLICA_BYTES
    assert abs(found.memory - wanted) <= wanted // 100
    assert (found.cpus, found.num_cells, found.num_slots) == (2, 1024, 3)
    own = ("--ctx-size", "1024", "--parallel", "3", "--cache-ram", "8", "--threads", "2")
    assert found.options[-10:-2] == own
    assert ask_plan(found.options).options.drain_timeout == found.drain


def test_neighbours_share_a_machine(model: str) -> None:
    """Left to itself a replica takes no more than the share of the memory that its CPUs are."""
    alone = need_of("a", FleetModel(file=model), [FleetMachine("m", 1, 4 * GiB)])
    shared = need_of("a", FleetModel(file=model), [FleetMachine("m", 4, 4 * GiB)])
    assert shared.memory < GiB < alone.memory
    narrow = need_of(
        "a", FleetModel(file=model), [FleetMachine("m", 4, 4 * GiB), FleetMachine("n", 4, GiB)]
    )
    assert narrow.memory <= GiB // 4


def test_what_is_larger_than_its_share_gets_more(model: str) -> None:
    """A context that was asked for is planned whole, also where it fits no machine."""
    million = FleetModel(file=model, options=("-c", "1000000"))
    found = need_of("a", million, [FleetMachine("m", 100, 2 * GiB)])
    assert found.memory > 2 * GiB / 100
    assert found.num_cells == 1_000_192


def test_replicas_are_spread() -> None:
    """Where most memory is left; what has no place is told."""
    machines = [FleetMachine("a", 2, 4 * GiB), FleetMachine("b", 2, 3 * GiB)]
    plan = place([need("small", GiB, replicas=2), need("large", 3 * GiB)], machines)
    held = {each.machine.name: Counter(each.models) for each in plan.places}
    assert held == {"a": {"large": 1}, "b": {"small": 2}}
    check_fits(plan)
    assert fits_one_more(plan, "small")
    assert not fits_one_more(plan, "large")


def test_cpus_bound_too() -> None:
    """Three replicas of a CPU each do not fit on two."""
    plan = place([need("small", GiB, replicas=3)], [FleetMachine("a", 2, 8 * GiB)])
    assert plan.left_over == ("small",)
    with pytest.raises(DoesNotFitError, match=r"1 of 3 replicas of small .* 1 CPUs and 1.0 GiB"):
        check_fits(plan)


def scaled(model: str, memory: int, least: int, most: int) -> Need:
    """A need whose replicas come and go."""
    bounds = ScaleBounds(least=least, most=most, idle=300, first_token=5, slots=4)
    return msgspec.structs.replace(need(model, memory, replicas=least), bounds=bounds)


def test_the_least_must_fit() -> None:
    """What there may be at most is told, and need not fit."""
    machines = [FleetMachine("a", 4, 4 * GiB)]
    plan = plan_needs([scaled("a", GiB, 1, 4), scaled("b", GiB, 1, 2)], machines)
    check_fits(plan)
    assert plan.left_at_most == ("b", "b")
    assert not fits_one_more(plan, "a")
    assert plan_needs([scaled("a", GiB, 1, 4)], machines).left_at_most == ()


def test_sleepers_share_a_machine() -> None:
    """Each must fit alone; what no machine can hold is refused although it may never run."""
    machines = [FleetMachine("a", 1, 4 * GiB)]
    check_fits(plan_needs([scaled("a", 3 * GiB, 0, 1), scaled("b", 3 * GiB, 0, 1)], machines))
    with pytest.raises(DoesNotFitError, match=r"1 of 1 replicas of b have no place"):
        check_fits(plan_needs([scaled("a", GiB, 0, 1), scaled("b", 5 * GiB, 0, 1)], machines))


def test_a_model_over_three_machines(tmp_path: Path) -> None:
    """Each holds about a third of the layers, and the worker is told to divide them so."""
    file = written_model("write_llama", tmp_path / "six.gguf", layers=6)
    machines = [FleetMachine(name, 4, GiB) for name in "abc"]
    options = ("-c", "4096", "--cache-ram", "0")
    alone = need_of("a", FleetModel(file=file, options=options), machines)
    found = need_of("a", FleetModel(file=file, options=options, rpc_nodes=2), machines)
    assert found.rpc_nodes == 2
    assert RPC_BYTES < found.rpc_memory < RPC_BYTES + alone.memory - REPLICA_BYTES
    settings = ask_plan(found.options).options
    assert (settings.n_gpu_layers, settings.tensor_split) == (5, (1.0, 1.0))
    assert found.with_servers(["h:1", "i:2"]).options[-2:] == ("--rpc", "h:1,i:2")


def test_its_parts_are_on_machines_of_their_own() -> None:
    """Three machines hold a group of three; two do not, whatever their memory."""
    group = msgspec.structs.replace(need("big", 2 * GiB), rpc_nodes=2, rpc_memory=3 * GiB)
    machines = [FleetMachine("a", 2, 4 * GiB), FleetMachine("b", 2, 3 * GiB)]
    plan = place([group], [*machines, FleetMachine("c", 2, 2 * GiB)])
    assert [each.models for each in plan.places] == [("big's layers",), ("big's layers",), ("big",)]
    lacking = place([group], [FleetMachine(name, 64, 64 * GiB) for name in "ab"])
    assert lacking.left_over == ("big",)
    with pytest.raises(DoesNotFitError, match=r"2.0 GiB, and 3.0 GiB on each of 2 other"):
        check_fits(lacking)


def test_a_build_without_rpc_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the next step, before anything starts."""
    monkeypatch.setattr(module, "version", lambda: Version(()))
    file = tmp_path / "fleet.toml"
    file.write_text("[models.demo]\nrpc_nodes = 1\n")
    assert main(["plan", str(file)]) == 2
    said = capsys.readouterr().err
    assert "rpc_nodes needs a build with the RPC backend, and this one has none." in said
    assert "make install RPC=1" in said


def test_the_command_says_least_and_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It exits with 0: the least fits."""
    file = tmp_path / "fleet.toml"
    file.write_text("[models.demo]\nreplicas = { min = 1, max = 3 }\n")
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "1 to 3" in said
    assert "where they could run: fits; at most: 1 left over" in said
    assert "1 x demo" in said


def test_the_command_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Two demo workers on this machine; `--json` is one line for programs."""
    assert main(["plan"]) == 0
    assert "2 x demo" in capsys.readouterr().out
    assert main(["plan", "--json"]) == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert said["fits"] is True
    assert said["plan"]["places"][0]["models"] == ["demo", "demo"]


def test_what_does_not_fit_exits_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is printed first."""
    file = tmp_path / "fleet.toml"
    file.write_text("[models.demo]\nreplicas = 3\n")
    assert main(["plan", str(file)]) == 4
    captured = capsys.readouterr()
    assert "does not fit: 1 left over" in captured.out
    assert captured.err.startswith("error: DOES_NOT_FIT: 1 of 3 replicas of demo have no place")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("replica = 2", 2),
        ("file = 'no.gguf'", 1),
        ("file = 'nobody-has-this'", 2),
    ],
)
def test_mistakes_are_found_by_the_plan(
    text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong field, a file that is not there, a name that nobody knows: one line, nothing else."""
    file = tmp_path / "fleet.toml"
    file.write_text(f"[models.a]\n{text}")
    assert main(["plan", str(file)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_without_ray_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`serve` and a plan for a cluster need it; the sentence says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    for words in (["serve"], ["plan", "--address", "127.0.0.1:1"]):
        assert main([*words]) == 2
        assert "make install FLEET=1" in capsys.readouterr().err


def test_a_file_can_be_planned_for_larger_machines(tmp_path: Path, model: str) -> None:
    """The same file, other machines: nothing of this machine counts."""
    file = tmp_path / "fleet.toml"
    file.write_text(f"[models.a]\nfile = '{model}'\noptions = ['--threads', '16']\nreplicas = 4")
    (large,) = read_fleet(file).models.values()
    big, bag = (FleetMachine(name, 32, 64 * GiB) for name in ("big", "bag"))
    needs = [need_of("a", large, [big])]
    assert place(needs, [big, bag]).fits
    with pytest.raises(FleetError):
        check_fits(place(needs, [big]))
