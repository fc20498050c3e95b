"""Kernels of llama.cpp that are wrong on purpose: a library that is loaded in front of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# ggml's own names and arguments; the dynamic linker takes the first function of a name.
_DOT = """
#include <stdlib.h>
#include <unistd.h>
void {name}(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by, int nrc)
{{ {body} }}
"""
_QUANTIZE = """
#include <stddef.h>
size_t ggml_quantize_chunk(int type, const float *from, void *to, long start, long rows, long width,
                           const float *matrix) { *(volatile int *)0 = 1; return 0; }
"""
_FUNCTION = """
void {name}(void *self) {{ *(volatile int *)0 = 1; }}
"""
CRASH = "*(volatile int *)0 = 1; *s = 0;"
ILLEGAL = "__builtin_trap();"
# Right for F16 until the file that a variable names is there.
CRASH_LATER = """
    if (access(getenv("CRASH_WHEN"), F_OK) == 0) *(volatile int *)0 = 1;
    const _Float16 *a = x, *b = y; double sum = 0;
    for (int i = 0; i < n; i++) sum += (float)a[i] * (float)b[i];
    *s = sum;
"""

needs_preload = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


def kernel(folder: Path, name: str, body: str) -> dict[str, str]:
    """Variables for a process in which the dot product `name` does that."""
    return _compiled(folder, _DOT.format(name=name, body=body))


def death(folder: Path, name: str) -> dict[str, str]:
    """Variables for a process that dies in the function of that (mangled) name."""
    return _compiled(folder, _FUNCTION.format(name=name))


def quantizer(folder: Path) -> dict[str, str]:
    """Variables for a process whose quantiser dies."""
    return _compiled(folder, _QUANTIZE)


def _compiled(folder: Path, text: str) -> dict[str, str]:
    source, library = folder / "planted.c", folder / "planted.so"
    source.write_text(text)
    compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)]
    done = subprocess.run(compiler, capture_output=True, text=True, check=False)
    if done.returncode:  # such as a compiler that knows no _Float16
        pytest.skip(f"the C compiler refuses the kernel: {done.stderr.strip()[-200:]}")
    return {**os.environ, "LD_PRELOAD": str(library), "CRASH_WHEN": str(folder / "now")}
