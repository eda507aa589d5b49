// The page begins: which models there are, and something to look at.

async function begin() {
  const { models: found } = await ask("/v1/models");
  models = found;
  const names = models.map((model) => model.name);
  const networks = models.filter((model) => model.kind === "network").map((model) => model.name);
  fill($("model"), names);
  fill($("other"), names, "nothing");
  fill($("network"), networks);
  $("words").hidden = $("curves").hidden = !networks.length;
  $("key").hidden = true;
  tell(begin);
  onModels();
  const empty = !$("text").value; // else somebody has begun to type
  await Promise.all([empty ? example() : null, networks.length ? showCurves() : null]);
}

$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  begin().catch((error) => tell(begin, error));
});
startReading();
startWriting();
startLooking();
begin().catch((error) => tell(begin, error));
