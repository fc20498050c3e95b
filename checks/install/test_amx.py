"""AMX's tile configuration, whose stores GCC removes as dead."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.install.build import HOOK_FILES

HEADER, PROBE = (
    next(file for file in HOOK_FILES if file.name == name)
    for name in ("amx-tile-config.h", "amx-tile-config-probe.c")
)
# As ggml fills and loads it, in its own order: eight tiles, rows and bytes of each.
_GGML = """
#include <immintrin.h>
#include <stdint.h>
struct config { uint8_t palette, start; uint8_t zeros[14]; uint16_t bytes[8]; uint8_t more[16];
                uint8_t rows[8]; uint8_t rest[8]; };
void configure(int rows, int bytes) {
    struct config config __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) { config.rows[tile] = rows; config.bytes[tile] = bytes; }
    _tile_loadconfig(&config);
}
"""


def assembly(source: Path, *options: str) -> str:
    """What the C compiler makes of it; skips where it does not know AMX."""
    done = subprocess.run(
        ["cc", "-O3", "-mamx-tile", *options, "-S", "-o", "-", str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the C compiler has no AMX: {done.stderr.strip()[-200:]}")
    return done.stdout


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or shutil.which("cc") is None,
    reason="needs an x86-64 C compiler",
)
def test_the_header_keeps_the_stores(tmp_path: Path) -> None:
    """Both arguments reach memory before the instruction that reads all 64 bytes; without the
    header this compiler removes them, or there is nothing to mend."""
    source = tmp_path / "ggml.c"
    source.write_text(_GGML)
    arguments = re.compile(r"%[er]?(?:di|si)l?\b")
    if arguments.search(assembly(PROBE)):
        pytest.skip("this compiler keeps them by itself")
    before, found, _ = assembly(source).partition("ldtilecfg")
    assert found
    assert not arguments.search(before)
    before, found, _ = assembly(source, "-include", str(HEADER)).partition("ldtilecfg")
    assert found
    assert {"di", "si"} <= {text[-2:] for text in re.findall(r"%[er]?(?:di|si)", before)}
