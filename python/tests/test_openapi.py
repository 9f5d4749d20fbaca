"""The description of the server in the terms of OpenAPI: it is valid, true, and enough to generate a client from."""

import json
import shutil
import subprocess
from datetime import datetime, timezone
from urllib.request import urlopen

import pytest

import tidemill as tm

validate = pytest.importorskip("openapi_spec_validator").validate
Draft202012Validator = pytest.importorskip("jsonschema").Draft202012Validator

NPM = shutil.which("npm") and shutil.which("node")
PACKAGES = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3"]


class Deposit(tm.Event):
    account: str
    amount: int
    note: str | None = None


class Line(tm.Event):
    item: str
    count: int


class Order(tm.Event):
    at: tm.Time = tm.event_time()
    lines: list[Line]
    tags: list[str]
    price: tm.Decimal(12, 2)
    weight: float
    seal: bytes
    is_gift: bool


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0
    limit: tm.Decimal(12, 2) = 0
    last: tm.Time | None = None


class Shelf(tm.Row):
    room: str = tm.key()
    number: int = tm.key()


def bank():
    app = tm.App("bank", version=3)
    accounts, orders = app.table(Account), app.source(Order)
    app.table(Shelf, name="shelves", rows=[{"room": "a b", "number": 7}])
    deposits = app.requests(Deposit, remember="1h")

    @app.transaction(deposits)
    def deposit(ev, a=accounts.row("account", create=True)):
        tm.require(ev.amount > 0, "amount must be positive")
        a.balance += ev.amount
        return {"account": a.id, "balance": a.balance}

    @app.transaction(orders)
    def order(ev):
        return {"at": ev.at, "price": ev.price, "weight": ev.weight, "seal": ev.seal}

    return app


def get(url):
    with urlopen(url) as response:
        return json.load(response)


def test_the_description_is_valid():
    with bank().start() as mill, mill.serve() as server:
        described = get(f"{server.url}/openapi.json")
    validate(described)
    assert described["info"] == {"title": "bank", "version": "3"}
    names = {operation["operationId"] for path in described["paths"].values() for operation in path.values()}
    assert {"call_deposit", "calls", "rows_accounts", "row_accounts", "row_shelves", "push_orders"} <= names
    assert {"follow_deposit__committed", "follow_deposit__aborted", "query", "savepoint", "health"} <= names
    assert "/tables/shelves/{room}/{number}" in described["paths"]


def of(described, path, method):
    return described["paths"][path][method]


def test_a_call_has_its_fields_its_result_and_its_errors():
    with bank().start() as mill, mill.serve() as server:
        described = get(f"{server.url}/openapi.json")
    call = of(described, "/call/deposit", "post")
    sent = call["requestBody"]["content"]["application/json"]["schema"]
    assert sent["required"] == ["account", "amount"]
    assert list(sent["properties"]) == ["account", "amount", "note"]
    assert [parameter["name"] for parameter in call["parameters"]] == ["durable", "Idempotency-Key"]
    committed = call["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["committed"]
    assert committed["anyOf"][0]["required"] == ["account", "balance"]
    aborted = call["responses"]["409"]["content"]["application/json"]["schema"]["properties"]["aborted"]
    assert "amount must be positive" in aborted["examples"]
    assert {"400", "401", "403", "404", "422", "503"} <= set(call["responses"])


def test_what_comes_is_as_it_was_described():
    def check(schema, value):
        Draft202012Validator(schema).validate(value)

    with bank().start() as mill, mill.serve() as server, tm.connect(server.url) as client:
        described = get(f"{server.url}/openapi.json")
        client.call("deposit", account="ada", amount=5)
        at = datetime(2026, 1, 1, tzinfo=timezone.utc)
        lines = [{"item": "pen", "count": 2}]
        event = {"at": at, "lines": lines, "tags": ["x"], "price": "1.50", "weight": float("nan"), "seal": b"\x01"}
        sent = {**event, "at": at.isoformat(), "seal": "AQ==", "weight": "NaN", "is_gift": True}
        pushed = of(described, "/stream/orders", "post")["requestBody"]["content"]["application/x-ndjson"]["schema"]
        check(pushed, sent)
        mill.send("orders", [{**event, "price": tm.Decimal("1.50"), "is_gift": True}])
        for path in ("accounts", "shelves"):
            rows = of(described, f"/tables/{path}", "get")["responses"]["200"]["content"]["application/x-ndjson"]
            with urlopen(f"{server.url}/tables/{path}") as response:
                for line in response:
                    check(rows["schema"], json.loads(line))
        row = of(described, "/tables/shelves/{room}/{number}", "get")["responses"]["200"]["content"]["application/json"]
        check(row["schema"], get(f"{server.url}/tables/shelves/a%20b/7"))


CLIENT = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";

async function main(): Promise<void> {
  const bank = createClient<paths>({ baseUrl: process.argv[2] });
  const done = await bank.POST("/call/deposit", { body: { account: "ada", amount: 5 } });
  const balance: number | undefined = done.data?.committed?.balance;
  const refused = await bank.POST("/call/deposit", { body: { account: "ada", amount: 0 } });
  const reason = refused.error && "aborted" in refused.error ? refused.error.aborted : undefined;
  const row = await bank.GET("/tables/accounts/{id}", { params: { path: { id: "ada" } } });
  console.log(JSON.stringify({ balance, reason, row: row.data?.balance }));
}

main();
"""

WRONG = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";

createClient<paths>().POST("/call/deposit", { body: { account: "ada", amount: "five" } });
"""


@pytest.mark.skipif(not NPM, reason="no node and npm; install the packages nodejs and npm")
def test_a_client_in_typescript_is_generated(tmp_path):
    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    code, said = run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES)
    assert code == 0, said
    (tmp_path / "client.ts").write_text(CLIENT)
    (tmp_path / "wrong.ts").write_text(WRONG)
    options = [
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
    ]
    (tmp_path / "globals.d.ts").write_text("declare const process: { argv: string[] };\n")
    with bank().start() as mill, mill.serve() as server:
        described = get(f"{server.url}/openapi.json")
        (tmp_path / "openapi.json").write_text(json.dumps(described))
        code, said = run("npx", "openapi-typescript", "openapi.json", "--output", "schema.d.ts")
        assert code == 0, said
        code, said = run("npx", "tsc", *options, "globals.d.ts", "client.ts")
        assert code == 0, said
        code, said = run("npx", "tsc", *options, "--noEmit", "globals.d.ts", "wrong.ts")
        assert code != 0 and "is not assignable to type 'number'" in said
        code, said = run("node", "client.js", server.url)
    assert code == 0, said
    assert json.loads(said) == {"balance": 5, "reason": "amount must be positive", "row": 5}
