"""Shares of tokens of two keys, of which one asks one request at a time and the other thirty.

    python -m benchmarks.sharing [--model FILE] [--seconds 20] [--svg docs/sharing.svg]

Each row is a worker of its own with four slots; requests of 100 tokens follow each other. The last
row has one key without a name for both. Prints a table, and draws the shares over time.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import httpx

from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH

ROOT = Path(__file__).parent.parent
TOKENS, MANY, SLOTS = 100, 30, 4
SETTINGS = {
    "weights 1 and 1": "one name=one\nmany name=many\n",
    "weights 3 and 1": "one name=one weight=3\nmany name=many\n",
    "no names": "one\nmany\n",
}
COLOURS = ("#1f6feb", "#2a9d4a", "#d1572b")
WIDTH, HEIGHT, LEFT, TOP = 640, 260, 60, 50
# Seconds before anything counts, and of a point in the picture.
WARM_S, POINT_S = 3.0, 1.0


async def ask(url: str, key: str, number: int, times: list[float], end: float) -> None:
    """One request after another until the time is over; when each token came."""
    async with httpx.AsyncClient(timeout=600) as client:
        while time.monotonic() < end:
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
                        times.append(time.monotonic())
                    if time.monotonic() > end:
                        break


async def measure(server: Server, seconds: float) -> tuple[list[float], list[float]]:
    """When tokens of the one and of the many came, from the end of the warm-up on."""
    begin = time.monotonic() + WARM_S
    one, many, end = list[float](), list[float](), begin + seconds
    asks = [ask(server.url, "many", number, many, end) for number in range(MANY)]
    await asyncio.gather(ask(server.url, "one", MANY, one, end), *asks)
    first, second = ([at - begin for at in each if begin <= at < end] for each in (one, many))
    return first, second


def points(one: list[float], many: list[float], seconds: float) -> list[float]:
    """The share of the first in each stretch of POINT_S."""
    shares: list[float] = []
    for place in range(int(seconds / POINT_S)):
        low, high = place * POINT_S, (place + 1) * POINT_S
        first, second = (sum(low <= at < high for at in each) for each in (one, many))
        shares.append(first / max(1, first + second))
    return shares


def draw(shares: dict[str, list[float]], title: str) -> str:
    """Lines over time, as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 240} {HEIGHT + 110}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH + 240}" height="{HEIGHT + 110}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="28" font-size="15">{title}</text>',
        f'<g transform="translate({LEFT},{TOP})">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT + 40}" text-anchor="middle">seconds</text>',
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
    longest = max(map(len, shares.values())) * POINT_S
    for second in range(0, int(longest) + 1, 5):
        x = WIDTH * second / longest
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT + 20}" text-anchor="middle">{second}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    """Measure each setting, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL_PATH)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    shares: dict[str, list[float]] = {}
    print(f"{'':16} {'one':>8} {'many':>8} {'together':>9}   share of the one")
    with tempfile.TemporaryDirectory() as name:
        for setting, lines in SETTINGS.items():
            keys = Path(name) / "keys"
            keys.write_text(lines)
            words = ("--model", given.model, "-np", SLOTS, "-c", SLOTS * 512, "--draft", "none")
            with serving(*map(str, words), "--api-key-file", str(keys)) as server:
                one, many = asyncio.run(measure(server, given.seconds))
            rates = [len(each) / given.seconds for each in (one, many)]
            shares[setting] = points(one, many, given.seconds)
            share = len(one) / max(1, len(one) + len(many))
            print(f"{setting:16} {rates[0]:6.1f}/s {rates[1]:6.1f}/s {sum(rates):7.1f}/s   "
                  f"{share:.3f}", flush=True)  # fmt: skip
    if given.svg is not None:
        given.svg.write_text(draw(shares, "Share of tokens of a key with 1 request beside 30"))


if __name__ == "__main__":
    main()
