// Elements, numbers and requests. All text goes into the page as text nodes.

const SVG = "http://www.w3.org/2000/svg";

function made(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false).map((child) => child.nodeType ? child : String(child)));
  return node;
}

/** An element; children are elements, or values that are shown as text. */
export function element(tag, attributes = {}, ...children) {
  return made(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
export function drawn(tag, attributes = {}, ...children) {
  return made(document.createElementNS(SVG, tag), attributes, children);
}

/** Puts these children into an element, in place of those that it has. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}

/** Sets the text of an element, if it is another. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A table with a head; cells are elements or texts, and numbers are the columns that are aligned to the right. */
export function table(head, rows, numbers = []) {
  const kind = (place) => numbers.includes(place) ? { class: "number" } : {};
  const cells = (tag, row) => element("tr", {}, row.map((cell, place) => element(tag, kind(place), cell)));
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, cells("th", head)), element("tbody", {}, rows.map((row) => cells("td", row)))));
}

export function card(title, ...children) {
  return element("section", { class: "card" }, title && element("h2", {}, title), ...children);
}

/** A count in few characters: 1,234, 56.7 k, 8.9 M. */
export function short(count) {
  if (count == null || Number.isNaN(count)) return "–";
  for (const [unit, size, from] of [["G", 1e9, 1e9], ["M", 1e6, 1e6], ["k", 1e3, 1e4]]) {
    if (count >= from) return `${digits(count / size)} ${unit}`;
  }
  return count < 100 && !Number.isInteger(count) ? digits(count) : Math.round(count).toLocaleString("en");
}

/** Three digits. */
function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2).replace(/\.?0+$/, "");
}

export function whole(count) {
  return count.toLocaleString("en");
}

export function perSecond(rate) {
  return rate == null ? "" : `${short(rate)}/s`;
}

/** Seconds in their unit. */
export function time(seconds) {
  if (seconds >= 1) return `${digits(seconds)} s`;
  return seconds >= 1e-3 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds * 1e6)} µs`;
}

export function percent(share) {
  if (share == null || Number.isNaN(share)) return "–";
  return share > 0 && share < 0.001 ? "<0.1 %" : `${digits(share * 100)} %`;
}

/** A value of a row or an event, as text. */
export function shown(value) {
  return value === null ? "None" : typeof value === "string" ? value : JSON.stringify(value);
}

/** JSON of which whole numbers that a double cannot hold are kept as their text. */
export function parsed(text) {
  const exact = (_, value, at) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && at?.source ? at.source : value;
  return JSON.parse(text, exact);
}

/** What a request gives; throws an error in words. */
export async function ask(path, options = {}) {
  const response = await fetch(path, { cache: "no-store", ...options });
  const text = await response.text();
  if (response.ok) return { response, text };
  let why = text;
  try {
    why = JSON.parse(text).error ?? text;
  } catch {
    // It is no JSON.
  }
  throw Object.assign(new Error(why || `status ${response.status}`), { status: response.status, text });
}

/** A line of the last values, as a drawing. */
export function sparkline(values, most = 120) {
  const [width, height] = [120, 28];
  const box = { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  const last = values.slice(-most);
  if (last.length < 2) return drawn("svg", box);
  const top = Math.max(...last) || 1;
  // A few values are at the right; many are the whole width.
  const step = width / (Math.max(30, last.length) - 1);
  const x = (place) => width - (last.length - 1 - place) * step;
  const y = (value) => height - 1 - value / top * (height - 3);
  const points = last.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
  const area = `M${x(0).toFixed(1)},${height}L${points.join("L")}L${width},${height}Z`;
  return drawn("svg", box, drawn("path", { class: "area", d: area }), drawn("polyline", { class: "line", points: points.join(" ") }));
}
