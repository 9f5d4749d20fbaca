"""A web shop in one process: orders come over HTTP, each is a transaction, and what is sold out is followed.

    python examples/web_shop.py 8080
    curl -d '{"item": "lamp", "quantity": 2}' localhost:8080/orders
    curl localhost:8080/stock

The state in ``examples/out/web_shop`` survives a crash: an order that was answered is kept.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import tidemill as tm

app = tm.App("web_shop")


class Item(tm.Row):
    """What the shop sells."""

    name: str = tm.key()
    left: int = 0
    sold: int = 0


class Order(tm.Event):
    """A customer wants some of an item."""

    item: str
    quantity: int


items = app.table(Item, rows=[{"name": "lamp", "left": 3}, {"name": "chair", "left": 10}])
orders = app.source(Order)


@app.transaction(orders)
def buy(ev, item=items.row("item")):
    tm.require(ev.quantity > 0, "nothing ordered")
    tm.require(item.left >= ev.quantity, "sold out")
    item.left -= ev.quantity
    item.sold += ev.quantity


def serve(mill: tm.Session, port: int) -> ThreadingHTTPServer:
    """An HTTP server that sends orders to a session and reads its stock."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                mill.send(orders, order, durable=True)
            except tm.SchemaError as error:
                self.answer(400, {"error": str(error)})
            else:
                self.answer(202, {"accepted": order})

        def do_GET(self) -> None:
            self.answer(200, mill.table(items).to_pylist())

        def answer(self, status: int, content: object) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode() + b"\n")

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def report(refused: tm.Follower) -> None:
    """Prints the orders that were refused, as they are."""
    for events in refused:
        for event in events.to_pylist():
            print(f"{event['quantity']} x {event['item']}: {event['reason']}", flush=True)


def main(port: int, state: str = "examples/out/web_shop") -> None:
    with app.start(state=state) as mill:
        threading.Thread(target=report, args=(mill.follow(buy.aborted),)).start()
        with serve(mill, port) as server:
            print(f"http://127.0.0.1:{server.server_port}", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print(mill.summary().committed, "orders", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
