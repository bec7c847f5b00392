"""CPU time of the scanner against prometheus_client's parser, on the page of a real vLLM server.

    python bench/exposition.py

First checks that both read the same, sample by sample. Then both read the page in turns, so that a busy neighbour slows both; medians of
the rounds are compared. The scanner wants what the vLLM adapter makes it want, names of older versions that the page lacks included. Exits with 1
below the promised ratio.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns

from prometheus_client.parser import text_string_to_metric_families

from inspector.exposition import Scanner
from inspector_vllm.names import WANTED

PAGE = Path(__file__).parents[1] / "tests" / "fixtures" / "exposition" / "vllm-0.32.0-idle.txt"
PROMISED = 100
ROUNDS = 60
SCANS = 50
"""In one round, for one parse: the clock is too coarse for a single scan."""


def main() -> int:
    body = PAGE.read_bytes()
    text = body.decode()
    scanner = Scanner(WANTED)
    samples = check_equal(scanner, body, text)

    scans, parses = [], []
    for _ in range(ROUNDS):
        parses.append(cost(lambda: list(text_string_to_metric_families(text)), 1))
        scans.append(cost(lambda: scanner.scan(body), SCANS))
    scan, parse = statistics.median(scans), statistics.median(parses)

    ratio = parse / scan
    print(f"page      {len(body)} bytes, {samples} samples of {len(WANTED)} wanted families, equal to the parser's")
    print(f"parser    {parse:9.1f} us")
    print(f"scanner   {scan:9.1f} us")
    print(f"ratio     {ratio:9.1f}   (promised: {PROMISED})")
    return 0 if ratio >= PROMISED else 1


def check_equal(scanner: Scanner, body: bytes, text: str) -> int:
    """How many samples there are. Ends the program if scanner and parser differ in one of them."""
    parsed = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            parsed[sample.name].append((sample.labels, float(sample.value)))
    page = scanner.scan(body)
    scanned = {name: [(dict(sample.labels), sample.value) for sample in page.samples(name)] for name in WANTED}
    different = [name for name in WANTED if page.broken(name) or scanned[name] != parsed[name]]
    if different:
        sys.exit(f"scanner and parser differ in {', '.join(different)}")
    return sum(map(len, scanned.values()))


def cost(work: Callable[[], object], times: int) -> float:
    """Microseconds of this process's CPU for doing it once."""
    start = process_time_ns()
    for _ in range(times):
        work()
    return (process_time_ns() - start) / times / 1000


if __name__ == "__main__":
    sys.exit(main())
