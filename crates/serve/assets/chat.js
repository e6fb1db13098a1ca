// The conversation: sends it to this server, and shows the answer while it arrives.

const $ = (id) => document.getElementById(id);
const model = document.body.dataset.model;
const settings = ["mode", "system", "temperature", "top_p", "top_k", "max_tokens", "seed", "stop-text"];
let messages = [];
let running = null;

// Storage may be switched off; the page then forgets.
function stored(kind, name, value) {
  try {
    if (value === undefined) return kind.getItem("ferrane-" + name);
    kind.setItem("ferrane-" + name, value);
  } catch {
    return null;
  }
}

function dark(on) {
  document.documentElement.classList.toggle("dark", on);
}

function load() {
  const theme = stored(localStorage, "theme");
  dark(theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  for (const name of settings) $(name).value = stored(localStorage, name) ?? $(name).value;
  if (document.body.dataset.chat === "no") {
    $("mode").value = "continue";
    $("mode").options[0].disabled = true;
    $("mode").title = "The model has no chat template.";
  }
  $("key-label").hidden = document.body.dataset.key !== "yes";
  $("key").value = stored(sessionStorage, "key") ?? "";
  shown();
}

function shown() {
  const chat = $("mode").value === "chat";
  $("system-label").hidden = !chat;
  $("text").placeholder = chat ? "Message" : "Beginning of a text";
}

// The request for what has been written.
function request() {
  const body = { model, stream: true, stream_options: { include_usage: true } };
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) {
    const value = $(name).valueAsNumber;
    if (Number.isFinite(value)) body[name] = value;
  }
  if ($("stop-text").value) body.stop = [$("stop-text").value];
  if ($("mode").value === "chat") {
    const system = $("system").value.trim();
    body.messages = [...(system ? [{ role: "system", content: system }] : []), ...messages];
    return ["/v1/chat/completions", body];
  }
  body.prompt = messages.at(-1).content;
  body.max_tokens ??= 200;
  return ["/v1/completions", body];
}

// The events of a stream, as objects.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const text = part.replace(/^data: /, "");
      if (text === "[DONE]") return;
      yield JSON.parse(text);
    }
  }
}

async function failure(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

function add(role, text) {
  $("empty").hidden = true;
  const body = element("div", role === "user" ? [element("p", [text])] : [], "body");
  const made = element("div", [body], "message " + role);
  $("log").append(made);
  made.scrollIntoView({ block: "end" });
  return made;
}

async function answer() {
  const made = add("assistant", "");
  const [path, body] = request();
  const headers = { "Content-Type": "application/json" };
  if ($("key").value) headers.Authorization = "Bearer " + $("key").value;
  const stopper = new AbortController();
  begin(stopper);
  made.classList.add("waiting");
  const begun = performance.now();
  let [text, first, pieces, usage, failed] = ["", 0, 0, null, ""];
  try {
    const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: stopper.signal });
    if (!response.ok) throw new Error(await failure(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage ?? usage;
      const choice = event.choices?.[0];
      const more = choice?.delta?.content ?? choice?.text;
      if (!more) continue;
      first ||= performance.now();
      pieces += 1;
      text += more;
      draw(made, text);
      facts(made, pieces, usage, begun, first);
    }
  } catch (error) {
    if (error.name !== "AbortError") failed = error.message;
  }
  made.classList.remove("waiting");
  if (failed) {
    made.classList.add("failed");
    made.firstChild.append(element("p", [failed]));
  }
  if (text || !failed) messages.push({ role: "assistant", content: text });
  else messages.pop();
  finish();
  facts(made, pieces, usage, begun, first);
}

// Draws at most once a frame, so that a fast model does not keep the page from being used.
function draw(made, text) {
  made.text = text;
  made.frame ??= requestAnimationFrame(() => {
    made.frame = undefined;
    const log = $("log");
    const below = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    made.firstChild.replaceChildren(...marked(made.text));
    if (below) log.scrollTop = log.scrollHeight;
  });
}

function facts(made, pieces, usage, begun, first) {
  const tokens = usage?.completion_tokens ?? pieces;
  const seconds = (performance.now() - first) / 1000;
  const words = [];
  if (tokens) words.push(`${tokens} tokens`);
  if (tokens > 1 && seconds > 0) words.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (first) words.push(`first after ${((first - begun) / 1000).toFixed(2)} s`);
  if (usage) words.push(`prompt of ${usage.prompt_tokens}`);
  // While the answer arrives, below the page; afterwards, below the answer.
  $("status").textContent = running ? words.join(" · ") : "";
  if (!running && words.length) made.append(element("div", [words.join(" · ")], "facts"));
}

function begin(stopper) {
  running = stopper;
  $("send").hidden = true;
  $("stop").hidden = false;
}

function finish() {
  running = null;
  $("send").hidden = false;
  $("stop").hidden = true;
  $("text").focus();
}

function send() {
  const text = $("text").value;
  if (running || !text.trim()) return;
  messages.push({ role: "user", content: text });
  add("user", text);
  $("text").value = "";
  grow();
  answer();
}

function grow() {
  const text = $("text");
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("text").addEventListener("input", grow);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => {
  running?.abort();
  messages = [];
  document.querySelectorAll(".message").forEach((message) => message.remove());
  $("empty").hidden = false;
  $("status").textContent = "";
  $("text").focus();
});
$("options").addEventListener("click", () => {
  const hidden = ($("panel").hidden = !$("panel").hidden);
  $("options").setAttribute("aria-expanded", String(!hidden));
});
$("theme").addEventListener("click", () => {
  const on = !document.documentElement.classList.contains("dark");
  dark(on);
  stored(localStorage, "theme", on ? "dark" : "light");
});
for (const name of settings) {
  $(name).addEventListener("change", () => {
    stored(localStorage, name, $(name).value);
    shown();
  });
}
$("key").addEventListener("change", () => stored(sessionStorage, "key", $("key").value));
$("reset").addEventListener("click", () => {
  for (const name of settings.filter((name) => name !== "mode")) {
    $(name).value = "";
    stored(localStorage, name, "");
  }
});
load();
$("text").focus();
