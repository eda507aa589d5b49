// What all parts of the page use: elements, questions to the server, how numbers are said.

const $ = (id) => document.getElementById(id);

/** An element with properties and children; text is text, never HTML. */
function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

let token = sessionStorage.getItem("token") || "";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token = given;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}

/** The response to a question (POST) or, without one, to a GET; an error has the server's words. */
async function fetchAnswer(path, question, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const body = question && JSON.stringify(question);
  const options = { method: body ? "POST" : "GET", headers, body, signal };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (answer.status === 401) $("key").hidden = false;
  throw new Error(`The server says: ${said.error}.`);
}

const ask = async (path, question, signal) => (await fetchAnswer(path, question, signal)).json();

const faults = new Map();

/** Says what went wrong with something, until it works; a question taken back is no fault. */
function tell(what, error) {
  if (error && error.name === "AbortError") return;
  if (error) faults.set(what, error.message);
  else faults.delete(what);
  const said = [...new Set(faults.values())].join(" ");
  $("alarm").hidden = !said;
  if ($("alarm").textContent !== said) $("alarm").textContent = said;
}

/** Runs only the latest call of a task, after a pause; the one before is taken back. */
function latest(task, pause) {
  let timer = 0;
  let running = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (running) running.abort();
      const mine = (running = new AbortController());
      try {
        await task(mine.signal, ...values);
        if (mine === running) tell(task);
      } catch (error) {
        if (mine === running) tell(task, error);
      }
    }, pause);
  };
}

const ENDS = "</s>";
const spoken = (word) => (word === ENDS ? "end of sentence" : word);
const shownWord = (word) => (word === ENDS ? "¶" : word);
const bits = (item) => (item.probability > 0 ? -Math.log2(item.probability) : Infinity);

/** A probability as people say it: 12 %, 0.34 %, 1 in 52,000. */
function percent(p) {
  if (p >= 0.0005) return `${(100 * p).toPrecision(p >= 0.1 ? 3 : 2)} %`;
  return p > 0 ? `1 in ${Math.round(1 / p).toLocaleString("en")}` : "never";
}

const figure = (x) => (x === null || !isFinite(x) ? "–" : x >= 1000
  ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(x >= 100 ? 4 : 3))));

/** Words with bars: probabilities, or anything from 0 to 1. */
function bars(entries, value, said, own) {
  const most = Math.max(...entries.map(value), 1e-9);
  const list = make("ul", { className: "bars" });
  for (const entry of entries) {
    const bar = make("span", { className: "bar" });
    bar.style.width = `${Math.max(0, (100 * value(entry)) / most)}%`;
    const word = make("span", { className: entry.word === own ? "own" : "" });
    word.textContent = spoken(entry.word);
    list.append(make("li", {}, word, bar, make("span", {}, said(entry))));
  }
  return list;
}

/** Fills a select with names; keeps what was chosen. */
function fill(select, names, first) {
  const before = select.value;
  select.replaceChildren();
  for (const name of first === undefined ? names : [first, ...names]) {
    select.append(make("option", { value: name === first ? "" : name }, name));
  }
  if (names.includes(before)) select.value = before;
}

let models = [];
const modelOf = (name) => models.find((model) => model.name === name);

/** The network's share in mixtures, once somebody has moved the slider; else each has its own. */
let share = null;

/** What to add to a question about a model: its name, and the share if it is a mixture. */
function about(name) {
  const model = modelOf(name);
  const chosen = model && model.kind === "mixture" && share !== null;
  return { model: name, ...(chosen ? { weight: share } : {}) };
}
