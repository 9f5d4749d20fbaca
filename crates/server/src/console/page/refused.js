// The last events that were refused, with reasons; and one transaction step by step.

import { ask, card, element, fill, percent, perSecond, shown, table, whole } from "./page.js";
import { transaction as named } from "./rates.js";

const EVENTS_MAX = 200;
/** Of these, the ones that are shown. */
const SHOWN_MAX = 60;

/** What came so far; it is kept while other parts of the console are shown. */
const events = [];

/** Takes the events of a document; gives the number of the last. */
export function take(document) {
  events.push(...document.refused);
  events.splice(0, events.length - EVENTS_MAX);
  return events.at(-1)?.number ?? 0;
}

export function refused(program) {
  const reasons = element("div");
  const list = element("ol", { class: "log tail" });
  const only = element("select", { "aria-label": "stream" }, element("option", { value: "" }, "all streams"),
    program.refused.map(({ stream }) => element("option", { value: stream }, stream)));
  const held = element("input", { type: "checkbox" });
  const bar = element("div", { class: "line" }, only, element("label", { class: "check" }, held, "hold"),
    element("span", { class: "hint" }, "The last ones of each stream, several times a second."));
  let last = null;

  function show() {
    const wanted = events.filter((event) => !only.value || event.stream === only.value).slice(-SHOWN_MAX).reverse();
    fill(list, wanted.map((event) => entry(program, event)));
    if (wanted.length === 0) fill(list, element("li", { class: "hint" }, "None since this page was opened."));
  }
  only.addEventListener("change", show);

  return {
    root: element("div", {}, card("Reasons", reasons), card("Refused events", bar, list)),
    update(rates) {
      fill(reasons, reasonsOf(rates));
      const newest = events.at(-1)?.number ?? 0;
      if (!held.checked && newest !== last) {
        last = newest;
        show();
      }
    },
  };
}

function entry(program, { epoch, stream, event }) {
  const { reason, ...fields } = event;
  const position = program.refused.find((one) => one.stream === stream)?.position;
  const at = position && program.has_state ? `${position.source}@${fields[position.field]}` : null;
  const why = reason ?? (stream.endsWith(".late") ? "late" : "refused");
  return element("li", { class: "aborted" },
    element("div", {}, element("strong", {}, why), " ", element("span", { class: "hint" }, stream, ", epoch ", whole(epoch)),
      at && element("a", { class: "more", href: `#transaction/${encodeURIComponent(at)}` }, "step by step")),
    element("code", {}, Object.entries(fields).map(([name, value]) => `${name} = ${shown(value)}`).join(", ")));
}

/** Every reason with its count, most frequent first. */
function reasonsOf(rates) {
  const rows = [];
  const row = (what, reason, count, all) => rows.push({ what, reason, now: count(rates.now) ?? 0, rate: rates.of(count), all });
  for (const { name, committed, aborted, reasons } of rates.now.transactions) {
    for (const [reason] of reasons) {
      row(name, reason, (now) => named(now, name)?.reasons.find(([other]) => other === reason)?.[1] ?? 0, committed + aborted);
    }
  }
  for (const { name, late, bad, events } of rates.now.sources) {
    const of = (key) => (now) => now.sources.find((source) => source.name === name)?.[key] ?? 0;
    if (late > 0) row(name, "late", of("late"), events + late);
    if (bad > 0) row(name, "cannot be decoded", of("bad"), events + bad);
  }
  for (const { stream } of rates.now.failed) {
    row(stream, "failed in a filter or map", (now) => now.failed.find((other) => other.stream === stream)?.events ?? 0, NaN);
  }
  if (rows.length === 0) return element("p", { class: "hint" }, "Nothing was refused so far.");
  rows.sort((a, b) => b.now - a.now);
  return table(["where", "reason", "so far", "now", "share"], rows.map(({ what, reason, now, rate, all }) => [what, reason, whole(now), perSecond(rate), percent(now / all)]), [2, 3, 4]);
}

/** One transaction step by step, of the event at a position. */
export function transaction(program, position) {
  const where = element("input", { value: position ?? "", placeholder: `${program.sources[0] ?? "source"}:17`, "aria-label": "position", autocomplete: "off", spellcheck: "false", size: 44 });
  const out = element("pre");
  const told = element("p", { class: "bad" });
  const title = "One transaction, step by step";
  if (!program.has_state) {
    return { root: card(title, element("p", { class: "hint" }, "This needs the log of a state: serve the application with --state DIR.")), update() {} };
  }
  async function show() {
    fill(told);
    fill(out, "reading the log …");
    try {
      const { text } = await ask(`/console/transaction/${encodeURIComponent(where.value.trim())}`);
      fill(out, text);
    } catch (error) {
      fill(out);
      fill(told, error.message);
    }
  }
  const go = (event) => {
    event.preventDefault();
    history.replaceState(null, "", `#transaction/${encodeURIComponent(where.value.trim())}`);
    show();
  };
  if (position) show();
  const hint = element("p", { class: "hint" },
    "An event by its number in its source, from 0 (", element("code", {}, "orders:17"), "), or by its event time (", element("code", {}, "orders@2026-01-01T00:00:00Z"),
    "). It is run again, on the rows that it found, by the reference interpreter, from the newest checkpoint or a savepoint on. Sources: ", program.sources.join(", "), ".");
  return { root: card(title, element("form", { class: "line", onsubmit: go }, where, element("button", {}, "Show")), hint, told, out), update() {} };
}
