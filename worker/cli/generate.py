"""worker generate: one answer in the terminal."""

from __future__ import annotations

import argparse
import base64
import contextlib
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from worker import log, machine
from worker.api.intake.media_inputs import MediaInputs
from worker.chat.template import ChatTemplate
from worker.cli.model import model_path
from worker.cli.options import settings_from
from worker.cli.progress import load_progress
from worker.cli.utf8 import utf8_text
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.errors import RequestError, UsageError, quantity
from worker.lifecycle.default_sampling import default_sampling
from worker.lifecycle.loading import open_backend
from worker.lifecycle.media import MediaReader
from worker.lifecycle.prepared import load_weights, prepare
from worker.llama.vocab import Vocab
from worker.model.tokenizer import TokenizerConfig


def run(arguments: argparse.Namespace) -> int:
    """Stream the continuation to stdout, figures to stderr. Raises UsageError."""
    settings = msgspec.structs.replace(settings_from(arguments), parallel=1)
    prompt = _prompt(arguments.prompt)
    log.configure("console", "debug" if settings.verbose else "error")

    path, images = model_path(settings), [(file, _picture(file)) for file in arguments.image]
    prepared = prepare(path, settings, sees=bool(images))
    if images and prepared.projector is None:
        raise UsageError("This model has no projector.", hint="Name its file with --mmproj.")
    tokenizer = None if arguments.raw else prepared.config.tokenizer
    with load_progress(path.name) as report:
        weights = load_weights(path, settings, prepared, report)
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(open_backend(weights, settings, prepared))
        engine = Engine(backend, time.monotonic)
        if images:
            reader = MediaReader(settings, prepared)
            stack.callback(reader.close)
            reader.wait(backend.context.rows_together)
            shown = _about(images, prompt, reader, backend.vocab, tokenizer)
        else:
            prompt = _apply_template(prompt, backend.vocab, tokenizer)
            tokens = backend.vocab.tokenize(prompt, add_special=True, parse_special=True)
            shown = Prompt(tuple(tokens))
        request = Request(
            id="cli",
            prompt=shown,
            params=GenerationParams(
                max_tokens=arguments.max_tokens,
                sampling=default_sampling(prepared.config, settings),
            ),
        )
        try:
            engine.check(request)
        except RequestError as error:
            raise UsageError(error.message, hint=error.hint) from None
        engine.add(request)
        _stream(engine, request)
    return 0


def _picture(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.", hint="Check the path."
        ) from None


def _about(
    images: list[tuple[str, bytes]],
    text: str,
    reader: MediaReader,
    vocab: Vocab,
    tokenizer: TokenizerConfig | None,
) -> Prompt:
    """What the chat template makes of pictures and a text; of a model without one, these as they
    stand. Raises UsageError."""

    media, said = MediaInputs(reader), ""
    try:
        for file, data in images:
            mark = media.mark("image", base64.b64encode(data).decode(), (file, "image"))
            if mark is None:
                raise UsageError("This model does not accept images.", hint="Leave --image out.")
            reader.read(reader.digest(data), data, "image")
            said += mark
        said = _apply_template(said + text, vocab, tokenizer)
        read = partial(vocab.tokenize, parse_special=True)
        _, tokens, shown = media.prompt(said, read, 2**31)
    except RequestError as error:
        raise UsageError(error.message, hint=error.hint) from None
    return Prompt(tuple(tokens), media=shown)


def _apply_template(text: str, vocab: Vocab, tokenizer: TokenizerConfig | None) -> str:
    """A user's message as the chat template writes it; the text itself if there is none.

    Raises UsageError for a template that renders no such message.
    """

    if tokenizer is None or not tokenizer.chat_template:
        return text
    try:
        template = ChatTemplate(tokenizer.chat_template, bos=vocab.bos_name, eos=vocab.eos_name)
        said = template.render([{"role": "user", "content": text}])
    except RequestError as error:
        raise UsageError(error.message, hint="Use --raw to continue the text itself.") from None
    return said.removeprefix(vocab.bos_name) if vocab.adds_bos else said


def _prompt(text: str) -> str:
    """The text, or with "-" that of standard input. UsageError where it is not UTF-8."""
    return utf8_text(sys.stdin.buffer.read() if text == "-" else text, "prompt")


def _stream(engine: Any, request: Any) -> None:
    """Print text as it comes, then its speed, what ended it, and the memory."""
    tokens, started, first, last = 0, time.monotonic(), 0.0, 0.0
    ended_by = "the model"
    while not engine.is_idle:
        for delta in engine.step():
            last = time.monotonic()
            first = first or last
            tokens += delta.token is not None
            sys.stdout.write(delta.text)
            sys.stdout.flush()
            if delta.error is not None:
                raise delta.error
            if delta.finish_reason == "length":
                ended_by = "--max-tokens" if tokens == request.params.max_tokens else "the context"
    sys.stdout.write("\n")
    speed = f"{(tokens - 1) / (last - first):.1f} tokens/s" if last > first else "one token"
    read = len(request.prompt.tokens)
    sys.stderr.write(
        f"{quantity(read, 'prompt token')} in {first - started:.2f} s, "
        f"{quantity(tokens, 'token')} at {speed}, ended by {ended_by}, "
        f"{machine.resident_bytes() / 1e6:.0f} MB resident\n"
    )
