// Calls: a form for each procedure, made of the fields of its event.

import { ask, card, element, fill, parsed, shown } from "./page.js";

const LOG_MAX = 30;

export function calls(program, name) {
  const procedures = program.procedures;
  const of = procedures.find((one) => one.name === name) ?? procedures[0];
  if (!of) {
    const text = "The application has no procedures: transactions on a source of requests (app.requests) that can be called.";
    return { root: card(null, element("p", { class: "hint" }, text)), update() {} };
  }
  const log = element("ol", { class: "log" });
  const inputs = of.fields.map(input);
  const problem = element("p", { class: "bad", role: "alert" });

  async function call(event) {
    event.preventDefault();
    inputs.forEach(({ node }) => node.removeAttribute("aria-invalid"));
    fill(problem);
    const pairs = inputs.filter(({ json }) => json() !== undefined).map(({ field, json }) => `${JSON.stringify(field.name)}: ${json()}`);
    const body = `{${pairs.join(", ")}}`;
    const began = performance.now();
    const told = (outcome, kind) => {
      const took = `${(performance.now() - began).toFixed(1)} ms`;
      log.prepend(element("li", { class: kind }, element("div", {}, element("strong", {}, kind), " ", element("span", { class: "hint" }, took)),
        element("code", {}, body), outcome));
      while (log.children.length > LOG_MAX) log.lastChild.remove();
    };
    try {
      const { text } = await ask(`/call/${encodeURIComponent(of.name)}`, { method: "POST", body });
      const { committed, epoch } = parsed(text);
      told(element("div", {}, `epoch ${epoch}: `, committed === null ? "nothing returned" : pairsOf(committed)), "committed");
    } catch (error) {
      if (error.status === 409) {
        const { aborted, seen, epoch } = parsed(error.text);
        told(element("div", {}, `epoch ${epoch}: `, element("strong", {}, aborted), Object.keys(seen).length ? " – " : "", pairsOf(seen)), "aborted");
        return;
      }
      fill(problem, error.message);
      const { field } = error.status === 422 ? JSON.parse(error.text) : {};
      inputs.find((one) => one.field.name === field)?.node.setAttribute("aria-invalid", "true");
    }
  }

  const chips = procedures.map((one) =>
    element("a", { class: "chip", href: `#calls/${encodeURIComponent(one.name)}`, "aria-current": one === of ? "true" : null }, one.name));
  const form = element("form", { class: "fields", onsubmit: call },
    inputs.map(({ field, node }) => element("label", {}, element("span", {}, field.name, " ", element("small", {}, field.type, field.optional ? ", may be empty" : "")), node)),
    problem, element("button", { class: "main" }, `Call ${of.name}`));
  const hint = element("p", { class: "hint" }, "A call is an event like any other: it runs once, is in the history, and cannot be taken back.");
  return { root: element("div", {}, element("div", { class: "chips" }, chips), card(of.name, form, hint), card("Calls from this page", log)), update() {} };
}

function pairsOf(object) {
  return Object.entries(object).map(([name, value]) => `${name} = ${shown(value)}`).join(", ");
}

/** An input for a field, and the JSON of what is in it; undefined: it is left out. */
function input(field) {
  const is = (pattern) => pattern.test(field.type);
  const common = { "aria-label": field.name, autocomplete: "off", spellcheck: "false" };
  if (is(/^bool$/)) {
    const options = [...(field.optional ? [""] : []), "true", "false"];
    const node = element("select", common, options.map((value) => element("option", { value }, value)));
    return { field, node, json: () => node.value || undefined };
  }
  const isList = is(/^list/);
  const isNumber = is(/^(int|float)$/);
  const hint = isList ? "a JSON list" : is(/^Time/) ? "2026-01-01T00:00:00Z" : is(/^bytes/) ? "base64" : "";
  const node = element(isList ? "textarea" : "input", { ...common, placeholder: hint, ...(isNumber ? { inputmode: is(/^int$/) ? "numeric" : "decimal" } : {}) });
  const json = () => {
    const text = node.value;
    if (text === "" && (field.optional || !is(/^str$/))) return undefined;
    // Numbers are passed on digit by digit; the server says what is wrong with others.
    if (isNumber && /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/.test(text.trim())) return text.trim();
    if (isList) {
      try {
        JSON.parse(text);
        return text;
      } catch {
        return JSON.stringify(text);
      }
    }
    return JSON.stringify(text);
  };
  return { field, node, json };
}
