// Look at the pages of two servers in Chromium, one step after the other. Prints a line of JSON for each step.
//
//     node browser_steps.mjs '{"modules", "chromium", "profile", "out", "plain", "keyed", "restored", "key", "writer", "idle_s"}'

import { createRequire } from "node:module";

const given = JSON.parse(process.argv[2]);
const { chromium } = createRequire(`${given.modules}/`)("playwright-core");
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const VIEWS = {
  home: "/", overview: "/ui#/", topics: "/ui#/topics", records: "/ui#/topic/orders", publish: "/ui#/topic/orders/publish",
  readers: "/ui#/topic/orders/readers", config: "/ui#/topic/orders/config", jobs: "/ui#/topic/jobs/jobs",
  hostile: "/ui#/topic/hostile", absent: "/ui#/topic/absent", queues: "/ui#/queues", "all-readers": "/ui#/readers", routers: "/ui#/routers",
  docs: "/docs#read_records", contract: "/docs/contract/7.5", guides: "/docs/guides/index", guide: "/docs/guides/queues",
};
const SIZES = { desktop: { width: 1280, height: 860 }, phone: { width: 390, height: 844 } };
const say = (step, found = {}) => console.log(JSON.stringify({ step, ...found }));
const browser = await chromium.launchPersistentContext(given.profile, { executablePath: given.chromium, headless: true, args: FLAGS });

/** Return a page that notes what the console says and every dialog of a script. */
async function open(options = {}) {
  const page = await browser.newPage();
  page.noted = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.noted.push(`${message.text()} at ${page.url()}`));
  page.on("pageerror", (error) => page.noted.push(`${error.stack} at ${page.url()}`));
  page.on("dialog", (box) => (page.noted.push(`a dialog at ${page.url()}`), box.dismiss()));
  page.setDefaultTimeout(20000);
  await page.setViewportSize(options.size ?? SIZES.desktop);
  await page.emulateMedia({ colorScheme: options.scheme ?? "light" });
  return page;
}

const SHOWN = { records: ".record", jobs: ".letter", hostile: ".record", absent: ".empty", overview: ".verdict li", topics: "tbody a.name",
  queues: "tbody tr", "all-readers": "tbody tr", readers: "tbody tr", routers: ".graph rect", config: "form", publish: "form", docs: "#read_records[open]", contract: "table", guides: "table", guide: "pre" };

async function look(page, url, name) {
  await page.goto("about:blank");
  await page.goto(url + VIEWS[name]);
  if (SHOWN[name]) await page.waitForSelector(SHOWN[name]);
  if (name === "config") await page.fill("input[name=cap_records]", "50");
  await page.waitForTimeout(name === "overview" ? 4500 : 300);
}

/** Press "Older records" until the beginning is there, or so many times. */
async function older(page, presses) {
  const [button, done] = [page.getByRole("button", { name: "Older records" }), page.getByText("This is the beginning.")];
  for (let press = 0; press < presses && !(await done.count()); press += 1) {
    await button.click();
    await page.waitForFunction(() => !document.querySelector(".pages button").disabled || document.body.innerText.includes("This is the beginning."));
  }
}

// Each view in each size and colour: what the console says, whether something is wider than the page.
for (const scheme of ["light", "dark"]) {
  for (const [size, box] of Object.entries(SIZES)) {
    const page = await open({ scheme, size: box });
    for (const name of Object.keys(VIEWS)) {
      await look(page, given.plain, name);
      await page.screenshot({ path: `${given.out}/${name}-${size}-${scheme}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      say("view", { name, size, scheme, noted: page.noted.splice(0), wide });
    }
    await page.close();
  }
}

// Lists, the graph and the charts show what the server has.
{
  const page = await open();
  const cells = async (name) => {
    const row = page.locator("tbody tr").filter({ has: page.locator(".name", { hasText: new RegExp(`^${name}$`) }) }).first();
    return (await row.locator("th, td").allInnerTexts()).map((text) => text.trim());
  };
  await look(page, given.plain, "routers");
  const boxes = await page.locator(".graph a").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  const edges = await page.locator(".graph path.edge title").evaluateAll((all) => all.map((one) => one.textContent));
  const ask = async (path) => (await fetch(`${given.plain}/v0/${path}`)).json();
  await look(page, given.plain, "queues");
  let [jobs, queue] = [[], []];
  for (let tries = 0; tries < 120 && (!tries || jobs.join() !== queue.join()); tries += 1) { // leases end meanwhile
    const { queue: held } = await ask("topics/jobs?touch=false");
    queue = ["jobs", held.ready, held.in_flight, held.delayed ?? 0, held.dead_lettered, "jobs.dead"].map(String);
    await page.waitForTimeout(500);
    jobs = await cells("jobs");
  }
  await look(page, given.plain, "all-readers");
  const reader = await cells("billing");
  const { readers } = await ask("topics/orders/readers");
  await look(page, given.plain, "overview");
  await page.waitForFunction(() => document.querySelectorAll(".chart svg[aria-label]").length >= 5);
  const charts = await page.locator(".chart figcaption").allInnerTexts();
  await look(page, given.plain, "topics");
  await page.fill("#filter", "orders");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 3 && document.querySelector("tbody").innerText.includes("fsync"));
  const topic = await cells("orders");
  const state = await ask("topics/orders?touch=false");
  await fetch(`${given.plain}/v0/topics/orders`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ records: [{ data: { sku: "rate" } }] }),
  });
  await page.waitForSelector("tbody tr.busy:has-text('/s')");
  say("lists", { boxes, edges, jobs, queue, reader, readers, charts, topic, state, noted: page.noted });
  await page.close();
}

// A record that another client writes shows in the tail, and a gap as a row of its own.
{
  const page = await open();
  await look(page, given.plain, "records");
  await page.waitForSelector(".live.live");
  const write = (sku) => fetch(`${given.plain}/v0/topics/orders`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ records: [{ data: { sku } }] }),
  });
  const took = [];
  for (const sku of ["tail-1", "tail-2", "tail-3"]) {
    const began = performance.now();
    await write(sku);
    await page.waitForSelector(`.record:has-text("${sku}")`, { timeout: 10000 });
    took.push(performance.now() - began);
  }
  const rows = await page.locator(".record").count();
  await older(page, 1);
  const more = (await page.locator(".record").count()) - rows;
  await older(page, 20);
  const gap = await page.locator(".gap").first().innerText();
  await page.getByRole("button", { name: "Pause" }).click();
  await write("while-paused");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForSelector('.record:has-text("while-paused")');
  await page.screenshot({ path: `${given.out}/tail-desktop-light.png` });
  say("tail", { took_ms: took, older: more, gap, noted: page.noted });
  await page.close();
}

// After a restore, older records lead over the seqs that it left out, to those of the backup.
{
  const page = await open();
  const url = given.restored;
  await page.goto(`${url}/ui#/topic/orders`);
  await page.waitForSelector(".record");
  await older(page, 6);
  const rows = (await page.locator(".records > *").allInnerTexts()).slice(-5);
  const ends = await page.getByRole("button", { name: "Older records" }).isDisabled();
  say("restored", { rows, count: await page.locator(".record").count(), ends, noted: page.noted });
  await page.close();
}

// What a list leaves out is said, and the rest is one press away.
{
  const page = await open();
  const url = given.restored;
  await page.goto(`${url}/ui#/queues`);
  await page.waitForSelector("text=Listed are the queues");
  const queues = await page.locator("main").innerText();
  const found = {};
  for (const view of ["readers", "routers"]) {
    await page.goto(`${url}/ui#/${view}`);
    await page.getByRole("button", { name: "Show more" }).waitFor();
    const [said, before] = [(await page.locator(".cut span").innerText()).trim(), await page.locator("tbody tr").count()];
    await page.getByRole("button", { name: "Show more" }).click();
    await page.waitForFunction((n) => document.querySelectorAll("tbody tr").length > n, before);
    found[view] = [said, before, await page.locator("tbody tr").count()];
  }
  say("cut", { queues, found, noted: page.noted });
  await page.close();
}

// An address that is no UTF-8 names a topic all the same.
{
  const page = await open();
  await page.goto(`${given.plain}/ui#/topic/orders`);
  await page.waitForSelector(".record");
  await page.goto(`${given.plain}/ui#/topic/100%`);
  await page.waitForFunction(() => !document.querySelector(".record"));
  say("address", { title: await page.locator("h1").innerText(), noted: page.noted.filter((text) => !text.includes("400")) });
  await page.close();
}

// A key that may only write publishes.
{
  const page = await open();
  await page.goto(`${given.keyed}/ui#/topic/orders`);
  await page.waitForSelector("dialog[open] input");
  await page.locator("dialog input").fill(given.writer);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.waitForSelector(".answers li");
  const noted = page.noted.filter((text) => !text.includes("403"));
  say("writer", { answer: await page.locator(".answers li").first().innerText(), noted });
  await page.evaluate(() => sessionStorage.clear());
  await page.close();
}

// What a person publishes is written as it was typed.
{
  const page = await open();
  await look(page, given.plain, "publish");
  await page.getByLabel("Data", { exact: true }).fill('{"big": 9007199254740993}');
  await page.getByLabel("Tag").fill("typed");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector(".answers li");
  const answer = await page.locator(".answers li").first().innerText();
  const seq = Number(/seq (\d+)/.exec(answer)[1]);
  const read = await fetch(`${given.plain}/v0/topics/orders/diff`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ from_seq: seq - 1, include_tags: true }),
  });
  say("publish", { answer, read: await read.text(), noted: page.noted });
  await page.close();
}

// A change of the configuration says what it does, and does it.
{
  const page = await open();
  await look(page, given.plain, "config");
  await page.waitForSelector(".effects li:has-text('Evicts')");
  const effects = await page.locator(".effects").innerText();
  await page.getByRole("button", { name: "Change the topic" }).click();
  await page.waitForSelector(".effects .good");
  const state = await (await fetch(`${given.plain}/v0/topics/orders?touch=false`)).json();
  say("config", { effects, count: state.count, noted: page.noted });
  await page.close();
}

// Dead letters become jobs again, some and all.
{
  const page = await open();
  await look(page, given.plain, "jobs");
  const before = await page.locator(".letter").count();
  await page.locator(".letter input").first().check();
  await page.getByRole("button", { name: "Redrive 1 chosen" }).click();
  await page.waitForFunction((n) => document.querySelectorAll(".letter").length === n - 1, before);
  await page.getByRole("button", { name: "Redrive all", exact: true }).click();
  await page.locator("dialog").getByRole("button", { name: "Redrive all" }).click();
  await page.waitForSelector(".nothing");
  const { dead } = await (await fetch(`${given.plain}/v0/topics/jobs/dead`)).json();
  say("redrive", { before, left: dead.length, noted: page.noted });
  await page.close();
}

// Names and payloads that are markup stay text, also in an address.
{
  const page = await open();
  const texts = [];
  for (const path of ["/ui#/topic/hostile", "/ui#/topic/mail/jobs", `/ui#/topic/${encodeURIComponent("<img src=x onerror=alert(1)>")}`, "/ui#/%3Cscript%3E"]) {
    await page.goto("about:blank");
    await page.goto(given.plain + path);
    await page.waitForTimeout(800);
    for (const summary of await page.locator(".record summary").all()) await summary.click();
    texts.push(await page.locator("main").innerText());
  }
  const made = await page.evaluate(() => document.querySelectorAll("main img, main script, main svg[onload], main b[onload]").length);
  say("hostile", { texts, made, title: await page.title(), noted: page.noted });
  await page.close();
}

// A form of /docs sends its request to this server.
{
  const page = await open();
  await look(page, given.plain, "docs");
  await page.locator("#read_records input").fill("/v0/topics/hostile/diff");
  await page.locator("#read_records form button").click();
  await page.waitForSelector("#read_records output pre");
  const [call] = await page.locator("#read_records pre.call").allInnerTexts();
  say("docs", { answer: await page.locator("#read_records output").innerText(), calls_here: call.includes(given.plain), noted: page.noted });
  await page.close();
}

// On a server with keys, /docs opens without one, and its forms send the key that is entered.
{
  const page = await open();
  await page.goto(`${given.keyed}/`);
  await page.getByRole("link", { name: "The interface" }).click();
  await page.waitForSelector(".key input");
  await page.goto(`${given.keyed}/docs#read_records`);
  await page.locator("#read_records input").fill("/v0/topics/orders/diff");
  const answers = [];
  for (const key of ["", given.key]) {
    await page.locator(".key input").fill(key);
    await page.locator("#read_records output").evaluate((output) => output.replaceChildren());
    await page.locator("#read_records form button").click();
    await page.waitForSelector("#read_records output pre");
    answers.push((await page.locator("#read_records output").innerText()).slice(0, 3));
  }
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: `${given.out}/docs-keyed-desktop-light.png` });
  await page.goto(`${given.keyed}/ui`);
  const asks = await page.locator("dialog[open]").count();
  await page.getByRole("link", { name: "Docs" }).click();
  await page.waitForSelector("h2");
  await page.goto(`${given.keyed}/`);
  await page.getByRole("link", { name: "Guides" }).click();
  await page.getByRole("link", { name: "queues", exact: true }).click();
  await page.waitForSelector("pre");
  say("docs with keys", { answers, asks, title: await page.title(), noted: page.noted.filter((text) => !text.includes("401")) });
  await page.close();
}

// The keyboard leads everywhere.
{
  const page = await open();
  await look(page, given.plain, "overview");
  await page.keyboard.press("Tab");
  const skip = await page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press("Enter");
  const main = await page.evaluate(() => document.activeElement.id);
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForSelector("tbody a.name");
  await page.keyboard.press("/");
  await page.keyboard.type("svc-07.events.0407");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".record");
  const name = await page.locator("h1").innerText();
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await page.screenshot({ path: `${given.out}/help-desktop-light.png` });
  say("keyboard", { skip, main, name, noted: page.noted });
  await page.close();
}

// A server with keys is not asked for anything before there is a key, which lasts as long as the tab.
{
  const page = await open();
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${given.keyed}/ui#/topics`);
  await page.waitForSelector("dialog[open] input");
  const before = asked.filter((path) => path.startsWith("/v0"));
  await page.screenshot({ path: `${given.out}/key-desktop-light.png` });
  await page.locator("dialog input").fill(given.key);
  await page.keyboard.press("Enter");
  await page.waitForSelector("tbody a.name");
  await page.goto(`${given.keyed}/ui#/topic/orders`);
  await page.reload();
  await page.waitForSelector(".live.live");
  await page.goto(`${given.keyed}/ui`);
  await page.waitForSelector(".verdict li:has-text('mirror')");
  const mirrors = await page.locator(".verdict li:has-text('mirror') b").allInnerTexts();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  await page.screenshot({ path: `${given.out}/mirrors-desktop-light.png` });
  const noted = page.noted.splice(0);
  const again = await page.locator("dialog[open]").count();
  const other = await open();
  await other.goto(`${given.keyed}/ui`);
  await other.waitForSelector("dialog[open] input");
  await other.locator("dialog input").fill("wrong");
  await other.keyboard.press("Enter");
  await other.waitForSelector("dialog[open]:has-text('refused')");
  say("keys", { before, again, noted, mirrors, wide, secrets: asked.filter((path) => path.includes(given.key)) });
  await page.close();
  await other.close();
}

// A page that is open and visible, and nothing happens.
for (const name of ["overview", "topics"]) {
  const page = await open();
  await look(page, given.plain, name);
  await page.waitForTimeout(2000);
  say("idle", { name });
  await page.waitForTimeout(given.idle_s * 1000);
  say("idle over", { name, noted: page.noted });
  await page.close();
}
await browser.close();
