// The playground: forms, jobs, what stays in memory, speech as it is made.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ask } from "./parts.mjs";

// The command beside a result gives the same bytes in a shell, where nothing was in memory.
function sameAgain({ work, program, check }, job) {
  const paths = job.results.map((path) => join(work, "runs", path));
  const before = paths.map((path) => readFileSync(path));
  const done = spawnSync("sh", ["-c", job.command.replace(/^melete/, `'${program}'`)], { cwd: work, encoding: "utf8" });
  if (done.status !== 0) throw new Error(`${job.command}: ${done.stderr}`);
  check(before.length > 0 && paths.every((path, i) => readFileSync(path).equals(before[i])), `the command beside it makes the same ${before.length} files, byte for byte`);
}

// Every form of the playground has what `melete help` lists for that generator, with the same defaults, and nothing else.
async function checkForms({ url, program, check }) {
  const tools = await (await ask(`${url}api/tools`)).json();
  const listed = spawnSync(program, ["generate", "--help"], { encoding: "utf8" }).stdout.match(/^  [a-z][a-z-]* /gm).map((line) => line.trim());
  const missing = listed.filter((name) => !tools.some((tool) => tool.name === name));
  check(listed.length >= 8 && missing.length === 0, `the playground has every generator: ${listed.join(", ")} ${missing.join()}`);
  let settings = 0;
  for (const tool of tools) {
    const words = tool.name === "codec" ? ["codec", "compare", "--help"] : ["help", "generate", tool.name];
    const help = spawnSync(program, words, { encoding: "utf8" }).stdout;
    const inHelp = [...help.slice(help.indexOf("\nsettings")).split("\nexamples")[0].matchAll(/^  --([\w.]+)\s+([^]*?)(?=^  --|^$)/gm)].map(([, name, text]) => ({ name, text: text.replace(/\s+/g, " ").trim() }));
    if (/^ *--seed /m.test(help) && tool.name !== "codec") inHelp.push({ name: "seed", text: "default 0" });
    const differ = [...inHelp.filter((one) => !tool.options.some((option) => option.name === one.name)), ...tool.options.filter((option) => !inHelp.some((one) => one.name === option.name))].map((one) => one.name);
    if (inHelp.length < 3 || differ.length > 0) throw new Error(`the form of ${tool.name} and its help differ in: ${differ.join()}`);
    for (const option of tool.options) {
      const { text } = inHelp.find((one) => one.name === option.name);
      const shown = text.match(/default (\[[^\]]*\]|"[^"]*"|[\w.+-]+)/)?.[1];
      const given = option.kind === "output" ? "" : option.default;
      if (option.name !== "seed" && (!text.startsWith(option.help) || JSON.stringify(JSON.parse(shown)) !== JSON.stringify(given))) throw new Error(`${tool.name} --${option.name}: the form says ${option.help} ${JSON.stringify(given)}, the help ${text}`);
    }
    settings += inHelp.length;
  }
  const muse = tools.find((tool) => tool.name === "muse").options.find((option) => option.name === "save_steps");
  check(muse.kind === "output" && muse.file === "save_steps.png", `${settings} settings of ${tools.length} tools are those of the command line`);
}

// Asked as OpenAI's clients ask; when each piece came, and all of it.
async function speak(url, input, format) {
  const began = Date.now();
  const answer = await ask(`${url}v1/audio/speech`, { method: "POST", body: JSON.stringify({ model: "tts-1", input, response_format: format }) });
  const pieces = [], times = [];
  for await (const piece of answer.body) {
    pieces.push(piece);
    times.push((Date.now() - began) / 1000);
  }
  return { status: answer.status, bytes: Buffer.concat(pieces), times };
}

export async function playing(test) {
  const { page, url, work, speaks, studio, check, until, run, shot } = test;
  await checkForms(test);
  await page.goto(`${url}#/play`);
  await page.getByLabel("make", { exact: true }).selectOption("audiolm");
  check((await page.locator("#o-tokenizer option").allTextContents()).includes("tokenizer.safetensors"), "a tokenizer in a file of its own is offered");
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
  check((await page.locator('#o-from optgroup[label="single checkpoints"] option').count()) >= 2, "single checkpoints are offered");
  await page.getByText("in memory: codec").waitFor();
  const inside = await (await ask(`${url}api/kept`)).json();
  check(inside.length === 1 && inside[0].path === "runs/short" && inside[0].bytes > 0, `the codec stays in memory: ${inside[0].bytes} bytes`);
  // The same recording once more, from the microphone this time.
  await page.getByRole("button", { name: "remove" }).click();
  await page.getByRole("button", { name: "● microphone" }).click();
  await page.waitForTimeout(1200);
  await page.getByRole("button", { name: "■ stop" }).click();
  await page.locator(".chip.good").waitFor();
  await page.getByRole("button", { name: "make it" }).click();
  await until("the second job", async () => (await page.locator(".job .pill.done").count()) === 2, 120);
  const [again, before_] = await (await ask(`${url}api/jobs`)).json();
  check(/microphone/.test(again.command), "a recording of the microphone was coded");
  const took = (job) => job.ended - job.started;
  check(took(again) < took(before_), `with the codec in memory it took ${took(again).toFixed(2)} s, before that ${took(before_).toFixed(2)} s`);
  sameAgain(test, again);
  // What goes on is shown, and ends when it is told to: ten minutes of sound, and the same again behind it.
  run("data", "synth", "-o", "long", "--count", "1", "--seconds", "600", "--rate", "8000", "--format", "wav");
  await page.getByRole("button", { name: "remove" }).click();
  await page.locator("#o-recording").setInputFiles(join(work, "long", readdirSync(join(work, "long")).find((name) => name.endsWith(".wav"))));
  await page.locator(".chip.good").waitFor();
  await page.getByRole("button", { name: "make it" }).click();
  const bar = page.locator('.job [role="progressbar"]');
  await until("the bar of a job", async () => (await bar.count()) > 0 && /of codec$/.test(await bar.first().getAttribute("aria-label")));
  await page.getByRole("button", { name: "make it" }).click();
  const pills = () => page.locator(".job .pill").allTextContents();
  await until("one that waits", async () => (await pills())[0].startsWith("waiting"));
  await shot(page, "play-busy-wide-dark");
  for (const which of [0, 1]) {
    await page.locator(".job").nth(which).getByRole("button", { name: "cancel" }).click();
    await until("a cancelled job", async () => (await pills())[which].startsWith("cancelled"));
    check((await pills()).slice(which + 1, 2).every((text) => text.startsWith("running")), `a job ${which ? "that runs" : "that waits"} can be cancelled`);
  }
  const over = (await (await ask(`${url}api/jobs`)).json())[1];
  const twice = await ask(`${url}api/jobs/${over.id}`, { method: "DELETE" });
  check(twice.status === 200 && (await twice.json()).state === "cancelled", "and again, which changes nothing");
  // It took its process along, and the next one has another.
  const next = await (await ask(`${url}api/jobs`, { method: "POST", body: JSON.stringify({ tool: "codec", settings: before_.settings }) })).json();
  await until("the job after it", async () => (await (await ask(`${url}api/jobs/${next.id}`)).json()).state === "done");
  await page.getByRole("button", { name: "free it" }).click();
  await until("free memory", async () => (await (await ask(`${url}api/kept`)).json()).length === 0);
  check(studio.code === undefined, "memory is freed when it is asked for");

  if (speaks) {
    for (const [format, mark] of [["wav", "RIFF"], ["flac", "fLaC"], ["opus", "OggS"]]) {
      const heard = await speak(url, speaks, format);
      check(heard.status === 200 && heard.bytes.toString("latin1", 0, 4) === mark, `${format}: ${heard.bytes.length} bytes of speech`);
      const [first_, last] = [heard.times[0], heard.times[heard.times.length - 1]];
      check(heard.times.length > 1 && first_ < last, `its first came after ${first_.toFixed(2)} s, its last after ${last.toFixed(2)} s`);
      if (format !== "wav") continue;
      const whole = readFileSync(join(work, "runs/studio/made", (await (await ask(`${url}api/jobs`)).json())[0].id, "result.wav"));
      const samples = (heard.bytes.length - 44) / 2;
      check(samples > 8000 && Math.abs((whole.length - whole.indexOf("data") - 8) / 4 - samples) === 0, `${samples} samples, as many as the file has`);
    }
    sameAgain(test, (await (await ask(`${url}api/jobs`)).json())[0]);
    const inMemory = (await (await ask(`${url}api/kept`)).json()).map((model) => model.kind);
    check(["voicebox", "duration"].every((kind) => inMemory.includes(kind)), `in memory: ${inMemory.join(", ")}`);
  }
}
