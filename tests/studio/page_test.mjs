// The page in Chromium, beside a training that is really going on. node page_test.mjs PROGRAM SOURCE_FOLDER
// With MELETE_SHOTS=FOLDER it leaves pictures of every view there, for people to look at.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const program = process.argv[2];
const work = mkdtempSync(join(tmpdir(), "melete-page-"));
const shots = process.env.MELETE_SHOTS;
const started = Date.now();
const children = [];
const problems = [];
let checks = 0;

const say = (text) => console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s  ${text}`);
function check(good, what) {
  ++checks;
  if (!good) throw new Error(`not so: ${what}`);
  say(what);
}
function run(...words) {
  const done = spawnSync(program, words, { cwd: work, encoding: "utf8" });
  if (done.status !== 0) throw new Error(`melete ${words.join(" ")}: ${done.stderr}`);
}
function start(words, log) {
  const child = spawn(program, words, { cwd: work, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  child.said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (child.said += data));
  child.on("exit", (code) => (child.code = code));
  child.log = log;
  return child;
}
async function until(what, ask, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise((r) => setTimeout(r, 100))) {
    const value = await ask();
    if (value) return value;
  }
  throw new Error(`waited ${seconds} s for: ${what}\n${children.map((child) => child.said.slice(-500)).join("\n")}`);
}

async function test() {
  // A codec of a few hundred weights: a step takes milliseconds, so that there is always something new to see.
  run("data", "synth", "-o", "music", "--count", "4", "--seconds", "1", "--rate", "8000", "--format", "wav");
  writeFileSync(
    join(work, "tiny.toml"),
    `batch_size = 2
[data]
segment_seconds = 0.5
valid_fraction = 0
[model.codec]
sample_rate_hz = 8000
channels = 2
strides = [4, 8]
channel_multiples = [1, 2]
dim = 4
attention = false
quantizer = { quantizers = 3, codebook_size = 8 }
[model]
discriminator_scales = [1]
multi_scale = { channels = 2, layers = 1, groups = [2] }
stft = { channels = 2, channel_multiples = [1], frequency_strides = [2], time_strides = [2] }
[generator.schedule]
kind = "cosine"
warmup_steps = 20
[train]
validate_every = 10
sample_every = 40
save_every = 40
`,
  );
  const training = start(["train", "soundstream", "--config", "tiny.toml", "--data", "music", "--out", "runs/live", "--steps", "100000", "--threads", "1"]);
  run("train", "soundstream", "--config", "tiny.toml", "--data", "music", "--out", "runs/short", "--steps", "40", "--threads", "1", "--train.seed", "5");
  const studio = start(["studio", "runs", "--port", "0", "--job_threads", "1"]);
  const url = await until("the studio's address", () => studio.said.match(/http:\S+/)?.[0]);

  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"],
  });
  const open = async (options) => {
    const page = await (await browser.newContext(options)).newPage();
    page.setDefaultTimeout(60000);
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(error.message));
    return page;
  };
  const page = await open({ viewport: { width: 1440, height: 900 }, colorScheme: "dark" });
  const shot = async (on, name) => shots && (await on.screenshot({ path: join(shots, `${name}.png`) }));

  // Watching
  await page.goto(url);
  const step = page.locator('[data-run="live"] .step');
  const first = Number((await step.textContent()).replace(/\D/g, ""));
  await until("more steps in the card", async () => Number((await step.textContent()).replace(/\D/g, "")) > first);
  check(training.code === undefined, "the card of a run counts on while it trains");
  check((await page.locator('[data-run="live"] .pill').textContent()) === "running", "the run is said to be running");
  check((await page.locator('[data-run="short"] .pill').textContent()) === "finished", "the other one is said to be finished");
  await shot(page, "runs-wide-dark");

  await page.getByLabel("choose short").check();
  await page.goto(`${url}#/curves`);
  const plot = page.locator('[data-plot="loss/generator.loss"] .plot');
  await plot.locator("canvas").waitFor();
  const last = () => plot.evaluate((box) => Math.max(...(box.plot?.data[0] ?? [0])));
  const before = await until("points in the plot", last);
  await until("a curve that grows", async () => (await last()) > before);
  check(true, "curves grow while the page is open");
  const box = await plot.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + 10, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, box.y + 60, { steps: 5 });
  await page.mouse.up();
  const range = () => plot.evaluate((element) => [element.plot.scales.x.min, element.plot.scales.x.max].map(Math.round).join());
  await page.getByRole("button", { name: "show all" }).waitFor();
  await page.waitForTimeout(300);
  const zoomed = await range(), told = await step.count();
  await page.waitForTimeout(2500);
  check((await range()) === zoomed && told === 0, `the zoom (${zoomed}) stays while data comes in`);
  check(await page.locator('[data-plot="gradient_z/generator"]').count(), "gradient norms have z-scores");
  check(await page.locator('section[aria-label^="codes in use of live"] canvas').count(), "codebooks have a heat map");
  await page.getByRole("button", { name: "show all" }).click();
  await page.getByRole("button", { name: "log y" }).click();
  await page.getByRole("radio", { name: "time trained" }).click();
  await page.locator('input[type="range"]').first().fill("0.9");
  const rate = page.locator('[data-plot="learning_rate/generator"] .plot');
  await page.getByRole("radio", { name: "steps", exact: true }).click();
  await rate.scrollIntoViewIfNeeded();
  await until("the learning rate ahead of time", () => rate.evaluate((element) => Math.max(...(element.plot?.data[0] ?? [0])) === 100000));
  check(true, "the learning rate is known to the end of the run");
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, "curves-wide-dark");

  await page.goto(`${url}#/settings`);
  const differing = await until("settings", async () => (await page.locator("tr.differs th").allTextContents()).join());
  check(differing.includes("train.steps") && differing.includes("seed") && !differing.includes("batch_size"), `settings that differ: ${differing}`);

  // Listening
  await page.getByLabel("choose short").uncheck();
  await page.goto(`${url}#/listen`);
  const tracks = () =>
    page.evaluate(() =>
      [...(window.studioPlayer?.tracks.values() ?? [])].map((track) => ({ key: track.key, seconds: track.buffer.duration, level: track.level, peak: track.peak })),
    );
  const heard = await until("decoded samples", async () => ((await tracks()).length >= 3 ? tracks() : null));
  const original = heard.find((track) => track.key.includes("_original"));
  // The same file as the program wrote it, read without a browser.
  const bytes = (await (await fetch(`${url}files/${original.key}`)).arrayBuffer()).byteLength;
  check(bytes > 1000 && Math.abs(original.seconds - 0.5) < 0.002, `a sample is decoded in the page: ${original.seconds} s`);
  check(original.level > -60 && original.level < 0 && original.peak <= 1, `at ${original.level.toFixed(1)} dB, as sound is`);
  check((await page.locator(".strip canvas").count()) === heard.length, "every player has a spectrogram");
  await page.keyboard.press("Space");
  await until("playing", () => page.evaluate(() => window.studioPlayer.playing));
  await page.evaluate(() => window.studioPlayer.setLoop([0.1, 0.4]));
  await page.waitForTimeout(400);
  const switched = await page.evaluate(async () => {
    const player = window.studioPlayer, keys = [...player.tracks.keys()];
    const at = player.position, clock = performance.now(), was = player.active;
    player.switchTo(keys.find((key) => key !== was));
    const moved = player.position - at, waited = (performance.now() - clock) / 1000;
    return { moved: ((moved % 0.3) + 0.3) % 0.3, waited, changed: player.active !== was, playing: player.playing, in: player.position >= 0.1 && player.position <= 0.4 };
  });
  check(switched.changed && switched.playing && Math.abs(switched.moved - switched.waited) < 0.03, "A/B goes on at the same position");
  check(switched.in, "a region is looped");
  const pressed = await page.evaluate(() => window.studioPlayer.active);
  await page.keyboard.press("a");
  check((await page.evaluate(() => window.studioPlayer.active)) !== pressed, "the keyboard switches, too");
  await page.getByRole("button", { name: "match levels" }).click();
  const loudness = await page.evaluate(() => [...window.studioPlayer.tracks.values()].filter((t) => t.level > -70).map((t) => t.level + 20 * Math.log10(window.studioPlayer.gainOf(t.key))));
  check(Math.max(...loudness) - Math.min(...loudness) < 0.01, "levels are matched on request");
  await page.getByRole("button", { name: "beside Opus" }).click();
  await until("Opus among the players", async () => (await tracks()).some((track) => track.key.startsWith("opus-")));
  await shot(page, "listen-wide-dark");
  await page.keyboard.press("Space");

  // Blind test
  await page.goto(`${url}#/blind`);
  await page.getByLabel("original").check();
  await page.getByLabel("Opus 6 kbit/s").check();
  await page.getByLabel("trials").fill("3");
  await page.getByLabel("listener").fill("the test");
  await page.getByRole("button", { name: "start" }).click();
  for (let trial = 1; trial <= 3; ++trial) {
    await page.getByText(`trial ${trial} of 3`).waitFor();
    const answer = page.getByRole("button", { name: "X is A" });
    await until("sounds of the trial", () => answer.isEnabled());
    for (const key of ["a", "x", "b"]) await page.keyboard.press(key);
    if (trial === 1) await shot(page, "blind-wide-dark");
    await answer.click();
  }
  await page.getByRole("region", { name: "your result" }).waitFor();
  const kept = readdirSync(join(work, "runs/studio/blind")).filter((name) => name.endsWith(".json"));
  const result = JSON.parse(readFileSync(join(work, "runs/studio/blind", kept[0]), "utf8"));
  check(kept.length === 1 && result.trials.length === 3 && result.result.abx[0].trials === 3, "a blind test was taken and is kept in the runs' folder");
  check(result.result.abx[0].low < result.result.abx[0].share || result.result.abx[0].share === 0, "with its interval");

  // Playing
  await page.goto(`${url}#/play`);
  await page.getByLabel("make", { exact: true }).selectOption("codec");
  await page.locator("#o-from").selectOption("short");
  await page.locator("#o-recording").setInputFiles(join(work, "music", readdirSync(join(work, "music")).find((name) => name.endsWith(".wav"))));
  await page.locator(".chip.good").waitFor();
  await page.getByRole("button", { name: "make it" }).click();
  await page.locator(".job .pill.done, .job .error").first().waitFor({ timeout: 120000 });
  const made = await until("what was made", async () => ((await page.locator(".job .strip").count()) >= 7 ? page.locator(".job .strip .pick span").allTextContents() : null), 30);
  check(made.some((name) => name.startsWith("quantizers 03")) && made.some((name) => name.startsWith("opus 24")), `made in the playground: ${made.join(", ")}`);
  check((await page.locator(".job code").first().textContent()).startsWith("melete codec compare"), "with the command beside it");
  await shot(page, "play-wide-dark");

  // A phone, in light colours: nothing wider than the screen, a name for everything that can be pressed.
  const phone = await open({ viewport: { width: 360, height: 740 }, colorScheme: "light", isMobile: true, hasTouch: true });
  for (const view of ["", "curves", "settings", "listen", "blind", "play", "run/live"]) {
    await phone.goto(`${url}#/${view}`);
    await phone.waitForTimeout(700);
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth);
    check(wide <= 360, `/${view} fits on a phone`);
    const nameless = await phone.evaluate(
      () => [...document.querySelectorAll("button, input, select, textarea, a, canvas")].filter((e) => !e.closest(".u-legend, .uplot") && !e.textContent.trim() && !e.ariaLabel && !e.labels?.length && !e.title).map((e) => e.outerHTML.slice(0, 120)),
    );
    check(nameless.length === 0, `/${view} has a name for everything ${nameless.join(" ")}`);
    await shot(phone, `${view.replace("/", "-") || "runs"}-phone-light`);
  }

  // Sharing: one file, no server
  training.kill("SIGTERM");
  await until("the end of the training", () => training.code !== undefined || training.signalCode);
  run("studio", "export", "runs/live", "runs/short", "-o", "report.html");
  studio.kill("SIGTERM");
  await until("the end of the studio", () => studio.code !== undefined);
  check(studio.code === 0, "the studio ends when it is told to");
  problems.splice(0, problems.length, ...problems.filter((text) => !/ERR_CONNECTION|Failed to load resource/.test(text))); // the server is gone
  const report = await open({ viewport: { width: 1280, height: 800 }, colorScheme: "light" });
  const asked = [];
  report.on("request", (request) => /^(data|blob|file):/.test(request.url()) || asked.push(request.url()));
  await report.goto(`file://${join(work, "report.html")}#/curves`);
  await report.getByLabel("choose live").check();
  const drawn = report.locator('[data-plot="loss/generator.loss"] .plot');
  await until("curves from disk", () => drawn.evaluate((element) => element.plot?.data[0].length > 10));
  await shot(report, "report-curves-light");
  await report.goto(`file://${join(work, "report.html")}#/listen`);
  await until("sound from disk", () => report.evaluate(() => window.studioPlayer?.tracks.size >= 3));
  check(asked.length === 0, "the report opens from disk and asks nobody");
  check((await report.getByRole("link", { name: "Playground" }).count()) === 0, "and offers nothing that needs a server");
  await browser.close();
  check(problems.length === 0, `no errors in the console ${problems.join("; ")}`);
  check(existsSync(join(work, "runs/live/metrics.jsonl")), `${checks + 1} checks`);
}

let failed = false;
try {
  await test();
} catch (error) {
  console.error(error.message ?? error);
  if (problems.length) console.error("console:", problems.join("\n"));
  failed = true;
} finally {
  for (const child of children) if (child.code === undefined) child.kill("SIGKILL");
  rmSync(work, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
