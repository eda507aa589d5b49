// Write: the next words while somebody types, and text that goes on by itself.

/** A text without the word that is being typed, and that word. */
function beginning(text) {
  const cut = text.search(/[^ \t\n]*$/);
  return [text.slice(0, cut), text.slice(cut)];
}

const suggest = latest(async (signal) => {
  const text = $("prompt").value;
  const [before, prefix] = beginning(text);
  const asked = [{ text: before, prefix, top: 8 }];
  if (prefix) asked.push({ text, top: 5 }); // the word may be whole already
  const model = about($("model").value);
  const [own, next] = await Promise.all(asked.map((q) => ask("/v1/next", { ...model, ...q }, signal)));
  const completions = own.words.filter(({ word }) => word !== prefix).slice(0, next ? 4 : 8);
  $("next").replaceChildren();
  for (const { word, probability } of completions) chip(word, probability, false);
  for (const { word, probability } of next ? next.words : []) chip(word, probability, true);
}, 150);

/** A word to take: behind the text or, unless it is to follow, in place of its beginning. */
function chip(word, probability, follows) {
  const node = make("button", { type: "button" }, shownWord(word));
  node.append(make("small", { className: "soft" }, percent(probability)));
  node.setAttribute("aria-label", `${spoken(word)}, ${percent(probability)}`);
  node.addEventListener("click", () => {
    const text = $("prompt").value;
    const [before, prefix] = beginning(text);
    const start = follows || !word.startsWith(prefix) ? (prefix ? `${text} ` : text) : before;
    $("prompt").value = word === ENDS ? `${start.trimEnd()}\n` : `${start}${word} `;
    $("prompt").focus();
    suggest();
  });
  $("next").append(node);
}

let writing = null;

async function write() {
  if (writing) writing.abort();
  const mine = (writing = new AbortController());
  const prompt = $("prompt").value.replace(/ +$/, "");
  const place = $("written");
  place.hidden = false;
  place.replaceChildren(make("span", { className: "given" }, prompt));
  $("stop").disabled = false;
  try {
    const question = {
      ...about($("model").value),
      prompt,
      words: Number($("count").value),
      temperature: Number($("temperature").value),
      top_k: Number($("top-k").value),
      seed: Number($("seed").value),
    };
    for await (const line of linesOf(await fetchAnswer("/v1/generate", question, mine.signal))) {
      if (line.error) throw new Error(`The server says: ${line.error}.`);
      if (line.text) place.append(line.text);
    }
    tell(write);
  } catch (error) {
    tell(write, error);
  }
  if (mine === writing) $("stop").disabled = true;
}

/** The JSON lines of a response, as they come. */
async function* linesOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

function startWriting() {
  $("prompt").addEventListener("input", suggest);
  $("generate").addEventListener("submit", (event) => {
    event.preventDefault();
    write();
  });
  $("stop").addEventListener("click", () => writing && writing.abort());
}
