"""worker serve: run the service."""

from __future__ import annotations

import argparse
import signal

from msgspec.structs import replace

from worker import log
from worker.cli.foreign import warn_of_foreign_options
from worker.cli.model import fetch_models
from worker.cli.options import settings_from
from worker.cli.progress import load_progress
from worker.errors import UsageError
from worker.isolation.keys import protect_key
from worker.isolation.reach import reach_of
from worker.isolation.sandbox import enter
from worker.lifecycle.leave import leave_when_told, stop_signals


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; failures are raised."""
    # Until the service handles signals itself: a stop while we are starting is no failure.
    leave_when_told()
    settings = settings_from(arguments)
    if settings.reads_again:  # from now on it means that a file has changed
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log.configure(settings.log_format, settings.log_level)  # type: ignore[arg-type]
    if settings.log_file is not None:
        try:
            log.copy_to(settings.log_file)
        except OSError as error:
            raise UsageError(
                f"--log-file {settings.log_file} cannot be written: {error.strerror}.",
                hint="Name another file.",
            ) from None
    warn_of_foreign_options(arguments)
    if settings.api_keys:
        protect_key()
    import asyncio

    from worker.llama.process import memory
    from worker.service.server import certificate_of, serve

    certificate = certificate_of(settings)
    memory.share_one()  # before the first thread
    path, settings = fetch_models(settings)
    if settings.sandbox:
        from worker.llama import library
        from worker.llama.media.encoder import start_early
        from worker.model.projector import projector_beside

        library.proof().verdict().require()  # inside, no other process could be started
        if settings.mmproj_auto and settings.mmproj is None:  # nor the folder be looked through
            beside = projector_beside(path) if library.reads_media() else None
            settings = replace(settings, mmproj=None if beside is None else str(beside))
        if settings.mmproj is not None:
            start_early()
        enter(reach_of(settings, path))
    with load_progress(path.name) as report:
        try:
            asyncio.run(serve(settings, path, report, certificate))
        finally:
            # The event loop has ended, and its handlers with it. A second signal must not change
            # the exit code.
            for number in stop_signals():
                signal.signal(number, signal.SIG_IGN)
    return 0
