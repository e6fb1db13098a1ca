// The panels around the drawing: what stands in the way, the chosen op, search, keys.
//
// The fields of a node: `op` or `kind` (input, output, state, outer value), `name`, `out` [[name,
// type]], `in` [[argument, value, type, constant]], `attributes` [[name, text]], `line` and `origin`
// in the source, `findings` (indices), `on` and `alone` (processors), `p` (probability), `why` [kind,
// sentence, evidence], `segment`, `us`, `bound`, `flops`, `bytes` [weights, read, written], `ulps`,
// `blocks` (indices of graphs), `at` [x, layer], `w` (width).

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

// An element with properties and children; texts are never read as HTML.
function el(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A sentence whose parts in backquotes are code.
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
const row = (act, ...children) => el("button", { className: "row", type: "button", onclick: act }, ...children);
const link = (text, act) => el("button", { className: "link", type: "button", onclick: act }, text);

// What nodes show that is not among their own fields.
data.graphs.forEach((graph, g) => {
  graph.makers = new Map();
  graph.nodes.forEach((node, n) => {
    node.type = node.out && node.out[0] ? data.types[node.out[0][1]] : "";
    if (node.blocks) node.type = several(node.blocks.length, "block");
    if (node.kind !== "output") (node.out || []).forEach(([name]) => graph.makers.set(name, n));
    if (graph.parent && node.on === undefined) node.on = data.graphs[graph.parent[0]].nodes[graph.parent[1]].on;
    node.severity = worst((node.findings || []).map((i) => data.findings[i].severity));
  });
});
// An op shows what is found inside of it. Inner graphs come after outer ones.
[...data.graphs].reverse().forEach((graph) => {
  if (!graph.parent) return;
  const holder = data.graphs[graph.parent[0]].nodes[graph.parent[1]];
  holder.severity = worst([holder.severity, ...graph.nodes.map((n) => n.severity)]);
});

function worst(severities) {
  return SEVERITIES.find((s) => severities.includes(s));
}

const kinds = modes(data);
let mode = kinds.unit.has ? "unit" : "finding";
let current = 0;
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

const view = new GraphView($("canvas"), {
  chosen: (n) => go([current, n], false),
  entered: (n) => {
    const { blocks } = data.graphs[current].nodes[n];
    if (blocks) show(blocks[0]);
  },
});

function paint() {
  document.documentElement.classList.toggle("dark", theme === "dark");
  view.show(data.graphs[current], kinds[mode], PALETTES[theme]);
  view.found = found && found.get(current) ? found.get(current) : null;
  legend();
}

function show(g) {
  current = g;
  $("graph-choice").value = g;
  const parents = [];
  for (let at = data.graphs[g].parent; at; at = data.graphs[at[0]].parent) parents.unshift(at);
  $("path").hidden = !parents.length;
  $("path").replaceChildren(
    ...parents.flatMap(([graph, n]) => [link(data.graphs[graph].name, () => go([graph, n], true)), " › "]), data.graphs[g].name);
  paint();
  details(-1);
}

// Goes to a node, [graph, node].
function go([g, n], reveal) {
  if (g !== current) show(g);
  view.choose(n, reveal);
  details(n);
  if (n >= 0 && reveal) requestAnimationFrame(() => view.reveal(n));
}

// A function that goes to the next of these nodes each time.
function cycle(at) {
  let next = 0;
  return () => at.length && go(at[next++ % at.length], true);
}

// ---- the overview

function overview() {
  const s = data.summary;
  const parts = [];
  if (s.on_engine !== null && s.placed) {
    const shares = [[s.on_engine, "engine"], [s.off_engine, "cpu"], [s.not_known, "unknown"]];
    parts.push(
      el("p", { className: "headline" }, el("b", {}, headline(s)), s.not_known > s.placed / 2
        ? (s.share === null ? "Where the ops run is not known" : "Whether the ops run on the Neural Engine is a close call; this share is expected")
        : "of the ops probably run on the Neural Engine"),
      el("div", { className: "bar" }, ...shares.map(([n, name]) => {
        const part = el("i", { className: name, title: several(n, "op") });
        part.style.width = (100 * n) / s.placed + "%";
        return part;
      })),
      el("p", { className: "faint" }, [`${count(s.on_engine)} on the engine`, `${count(s.off_engine)} elsewhere`,
        s.not_known ? `${count(s.not_known)} not known` : null].filter(Boolean).join(", ")));
  }
  const facts = [
    ["ops", count(s.ops) + (s.functions > 1 ? " in " + several(s.functions, "function") : "")],
    ["weights", size(s.weight_bytes)],
    ["checked for", s.machine], ["placed for", s.placed_for && `${s.placed_for}, ${s.framework}, ${s.units}`],
    ["one evaluation", s.total_us === null ? null : time(s.total_us) + " if all of it runs on the engine"],
    ["first load", s.first_load && `about ${Math.ceil(s.first_load.seconds)} s, up to ${Math.ceil(s.first_load.range[1])} s`],
    ["one evaluation", s.total_us === null && s.no_cost && ["not known: ", ...prose(s.no_cost)]],
  ];
  parts.push(el("dl", {}, ...facts.filter(([, v]) => v).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, ...[v].flat())])));
  parts.push(el("h2", {}, "What to change first"));
  parts.push(data.first.length ? el("ol", { className: "first" }, ...data.first.map(proposal))
    : el("p", { className: "faint" }, s.machine ? "Nothing is known that stands in the way." : "Name a machine to see what it does with the program."));
  if (data.causes.length) {
    parts.push(el("h2", {}, "Why ops are not on the engine"), ...data.causes.map(cause));
  }
  if (data.findings.length) {
    parts.push(el("h2", {}, `Findings: ${several(s.errors, "error")}, ${several(s.warnings, "warning")}, ${several(s.notes, "note")}`));
    parts.push(...grouped());
  }
  data.placements.filter((p) => p.segments.length).forEach((p) => parts.push(...segments(p)));
  $("overview").replaceChildren(...parts);
}

function headline(s) {
  if (s.not_known <= s.placed / 2) return Math.floor((100 * s.on_engine) / s.placed) + " %";
  return s.share === null ? "?" : "about " + Math.round(100 * s.share) + " %";
}

function proposal(p) {
  return el("li", {}, row(cycle(p.at), p.count > 1 && el("span", { className: "count" }, count(p.count)), prose(p.title),
    el("small", {}, prose(p.effect)), p.how && el("small", {}, "Instead: ", prose(p.how)),
    p.fix && el("small", {}, el("code", {}, "ferrane check --fix"), " changes it")));
}

function cause(c) {
  const share = el("i", { className: c.kind === "not known" || c.kind === "close call" ? "unknown" : "cpu" });
  share.style.width = (100 * c.count) / Math.max(1, data.summary.placed) + "%";
  const title = c.kind.match(/^E\d+$/) && data.codes[c.kind] ? `${c.kind}: ${data.codes[c.kind].title}` : c.kind;
  return row(cycle(c.at), el("span", { className: "count" }, count(c.count)), title, el("div", { className: "bar" }, share), el("small", {}, prose(c.message)));
}

function grouped() {
  const groups = new Map();
  data.findings.forEach((f) => groups.set(f.code, [...(groups.get(f.code) || []), f].slice(0, 1e6)));
  const rank = (all) => SEVERITIES.indexOf(worst(all.map((f) => f.severity)));
  return [...groups].sort((a, b) => rank(a[1]) - rank(b[1]) || b[1].length - a[1].length).map(([code, all]) => {
    const severity = worst(all.map((f) => f.severity));
    const about = data.codes[code];
    const inside = el("div", { className: "inside" });
    const fill = () => {
      if (inside.childNodes.length) return;
      inside.append(...[about && el("p", { className: "faint" }, prose(about.text)), address(code),
        ...all.slice(0, 200).map((f) => row(() => f.at && go(f.at, true), f.value ? el("code", {}, f.value) : "the program", el("small", {}, prose(f.message)))),
        all.length > 200 && el("p", { className: "faint" }, `and ${count(all.length - 200)} more`)].filter(Boolean));
    };
    return el("details", { ontoggle: fill }, el("summary", {}, el("span", { className: "tag " + severity }, severity + " " + code), " ", about ? about.title : "", el("span", { className: "faint" }, " · " + count(all.length))), inside);
  });
}

function address(code) {
  const about = data.codes[code];
  return about && about.url && el("p", {}, el("a", { href: about.url, rel: "noopener", target: "_blank" }, code + " in the documentation"));
}

const dot = (on) => {
  const mark = el("i", { className: "dot" });
  mark.style.background = PALETTES[theme][on || "unknown"][1];
  return mark;
};

function segments(p) {
  const cells = (s, i) => el("tr", { className: "go", onclick: () => s.at && go(s.at, true) },
    el("td", {}, dot(s.on), String(i)), el("td", {}, PROCESSORS[s.on || "unknown"]), el("td", { className: "n" }, count(s.ops)),
    el("td", { className: "n" }, s.us === null ? "" : time(s.us)));
  const head = (...names) => el("tr", {}, ...names.map((n, i) => el("th", { className: i > 1 ? "n" : "" }, n)));
  const name = data.placements.length > 1 ? ` of ${p.function}` : "";
  const limit = 100;
  const more = (n) => n > limit && el("p", { className: "faint" }, `and ${count(n - limit)} more`);
  const parts = [el("h2", {}, several(p.segments.length, "segment") + name),
    el("table", {}, head("", "on", "ops", "time"), ...p.segments.slice(0, limit).map(cells)), more(p.segments.length)];
  if (p.transfers.length) {
    const line = (t) => el("tr", {}, el("td", {}, `${t.from} → ${t.to}`), el("td", {}, several(t.values, "value")),
      el("td", { className: "n" }, size(t.bytes)), el("td", { className: "n" }, t.us === null ? "" : time(t.us)));
    parts.push(el("h2", {}, several(p.transfers.length, "transfer") + name),
      el("table", {}, head("segments", "", "size", "time"), ...p.transfers.slice(0, limit).map(line)), more(p.transfers.length));
  }
  return parts.filter(Boolean);
}

// ---- the chosen op

function details(n) {
  const node = data.graphs[current].nodes[n];
  $("details").hidden = !node;
  if (!node) return;
  const parts = [el("button", { className: "close", type: "button", title: "Close (Esc)", ariaLabel: "Close", onclick: () => go([current, -1]) }, "✕"),
    el("h3", {}, node.op || node.kind), el("p", { className: "name" }, el("code", {}, node.name))];
  if (node.line) parts.push(el("p", { className: "faint" }, `${$("title").textContent}, line ${count(node.line)}`));
  if (node.origin) parts.push(el("p", { className: "faint" }, "made from ", el("code", {}, node.origin)));
  parts.push(...(node.blocks || []).map((g) => row(() => show(g), "Open ", el("code", {}, data.graphs[g].name), el("small", {}, several(data.graphs[g].nodes.filter((x) => x.op).length, "op")))));
  (node.findings || []).forEach((i) => parts.push(finding(data.findings[i])));
  if (!node.kind && (node.why || node.on)) parts.push(placed(node));
  if (!node.kind) parts.push(...measures(node));
  if (node.in && node.in.length) parts.push(el("h2", {}, "Inputs"), values(node.in));
  if (node.out && node.out.length && node.kind !== "output") parts.push(el("h2", {}, node.kind ? "Type" : "Outputs"), values(node.out.map(([name, ty]) => ["", name, ty]), node.name));
  if (node.attributes) parts.push(el("h2", {}, "Attributes"), el("dl", {}, ...node.attributes.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])));
  const { below } = node;
  if (below && below.length) {
    const nodes = data.graphs[current].nodes;
    parts.push(el("h2", {}, "Read by"), ...below.slice(0, 40).map((i) => row(() => go([current, i], true), nodes[i].op || nodes[i].kind, " ", el("code", {}, nodes[i].name))),
      below.length > 40 && el("p", { className: "faint" }, `and ${count(below.length - 40)} more`));
  }
  $("details").replaceChildren(...parts.filter(Boolean));
  $("details").scrollTop = 0;
}

function finding(f) {
  const about = data.codes[f.code];
  return el("div", { className: "card " + f.severity }, el("p", {}, el("span", { className: "tag " + f.severity }, `${f.severity} ${f.code}`), about ? " " + about.title : ""),
    el("p", {}, prose(f.message)), el("small", {}, prose(f.effect)), f.overruled && el("small", {}, "The profile overrules this: ", prose(f.overruled)),
    f.rewrite && el("p", {}, "Instead: ", prose(f.rewrite)), f.fix && el("small", {}, `ferrane check --fix changes it: ${f.fix}`),
    f.claims.length > 0 && el("small", {}, "Claims: " + f.claims.join(", ")),
    about && el("details", {}, el("summary", { className: "faint" }, "Explanation"), el("p", {}, prose(about.text))), address(f.code));
}

function placed(node) {
  const on = node.on === "engine" ? "engine" : node.on ? "cpu" : "unknown";
  const p = node.p === undefined ? "" : `, with probability ${node.p.toFixed(2)}`;
  const where = node.on ? `probably runs on the ${PROCESSORS[node.on]}` : "where it runs is not known";
  const alone = node.alone && node.alone !== node.on && `By itself it would run on the ${PROCESSORS[node.alone]}.`;
  return el("div", { className: "card on-" + on }, el("p", {}, where + p + (node.segment === undefined ? "" : ` (segment ${node.segment})`)),
    node.why && el("p", {}, "Why: ", prose(node.why[1])), alone && el("small", {}, alone),
    node.why && node.why[2].length > 0 && el("small", {}, "Evidence: " + node.why[2].join(", ")));
}

function measures(node) {
  const facts = [];
  if (node.us !== undefined) facts.push(["predicted time", time(node.us) + (node.bound ? `, bound by ${node.bound}` : "")]);
  if (node.flops) facts.push(["arithmetic", (node.flops / 1e6).toFixed(node.flops < 1e7 ? 2 : 0) + " MFLOP"]);
  if (node.bytes) facts.push(["memory", `weights ${size(node.bytes[0])}, read ${size(node.bytes[1])}, written ${size(node.bytes[2])}`]);
  if (node.ulps !== undefined) facts.push(["error", ulpsText(node.ulps)]);
  return facts.length ? [el("h2", {}, "Measures"), el("dl", {}, ...facts.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]))] : [];
}

function values(all, own) {
  const { makers } = data.graphs[current];
  const cell = ([, name, , known]) => {
    if (name === null) return el("code", {}, known);
    const maker = name === own ? undefined : makers.get(name);
    const shown = el("code", {}, name);
    return [maker === undefined ? shown : link(shown, () => go([current, maker], true)), known !== undefined && el("div", { className: "faint" }, "= " + known)];
  };
  return el("table", { className: "values" }, ...all.map((v) =>
    el("tr", {}, v[0] !== "" && el("td", {}, v[0]), el("td", {}, cell(v)), el("td", { className: "n" }, data.types[v[2]]))));
}

// ---- legend, search, keys

function legend() {
  const palette = PALETTES[theme];
  const chosen = kinds[mode];
  const swatch = ([fill, line], text) => {
    const mark = el("i");
    [mark.style.background, mark.style.borderColor] = [fill, line];
    return el("div", {}, mark, text);
  };
  let parts = [];
  if (mode === "unit") {
    const there = new Set(data.graphs.flatMap((g) => g.nodes.filter((n) => n.op).map((n) => n.on || "unknown")));
    parts = Object.keys(PROCESSORS).filter((p) => there.has(p)).map((p) => swatch(palette[p], PROCESSORS[p]));
    if (data.placements.some((p) => p.transfers.length)) {
      const line = el("i");
      Object.assign(line.style, { background: palette.crossing, borderColor: palette.crossing, height: "2px", borderRadius: "0", borderWidth: "0" });
      parts.push(el("div", {}, line, "from one to another"));
    }
  } else if (mode === "finding") {
    parts = [...SEVERITIES.map((s) => swatch(palette[s], s)), swatch(palette.plain, "none")];
  } else {
    const ramp = el("i", { className: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${palette[mode].join()})`;
    const [low, high] = mode === "cost" ? [time(chosen.most / 1e4), time(chosen.most)] : ["one rounding", ulpsText(chosen.most)];
    parts = [ramp, el("div", { className: "ends" }, el("span", {}, low), el("span", {}, high))];
  }
  $("legend").replaceChildren(...parts);
}

let found = null;
let matches = [];
let match = -1;

function search() {
  const text = $("search").value.trim().toLowerCase();
  [found, matches, match] = [null, [], -1];
  const results = $("results");
  results.hidden = !text;
  if (text) {
    found = new Map(data.graphs.map((_, g) => [g, new Set()]));
    data.graphs.forEach((graph, g) => graph.nodes.forEach((node, n) => {
      if (!matching(node, text)) return;
      found.get(g).add(n);
      matches.push([g, n]);
    }));
    // Ops of that very name come first.
    const [exact, rest] = [true, false].map((is) => matches.filter(([g, n]) => (data.graphs[g].nodes[n].op === text) === is));
    matches = [...exact, ...rest];
    const shown = matches.slice(0, 60).map(([g, n]) => {
      const node = data.graphs[g].nodes[n];
      return row(() => go([g, n], true), node.op || node.kind, " ", el("code", {}, node.name), data.graphs.length > 1 && el("small", {}, data.graphs[g].name));
    });
    results.replaceChildren(el("p", {}, several(matches.length, "match").replace(/matchs$/, "matches")), ...shown);
  }
  paint();
}

function matching(node, text) {
  const has = (s) => s !== undefined && s !== null && s.toLowerCase().includes(text);
  return has(node.op) || has(node.name) || has(node.origin) || (node.out || []).some(([name]) => has(name)) || (node.in || []).some(([, name, , known]) => known !== undefined && has(name)) ||
    (node.findings || []).some((i) => has(data.findings[i].code));
}

function step(by) {
  if (!matches.length) return;
  $("results").hidden = true;
  match = (match + by + matches.length) % matches.length;
  go(matches[match], true);
}

// The next or previous node that the mode finds important.
function problem(by) {
  const { nodes } = data.graphs[current];
  const bad = nodes.map((node, n) => n).filter((n) => nodes[n].severity === "error" || nodes[n].severity === "warning" || (nodes[n].op && nodes[n].why));
  if (!bad.length) return;
  const at = bad.indexOf(view.chosen);
  const next = at >= 0 ? at + by : by > 0 ? bad.findIndex((n) => n > view.chosen) : bad.length - 1;
  go([current, bad[(Math.max(next, at >= 0 ? next : 0) + bad.length) % bad.length]], true);
}

function neighbor(key) {
  const node = data.graphs[current].nodes[view.chosen];
  const to = node && (key === "above" ? node.above : node.below);
  if (to && to.length) go([current, to[0]], true);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) {
    if (event.target === $("search") && event.key === "Enter") step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      $("search").value = "";
      search();
      $("canvas").focus();
    }
    return;
  }
  const far = 90;
  const acts = {
    "+": () => view.zoom(1.3), "=": () => view.zoom(1.3), "-": () => view.zoom(1 / 1.3), 0: () => view.fit(),
    ArrowUp: () => (event.shiftKey ? neighbor("above") : view.move(0, far)), ArrowDown: () => (event.shiftKey ? neighbor("below") : view.move(0, -far)),
    ArrowLeft: () => view.move(far, 0), ArrowRight: () => view.move(-far, 0),
    PageUp: () => view.move(0, view.height * 0.8), PageDown: () => view.move(0, -view.height * 0.8),
    n: () => problem(1), p: () => problem(-1), "/": () => $("search").focus(), Escape: () => go([current, -1]),
  };
  const scrolls = event.target.closest("aside") && /^(Arrow|Page)/.test(event.key);
  if (!acts[event.key] || scrolls) return;
  event.preventDefault();
  acts[event.key]();
}

function start() {
  $("title").textContent = data.title.split(/[\\/]/).filter(Boolean).pop() || data.title;
  $("title").title = data.title;
  $("machine").textContent = data.summary.machine || "";
  $("graph-choice").append(...data.graphs.map((g, i) => el("option", { value: i }, (g.parent ? "  ".repeat(depth(g)) + g.name : g.name))));
  $("graph-control").hidden = data.graphs.length < 2;
  $("mode").append(...Object.entries(kinds).filter(([, m]) => m.has).map(([key, m]) => el("option", { value: key }, m.label)));
  $("mode").value = mode;
  $("mode").onchange = () => {
    mode = $("mode").value;
    paint();
  };
  $("graph-choice").onchange = () => show(+$("graph-choice").value);
  $("in").onclick = () => view.zoom(1.3);
  $("out").onclick = () => view.zoom(1 / 1.3);
  $("fit").onclick = () => view.fit();
  $("theme").onclick = () => {
    theme = theme === "dark" ? "light" : "dark";
    paint();
    overview();
  };
  $("search").oninput = search;
  $("search").onfocus = () => ($("results").hidden = !$("search").value);
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".search")) $("results").hidden = true;
  });
  document.addEventListener("keydown", pressed);
  overview();
  if (data.graphs.length) show(0);
}

function depth(graph) {
  let n = 0;
  for (let at = graph.parent; at; at = data.graphs[at[0]].parent) n += 1;
  return n;
}

start();
