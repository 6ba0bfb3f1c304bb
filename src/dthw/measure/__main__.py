"""Measure this machine: ``python -m dthw.measure``. Installs and fetches nothing; needs torch 2.6 or newer."""

import argparse
import shlex
import sys
from pathlib import Path

from tqdm import tqdm

from dthw.measure import results
from dthw.measure.collectives import sweep
from dthw.ranks import launch

RANKS = (2, 4, 8)
ALGORITHMS = ("ring", "recursive_doubling", "halving_doubling", "double_binary_tree")
LARGEST = 64 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dthw.measure", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/assets/data"), help="folder for the result files")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--largest", type=int, default=LARGEST, help="largest buffer in bytes, at least 1024")
    parser.add_argument("--runs", type=int, default=3, help="whole runs in fresh processes; all their samples are kept")
    asked = parser.parse_args()
    sizes = [1024 * 4**k for k in range(16) if 1024 * 4**k <= asked.largest]
    records: list[dict[str, object]] = []
    with tqdm(total=len(asked.ranks) * asked.runs * len(sizes), unit="size", disable=not sys.stderr.isatty()) as bar:
        for ranks in asked.ranks:
            for run in range(asked.runs):
                for size in sizes:
                    records += [{"run": run, **r} for r in launch(sweep, ranks, [size], ALGORITHMS, timeout=600)[0]]
                    bar.update()
    target = asked.out / "gloo.json"
    results.write(target, records, "python -m dthw.measure " + shlex.join(sys.argv[1:]))
    print(f"{len(records)} records in {target}")


if __name__ == "__main__":
    main()
