"""worker chat: a conversation with a model in the terminal."""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib
import mimetypes
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from worker.cli import chat_client
from worker.cli.address import Address
from worker.cli.answer_view import Show, shows_answers
from worker.cli.arguments.chat import add_own
from worker.cli.own_worker import server_words, worker_to_ask
from worker.cli.utf8 import utf8_text
from worker.errors import UsageError
from worker.log import harmless, say

_HELP = """\
/system TEXT   set the system prompt; without TEXT remove it
/image FILE    attach an image to the next message
/clear         start a new conversation
/regenerate    generate the last answer again
/help          show this list
/bye           leave; Ctrl-D does too. Ctrl-C stops an answer.
A line that ends with \\ continues on the next line.
"""


def run(arguments: argparse.Namespace) -> int:
    """Chat until the user leaves. Raises UsageError, what the worker raises at its start, and, if
    nobody can answer it, a ChatError."""

    words = server_words(arguments, add_own)
    system = None if arguments.system is None else utf8_text(arguments.system, "system prompt")
    with worker_to_ask(arguments, words) as address:
        chat = Chat(address, system)
        with shows_answers() as show:
            if sys.stdin.isatty():
                say(f"{harmless(chat_client.model_name(address))}. /help lists the commands.\n")
            for text in _messages():
                try:
                    chat.take(text, show)
                except (UsageError, chat_client.ChatError) as error:
                    if not sys.stdin.isatty():
                        raise
                    say(f"{harmless(str(error))}\n")
                if chat.is_over:
                    break
    return 0


def _messages() -> Generator[str]:
    """What the user writes, message by message, until the end of standard input."""
    ask: Callable[[], str] = sys.stdin.readline
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # arrows and history, if Python has them
            importlib.import_module("readline")
        ask = _ask
    text = ""
    while line := ask():
        text += line.rstrip("\n")
        if text.endswith("\\"):
            text = f"{text[:-1]}\n"
        elif text.strip():
            yield text.strip()
            text = ""
    if text.strip():
        yield text.strip()


def _ask() -> str:
    """A line of the terminal with its end; empty at Ctrl-D."""
    while True:
        try:
            return input("> ") + "\n"
        except EOFError:
            say("\n")
            return ""
        except KeyboardInterrupt:
            say("\nType /bye or press Ctrl-D to leave.\n")


class Chat:
    """A conversation and what is said next in it.

    is_over  whether the user has left
    """

    def __init__(self, address: Address, system: str | None) -> None:
        self._address = address
        self._system = system
        self._turns: list[dict[str, Any]] = []
        self._images: list[str] = []
        self.is_over = False

    def take(self, text: str, show: Show) -> None:
        """Do what a line of the user says: a command, or a message that is answered."""
        command, _, rest = text.partition(" ")
        rest = rest.strip()
        if command in ("/bye", "/exit", "/quit"):
            self.is_over = True
        elif command in ("/help", "/?"):
            say(_HELP)
        elif command == "/system":
            self._system = utf8_text(rest, "system prompt") or None
            say("The system prompt is set.\n" if rest else "There is no system prompt now.\n")
        elif command == "/clear":
            self._turns, self._images = [], []
            say("This is a new conversation.\n")
        elif command == "/image":
            self._attach(rest)
        elif command == "/regenerate":
            if not self._turns:
                say("There is no answer yet.\n")
            else:
                self._turns = self._turns[:-1]
                self._answer(show)
        elif command.startswith("/") and command[1:].isalpha():
            say(f"There is no command {command}. /help lists the commands.\n")
        else:
            content = self._content(utf8_text(text, "message"))
            self._turns.append({"role": "user", "content": content})
            self._answer(show)

    def _attach(self, name: str) -> None:
        if not name:
            say("Name a file: /image FILE.\n")
            return
        path = Path(name).expanduser()
        try:
            data = path.read_bytes()
        except OSError as error:
            say(f"{harmless(name)} cannot be read: {error.strerror}.\n")
            return
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        self._images.append(f"data:{kind};base64,{base64.b64encode(data).decode()}")
        say(f"{harmless(path.name)} goes with your next message.\n")

    def _content(self, text: str) -> str | list[dict[str, Any]]:
        shown = [{"type": "image_url", "image_url": {"url": url}} for url in self._images]
        self._images = []
        return [*shown, {"type": "text", "text": text}] if shown else text

    def _answer(self, show: Show) -> None:
        """The answer to the last message, which is forgotten if there is none. Raises ChatError."""
        system = [{"role": "system", "content": self._system}] if self._system else []
        pieces = chat_client.stream(self._address, [*system, *self._turns])
        try:
            answer = show(pieces)
        except chat_client.ChatError:
            self._turns.pop()
            raise
        finally:
            pieces.close()
        self._turns.append({"role": "assistant", "content": answer})
