// The drawing of a graph on a canvas: what is visible is drawn again for each frame that needs it.

const NODE = { height: 40, pitch: 76, radius: 7 };
const STRIP = { width: 40, gap: 10 };
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

// The lines of a graph by the layer that they leave, and the nodes and points of each layer.
function indexed(graph) {
  if (graph.rows) return graph;
  const rows = Array.from({ length: graph.layers }, () => ({ nodes: [], lines: [], points: [] }));
  graph.nodes.forEach((node, i) => {
    [node.x, node.layer] = node.at;
    node.y = node.layer * NODE.pitch;
    node.above = [];
    node.below = [];
    rows[node.layer].nodes.push(i);
  });
  for (const [n, track] of Object.entries(graph.tracks)) {
    const node = graph.nodes[n];
    let from = node.x;
    track.forEach((x, i) => {
      rows[node.layer + i].lines.push([from, x, +n, -1]);
      rows[node.layer + i + 1].points.push([x, +n]);
      from = x;
    });
  }
  const far = new Set(graph.far.map((edge) => edge.join()));
  for (const [from, to] of graph.edges) {
    const [a, b] = [graph.nodes[from], graph.nodes[to]];
    a.below.push(to);
    b.above.push(from);
    if (far.has(from + "," + to)) continue;
    const span = b.layer - a.layer;
    const x = span === 1 ? a.x : graph.tracks[from][span - 2];
    rows[b.layer - 1].lines.push([x, b.x, from, to]);
  }
  graph.rows = rows;
  graph.height = Math.max(graph.layers - 1, 0) * NODE.pitch + NODE.height;
  return graph;
}

class GraphView {
  // `events` has the functions chosen(index or -1) and entered(index).
  constructor(canvas, events) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.events = events;
    this.chosen = -1;
    this.over = -1;
    this.found = null;
    this.scale = 1;
    [this.left, this.top] = [0, 0];
    new ResizeObserver(() => this.resized()).observe(canvas);
    this.listen();
  }

  resized() {
    const ratio = window.devicePixelRatio || 1;
    const box = this.canvas.getBoundingClientRect();
    const first = !this.width;
    // What is in the middle stays there, as when the details open.
    if (!first) this.left += (this.width - box.width) / 2 / this.scale;
    [this.width, this.height, this.ratio] = [box.width, box.height, ratio];
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    if (first && this.graph) this.home();
    this.redraw();
  }

  show(graph, mode, palette) {
    const other = graph !== this.graph;
    [this.graph, this.mode, this.palette] = [indexed(graph), mode, palette];
    this.strip = null;
    this.styles = graph.nodes.map((node) => mode.style(node, palette));
    // What stands out is drawn larger where nodes are tiny, unless most of the network stands out.
    const odd = graph.nodes.map((_, i) => i).filter((i) => mode.most === undefined && mode.weight(graph.nodes[i]) >= 2);
    this.odd = new Set(odd.length < 0.3 * graph.nodes.length ? odd : []);
    if (other) {
      [this.chosen, this.over] = [-1, -1];
      if (this.width) this.home();
    }
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.graph && this.width) this.draw();
    });
  }

  // ---- the view

  fitScale() {
    const [w, h] = [this.width - 60, this.height - 60];
    return Math.min(w / Math.max(this.graph.width, 1), h / Math.max(this.graph.height, 1), 1.4);
  }

  fit() {
    this.scale = this.fitScale();
    this.left = this.graph.width / 2 - this.width / 2 / this.scale;
    this.top = (this.graph.height - NODE.height) / 2 - this.height / 2 / this.scale;
    this.redraw();
  }

  // The first view: everything where it can be read, otherwise the first problem.
  home() {
    if (this.fitScale() >= 0.42) return this.fit();
    let best = 0;
    const weight = (i) => this.mode.weight(this.graph.nodes[i]);
    this.graph.nodes.forEach((_, i) => {
      if (weight(i) > weight(best)) best = i;
    });
    this.scale = Math.min(0.85, Math.max(0.5, (this.width - 80) / Math.max(this.graph.width, 1)));
    this.center(best);
    // The beginning of the network stays visible if the problem is near it.
    this.top = Math.max(this.top, -60 / this.scale);
    this.redraw();
  }

  center(index) {
    const node = this.graph.nodes[index];
    if (!node) return;
    this.left = node.x - this.width / 2 / this.scale;
    this.top = node.y - this.height / 2 / this.scale;
    this.redraw();
  }

  // Shows a node, and moves only if it is out of sight or too small.
  reveal(index) {
    const node = this.graph.nodes[index];
    const [x, y] = [(node.x - this.left) * this.scale, (node.y - this.top) * this.scale];
    const inside = x > 80 && x < this.width - 80 && y > 60 && y < this.height - 60;
    if (this.scale < 0.5) this.scale = 0.9;
    else if (inside) return this.redraw();
    this.center(index);
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const least = Math.min(this.fitScale() * 0.6, 0.4);
    const scale = Math.min(4, Math.max(least, this.scale * factor));
    this.left += x / this.scale - x / scale;
    this.top += y / this.scale - y / scale;
    this.scale = scale;
    this.redraw();
  }

  move(dx, dy) {
    this.left -= dx / this.scale;
    this.top -= dy / this.scale;
    // Something of the network stays in sight.
    const margin = 60 / this.scale;
    this.left = Math.min(Math.max(this.left, -this.width / this.scale + margin), this.graph.width - margin);
    this.top = Math.min(Math.max(this.top, -this.height / this.scale + margin), this.graph.height - margin);
    this.redraw();
  }

  choose(index, reveal) {
    this.chosen = index;
    if (index >= 0 && reveal) this.reveal(index);
    this.redraw();
  }

  at(x, y) {
    const [gx, gy] = [this.left + x / this.scale, this.top + y / this.scale];
    const reach = Math.max(NODE.height / 2, 6 / this.scale);
    const layer = Math.round(gy / NODE.pitch);
    const row = this.graph.rows[layer];
    if (!row || Math.abs(gy - layer * NODE.pitch) > reach) return -1;
    const hit = row.nodes.find((i) => Math.abs(gx - this.graph.nodes[i].x) <= Math.max(this.graph.nodes[i].w / 2, 6 / this.scale));
    return hit === undefined ? -1 : hit;
  }

  // ---- drawing

  draw() {
    const { context: c, graph, scale } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    const bottom = this.top + this.height / scale;
    const first = Math.max(0, Math.floor(this.top / NODE.pitch) - 1);
    const last = Math.min(graph.layers - 1, Math.ceil(bottom / NODE.pitch) + 1);
    c.setTransform(this.ratio * scale, 0, 0, this.ratio * scale, -this.left * scale * this.ratio, -this.top * scale * this.ratio);
    const seen = [this.left - 200, this.left + this.width / scale + 200];
    const near = this.neighbors();
    this.drawLines(first, last, seen, near);
    this.drawNodes(first, last, seen, near);
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.drawStrip();
  }

  // The chosen node, or the one under the pointer, with what it reads and what reads it.
  neighbors() {
    const node = this.graph.nodes[this.chosen >= 0 ? this.chosen : this.over];
    if (!node) return null;
    const index = this.chosen >= 0 ? this.chosen : this.over;
    return { index, above: new Set(node.above), below: new Set(node.below) };
  }

  drawLines(first, last, [x0, x1], near) {
    const { context: c, graph, palette, scale } = this;
    const plain = new Path2D();
    const crossing = new Path2D();
    const strong = new Path2D();
    const half = NODE.height / 2;
    const straight = scale < 0.3;
    const lit = (from, to) => near && (to === near.index || (from === near.index && to >= 0));
    const units = this.mode.label === "processor";
    for (let layer = Math.max(0, first - 1); layer <= last; layer++) {
      const row = graph.rows[layer];
      const [top, bottom] = [layer * NODE.pitch + half, (layer + 1) * NODE.pitch - half];
      const middle = (top + bottom) / 2;
      for (const [xa, xb, from, to] of row.lines) {
        if (Math.max(xa, xb) < x0 || Math.min(xa, xb) > x1) continue;
        let path = plain;
        if (lit(from, to)) path = strong;
        else if (units && to >= 0 && this.crosses(from, to)) path = crossing;
        path.moveTo(xa, top);
        if (straight || xa === xb) path.lineTo(xb, bottom);
        else path.bezierCurveTo(xa, middle, xb, middle, xb, bottom);
      }
      for (const [x] of row.points) {
        if (x < x0 || x > x1) continue;
        plain.moveTo(x, layer * NODE.pitch - half);
        plain.lineTo(x, layer * NODE.pitch + half);
      }
    }
    const stroke = (path, color, width) => {
      [c.strokeStyle, c.lineWidth] = [color, width];
      c.stroke(path);
    };
    c.lineCap = "round";
    stroke(plain, palette.edge, Math.max(1.2, 0.6 / scale));
    stroke(crossing, palette.crossing, Math.max(1.8, 1 / scale));
    stroke(strong, palette.accent, Math.max(2.2, 1.4 / scale));
    if (near) this.drawNear(near, half);
  }

  crosses(from, to) {
    const [a, b] = [this.graph.nodes[from], this.graph.nodes[to]];
    return a.on && b.on && (a.on === "engine") !== (b.on === "engine");
  }

  // The whole way of the lines at the chosen node, also of those that are too long to be drawn.
  drawNear(near, half) {
    const { context: c, graph, palette, scale } = this;
    const way = (from, to) => {
      const [a, b] = [graph.nodes[from], graph.nodes[to]];
      const [span, track] = [b.layer - a.layer, graph.tracks[from] || []];
      c.beginPath();
      c.moveTo(a.x, a.y + half);
      const drawn = span === 1 || span - 1 <= track.length;
      c.setLineDash(drawn ? [] : [6 / scale, 5 / scale]);
      let [x, y] = [a.x, a.y + half];
      for (let i = 0; drawn && i < span; i++) {
        const [nx, ny] = [i === span - 1 ? b.x : track[i], (a.layer + i + 1) * NODE.pitch - half];
        c.bezierCurveTo(x, (y + ny) / 2, nx, (y + ny) / 2, nx, ny);
        if (i < span - 1) c.lineTo(nx, ny + NODE.height);
        [x, y] = [nx, ny + NODE.height];
      }
      if (!drawn) c.lineTo(b.x, b.y - half);
      c.stroke();
      c.setLineDash([]);
    };
    [c.strokeStyle, c.lineWidth] = [palette.accent, Math.max(2, 1.2 / scale)];
    near.above.forEach((from) => way(from, near.index));
    near.below.forEach((to) => way(near.index, to));
  }

  drawNodes(first, last, [x0, x1], near) {
    const { context: c, graph, scale } = this;
    const detailed = scale >= 0.3;
    for (let layer = first; layer <= last; layer++) {
      for (const i of graph.rows[layer].nodes) {
        const node = graph.nodes[i];
        if (node.x + node.w / 2 < x0 || node.x - node.w / 2 > x1) continue;
        c.globalAlpha = this.found && !this.found.has(i) ? this.palette.veil : 1;
        if (detailed) this.drawNode(node, i, near);
        else if (!this.odd.has(i)) this.drawBlock(node, i);
      }
    }
    if (!detailed) {
      this.odd.forEach((i) => graph.nodes[i].layer >= first && graph.nodes[i].layer <= last && this.drawBlock(graph.nodes[i], i));
    }
    c.globalAlpha = 1;
  }

  // A node of which only the color can be seen.
  drawBlock(node, i) {
    const { context: c, scale, palette } = this;
    const least = this.odd.has(i) ? [14, 2.5] : [2, 1];
    const [w, h] = [Math.max(node.w, least[0] / scale), Math.max(NODE.height, least[1] / scale)];
    const [fill, line] = this.styles[i];
    const ramp = this.mode.most !== undefined;
    c.fillStyle = ramp && !node.kind ? fill : line;
    c.fillRect(node.x - w / 2, node.y - h / 2, w, h);
    if (i === this.chosen || (this.found && this.found.has(i))) {
      [c.strokeStyle, c.lineWidth] = [palette.ink, 2 / scale];
      c.strokeRect(node.x - w / 2, node.y - h / 2, w, h);
    }
  }

  drawNode(node, i, near) {
    const { context: c, palette, scale } = this;
    const [fill, line] = this.styles[i];
    const [x, y, w, h] = [node.x - node.w / 2, node.y - NODE.height / 2, node.w, NODE.height];
    const isNear = near && (i === near.index || near.above.has(i) || near.below.has(i));
    c.beginPath();
    c.roundRect(x, y, w, h, node.kind ? h / 2 : NODE.radius);
    [c.fillStyle, c.strokeStyle, c.lineWidth] = [fill, isNear ? palette.accent : line, i === this.chosen ? 3 : 1.3];
    if (node.kind === "state") c.setLineDash([4, 3]);
    c.fill();
    c.stroke();
    c.setLineDash([]);
    if (node.blocks) {
      c.beginPath();
      c.roundRect(x + 3, y + 3, w - 6, h - 6, NODE.radius - 2);
      c.lineWidth = 1;
      c.stroke();
    }
    if (this.found && this.found.has(i)) {
      c.beginPath();
      c.roundRect(x - 4, y - 4, w + 8, h + 8, NODE.radius + 4);
      [c.strokeStyle, c.lineWidth] = [palette.ink, 1.6];
      c.stroke();
    }
    const light = isDark(fill);
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillStyle = light ? "#f4f7fa" : "#1c2128";
    c.font = "600 12.5px " + FONT;
    c.fillText(this.clipped(node.op || node.name, w - 14), node.x, y + 14.5);
    if (scale >= 0.45) {
      c.fillStyle = light ? "#c7d0da" : "#4d5762";
      c.font = "10.5px " + FONT;
      c.fillText(this.clipped(this.secondLine(node), w - 12), node.x, y + 28.5);
    }
    if (node.severity) this.drawMark(node.severity, x + w - 3, y + 3);
  }

  secondLine(node) {
    if (!node.kind && this.mode.label === "predicted time" && node.us !== undefined) return time(node.us);
    if (!node.kind && this.mode.label === "error in ulps" && node.ulps !== undefined) return ulpsText(node.ulps);
    return node.type;
  }

  // A finding has a shape of its own, whatever the color of the node means.
  drawMark(severity, x, y) {
    const { context: c, palette } = this;
    c.fillStyle = palette[severity][1];
    c.strokeStyle = palette.paper;
    c.lineWidth = 1.5;
    c.beginPath();
    if (severity === "warning") {
      c.moveTo(x, y - 7);
      c.lineTo(x + 7, y + 5);
      c.lineTo(x - 7, y + 5);
      c.closePath();
    } else {
      c.arc(x, y, severity === "error" ? 6.5 : 4, 0, 7);
    }
    c.fill();
    c.stroke();
    if (severity === "note") return;
    c.fillStyle = palette.paper;
    c.font = "700 9px " + FONT;
    c.fillText("!", x, y + 0.5);
  }

  clipped(text, width) {
    this.texts = this.texts || new Map();
    const key = this.context.font + width + text;
    let shown = this.texts.get(key);
    if (shown === undefined) {
      shown = text;
      let length = text.length;
      while (length > 1 && this.context.measureText(shown).width > width) shown = text.slice(0, --length) + "…";
      if (this.texts.size > 50000) this.texts.clear();
      this.texts.set(key, shown);
    }
    return shown;
  }

  // ---- the strip at the right: the whole network, with the visible part framed

  drawStrip() {
    const { context: c, graph, palette } = this;
    const needed = graph.height * this.scale > this.height * 1.05;
    this.stripShown = needed;
    if (!needed) return;
    const [x, y, w, h] = [this.width - STRIP.width - STRIP.gap, STRIP.gap, STRIP.width, this.height - 2 * STRIP.gap];
    if (!this.strip || this.strip.height !== Math.round(h * this.ratio)) this.strip = this.paintedStrip(w, h);
    c.fillStyle = palette.paper;
    c.fillRect(x - 8, 0, w + 8 + STRIP.gap, this.height);
    c.drawImage(this.strip, x, y, w, h);
    [c.strokeStyle, c.lineWidth] = [palette.edge, 1];
    c.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
    const share = (at) => Math.min(1, Math.max(0, at / graph.height));
    const from = y + h * share(this.top);
    const tall = Math.max(4, y + h * share(this.top + this.height / this.scale) - from);
    [c.strokeStyle, c.lineWidth] = [palette.ink, 1.5];
    c.strokeRect(x - 2.5, from, w + 5, tall);
  }

  paintedStrip(w, h) {
    const strip = document.createElement("canvas");
    [strip.width, strip.height] = [Math.round(w * this.ratio), Math.round(h * this.ratio)];
    const c = strip.getContext("2d");
    const { graph } = this;
    const order = graph.nodes.map((_, i) => i).sort((a, b) => this.mode.weight(graph.nodes[a]) - this.mode.weight(graph.nodes[b]));
    const [sx, sy] = [strip.width / Math.max(graph.width, 1), strip.height / Math.max(graph.height, 1)];
    for (const i of order) {
      const node = graph.nodes[i];
      const [fill, line] = this.styles[i];
      // What stands out takes the whole width, so that it is seen in the longest network.
      const stands = this.odd.has(i);
      const wide = stands ? strip.width : Math.max(node.w * sx, 4 * this.ratio);
      c.fillStyle = this.mode.most !== undefined && !node.kind ? fill : line;
      c.fillRect(Math.min(Math.max(node.x * sx - wide / 2, 0), strip.width - wide), node.y * sy, wide, Math.max(NODE.height * sy, stands ? 2 * this.ratio : this.ratio));
    }
    return strip;
  }

  isStrip(x) {
    return this.stripShown && x > this.width - STRIP.width - 2 * STRIP.gap;
  }

  toStrip(y) {
    const share = (y - STRIP.gap) / (this.height - 2 * STRIP.gap);
    this.top = share * this.graph.height - this.height / 2 / this.scale;
    this.move(0, 0);
  }

  // ---- input

  listen() {
    const { canvas } = this;
    const pointers = new Map();
    let moved = 0;
    let onStrip = false;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = place(event);
      const unit = event.deltaMode === 1 ? 20 : event.deltaMode === 2 ? 400 : 1;
      if (this.isStrip(x)) return this.move(0, -event.deltaY * unit);
      if (event.shiftKey && !event.ctrlKey) return this.move(-(event.deltaX + event.deltaY) * unit, 0);
      const speed = event.ctrlKey ? 0.01 : 0.0018;
      this.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * unit)) * speed), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button > 1) return;
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      moved = 0;
      onStrip = pointers.size === 1 && this.isStrip(place(event)[0]);
      if (onStrip) this.toStrip(place(event)[1]);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      const last = pointers.get(event.pointerId);
      if (!last) return this.hover(x, y);
      if (onStrip) return this.toStrip(y);
      const spread = () => {
        const [a, b] = [...pointers.values()];
        return [Math.hypot(a[0] - b[0], a[1] - b[1]), (a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
      };
      if (pointers.size === 2) {
        const [before, cx, cy] = spread();
        pointers.set(event.pointerId, [x, y]);
        const [after, nx, ny] = spread();
        this.move(nx - cx, ny - cy);
        if (before > 0) this.zoom(after / before, nx, ny);
        moved += 10;
        return;
      }
      moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
      pointers.set(event.pointerId, [x, y]);
      if (moved > 3) {
        canvas.classList.add("moving");
        this.move(x - last[0], y - last[1]);
      }
    });
    const ended = (event) => {
      const was = pointers.delete(event.pointerId);
      canvas.classList.remove("moving");
      if (was && event.type === "pointerup" && moved <= 3 && !onStrip) this.events.chosen(this.at(...place(event)));
    };
    canvas.addEventListener("pointerup", ended);
    canvas.addEventListener("pointercancel", ended);
    canvas.addEventListener("pointerleave", () => this.hover(-1, -1));
    canvas.addEventListener("dblclick", (event) => {
      const index = this.at(...place(event));
      if (index >= 0) this.events.entered(index);
    });
  }

  hover(x, y) {
    const over = x < 0 || this.isStrip(x) || !this.graph ? -1 : this.at(x, y);
    if (over === this.over) return;
    this.over = over;
    this.canvas.classList.toggle("over", over >= 0);
    const node = this.graph.nodes[over];
    this.canvas.title = node ? (node.op ? node.op + " " : "") + node.name : "";
    this.redraw();
  }
}
