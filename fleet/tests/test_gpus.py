"""GPUs, made up ones, in the plan of a fleet: their memory, and what has no place on them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gguf_fleet import cluster
from gguf_fleet.choices import check_choices
from gguf_fleet.cli.main import main
from gguf_fleet.cluster import RAY_BYTES
from gguf_fleet.command import MachineDevice, MachineRoom, WorkerOptions
from gguf_fleet.command import ask_plan as worker_planned
from gguf_fleet.device import FleetDevice, devices_here
from gguf_fleet.errors import DoesNotFitError, FleetError, UsageError
from gguf_fleet.file import FleetModel
from gguf_fleet.group.share import RPC_BYTES
from gguf_fleet.need import REPLICA_BYTES, FleetMachine, Need, need_of
from gguf_fleet.plan import check_fits, place
from tests.support.programs import written_model

MiB, GiB = 2**20, 2**30
OPTIONS = ("-c", "4096", "-np", "2", "--cache-ram", "0")
LAYERS = 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Llama of six blocks and 300 MiB, most of which are a hole."""
    path = tmp_path_factory.mktemp("models") / "six.gguf"
    return written_model("sparse_llama", path, layers=6, embedding=1024, feed_forward=3072)


def gpu(name: str, room: int, *, unified: bool = False) -> FleetDevice:
    """One with so much free memory."""
    return FleetDevice(name, "a made-up GPU", 2 * room, room, room, unified)


def with_gpus(name: str, *rooms: int) -> FleetMachine:
    """A machine of 8 CPUs, 8 GiB and these GPUs."""
    devices = tuple(gpu(f"CUDA{number}", room) for number, room in enumerate(rooms))
    return FleetMachine(name, 8, 8 * GiB, len(rooms), devices, node=f"id-{name}")


def planned(
    model: str, *machines: FleetMachine, options: tuple[str, ...] = (), **more: int
) -> Need:
    """What a replica of the model needs."""
    given = FleetModel(file=model, options=(*OPTIONS, *options), **more)  # pyright: ignore
    return need_of("a", given, list(machines))


def settings_of(need: Need) -> WorkerOptions:
    """What its worker reads of the options."""
    return worker_planned(need.options).options


def test_it_is_planned_as_a_worker_with_that_gpu_is(model: str) -> None:
    """The same bytes on the host and on the GPU, and the worker is held to that."""
    found = planned(model, with_gpus("m", GiB), gpus=1)
    there = MachineRoom(8 * GiB, 8 * GiB, (MachineDevice("G", GiB),))
    (alone,) = worker_planned(("--model", model, *OPTIONS), (there,)).plans
    on_gpu = sum(each.nbytes for each in alone.devices if each.device == "G")
    on_host = sum(each.nbytes for each in alone.devices if each.device == "CPU")
    assert (found.device_memory, found.gpu_layers, found.layers) == (on_gpu, LAYERS, LAYERS)
    assert found.memory == on_host + REPLICA_BYTES
    asked = settings_of(found)
    assert (asked.n_gpu_layers, asked.tensor_split, asked.device) == (LAYERS, (1.0,), ())


def test_without_gpus_it_keeps_to_the_cpu(model: str) -> None:
    """Ray hides none from it; with RPC servers it has theirs alone."""
    assert settings_of(planned(model, with_gpus("m", GiB))).device == ("none",)
    over = planned(model, *(with_gpus(name, GiB) for name in "abc"), rpc_nodes=2)
    assert settings_of(over).device == ("RPC0", "RPC1")
    assert over.device_memory == 0


def test_the_smallest_that_hold_all_layers_count(model: str) -> None:
    """Also where others are too small: these get none of it."""
    whole = planned(model, with_gpus("m", GiB), gpus=1)
    small = with_gpus("small", whole.device_memory - MiB)
    middle, large = with_gpus("middle", whole.device_memory + MiB), with_gpus("large", GiB)
    found = planned(model, large, small, middle, gpus=1)
    assert found.gpu_layers == LAYERS
    assert [found.may_be_on(each) for each in (small, middle, large)] == [False, True, True]


def test_where_none_holds_all_layers_as_many_as_fit_go_there(model: str) -> None:
    """On the largest there is, as a worker alone does it."""
    whole = planned(model, with_gpus("m", GiB), gpus=1)
    most = whole.device_memory // 2
    found = planned(model, with_gpus("a", most // 2), with_gpus("b", most), gpus=1)
    assert 0 < found.gpu_layers < LAYERS
    assert most // 2 < found.device_memory <= most
    asked = planned(model, with_gpus("b", most), gpus=1, options=("-ngl", "7"))
    with pytest.raises(DoesNotFitError, match=r"needs 1 GPU with .* \(CUDA0 of b\)\."):
        check_fits(place([asked], [with_gpus("b", most)]))


def test_experts_that_stay_on_the_cpu(tmp_path: Path) -> None:
    """The worker is told of how many layers; a GPU that holds all of them counts before that."""
    sizes = {"layers": 6, "embedding": 512, "feed_forward": 1024, "experts": 8}
    mixed = written_model("sparse_llama", tmp_path / "mixed.gguf", **sizes)
    whole = planned(mixed, with_gpus("m", GiB), gpus=1)
    assert "--n-cpu-moe" not in whole.options
    small, large = with_gpus("small", whole.device_memory * 2 // 3), with_gpus("large", GiB)
    found = planned(mixed, small, gpus=1)
    assert (found.gpu_layers, found.options[-2]) == (LAYERS, "--n-cpu-moe")
    assert 0 < int(found.options[-1]) <= 6
    assert found.device_memory <= whole.device_memory * 2 // 3
    assert "--n-cpu-moe" not in planned(mixed, small, large, gpus=1).options


def test_several_gpus_share_the_layers(model: str) -> None:
    """Each holds about half; a machine's smallest GPU counts, because Ray chooses."""
    alone = planned(model, with_gpus("m", GiB), gpus=1)
    two = planned(model, with_gpus("m", GiB, GiB), gpus=2)
    assert settings_of(two).tensor_split == (1.0, 1.0)
    assert two.gpu_layers == LAYERS
    assert two.device_memory < alone.device_memory
    assert not two.may_be_on(with_gpus("n", GiB, two.device_memory - 1))
    assert not two.may_be_on(with_gpus("n", GiB))


def test_the_machines_memory_counts_where_a_gpu_has_none(model: str) -> None:
    """Then all of it is asked of the machine."""
    device = gpu("MTL0", GiB, unified=True)
    found = planned(model, FleetMachine("mac", 8, 8 * GiB, 1, (device,)), gpus=1)
    other = planned(model, with_gpus("m", GiB), gpus=1)
    assert found.device_memory == 0
    assert found.memory == other.memory + other.device_memory
    assert found.gpu_layers == LAYERS


def test_a_model_over_the_gpus_of_three_machines(model: str) -> None:
    """Their GPUs hold all layers, and the hosts of the others no more than a process."""
    machines = [with_gpus(name, GiB, GiB) for name in "abc"]
    alone = planned(model, *machines, gpus=1)
    found = planned(model, *machines, gpus=1, rpc_nodes=2)
    assert (found.gpu_layers, found.rpc_memory) == (LAYERS, RPC_BYTES)
    assert found.device_memory < alone.device_memory
    settings = settings_of(found.with_servers(["h:1", "i:2"]))
    assert settings.tensor_split == (1.0, 1.0, 1.0)
    assert (settings.rpc, settings.device) == (("h:1", "i:2"), ())
    plan = place([found], machines)
    assert plan.fits
    assert sorted(each.devices for each in plan.places) == [("a", ""), *[("a's layers", "")] * 2]
    six = planned(model, *machines, gpus=2, rpc_nodes=2)
    assert settings_of(six).tensor_split == (1.0,) * 6


def test_each_gpu_is_given_away_once(model: str) -> None:
    """What has room in memory alone is left over; what needs GPUs comes first."""
    machines = [with_gpus("a", GiB, GiB), with_gpus("b", GiB), FleetMachine("c", 1, 16 * GiB)]
    need = msgspec.structs.replace(planned(model, *machines, gpus=1), replicas=3)
    plan = place([need], machines)
    assert [each.devices for each in plan.places] == [("a", "a"), ("a",), ()]
    more = place([msgspec.structs.replace(need, replicas=4)], machines)
    with pytest.raises(DoesNotFitError, match=r"^1 of 4 .*: each needs 1 CPUs, 1 GPU with "):
        check_fits(more)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (FleetMachine("m", 8, GiB), "needs 1 GPU with .*, and no machine has any."),
        (FleetMachine("m", 8, GiB, 1), "; m has 1, and the worker's build there sees 0."),
        (FleetMachine("m", 8, GiB, 1, trouble="It is mute."), "; m has 1, and It is mute."),
        (with_gpus("m", MiB), r"and the most that one has is 1.0 MiB \(CUDA0 of m\)."),
    ],
)  # fmt: skip
def test_one_sentence_says_why_not(model: str, there: FleetMachine, said: str) -> None:
    """Ray has none, the build sees none, nobody knows, or they are too small."""
    need = planned(model, with_gpus("m", GiB), gpus=1)
    with pytest.raises(DoesNotFitError, match=said) as failed:
        check_fits(place([need], [there]))
    assert failed.value.hint


@pytest.mark.parametrize(
    ("options", "has_gpus"),
    [(("--device", "CUDA0"), False), (("--device", "none"), True), (("-ngl", "3"), False),
     (("--rpc", "127.0.0.1:1"), True)],
)  # fmt: skip
def test_options_that_the_fleet_chooses(options: tuple[str, ...], has_gpus: bool) -> None:
    """One sentence names the field."""
    with pytest.raises(UsageError, match=r"`gpus`"):
        check_choices(options, has_servers=False, has_gpus=has_gpus)


def test_a_worker_is_asked_for_its_gpus() -> None:
    """By a process of its own; this build says what it sees."""
    rest = '"description":"x","memory_free":3,"memory_total":9'
    said = ",".join(
        f'{{"name":"{name}","backend":"{backend}","kind":"{kind}",{rest}}}'
        for name, backend, kind in (
            ("CPU", "CPU", "cpu"), ("CUDA0", "CUDA", "gpu"), ("Vulkan0", "Vulkan", "igpu"),
        )
    )  # fmt: skip
    found = devices_here(("-c", f"print('''{{\"devices\":[{said}]}}''')"))
    assert found == (
        FleetDevice("CUDA0", "x", 9, 3, 3), FleetDevice("Vulkan0", "x", 9, 3, 3, unified=True),
    )  # fmt: skip
    assert all(each.total for each in devices_here())


@pytest.mark.parametrize(
    ("code", "said"), [("raise SystemExit('no')", "code 1: no"), ("print(1)", "code 0: it said")]
)
def test_a_worker_that_says_none(code: str, said: str) -> None:
    """Its last words are told."""
    with pytest.raises(FleetError, match=said):
        devices_here(("-c", code))


def test_a_gpu_in_use_counts_as_a_whole() -> None:
    """At an update those who use it leave first."""
    used = FleetDevice("CUDA0", "x", 80 * GiB, GiB, GiB)
    assert 78 * GiB < used.whole().room < 80 * GiB
    idle = FleetDevice("CUDA0", "x", GiB, GiB - MiB, GiB - MiB)
    assert idle.whole() == idle


def test_the_command_lists_each_gpu(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has and what would be there; `--json` too."""
    here = MachineRoom(total=8 * GiB, available=4 * GiB + RAY_BYTES)
    reply = msgspec.structs.replace(worker_planned(()), here=here)
    monkeypatch.setattr(cluster, "ask_plan", {(): reply}.get)
    two = (gpu("CUDA0", GiB), gpu("CUDA1", GiB))
    monkeypatch.setattr(cluster, "devices_here", lambda: two)
    file = tmp_path / "fleet.toml"
    file.write_text(f"[models.a]\nfile = '{model}'\ngpus = 1\noptions = {list(OPTIONS)}\n")
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "7 of 7" in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("CUDA0 a made-up GPU 2.0 GiB 1.0 GiB a: ") for line in lines)
    assert "CUDA1 a made-up GPU 2.0 GiB 1.0 GiB -" in lines
    assert main(["plan", str(file), "--json"]) == 0
    plan = msgspec.json.decode(capsys.readouterr().out)["plan"]
    (there,) = plan["places"]
    assert there["devices"] == ["a", ""]
    assert [each["name"] for each in there["machine"]["devices"]] == ["CUDA0", "CUDA1"]
    assert plan["needs"][0]["device_memory"] > 0
