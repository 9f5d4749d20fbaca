"""A real broker of Apache Kafka on this machine, of the jars that Maven gets: it can be killed, paused and begun again.

    python tools/broker.py FOLDER

runs one until it is interrupted, and prints where it is.
"""

import ctypes
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "4.3.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemill</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version>
    </dependency>
  </dependencies>
</project>
"""
LOGGING = """
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""
READY = "Kafka Server started"
START_SECONDS = 90
PORTS = range(20_000, 32_000)
"""Below those that outgoing connections get: no client can sit on the port of a broker that is down."""
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A broker that was killed may register again at once.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "250",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
}


def missing():
    """Returns the reason why no broker can be run here; None if one can."""
    lacking = [name for name, program in (("Java", "java"), ("Maven", "mvn")) if shutil.which(program) is None]
    return f"there is no {lacking[0]}" if lacking else None


def jars():
    """The jars of the broker, which Maven copies once."""
    folder = Path(tempfile.gettempdir()) / f"tidemill-broker-{hashlib.sha256(POM.encode()).hexdigest()[:12]}"
    if not (folder / "ready").exists():
        folder.mkdir(exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        copies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        command = ["mvn", "-q", "-B", "-C", "-f", str(folder / "pom.xml"), copies, f"-DoutputDirectory={folder}/jars"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        (folder / "ready").touch()
    return sorted(map(str, (folder / "jars").glob("*.jar")))


def free_ports(count):
    found = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def _dies_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Broker:
    """A broker, with its folder and its ports, whether it runs or not."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        settings = SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        self.settings = self.folder / "server.properties"
        self.settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        self.log = self.folder / "broker.log"
        self.process = None
        format_ = ["format", "-t", "dGlkZW1pbGwtYnJva2VyMQ", "-c", str(self.settings)]
        subprocess.run(self._java("kafka.tools.StorageTool", *format_), check=True, capture_output=True)
        self.start()

    def _java(self, main, *arguments):
        options = ["-Xmx384m", "-Xshare:auto", "-XX:TieredStopAtLevel=1"]
        options += [f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"]
        return ["java", *options, "-cp", ":".join(jars()), main, *arguments]

    def start(self):
        """Begins it, and waits until it is ready."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            command = self._java("kafka.Kafka", str(self.settings))
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_dies_with_parent
            )
        deadline = time.monotonic() + START_SECONDS
        while READY not in self._said(begun):
            assert self.process.poll() is None, self._said(begun)[-2000:]
            assert time.monotonic() < deadline, self._said(begun)[-2000:]
            time.sleep(0.1)

    def _said(self, since):
        with self.log.open("rb") as log:
            log.seek(since)
            return log.read().decode("utf-8", "replace")

    def kill(self):
        """Ends it as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it in order."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self):
        """Lets it do nothing, until it goes on."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        """Lets it go on after a pause."""
        os.kill(self.process.pid, signal.SIGCONT)


def main():
    broker = Broker(sys.argv[1])
    print(re.sub(r"^", "kafka at ", broker.servers), flush=True)
    try:
        broker.process.wait()
    except KeyboardInterrupt:
        broker.stop()


if __name__ == "__main__":
    main()
