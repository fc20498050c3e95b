"""A command imports what it needs, and the service answers before what takes long is imported."""

from __future__ import annotations

import subprocess
import sys

from worker.cli.main import COMMANDS

HEAVY = ("asyncio", "litestar", "llama_cpp", "numpy", "rich", "structlog", "uvicorn")


def modules_after(code: str) -> set[str]:
    """Top names of all modules that a new process has imported when it leaves."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import atexit, sys\natexit.register(lambda: print('|', *sys.modules))\n{code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.rpartition("|")[2].split()}


def test_help_imports_next_to_nothing() -> None:
    """What help does not need is not waited for, whatever command it is about."""
    # `fleet` is another distribution's.
    helps = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS if name != "fleet")]
    code = (
        "import contextlib, sys\n"
        "from worker.__main__ import run\n"
        "from worker.cli.main import main\n"
        f"for words in {helps}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(words)\n"
        f"    found = sorted(set(sys.modules) & {set(HEAVY)})\n"
        "    assert not found, (words, found)\n"
    )
    assert modules_after(code).isdisjoint(HEAVY)


def test_what_listens_is_light() -> None:
    """The gate answers before numpy, llama.cpp and the routes are there."""
    found = modules_after("import worker.cli.serve, worker.service.server")
    assert found.isdisjoint({"litestar", "llama_cpp", "numpy", "rich", "jinja2"})
    assert {"uvicorn", "worker"} <= found


def test_what_watches_is_light() -> None:
    """`worker top` reads the API's structs without what serves it."""
    found = modules_after("import worker.cli.top.screen")
    assert found.isdisjoint({"litestar", "llama_cpp", "numpy", "uvicorn", "jinja2"})
    assert {"rich", "msgspec"} <= found


def test_the_load_begins_early() -> None:
    """What is imported before native code reads the weights: the checks and the plan, and neither
    the context over the weights, nor the engine, nor the routes."""
    code = (
        "import worker.cli.serve, worker.service.server, worker.lifecycle.prepared\n"
        "late = ('engine', 'cache', 'grammar', 'chat', 'llama.context', 'llama.sampling')\n"
        "late = tuple(f'worker.{name}' for name in late)\n"
        "assert not [name for name in sys.modules if name.startswith(late)], list(sys.modules)\n"
        "assert 'numpy.ma' not in sys.modules\n"
    )
    assert modules_after(code).isdisjoint({"litestar", "jinja2", "diskcache"})


def test_the_description_waits_until_somebody_asks() -> None:
    """The application imports nothing of what makes /openapi.json."""
    late = "{'worker.service.openapi', 'worker.service.schemas'}"
    modules_after(f"import worker.service.app\nassert {late}.isdisjoint(sys.modules)\n")


def test_numpy_starts_no_threads() -> None:
    """Its library for matrices is told so before it is loaded; who sets the number is obeyed."""
    code = "import os\nos.environ.pop('OPENBLAS_NUM_THREADS', 0)\nimport worker.__main__\n"
    modules_after(code + "assert os.environ['OPENBLAS_NUM_THREADS'] == '1'")
    code = "import os\nos.environ['OPENBLAS_NUM_THREADS'] = '3'\nimport worker.__main__\n"
    modules_after(code + "assert os.environ['OPENBLAS_NUM_THREADS'] == '3'")


def test_the_bindings_come_without_their_package() -> None:
    """The high-level API is left out; who imports it later gets all of it."""
    code = (
        "from worker.llama import library\n"
        "assert 'diskcache' not in sys.modules\n"
        "import llama_cpp\n"
        "assert llama_cpp.Llama and llama_cpp.llama_cpp is library.native\n"
        "assert llama_cpp.__version__ == library.build().bindings\n"
    )
    assert "llama_cpp" in modules_after(code)


def test_spans_ask_for_their_packages() -> None:
    """--otel without them is an error of usage that names the extra, before anything listens."""
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\n"
        "sys.argv[1:] = ['serve', '--port', '0', '--otel']\n"
        "from worker.__main__ import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "listening" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: USAGE: --otel needs packages")
    assert "gguf-worker[otel]" in last
