"""The confusion table of the gate against degenerate gaits on tests/data/gait_corpus.npz, as JSON.

`python benchmarks/gait_gate.py > benchmarks/results/gait_gate.json`: label -> name of the first fault that is told ->
number of motions; `none` where no fault is told.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from gait_corpus import faults_of, motions
from quick import read_options
from record import circumstances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--motions", type=int, metavar="N", help="only the first N motions of the file")
    given = read_options(parser, motions=3)
    first: dict[str, Counter[str]] = defaultdict(Counter)
    counts: Counter[str] = Counter()
    for motion in islice(motions(), given.motions):
        found, bad = faults_of(motion), motion.label != "walk"
        first[motion.label][next(iter(found), "none")] += 1
        counts["degenerate" if bad else "walks"] += 1
        counts["degenerate caught"] += bad and bool(found)
        counts["degenerate with the right name among the told"] += bad and motion.label in found
        counts["degenerate with the right name first"] += bad and motion.label == next(iter(found), "")
        counts["walks caught"] += not bad and bool(found)
    table = {label: dict(names) for label, names in sorted(first.items())}
    print(json.dumps({"counts": counts, "first": table, **circumstances()}, indent=1))


if __name__ == "__main__":
    main()
