"""Ray Serve tells each gateway which replicas there are; this passes it on to the roster.

Ray's routers choose a replica for a call of Ray. The gateway asks workers by HTTP, so it needs of
a router only what the router is told: who is ready, and who no longer is.
"""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from gguf_fleet.ray_private import deployment_of
from gguf_fleet.roster import tell
from gguf_fleet.routing import Member

PREFIX = "model-"  # of a deployment's name; the model's name follows


class Members(RequestRouter):
    """Lives in each process that has a handle of the deployment, on a thread of Ray's.

    Ray sends this class there as bytes: a variable of this module would be another one there.
    """

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        tell(deployment_of(self).removeprefix(PREFIX), map(_member, replicas))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,  # noqa: ARG002
    ) -> list[list[RunningReplica]]:
        """Nobody calls a replica through Ray but Ray itself."""
        return [candidate_replicas]


def _member(replica: Any) -> Member:
    return Member(id=replica.replica_id.unique_id, **replica.replica_metadata)
