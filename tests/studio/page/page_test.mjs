// The page in Chromium, beside a training that is really going on. node page_test.mjs PROGRAM SOURCE_FOLDER [PART ...]
// Names of parts run only those. With MELETE_SHOTS=FOLDER it leaves pictures of every view there, for people to look at.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { Beside, tinyCodec } from "../beside_training.mjs";
import { blind } from "./blind.mjs";
import { listening } from "./listening.mjs";
import { looking } from "./looking.mjs";
import { playing } from "./playing.mjs";
import { screens } from "./screens.mjs";
import { sharing } from "./sharing.mjs";
import { watching } from "./watching.mjs";

const parts = { watching, listening, looking, blind, playing, screens, sharing }; // sharing ends the training
const [program, source, ...wanted] = process.argv.slice(2), recipes = join(source, "recipes");
const work = mkdtempSync(join(tmpdir(), "melete-page-"));
const shots = process.env.MELETE_SHOTS;
const started = Date.now();
const beside = new Beside(program, work);
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
async function until(what, ask, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise((r) => setTimeout(r, 100))) {
    const value = await ask();
    if (value) return value;
  }
  throw new Error(`waited ${seconds} s for: ${what}\n${beside.lastWords()}`);
}

// A voice of a few steps: what it says is nothing, but it is said sentence by sentence. Returns a text that it knows the
// sounds of: three of those that it was trained on.
function trainSpeech() {
  const few = ["--threads", "1", "--batch_size", "2", "--steps", "2", "--train.save_every", "2", "--train.sample_every", "0", "--train.validate_every", "0", "--data.valid_fraction", "0"];
  run("data", "synth", "--kind", "speech", "-o", "speech", "--count", "6", "--rate", "16000");
  run("train", "aligner", "--config", join(recipes, "voicebox/aligner_tiny.toml"), "--data", "speech", "--out", "aligner", ...few);
  run("data", "align", "speech", "--from", "aligner", "-o", "timings.jsonl");
  run("train", "duration", "--config", join(recipes, "voicebox/duration_tiny.toml"), "--data", "timings.jsonl", "--out", "runs/duration", ...few);
  run("train", "voicebox", "--config", join(recipes, "voicebox/speech_tiny.toml"), "--data", "speech", "--timings", "timings.jsonl", "--out", "runs/voice", ...few);
  return readdirSync(join(work, "speech")).filter((name) => name.endsWith(".txt")).sort().slice(0, 3).map((name) => readFileSync(join(work, "speech", name), "utf8").trim()).join(" ");
}

// Runs of several kinds, one of which goes on, and a studio that shows them.
async function prepare() {
  // A codec of a few hundred weights: a step takes milliseconds, so that there is always something new to see.
  run("data", "synth", "-o", "music", "--count", "4", "--seconds", "1", "--rate", "8000", "--format", "wav");
  writeFileSync(join(work, "tiny.toml"), tinyCodec({ validate_every: 10, sample_every: 40, save_every: 40 }));
  // What the recipe gives is measured first, so that the run beside the page goes by a table.
  run("train", "soundstream", "--config", "tiny.toml", "--data", "music", "--out", "runs/short", "--steps", "40", "--threads", "1", "--generator.clip_norm", "2");
  run("recipe", "measure", "runs/short", "-o", "tiny.expect.toml", "--data", "four pieces of music");
  const training = beside.start("train", "soundstream", "--config", "tiny.toml", "--data", "music", "--out", "runs/live", "--steps", "100000", "--threads", "1");
  // Pictures over a few steps, a tokenizer in a file of its own, and texts as a reader of speech leaves them.
  run("data", "synth", "--kind", "pictures", "-o", "shapes", "--count", "12", "--size", "32");
  run("train", "vqgan", "--config", join(recipes, "muse/vqgan_tiny.toml"), "--data", "shapes", "--out", "runs/pictures", "--steps", "6", "--threads", "1",
    "--batch_size", "2", "--train.sample_every", "3", "--train.save_every", "3", "--train.validate_every", "3");
  run("train", "kmeans", "--features", "mfcc", "--clusters", "4", "--data", "music", "-o", "runs/tokenizer.safetensors");
  for (const [step, read] of [[1, "a mouse is red"], [2, "the house is red"]]) {
    const folder = join(work, `runs/reader/samples/step_0000000${step}`);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "0_line_online.txt"), `written: the house is red\nread:    ${read}\n`);
  }
  writeFileSync(join(work, "runs/reader/metrics.jsonl"), '{"kind":"start","step":0,"time":1,"task":"spear-back-translate","steps_total":2}\n{"kind":"finished","step":2,"time":9,"reason":"done"}\n');
  const speaks = spawnSync("espeak-ng", ["--version"]).status === 0 && trainSpeech();
  run("codec", "eval", "--from", "runs/short", "--data", "music", "-o", "runs/short/eval", "--threads", "1");
  const studio = beside.start("studio", "runs", "--port", "0", "--job_threads", "1");
  const url = await until("the studio's address", () => studio.said.match(/http:\S+/)?.[0]);
  return { training, studio, url, speaks };
}

// Which recordings are loud at the moment, as numbers that only the same recording has.
const listenIn = () => {
  const voices = new Map();
  const { connect } = AudioNode.prototype, { stop } = AudioScheduledSourceNode.prototype;
  AudioNode.prototype.connect = function (to, ...rest) {
    if (this instanceof AudioBufferSourceNode && to instanceof GainNode) voices.set(this, to.gain);
    return connect.call(this, to, ...rest);
  };
  AudioScheduledSourceNode.prototype.stop = function (...when) {
    voices.delete(this);
    return stop.apply(this, when);
  };
  window.heardNow = () => [...voices].filter(([, gain]) => gain.value > 1e-3).map(([source]) => source.buffer.getChannelData(0).reduce((sum, one, i) => sum + one * Math.sin(i), 0).toFixed(6));
};

async function test() {
  const wrong = wanted.filter((name) => !parts[name]);
  if (wrong.length > 0) throw new Error(`no part is called ${wrong.join()}; there are ${Object.keys(parts).join(", ")}`);
  const { training, studio, url, speaks } = await prepare();
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--autoplay-policy=no-user-gesture-required",
      "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"], // a microphone that beeps
  });
  const open = async (options) => {
    const page = await (await browser.newContext(options)).newPage();
    if (options.before) await page.addInitScript(options.before);
    page.setDefaultTimeout(60000);
    // What the page still asks of a run that the test has just removed is not there.
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && !message.location().url.includes("run=long") && problems.push(`${message.text()} ${message.location().url}`));
    page.on("pageerror", (error) => problems.push(error.stack ?? error.message));
    return page;
  };
  const page = await open({ viewport: { width: 1440, height: 900 }, colorScheme: "dark", before: listenIn });
  const shot = async (on, name) => shots && (await on.screenshot({ path: join(shots, `${name}.png`) }));
  // Each part begins with only the training chosen.
  const choose = async (...names) => {
    const boxes = page.locator(".run-list input");
    await until("the list of runs", async () => (await boxes.count()) >= 4);
    for (const box of await boxes.all()) await box.setChecked(names.includes((await box.getAttribute("aria-label")).replace("choose ", "")));
  };
  const context = { program, recipes, work, url, page, browser, training, studio, speaks, shots, check, until, run, shot, open };
  for (const [name, part] of Object.entries(parts)) {
    if (wanted.length > 0 && !wanted.includes(name)) continue;
    say(`== ${name}`);
    await page.goto(url);
    await choose("live");
    await part(context);
    check(problems.length === 0, `no errors in the console ${problems.join("; ")}`);
  }
  await browser.close();
  say(`${checks} checks`);
}

let failed = false;
try {
  await test();
} catch (error) {
  console.error(error.message ?? error);
  if (problems.length) console.error("console:", problems.join("\n"));
  failed = true;
} finally {
  beside.end();
  rmSync(work, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
