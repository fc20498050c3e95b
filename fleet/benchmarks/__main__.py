"""Figures of a fleet on this machine.

    python -m benchmarks way FILE... [--rounds 8] [--streams 1 8 32] [--router PATH]
                                                                       what the gateway costs
    python -m benchmarks deaths [--tries 3]                      how long each is felt
    python -m benchmarks affinity FILE [--rounds 2]              conversations that come back
    python -m benchmarks memory                                  what all of it holds
    python -m benchmarks pause FILE [--rounds 3]                 what a client sees of a loss

All but the third and the last need Ray (`make install FLEET=1`).
"""

from __future__ import annotations

import argparse

from benchmarks import affinity, deaths, memory, pause, way


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("way")
    one.add_argument("file", nargs="+", help="GGUF files, one after the other")
    one.add_argument("--rounds", type=int, default=8)
    one.add_argument("--streams", type=int, nargs="+", default=list(way.STREAMS))
    one.add_argument("--router", metavar="PATH", help="a vllm-router, to stand beside")
    one = parts.add_parser("deaths")
    one.add_argument("--tries", type=int, default=3)
    one.add_argument("--of", nargs="*", default=list(deaths.DEATHS), choices=deaths.DEATHS)
    one = parts.add_parser("affinity")
    one.add_argument("file", help="a GGUF file")
    one.add_argument("--rounds", type=int, default=2)
    one.add_argument("--only", nargs="*", choices=affinity.LOADS, default=list(affinity.LOADS))
    parts.add_parser("memory")
    one = parts.add_parser("pause")
    one.add_argument("file", help="a GGUF file")
    one.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.part == "way":
        way.run(arguments.file, arguments.rounds, arguments.router, arguments.streams)
    elif arguments.part == "deaths":
        deaths.run(arguments.of, arguments.tries)
    elif arguments.part == "affinity":
        affinity.run(arguments.file, arguments.rounds, arguments.only)
    elif arguments.part == "pause":
        pause.run(arguments.file, arguments.rounds)
    else:
        memory.run()


if __name__ == "__main__":
    main()
