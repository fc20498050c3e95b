"""Jobs are read and cancelled by later requests, which must find their replica again.

The fleet names a job that its client does not name: `REPLICA.HEX`. For one that has the client's
own name all replicas of the model are asked.
"""

from __future__ import annotations

import uuid
from typing import Any, cast

import msgspec

STARTS = frozenset({"/execute", "/v1/infer", "/v1/jobs", "/v1/inference"})
CANCEL = "/cancel"
_READS = ("/v1/jobs/", "/v1/inference/")
_STREAM = "/stream"


def with_replica(body: bytes, replica: str) -> bytes:
    """The body with a job's id that tells its replica; as it was where it has one."""
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    if not isinstance(fields, dict) or cast("dict[str, Any]", fields).get("job_id") is not None:
        return body
    return msgspec.json.encode({**fields, "job_id": f"{replica}.{uuid.uuid4().hex}"})


def replica_of(job_id: str) -> str:
    """The replica that a job's id may tell; whether there is one of that name is not known."""
    return job_id.partition(".")[0]


def read_by(path: str) -> str | None:
    """The id of the job that this path reads, or None."""
    for start in _READS:
        if path.startswith(start) and path.endswith(_STREAM):
            return path.removeprefix(start).removesuffix(_STREAM)
    return None
