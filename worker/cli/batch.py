"""worker batch: answers to the requests in a file."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from worker.batches.line import AnsweredLine, BatchLine, LineProblem, LineReader
from worker.batches.output_file import OutputFile, output_file
from worker.cli.arguments.batch import add_own
from worker.cli.batch_client import LineAsker
from worker.cli.console import write_json
from worker.cli.options import settings_from
from worker.cli.own_worker import server_words, worker_to_ask
from worker.cli.progress import bar_on_stderr, of_items_and_time
from worker.cli.stop_signals import raising_stop_signals
from worker.errors import UsageError, quantity
from worker.log import harmless, say

# Of a worker of our own: nobody waits for one answer, so many share each step, and prompts are
# processed in large parts.
_OWN = {"--parallel": "16", "--max-stall-ms": "60000"}
# Running workers have other clients, who come first.
_HEADERS = {"X-Priority": "10"}
# Seconds in which a worker that is gone may come back: one of our own does not.
_PATIENCE_S, _OWN_PATIENCE_S = 600.0, 3.0
_SHOWN_PROBLEMS = 10
_LOOK_S = 0.5


class BatchReport(msgspec.Struct):
    """What --json prints: lines that ask something, of these answered with 2xx, of these by an
    earlier run; lines that are wrong; tokens of this run; what the first that failed was told."""

    lines: int = 0
    answered: int = 0
    before: int = 0
    failed: int = 0
    wrong: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    first_failure: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether each line has its answer."""
        return self.answered == self.lines and not self.wrong


def run(arguments: argparse.Namespace) -> int:
    """Answer all lines. 0 only if each has its answer. Raises UsageError, WorkerError, OSError."""
    _check_names(arguments)
    lines, problems = _read(arguments.input)
    with _open(arguments.output) as output:
        _tell_problems(arguments.input, problems)
        left = [line for line in lines if line.custom_id not in output.answered]
        before = len(lines) - len(left)
        report = BatchReport(len(lines), answered=before, before=before, wrong=len(problems))
        began = time.monotonic()
        try:
            if left:
                with raising_stop_signals():
                    _ask_all(arguments, left, output, report)
        except KeyboardInterrupt:
            output.flush()
            say(f"{_summary(report)} Give the same command again to go on.\n")
            raise
        report.seconds = round(time.monotonic() - began, 3)
    if arguments.json:
        write_json(report)
    say(f"{_summary(report)}\n")
    return 0 if report.is_whole else 1


def _check_names(arguments: argparse.Namespace) -> None:
    """Raises UsageError if the answers would be written where something else is."""
    source, target = arguments.input, arguments.output
    if target == "-" and arguments.json:
        raise UsageError(
            "--json prints where OUT - writes the answers.", hint="Leave one of them out."
        )
    with contextlib.suppress(OSError):
        if Path(source).samefile(target) and Path(source).is_file():
            raise UsageError("IN and OUT are one file.", hint="Name another OUT.")


def _read(name: str) -> tuple[list[BatchLine], list[LineProblem]]:
    """Requests, those with shared beginnings side by side; and what is wrong. Raises OSError."""
    reader, lines, problems = LineReader(), list[BatchLine](), list[LineProblem]()
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
        for data in file:
            found = reader.read(data)
            if isinstance(found, LineProblem):
                problems.append(found)
            elif found is not None:
                lines.append(found)
    if not lines and not problems:
        raise UsageError("There are no requests in IN.", hint="See `worker batch --help`.")
    lines.sort(key=_beginning)
    return lines, problems


def _beginning(line: BatchLine) -> bytes:
    return line.beginning


def _tell_problems(name: str, problems: list[LineProblem]) -> None:
    for each in problems[:_SHOWN_PROBLEMS]:
        say(f"{harmless(name)} line {each.line}: {each.code}: {harmless(each.message)}\n")
    if (more := len(problems) - _SHOWN_PROBLEMS) > 0:
        say(f"{quantity(more, 'more line')} cannot be asked.\n")


@contextlib.contextmanager
def _open(name: str) -> Generator[OutputFile]:
    if name == "-":
        sys.stdout.flush()
        output = OutputFile(sys.stdout.buffer, set())
        try:
            yield output
        finally:
            output.flush()
        return
    with output_file(name) as output:
        yield output


def _ask_all(
    arguments: argparse.Namespace, lines: list[BatchLine], output: OutputFile, report: BatchReport
) -> None:

    is_own = arguments.url is None
    with worker_to_ask(arguments, _words(arguments)) as address:
        patience = _OWN_PATIENCE_S if is_own else _PATIENCE_S
        asker = LineAsker(address, {} if is_own else _HEADERS, patience)
        slots = settings_from(arguments).parallel or asker.num_slots()
        most = slots + 1 + slots // 4  # some wait, so that no slot does
        pool = ThreadPoolExecutor(min(most, len(lines)))
        try:
            for answer in _answers(pool, asker, lines, most, output, report):
                _note(answer, output, report)
        finally:
            asker.close()
            pool.shutdown(wait=False, cancel_futures=True)


def _words(arguments: argparse.Namespace) -> list[str]:
    """The options of `worker serve` among the words, behind a batch's own, which they replace."""
    words = server_words(arguments, add_own, arguments.input, arguments.output)
    given = settings_from(arguments)
    defaults = dict(_OWN)
    if given.parallel is not None:
        del defaults["--parallel"]
    return [*(word for pair in defaults.items() for word in pair), *words]


def _answers(
    pool: ThreadPoolExecutor,
    asker: LineAsker,
    lines: Iterable[BatchLine],
    most: int,
    output: OutputFile,
    report: BatchReport,
) -> Generator[AnsweredLine]:
    """As they come; `most` are asked at once, in the lines' order."""
    left, asked = iter(lines), set[Future[AnsweredLine]]()
    with bar_on_stderr("{task.description}", *of_items_and_time()) as bar:
        task = bar.add_task("answering", total=report.lines, completed=report.answered)
        while True:
            while len(asked) < most and (line := next(left, None)) is not None:
                asked.add(pool.submit(asker.ask, line))
            if not asked:
                return
            done, asked = wait(asked, _LOOK_S, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()
            bar.update(task, completed=report.answered + report.failed)
            output.flush_if_due()


class _Used(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class _Error(msgspec.Struct):
    message: str = ""


class _Body(msgspec.Struct):
    usage: _Used | None = None
    error: _Error | None = None


def _note(answer: AnsweredLine, output: OutputFile, report: BatchReport) -> None:
    output.append(answer)
    report.answered += answer.is_ok
    report.failed += not answer.is_ok
    if answer.response is None:
        return
    body = _Body()
    with contextlib.suppress(msgspec.MsgspecError):
        body = msgspec.json.decode(answer.response.body, type=_Body)
    if answer.is_ok:
        used = body.usage or _Used()
        report.prompt_tokens += used.prompt_tokens + used.input_tokens
        report.generated_tokens += used.completion_tokens + used.output_tokens
    elif not report.first_failure:
        told = body.error.message if body.error else ""
        report.first_failure = f"{answer.response.status_code} ({told or 'no reason'})"


def _summary(report: BatchReport) -> str:
    """One line for people."""
    parts = [f"{report.answered:,} of {quantity(report.lines, 'line', ',')} answered"]
    if report.before:
        parts.append(f"{report.before:,} of them before")
    if report.failed:
        first = harmless(report.first_failure)
        parts.append(f"{report.failed:,} failed, the first with {first}")
    if report.wrong:
        parts.append(f"{report.wrong:,} cannot be asked")
    text = ", ".join(parts)
    if report.seconds and report.prompt_tokens:
        speed = (report.prompt_tokens + report.generated_tokens) / report.seconds
        text += (
            f"; {report.prompt_tokens:,} prompt tokens, {report.generated_tokens:,} generated "
            f"in {report.seconds:.1f} s, {speed:,.0f} tokens/s"
        )
    return f"{text}."
