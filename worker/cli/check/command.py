"""The command: what to check, one after the other, and the exit code."""

from __future__ import annotations

import argparse
from pathlib import Path

from worker import log
from worker.cli.options import add_options, settings_from

DESCRIPTION = (
    "Check model files as the service does before it loads one, and say of each "
    "what is wrong and where. Folders are searched for *.gguf, and the files of a split model "
    "count as one. Importance matrices, vocabularies, encoders and draft models are bad where "
    "they are named, because they cannot be served, and merely told where a folder holds "
    "them. With --lora or --mmproj each model is bad that one of these does not fit. "
    "Exits with 1 when a file is bad."
)
EXAMPLE = (
    "Example: worker check ~/models; "
    "worker check --deep --json ~/models | jq -r 'select(.ok | not) | .file'"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="GGUF file, folder or model's name"
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="read the weights too: NaN, infinities, scales that no model can have learnt, and "
        "the checksums that the catalogue or the Hub's cache knows",
    )
    add_options(parser, "catalog", "lora", "mmproj")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each model")


def run(arguments: argparse.Namespace) -> int:
    """Check all of them, whatever is wrong with one; 1 where one is bad."""
    from msgspec.structs import replace

    from worker.audit.found import candidates
    from worker.audit.verdict import judge
    from worker.cli.check.progress import check_progress
    from worker.cli.check.report import places, show, summary
    from worker.cli.model import model_path
    from worker.errors import ModelFileError
    from worker.gguf.splits import open_header
    from worker.model.adapter import load_adapter
    from worker.model.config import load_config
    from worker.model.projector import check_projector, load_projector

    settings = settings_from(arguments)
    entries = ()
    if arguments.deep:
        from worker.hub.catalog import load_catalog

        entries = tuple(load_catalog(settings.catalog).entries.values())
    found = candidates(arguments.files, lambda text: model_path(replace(settings, model=text)))
    verdicts = [0, 0]
    total = sum(each.size for each in found) if arguments.deep else len(found)
    with check_progress(total, in_bytes=arguments.deep) as progress:
        for each in found:
            progress.about(each.path.name)
            verdict = judge(
                each, deep=arguments.deep, entries=entries,
                count=progress.add if arguments.deep else _nothing,
            )  # fmt: skip
            if verdict.ok and verdict.code is None:
                config = load_config(each.path, purpose="serve")
                found_places = places(config.tokenizer, open_header(each.path))
                verdict = replace(verdict, template=found_places)
                try:
                    for adapter in settings.lora:
                        load_adapter(adapter.file, each.path)
                    if settings.mmproj is not None:
                        check_projector(load_projector(Path(settings.mmproj)), config)
                except ModelFileError as error:
                    verdict = replace(
                        verdict, ok=False, code=error.code, message=error.message,
                        hint=error.hint, field=error.field,
                    )  # fmt: skip
            if not arguments.deep:
                progress.add(1)
            progress.hide()
            show(verdict, as_json=arguments.json)
            verdicts[verdict.ok] += 1
    if not arguments.json:
        log.say(summary(*verdicts))
    return 1 if verdicts[False] else 0


def _nothing(_count: int) -> None:
    """Headers are counted by the file."""
