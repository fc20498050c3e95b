"""A small pool manager: several workers behind one port, kept alive, drained at the end.

    python examples/pool_manager.py --workers 2 --port 8000 -- --threads 1
    curl -N http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once", "stream": true}'

What follows `--` goes to each worker (--model FILE, --ctx-size N, ...). Kill one with SIGKILL or
freeze it with SIGSTOP: a new one takes its place, and what it had not begun to answer is asked of
another. SIGTERM or Ctrl-C drains them all and exits with 0; SIGKILL takes them along.
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SILENT_S = 6.0  # without a heartbeat; then a worker is taken for dead
DRAIN_S = 4.0  # for running requests at the end; the worker leaves within a second more


@dataclass
class Member:
    kill_at: float  # by the monotonic clock; each report puts it off
    port: int = 0  # once it is ready
    busy: int = 0  # requests that it answers for us


class Pool:
    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.members: dict[str, Member] = {}
        self.stopping = asyncio.Event()

    async def keep(self, name: str, reports: str) -> int:
        """Run one worker after another until told to stop; the last one's exit code."""
        while True:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "worker", "serve", "--port", "0", "--worker-id", name),
                *f"--callback-url {reports}/ready --heartbeat-url {reports}/heartbeat".split(),
                *f"--heartbeat-interval 1 --drain-timeout {DRAIN_S:g} --die-with-parent".split(),
                *self.options,
                start_new_session=True,  # Ctrl-C is for us: a second signal would cut its drain
            )
            member = self.members[name] = Member(time.monotonic() + 600)  # for loading the model
            while process.returncode is None:
                if self.stopping.is_set() and self.members.pop(name, None):
                    member.kill_at = time.monotonic() + DRAIN_S + 3
                    process.terminate()
                elif time.monotonic() > member.kill_at:
                    process.kill()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 0.2)
            self.members.pop(name, None)
            print(f"{name}: ended with {process.returncode}\n", end="", flush=True)
            if process.returncode > 0 and not any(m.port for m in (member, *self.members.values())):
                self.stopping.set()  # a wrong option or file: the next one would end like it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), 1.0)
                return process.returncode

    async def hear(self, head: bytes, body: bytes, peer: asyncio.StreamWriter) -> None:
        """A ready callback or a heartbeat; who is none of ours is refused, and leaves."""
        report = json.loads(body)
        member = self.members.get(name := report["worker_id"])
        if member is None:
            answer(peer, 200 if self.stopping.is_set() else 404, "No such worker any more.")
            return
        if report.get("health_status") != "stalled":
            member.kill_at = time.monotonic() + SILENT_S
        if head.startswith(b"POST /ready "):
            member.port = report["port"]
            print(f"{name}: pid {report['pid']} at {report['url']}\n", end="", flush=True)
        answer(peer, 200, "Noted.")

    async def relay(self, head: bytes, body: bytes, peer: asyncio.StreamWriter) -> None:
        """Ask the least busy worker; where no answer begins, the next one."""
        request = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)[:-2]
        request += b"Connection: close\r\n\r\n" + body
        ready = sorted((m for m in self.members.values() if m.port), key=lambda m: m.busy)
        begun = False
        for member in ready:
            member.busy += 1
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", member.port)
                with contextlib.closing(writer):  # when our client leaves, the worker stops
                    writer.write(request)
                    part = await reader.readuntil(b"\r\n\r\n")
                    if part.split()[1] in (b"429", b"503") and member is not ready[-1]:
                        continue  # its queue is full, or it drains
                    begun = True
                    while part:
                        peer.write(part)
                        await peer.drain()
                        part = await reader.read(1 << 16)
                    return
            except (OSError, EOFError):
                if begun:  # the client sees that its answer has no end
                    return
            finally:
                member.busy -= 1
        answer(peer, 503, "No worker is ready.")


def answer(peer: asyncio.StreamWriter, status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": "server_error"}})
    head = f"HTTP/1.1 {status} -\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: "
    peer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())


async def listen(handle: Callable[..., Awaitable[None]], port: int) -> str:
    """Take one request a connection, on loopback; who leaves is not answered any further."""

    async def serve(reader: asyncio.StreamReader, peer: asyncio.StreamWriter) -> None:
        with contextlib.closing(peer), contextlib.suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            tasks = [asyncio.ensure_future(t) for t in (handle(head, body, peer), reader.read())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks[0].cancel()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def main(workers: int, port: int, options: list[str]) -> int:
    pool = Pool(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, pool.stopping.set)
    reports = await listen(pool.hear, 0)
    # The line end in the same write, also under `python -u`: workers write here too.
    print(f"listening on {await listen(pool.relay, port)}\n", end="", flush=True)
    codes = await asyncio.gather(*(pool.keep(f"worker-{n + 1}", reports) for n in range(workers)))
    if rest := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(rest, timeout=1)  # the last bytes for clients
    return int(any(codes))


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--workers", type=int, default=2, help="how many (2)")
    parser.add_argument("--port", type=int, default=8000, help="for clients, 0: a free one (8000)")
    parser.add_argument("options", nargs="*", help="for each worker, after --")
    sys.exit(asyncio.run(main(**vars(parser.parse_args()))))
