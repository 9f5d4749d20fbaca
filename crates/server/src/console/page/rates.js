// What the page remembers of the run: one document a second, from which it makes rates.

/** Documents that are remembered. */
const MOST = 180;
/** Rates are over so many seconds. */
const SPAN = 3;

export class Rates {
  documents = [];
  /** By name of a figure: its values so far. */
  series = {};

  add(document) {
    this.documents.push(document);
    if (this.documents.length > MOST) this.documents.shift();
  }

  get now() {
    return this.documents.at(-1);
  }

  /** The document some seconds ago, or the first. */
  before(seconds = SPAN) {
    const from = this.now.seconds - seconds - 0.5;
    return this.documents.find((document) => document.seconds >= from) ?? this.documents[0];
  }

  /** How much a count grew in a second; none before there are two documents. */
  of(count, seconds = SPAN) {
    if (!this.now) return null;
    const [now, before] = [this.now, this.before(seconds)];
    const [last, first] = [count(now), count(before)];
    return now.seconds > before.seconds && last != null && first != null ? (last - first) / (now.seconds - before.seconds) : null;
  }

  /** Notes the value of a figure, and gives all so far. */
  note(name, value) {
    const values = this.series[name] ??= [];
    if (value != null) values.push(value);
    if (values.length > MOST) values.shift();
    return values;
  }
}

export function transaction(document, name) {
  return document.transactions.find((of) => of.name === name);
}

export function source(document, name) {
  return document.sources.find((of) => of.name === name);
}

export function committed(document) {
  return document.transactions.reduce((sum, of) => sum + of.committed, 0);
}

export function aborted(document) {
  return document.transactions.reduce((sum, of) => sum + of.aborted, 0);
}
