"""Shares of tokens of two keys, of which one asks one request at a time and the other thirty.

    python -m benchmarks.sharing [--model FILE] [--tokens 3000] [--svg docs/sharing.svg]

Each row is a worker of its own with four slots; requests of 100 tokens follow each other. The last
row has one key without a name for both; in the row before, the one asks eight at a time. Prints a
table, and draws the shares over time. A row ends when both have their tokens together, so that a
busy machine changes no share.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from pathlib import Path

import httpx

from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

ROOT = Path(__file__).parent.parent
TOKENS, MANY, SLOTS = 100, 30, 4
# Lines of keys, and requests that the one asks at a time.
SETTINGS = {
    "weights 1 and 1": ("one name=one\nmany name=many\n", 1),
    "weights 3 and 1": ("one name=one weight=3\nmany name=many\n", 1),
    "8 beside 30": ("one name=one\nmany name=many\n", 8),
    "no names": ("one\nmany\n", 1),
}
COLOURS = ("#1f6feb", "#2a9d4a", "#8250df", "#d1572b")
WIDTH, HEIGHT, LEFT, TOP = 640, 260, 60, 50
# Tokens before anything counts, and points of a line in the picture.
WARM, POINTS = 300, 20


class Times:
    """When tokens of the one and of the many came, until `most` are there."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.one: list[float] = []
        self.many: list[float] = []

    @property
    def is_over(self) -> bool:
        return len(self.one) + len(self.many) >= self.most

    def shares(self) -> list[float]:
        """Of the first, in each of POINTS stretches of equal time after the warm-up."""
        both = sorted(self.one + self.many)[WARM:]
        begin, step = both[0], (both[-1] - both[0]) / POINTS
        counts = [[0, 0] for _ in range(POINTS)]
        for place, each in enumerate((self.one, self.many)):
            for at in each:
                if begin <= at < begin + POINTS * step:
                    counts[min(POINTS - 1, int((at - begin) / step))][place] += 1
        return [first / max(1, first + second) for first, second in counts]

    def rates(self) -> tuple[float, float]:
        """Tokens a second after the warm-up."""
        both = sorted(self.one + self.many)[WARM:]
        span = both[-1] - both[0]
        one, many = (sum(at >= both[0] for at in each) / span for each in (self.one, self.many))
        return one, many


async def ask(url: str, key: str, number: int, times: Times) -> None:
    """One request after another until there are enough tokens."""
    mine = times.one if key == "one" else times.many
    async with httpx.AsyncClient(timeout=600) as client:
        while not times.is_over:
            number += 997
            prompt = f"Story {number}. Once upon a time"
            body = {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
            headers = {"authorization": f"Bearer {key}"}
            async with client.stream(
                "POST", f"{url}/v1/completions", json=body, headers=headers
            ) as answer:
                answer.raise_for_status()
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        mine.append(time.monotonic())
                    if times.is_over:
                        break


async def measure(server: Server, tokens: int, ones: int) -> Times:
    """Both ask until so many tokens came after the warm-up."""
    times = Times(tokens + WARM)
    asks = [
        ask(server.url, "many" if number < MANY else "one", number, times)
        for number in range(MANY + ones)
    ]
    await asyncio.gather(*asks)
    return times


def tokens_a_step(server: Server) -> float:
    """Generated since the start, by the worker's own counts: no busy machine changes it."""
    text = httpx.get(f"{server.url}/metrics", headers={"authorization": "Bearer one"}).text
    tokens, steps = (
        float(re.findall(rf"^worker_{name}_total\S* (\S+)", text, re.MULTILINE)[0])
        for name in ("tokens_generated", "steps")
    )
    return tokens / steps


def draw(shares: dict[str, list[float]], title: str) -> str:
    """Lines over time, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 240} {HEIGHT + 110}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH + 240}" height="{HEIGHT + 110}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="28" font-size="15">{title}</text>',
        f'<g transform="translate({LEFT},{TOP})">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT + 40}" text-anchor="middle">time</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = HEIGHT * (1 - share)
        parts.append(f'<line x1="0" x2="{WIDTH}" y1="{y:g}" y2="{y:g}" stroke="#ddd"/>')
        parts.append(f'<text x="-8" y="{y + 4:g}" text-anchor="end">{share:.0%}</text>')
    for place, (name, values) in enumerate(shares.items()):
        step, colour = WIDTH / max(1, len(values) - 1), COLOURS[place]
        line = " ".join(f"{i * step:.1f},{HEIGHT * (1 - v):.1f}" for i, v in enumerate(values))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{WIDTH + 12}" y="{HEIGHT * (1 - values[-1]) + 4:.1f}" fill="{colour}">'
            f"{name}</text>"
        )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    """Measure each setting, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL_PATH)
    parser.add_argument("--tokens", type=int, default=3_000)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    shares: dict[str, list[float]] = {}
    print(f"{'':16} {'one':>8} {'many':>8} {'together':>9}   share of the one   tokens a step")
    with tempfile.TemporaryDirectory() as name:
        for setting, (lines, ones) in SETTINGS.items():
            keys = Path(name) / "keys"
            keys.write_text(lines)
            words = ("--model", given.model, "-np", SLOTS, "-c", SLOTS * 512, "--draft", "none")
            with serving(*map(str, words), "--api-key-file", str(keys)) as server:
                times = asyncio.run(measure(server, given.tokens, ones))
                rows = tokens_a_step(server)
            shares[setting] = times.shares()
            one, many = times.rates()
            print(f"{setting:16} {one:6.1f}/s {many:6.1f}/s {one + many:7.1f}/s   "
                  f"{one / (one + many):.3f}   {rows:.2f}", flush=True)  # fmt: skip
    if given.svg is not None:
        given.svg.write_text(draw(shares, "Share of tokens of a key with 1 request beside 30"))


if __name__ == "__main__":
    main()
