// Opens the chat page of `ferrane serve` in a headless Chromium: types, reads an answer while it arrives, stops one, changes
// settings, and looks for errors and for requests to elsewhere. With a folder it also takes pictures at two widths.
//
//   npm install playwright-core
//   node scripts/serve/page.mjs [--shots DIR] [--chromium /usr/bin/chromium] [--key KEY] http://127.0.0.1:8080/

import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { chromium } = createRequire(join(process.cwd(), "x.js"))("playwright-core");

let [shots, executablePath, key, address] = ["", "/usr/bin/chromium", "", ""];
for (let i = 2; i < process.argv.length; i++) {
  if (process.argv[i] === "--shots") shots = process.argv[++i];
  else if (process.argv[i] === "--chromium") executablePath = process.argv[++i];
  else if (process.argv[i] === "--key") key = process.argv[++i];
  else address = process.argv[i];
}

const profile = mkdtempSync(join(tmpdir(), "chat-"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args });
const wrong = [];
const check = (holds, text) => holds || wrong.push(text);

for (const [width, scheme] of [[400, "light"], [1200, "dark"]]) {
  const page = await context.newPage();
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize({ width, height: 800 });
  page.on("pageerror", (e) => wrong.push("error: " + e.message));
  page.on("console", (m) => m.type() === "error" && wrong.push("console: " + m.text()));
  page.on("request", (r) => r.url().startsWith(address) || r.url().startsWith("data:") || wrong.push("request: " + r.url()));
  const shot = async (name) => shots && page.screenshot({ path: join(shots, `chat-${width}-${name}.png`) });
  await page.goto(address);
  await page.evaluate(() => localStorage.clear());
  await page.reload();
  await shot("empty");
  await page.click("#options");
  await page.fill("#max_tokens", "60");
  await page.fill("#temperature", "0.7");
  await page.fill("#seed", "5");
  if (key) await page.fill("#key", key);
  await shot("settings");
  await page.click("#options");

  // An answer to a key press.
  await page.fill("#text", "Once upon a time");
  await page.press("#text", "Enter");
  await page.waitForSelector(".message.assistant .facts", { timeout: 60000 });
  const [answer, facts] = await page.evaluate(() => {
    const message = document.querySelector(".message.assistant");
    return [message.querySelector(".body").textContent, message.querySelector(".facts").textContent];
  });
  check(answer.trim().length > 0, "the answer is empty");
  check(/\d+ tokens · [\d.]+ tokens\/s/.test(facts), "facts: " + facts);
  check(await page.isVisible("#send"), "no Send after an answer");
  await shot("answer");

  // An answer that is stopped.
  await page.fill("#text", "Another one");
  await page.evaluate(() => document.querySelector("#max_tokens").value = "");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelectorAll(".message.assistant")[1]?.textContent.length > 5 || document.querySelector(".failed"));
  if (await page.isVisible("#stop")) await page.click("#stop");
  await page.waitForSelector("#send:visible");
  check((await page.locator(".message").count()) === 4, "not four messages");

  // An error is shown in words.
  await page.evaluate(() => document.querySelector("#temperature").value = "5");
  await page.fill("#text", "Too hot");
  await page.press("#text", "Enter");
  await page.waitForSelector(".message.failed");
  check((await page.textContent(".message.failed")).includes("temperature"), "the error does not name its field");
  wrong.splice(0, wrong.length, ...wrong.filter((text) => !text.includes("status of 400")));
  await shot("error");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= width, `${wide} pixels wide in a window of ${width}`);
  await page.click("#clear");
  check(await page.isVisible("#empty"), "New leaves messages");
  console.log(`${width}: ${facts}: ${JSON.stringify(answer.slice(0, 60))}`);
  await page.close();
}
await context.close();
rmSync(profile, { recursive: true, force: true });
wrong.forEach((text) => console.log("  " + text));
process.exit(wrong.length > 0 ? 1 : 0);
