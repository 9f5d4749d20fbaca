"""The cost of an event in instructions, cache misses and mispredicted branches (MorphStream, Figure 18a), by
Cachegrind.

Streaming Ledger at its defaults, on one worker. A process runs each way to schedule once, another runs it twice over
the same events; the difference is one run: tables filled, epochs prepared, accessed and finished, results compared.
Caches are simulated (32 KiB, then 2 MiB) and so is the branch predictor, so numbers say what the code asks for, not
what a processor makes of it. Needs ``valgrind``, and ``cargo build --release -p tidemill-bench``.

    python bench/counted.py [EVENTS]
"""

import re
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent.parent / "target/release/tidemill-bench"
POLICIES = ["epoch", "transaction", "transaction,versions", "chain", "operation", "operation,lazy"]
SCHEMES = ["tstream", "pat:16", "lal", "lwm", "no-lock"]
COUNTS = {"instructions": "I +refs", "first": "D1 +misses", "last": "LLd misses", "branches": "Mispredicts"}
DIGITS = {"instructions": 0, "first": 1, "last": 2, "branches": 2}


def counted(name: str, events: int, times: int) -> dict[str, int]:
    """All counts of a process that runs the epochs so many times more than at least."""
    policies, schemes = ([name] * times, []) if name in POLICIES else ([], [name] * times)
    way = ["--policies", " ".join(policies)] + (["--schemes", ",".join(schemes)] if schemes else [])
    command = [BENCH, "grid", "--workloads", "sl", "--micros", "0", "--workers", "1", *way]
    command += ["--rows", "10000", "--runs", "1", "--seconds", "0", "--events", str(events)]
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--branch-sim=yes", "--cachegrind-out-file=/dev/null"]
    tool += ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=2097152,16,64"]
    ran = subprocess.run([*tool, *command], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = {key: re.findall(rf"{label}:\s*([\d,]+)", ran.stderr) for key, label in COUNTS.items()}
    return {key: int(numbers[0].replace(",", "")) for key, numbers in found.items()}


def main(events: int) -> None:
    print("| scheduling | instructions | misses of 32 KiB | misses of 2 MiB | mispredicted branches |")
    print("| --- | --- | --- | --- | --- |")
    for name in POLICIES + SCHEMES:
        once, twice = counted(name, events, 1), counted(name, events, 2)
        shown = [f"{(twice[key] - once[key]) / events:,.{digits}f}" for key, digits in DIGITS.items()]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
