// Places for the nodes of a graph in layers (Sugiyama, Tagawa, Toda: Methods for visual understanding of hierarchical
// system structures, 1981): each edge goes from a layer to a later one, the order in each layer keeps crossings few, and
// nodes stand as close to the mean of their neighbours as their sizes allow.

const SWEEPS = 12;

/**
 * Gives each node a `layer` and a place `at` across the layers, and each edge its `way`: the nodes that it passes, of which
 * those between its ends only keep room for it. `sizes`: by node its extent across the layers; `gap` is left between two.
 * A layer of more than `most` nodes is divided into several.
 */
export function layout(count, edges, sizes, gap, most = Infinity) {
  const kept = withoutCircles(count, edges);
  const layers = divided(layersOf(count, kept), most);
  const nodes = layers.map((layer, node) => ({ layer, size: sizes[node], before: [], after: [], at: 0 }));
  const ways = edges.map(({ from, to }) => way(nodes, from, to));
  const depth = Math.max(0, ...layers) + 1;
  const rows = Array.from({ length: depth }, () => []);
  nodes.forEach((node) => rows[node.layer].push(node));
  order(rows);
  const extent = Math.max(0, ...rows.map((row) => row.reduce((sum, node) => sum + node.size + gap, 0)));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const [down, neighbours] = sweep % 2 ? [[...rows].reverse(), "after"] : [rows, "before"];
    for (const row of down) align(row, sweep > SWEEPS - 3 ? null : neighbours, gap, extent);
  }
  return { nodes: nodes.slice(0, count), ways, depth, extent };
}

/** The edges but those that close a circle. */
function withoutCircles(count, edges) {
  const after = Array.from({ length: count }, () => []);
  const reaches = (from, to, seen) => from === to || !seen.has(from) && seen.add(from) && after[from].some((next) => reaches(next, to, seen));
  return edges.filter(({ from, to }) => {
    const fits = !reaches(to, from, new Set());
    if (fits) after[from].push(to);
    return fits;
  });
}

/** The layer of each node: after all that come before it; what nothing comes before stands right before the next. */
function layersOf(count, edges) {
  const layers = new Array(count).fill(0);
  for (let changed = true; changed;) {
    changed = false;
    for (const { from, to } of edges) {
      if (layers[to] <= layers[from]) [layers[to], changed] = [layers[from] + 1, true];
    }
  }
  for (let node = 0; node < count; node++) {
    const next = edges.filter((edge) => edge.from === node).map((edge) => layers[edge.to] - 1);
    if (next.length && !edges.some((edge) => edge.to === node)) layers[node] = Math.min(...next);
  }
  return layers;
}

/** The layers, of which those with too many nodes are several. */
function divided(layers, most) {
  const result = [...layers];
  let next = 0;
  for (let layer = 0; layer <= Math.max(0, ...layers); layer++) {
    const nodes = layers.flatMap((of, node) => of === layer ? [node] : []);
    const parts = Math.max(1, Math.ceil(nodes.length / most));
    nodes.forEach((node, place) => result[node] = next + Math.floor(place * parts / nodes.length));
    next += parts;
  }
  return result;
}

/** The nodes on the way of an edge; adds those between its ends. */
function way(nodes, from, to) {
  const step = nodes[from].layer < nodes[to].layer ? 1 : -1;
  const between = [];
  for (let layer = nodes[from].layer + step; step * layer < step * nodes[to].layer; layer += step) {
    between.push({ layer, size: 8, before: [], after: [], at: 0 });
  }
  nodes.push(...between);
  const all = [nodes[from], ...between, nodes[to]];
  for (let place = 1; place < all.length; place++) {
    const [first, second] = step > 0 ? [all[place - 1], all[place]] : [all[place], all[place - 1]];
    if (first.layer === second.layer) continue;
    first.after.push(second);
    second.before.push(first);
  }
  return all;
}

/** Orders each layer by the means of the places of neighbours. */
function order(rows) {
  const number = (row) => row.forEach((node, place) => node.place = place);
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const [down, neighbours] = sweep % 2 ? [[...rows].reverse(), "after"] : [rows, "before"];
    for (const row of down) {
      const wanted = (node) => mean(node[neighbours].map((other) => other.place)) ?? node.place;
      row.forEach((node) => node.wanted = wanted(node));
      row.sort((a, b) => a.wanted - b.wanted || a.place - b.place);
      number(row);
    }
  }
}

/** Moves the nodes of a layer to the means of their neighbours, as closely as order, sizes and the extent allow. */
function align(row, neighbours, gap, extent) {
  const around = (node) => neighbours ? node[neighbours] : [...node.before, ...node.after];
  // Blocks of nodes that touch, each at the mean of what its nodes want (pool adjacent violators).
  const blocks = [];
  for (const node of row) {
    const wanted = mean(around(node).map((other) => other.at)) ?? node.at;
    blocks.push({ nodes: [node], sum: wanted, size: node.size + gap, offsets: [(node.size + gap) / 2] });
    const at = (block) => block.sum / block.nodes.length;
    const start = (block) => at(block) - mean(block.offsets);
    while (blocks.length > 1 && start(blocks.at(-2)) + blocks.at(-2).size > start(blocks.at(-1))) {
      const last = blocks.pop();
      const first = blocks.at(-1);
      first.offsets.push(...last.offsets.map((offset) => offset + first.size));
      first.nodes.push(...last.nodes);
      first.sum += last.sum;
      first.size += last.size;
    }
  }
  const starts = blocks.map(({ nodes, sum, offsets }) => sum / nodes.length - mean(offsets));
  let least = 0;
  blocks.forEach(({ size }, place) => {
    starts[place] = Math.max(least, starts[place]);
    least = starts[place] + size;
  });
  let most = extent;
  for (let place = blocks.length - 1; place >= 0; place--) {
    const { nodes, size, offsets } = blocks[place];
    const start = Math.min(most - size, starts[place]);
    most = start;
    nodes.forEach((node, number) => node.at = start + offsets[number]);
  }
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}
