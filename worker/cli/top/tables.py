"""The rows of the view: requests at work, those that ended, lines of the log.

Each list begins with its heading. Columns have fixed widths, so that rows do not jump when a value
changes; what is left of the width goes to the first column.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size
from rich.text import Text

from worker.cli.console import one_line
from worker.cli.top.activity import WatchedEnd, WatchedRequest
from worker.cli.top.glyphs import Glyphs

_LEVELS = {"warning": "yellow", "error": "red", "critical": "red"}
_BUSY = {"waiting": "yellow", "reading": "cyan", "writing": "green"}
_ENDS = {"stop": "", "length": "", "cancelled": "yellow", "left": "yellow", "refused": "yellow"}
_ROUTE, _BAR, _MIN_ID = 25, 10, 12

_Cell = tuple[str, int, str]
"""Text, width (negative: to the right), style."""


def request_rows(
    requests: Sequence[WatchedRequest], width: int, glyphs: Glyphs, *, wide: bool
) -> list[Text]:
    """What generates, oldest first; `wide` adds the route and a bar of how far each is."""
    heads = ["state", "tokens", "tok/s", "cached", "wait", "age"]
    if not requests:
        return [Text("requests  none", "dim")]
    headings = _columns(heads, "dim", wide=wide, route="route", bar="")
    rows = [_row("request", headings, width, "dim")]
    for each in requests:
        style = _BUSY.get(each.state, "")
        speed = f"{each.tokens_per_second:,.1f}" if each.tokens_per_second is not None else ""
        values = [each.state, _progress(each), speed, f"{each.cached_tokens:,}",
                  _seconds(each.wait_s), _seconds(each.age_s)]  # fmt: skip
        name = f"{each.id} x {each.sequences}" if each.sequences > 1 else each.id
        bar = glyphs.bar(((_share(each), ""),), _BAR).plain
        cells = _columns(values, style, wide=wide, route=each.route, bar=bar)
        rows.append(_row(name, cells, width, ""))
    return rows


def ended_rows(ended: Sequence[WatchedEnd], width: int, *, wide: bool) -> list[Text]:
    """What ended last, newest first."""
    if not ended:
        return []
    heads = ["ended", "tokens", "tok/s", "cached", "first", "took"]
    headings = _columns(heads, "dim", wide=wide, route="route", bar="")
    rows = [_row("request", headings, width, "dim")]
    for each in ended:
        style = _ENDS.get(each.outcome, "red")
        speed = f"{each.tokens_per_second:,.1f}" if each.tokens_per_second is not None else ""
        tokens = f"{each.prompt_tokens:,} + {each.generated_tokens:,}"
        values = [each.outcome, tokens, speed, f"{each.cached_tokens:,}",
                  _seconds(each.first_token_s), _seconds(each.duration_s)]  # fmt: skip
        cells = _columns(values, style, wide=wide, route=each.route, bar="")
        rows.append(_row(each.id, cells, width, ""))
    return rows


def log_rows(log: Sequence[tuple[str | None, ...]]) -> list[Text]:
    """The log's lines, the last one last."""
    rows = [Text("log", "dim")]
    for line in log:
        time, level, *rest = (*line, "", "")
        clock = (time or "").partition("T")[2][:8]
        text = one_line(" ".join(word for word in rest if word))
        text.stylize(_LEVELS.get(level or "", ""))
        rows.append(Text.assemble((one_line(clock).plain, "dim"), " ", text))
    return rows


def _progress(request: WatchedRequest) -> str:
    """How far: of the prompt while it is read, then of what may be written."""
    if request.state == "writing":
        most = f" of {request.max_tokens:,}" if request.max_tokens is not None else ""
        return f"{request.generated_tokens:,}{most}"
    if not request.sequences:
        return "made ready"
    return f"{request.read_tokens:,} of {request.prompt_tokens:,}"


def _share(request: WatchedRequest) -> float:
    """The same from 0 to 1."""
    if request.state == "writing":
        return request.generated_tokens / max(1, request.max_tokens or 1)
    return request.read_tokens / max(1, request.prompt_tokens)


def _columns(values: Sequence[str], style: str, *, wide: bool, route: str, bar: str) -> list[_Cell]:
    """The cells behind the first one; `style` is the first value's, and the bar's."""
    widths = (10, -17, -9, -9, -8, -8)
    cells = [(value, size, "") for value, size in zip(values, widths, strict=True)]
    cells[0] = (values[0], widths[0], style)
    return [(route, _ROUTE, "dim"), cells[0], (bar, _BAR, style), *cells[1:]] if wide else cells


def _row(name: str, cells: Sequence[_Cell], width: int, style: str) -> Text:
    room = max(_MIN_ID, width - sum(abs(size) + 1 for _, size, _ in cells))
    line = Text(set_cell_size(one_line(name).plain, room), style)
    for value, size, own in cells:
        text = one_line(value).plain
        shown = _to_right(text, -size) if size < 0 else set_cell_size(text, size)
        line.append(f" {shown}", own or style)
    return line


def _to_right(text: str, size: int) -> str:
    fitting = Text(text)
    fitting.truncate(size, overflow="ellipsis")
    return " " * max(0, size - fitting.cell_len) + fitting.plain


def _seconds(value: float | None) -> str:
    """0.4 -> '0.40 s', 75.0 -> '75 s'."""
    if value is None:
        return ""
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"
