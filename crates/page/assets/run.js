// The page of a training run: curves over updates, samples, times and facts.

const RUN = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 58, right: 8, top: 8, bottom: 22 };
const HEIGHT = 220;

const byId = (id) => document.getElementById(id);
const every = RUN.curves.flatMap((curve) => curve.points.map((point) => point[0]));
const WHOLE = every.length ? ends(every) : [0, 1];
let shown = WHOLE;
let cursor = null;

// The smallest and the largest number: the arguments of a call are limited, so not by spreading.
function ends(numbers) {
  return numbers.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
}

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

// A number with about four digits, and with a prefix if it is large.
function short(x) {
  const size = Math.abs(x);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${+(x / (name === "k" ? 1e3 : unit)).toPrecision(4)} ${name}`;
  }
  if (size !== 0 && size < 1e-3) return x.toExponential(2);
  return String(+x.toPrecision(4));
}

// Round numbers between two ends, about `count` of them.
function ticks([low, high], count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough);
  const all = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) all.push(i * step);
  return all;
}

class Panel {
  constructor(title, curves) {
    this.curves = curves;
    this.logarithmic = false;
    this.caption = html("figcaption", {}, html("b", { textContent: title }));
    this.values = curves.map((curve, i) => html("span", { className: `t${i % 3}` }));
    this.caption.append(...this.values);
    this.picture = svg("svg", { role: "img", "aria-label": `${title} over updates` });
    this.figure = html("figure", {}, this.caption, this.picture);
    this.listen();
  }

  get width() {
    return Math.max(this.picture.clientWidth, 200);
  }

  // From an update to a place, and back.
  x(step) {
    return MARGIN.left + ((step - shown[0]) / (shown[1] - shown[0] || 1)) * (this.width - MARGIN.left - MARGIN.right);
  }

  step(x) {
    const share = (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    return shown[0] + Math.min(Math.max(share, 0), 1) * (shown[1] - shown[0]);
  }

  draw() {
    const scale = this.logarithmic ? Math.log10 : (y) => y;
    const visible = this.curves.map((curve) =>
      curve.points.filter(([step, y]) => step >= shown[0] && step <= shown[1] && (!this.logarithmic || y > 0)));
    let [low, high] = ends(visible.flat().map((point) => scale(point[1])));
    if (!(low <= high)) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
    const pad = (high - low) * 0.05;
    [low, high] = [low - pad, high + pad];
    const y = (value) => MARGIN.top + ((high - scale(value)) / (high - low)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const parts = [];
    for (const tick of ticks([low, high], 5)) {
      const value = this.logarithmic ? 10 ** tick : tick;
      parts.push(svg("line", { class: "grid", x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y(value), y2: y(value) }));
      parts.push(svg("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const tick of ticks(shown, Math.max(2, this.width / 110)).filter(Number.isInteger)) {
      parts.push(svg("text", { x: this.x(tick), y: HEIGHT - 5, "text-anchor": "middle" }, short(tick)));
    }
    visible.forEach((points, i) => {
      const path = points.map(([step, value], at) => `${at ? "L" : "M"}${this.x(step).toFixed(1)} ${y(value).toFixed(1)}`);
      parts.push(svg("path", { class: `line c${i % 3}`, d: path.join("") }));
      // A curve of few points is seen by its points.
      if (points.length <= 40) {
        parts.push(...points.map(([step, value]) => svg("circle", { class: `d${i % 3}`, cx: this.x(step), cy: y(value), r: 2.5 })));
      }
    });
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.picture.replaceChildren(...parts);
    this.overlay = svg("g", {});
    this.picture.append(this.overlay);
    this.point(visible, y);
  }

  // The values at the cursor, or the last ones.
  point(visible, y) {
    this.curves.forEach((curve, i) => {
      const points = visible[i];
      let best = points.at(-1);
      if (cursor !== null) {
        for (const point of points) if (Math.abs(point[0] - cursor) < Math.abs(best[0] - cursor)) best = point;
      }
      const at = best ? `${short(best[1])}${curve.unit ? ` ${curve.unit}` : ""}` : "none";
      this.values[i].textContent = `${curve.name ? `${curve.name} ` : ""}${at}`;
      if (best && cursor !== null) {
        this.overlay.append(svg("circle", { class: `d${i % 3}`, cx: this.x(best[0]), cy: y(best[1]), r: 4 }));
      }
    });
    if (cursor !== null) {
      const x = this.x(cursor);
      this.overlay.prepend(svg("line", { class: "cross", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
      const anchor = x > this.width - 120 ? "end" : "start";
      this.overlay.append(svg("text", { x: x + (anchor === "end" ? -6 : 6), y: 18, "text-anchor": anchor }, `update ${Math.round(cursor)}`));
    }
    if (this.from !== undefined && cursor !== null) {
      const [a, b] = [this.x(this.from), this.x(cursor)].sort((a, b) => a - b);
      this.overlay.prepend(svg("rect", { class: "chosen", x: a, width: b - a, y: MARGIN.top, height: HEIGHT - MARGIN.top - MARGIN.bottom }));
    }
  }

  listen() {
    const at = (event) => this.step(event.clientX - this.picture.getBoundingClientRect().left);
    this.picture.addEventListener("pointermove", (event) => {
      cursor = at(event);
      drawAll();
    });
    this.picture.addEventListener("pointerleave", () => {
      if (this.from === undefined) {
        cursor = null;
        drawAll();
      }
    });
    this.picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.from = at(event);
      this.picture.setPointerCapture(event.pointerId);
    });
    this.picture.addEventListener("pointerup", (event) => {
      const [from, to] = [this.from, at(event)];
      this.from = undefined;
      if (from === undefined) return;
      const [low, high] = from < to ? [from, to] : [to, from];
      // A click is no range.
      if (this.x(high) - this.x(low) >= 6) show([low, high]);
      else drawAll();
    });
    this.picture.addEventListener("pointercancel", () => (this.from = undefined));
    this.picture.addEventListener("dblclick", () => show(WHOLE));
  }
}

const titles = [...new Set(RUN.curves.map((curve) => curve.panel))];
const panels = titles.map((title) => new Panel(title, RUN.curves.filter((curve) => curve.panel === title)));

let waiting = false;
function drawAll() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    panels.forEach((panel) => panel.draw());
  });
}

function show(range) {
  shown = range;
  byId("all").disabled = shown === WHOLE;
  drawAll();
}

function table(rows) {
  return html("table", {}, html("tbody", {}, ...rows));
}

function facts() {
  for (const { title, rows } of RUN.facts) {
    const lines = rows.map(([name, value]) =>
      html("tr", {}, html("th", { scope: "row", textContent: name }), html("td", { textContent: value })));
    byId("facts").append(html("div", {}, html("h2", { textContent: title }), table(lines)));
  }
  if (RUN.times.length) {
    const most = Math.max(...RUN.times.map((part) => part.ms));
    const lines = RUN.times.map(({ name, ms }) =>
      html("tr", {}, html("th", { scope: "row", textContent: name }),
        html("td", {}, html("progress", { max: most || 1, value: ms })), html("td", { textContent: `${short(ms)} ms` })));
    byId("times").append(table(lines));
    byId("times").hidden = false;
  }
  if (RUN.log.length) {
    const lines = RUN.log.map(({ step, kind, text }) =>
      html("tr", { className: kind }, html("td", { textContent: step }), html("td", { textContent: text })));
    byId("log").append(table(lines));
    byId("log").hidden = false;
  }
}

function samples() {
  if (!RUN.samples.length) return;
  const slider = byId("sample");
  const choose = (at) => {
    slider.value = Math.min(Math.max(at, 0), RUN.samples.length - 1);
    const { step, text } = RUN.samples[+slider.value];
    byId("sample-step").textContent = `after update ${step} (${+slider.value + 1} of ${RUN.samples.length})`;
    byId("text").textContent = text;
    byId("earlier").disabled = +slider.value === 0;
    byId("later").disabled = +slider.value === RUN.samples.length - 1;
  };
  slider.max = RUN.samples.length - 1;
  slider.addEventListener("input", () => choose(+slider.value));
  byId("earlier").addEventListener("click", () => choose(+slider.value - 1));
  byId("later").addEventListener("click", () => choose(+slider.value + 1));
  choose(RUN.samples.length - 1);
  byId("samples").hidden = false;
}

function begin() {
  byId("title").textContent = RUN.title;
  byId("subtitle").textContent = RUN.subtitle;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.classList.toggle("dark", dark.matches);
  byId("theme").addEventListener("click", () => document.documentElement.classList.toggle("dark"));
  byId("all").addEventListener("click", () => show(WHOLE));
  byId("logarithmic").addEventListener("change", (event) => {
    panels.filter((panel) => panel.curves.some((curve) => curve.loss)).forEach((panel) => (panel.logarithmic = event.target.checked));
    drawAll();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(WHOLE);
  });
  addEventListener("resize", drawAll);
  byId("curves").append(...panels.map((panel) => panel.figure));
  byId("hint").hidden = !panels.length;
  samples();
  facts();
  drawAll();
}

begin();
