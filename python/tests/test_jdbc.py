"""pgJDBC as a client of PostgreSQL. Skipped where there is no Java or no driver (Debian: libpostgresql-jdbc-java)."""

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_server import BANK, served

DRIVER = Path(os.environ.get("TIDEMILL_JDBC", "/usr/share/java/postgresql.jar"))


def needs_pgjdbc(test):
    """Skips a test where there is no Java or no driver."""
    for is_missing, reason in (
        (shutil.which("java") is None, "there is no Java; apt install default-jdk-headless"),
        (not DRIVER.exists(), f"there is no {DRIVER}; apt install libpostgresql-jdbc-java, or set TIDEMILL_JDBC"),
    ):
        test = pytest.mark.skipif(is_missing, reason=reason)(test)
    return test


def run_java(server, program, given=""):
    """Returns the lines that a program beside this file prints, which connects to a server by pgJDBC."""
    place = urlsplit(server.postgres_url)
    url = f"jdbc:postgresql://{place.netloc}{place.path}?user=ada"
    command = ["java", "-cp", str(DRIVER), str(Path(__file__).with_name(program)), url]
    ran = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@needs_pgjdbc
def test_pgjdbc(module):
    app = module(BANK, prelude="").app
    with served(app) as (_, server):
        said = dict(line.split(": ", 1) for line in run_java(server, "Jdbc.java"))
    abort, timeout = said.pop("abort"), said.pop("timeout")
    assert said == {
        "statement": "ada,10;",
        "prepared": "ada,18;",
        "read": "ada,18;",
        "call": "ada,20;",
        "batch": "[0, 0, 0, 0]",
        "query": "eve,10;",
        "fetch size": "ada;eve;",
        "most rows": "ada;",
        "valid": "true",
        "tables": "accounts",
        "columns": "id,text,balance,int8",
        "key": "id",
        "functions": "deposit",
        "schemas": "public",
        "types": "true",
        "listen": 'deposit.committed {"account":"ada","balance":21}',
    }
    assert "amount must be positive" in abort
    assert timeout.startswith("57014 "), timeout
