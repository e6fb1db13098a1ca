// The page of measurements: plots with a shape and a color for each source, and tables.

const PAGE = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 14, top: 12, bottom: 40 };
// Lines of labels above a plot.
const LINE = 14;
const HEIGHT = 290;
const COLORS = 6;
const NEAR = 36;

const byId = (id) => document.getElementById(id);
const color = (source) => source % COLORS;
const letter = (source) => String.fromCharCode(65 + (source % 26)) + (source < 26 ? "" : Math.floor(source / 26));

function html(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// A number with about three digits; whole numbers have all of theirs.
function short(x) {
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e6) return String(x);
  if (size >= 1e6 || (size !== 0 && size < 1e-3)) return x.toExponential(1);
  return String(+x.toPrecision(3));
}

// The smallest and the largest number: the arguments of a call are limited, so not by spreading.
function ends(numbers) {
  return numbers.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
}

// Round numbers between two ends, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough);
  const all = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9 && all.length < 50; i++) all.push(i * step);
  return all;
}

// 1, 2 and 5 of each decade, or its 1 only if there are many.
function decades(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = to - from > 3 ? [1] : [1, 2, 5];
  const all = [];
  for (let power = from; power <= to && all.length < 200; power++) {
    all.push(...factors.map((x) => x * 10 ** power).filter((x) => x >= low * 0.999 && x <= high * 1.001));
  }
  return all;
}

// The outline of a source's shape around a place.
function outline(source, x, y, r) {
  const corners = (all) => `${all.map(([a, b], i) => `${i ? "L" : "M"}${(x + a * r).toFixed(1)} ${(y + b * r).toFixed(1)}`).join("")}Z`;
  switch (source % 6) {
    case 0: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1: return corners([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
    case 2: return corners([[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]);
    case 3: return corners([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    case 4: return corners([[0, 1.2], [1.1, -0.8], [-1.1, -0.8]]);
    default: return corners([[-0.4, -1.1], [0.4, -1.1], [1.1, -0.4], [1.1, 0.4], [0.4, 1.1], [-0.4, 1.1], [-1.1, 0.4], [-1.1, -0.4]]);
  }
}

// A mark: filled if it was measured, hollow if predicted, a cross if published.
function shape(kind, source, x, y, r = 4) {
  if (kind === "published") {
    return svg("path", { class: "published", d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
  }
  // A prediction that is right is a ring around what was measured.
  const [fill, size] = kind === "measured" ? [`f${color(source)}`, r] : ["predicted", r + 2.2];
  return svg("path", { class: `shape c${color(source)} ${fill}`, d: outline(source, x, y, size) });
}

// Lines that the labels of vertical lines take.
function plotMarks(plot) {
  return Math.min(plot.marks.length, 6);
}

class PlotView {
  constructor(plot) {
    this.plot = plot;
    this.chosen = null;
    this.bars = plot.groups.length > 0;
    this.picture = svg("svg", { role: "img", tabindex: 0, "aria-label": `${plot.title}. ${plot.caption}` });
    this.readout = html("output", {});
    this.figure = html("figure", {},
      html("figcaption", {}, html("b", { textContent: plot.title }), html("span", { textContent: plot.caption })),
      this.picture, this.readout);
    this.listen();
  }

  get width() {
    return Math.max(this.picture.clientWidth, 240);
  }

  draw() {
    this.marks = [];
    this.parts = [];
    this.top = MARGIN.top + LINE * plotMarks(this.plot);
    this.height = HEIGHT + this.top - MARGIN.top;
    if (this.bars) this.drawBars();
    else this.drawAxes();
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.picture.setAttribute("height", this.height);
    this.picture.replaceChildren(...this.parts);
    this.ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
    this.picture.append(this.ring);
    this.choose(this.chosen);
  }

  // The two scales, from values to places.
  scales() {
    const { x, y, series, marks } = this.plot;
    const points = series.flatMap((s) => s.points);
    const measured = points.flatMap((p) => [p.y, ...(p.spread ?? [])]);
    let [left, right] = ends([...points.map((p) => p.x), ...marks.map((m) => m.x)]);
    // A line may leave the picture: it does not stretch it.
    const shown = series.filter((s) => s.kind !== "line").flatMap((s) => s.points);
    let [low, high] = ends(shown.length ? shown.flatMap((p) => [p.y, ...this.near(p, measured)]) : measured);
    if (!(left <= right)) [left, right, low, high] = [1, 2, 1, 2];
    const pad = (log, a, b, share) => {
      if (log) return [a / (b / a || 1) ** share / (a === b ? 1.5 : 1), b * (b / a || 1) ** share * (a === b ? 1.5 : 1)];
      const room = (b - a) * share || Math.abs(a) / 2 || 1;
      return [a - room, b + room];
    };
    [left, right] = pad(x.log, left, right, 0.04);
    [low, high] = y.log ? pad(true, low, high, 0.08) : [0, high * 1.08 || 1];
    const scale = (log, a, b, from, to) => {
      const f = log ? Math.log10 : (v) => v;
      return (v) => from + ((f(v) - f(a)) / (f(b) - f(a) || 1)) * (to - from);
    };
    this.toX = scale(x.log, left, right, MARGIN.left, this.width - MARGIN.right);
    this.toY = scale(y.log, low, high, this.height - MARGIN.bottom, this.top);
    return { left, right, low, high };
  }

  // The ends of a spread that are near its point: one slow evaluation must not flatten the others.
  near(point) {
    return (point.spread ?? []).filter((end) => end <= point.y * 1.6 && end >= point.y / 1.6);
  }

  grid({ left, right, low, high }) {
    const { x, y } = this.plot;
    const bottom = this.height - MARGIN.bottom;
    for (const value of y.log ? decades(low, high) : ticks(low, high, 5)) {
      const at = this.toY(value);
      this.parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: at, y2: at }));
      this.parts.push(svg("text", { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, short(value)));
    }
    // Few different places are the best ticks.
    let places = [...new Set(this.plot.series.filter((s) => s.kind !== "line").flatMap((s) => s.points.map((p) => p.x)))].sort((a, b) => a - b);
    if (places.length > 16) places = x.log ? decades(left, right) : ticks(left, right, this.width / 90);
    let free = -Infinity;
    for (const value of places) {
      const text = short(value);
      const [at, half] = [this.toX(value), text.length * 3.4];
      this.parts.push(svg("line", { class: "axis", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
      if (at - half < free) continue;
      free = at + half + 5;
      this.parts.push(svg("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, text));
    }
    this.parts.push(svg("line", { class: "axis", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: bottom, y2: bottom }));
    this.parts.push(svg("text", { x: (MARGIN.left + this.width - MARGIN.right) / 2, y: this.height - 6, "text-anchor": "middle" }, x.label));
    this.parts.push(svg("text", { x: 12, y: (this.top + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(this.top + bottom) / 2})` }, y.label));
  }

  drawAxes() {
    this.grid(this.scales());
    const bottom = this.height - MARGIN.bottom;
    const inside = (y) => Math.min(Math.max(y, this.top), bottom);
    this.plot.marks.forEach((mark, i) => {
      const x = this.toX(mark.x);
      this.parts.push(svg("line", { class: `mark c${color(mark.source)}`, x1: x, x2: x, y1: LINE * (i % 6) + 2, y2: bottom }));
      const end = x > this.width / 2;
      this.parts.push(svg("text", { class: "note halo", x: x + (end ? -4 : 4), y: 12 + LINE * (i % 6), "text-anchor": end ? "end" : "start" }, mark.label));
    });
    for (const series of this.plot.series) {
      const places = series.points.map((p) => [this.toX(p.x), this.toY(p.y)]);
      if (series.joined && places.length > 1) {
        const d = places.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${inside(y).toFixed(1)}`).join("");
        this.parts.push(svg("path", { class: `join ${series.kind} c${color(series.source)}`, d }));
      }
    }
    // Crosses first: what was measured here lies above them, with rings of predictions around it.
    this.labels = [];
    const order = ["line", "published", "measured", "predicted"];
    for (const series of [...this.plot.series].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind))) {
      if (series.kind === "line") continue;
      for (const point of series.points) this.drawPoint(series, point, this.toX(point.x), this.toY(point.y), inside);
    }
    for (const { point, x, y } of [...this.marks]) {
      if (point.label) this.label(point.label, x, y);
    }
  }

  drawPoint(series, point, x, y, inside) {
    if (point.spread) {
      const [low, high] = point.spread.map((v) => inside(this.toY(v)));
      this.parts.push(svg("line", { class: `spread c${color(series.source)}`, x1: x, x2: x, y1: low, y2: high }));
    }
    this.parts.push(shape(series.kind, series.source, x, y));
    if (point.wrong) this.parts.push(svg("path", { class: "wrong", d: `M${x - 8} ${y - 8}h16v16h-16Z` }));
    this.marks.push({ x, y, point, series });
  }

  // A word next to a place, where no other word and no mark is if there is room.
  label(text, x, y) {
    const width = text.length * 6.4;
    const middle = Math.min(x - width / 2, this.width - width - 2);
    const places = [[x + 11, y + 4], [x - 11 - width, y + 4], [middle, y - 12], [middle, y + 20], [middle, y + 34]];
    const free = ([left, top]) => left >= MARGIN.left && left + width <= this.width && top < this.height - MARGIN.bottom &&
      this.labels.every(([a, b, w]) => left + width < a || left > a + w || Math.abs(top - b) > 12);
    const empty = ([left, top]) => this.marks.every((m) => m.x < left - 5 || m.x > left + width + 5 || m.y < top - 15 || m.y > top + 6);
    const [left, top] = places.find((place) => free(place) && empty(place)) ?? places.find(free) ?? places[1];
    this.labels.push([left, top, width]);
    this.parts.push(svg("text", { class: "note halo", x: left, y: top }, text));
  }

  // Horizontal bars, with predicted and published values as marks in their rows.
  drawBars() {
    const { groups, series, y } = this.plot;
    const several = new Set(series.map((s) => s.source)).size > 1;
    const [left, right] = [several ? 16 : 2, this.width - 72];
    const most = ends(series.flatMap((s) => s.points.map((p) => p.y)))[1];
    const toX = (v) => left + (v / (most || 1)) * (right - left);
    let top = 4;
    groups.forEach((group, i) => {
      this.parts.push(svg("text", { class: "note", x: 2, y: top + 11 }, group));
      top += 16;
      const sources = [...new Set(series.filter((s) => s.points.some((p) => p.x === i)).map((s) => s.source))].sort((a, b) => a - b);
      for (const source of sources) {
        const of = (kind) => series.filter((s) => s.source === source && s.kind === kind).flatMap((s) => s.points.filter((p) => p.x === i).map((point) => ({ series: s, point })));
        if (several) this.parts.push(svg("text", { x: 2, y: top + 10 }, letter(source)));
        this.parts.push(svg("line", { class: "grid", x1: left, x2: right, y1: top + 6, y2: top + 6 }));
        for (const { series: s, point } of of("measured")) {
          this.parts.push(svg("rect", { class: `bar f${color(source)}`, x: left, y: top + 1, width: Math.max(toX(point.y) - left, 1), height: 11 }));
          if (point.wrong) this.parts.push(svg("rect", { class: "wrong", x: left, y: top, width: Math.max(toX(point.y) - left, 1), height: 13 }));
          this.parts.push(svg("text", { x: this.width - 2, y: top + 10, "text-anchor": "end" }, `${short(point.y)} ${y.label}`));
          this.marks.push({ x: toX(point.y), y: top + 6, point, series: s });
        }
        for (const kind of ["published", "predicted"]) {
          for (const { series: s, point } of of(kind)) {
            this.parts.push(shape(kind, source, toX(point.y), top + 6.5));
            this.marks.push({ x: toX(point.y), y: top + 6.5, point, series: s });
          }
        }
        top += 16;
      }
      top += 4;
    });
    this.height = Math.max(top, 40);
  }

  choose(mark) {
    // The marks are made again by each drawing: a point stays the same.
    const found = mark && this.marks.find((m) => m.point === mark.point);
    this.chosen = found ?? null;
    this.ring.setAttribute("visibility", found ? "visible" : "hidden");
    if (!found) {
      this.readout.textContent = "";
      return;
    }
    this.ring.setAttribute("cx", found.x);
    this.ring.setAttribute("cy", found.y);
    const from = PAGE.sources.length > 1 ? `${letter(found.series.source)}, ` : "";
    const kind = found.series.kind === "published" ? "published" : `${from}${found.series.kind}`;
    this.readout.replaceChildren(html("b", { textContent: `${kind}: ` }), found.point.text);
  }

  listen() {
    const at = (event) => {
      const box = this.picture.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const far = (m) => Math.hypot(m.x - x, m.y - y);
      const nearest = this.marks.reduce((best, m) => (!best || far(m) < far(best) ? m : best), null);
      this.choose(nearest && far(nearest) <= NEAR ? nearest : null);
    };
    this.picture.addEventListener("pointermove", at);
    this.picture.addEventListener("pointerdown", at);
    this.picture.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") this.choose(null);
    });
    this.picture.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !this.marks.length) return;
      event.preventDefault();
      const all = [...this.marks].sort((a, b) => (this.bars ? a.y - b.y || a.x - b.x : a.x - b.x || a.y - b.y));
      const now = this.chosen ? all.findIndex((m) => m.point === this.chosen.point) : step > 0 ? -1 : 0;
      this.choose(all[(now + step + all.length) % all.length]);
    });
  }
}

const views = PAGE.plots.map((plot) => new PlotView(plot));

let waiting = false;
function drawAll() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    views.forEach((view) => view.draw());
  });
}

function sample(...parts) {
  const picture = svg("svg", { viewBox: "0 0 22 14", "aria-hidden": "true" });
  picture.append(...parts);
  return picture;
}

// Each source with its shape; then what filled, hollow and crossed marks are.
function legend() {
  const several = PAGE.sources.length > 1;
  const entry = (picture, text) => byId("legend").append(html("li", {}, picture, text));
  if (several) {
    PAGE.sources.forEach((name, i) => entry(sample(shape("measured", i, 11, 7)), `${letter(i)}: ${name}`));
  }
  const kinds = new Set(PAGE.plots.flatMap((plot) => plot.series.map((s) => s.kind)));
  if (kinds.has("measured")) {
    entry(sample(svg("path", { class: "join c0", d: "M0 7H22" }), shape("measured", 0, 11, 7)), several ? "filled: measured" : "measured");
  }
  if (kinds.has("predicted")) {
    entry(sample(svg("path", { class: "join predicted c0", d: "M0 7H22" }), shape("predicted", 0, 11, 7)), several ? "hollow: predicted" : "predicted");
  }
  if (kinds.has("published")) entry(sample(shape("published", 0, 11, 7)), "published");
  if (PAGE.plots.some((plot) => plot.series.some((s) => s.points.some((p) => p.wrong)))) {
    entry(sample(svg("path", { class: "wrong", d: "M4 1h14v12h-14Z" })), "wrong result");
  }
}

function facts() {
  for (const { title, rows } of PAGE.facts) {
    const lines = rows.map(([name, value]) =>
      html("tr", {}, html("th", { scope: "row", textContent: name }), html("td", { textContent: value })));
    byId("facts").append(html("div", {}, html("h2", { textContent: title }), html("table", {}, html("tbody", {}, ...lines))));
  }
  byId("facts").hidden = !PAGE.facts.length;
}

function tables() {
  for (const { title, caption, columns, numbers, rows, notes } of PAGE.tables) {
    const cell = (value, i) => {
      const { text, more, wrong } = typeof value === "string" ? { text: value } : value;
      const node = html("td", { textContent: text, className: `${i >= numbers && i < columns.length - 1 ? "number" : ""}${wrong ? " bad" : ""}` });
      if (more) node.title = more;
      return node;
    };
    const head = html("tr", {}, ...columns.map((name, i) =>
      html("th", { scope: "col", textContent: name, className: i >= numbers && i < columns.length - 1 ? "number" : "" })));
    const body = rows.map((row) => html("tr", {}, ...row.map(cell)));
    const node = html("details", { open: true }, html("summary", {}, html("b", { textContent: title }), caption));
    if (rows.length) node.append(html("div", { className: "wide" }, html("table", {}, html("thead", {}, head), html("tbody", {}, ...body))));
    if (notes.length) {
      const list = html("ul", { className: "notes" }, ...notes.map((note) => html("li", { textContent: note })));
      node.append(notes.length > 6 ? html("details", {}, html("summary", { textContent: `${notes.length} notes` }), list) : list);
    }
    byId("tables").append(node);
  }
}

function begin() {
  byId("title").textContent = PAGE.title;
  byId("subtitle").textContent = PAGE.subtitle;
  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  byId("theme").addEventListener("click", () => document.documentElement.classList.toggle("dark"));
  byId("warnings").append(...PAGE.warnings.map((text) => html("p", { textContent: text })));
  byId("warnings").hidden = !PAGE.warnings.length;
  byId("hint").hidden = !views.length;
  byId("plots").append(...views.map((view) => view.figure));
  addEventListener("resize", drawAll);
  legend();
  facts();
  tables();
  drawAll();
}

begin();
