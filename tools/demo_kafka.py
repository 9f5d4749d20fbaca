"""Runs the application of ``tidemill new --template kafka`` on a real broker, with kill -9 in between.

    python tools/demo_kafka.py FOLDER

Run by ``make demo-kafka``. It needs Java, and Maven for the jars of the broker.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import kafka
from broker import Broker, missing

TRANSFERS = 20_000
ACCOUNTS = 100
SECONDS_MAX = 300
LAST = 3_600_000_000
"""The time of the last transfers, microseconds."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: demo_kafka.py FOLDER", file=sys.stderr)
        return 2
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    folder = Path(arguments[0])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print("begins a broker", flush=True)
    broker = Broker(folder / "broker")
    try:
        return demo(folder, broker.servers)
    finally:
        broker.stop()


def demo(folder: Path, servers: str) -> int:
    subprocess.run([*TIDEMILL, "new", "--template", "kafka", "bank"], cwd=folder, check=True)
    topics = {name: {"num_partitions": 3, "replication_factor": 1} for name in ("transfers", "done", "rejected", "bad")}
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics(topics, wait_for_metadata=True)
    admin.close()
    print(f"sends {TRANSFERS:,} transfers to the topic transfers", flush=True)
    fill(servers)
    kills, begun = 0, time.monotonic()
    running = run(folder, servers)
    while (found := len(read(servers, "done")) + len(read(servers, "rejected"))) < TRANSFERS:
        print(f"{found:,} results in the topics done and rejected, {kills} kills", flush=True)
        if time.monotonic() > begun + SECONDS_MAX or running.poll() is not None:
            running.kill()
            print("error: the results are not there", file=sys.stderr)
            return 1
        if kills < 3:
            running.kill()
            running.wait()
            kills += 1
            running = run(folder, servers)
    running.send_signal(signal.SIGTERM)
    running.wait()
    return check(servers, kills)


TIDEMILL = [sys.executable, "-m", "tidemill"]


def run(folder: Path, servers: str) -> subprocess.Popen[bytes]:
    command = [*TIDEMILL, "run", "bank/app.py", "--state", "state", "--quiet"]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "KAFKA": servers})


def fill(servers: str) -> None:
    rng = random.Random(1)
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    for number in range(TRANSFERS):
        src = "bank" if number < ACCOUNTS else f"a{rng.randrange(ACCOUNTS)}"
        dst = f"a{number}" if number < ACCOUNTS else f"a{rng.randrange(ACCOUNTS)}"
        transfer = {"at": number * 1_000, "src": src, "dst": dst, "amount": rng.randrange(1, 300)}
        producer.send("transfers", json.dumps(transfer).encode(), partition=number % 3)
    # An hour later, so that the lateness of all others is over.
    for partition in range(3):
        last = {"at": LAST, "src": "bank", "dst": "a0", "amount": 1}
        producer.send("transfers", json.dumps(last).encode(), partition=partition)
    producer.flush()
    producer.close()


def read(servers: str, topic: str) -> list[dict[str, object]]:
    """Returns what is in a topic, as far as transactions have committed it."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=1_000,
    )
    parts = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(parts)
    found = [json.loads(record.value) for record in consumer]
    consumer.close()
    return found


def check(servers: str, kills: int) -> int:
    """Holds the results against a loop over the transfers."""
    balances: dict[object, int] = {}
    done = []
    for one in sorted(read(servers, "transfers"), key=lambda one: str(one["at"]).zfill(12)):
        if one["at"] == LAST:
            continue
        src, dst, amount = one["src"], one["dst"], int(str(one["amount"]))
        if src == "bank" or balances.get(src, 0) >= amount:
            balances[src] = balances.get(src, 0) - amount
            balances[dst] = balances.get(dst, 0) + amount
            left = balances[src]
            done.append((src, dst, amount, left))
    found = [(one["src"], one["dst"], one["amount"], one["left"]) for one in read(servers, "done")]
    rejected = len(read(servers, "rejected"))
    is_right = sorted(found, key=str) == sorted(done, key=str) and rejected == TRANSFERS - len(done)
    print(f"{len(found):,} transfers done and {rejected:,} rejected, after {kills} kills: each ", end="")
    print("once, as a loop over the topic has them" if is_right else "NOT as a loop over the topic has them")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
