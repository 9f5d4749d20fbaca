"""pgJDBC as a client of PostgreSQL. Skipped where there is no Java or no driver (Debian: libpostgresql-jdbc-java)."""

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from test_server import BANK, served

DRIVER = Path(os.environ.get("TIDEMILL_JDBC", "/usr/share/java/postgresql.jar"))


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java; apt install default-jdk-headless")
@pytest.mark.skipif(
    not DRIVER.exists(), reason=f"there is no {DRIVER}; apt install libpostgresql-jdbc-java, or set TIDEMILL_JDBC"
)
def test_pgjdbc(module):
    app = module(BANK, prelude="").app
    with served(app) as (_, server):
        place = urlsplit(server.postgres_url)
        url = f"jdbc:postgresql://{place.netloc}{place.path}?user=ada"
        program = Path(__file__).with_name("Jdbc.java")
        command = ["java", "-cp", str(DRIVER), str(program), url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    said = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
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
