// Words near a word in the two tables, and the learning curves of the runs.

async function near() {
  const word = $("word").value.trim();
  if (!word) return;
  const answer = await ask("/v1/near", { model: $("network").value, word, top: 10 });
  const place = $("near-list");
  place.replaceChildren();
  for (const [title, entries] of [["Input table", answer.input], ["Output table", answer.output]]) {
    const column = make("div", {}, make("h3", {}, title));
    const cosine = (entry) => entry.cosine;
    column.append(entries ? bars(entries, cosine, (e) => e.cosine.toFixed(2))
      : "This output layer has no vector for each word.");
    place.append(column);
  }
}

const SVG = "http://www.w3.org/2000/svg";
function draw(tag, values, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Round numbers between two numbers, about four of them. */
function ticks(low, high) {
  const raw = (high - low) / 4 || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((m) => m * size >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  return found;
}

/** A number as an axis has room for it: 100K, 1.5M. */
const short = (y) => (y >= 10000 ? new Intl.NumberFormat("en", { notation: "compact" }).format(y) : figure(y));

/** Curves over epochs as a picture: series of {name, points: [[x, y]]}. */
function plot(title, series, fromZero) {
  const points = series.flatMap((one) => one.points);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right, low] = [Math.min(...xs), Math.max(...xs), fromZero ? 0 : Math.min(...ys)];
  const high = Math.max(...ys) * (fromZero ? 1.05 : 1);
  const X = (x) => 52 + (right > left ? ((x - left) / (right - left)) * 330 : 165);
  const Y = (y) => 190 - (high > low ? ((y - low) / (high - low)) * 170 : 85);
  const svg = draw("svg", { viewBox: "0 0 400 235", role: "img", "aria-label": `${title} by epoch` });
  for (const y of ticks(low, high)) {
    svg.append(draw("line", { x1: 48, x2: 390, y1: Y(y), y2: Y(y), class: "grid" }));
    svg.append(draw("text", { x: 42, y: Y(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of ticks(left, right).filter(Number.isInteger)) {
    svg.append(draw("text", { x: X(x), y: 208, "text-anchor": "middle" }, String(x)));
  }
  svg.append(draw("text", { x: 217, y: 228, "text-anchor": "middle" }, "epoch"));
  series.forEach((one, i) => {
    const colour = `var(--series-${i % 6})`;
    const path = one.points.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ");
    const dashes = i % 2 ? "6 3" : "none"; // told apart without colour too
    const line = draw("polyline", { points: path, fill: "none", "stroke-dasharray": dashes });
    line.style.stroke = colour;
    line.style.strokeWidth = 2;
    svg.append(line);
    for (const [x, y] of one.points.length <= 30 ? one.points : []) {
      const dot = draw("circle", { cx: X(x), cy: Y(y), r: 2.6 });
      dot.style.fill = colour;
      dot.append(draw("title", {}, `${one.name}, epoch ${x}: ${figure(y)}`));
      svg.append(dot);
    }
  });
  const caption = make("figcaption", {}, title);
  const legend = make("div", { className: "legend" });
  series.forEach((one, i) => {
    const mark = make("span", {}, i % 2 ? "╍ " : "━ ");
    mark.style.color = `var(--series-${i % 6})`;
    legend.append(make("span", {}, mark, one.name));
  });
  return make("figure", {}, caption, ...(series.length > 1 ? [legend] : []), svg);
}

function epochTable(runs) {
  const head = make("tr");
  for (const name of ["Epoch", ...runs.map((run) => run.model)]) {
    const cell = make("th", {}, name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = make("tbody");
  for (let i = 0; i < Math.max(...runs.map((run) => run.epochs.length)); i++) {
    const cells = runs.map((run) => make("td", {}, figure((run.epochs[i] || {}).valid_perplexity ?? null)));
    body.append(make("tr", {}, make("td", {}, String(i + 1)), ...cells));
  }
  const table = make("table", {}, make("thead", {}, head), body);
  return make("details", {}, make("summary", {}, "Validation perplexity as a table"),
    make("div", { className: "scroll" }, table));
}

async function showCurves() {
  const networks = models.filter((model) => model.kind === "network");
  const paths = networks.map(({ name }) => `/v1/models/${encodeURIComponent(name)}/curves`);
  const runs = (await Promise.all(paths.map((path) => ask(path)))).filter((run) => run.epochs.length);
  const place = $("plots");
  if (!runs.length) {
    place.replaceChildren(make("p", { className: "note" }, "The folders hold no record of a training run."));
    return;
  }
  const series = (key) => runs.map((run) => ({
    name: run.model,
    points: run.epochs.filter((e) => e[key] !== null && key in e).map((e) => [e.epoch, e[key]]),
  })).filter((one) => one.points.length);
  const pictures = [["Validation perplexity", "valid_perplexity", false],
    ["Training words a second", "words_per_second", true]];
  place.replaceChildren();
  for (const [title, key, fromZero] of pictures) {
    const found = series(key);
    if (found.length) place.append(plot(title, found, fromZero));
  }
  place.after(epochTable(runs));
}

function startLooking() {
  $("near").addEventListener("submit", (event) => {
    event.preventDefault();
    near().then(() => tell(near), (error) => tell(near, error));
  });
}
