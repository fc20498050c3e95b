"""Real routers over two workers, with the examples' configurations: one worker is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from checks.examples import programs
from checks.examples.programs import EXAMPLES, MODEL, Load, Program, Reader
from tests.support import http
from tests.support.metrics import count_ended
from tests.support.models import ggufs
from tests.support.programs.processes import serving, until

MASTER_KEY = "sk-for-this-test-only-0123456789abcdef"


class Router(Program):
    """A router in front of two workers.

    url         where clients ask
    alive       the path that says that it has started
    model, key  what clients send
    """

    def __init__(
        self,
        *command: str | Path,
        url: str,
        alive: str,
        model: str = MODEL,
        key: str = "unused",
        env: dict[str, str] | None = None,
    ) -> None:
        super().__init__(*command, env=env)
        self.url, self.alive, self.model, self.key = url, alive, model, key

    def wait_until_alive(self) -> None:
        """Until it answers."""

        def answers() -> bool:
            assert self.process.poll() is None, self.lines[-50:]
            with contextlib.suppress(httpx.HTTPError):
                return http.get(self.url + self.alive).status_code == 200
            return False

        until(answers)

    def begin_stream(self, workers: list[str]) -> tuple[Reader, str]:
        """A stream, and the address of the worker that got it; nobody else may ask meanwhile."""
        before = {url: programs.count_running(url) for url in workers}
        reader = Reader(self.url, model=self.model, key=self.key, tokens=4_000)
        (url,) = (url for url in workers if programs.count_running(url) > before[url])
        return reader, url


def vllm_router(_folder: Path, port: int, workers: list[str]) -> Router:
    """examples/vllm-router.sh; of an option that is given twice the last one counts."""
    (metrics,) = programs.free_ports(1)
    return Router(
        *("sh", EXAMPLES / "vllm-router.sh", "--port", str(port), "--worker-urls", *workers),
        *("--prometheus-port", str(metrics)),
        url=f"http://127.0.0.1:{port}",
        alive="/health",
    )


def litellm(folder: Path, port: int, workers: list[str]) -> Router:
    """examples/litellm.yaml, with other ports in it."""
    text = (EXAMPLES / "litellm.yaml").read_text()
    for example, url in zip(("8081", "8082"), workers, strict=True):
        text = text.replace(f"http://127.0.0.1:{example}/", url + "/")
    file = folder / "litellm.yaml"
    file.write_text(text)
    return Router(
        *(programs.command("litellm"), "--config", file),
        *("--host", "127.0.0.1", "--port", str(port)),
        url=f"http://127.0.0.1:{port}",
        alive="/health/liveliness",
        model="demo",
        key=MASTER_KEY,
        env={"LITELLM_LOCAL_MODEL_COST_MAP": "true", "LITELLM_MASTER_KEY": MASTER_KEY},
    )


@pytest.mark.parametrize(("program", "start"), [("vllm-router", vllm_router), ("litellm", litellm)])
def test_a_killed_worker(
    program: str, start: Callable[[Path, int, list[str]], Router], tmp_path: Path
) -> None:
    """Only streams of the killed worker end early; the other one answers what is asked meanwhile.

    Back on its port, it gets work again.
    """
    programs.command(program)  # skips before anything is started
    *ports, port = programs.free_ports(3)
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    # Slow enough, and long enough, that streams still run after some answers of a slow router.
    slow = ggufs.write_llama(
        tmp_path / "slow.gguf", layers=4, embedding=512, feed_forward=1024, context=8192
    )
    fixed = ("--model", slow, "--alias", MODEL, "--threads", "1", "--ctx-size", "16384")
    options = [(*fixed, "--port", str(port)) for port in ports]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(serving(*words)) for words in options]
        router = stack.enter_context(start(tmp_path, port, urls))
        router.wait_until_alive()
        with openai.OpenAI(base_url=router.url + "/v1", api_key=router.key) as client:
            assert router.model in [model.id for model in client.models.list()]
        streams = [router.begin_stream(urls)]
        while len({url for _, url in streams}) < 2:
            assert len(streams) < 8, "all streams go to one worker"
            streams.append(router.begin_stream(urls))
        with Load(router.url, model=router.model, key=router.key) as load:
            load.goes_on()
            workers[0].process.kill()
            for reader, url in streams:
                cut_off = reader.result() != "length"
                assert cut_off is (url == urls[0]), (url, reader.result())
            load.goes_on(50)
            stack.enter_context(serving(*options[0]))
            until(lambda: count_ended(urls[0]) > 0)
            load.goes_on()
        assert not load.errors
        router.process.terminate()
        router.wait()
        router.wait_until_silent()
