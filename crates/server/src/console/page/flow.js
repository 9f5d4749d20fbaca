// The flow graph with live rates, and what is known of the node that was chosen.

import { card, drawn, element, fill, percent, perSecond, say, short, shown, table, time, whole } from "./page.js";
import { layout } from "./layout.js";
import { source, transaction } from "./rates.js";

const NODE = { width: 148, height: 56 };
/** Between layers, and between nodes of a layer: side by side, and one below the other. */
const WIDE = { layers: 92, nodes: 18 };
const NARROW = { layers: 46, nodes: 9, width: 112, most: 3 };
const NARROW_MAX = 640;
/** The most characters of a name in a node. */
const NAME_MAX = 19;

/** The view. `program` is what the program is. */
export function flow(program) {
  const drawing = element("div", { class: "graph" });
  const details = element("section", { class: "card details" });
  const hint = element("p", { class: "hint" },
    "Numbers on the edges are events per second. Dashed: tables that are read (thin) or written. Choose a node for more.");
  const told = element("div");
  const root = element("div", {}, card(null, drawing, hint), details);
  const edges = merged(program);
  let graph = null;
  let chosen = program.nodes.findIndex((node) => node.kind === "transaction");

  function draw(rates) {
    graph = drawnGraph(program, edges, drawing.clientWidth < NARROW_MAX, (node) => {
      chosen = node;
      introduce();
      tell(rates);
    });
    introduce();
    fill(drawing, graph.root);
  }

  /** What does not change of the node that was chosen. */
  function introduce() {
    graph.choose(chosen);
    const node = program.nodes[chosen];
    details.hidden = !node;
    if (node) fill(details, element("h2", {}, element("small", {}, node.kind), " ", node.name), told, streams(program, node));
  }

  function tell(rates) {
    const node = program.nodes[chosen];
    if (node) fill(told, facts(program, node, rates));
  }

  return {
    root,
    update(rates) {
      const isNarrow = drawing.clientWidth < NARROW_MAX;
      if (!graph || graph.isNarrow !== isNarrow) draw(rates);
      edges.forEach((edge, place) => graph.rate(place, rateOf(edge, rates)));
      program.nodes.forEach((node, place) => graph.note(place, ...noteOf(node, rates, isNarrow)));
      // What was chosen may be about to be copied.
      if (document.getSelection()?.isCollapsed !== false) tell(rates);
    },
  };
}

/** Edges between the same nodes as one. */
function merged(program) {
  const edges = [];
  program.edges.forEach(({ from, to, kind, stream }, number) => {
    const same = edges.find((edge) => edge.from === from && edge.to === to && edge.kind === kind);
    const edge = same ?? { from, to, kind, streams: [], numbers: [] };
    if (!same) edges.push(edge);
    if (stream) edge.streams.push(stream);
    edge.numbers.push(number);
  });
  return edges;
}

function rateOf(edge, rates) {
  const counts = edge.numbers.map((number) => rates.of((now) => now.edges[number]));
  return counts.every((count) => count == null) ? null : counts.reduce((sum, count) => sum + (count ?? 0), 0);
}

/** What stands in a node below its name, and whether it is alarming. */
function noteOf(node, rates, isShort) {
  const grown = (of) => rates.of(of);
  switch (node.kind) {
    case "source": {
      const { held, late, bad } = source(rates.now, node.name) ?? {};
      const rate = perSecond(grown((now) => source(now, node.name)?.events));
      const refused = late + bad;
      return refused > 0 ? [`${isShort ? "" : `${rate}, `}${short(refused)} late or bad`, true] : [held > 0 ? `${rate}, ${short(held)} held` : rate, false];
    }
    case "transaction":
    case "window":
    case "join": {
      const committed = grown((now) => transaction(now, node.name)?.committed);
      const aborted = grown((now) => transaction(now, node.name)?.aborted);
      if (committed == null) return ["", false];
      const share = aborted / (committed + aborted);
      const verb = node.kind === "transaction" ? "" : node.kind === "window" ? " closed" : " joined";
      return aborted > 0 ? [`${isShort ? "" : `${perSecond(committed + aborted)}, `}${percent(share)} aborted`, true] : [`${perSecond(committed)}${verb}`, false];
    }
    default:
      return ["", false];
  }
}

function drawnGraph(program, edges, isNarrow, choose) {
  const { layers: between, nodes: gap, width = NODE.width, most = Infinity } = isNarrow ? NARROW : WIDE;
  const [along, across] = isNarrow ? [NODE.height, width] : [width, NODE.height];
  const placed = layout(program.nodes.length, edges, program.nodes.map(() => across), gap, most);
  const point = (node) => {
    const main = node.layer * (along + between) + along / 2;
    return isNarrow ? [node.at, main] : [main, node.at];
  };
  const size = [placed.depth * (along + between) - between, placed.extent];
  const [w, h] = isNarrow ? [size[1], size[0]] : size;
  const marker = (id) => drawn("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" },
    drawn("path", { d: "M0,0L8,4L0,8Z", class: "arrow" }));
  // Where more edges part than meet, they are apart at their ends.
  const count = (end, node) => edges.filter((edge) => edge.streams.length > 0 && edge[end] === node).length;
  const isLate = (edge) => count("from", edge.from) > count("to", edge.to);
  const lines = edges.map((edge, place) => line(edge, placed.ways[place].map(point), along, isNarrow, isLate(edge)));
  const boxes = program.nodes.map((node, place) => box(node, point(placed.nodes[place]), width, () => choose(place)));
  const root = drawn("svg", { viewBox: `-2 -2 ${w + 4} ${h + 4}`, width: w + 4, role: "group", "aria-label": "Flow graph" },
    drawn("defs", {}, marker("arrow")), lines.map((of) => of.path), boxes.map((of) => of.root), lines.map((of) => of.label));
  root.style.minWidth = `${Math.round((w + 4) * 0.62)}px`;
  return {
    root,
    isNarrow,
    rate: (edge, rate) => lines[edge].rate(rate),
    note: (node, text, isAlarming) => boxes[node].note(text, isAlarming),
    choose: (node) => boxes.forEach((of, place) => of.root.setAttribute("aria-pressed", place === node)),
  };
}

/** An edge: a curve through its points, and its rate, in the middle of the first part or of the last. */
function line(edge, points, along, isNarrow, isLabelledLate) {
  const isBack = points[0][isNarrow ? 1 : 0] > points.at(-1)[isNarrow ? 1 : 0];
  const shift = (point, by) => isNarrow ? [point[0], point[1] + by] : [point[0] + by, point[1]];
  const half = isBack ? -along / 2 : along / 2;
  const all = [shift(points[0], half), ...points.slice(1, -1).flatMap((p) => [shift(p, -half), shift(p, half)]), shift(points.at(-1), -half)];
  let d = `M${all[0].join()}`;
  for (let place = 1; place < all.length; place++) {
    const [a, b] = [all[place - 1], all[place]];
    const bend = isNarrow ? (b[1] - a[1]) / 2 : (b[0] - a[0]) / 2;
    d += `C${shift(a, bend).join()} ${shift(b, -bend).join()} ${b.join()}`;
  }
  const isRefused = edge.streams.length > 0 && edge.streams.every((name) => /\.(aborted|late|bad|failed)$/.test(name));
  const path = drawn("path", { d, class: `edge ${edge.kind}${isRefused ? " refused" : ""}`, "marker-end": edge.streams.length ? "url(#arrow)" : null },
    drawn("title", {}, edge.streams.join(", ") || edge.kind));
  const [a, b] = isLabelledLate ? all.slice(-2) : all;
  const label = drawn("text", { class: "rate", x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 + 3.5 });
  const rate = (value) => {
    say(label, value == null ? "" : perSecond(value));
    path.classList.toggle("idle", value != null && value < 0.05);
    if (value != null) path.style.strokeWidth = String(1.3 + Math.min(3.2, Math.log10(1 + value) * 0.6));
  };
  return { path, label, rate };
}

function box(node, [x, y], width, choose) {
  const name = node.name.length > NAME_MAX ? `${node.name.slice(0, NAME_MAX - 1)}…` : node.name;
  const note = drawn("text", { class: "note", x: 13, y: 47 });
  const key = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose());
  const root = drawn("g", {
    class: `node ${node.kind}`, transform: `translate(${x - width / 2},${y - NODE.height / 2})`,
    tabindex: 0, role: "button", onclick: choose, onkeydown: key,
  },
    drawn("title", {}, `${node.kind} ${node.name}`),
    drawn("rect", { class: "box", width, height: NODE.height, rx: 8 }),
    drawn("rect", { class: "stripe", x: 1, y: 9, width: 4, height: NODE.height - 18, rx: 2 }),
    drawn("text", { class: "kind", x: 13, y: 16 }, node.kind),
    drawn("text", { class: "name", x: 13, y: 32, ...(name.length * 7.6 > width - 18 ? { textLength: width - 20, lengthAdjust: "spacingAndGlyphs" } : {}) }, name),
    note);
  return {
    root,
    note(text, isAlarming) {
      say(note, text);
      if (text.length * 5.6 > width - 16) note.setAttribute("textLength", width - 20);
      else note.removeAttribute("textLength");
      note.setAttribute("lengthAdjust", "spacingAndGlyphs");
      note.classList.toggle("bad", isAlarming);
    },
  };
}

/** What is known of a node. */
function facts(program, node, rates) {
  const list = (pairs) => element("dl", { class: "facts" }, pairs.filter(([, value]) => value != null && value !== "")
    .map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  if (node.kind === "source") {
    const of = source(rates.now, node.name);
    return of && list([["events", whole(of.events)], ["late", whole(of.late)], ["bad", whole(of.bad)], ["held back", whole(of.held)], ["held by", of.held_by]]);
  }
  if (node.kind === "table") {
    const of = program.tables.find((one) => one.name === node.name);
    const columns = of.columns.map((column) => [column.key ? `${column.name} (key)` : column.name, column.type]);
    return [table(["column", "type"], columns), element("p", {}, element("a", { href: `#tables/${encodeURIComponent(node.name)}` }, "Browse its rows"))];
  }
  const of = transaction(rates.now, node.name);
  if (!of) return null;
  const counts = list([["committed", whole(of.committed)], ["aborted", whole(of.aborted)], ["mean time", of.mean_ns == null ? null : time(of.mean_ns / 1e9)]]);
  const all = of.committed + of.aborted;
  const reasons = of.reasons.map(([reason, count]) => [reason, whole(count), percent(count / all)]);
  return [counts, reasons.length > 0 && table(["reason of aborts", "count", "share"], reasons, [1, 2])].filter(Boolean);
}

function streams(program, node) {
  if (node.kind === "table" || node.kind === "sink") return null;
  const own = program.streams.filter(({ name }) => name === node.name || name.startsWith(`${node.name}.`));
  const fields = ({ fields }) => fields.map((field) => `${field.name}: ${field.type}${field.optional ? " | None" : ""}`).join(", ");
  return element("details", {}, element("summary", {}, "Streams and their fields"),
    table(["stream", "fields"], own.map((stream) => [shown(stream.name), fields(stream)])));
}
