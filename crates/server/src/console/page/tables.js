// Tables: pages of rows, single rows by key, and queries.

import { ask, card, element, fill, parsed, shown, table, whole } from "./page.js";

const PAGE = 50;
/** The most rows of a query that are shown. */
const ROWS_MAX = 500;

export function tables(program, name) {
  const of = program.tables.find((one) => one.name === name) ?? program.tables[0];
  if (!of) return { root: card(null, element("p", { class: "hint" }, "The application has no tables.")), update() {} };
  const path = `/tables/${encodeURIComponent(of.name)}`;
  const rows = element("div");
  const found = element("div");
  let offset = 0;

  async function browse() {
    try {
      const { response, text } = await ask(`${path}?offset=${offset}&limit=${PAGE}`);
      const count = Number(response.headers.get("Tidemill-Rows"));
      const listed = text.split("\n").filter(Boolean).map(parsed);
      const epoch = response.headers.get("Tidemill-Epoch");
      const last = Math.max(0, Math.floor((count - 1) / PAGE) * PAGE);
      const turn = (text, to) => element("button", { type: "button", disabled: to === offset || to < 0 || to > last, onclick: () => (offset = to, browse()) }, text);
      const from = count ? `${whole(offset + 1)} to ${whole(offset + listed.length)} of ${whole(count)}` : "no rows";
      fill(rows,
        element("div", { class: "turn" }, turn("First", 0), turn("Back", offset - PAGE), turn("Next", offset + PAGE), turn("Last", last),
          element("button", { type: "button", onclick: browse }, "Read again"),
          element("span", { class: "hint" }, `${from}, after epoch ${whole(parseInt(epoch))}`)),
        listing(of, listed));
    } catch (error) {
      fill(rows, element("p", { class: "bad" }, error.message));
    }
  }

  const keys = of.columns.filter((column) => column.key);
  const inputs = keys.map((column) => element("input", { name: column.name, placeholder: column.type, "aria-label": column.name, autocomplete: "off" }));
  async function find(event) {
    event.preventDefault();
    const key = inputs.map((input) => encodeURIComponent(input.value)).join("/");
    try {
      const { response, text } = await ask(`${path}/${key}`);
      fill(found, element("p", { class: "hint" }, `After epoch ${whole(parseInt(response.headers.get("Tidemill-Epoch")))}:`), listing(of, [parsed(text)]));
    } catch (error) {
      fill(found, element("p", { class: "bad" }, error.message));
    }
  }

  const sql = element("textarea", { rows: 3, "aria-label": "query", spellcheck: "false", placeholder: `select count(*) from ${of.name}` });
  const answer = element("div");
  async function query(event) {
    event.preventDefault();
    fill(answer, element("p", { class: "hint" }, "asking …"));
    try {
      const { response, text } = await ask("/query", { method: "POST", body: sql.value || sql.placeholder });
      const listed = text.split("\n").filter(Boolean).map(parsed);
      const columns = Object.keys(listed[0] ?? {});
      const cut = listed.length > ROWS_MAX ? `, of which the first ${whole(ROWS_MAX)} are shown` : "";
      fill(answer, element("p", { class: "hint" }, `${whole(listed.length)} rows after epoch ${whole(parseInt(response.headers.get("Tidemill-Epoch")))}${cut}`),
        listed.length > 0 && table(columns, listed.slice(0, ROWS_MAX).map((row) => columns.map((column) => shown(row[column])))));
    } catch (error) {
      fill(answer, element("p", { class: "bad" }, error.message));
    }
  }
  const asking = element("form", { onsubmit: query }, sql, element("p", {}, element("button", {}, "Run the query")));

  const chips = program.tables.map((one) =>
    element("a", { class: "chip", href: `#tables/${encodeURIComponent(one.name)}`, "aria-current": one === of ? "true" : null }, one.name));
  const form = element("form", { class: "line", onsubmit: find },
    keys.map((column, place) => element("label", {}, column.name, inputs[place])), element("button", {}, "Find"));
  const root = element("div", {}, element("div", { class: "chips" }, chips), card(`Find a row of ${of.name}`, form, found), card(`Rows of ${of.name}`, rows), card("Query", asking, answer));
  browse();
  return { root, update() {} };
}

function listing(of, rows) {
  const numbers = of.columns.map((column, place) => /^(int|float|Decimal)/.test(column.type) ? place : -1);
  const head = of.columns.map((column) => element("span", { title: column.type }, column.name));
  const cell = (value) => {
    const text = shown(value);
    return text.length > 120 ? element("span", { title: text.slice(0, 4000) }, `${text.slice(0, 120)}…`) : text;
  };
  return table(head, rows.map((row) => of.columns.map((column) => cell(row[column.name] ?? null))), numbers);
}
