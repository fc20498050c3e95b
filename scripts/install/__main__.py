"""The command line: `python scripts/install` or `python -m scripts.install`."""

import argparse
import signal
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (an older Python must get as far as this sentence)
    sys.exit("gguf-worker: Python 3.11 or newer is needed; name one: make PYTHON=python3.12")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.install.build import BACKENDS
from scripts.install.environment import install, write_constraints
from scripts.install.portable import make_wheels
from scripts.install.talk import InstallError, advice, say


def main() -> int:
    """Return the exit code: 0, 1 after an error, 130 after an interrupt."""
    parser = argparse.ArgumentParser("python scripts/install", description="Install into .venv.")
    parser.add_argument("--backend", choices=BACKENDS, help="without it, what is there")
    parser.add_argument("--rpc", choices=("0", "1"), help="1 adds the RPC backend")
    parser.add_argument("--extra", action="append", default=[], help="dev, otel, fleet or train")
    parser.add_argument("--locked", choices=("0", "1"), help="1 takes nothing without a known hash")
    parser.add_argument("--venv", default=".venv", help="the folder (.venv)")
    parser.add_argument("--quiet", action="store_true", help="no word when nothing is missing")
    parser.add_argument("--write-constraints", action="store_true", help="pin all versions anew")
    parser.add_argument("--wheels", metavar="FOLDER", help="write wheels for any CPU there instead")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        if args.write_constraints:
            write_constraints()
        elif args.wheels:
            make_wheels(Path(args.wheels))
        else:
            install(args.venv, args.backend, args.rpc, args.extra, args.quiet, args.locked)
    except (InstallError, OSError) as error:  # OSError: a full disk, a folder of somebody else
        say(str(error) if isinstance(error, InstallError) else f"{error}. {advice(str(error))}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the same command starts again.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
