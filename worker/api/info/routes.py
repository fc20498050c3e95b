"""The routes about the worker itself, with what is said of each."""

from __future__ import annotations

from worker.api.described import EVENTS, JSON, TEXT, Api, Described
from worker.api.info.about import (
    Health,
    Info,
    ModelReady,
    Version,
    health,
    info,
    metrics,
    model_ready,
    version,
)
from worker.api.info.lora import (
    AdapterEntry,
    NewAdapter,
    OldAdapter,
    Success,
    load_adapter_file,
    lora_adapters,
    scale_adapters,
    unload_adapter,
)
from worker.api.info.power import ShutdownReply, Sleeping, is_sleeping, shutdown, sleep, wake_up
from worker.api.info.progress import LoadProgress, NotLoaded, Ready, progress
from worker.api.info.props import Props, SlotInfo, props, slots
from worker.api.intake.adapters import MODEL_ID, NO_MODEL, AdapterScale
from worker.api.intake.origins import Asker
from worker.errors import ForbiddenError, NotFoundError, RequestError, UnavailableError
from worker.http import paths

_NO_FILE = NotFoundError("There is no such file in the folders of --lora-dir.")
_NO_ADAPTER = NotFoundError("There is no adapter of this name.")

API = Api(
    name="Worker",
    text="What runs here and how it is, for managers, routers, monitors and people.",
    routes=(
        Described(
            handler=health,
            gives={JSON: Health},
            also={503: Health},
            pages={paths.PAGE: (ForbiddenError("A page of another origin asks."),)},
            notes="Open to everybody. 503 with the same fields where the engine hangs.",
        ),
        Described(handler=metrics, gives={TEXT: str}),
        Described(
            handler=progress,
            gives={EVENTS: (LoadProgress, Ready, NotLoaded)},
            notes="Events while the model loads, then `ready` or `error`.",
        ),
        Described(
            handler=shutdown,
            asker=Asker.LOCAL,
            gives={JSON: ShutdownReply},
        ),
        Described(handler=info, gives={JSON: Info}),
        Described(handler=version, gives={JSON: Version}),
        Described(
            handler=sleep,
            asker=Asker.LOCAL,
            gives={JSON: Sleeping},
            queries={"mode": "wait: what runs ends first."},
            refuses=(RequestError("mode must be wait."),),
            notes="What comes meanwhile waits, and wakes it again.",
        ),
        Described(handler=wake_up, asker=Asker.LOCAL, gives={JSON: Sleeping}),
        Described(handler=is_sleeping, gives={JSON: Sleeping}),
        Described(
            handler=model_ready,
            gives={JSON: ModelReady},
            path="/v2/models/{model_id}/ready",
            params={"model_id": MODEL_ID},
            refuses=(NO_MODEL,),
        ),
        Described(handler=props, gives={JSON: Props}),
        Described(handler=lora_adapters, gives={JSON: list[AdapterEntry]}),
        Described(
            handler=scale_adapters,
            asker=Asker.OWN,
            takes=list[AdapterScale],
            gives={JSON: Success},
            examples={"none": []},
            notes="404 for a number that /lora-adapters does not have.",
        ),
        Described(
            handler=load_adapter_file,
            asker=Asker.OWN,
            takes=NewAdapter,
            gives={TEXT: str},
            refuses=(_NO_FILE,),
            examples={"named": {"lora_name": "sql", "lora_path": "sql.gguf"}},
            notes="Without --lora-dir 404. 400 with a code that says what is wrong with the file; "
            "`no_room`: it is too large.",
        ),
        Described(
            handler=unload_adapter,
            asker=Asker.OWN,
            takes=OldAdapter,
            gives={TEXT: str},
            refuses=(_NO_ADAPTER,),
            examples={"named": {"lora_name": "tales"}},
            notes="Without --lora-dir 404.",
        ),
        Described(
            handler=slots,
            gives={JSON: list[SlotInfo]},
            queries={"fail_on_no_slot": "Anything: 503 where no slot is idle."},
            refuses=(UnavailableError("No slot is idle.", code="no_slot"),),
        ),
    ),
)
