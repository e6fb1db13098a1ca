// Opens pages of `ferrane check --html` and `ferrane watch --html` in a headless Chromium and checks what a browser makes of
// them: no error and no refusal by the page's own policy, no request, time until it is drawn. Of a network: frames while it is
// moved, search, keys, the details of an op; of a run: the curves, zooming, samples. With a folder it also takes pictures.
//
//   npm install playwright-core
//   node scripts/page/check.mjs [--shots DIR] [--chromium /usr/bin/chromium] report.html…

import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(join(process.cwd(), "x.js"))("playwright-core");

const files = [];
let [shots, executablePath] = ["", "/usr/bin/chromium"];
for (let i = 2; i < process.argv.length; i++) {
  if (process.argv[i] === "--shots") shots = process.argv[++i];
  else if (process.argv[i] === "--chromium") executablePath = process.argv[++i];
  else files.push(process.argv[i]);
}

const profile = mkdtempSync(join(tmpdir(), "page-"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args, viewport: { width: 1440, height: 900 } });
let failed = false;

for (const file of files) {
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (e) => wrong.push("error: " + e.message));
  page.on("console", (m) => m.type() === "error" && wrong.push("console: " + m.text()));
  page.on("request", (r) => r.url().startsWith("file:") || wrong.push("request: " + r.url()));
  page.on("dialog", (d) => wrong.push("dialog: " + d.message()));
  const begun = Date.now();
  await page.goto(pathToFileURL(resolve(file)).href);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const opened = Date.now() - begun;
  const shot = async (name) => shots && page.screenshot({ path: join(shots, basename(file, ".html") + "-" + name + ".png") });
  await shot("home");
  if (await page.evaluate(() => typeof RUN !== "undefined")) {
    await run(page, wrong, shot);
    report(file, opened, wrong);
    await page.close();
    continue;
  }
  const nodes = await page.evaluate(() => data.graphs.reduce((n, g) => n + g.nodes.length, 0));
  const frames = nodes ? await page.evaluate(moved) : { median: 0, worst: 0 };
  if (nodes) wrong.push(...(await page.evaluate(drawn)));
  if (nodes && shots) await pictures(page, shot);
  report(file, opened, wrong, `, ${nodes} nodes, frames ${frames.median.toFixed(1)} ms, worst ${frames.worst.toFixed(1)} ms`);
  await page.close();
}
await context.close();
rmSync(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);

function report(file, opened, wrong, more = "") {
  if (opened > 2000) wrong.push(`it took ${opened} ms to open`);
  console.log(`${basename(file)}: open after ${opened} ms${more}`);
  wrong.forEach((text) => console.log("  " + text));
  failed ||= wrong.length > 0;
}

// What must hold for the page of a run.
async function run(page, wrong, shot) {
  const state = () => page.evaluate(() => ({
    lines: [...document.querySelectorAll(".line")].map((line) => line.getAttribute("d").length),
    range: shown,
    whole: WHOLE,
    text: document.getElementById("text").textContent,
  }));
  const settle = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const begun = await state();
  if (!begun.lines.length || begun.lines.some((length) => length === 0)) wrong.push("a curve is not drawn");
  const box = await page.locator("svg").first().boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * 0.4, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, y, { steps: 5 });
  await settle();
  await shot("drag");
  await page.mouse.up();
  await settle();
  const near = await state();
  const [from, to] = near.range;
  if (!(from > begun.whole[0] && to < begun.whole[1] && from < to)) wrong.push(`dragging does not zoom: ${near.range}`);
  await shot("near");
  await page.mouse.dblclick(box.x + box.width / 2, y);
  await settle();
  if (String((await state()).range) !== String(begun.whole)) wrong.push("a double click does not show everything");
  if (await page.locator("#samples").isVisible()) {
    if ((await page.evaluate(() => RUN.samples.length)) > 1) {
      await page.click("#earlier");
      if ((await state()).text === begun.text) wrong.push("there is no earlier sample");
    }
  }
  await page.check("#logarithmic");
  await page.click("#theme");
  await settle();
  await shot("dark");
  await page.click("#theme");
  await page.uncheck("#logarithmic");
  await page.setViewportSize({ width: 480, height: 900 });
  await settle();
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wrong.push("it is wider than a small window");
  await shot("small");
}

// The time of drawing while the network is moved: near, and as a whole.
async function moved() {
  const times = [];
  for (const whole of [false, true]) {
    if (whole) view.fit();
    for (let i = 0; i < 40; i++) {
      const begun = performance.now();
      view.move(3, -5);
      view.draw();
      times.push(performance.now() - begun);
      await new Promise(requestAnimationFrame);
    }
  }
  view.home();
  times.sort((a, b) => a - b);
  return { median: times[times.length >> 1], worst: times[times.length - 1] };
}

// What must hold for every page with a node.
function drawn() {
  const wrong = [];
  for (const graph of data.graphs) {
    const rows = new Map();
    graph.nodes.forEach((n) => rows.set(n.at[1], [...(rows.get(n.at[1]) || []), n]));
    for (const row of rows.values()) {
      row.sort((a, b) => a.at[0] - b.at[0]);
      row.forEach((n, i) => i && n.at[0] - n.w / 2 < row[i - 1].at[0] + row[i - 1].w / 2 && wrong.push(`${n.name} overlaps`));
    }
  }
  const op = data.graphs[0].nodes.findIndex((n) => n.op);
  if (op >= 0) {
    go([0, op], true);
    const shown = document.getElementById("details").textContent;
    const node = data.graphs[0].nodes[op];
    if (!shown.includes(node.name) || !shown.includes(node.op)) wrong.push("the details do not name the op");
    document.getElementById("search").value = node.name;
    search();
    if (!matches.some(([g, n]) => g === 0 && n === op)) wrong.push("the search does not find the op");
    document.getElementById("search").value = "";
    search();
    go([0, -1]);
  }
  view.home();
  return wrong;
}

async function pictures(page, shot) {
  await page.keyboard.press("n");
  await page.waitForTimeout(150);
  await shot("problem");
  await page.keyboard.press("Escape");
  await page.keyboard.press("0");
  await page.waitForTimeout(100);
  await shot("fit");
  for (const mode of await page.$$eval("#mode option", (all) => all.map((o) => o.value))) {
    await page.selectOption("#mode", mode);
    await page.evaluate(() => view.home());
    await page.waitForTimeout(100);
    await shot("by-" + mode);
  }
  await page.fill("#search", await page.evaluate(() => (data.graphs[0].nodes.find((n) => n.op) || data.graphs[0].nodes[0]).op || ""));
  await page.waitForTimeout(100);
  await shot("search");
  await page.keyboard.press("Escape");
  await page.click("#theme");
  await page.selectOption("#mode", await page.evaluate(() => (kinds.unit.has ? "unit" : "finding")));
  await page.evaluate(() => view.home());
  await page.waitForTimeout(100);
  await shot("dark");
}
