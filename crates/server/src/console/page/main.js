// The page: figures on top, and one of the parts below, as the address says. One document a second.

import { ask, element, fill, parsed, percent, perSecond, say, short, sparkline, whole } from "./page.js";
import { Rates, aborted, committed } from "./rates.js";
import { flow } from "./flow.js";
import { epochs } from "./epochs.js";
import { refused, take, transaction } from "./refused.js";
import { tables } from "./tables.js";
import { calls } from "./calls.js";

const PAUSE = 1000;
const PARTS = [
  ["flow", "Flow", flow], ["epochs", "Epochs", epochs], ["refused", "Refused", refused],
  ["tables", "Tables", tables], ["calls", "Calls", calls], ["transaction", "Steps", transaction],
];

const at = (id) => document.getElementById(id);
const rates = new Rates();
let program = null;
let view = null;

/** Shows the part that the address names. */
function route() {
  const [name, argument] = location.hash.slice(1).split("/");
  const [key, , part] = PARTS.find(([known]) => known === name) ?? PARTS[0];
  view = part(program, argument === undefined ? undefined : decodeURIComponent(argument));
  fill(at("view"), view.root);
  for (const link of at("tabs").children) {
    if (link.hash === `#${key}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (rates.now) view.update(rates);
}

function tile(name, value, more, values) {
  return element("div", { class: "tile" }, element("h2", {}, name), element("p", { class: "figure" }, value), element("p", { class: "hint" }, more), sparkline(values));
}

function figures() {
  const now = rates.now;
  const events = rates.of((of) => of.events);
  const cut = rates.of((of) => of.epochs);
  const ran = rates.of((of) => committed(of) + aborted(of));
  const failed = rates.of(aborted);
  const share = ran > 0 ? failed / ran : ran === null ? null : 0;
  const { p50_ms, p99_ms, max_ms } = now.latency;
  const [unit, size] = p99_ms < 1000 ? ["ms", 1] : ["s", 1000];
  const latency = (value) => value / size < 10 ? (value / size).toFixed(2) : short(value / size);
  fill(at("tiles"),
    tile("Events", perSecond(events) || "–", `${short(now.events)} so far`, rates.note("events", events)),
    tile("Epoch", whole(now.epochs), cut === null ? "" : `${perSecond(cut)}, ${cut > 0 ? short(events / cut) : "–"} events each`, rates.note("epochs", cut)),
    tile("Latency, p50 and p99", `${latency(p50_ms)} / ${latency(p99_ms)} ${unit}`, `${latency(max_ms)} ${unit} at most, lately`, rates.note("latency", p99_ms)),
    tile("Aborted", percent(share), failed === null ? "" : `${perSecond(failed)} of ${perSecond(ran)} transactions`, rates.note("aborted", share)),
    program.procedures.length > 0 && tile("Calls", perSecond(rates.of((of) => of.calls.made)) || "–",
      `${whole(now.calls.in_flight)} without a reply yet`, rates.note("calls", rates.of((of) => of.calls.made))));
}

function status(text, kind) {
  at("status").className = kind;
  say(at("status"), text);
}

function age(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours > 0 ? `${hours} h ${minutes} min` : minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

let last = 0;

async function refresh() {
  program ??= await begin();
  const { text } = await ask(`/console/live.json?after=${last}`);
  const document = parsed(text);
  // The server was started again, perhaps with another program.
  if (rates.now && document.seconds < rates.now.seconds) return location.reload();
  rates.add(document);
  last = take(document);
  figures();
  if (!view) route();
  else view.update(rates);
  status(document.over ? "the run is over" : `running for ${age(document.seconds)}`, document.over ? "bad" : "good");
}

async function begin() {
  const is = parsed((await ask("/console/program.json")).text);
  say(at("application"), is.application);
  document.title = `${is.application} – Tidemill`;
  fill(at("tabs"), PARTS.map(([key, name]) => element("a", { href: `#${key}` }, name)));
  at("savepoint").hidden = !is.has_state;
  return is;
}

async function watch() {
  if (!document.hidden) {
    try {
      await refresh();
    } catch (error) {
      status(error.status ? error.message : "no answer from the server; asking again", "bad");
      if (!error.status && !(error instanceof TypeError && /fetch/i.test(error.message))) console.error(error);
    }
  }
  setTimeout(watch, PAUSE);
}

at("savepoint").addEventListener("click", async ({ target }) => {
  target.disabled = true;
  say(target, "Making a savepoint …");
  try {
    const { savepoint } = JSON.parse((await ask("/console/savepoint", { method: "POST" })).text);
    say(target, `Made ${savepoint}`);
  } catch (error) {
    say(target, error.message);
  }
  setTimeout(() => (target.disabled = false, say(target, "Make a savepoint")), 4000);
});
addEventListener("hashchange", () => program && route());
watch();
