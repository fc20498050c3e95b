"""Whether the compiler gives each shared library a C++ runtime of its own, and what mends that.

llama.cpp's libraries throw and pass C++ objects to each other. Where each has a copy of libstdc++
whose symbols the loader mixes, the process dies while the first model is loaded.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from scripts.install.talk import say

_CODE = """
#include <iostream>
#include <string>
extern "C" const char * place(void) {
    static std::string text = "probe";
    std::cout << std::flush;
    return text.c_str();
}
"""
# The shared one resolves all that the archive, which the compiler names behind it, would.
SHARED = "-Wl,--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state"


def linker_flags() -> list[str]:
    """What CMake is told so that all libraries share one C++ runtime; nothing where they do."""
    if not shutil.which("readelf") or not _has_own_copy([]):
        return []
    if not _has_own_copy([SHARED]):
        say("this compiler links libstdc++ into each library; linking the shared one instead")
        return [f"-DCMAKE_SHARED_LINKER_FLAGS={SHARED}", f"-DCMAKE_MODULE_LINKER_FLAGS={SHARED}"]
    say(
        "this compiler links libstdc++ into each library, and finds no shared one: loading may "
        "fail. Install libstdc++.so (Debian, Ubuntu: libstdc++6), or name another compiler (CXX)."
    )
    return []


def _has_own_copy(flags: list[str]) -> bool:
    """Whether a library that it links holds libstdc++; False where it does not link at all."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    extra = shlex.split(os.environ.get("LDFLAGS", ""))
    with tempfile.TemporaryDirectory() as made:
        source, library = Path(made, "probe.cpp"), Path(made, "libprobe.so")
        source.write_text(_CODE)
        command = [*compiler, "-shared", "-fPIC", *flags, "-o", str(library), str(source), *extra]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        if done.returncode:
            return bool(flags)  # with none it is another failure, which the build tells better
        readelf = shutil.which("readelf") or "readelf"
        said = subprocess.run(  # noqa: S603
            [readelf, "--dynamic", str(library)], capture_output=True, text=True, check=False
        ).stdout
    return "NEEDED" in said and not any(name in said for name in ("libstdc++", "libc++"))
