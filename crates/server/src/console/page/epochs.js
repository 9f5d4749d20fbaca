// Epochs: where their time goes, where they wait, which policy ran them and why, and how much they contend for rows.

import { card, drawn, element, fill, percent, short, table, time, whole } from "./page.js";

/** Rates here are over so many seconds. */
const SPAN = 10;
const STAGES = [["prepare", "prepare"], ["access", "access"], ["finish", "finish"], ["sinks", "sinks"]];
const KINDS = [
  ["useful", "running transactions"], ["sync", "waiting for other workers"], ["lock", "waiting for locks"], ["construct", "building the graph"],
  ["explore", "finding work"], ["abort", "undoing and running again"], ["other", "the rest"],
];
const QUEUES = [
  ["gathered", "wait to be prepared"], ["preparing", "in prepare"], ["prepared", "wait for access"],
  ["accessing", "in access"], ["accessed", "wait to be finished"],
];

export function epochs() {
  const [stages, pressure, chart, policies, contention, last] = Array.from({ length: 6 }, () => element("div"));
  const root = element("div", {},
    element("div", { class: "columns" }, card("Where the time goes", stages), card("Back-pressure", pressure)),
    card("The last epochs", chart), card("Policies, and why", policies), card("Contention", contention), card("One by one", last));
  return {
    root,
    update(rates) {
      fill(stages, timeByStage(rates));
      fill(pressure, backPressure(rates));
      fill(chart, bars(rates.now.recent));
      fill(policies, byPolicy(rates));
      fill(contention, contended(rates.now.contention), path(rates.now.critical), hottest(rates.now.hot));
      fill(last, oneByOne(rates.now.recent.slice(-12).reverse()));
    },
  };
}

function bar(name, share, text, kind) {
  const inner = element("span", { class: `bar ${kind}` });
  inner.style.width = `${Math.min(100, share * 100).toFixed(1)}%`;
  return element("div", { class: "meter" }, element("span", { class: "label" }, name), element("span", { class: "track" }, inner), element("span", { class: "value" }, text));
}

/** The share of a processor that each stage takes, and what access consists of. */
function timeByStage(rates) {
  const spent = STAGES.map(([key, name]) => [key, name, rates.of((now) => now.stages[key], SPAN) ?? 0]);
  const most = Math.max(1, ...spent.map(([, , seconds]) => seconds));
  const kinds = KINDS.map(([key, name]) => [key, name, rates.of((now) => now.access[key], SPAN) ?? 0]);
  const all = kinds.reduce((sum, [, , seconds]) => sum + seconds, 0);
  return [
    ...spent.map(([key, name, seconds]) => bar(name, seconds / most, percent(seconds), key)),
    element("p", { class: "hint" }, "Of one processor, in the last ten seconds."),
    all > 0 && element("p", {}, "Workers in access: ", kinds.filter(([, , seconds]) => seconds / all >= 0.005)
      .map(([, name, seconds]) => `${name} ${percent(seconds / all)}`).join(", "), "."),
  ].filter(Boolean);
}

/** Where epochs, events and calls wait. */
function backPressure(rates) {
  const { under_way, sources, waits, calls } = rates.now;
  const held = sources.filter((source) => source.held > 0)
    .map(({ name, held, held_by }) => `${name} ${whole(held)}${held_by ? ` (by ${held_by === name ? "itself" : held_by})` : ""}`);
  return [
    element("div", { class: "queues" }, QUEUES.map(([key, name]) =>
      element("div", { class: under_way[key] > 0 ? "queue busy" : "queue" }, element("strong", {}, under_way[key]), element("span", {}, name)))),
    element("p", { class: "hint" }, "Epochs at this moment. Those before a busy stage wait for it."),
    held.length > 0 && element("p", {}, `Events that are held back, by source: ${held.join(", ")}.`),
    element("p", {}, `Calls that wait for their replies: ${whole(calls.in_flight)}; refused so far because too many waited: ${whole(calls.refused)}.`),
    waits.log && element("p", { class: "bad" }, "The log waits for room on the disk: nothing is released."),
    waits.sink && element("p", { class: "bad" }, "A sink waits for room on its disk."),
  ].filter(Boolean);
}

/** A column for each epoch: how long it took, by stage. */
function bars(recent) {
  if (recent.length === 0) return element("p", { class: "hint" }, "No epoch has run yet.");
  const [width, height] = [600, 110];
  const parts = (epoch) => [
    ["waited", epoch.waited], ["prepare", epoch.prepare], ["access", epoch.access], ["finish", epoch.finish],
  ];
  const sum = (epoch) => parts(epoch).reduce((all, [, seconds]) => all + seconds, 0);
  const most = Math.max(1e-9, ...recent.map(sum));
  const step = width / 100;
  const columns = recent.map((epoch, place) => {
    const x = width - (recent.length - place) * step;
    let y = height;
    const rects = parts(epoch).map(([kind, seconds]) => {
      const tall = seconds / most * (height - 4);
      y -= tall;
      return drawn("rect", { class: `bar ${kind}`, x: x.toFixed(2), y: y.toFixed(2), width: (step * 0.8).toFixed(2), height: tall.toFixed(2) });
    });
    const text = `epoch ${epoch.epoch}: ${whole(epoch.events)} events, ${time(sum(epoch))}, ${epoch.policy}`;
    return drawn("g", {}, drawn("title", {}, text), rects);
  });
  const legend = [["waited", "waited for room"], ["prepare", "prepare"], ["access", "access"], ["finish", "finish"]];
  return [
    drawn("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": "Time of the last epochs" }, columns),
    element("p", { class: "hint legend" }, legend.map(([kind, name]) => element("span", {}, element("i", { class: `bar ${kind}` }), name)),
      element("span", {}, `The tallest took ${time(most)}.`)),
  ];
}

function nameOf({ policy, workers, group }) {
  const name = workers > 1 ? `${policy} on ${workers} workers` : policy;
  return group ? `${name} (${group})` : name;
}

function byPolicy(rates) {
  const { policies } = rates.now;
  const all = policies.reduce((sum, of) => sum + of.transactions, 0) || 1;
  const rows = policies.map((of) => [nameOf(of), short(of.epochs), percent(of.transactions / all), short(of.redone), element("span", { class: "why" }, of.why)]);
  return table(["policy", "epochs", "transactions", "run again", "the last reason"], rows, [1, 2, 3]);
}

/** What of an epoch has to be done one after the other. */
function contended(survey) {
  if (!survey) {
    return element("p", { class: "hint" },
      "No epoch was surveyed: none has come, or each event is followed through, and then all of an epoch is one path.");
  }
  const best = (share) => share > 0 ? `${short(1 / share)} times` : "–";
  const row = (name, share) => [element("span", { class: "why" }, name), percent(share), best(share)];
  const { transactions, operations, rows, longest } = survey;
  return [
    element("p", {}, `A sample of ${whole(transactions)} transactions made ${whole(operations)} accesses to ${whole(rows)} rows; the hottest row had ${whole(longest)} of them, ${percent(longest / Math.max(1, operations))}.`),
    table(["if", "critical path, of the work", "speed-up at most"], [
      row("each row sees its transactions one after the other", survey.critical),
      row("reads of a row run beside each other", survey.critical_of_writes),
      row("transactions are taken apart", survey.critical_of_parts),
    ], [1, 2]),
  ];
}

/** The rows that make the critical path. */
function path(critical) {
  if (critical.length === 0) return [];
  return [element("p", {}, "The rows along the critical path, by a sample of the last epochs:"), table(["table", "key", "share of its steps"], shares(critical), [2])];
}

/** The rows that are touched most. */
function hottest(hot) {
  if (hot.length === 0) return element("p", { class: "hint" }, "No row stands out.");
  return [element("p", {}, "The hottest rows, by a sample of the last epochs:"), table(["table", "key", "share of all accesses"], shares(hot), [2])];
}

function shares(rows) {
  return rows.map(({ table: of, key, share }) =>
    [element("a", { href: `#tables/${encodeURIComponent(of)}` }, of), key.join(", "), percent(share)]);
}

function oneByOne(recent) {
  const rows = recent.map((epoch) => [
    whole(epoch.epoch), whole(epoch.events), whole(epoch.transactions), whole(epoch.aborted), epoch.policy,
    time(epoch.waited), time(epoch.prepare), time(epoch.access), time(epoch.finish), time(epoch.took),
  ]);
  return table(["epoch", "events", "transactions", "aborted", "policy", "waited", "prepare", "access", "finish", "in all"], rows, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
}
