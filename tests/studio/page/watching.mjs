// Cards, curves, heat maps and settings, beside a training that goes on.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expectedIn } from "./parts.mjs";

// A run of 100,000 steps as the trainer leaves it.
function writeLongRun(work) {
  const folder = join(work, "runs/long"), lines = ['{"kind":"start","step":0,"time":1000,"task":"soundstream","steps_total":100000}'];
  mkdirSync(folder);
  for (let step = 1; step <= 100000; ++step) {
    const loss = (3 / Math.sqrt(step) + 0.2 * Math.sin(step / 900) ** 2 + 0.1 * Math.sin(step * 7)).toFixed(5);
    lines.push(`{"kind":"step","step":${step},"time":${1000 + step / 10},"losses":{"loss":${loss}},"gradient_norms":{"all":${(1 + Math.sin(step) ** 2).toFixed(4)}},"learning_rates":{"all":0.001},"seconds":0.1,"data_wait_seconds":0.001,"items_per_second":80,"skipped_total":0}`);
  }
  lines.push('{"kind":"finished","step":100000,"time":12000,"reason":"done"}');
  writeFileSync(join(folder, "metrics.jsonl"), `${lines.join("\n")}\n`);
}

export async function watching(test) {
  const { page, url, work, training, check, until, shot } = test;
  await page.goto(url);
  const step = page.locator('[data-run="live"] .step');
  const first = Number((await step.textContent()).replace(/\D/g, ""));
  await until("more steps in the card", async () => Number((await step.textContent()).replace(/\D/g, "")) > first);
  check(training.code === undefined, "the card of a run counts on while it trains");
  check((await page.locator('[data-run="short"] [role="progressbar"]').getAttribute("aria-valuenow")) === "100", "a run that is over has a full bar");
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
  check(await expectedIn(test, plot), "the corridor that the recipe's table expects is behind the curve");
  const legend = page.locator('[data-plot="loss/generator.loss"] .legend');
  check(/live/.test(await legend.textContent()) && (await legend.getByRole("button", { name: /live, expected/ }).count()) === 1, "and the legend says so");
  await legend.getByRole("button", { name: /live, training/ }).focus();
  const drawnLines = () => plot.evaluate((element) => element.plot.series.length);
  const withAll = await drawnLines();
  for (const key of ["ArrowRight", "ArrowLeft", "Enter"]) await page.keyboard.press(key);
  await until("a line that is hidden", async () => (await drawnLines()) < withAll);
  await page.keyboard.press("Enter");
  await until("all lines again", async () => (await drawnLines()) === withAll);
  check(true, "the legend hides a line and shows it again, by keyboard");
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
  for (const [title, figure] of [["codes in use", "code_use"], ["perplexity", "perplexity"]]) {
    const map = page.locator(`section[aria-label="${title} of short"] canvas`);
    await map.waitFor();
    const drawn = await map.evaluate((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return { width: canvas.width, height: canvas.height, label: canvas.ariaLabel, empty: data.filter((value, i) => i % 4 === 3 && value === 0).length };
    });
    const last = readFileSync(join(work, "runs/short/metrics.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line)).filter((row) => row.kind === "validation" && row.label === "online").pop().losses[`${figure}_1`];
    check(drawn.height === 3 && drawn.width >= 4 && drawn.empty === 0 && drawn.label.includes(` ${last < 1 ? last.toFixed(4) : last.toFixed(3)}`), `a heat map of ${title}: ${drawn.width} validations of ${drawn.height} codebooks, the first now at ${last}`);
  }
  await page.getByRole("button", { name: "show all" }).click();
  await plot.focus();
  for (const key of ["ArrowRight", "ArrowRight", "+"]) await page.keyboard.press(key);
  await page.getByRole("button", { name: "show all" }).waitFor();
  const said = await page.locator('[data-plot="loss/generator.loss"] [aria-live]').textContent();
  check(/^step [\d,]+: .*live/.test(said), `the keyboard zooms and reads values: ${said}`);
  await page.keyboard.press("0");
  await until("all of it again", async () => (await page.getByRole("button", { name: "show all" }).count()) === 0);
  await page.getByRole("button", { name: "log y" }).click();
  const marks = await plot.evaluate(async ({ plot: drawn }) => {
    const counts = [];
    for (const low of [0.0951, 0.96, 9.6e-5, 20]) {
      drawn.setData(drawn.series.map((_, i) => (i === 0 ? [1, 2] : [low * 1.15, low * 4])));
      await new Promise((done) => setTimeout(done));
      counts.push(drawn.axes[1]._splits.length);
    }
    return counts;
  });
  check(marks.every((count) => count > 1 && count < 20), `logarithmic axes that begin just below a power of ten end: ${marks} marks`);
  await page.getByRole("radio", { name: "time trained" }).click();
  await page.locator('input[type="range"]').first().fill("0.9");
  const rate = page.locator('[data-plot="learning_rate/generator"] .plot');
  await page.getByRole("radio", { name: "steps", exact: true }).click();
  await rate.scrollIntoViewIfNeeded();
  await until("the learning rate ahead of time", () => rate.evaluate((element) => Math.max(...(element.plot?.data[0] ?? [0])) === 100000));
  check(true, "the learning rate is known to the end of the run");
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, "curves-wide-dark");

  // 100,000 steps: a new zoom is drawn, and the values follow the mouse, without a wait that is felt.
  const chosenBefore = await page.locator(".run-list input:checked").evaluateAll((boxes) => boxes.map((box) => box.ariaLabel));
  writeLongRun(work);
  await page.getByLabel("choose long").check();
  for (const label of chosenBefore) await page.getByLabel(label, { exact: true }).uncheck();
  const longPlot = page.locator('[data-plot="loss/loss"] .plot');
  await until("the end of the long run", () => longPlot.count().then((count) => count && longPlot.evaluate((element) => Math.max(...(element.plot?.data[0] ?? [0])) > 99000)));
  const area = await longPlot.locator(".u-over").boundingBox();
  await page.evaluate(() => {
    window.frames_ = [];
    const next = (time) => (window.frames_.push(time), (window.frame_ = requestAnimationFrame(next)));
    window.frame_ = requestAnimationFrame(next);
  });
  for (let i = 0; i < 60; ++i) await page.mouse.move(area.x + (area.width * i) / 60, area.y + 80);
  const gaps = await page.evaluate(() => (cancelAnimationFrame(window.frame_), window.frames_.slice(1).map((time, i) => time - window.frames_[i]).sort((a, b) => a - b)));
  const typical = gaps[Math.floor(gaps.length / 2)];
  check(typical < 100, `100,000 steps: ${typical.toFixed(0)} ms from picture to picture while the mouse moves over them`);
  const zoomInto = async (from, to) => {
    await page.mouse.move(area.x + area.width * from, area.y + 80);
    await page.mouse.down();
    await page.mouse.move(area.x + area.width * to, area.y + 80, { steps: 3 });
    await page.mouse.up();
    return Date.now();
  };
  await zoomInto(0.9, 0.95);
  await page.getByRole("button", { name: "show all" }).waitFor();
  const zoomedAt = await zoomInto(0.4, 0.5);
  await until("the steps themselves", () => longPlot.evaluate((element) => element.plot.data[0].length > 100 && element.plot.data[0].every((step) => step === Math.round(step) && step > 90000)));
  check(Date.now() - zoomedAt < 5000, `a zoom into ${await longPlot.evaluate((element) => element.plot.data[0].length)} of them was drawn after ${Date.now() - zoomedAt} ms`);
  await page.getByRole("button", { name: "show all" }).click();
  for (const label of chosenBefore) await page.getByLabel(label, { exact: true }).check();
  await page.getByLabel("choose long").uncheck();
  rmSync(join(work, "runs/long"), { recursive: true });
  await until("a run that is gone", async () => (await page.getByLabel("choose long").count()) === 0);

  await page.goto(`${url}#/settings`);
  const differing = await until("settings", async () => (await page.locator("tr.differs th").allTextContents()).join());
  check(differing.includes("train.steps") && differing.includes("clip_norm") && !differing.includes("batch_size"), `settings that differ: ${differing}`);
}
