// Read: the words of a text in colours, their details, two models side by side.

const SURPRISE = [2, 4, 7, 10, 13]; // bits at which a word gets the next colour
const APART = [0.5, 1.5, 3]; // bits between two models, likewise
let scored = []; // the answers, one for each model
let chosen = -1;

const readText = latest(async (signal) => {
  const text = $("text").value;
  const names = [$("model").value, $("other").value].filter(Boolean);
  const questions = names.map((name) => ask("/v1/score", { ...about(name), text }, signal));
  scored = await Promise.all(questions);
  chosen = -1;
  showText();
}, 250);

/** What the colours show: a model's name, or "" for the difference. */
const colouring = () => (scored.length > 1 ? $("colour").value : scored[0].model);

function shade(i) {
  const shown = scored.find((answer) => answer.model === colouring());
  if (shown) return `s${SURPRISE.filter((limit) => bits(shown.tokens[i]) >= limit).length}`;
  const gap = bits(scored[1].tokens[i]) - bits(scored[0].tokens[i]); // above 0: the first knew it
  const step = APART.filter((limit) => Math.abs(gap) >= limit).length;
  return step ? (gap > 0 ? `c${step}` : `s${step + 1}`) : "s0";
}

function describe(i) {
  return scored
    .map(({ model, tokens }) => {
      const { probability, rank, unknown } = tokens[i];
      const name = scored.length > 1 ? `${model}: ` : "";
      return `${name}${percent(probability)}, rank ${rank}${unknown ? ", unknown word" : ""}`;
    })
    .join("; ");
}

function showText() {
  const tokens = scored[0].tokens;
  const place = $("tokens");
  place.replaceChildren();
  place.classList.toggle("numbered", $("numbers").checked);
  tokens.forEach((item, i) => {
    const ends = item.word === ENDS;
    const unknown = scored.some((answer) => answer.tokens[i].unknown);
    const extra = `${ends ? " end" : ""}${unknown ? " unknown" : ""}`;
    const node = make("button", { type: "button", className: `word ${shade(i)}${extra}` });
    node.textContent = shownWord(item.word);
    const values = scored.map((answer) => bits(answer.tokens[i]).toFixed(1));
    node.append(make("small", { ariaHidden: "true" }, values.join(" · ")));
    node.tabIndex = i ? -1 : 0;
    node.dataset.place = i;
    node.setAttribute("aria-label", `${spoken(item.word)}: ${describe(i)}`);
    place.append(node, ends ? make("br") : " ");
  });
  $("detail").hidden = true;
  showSummary();
  showLegend();
  showApart();
}

function showSummary() {
  const place = $("summary");
  place.replaceChildren();
  if (!scored[0].tokens.length) return;
  scored.forEach(({ model, perplexity }, i) => {
    place.append(i ? " · " : "", `${model}: perplexity `, make("b", {}, figure(perplexity)));
  });
  const unknown = scored.map((answer) => answer.unknown);
  const dotted = Math.max(...unknown) ? `, ${[...new Set(unknown)].join(" or ")} unknown (dotted)` : "";
  place.append(` · ${scored[0].words} words${dotted}`);
}

function showLegend() {
  const place = $("legend");
  place.replaceChildren();
  if (!scored[0].tokens.length) return;
  const mark = (kind, text) => place.append(make("i", { className: kind }, text));
  if (colouring()) {
    place.append("expected");
    const odds = (b) => (b < 10 ? `1 in ${2 ** b}` : `1 in ${(2 ** b).toLocaleString("en")}`);
    SURPRISE.forEach((b, i) => mark(`s${i + 1}`, odds(b)));
    place.append("or rarer: surprising");
  } else {
    const [first, second] = scored.map((answer) => answer.model);
    place.append(`${first} knew better`);
    const times = (i) => `${Number((2 ** APART[i - 1]).toPrecision(i > 1 ? 1 : 2))}×`;
    [3, 2, 1].forEach((i) => mark(`c${i}`, times(i)));
    [1, 2, 3].forEach((i) => mark(`s${i + 1}`, times(i)));
    place.append(`${second} knew better`);
  }
}

/** The words at which two models differ most. */
function showApart() {
  const place = $("apart");
  place.hidden = scored.length < 2 || !scored[0].tokens.length;
  if (place.hidden) return;
  const [a, b] = scored;
  const rows = a.tokens
    .map((item, i) => ({ i, word: item.word, gap: bits(b.tokens[i]) - bits(item) }))
    .filter(({ gap }) => isFinite(gap) && Math.abs(gap) >= APART[0])
    .sort((x, y) => Math.abs(y.gap) - Math.abs(x.gap))
    .slice(0, 8);
  const head = make("tr", {}, ...["Word", a.model, b.model].map((name) => {
    const cell = make("th", {}, name);
    cell.scope = "col";
    return cell;
  }));
  const body = make("tbody");
  for (const { i, word } of rows) {
    const cells = scored.map((answer) => make("td", {}, percent(answer.tokens[i].probability)));
    const before = i ? `… ${shownWord(a.tokens[i - 1].word)} ` : "";
    const name = make("td", {}, make("span", { className: "soft" }, before), shownWord(word));
    body.append(make("tr", {}, name, ...cells));
  }
  const table = make("table", {}, make("thead", {}, head), body);
  place.replaceChildren(make("h3", {}, "Where they differ most"),
    rows.length ? make("div", { className: "scroll" }, table) : "They hardly differ here.");
  place.className = "panel";
}

/** Shows what is known of one word. */
function choose(i) {
  const nodes = document.querySelectorAll("#tokens .word");
  if (i < 0 || i >= nodes.length || i === chosen) return;
  chosen = i;
  nodes.forEach((node, at) => {
    node.classList.toggle("chosen", at === i);
    node.tabIndex = at === i ? 0 : -1;
  });
  const columns = make("div", { className: "columns" });
  for (const { model, tokens } of scored) {
    const { word, probability, rank, best, unknown } = tokens[i];
    const column = make("div", {}, make("h3", {}, model));
    const value = make("span", { className: "figure" }, percent(probability));
    const rest = ` for “${spoken(word)}”${unknown ? " (unknown: the chance of any such word)" : ""}, `;
    column.append(make("div", {}, value, rest, rank === 1 ? "the first choice" : `choice no. ${rank.toLocaleString("en")}`));
    column.append(bars(best, (e) => e.probability, (e) => percent(e.probability), word));
    columns.append(column);
  }
  $("detail").replaceChildren(columns);
  $("detail").hidden = false;
}

function onArrow(event) {
  if (event.key === "Escape") {
    $("detail").hidden = true;
    chosen = -1;
  }
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[event.key];
  const nodes = document.querySelectorAll("#tokens .word");
  let to = event.key === "Home" ? 0 : event.key === "End" ? nodes.length - 1 : NaN;
  if (step) to = Math.min(nodes.length - 1, Math.max(0, Number(event.target.dataset.place) + step));
  if (!(to >= 0)) return;
  event.preventDefault();
  choose(to);
  nodes[to].focus();
}

function startReading() {
  const place = $("tokens");
  for (const kind of ["mouseover", "focusin", "click"]) {
    place.addEventListener(kind, ({ target }) => {
      const node = target.closest(".word");
      if (node) choose(Number(node.dataset.place));
    });
  }
  place.addEventListener("keydown", onArrow);
  $("text").addEventListener("input", readText);
  $("numbers").addEventListener("change", () => scored.length && showText());
  $("colour").addEventListener("change", showText);
  $("example").addEventListener("click", () => example().then(() => tell(example), (error) => tell(example, error)));
  for (const id of ["model", "other"]) $(id).addEventListener("change", onModels);
  $("share").addEventListener("input", () => {
    share = Number($("share").value);
    onModels();
  });
}

function onModels() {
  const names = [$("model").value, $("other").value];
  const mixtures = models.filter(({ name, kind }) => names.includes(name) && kind === "mixture");
  const shares = share === null ? mixtures.map((model) => model.weight) : [share];
  $("share-label").hidden = !mixtures.length;
  if (mixtures.length) $("share").value = shares[0];
  $("share-value").textContent = [...new Set(shares.map((one) => one.toFixed(2)))].join(" and ");
  $("colour-label").hidden = !names[1];
  fill($("colour"), names.filter(Boolean), "difference");
  readText();
  suggest();
}

/** Some sentences of the model's own, to have something to look at. */
async function example() {
  const before = $("text").value;
  const seed = Math.floor(Math.random() * 2 ** 31);
  const question = { ...about($("model").value), words: 40, temperature: 0.8, seed };
  const lines = (await (await fetchAnswer("/v1/generate", question)).text()).trim().split("\n");
  const pieces = lines.map((line) => JSON.parse(line).text || "");
  const text = pieces.join("").replace(/^\n+/, "");
  const whole = text.slice(0, text.lastIndexOf("\n"));
  if ($("text").value !== before) return; // somebody has begun to type
  $("text").value = (whole || text).trimEnd();
  readText();
}
