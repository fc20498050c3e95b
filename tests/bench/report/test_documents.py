"""The files of a report: well-formed, complete, and safe with names from strangers."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tests.bench.report.reports import level, replaced, report
from worker.bench.report import BenchReport, LevelReport
from worker.bench.report.changes import read_report
from worker.bench.report.columns import tables
from worker.bench.report.documents import (
    markdown,
    page,
    picture,
    write_report,
)
from worker.bench.report.plot import SizeDrawing
from worker.bench.sections import FitChoice
from worker.cli.bench_table import report_table
from worker.errors import UsageError

HOSTILE = "<script>alert(1)</script> & \"x\" 'y' | `z` \x1b[31m ](javascript:0) ￾"
VOID = {"meta", "br", "hr", "img", "input", "link"}


def levels() -> list[LevelReport]:
    """A reference and three others, one of which failed."""
    failed = replaced(
        level("Q2_K", 200 << 20, 40, 0.4), load=None, speed=None, serve=None, serve_again=None,
        quality=None,
        errors={"speed": "The process ended by SIGABRT."},
    )  # fmt: skip
    return [
        level("F16", 1000 << 20, 10, 0.0, reference=True),
        level("Q8_0", 530 << 20, 18, 0.001),
        level("Q4_K_M", 300 << 20, 30, 0.03),
        failed,
    ]


def hostile() -> BenchReport:
    """A model whose names are an attack on whoever shows them."""
    found = [
        replaced(one, file=f"/models/{HOSTILE}.gguf", encoding=HOSTILE, file_type=HOSTILE)
        for one in levels()
    ]
    found[1] = replaced(found[1], quant=HOSTILE, errors={"load": HOSTILE})
    made = report(found, model=HOSTILE)
    assert made.corpus is not None
    return replaced(made, corpus=replaced(made.corpus, name=HOSTILE), notes=(HOSTILE,))


class Page(HTMLParser):
    """Checks that tags nest, and collects what could load something or run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.seen.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself, as SVG has them."""
        self.seen.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """It must be the one that is open."""
        assert self.open, tag
        assert self.open[-1] == tag, f"{tag} closes {self.open[-1]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        """Note it."""
        self.text.append(data)


@pytest.mark.parametrize("make", [lambda: report(levels()), hostile], ids=["plain", "hostile"])
def test_the_page_is_one_sound_file(make: Callable[[], BenchReport]) -> None:
    """Tags nest, nothing is loaded from elsewhere, nothing runs."""
    text = page(make())
    parsed = Page(text)
    assert parsed.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert not parsed.seen & {"script", "link", "img", "iframe", "object", "embed", "form"}
    names = {name for name, _ in parsed.attributes}
    assert not names & {"src", "href", "action", "onload", "onclick", "style"}
    assert not re.search(r"url\(|@import", text)
    assert "prefers-color-scheme:dark" in text
    for name in ("title", "table", "svg", "details"):
        assert name in parsed.seen


def test_the_page_holds_everything() -> None:
    """Verdict, all levels, the reasons, the failure, and the report itself."""
    made = report(levels())
    parsed = Page(page(made))
    text = "".join(parsed.text)
    assert "Take Q4_K_M on this machine" in text
    for one in made.levels:
        assert one.quant in text
        assert one.sha256[:16] in text
    assert "The process ended by SIGABRT." in text
    assert '"kld_mean"' in text


@pytest.mark.parametrize("make", [lambda: report(levels()), hostile], ids=["plain", "hostile"])
def test_the_plot_is_sound_svg(make: Callable[[], BenchReport]) -> None:
    """It parses, has a dot for each level that was measured, and no script."""
    made = make()
    tree = ElementTree.fromstring(picture(made))
    space = "{http://www.w3.org/2000/svg}"
    assert tree.tag == f"{space}svg"
    dots = tree.findall(f".//{space}circle")
    assert len(dots) == 3
    assert not tree.findall(f".//{space}script")
    labels = ["".join(text.itertext()) for text in tree.findall(f".//{space}text")]
    assert "F16 (0)" in labels
    assert "Q4_K_M" in labels


def test_the_plot_puts_things_where_they_belong() -> None:
    """Faster is to the right, less divergence is higher, larger is larger; the chosen one stands
    out; the line goes through the best."""
    tree = ElementTree.fromstring(picture(report(levels())))
    space = "{http://www.w3.org/2000/svg}"
    f16, q8, q4 = tree.findall(f".//{space}circle")
    x, y, r = ([float(dot.get(name, "")) for dot in (f16, q8, q4)] for name in ("cx", "cy", "r"))
    assert x[0] < x[1] < x[2]
    assert y[0] < y[1] < y[2]
    assert r[0] > r[1] > r[2]
    area = [radius**2 for radius in r]
    assert area[1] / area[0] == pytest.approx(0.53, rel=0.02)
    assert [dot.get("class") for dot in (f16, q8, q4)] == ["dot", "dot", "dot chosen"]
    line = tree.find(f".//{space}polyline")
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert sorted(points) == sorted(zip(x, y, strict=True))
    for dot in (f16, q8, q4):
        assert 0 < float(dot.get("cx", "")) < 760
        assert 0 < float(dot.get("cy", "")) < 440


def test_fits_are_joined_in_a_plot_against_size(tmp_path: Path) -> None:
    """Presets are points beside them, the reference is left out, and the page has both plots."""
    fit = FitChoice(text="a.txt", imatrix=None, estimate=0.01, probes=9, seconds=3.0)
    found = [*levels(), level("fit:4.5", 400 << 20, 10.0, 0.02), level("fit:4", 90, 9.0, 0.04)]
    found[-2:] = [replaced(each, fit=fit) for each in found[-2:]]
    made = report(found)
    drawing = SizeDrawing(made)
    names = [each.quant for each in found if each.quality and not each.is_reference]
    assert [dot.name for dot in drawing.dots] == names
    fits = [dot for dot in drawing.dots if dot.is_fit]
    assert [dot.name for dot in fits] == ["fit:4.5", "fit:4"]
    assert drawing.front == [(dot.x, dot.y) for dot in reversed(fits)]
    assert page(made).count("<svg") == page(report(levels())).count("<svg") + 1
    names = [path.name for path in write_report(made, tmp_path)]
    assert names[-1] == "report.sizes.svg"
    assert "fit:4 was chosen by the other two thirds of a.txt in 3 s" in markdown(made)


def test_no_name_in_the_plot_is_struck_out() -> None:
    """By the line that shows the error of its own level."""
    tree = ElementTree.fromstring(picture(report(levels())))
    space = "{http://www.w3.org/2000/svg}"
    names = {found.text or "": found for found in tree.iter(f"{space}text")}
    assert "F16 (0)" in names
    errors = [line for line in tree.iter(f"{space}line") if line.get("class") == "error"]
    assert len(errors) == 3
    for name, error in zip(("F16 (0)", "Q8_0", "Q4_K_M"), errors, strict=True):
        begin = float(names[name].get("x", ""))
        end = begin + 7.5 * len(name)
        beside = begin > float(error.get("x2", "")) or end < float(error.get("x1", ""))
        assert beside or abs(float(names[name].get("y", "")) - float(error.get("y1", ""))) > 8


def test_without_quality_bits_are_drawn() -> None:
    """A plot of what there is; and one without any result is sound too."""
    scoreless = [replaced(one, quality=None) for one in levels()]
    text = picture(report(scoreless))
    assert "bits per weight" in text
    nothing = [
        replaced(one, speed=None, serve=None, serve_again=None, quality=None) for one in levels()
    ]
    assert ElementTree.fromstring(picture(report(nothing))) is not None


def test_the_markdown_tables_are_tables() -> None:
    """Every row has as many cells as the head of its table, whatever is in them."""
    for made in (report(levels()), hostile()):
        blocks = [block for block in markdown(made).split("\n\n") if block.startswith("| ")]
        assert len(blocks) == len(tables(made)) == 6
        for block in blocks:
            rows = block.splitlines()
            assert len(rows) == 2 + len(made.levels)
            assert len({row.count(" | ") for row in rows}) == 1
    text = markdown(hostile())
    assert "<script" not in text
    assert "\x1b" not in text


def test_tables_show_what_was_measured() -> None:
    """The bare loop beside HTTP, at one and at several streams; a dash where nothing was."""
    made = report(levels())
    shown = {table.title.split(",")[0]: table for table in tables(made)}
    latency = [column.title for column in shown["Latency"].columns]
    assert latency[1:5] == ["TTFT bare", "ITL bare", "TTFT HTTP", "ITL HTTP"]
    assert "ITL HTTP x4" in latency
    cells = {column.title: column.text(made.levels[2]) for column in shown["Summary"].columns}
    assert cells["level"] == "→ Q4_K_M"
    assert cells["write"] == "30.0 ±1%"
    assert cells["KLD"] == "0.03000 ±0.00047"
    failed = [column.text(made.levels[3]) for column in shown["Summary"].columns]
    assert failed[0] == "Q2_K"
    assert set(failed[3:]) == {"–"}


def test_a_report_reads_back(tmp_path: Path) -> None:
    """All four files are written, none is left half, and the JSON is the report."""
    made = hostile()
    paths = write_report(made, tmp_path / "new" / "folder")
    assert sorted(path.name for path in paths) == sorted(
        path.name for path in (tmp_path / "new" / "folder").iterdir()
    ) == ["report.html", "report.json", "report.md", "report.svg"]  # fmt: skip
    assert read_report(paths[0]) == made
    plain = msgspec.json.decode(paths[0].read_bytes())
    first = plain["levels"][0]
    assert {"quant", "size_bytes", "bpw", "load", "speed", "serve", "quality"} <= first.keys()
    assert {"ppl", "kld_mean", "same_top"} <= first["quality"].keys()
    assert plain["verdict"]["rule"]


def test_what_is_no_report_is_refused(tmp_path: Path) -> None:
    """A file that is not there, not JSON, not a report, or of another format."""
    made = report(levels())
    other = tmp_path / "other.json"
    for content in (b"{", b"{}", msgspec.json.encode(replaced(made, format=99))):
        other.write_bytes(content)
        with pytest.raises(UsageError):
            read_report(other)
    with pytest.raises(UsageError, match="cannot be read"):
        read_report(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content",
    [
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"format": 1' + b"0" * 400 + b"}",
        b"\xff\xfe",
        b"[]",
        b"",
    ],
)
def test_hostile_files_are_no_reports(tmp_path: Path, content: bytes) -> None:
    """Nested beyond reading, numbers beyond counting, no text: one sentence, no traceback."""
    path = tmp_path / "hostile.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no report"):
        read_report(path)


def test_numbers_that_nothing_measured_are_refused(tmp_path: Path) -> None:
    """Where their square or their logarithm would be none."""
    first, *others = levels()
    assert first.speed is not None
    assert first.quality is not None
    rate = first.speed.rates[0]
    huge = replaced(rate, per_s=replaced(rate.per_s, mean=1e300, deviation=1e300))
    path = tmp_path / "odd.json"
    made = report(levels())
    for odd in (
        replaced(first, n_params=12345),
        replaced(first, speed=replaced(first.speed, rates=(huge,))),
        replaced(first, quality=replaced(first.quality, ppl=0.0)),
    ):
        raw = msgspec.json.encode(replaced(made, levels=(odd, *others)))
        path.write_bytes(raw.replace(b":12345,", b":1" + b"0" * 400 + b","))
        with pytest.raises(UsageError, match="is no report"):
            read_report(path)


def test_the_limit_is_marked_in_the_plot() -> None:
    """A line, with its value; levels that are close enough are above it."""
    for limit, above in ((0.05, 3), (0.02, 2)):
        tree = ElementTree.fromstring(picture(report(levels(), max_kld=limit)))
        space = "{http://www.w3.org/2000/svg}"
        (line,) = [each for each in tree.iter(f"{space}line") if each.get("class") == "limit"]
        at = float(line.get("y1", ""))
        dots = [float(dot.get("cy", "")) for dot in tree.iter(f"{space}circle")]
        assert sum(dot < at for dot in dots) == above
        texts = [text.text or "" for text in tree.iter(f"{space}text")]
        assert any(text.startswith(f"limit {limit:g}:") for text in texts)
    scoreless = [replaced(one, quality=None) for one in levels()]
    assert "limit" not in picture(report(scoreless)).partition("</style>")[2]


def test_the_tables_of_the_page_fit_1200_pixels() -> None:
    """No line has more characters than fit, with what stands between its cells."""
    made = report([replaced(one, mix={f"Q{i}_K": 0.1 for i in range(9)}) for one in levels()])
    tables_of = re.findall(r"<table>.*?</table>", page(made), re.DOTALL)
    assert len(tables_of) > len(tables(made))
    for table in tables_of:
        rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        assert sum(4 + width for width in widths) <= 150


def test_the_verdict_is_plain_english() -> None:
    """Which level, what that means beside the reference, how sure; each level; what figures mean.

    The terminal has it all, and leaves the conditions of measurement to the files.
    """
    made = report(levels())
    out = io.StringIO()
    Console(file=out, width=1000).print(report_table(made, 1000))
    text = out.getvalue()
    assert (
        "Take Q4_K_M on this machine: close to F16, 30% of its size, 3.0 times the speed. "
        "The measurements are clear."
    ) in text
    assert "Q8_0: hardly different from F16. It diverges by 0.00100" in text
    assert "prefers the same token in 99.9 of 100 places." in text
    assert "Q2_K was not measured: The process ended by SIGABRT." in text
    assert "up to 0.01 hardly different, up to 0.05 close (the limit, --max-kld)" in text
    assert "KLD: mean KL divergence from the reference" in text
    assert "seed 7" not in text
    assert "seed 7" in markdown(made)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    """Nothing is cut off: what does not fit stands below, beside the levels once more."""
    made = report(levels())
    out = io.StringIO()
    Console(file=out, width=width).print(report_table(made, width))
    lines = out.getvalue().partition("Verdict")[0].splitlines()
    assert max(map(len, lines)) <= width
    columns = tables(made)[0].columns
    for title in (column.title for column in columns):
        assert any(title in line for line in lines)
    for column in columns:
        for found in made.levels:
            assert any(column.text(found) in line for line in lines)
    heads = sum(line.startswith("level") for line in lines)
    assert (heads == 1) == (width == 200)
