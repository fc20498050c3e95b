"""The worker that a command of the terminal asks: a running one, or one of its own."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Generator, Sequence

from worker.cli.address import Address, address_from
from worker.cli.options import settings_from
from worker.cli.progress import activity
from worker.errors import UsageError, WorkerError
from worker.lifecycle.server_process import ServerError, server_process


@contextlib.contextmanager
def worker_to_ask(arguments: argparse.Namespace, words: Sequence[str]) -> Generator[Address]:
    """The worker at `--url`, or one that is started with `words` and stopped afterwards.

    Raises UsageError, WorkerError.
    """
    if arguments.url is not None:
        if arguments.named is not None or arguments.model is not None:
            raise UsageError("--url names a running worker.", hint="Leave the model out.")
        yield address_from(arguments)
        return
    key = next(iter(settings_from(arguments).api_keys), None)
    with contextlib.ExitStack() as stack:
        try:
            with activity("loading the model"):
                server = stack.enter_context(server_process(words, os.environ, group=0))
        except ServerError as error:
            code, _, message = error.reason.partition(": ")
            failure = WorkerError(message or str(error), code=code or error.code)
            failure.exit_code = error.returncode if error.reason else 1  # type: ignore[misc]
            raise failure from None
        yield Address(f"http://{server.host}:{server.port}", key)


def server_words(
    arguments: argparse.Namespace, add_own: Callable[[argparse.ArgumentParser], None], *named: str
) -> list[str]:
    """The options of `worker serve` among a command's words. add_own, named: the command's own"""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_own(own)
    _, words = own.parse_known_args(arguments.words)
    for word in named:
        words.remove(word)
    return words
