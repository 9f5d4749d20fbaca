"""Topics of Kafka as sources and sinks: a real broker, and a client of others beside ours."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import count

import kafka
import kafka.admin
import pytest
from conftest import load_tool
from server_process import WAIT_SECONDS, until

import tidemill as tm

broker_tool = load_tool("broker")
pytestmark = pytest.mark.skipif(broker_tool.missing() is not None, reason=str(broker_tool.missing()))

NAMES = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = broker_tool.Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()


class Topics:
    """Topics of a broker, as a client of others sees them."""

    def __init__(self, broker):
        self.broker = broker
        self.servers = broker.servers

    def make(self, partitions=1, **config):
        """Makes a topic with a name of its own."""
        name = f"t{next(NAMES)}"
        admin = kafka.KafkaAdminClient(bootstrap_servers=self.servers)
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": config}
        admin.create_topics({name: topic}, wait_for_metadata=True)
        admin.close()
        return name

    def delete(self, name):
        admin = kafka.KafkaAdminClient(bootstrap_servers=self.servers)
        admin.delete_topics([name])
        admin.close()

    def send(self, topic, records, partition=None):
        """Sends records: values, or tuples of key and value."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.servers, acks="all")
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            key = key.encode() if isinstance(key, str) else key
            value = json.dumps(value).encode() if not isinstance(value, (bytes, type(None))) else value
            producer.send(topic, value, key, partition=partition)
        producer.flush()
        producer.close()

    def read(self, topic, isolation="read_committed"):
        """Returns the records that there are, by partition and in order."""
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.servers,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=1_500,
        )
        parts = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        found = list(consumer)
        consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def values(self, topic):
        return [json.loads(record.value) for record in self.read(topic)]


@pytest.fixture
def topics(broker):
    return Topics(broker)


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


class Deposit(tm.Event):
    at: int = tm.event_time()
    account: str
    amount: int


class Balance(tm.Event):
    account: str
    balance: int


def bank(source, sink, name="bank", lateness=0, idle=None):
    """Each deposit gives a balance."""
    app = tm.App(name)
    accounts = app.table(Account)
    deposits = app.source(Deposit, source, name="deposits", lateness=lateness, idle=idle)

    @app.transaction(deposits)
    def deposit(ev, a=accounts.row("account", create=True)) -> Balance:
        a.balance += ev.amount
        return Balance(account=a.id, balance=a.balance)

    app.sink(deposit.committed, sink)
    return app, deposits


def deposits_of(rng, number, accounts=5):
    return [{"at": at, "account": f"a{rng.randrange(accounts)}", "amount": rng.randrange(10)} for at in range(number)]


def balances_of(deposits):
    balances, out = {}, []
    for one in deposits:
        balances[one["account"]] = balances.get(one["account"], 0) + one["amount"]
        out.append({"account": one["account"], "balance": balances[one["account"]]})
    return out


def test_from_topic_to_topic(topics, tmp_path):
    sent = deposits_of(random.Random(1), 500)
    source, sink = topics.make(3), topics.make()
    for partition in range(3):
        topics.send(source, sent[partition::3], partition)
    into = tm.kafka(sink, servers=topics.servers, key="account")
    app, _ = bank(tm.kafka(source, servers=topics.servers, last=True), into)
    summary = app.run(state=tmp_path / "state")
    assert summary.events == 500
    found = topics.read(sink)
    assert [json.loads(record.value) for record in found] == balances_of(sent)
    assert all(record.key.decode() == json.loads(record.value)["account"] for record in found)


def test_without_a_state(topics, tmp_path):
    sent = deposits_of(random.Random(2), 300)
    source, sink = topics.make(2), topics.make()
    for partition in range(2):
        topics.send(source, sent[partition::2], partition)
    app, _ = bank(tm.kafka(source, servers=topics.servers, follow=False), tm.kafka(sink, servers=topics.servers))
    app.run()
    assert topics.values(sink) == balances_of(sent)


def test_a_later_run_goes_on(topics, tmp_path):
    sent = deposits_of(random.Random(3), 400)
    source, sink = topics.make(), topics.make()
    app, _ = bank(tm.kafka(source, servers=topics.servers, follow=False), tm.kafka(sink, servers=topics.servers))
    for part in (sent[:150], sent[150:151], [], sent[151:]):
        topics.send(source, part)
        app.run(state=tmp_path / "state")
    assert topics.values(sink) == balances_of(sent)


def test_one_partition_needs_no_event_time(topics, tmp_path):
    class Plain(tm.Event):
        n: int

    source, out = topics.make(2), tmp_path / "out.jsonl"
    topics.send(source, [{"n": n} for n in range(50)], 1)
    topics.send(source, [{"n": -1}], 0)
    app = tm.App("plain")
    plain = app.source(Plain, tm.kafka(source, servers=topics.servers, only=1, last=True), name="plain")
    app.sink(plain, tm.jsonl(out))
    app.run()
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == list(range(50))
    app = tm.App("several")
    app.sink(app.source(Plain, tm.kafka(source, servers=topics.servers), name="plain"), tm.jsonl(out))
    with pytest.raises(tm.RunError, match=r"event\s+time"):
        app.run()


def test_parts_of_a_record_are_fields(topics, tmp_path):
    class Part(tm.Event):
        at: tm.Time = tm.event_time()
        who: str | None
        number: int
        place: int
        trace: bytes | None
        text: str

    source, sink = topics.make(), topics.make()
    producer = kafka.KafkaProducer(bootstrap_servers=topics.servers)
    producer.send(source, b"one", b"ada", [("trace", b"1"), ("trace", b"2")], timestamp_ms=1_000)
    producer.send(source, b"two", None, timestamp_ms=2_000)
    producer.flush()
    producer.close()
    app = tm.App("parts")
    read = {"key": "who", "timestamp": "at", "partition": "number", "offset": "place", "headers": {"trace": "trace"}}
    parts = app.source(Part, tm.kafka(source, servers=topics.servers, format="raw", last=True, **read), name="parts")
    app.sink(parts, tm.jsonl(tmp_path / "out.jsonl"))
    write = {"key": "who", "timestamp": "at", "headers": {"trace": "of"}}
    app.sink(parts, tm.kafka(sink, servers=topics.servers, **write))
    app.run()
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    first, second = found
    assert first == {
        "at": "1970-01-01T00:00:01.000000Z", "who": "ada", "number": 0, "place": 0, "trace": "Mg==", "text": "one"
    }  # fmt: skip
    assert (second["who"], second["trace"], second["text"], second["place"]) == (None, None, "two", 1)
    written = topics.read(sink)
    assert [record.timestamp for record in written] == [1_000, 2_000]
    assert [record.key for record in written] == [b"ada", None]
    assert [list(record.headers) for record in written] == [[("of", b"2")], []]


def test_what_cannot_be_decoded_is_bad_with_its_place(topics, tmp_path):
    source, out = topics.make(), tmp_path / "out.jsonl"
    good = {"at": 1, "account": "ada", "amount": 5}
    topics.send(source, [b"{", good, ("gone", None), {**good, "amount": "five"}, {**good, "more": 1}, b"\xff"])
    app, deposits = bank(tm.kafka(source, servers=topics.servers, last=True), tm.jsonl(out))
    app.sink(deposits.bad, tm.jsonl(tmp_path / "bad.jsonl"))
    app.run()
    assert [json.loads(line)["balance"] for line in out.read_text().splitlines()] == [5, 10]
    bad = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(one["origin"], one["line"]) for one in bad] == [(f"{source}/0", place) for place in (0, 2, 3, 5)]
    assert "no value" in bad[1]["reason"] and bad[2]["column"] == "amount" and "UTF-8" in bad[3]["reason"]


def test_what_an_aborted_transaction_wrote_is_not_read(topics, tmp_path):
    source, out = topics.make(), tmp_path / "out.jsonl"
    producer = kafka.KafkaProducer(bootstrap_servers=topics.servers, transactional_id="others")
    producer.init_transactions()
    for amount, is_kept in ((1, True), (2, False), (4, True)):
        producer.begin_transaction()
        producer.send(source, json.dumps({"at": amount, "account": "ada", "amount": amount}).encode())
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    producer.close()
    app, _ = bank(tm.kafka(source, servers=topics.servers, last=True), tm.jsonl(out))
    app.run()
    assert [json.loads(line)["balance"] for line in out.read_text().splitlines()] == [1, 5]


def test_start(topics, tmp_path):
    source = topics.make()
    producer = kafka.KafkaProducer(bootstrap_servers=topics.servers)
    for at in range(5):
        value = json.dumps({"at": at, "account": "ada", "amount": 1}).encode()
        producer.send(source, value, timestamp_ms=1_700_000_000_000 + at * 1_000)
    producer.flush()
    producer.close()

    def taken(start):
        out = tmp_path / "out.jsonl"
        app, _ = bank(tm.kafka(source, servers=topics.servers, last=True, start=start), tm.jsonl(out))
        app.run()
        return len(out.read_text().splitlines())

    begun = datetime.fromtimestamp(1_700_000_000, timezone.utc)
    assert taken("earliest") == 5
    assert taken("latest") == 0
    assert taken(begun + timedelta(seconds=3)) == 2
    assert taken(begun + timedelta(seconds=2, microseconds=1)) == 2
    assert taken(begun + timedelta(days=1)) == 0


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import tidemill as tm
from test_kafka import bank

source = tm.kafka({source!r}, servers={servers!r}, {end})
app, _ = bank(source, tm.kafka({sink!r}, servers={servers!r}, key="account"))
"""


def program(folder, topics, source, sink, end="follow=False"):
    path = folder / "bank.py"
    tests = os.path.dirname(__file__)
    path.write_text(PROGRAM.format(tests=tests, source=source, sink=sink, servers=topics.servers, end=end))
    return path


def running(path, *options):
    command = [sys.executable, "-m", "tidemill", "run", str(path), "--state", "state", "--quiet", *options]
    return subprocess.Popen(command, cwd=path.parent, stderr=subprocess.PIPE, text=True)


def ended(process):
    said = process.communicate(timeout=WAIT_SECONDS)[1]
    return process.returncode, said


def test_killed_anywhere_each_result_is_there_once(topics, tmp_path):
    """While records come in, the run is killed at random moments, and the broker once."""
    rng = random.Random(int(os.environ.get("TIDEMILL_SEED", "5")))
    sent = deposits_of(rng, 6_000)
    source, sink = topics.make(2), topics.make()
    path = program(tmp_path, topics, source, sink, "follow=True")
    kills, at = 0, 0
    while at < len(sent):
        process = running(path)
        for _ in range(rng.randrange(1, 6)):
            part = sent[at : at + rng.randrange(100, 400)]
            at += len(part)
            for partition in range(2):
                topics.send(source, [one for one in part if one["at"] % 2 == partition], partition)
            time.sleep(rng.random() * 0.3)
        if kills == 3:
            topics.broker.kill()
            topics.broker.start()
        assert process.poll() is None or kills == 3, process.communicate()
        process.kill()
        process.wait()
        process.stderr.close()
        kills += 1
    assert kills > 3
    last = program(tmp_path, topics, source, sink, "last=True")
    code, said = ended(running(last))
    assert code == 0, said
    assert topics.values(sink) == balances_of(sent)


def test_a_second_process_shuts_the_first_out(topics, tmp_path):
    """A copy of a state is another one who writes the same output."""
    source, sink = topics.make(), topics.make()
    path = program(tmp_path, topics, source, sink, "follow=True")
    first = running(path)
    sent = deposits_of(random.Random(7), 40)
    topics.send(source, sent[:10])
    until(lambda: len(topics.read(sink)) == 10)
    first.send_signal(signal.SIGSTOP)
    (tmp_path / "copy").mkdir()
    subprocess.run(["cp", "-r", "state", "copy/state"], cwd=tmp_path, check=True)
    copy = tmp_path / "copy" / "bank.py"
    copy.write_text(path.read_text())
    second = running(copy)
    topics.send(source, sent[10:20])
    until(lambda: len(topics.read(sink)) == 20)
    first.send_signal(signal.SIGCONT)
    topics.send(source, sent[20:])
    code, said = ended(first)
    assert code != 0 and "shut this one out" in said, said
    until(lambda: len(topics.read(sink)) == 40)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=WAIT_SECONDS)
    assert topics.values(sink) == balances_of(sent)


def test_records_that_are_gone_are_an_error(topics, tmp_path):
    source, sink = topics.make(), topics.make()
    sent = deposits_of(random.Random(8), 30)
    app, _ = bank(tm.kafka(source, servers=topics.servers, follow=False), tm.kafka(sink, servers=topics.servers))
    topics.send(source, sent[:10])
    app.run(state=tmp_path / "state")
    topics.send(source, sent[10:])
    admin = kafka.KafkaAdminClient(bootstrap_servers=topics.servers)
    admin.delete_records({kafka.TopicPartition(source, 0): 15})
    admin.close()
    with pytest.raises(tm.RunError, match="5 records are missing, from offset 10 on"):
        app.run(state=tmp_path / "state")


@pytest.mark.parametrize("records", [5, 30])
def test_a_topic_that_was_made_anew_is_refused(topics, tmp_path, records):
    """With fewer records, and with more."""
    source, sink = topics.make(), topics.make()
    app, _ = bank(tm.kafka(source, servers=topics.servers, follow=False), tm.kafka(sink, servers=topics.servers))
    topics.send(source, deposits_of(random.Random(9), 10))
    app.run(state=tmp_path / "state")
    topics.delete(source)
    admin = kafka.KafkaAdminClient(bootstrap_servers=topics.servers)
    until(lambda: source not in admin.list_topics())
    admin.create_topics({source: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    admin.close()
    topics.send(source, deposits_of(random.Random(10), records))
    with pytest.raises(tm.RunError, match="made anew"):
        app.run(state=tmp_path / "state")
    assert len(topics.read(sink)) == 10


def test_new_partitions_join(topics, tmp_path):
    source, sink = topics.make(), topics.make()
    sent = deposits_of(random.Random(11), 20)
    app, _ = bank(tm.kafka(source, servers=topics.servers, follow=False), tm.kafka(sink, servers=topics.servers))
    topics.send(source, sent[:10], 0)
    app.run(state=tmp_path / "state")
    admin = kafka.KafkaAdminClient(bootstrap_servers=topics.servers)
    admin.create_partitions({source: 2})
    admin.close()
    topics.send(source, sent[10:], 1)
    app.run(state=tmp_path / "state")
    topics.send(source, [{"at": 100, "account": "a0", "amount": 0}], 0)
    app.run(state=tmp_path / "state")
    app, _ = bank(tm.kafka(source, servers=topics.servers, last=True), tm.kafka(sink, servers=topics.servers))
    app.run(state=tmp_path / "state")
    assert topics.values(sink)[:20] == balances_of(sent)


def test_a_record_that_is_too_large_ends_the_run(topics, tmp_path):
    class Text(tm.Event):
        text: str

    sink = topics.make(**{"max.message.bytes": "2000"})
    app = tm.App("large")
    app.sink(app.source(Text, name="texts"), tm.kafka(sink, servers=topics.servers))
    with pytest.raises(tm.RunError, match=r"'t\d+'.* of 501\d bytes"):
        app.run({"texts": [{"text": "a"}, {"text": "x" * 5_000}]}, state=tmp_path / "state")
    assert topics.values(sink) == []


def test_wrong_options_are_said(topics, tmp_path):
    source, out = topics.make(), tm.jsonl(tmp_path / "out.jsonl")

    def failure(error, **options):
        given = {"servers": topics.servers, "last": True} | options
        topic = given.pop("topic", source)
        with pytest.raises(error) as raised:
            bank(tm.kafka(topic, **given), out)[0].run()
        return str(raised.value)

    begun = time.monotonic()
    assert "cannot reach Kafka at 127.0.0.1:9" in failure(tm.RunError, servers="127.0.0.1:9")
    assert time.monotonic() - begun < 10
    assert "there is no topic 'none'" in failure(tm.RunError, topic="none")
    assert "key names 'who'" in failure(tm.TidemillError, key="who")
    assert "no partition 7" in failure(tm.RunError, only=7)
    assert "is not free" in failure(tm.RunError, settings={"group.id": "x"})
    assert "no environment variable NO_SUCH" in failure(tm.RunError, settings={"sasl.password": "env:NO_SUCH"})
    assert "nonsense" in failure(tm.RunError, settings={"nonsense": "1"})
    with pytest.raises(tm.PlanError, match="is for sources"):
        bank(out, tm.kafka(source, servers=topics.servers, offset="at"))[0].run()
    with pytest.raises(tm.PlanError, match="is for sinks"):
        bank(tm.kafka(source, servers=topics.servers, id="x"), out)[0].run()
    app, deposits = bank(tm.kafka(source, servers=topics.servers, last=True), out)
    app.sink(deposits, tm.kafka(source, servers=topics.servers))
    app.sink(deposits, tm.kafka(source, servers=topics.servers, key="account"))
    with pytest.raises(tm.RunError, match="give one of them an id"):
        app.run(state=tmp_path / "state")
